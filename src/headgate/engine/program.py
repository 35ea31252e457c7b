"""The job as the tasks see it: a tree of steps per producer, and the keyed operators by number.

A **producer** is an input of the job or a keyed operator. What it makes flows down a tree of steps: a node applies a
function to the rows and hands them to its branches; a leaf sends them to a keyed operator or to an output. Branches
share the work of the node above them.

Keyed operators make up **components** (``headgate.topology``): those of one component have the rows and the state of
a key in the same slot, and hand rows to each other within a slot task. Components have a **depth**: 1 for those fed by
inputs only, and one more than the deepest component that feeds them. All of one depth run in one stage of the Spark
job, so a batch is one job with as many shuffles as the deepest component is deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I64
from headgate.errors import HeadgateError, JobError, UserFunctionError
from headgate.operators import KeyedOperator, WindowedAggregation
from headgate.routing import Assignment, Together, row_hash

Rule = Literal["fail", "drop", "side"]
"""What to do with rows that cannot be used: stop, drop and count, or count and send to the side output."""

BatchKind = Literal["arrow", "pandas", "polars"]
"""The form in which a Python function wants its rows."""

REJECTED = "rejected"
"""The name of the side output: late rows and rows with unusable keys, each with its reason."""

REJECTED_SCHEMA = pa.schema(
    [("batch", pa.int64()), ("input", pa.string()), ("reason", pa.string()), ("row", pa.string())]
)


COMPONENTS = "components"
"""The wish of a job that says which operators are to run in one task, and which never."""


@dataclass(frozen=True, slots=True)
class ToOperator:
    """A leaf: rows go to this keyed operator."""

    operator: int


@dataclass(frozen=True, slots=True)
class ToOutput:
    """A leaf: rows go to this output."""

    output: str


@dataclass(frozen=True, slots=True)
class Mapped:
    """A node: a Python function over whole batches of rows. ``schema`` is what it must return; a value of a
    ``lenient`` column (a key, where the job does not fail for bad ones) that does not fit becomes null. ``keeps``:
    columns that rows leave with as they came."""

    name: str
    function: Callable[[object], object]
    kind: BatchKind
    schema: pa.Schema
    branches: tuple[Branch, ...]
    lenient: frozenset[str] = frozenset()
    keeps: frozenset[str] = frozenset()

    def apply(self, rows: pa.Table) -> pa.Table:
        return conform(_called(self.name, self.function, self.kind, rows), self.schema, self.name, self.lenient)


@dataclass(frozen=True, slots=True)
class Filtered:
    """A node: a Python function that says for each row whether it stays."""

    name: str
    function: Callable[[object], object]
    kind: BatchKind
    branches: tuple[Branch, ...]

    def apply(self, rows: pa.Table) -> pa.Table:
        mask = _plain(_returned(self.name, self.function, self.kind, rows))
        array = mask if isinstance(mask, pa.Array | pa.ChunkedArray) else pa.array(mask)
        if len(array) != rows.num_rows or not pa.types.is_boolean(array.type):
            raise UserFunctionError(
                f"the filter {self.name!r} must return one boolean per row ({rows.num_rows}), got {len(array)} of type "
                f"{array.type}: return a boolean array, series or column"
            )
        return rows.filter(array)


Branch: TypeAlias = "Mapped | Filtered | ToOperator | ToOutput"


@dataclass(frozen=True, slots=True)
class Input:
    """A source as the tasks see it: which of its rows go where. ``files`` is set where tasks open files themselves."""

    name: str
    schema: pa.Schema
    branches: tuple[Branch, ...]
    files: FileFormat | None = None


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How the files of an input are read inside the tasks. ``columns``: those that the job uses; None: all. Values of
    ``lenient`` columns that do not fit become null."""

    format: Literal["parquet", "csv", "json"]
    schema: pa.Schema
    columns: tuple[str, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    lenient: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Step:
    """A keyed operator in its job.

    ``component`` is the number of its component, None: it is one by itself. ``placed_by`` are the columns, among those
    of its key, that say in which key group a key is; none: all of them, in their order. ``per_window``: its windows are
    computed one by one, at first where it ``decides_sharing`` while the job runs. ``keeps``: key columns that the
    results of a function have as they were; other operators pass their key on.
    """

    operator: KeyedOperator
    depth: int
    branches: tuple[Branch, ...]
    ttl_micros: int | None = None
    timers: bool = False
    combine_early: bool = False
    splits: bool = False
    lateness_micros: int = 0
    component: int | None = None
    placed_by: tuple[str, ...] = ()
    decides_sharing: bool = False
    per_window: bool = False
    keeps: tuple[str, ...] = ()

    def placing(self, rows: pa.Table, hashes: I64) -> I64:
        """The hashes that key groups and slots go by, of rows that have the key columns and these key hashes."""
        if not self.placed_by or not len(hashes):
            return hashes
        return row_hash(rows.select(list(self.placed_by)))

    @property
    def may_be_alone(self) -> bool:
        """Whether its windows are computed one by one, or may come to be."""
        return self.per_window or self.decides_sharing

    @property
    def waits(self) -> bool:
        """Whether the end of the input makes it say what it still holds back: timers, windows."""
        return self.timers or isinstance(self.operator, WindowedAggregation)


@dataclass(frozen=True, slots=True)
class Pair:
    """A compute and a consolidate that it feeds, by number. ``auto``: whether they run in one task is decided while the
    job runs."""

    compute: int
    consolidate: int
    auto: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """The whole job. Pickled once, kept by every Python worker that has seen it."""

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: Mapping[str, pa.Schema]
    groups: int
    event_time: str | None = None
    late: Rule = "drop"
    bad_keys: Rule = "fail"
    pairs: tuple[Pair, ...] = ()
    built: tuple[int, ...] = ()
    """The components that the job was built with, where it has others now."""
    kept_apart: tuple[tuple[str, str], ...] = ()
    """Operators that the job says are never to run in one task."""

    @property
    def depth(self) -> int:
        """How many stages with slots a batch has; at least one, which then only passes reports on."""
        return max((step.depth for step in self.steps), default=0)

    @property
    def components(self) -> tuple[int, ...]:
        """The number of each operator's component: numbered by their first operators."""
        numbers = [0] * len(self.steps)
        for number, members in enumerate(self.together.components):
            for member in members:
                numbers[member] = number
        return tuple(numbers)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Which operators feed which."""
        return [
            (number, leaf.operator)
            for number, step in enumerate(self.steps)
            for leaf in leaves(step.branches)
            if isinstance(leaf, ToOperator)
        ]

    def arranged(self, components: Sequence[int]) -> Program:
        """The same job with other components, one number per operator, and the depths that follow from them. Raises
        ``JobError`` where components would wait for each other."""
        deep = depths(components, self.edges)
        steps = zip(self.steps, components, deep, strict=True)
        made = tuple(replace(step, component=own, depth=at) for step, own, at in steps)
        return replace(self, steps=made, built=self.built or self.components)

    def refined(self, components: Sequence[int]) -> tuple[int, ...]:
        """The components of operators that are in one both here and by these; where even these would wait for each
        other, since the job has changed, each operator is one."""
        both = list(zip(self.components, components, strict=True))
        numbers = {pair: number for number, pair in enumerate(dict.fromkeys(both))}
        try:
            return self.arranged([numbers[pair] for pair in both]).components
        except JobError:
            return self.arranged(range(len(both))).components

    def taken_apart(self, pair: Pair) -> tuple[int, ...]:
        """The components with the compute of a pair in one of its own: enorm's split.

        Where others of its component feed it, what it feeds has to leave them too: else they would wait for each other.
        """
        components, own = list(self.components), self.components[pair.compute]
        components[pair.compute] = len(components)
        if any(components[source] == own for source in self._reached(pair.compute, upwards=True)):
            for fed in self._reached(pair.compute):
                if components[fed] == own:
                    components[fed] = len(components) + 1
        return self.arranged(components).components

    def put_together(self, pair: Pair) -> tuple[int, ...]:
        """The components with a compute in that of its consolidate: enorm's combine. Where nothing of what the job was
        built with as their component is to stay apart, all of that is together again."""
        components, built = list(self.components), self.built or self.components
        components[pair.compute] = components[pair.consolidate]
        mates = [number for number, own in enumerate(built) if own == built[pair.consolidate]]
        apart = [other for other in self.pairs if components[other.compute] != components[other.consolidate]]
        if pair.compute in mates and not any(other.compute in mates for other in apart):
            for mate in mates:
                components[mate] = len(components)
        return self.arranged(components).components

    def _reached(self, operator: int, *, upwards: bool = False) -> set[int]:
        """The operators that this one feeds, directly or not; upwards, those that feed it."""
        found: set[int] = set()
        border = {operator}
        while border:
            ends = ((target, source) if upwards else (source, target) for source, target in self.edges)
            border = {end for start, end in ends if start in border} - found
            found |= border
        return found

    def apart(self, pair: Pair) -> bool:
        """Whether a compute and its consolidate are in different components."""
        return self.components[pair.compute] != self.components[pair.consolidate]

    @property
    def wishes(self) -> dict[str, str]:
        """What the job wants where the engine, or a person, may change it while the job runs."""
        ways = {
            f"split {pair.compute} {pair.consolidate}": f"{'auto, ' if pair.auto else ''}"
            f"{'apart' if self.apart(pair) else 'together'}"
            for pair in self.pairs
        }
        sharing = {
            f"share {number}": "per window" if step.per_window else "auto"
            for number, step in enumerate(self.steps)
            if step.per_window or step.decides_sharing
        }
        fused = [" ".join(map(str, self.components)), *sorted(map(" / ".join, self.kept_apart))]
        return {COMPONENTS: ", never ".join(fused), **ways, **sharing}

    @property
    def together(self) -> Together:
        """Which operators make up each component."""
        members: dict[int, list[int]] = {}
        for number, step in enumerate(self.steps):
            members.setdefault(-1 - number if step.component is None else step.component, []).append(number)
        return Together(tuple(sorted(tuple(numbers) for numbers in members.values())))

    def levelled(self, assignment: Assignment) -> Assignment:
        """The assignment with all operators of each component in the same slots: itself where they are."""
        if not self.steps:
            return assignment
        together = self.together
        return together.levelled(assignment, [self.pinnable(members[0]) for members in together.components])

    @property
    def component_names(self) -> list[str]:
        """What people call the components: by their operators."""
        return [" + ".join(self.steps[one].operator.name for one in members) for members in self.together.components]

    @property
    def splitting(self) -> list[bool]:
        """For each component whether its keys may be split over slots."""
        return [self.steps[members[0]].splits for members in self.together.components]

    @property
    def depths(self) -> list[int]:
        """The depth of each component, which is the stage it runs in."""
        return [self.steps[members[0]].depth for members in self.together.components]

    def component_of(self, operator: int) -> str:
        """The name of the component that an operator is in."""
        return self.component_names[self.together.component(operator)]

    def pinnable(self, operator: int) -> bool:
        """Whether keys of this operator can be placed one by one: not where rows of a key are added up before the
        shuffle by window, nor where a component is placed by less than the key."""
        mates = self.together.components[self.together.component(operator)]
        return not any(
            self.steps[mate].placed_by or isinstance(self.steps[mate].operator, WindowedAggregation) for mate in mates
        )


def depths(components: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """How deep the component of each operator is: one more than the deepest other one that feeds it.

    ``edges`` go from one operator to another. Raises ``JobError`` where components feed each other in a circle.
    """
    between = {(components[source], components[target]) for source, target in edges}
    between = {(source, target) for source, target in between if source != target}
    deep = dict.fromkeys(components, 1)
    for _ in deep:  # often enough, if there is no circle
        for source, target in between:
            deep[target] = max(deep[target], deep[source] + 1)
    if any(deep[target] <= deep[source] for source, target in between):
        raise JobError.circle(sorted(between))
    return [deep[component] for component in components]


def leaves(branches: tuple[Branch, ...]) -> Iterator[ToOperator | ToOutput]:
    """Where the rows of these branches end up."""
    for branch in branches:
        if isinstance(branch, ToOperator | ToOutput):
            yield branch
        else:
            yield from leaves(branch.branches)


def flow(
    branches: tuple[Branch, ...], rows: pa.Table, deliver: Callable[[ToOperator | ToOutput, pa.Table], None]
) -> None:
    """Send rows down the tree; ``deliver`` is called at each leaf that gets any."""
    for branch in branches:
        if isinstance(branch, ToOperator | ToOutput):
            if rows.num_rows:
                deliver(branch, rows)
        elif rows.num_rows:
            flow(branch.branches, branch.apply(rows), deliver)


def returned_schema(name: str, function: Callable[[object], object], kind: BatchKind, given: pa.Schema) -> pa.Schema:
    """The columns that a function returns, found out by calling it with no rows.

    A column of pandas texts has no type without rows: it keeps the one it came with; ``ValueError`` if it is new.
    """
    columns = []
    for column in _called(name, function, kind, given.empty_table()).schema.remove_metadata():
        if pa.types.is_null(column.type):
            if column.name not in given.names:
                raise ValueError(f"column {column.name!r} has no type without rows")
            column = given.field(column.name)
        columns.append(column)
    return pa.schema(columns)


def _called(name: str, function: Callable[[object], object], kind: BatchKind, rows: pa.Table) -> pa.Table:
    made = _plain(_returned(name, function, kind, rows))
    if isinstance(made, pa.RecordBatch):
        return pa.Table.from_batches([made])
    if isinstance(made, pa.Table):
        return made
    raise UserFunctionError(
        f"the function {name!r} must return rows as an Arrow table or record batch, or a pandas or polars DataFrame, "
        f"got {type(made).__name__}"
    )


def _returned(name: str, function: Callable[[object], object], kind: BatchKind, rows: pa.Table) -> object:
    try:
        return function(_handed(rows, kind))
    except Exception as error:
        first = rows.slice(0, 1).to_pylist()
        raise UserFunctionError(
            f"the function {name!r} raised {type(error).__name__}: {error}; it was given {rows.num_rows} rows, the "
            f"first being {first[0] if first else None}: mend the function and start the job again, it goes on from "
            "its last commit"
        ) from error


def _handed(rows: pa.Table, kind: BatchKind) -> object:
    if kind == "pandas":
        return rows.to_pandas()
    if kind == "polars":
        import polars  # only jobs that ask for it need it

        return polars.from_arrow(rows)
    return rows


def _plain(made: object) -> object:
    """Arrow from what a function returned, where it is a pandas or polars object."""
    if isinstance(made, pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray):
        return made
    to_arrow = getattr(made, "to_arrow", None)
    if to_arrow is not None:
        return to_arrow()
    module = type(made).__module__.split(".")[0]
    if module == "pandas":
        if type(made).__name__ == "Series":
            return pa.Array.from_pandas(made)
        return pa.Table.from_pandas(made, preserve_index=False)
    return made


def conform(rows: pa.Table, schema: pa.Schema, name: str, lenient: frozenset[str] = frozenset()) -> pa.Table:
    """The rows that a function returned, with exactly these columns, in this order and of these types.

    Raises ``UserFunctionError`` where a column is missing or cannot be cast without loss (see ``fitted``).
    """
    missing = [wanted for wanted in schema.names if wanted not in rows.column_names]
    if missing:
        raise UserFunctionError(
            f"{name!r} must give the columns {', '.join(schema.names)}, got {', '.join(rows.column_names)}: "
            f"{missing[0]!r} is missing"
        )

    def misfit(wanted: pa.Field, got: pa.DataType, error: Exception) -> HeadgateError:
        return UserFunctionError(
            f"{name!r} must give column {wanted.name!r} as {wanted.type}, got {got}, which cannot be cast without loss "
            f"({error})"
        )

    return fitted(rows, schema, lenient, misfit)


def fitted(
    rows: pa.Table,
    schema: pa.Schema,
    lenient: frozenset[str],
    misfit: Callable[[pa.Field, pa.DataType, Exception], HeadgateError],
) -> pa.Table:
    """The columns of ``schema``, which the rows must have, cast to its types.

    A value of a ``lenient`` column that cannot be cast without loss becomes null; for another column what ``misfit``
    makes of it is raised.
    """
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    columns = []
    for wanted in schema:
        column = rows.column(wanted.name)
        if not column.type.equals(wanted.type):
            try:
                column = pc.cast(column, wanted.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                if wanted.name not in lenient:
                    raise misfit(wanted, column.type, error) from error
                column = cast_one_by_one(column, wanted.type)
        columns.append(column)
    return pa.table(columns, schema=schema)


def cast_one_by_one(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The values that can be cast without loss, null for the others. Slow: for columns that do not fit as a whole."""
    values = []
    for value in column:
        try:
            values.append(value.cast(kind, safe=True).as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values.append(None)
    return pa.array(values, kind)
