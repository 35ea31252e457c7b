"""The job: sources, steps and sinks put together, checked, drawn, and started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.durations import Duration, micros_of
from headgate.engine.fusing import EXTENTS, Extent, Fused, Rates, fused
from headgate.engine.options import check_columns, check_whole
from headgate.engine.ordered import Ordered
from headgate.engine.program import (
    REJECTED,
    REJECTED_SCHEMA,
    Branch,
    FileFormat,
    Filtered,
    Input,
    Mapped,
    Pair,
    Program,
    Rule,
    Step,
    ToOperator,
    ToOutput,
    depths,
    leaves,
)
from headgate.engine.stream import ZONE, KeyedNode, Node, Stream
from headgate.errors import JobError
from headgate.operators import (
    TIMES,
    Compute,
    CountAggregation,
    IntervalJoin,
    SessionAggregation,
    Tagged,
    WindowedAggregation,
    is_time,
)
from headgate.routing import GROUPS
from headgate.sinks import Sink
from headgate.sources import FileSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.control import Policy
    from headgate.engine.query import Query
    from headgate.planners import Limits, Planner


class Job:
    """A stream job: build it up, look at it with ``explain()``, run it with ``start()``.

    ``event_time`` names the column with the time of the event; ``slack`` is how long to wait for rows that are behind.
    The watermark of a batch is the greatest event time seen before it, less the slack; rows behind it are late.
    ``late`` and ``bad_keys`` say what happens to late rows and to rows whose key is null: ``"fail"``, ``"drop"`` (and
    count), or ``"side"`` (count, and send to ``rejected()``). ``groups`` is the number of key groups, fixed with the
    first start: choose it for the largest number of slots you will ever want.

    ``fusion`` says which keyed operators run in one task, without a shuffle between them: ``"same keys"`` those that
    follow each other and have the same keys, ``"auto"`` all that have a key column in common, ``"off"`` none; ``fuse``
    and ``keep_apart`` overrule it. ``rates`` are rows between operators as a query measured them
    (``query.rates()``): with them the busiest streams are fused first. If no row was seen at all, it is as without.
    """

    def __init__(
        self,
        name: str,
        *,
        event_time: str | None = None,
        slack: Duration = 0,
        late: Rule = "drop",
        bad_keys: Rule = "fail",
        groups: int = GROUPS,
        fusion: Extent = "same keys",
        rates: Rates | None = None,
    ) -> None:
        if not name or "/" in name:
            raise JobError.option("the name of a job", "a text without a slash", name)
        for what, rule in (("late", late), ("bad_keys", bad_keys)):
            if rule not in ("fail", "drop", "side"):
                raise JobError.option(what, '"fail", "drop" or "side"', rule)
        check_whole("groups", groups)
        self.name = name
        self.event_time = event_time
        self.slack_micros = micros_of(slack, "slack")
        self.late: Rule = late
        self.bad_keys: Rule = bad_keys
        self.groups = groups
        if fusion not in EXTENTS:
            raise JobError.option("fusion", f"one of {', '.join(map(repr, EXTENTS))}", fusion)
        self.fusion: Extent = fusion
        self.rates = rates if any(rows for targets in (rates or {}).values() for rows in targets.values()) else None
        self._together: list[tuple[str, ...]] = []
        self._apart: list[tuple[str, str]] = []
        self._split: dict[tuple[str, str], bool] = {}  # a compute and its consolidate; True: decided while it runs
        self._sources = 0
        self._inputs: list[Node] = []
        self._steps: list[KeyedNode] = []
        self._outputs: dict[str, tuple[pa.Schema, list[Sink]]] = {}

    def source(self, rows: DataFrame | FileSource, name: str | None = None) -> Stream:
        """A stream of the rows of a streaming DataFrame, of files the tasks read themselves (``headgate.sources``), or
        of a static DataFrame, which is processed once."""
        name = name or f"input{self._sources}"
        self._sources += 1
        if isinstance(rows, FileSource):
            node = Node("input", name, rows.form.schema, frame=rows.frame, files=rows.form)
            return Stream(self, [node], rows.form.schema, path=[node])
        if not isinstance(rows, DataFrame):
            raise JobError.option("a source", "a Spark DataFrame or one of headgate.sources", type(rows).__name__)
        check_columns(f"source {name!r}", rows.columns)
        schema = to_arrow_schema(rows.schema, timezone=ZONE)
        node = Node("input", name, schema, frame=rows)
        return Stream(self, [node], schema, path=[node])

    def rejected(self) -> Stream:
        """The side output: late rows and rows with unusable keys, with batch, input, reason and the row as JSON.

        Filled where ``late`` or ``bad_keys`` is ``"side"``; can only be written to sinks.
        """
        return Stream(self, [], REJECTED_SCHEMA, output=REJECTED)

    def fuse(self, *operators: str) -> None:
        """Run these keyed operators, by name, in one task. Checked when the job starts or is explained: they must have
        a key column in common that reaches each of them unchanged."""
        if len(operators) < 2:
            raise JobError.option("fuse", "given the names of at least two operators", operators)
        self._together.append(operators)

    def keep_apart(self, one: str, other: str) -> None:
        """Never run these two keyed operators in one task, unless ``query.migrate`` or ``query.combine`` puts them into
        one by hand."""
        self._apart.append((one, other))

    def components(self) -> Fused:
        """Which keyed operators run in one task, and why. Raises ``JobError`` for a wish that cannot be met."""
        apart = [*self._apart, *(pair for pair, auto in self._split.items() if not auto)]
        return fused(self.name, self._steps, self.fusion, self._together, apart, self.rates, self._inputs)

    def _attach(self, node: Node) -> Node:
        """Take an input into the job when something first uses it."""
        if node.kind == "input" and not any(node is other for other in self._inputs):
            names = {other.name for other in self._inputs}
            if node.name in names:
                raise JobError.name_twice("source", node.name)
            self._inputs.append(node)
        return node

    def program(self) -> Program:
        """The job as the tasks will see it. Raises ``JobError`` for a job that cannot run."""
        if not self._outputs:
            raise JobError.empty(self.name)
        names = [keyed.operator.name for keyed in self._steps]
        for name in names:
            if names.count(name) > 1:
                raise JobError.name_twice("operator", name)
        fed = [keyed.operator.input_schema.names for keyed in self._steps]
        if self.event_time is not None and fed and not any(self.event_time in columns for columns in fed):
            raise JobError.unknown_column(
                "event_time", self.event_time, sorted({name for names in fed for name in names})
            )
        for keyed in self._steps:
            schema = keyed.operator.input_schema
            kind = schema.field(self.event_time).type if self.event_time in schema.names else pa.int64()
            if not is_time(kind):
                what = f"the event time {self.event_time!r} of {keyed.operator.name!r}"
                raise JobError.option(what, TIMES, str(kind))
        own = self.components()
        deep = self._depths(own)
        steps = tuple(
            Step(
                keyed.operator,
                deep[number],
                self._frozen(keyed.node),
                keyed.ttl_micros,
                keyed.timers,
                keyed.combine_early,
                keyed.splits,
                keyed.lateness_micros,
                own.component[number],
                own.placed_by[number],
                keyed.decides_sharing,
                keyed.per_window,
                keyed.node.keeps,
            )
            for number, keyed in enumerate(self._steps)
        )
        for step in steps:
            if step.splits and any(isinstance(leaf, ToOperator) for leaf in leaves(step.branches)):
                raise JobError.not_splittable(step.operator.name, "its results feed another keyed operator")
        inputs = tuple(self._input(node) for node in self._inputs)
        outputs = {name: schema for name, (schema, _) in self._outputs.items()}
        return Program(
            name=self.name,
            inputs=inputs,
            steps=steps,
            outputs=outputs,
            groups=self.groups,
            event_time=self.event_time,
            late=self.late,
            bad_keys=self.bad_keys,
            pairs=self._pairs(steps),
            kept_apart=tuple(self._apart),
        )

    def _pairs(self, steps: Sequence[Step]) -> tuple[Pair, ...]:
        """The computes and their consolidates, where both are placed alike, so that they can be put together."""
        return tuple(
            Pair(number, leaf.operator, self._split.get((step.operator.name, target.operator.name), False))
            for number, step in enumerate(steps)
            if isinstance(step.operator, Compute)
            for leaf in leaves(step.branches)
            if isinstance(leaf, ToOperator) and (target := steps[leaf.operator]).placed_by == step.placed_by
        )

    def regions(self) -> tuple[Ordered, ...]:
        """The ordered regions of the job, each behind those whose results it takes."""
        made = []
        for target, node in enumerate(self._inputs):
            if (region := node.region) is not None:
                source = next(number for number, other in enumerate(self._inputs) if other is region.source)
                given = region.path[-1].schema if region.path else region.source.schema
                made.append(
                    Ordered(
                        node.name,
                        source,
                        self._steps_of(region.path),
                        given,
                        target,
                        node.schema,
                        region.function,
                        region.workers,
                        region.options,
                    )
                )
        return tuple(made)

    def _steps_of(self, path: Sequence[Node]) -> tuple[Branch, ...]:
        """The maps and filters of a path, one below the other, with one leaf at the end."""
        below: tuple[Branch, ...] = (ToOutput(""),)
        for node in reversed(path):
            assert node.function is not None
            if node.kind == "map":
                below = (Mapped(node.name, node.function, node.batch, node.schema, below),)
            else:
                below = (Filtered(node.name, node.function, node.batch, below),)
        return below if path else ()

    def _input(self, node: Node) -> Input:
        branches = self._frozen(node)
        form = node.files
        if form is not None and all(isinstance(branch, ToOperator) for branch in branches):
            used: set[str] = set()
            for branch in branches:
                assert isinstance(branch, ToOperator)
                used.update(self._steps[branch.operator].operator.input_schema.names)
            columns = tuple(name for name in form.schema.names if name in used)
            form = FileFormat(form.format, form.schema, columns, form.options)
        if form is not None:
            form = replace(form, lenient=self._lenient(branches))
        return Input(node.name, node.schema, branches, form)

    def _frozen(self, node: Node) -> tuple[Branch, ...]:
        """The branches below a node, as the tasks will see them."""
        made: list[Branch] = []
        for branch in node.branches:
            if isinstance(branch, ToOperator | ToOutput):
                made.append(branch)
                continue
            assert branch.function is not None
            below = self._frozen(branch)
            if not below:
                continue  # nobody uses what it makes, or only a region, which makes it for itself
            if branch.kind == "map":
                lenient = self._lenient(below)
                made.append(
                    Mapped(
                        branch.name,
                        branch.function,
                        branch.batch,
                        branch.schema,
                        below,
                        lenient,
                        frozenset(branch.keeps),
                    )
                )
            else:
                made.append(Filtered(branch.name, branch.function, branch.batch, below))
        return tuple(made)

    def _lenient(self, branches: tuple[Branch, ...]) -> frozenset[str]:
        """The key columns of the operators that rows reach from here: what does not fit there becomes null, and is
        then treated by the rule for bad keys. Nothing, where that rule is to fail."""
        if self.bad_keys == "fail":
            return frozenset()
        names: set[str] = set()
        for branch in branches:
            if isinstance(branch, ToOperator):
                names.update(self._steps[branch.operator].keys)
            elif isinstance(branch, Filtered):
                names |= self._lenient(branch.branches)
            elif isinstance(branch, Mapped) and isinstance(branch.function, Tagged):
                names.update(branch.function.keys)  # a side of a join: the same values, under names of its own
        return frozenset(names)

    def _depths(self, own: Fused) -> list[int]:
        """How deep the component of each operator is: one more than the deepest other one that feeds it."""
        edges = (
            (number, leaf.operator)
            for number, keyed in enumerate(self._steps)
            for leaf in leaves(self._frozen(keyed.node))
            if isinstance(leaf, ToOperator)
        )
        return depths(own.component, edges)

    def identity(self) -> dict[str, Any]:
        """What must stay the same for a checkpoint to be usable: key groups, each operator's keys and state, and the
        windows that the state is cut by."""
        operators = []
        for keyed, placed_by in zip(self._steps, self.components().placed_by, strict=True):
            operator = keyed.operator
            keys = [f"{name} {operator.input_schema.field(name).type}" for name in operator.key_names]
            state = [f"{column.name} {column.type}" for column in operator.state_schema]
            told: dict[str, Any] = {"name": operator.name, "keys": keys, "state": state}
            if isinstance(operator, CountAggregation | IntervalJoin | SessionAggregation | WindowedAggregation):
                told["windows"] = operator.windows
            if keyed.lateness_micros:  # what is kept depends on it
                told["lateness"] = str(timedelta(microseconds=keyed.lateness_micros))
            if placed_by:
                told["placed by"] = list(placed_by)
            operators.append(told)
        return {"job": self.name, "groups": self.groups, "operators": operators}

    def sinks(self) -> dict[str, Sequence[Sink]]:
        return {name: tuple(sinks) for name, (_, sinks) in self._outputs.items()}

    def explain(self) -> str:
        """The job drawn as text: inputs, steps, components with their keys, windows and state, how they may move, why
        operators are in one or not, outputs and sinks. As it was built: ``query.explain()`` draws it as it runs."""
        from headgate.engine.drawing import drawn

        return drawn(self)

    def start(
        self,
        spark: SparkSession,
        *,
        checkpoint: str,
        slots: int | None = None,
        balance: Planner | str | None = "mixed",
        limits: Limits | None = None,
        policy: Policy | None = None,
        trigger: str | None = None,
        **options: Any,
    ) -> Query:
        """Run the job; see ``headgate.engine.starting.start`` for all options."""
        from headgate.engine.starting import start

        return start(
            self,
            spark,
            checkpoint=checkpoint,
            slots=slots,
            balance=balance,
            limits=limits,
            policy=policy,
            trigger=trigger,
            **options,
        )
