"""The job: sources, steps and sinks put together, checked, drawn, and started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.engine.durations import Duration, micros_of
from headgate.engine.payload import HASH
from headgate.engine.program import (
    REJECTED,
    REJECTED_SCHEMA,
    BatchKind,
    Branch,
    FileFormat,
    Filtered,
    Input,
    Mapped,
    Program,
    Rule,
    Step,
    ToOperator,
    ToOutput,
    leaves,
    returned_schema,
)
from headgate.errors import JobError, KeyTypeError
from headgate.operators import Aggregate, Aggregation, Declaration, KeyedOperator, PerKey, Vectorised, output_columns
from headgate.routing import GROUPS, key_hash
from headgate.sinks import Sink
from headgate.sinks.builtin import as_sink
from headgate.sources import FileSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.control import Policy
    from headgate.engine.query import Query
    from headgate.planners import Limits, Planner

ZONE = "UTC"
"""The time zone that timestamps of Spark carry inside a job, whatever that of the session is: state must outlive it."""


@dataclass(eq=False)
class _Node:
    """A step while the job is being put together."""

    kind: str
    name: str
    schema: pa.Schema
    frame: DataFrame | None = None
    files: FileFormat | None = None
    function: Callable[..., Any] | None = None
    batch: BatchKind = "arrow"
    step: int = -1
    branches: list[_Node | ToOperator | ToOutput] = field(default_factory=list)


@dataclass(eq=False)
class _Keyed:
    operator: KeyedOperator
    node: _Node
    keys: tuple[str, ...]
    ttl_micros: int | None
    timers: bool
    combine_early: bool
    splits: bool


class Job:
    """A stream job: build it up, look at it with ``explain()``, run it with ``start()``.

    ``event_time`` names the column with the time of the event; ``slack`` is how long to wait for rows that are behind.
    The watermark of a batch is the greatest event time seen before it, less the slack; rows behind it are late.
    ``late`` and ``bad_keys`` say what happens to late rows and to rows whose key is null: ``"fail"``, ``"drop"`` (and
    count), or ``"side"`` (count, and send to ``rejected()``). ``groups`` is the number of key groups, fixed with the
    first start: choose it for the largest number of slots you will ever want.
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
    ) -> None:
        if not name or "/" in name:
            raise JobError.option("the name of a job", "a text without a slash", name)
        for what, rule in (("late", late), ("bad_keys", bad_keys)):
            if rule not in ("fail", "drop", "side"):
                raise JobError.option(what, '"fail", "drop" or "side"', rule)
        if groups < 1:
            raise JobError.option("groups", "at least 1", groups)
        self.name = name
        self.event_time = event_time
        self.slack_micros = micros_of(slack, "slack")
        self.late: Rule = late
        self.bad_keys: Rule = bad_keys
        self.groups = groups
        self._sources = 0
        self._inputs: list[_Node] = []
        self._steps: list[_Keyed] = []
        self._outputs: dict[str, tuple[pa.Schema, list[Sink]]] = {}

    def source(self, rows: DataFrame | FileSource, name: str | None = None) -> Stream:
        """A stream of the rows of a streaming DataFrame, of files the tasks read themselves (``headgate.sources``), or
        of a static DataFrame, which is processed once."""
        name = name or f"input{self._sources}"
        self._sources += 1
        if isinstance(rows, FileSource):
            node = _Node("input", name, rows.form.schema, frame=rows.frame, files=rows.form)
            return Stream(self, [node], rows.form.schema)
        if not isinstance(rows, DataFrame):
            raise JobError.option("a source", "a Spark DataFrame or one of headgate.sources", type(rows).__name__)
        schema = to_arrow_schema(rows.schema, timezone=ZONE)
        return Stream(self, [_Node("input", name, schema, frame=rows)], schema)

    def rejected(self) -> Stream:
        """The side output: late rows and rows with unusable keys, with batch, input, reason and the row as JSON.

        Filled where ``late`` or ``bad_keys`` is ``"side"``; can only be written to sinks.
        """
        return Stream(self, [], REJECTED_SCHEMA, output=REJECTED)

    def _attach(self, node: _Node) -> _Node:
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
        depths = self._depths()
        steps = tuple(
            Step(
                keyed.operator,
                depths[number],
                self._frozen(keyed.node),
                keyed.ttl_micros,
                keyed.timers,
                keyed.combine_early,
                keyed.splits,
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
        )

    def _input(self, node: _Node) -> Input:
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

    def _frozen(self, node: _Node) -> tuple[Branch, ...]:
        """The branches below a node, as the tasks will see them."""
        made: list[Branch] = []
        for branch in node.branches:
            if isinstance(branch, ToOperator | ToOutput):
                made.append(branch)
                continue
            assert branch.function is not None
            below = self._frozen(branch)
            if branch.kind == "map":
                lenient = self._lenient(below)
                made.append(Mapped(branch.name, branch.function, branch.batch, branch.schema, below, lenient))
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
        return frozenset(names)

    def _depths(self) -> list[int]:
        """How deep each operator is: operators are numbered in the order they were made, so feeders come first."""
        depths = [1] * len(self._steps)
        for number, keyed in enumerate(self._steps):
            for leaf in leaves(self._frozen(keyed.node)):
                if isinstance(leaf, ToOperator):
                    depths[leaf.operator] = max(depths[leaf.operator], depths[number] + 1)
        return depths

    def identity(self) -> dict[str, Any]:
        """What must stay the same for a checkpoint to be usable: key groups, and each operator's keys and state."""
        operators = []
        for keyed in self._steps:
            operator = keyed.operator
            keys = [f"{name} {operator.input_schema.field(name).type}" for name in operator.key_names]
            state = [f"{column.name} {column.type}" for column in operator.state_schema]
            operators.append({"name": operator.name, "keys": keys, "state": state})
        return {"job": self.name, "groups": self.groups, "operators": operators}

    def sinks(self) -> dict[str, Sequence[Sink]]:
        return {name: tuple(sinks) for name, (_, sinks) in self._outputs.items()}

    def explain(self) -> str:
        """The job drawn as text: inputs, steps, components with their keys and state, outputs and sinks."""
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
        """Run the job; see ``headgate.engine.query.start`` for all options."""
        from headgate.engine.query import start

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


class Stream:
    """Rows on their way through a job. Immutable: every method gives a new stream, and several may branch off one."""

    def __init__(self, job: Job, nodes: Sequence[_Node], schema: pa.Schema, output: str | None = None) -> None:
        self.job = job
        self.schema = schema
        self._nodes = list(nodes)
        self._output = output

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def _in_spark(self) -> DataFrame | None:
        """The DataFrame, as long as the rows are still Spark's."""
        if len(self._nodes) == 1 and self._nodes[0].kind == "input" and self._nodes[0].files is None:
            return self._nodes[0].frame
        return None

    def _with_frame(self, frame: DataFrame) -> Stream:
        taken = {node.name for node in self.job._inputs}
        name = self._nodes[0].name
        if any(node is self._nodes[0] for node in self.job._inputs):
            name = next(f"{name}.{number}" for number in range(2, 10**6) if f"{name}.{number}" not in taken)
        schema = to_arrow_schema(frame.schema, timezone=ZONE)
        return Stream(self.job, [_Node("input", name, schema, frame=frame)], schema)

    def map(
        self,
        *what: Column | str | Callable[[Any], Any],
        schema: Declaration | None = None,
        batch: BatchKind = "arrow",
        name: str | None = None,
    ) -> Stream:
        """Other columns: Spark expressions (columns or SQL texts, as in ``select``), or one Python function.

        A function gets whole batches of rows as an Arrow table (``batch="arrow"``), a pandas or a polars DataFrame, and
        returns rows in any of these forms; it must give the same for the same rows. Its columns are found out by
        calling it with no rows, unless ``schema`` says them.
        """
        if len(what) == 1 and callable(what[0]) and not isinstance(what[0], Column):
            return self._mapped(what[0], schema, batch, name)
        frame = self._in_spark()
        if frame is None:
            raise JobError.expression("map")
        from pyspark.sql import functions as sf

        columns = [one if isinstance(one, Column) else sf.expr(str(one)) for one in what]
        return self._with_frame(frame.select(*columns))

    def _mapped(
        self, function: Callable[[Any], Any], schema: Declaration | None, batch: BatchKind, name: str | None
    ) -> Stream:
        name = name or str(getattr(function, "__name__", "map"))
        if batch not in ("arrow", "pandas", "polars"):
            raise JobError.option("batch", '"arrow", "pandas" or "polars"', batch)
        if schema is not None:
            made = output_columns(schema)
        else:
            try:
                made = returned_schema(name, function, batch, self.schema)
            except Exception as error:
                raise JobError.not_inferred(name, error) from error
        return self._below(lambda: _Node("map", name, made, function=function, batch=batch), made)

    def filter(
        self,
        what: Column | str | Callable[[Any], Any],
        *,
        batch: BatchKind = "arrow",
        name: str | None = None,
    ) -> Stream:
        """The rows for which a Spark expression, or a Python function over whole batches, is true."""
        if callable(what) and not isinstance(what, Column):
            label = name or str(getattr(what, "__name__", "filter"))
            return self._below(lambda: _Node("filter", label, self.schema, function=what, batch=batch), self.schema)
        frame = self._in_spark()
        if frame is None:
            raise JobError.expression("filter")
        return self._with_frame(frame.filter(what))

    def _below(self, make: Callable[[], _Node], schema: pa.Schema) -> Stream:
        nodes = []
        for node in self._nodes:
            below = make()
            self.job._attach(node).branches.append(below)
            nodes.append(below)
        return Stream(self.job, nodes, schema)

    def union(self, *others: Stream) -> Stream:
        """The rows of all these streams, which must have equal columns."""
        nodes = list(self._nodes)
        for other in others:
            if other.job is not self.job or not other.schema.equals(self.schema, check_metadata=False):
                raise JobError.unions(self.schema.names, other.schema.names)
            nodes += other._nodes
        return Stream(self.job, nodes, self.schema)

    def key_by(self, *columns: str) -> KeyedStream:
        """The rows by key. A key column may hold integers, strings, dates, timestamps, decimals, booleans or bytes."""
        if not columns:
            raise JobError.option("key_by", "given at least one column", ())
        for column in columns:
            if column not in self.schema.names:
                raise JobError.unknown_column("key_by", column, self.schema.names)
            try:
                key_hash(pa.array([], self.schema.field(column).type))
            except KeyTypeError:
                raise KeyTypeError.unhashable(repr(column), self.schema.field(column).type) from None
        return KeyedStream(self, columns)

    def write_to(self, sink: Sink | Callable[[DataFrame, int], object], name: str | None = None) -> Stream:
        """Send the rows to a sink; may be called several times. Returns the same stream."""
        job = self.job
        target = as_sink(sink)
        if self._output is not None and name not in (None, self._output):
            raise JobError.option("the name of an output", f"the one it has, {self._output!r}, or left out", name)
        if self._output is None:
            output = name or f"output{len(job._outputs)}"
            if output in job._outputs or output == REJECTED or "/" in output:
                raise JobError.name_twice("output", output)
            self._output = output
            for node in self._nodes:
                job._attach(node).branches.append(ToOutput(output))
        job._outputs.setdefault(self._output, (self.schema, []))[1].append(target)
        return self


class KeyedStream:
    """Rows by key: the place for steps that keep state."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self.stream = stream
        self.keys = keys

    def process(
        self,
        function: Callable[..., Any],
        *,
        state: Declaration,
        output: Declaration,
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """A function per key: ``on_key(key, rows, state)``, or with a fourth parameter ``context`` for timers.

        ``state`` declares the state's columns: ``{"count": 0, "total": 0.0}`` (a default says type and first value), a
        text (``"count long"``), a dataclass, or ``hg.Pickled`` for any Python object. ``ttl`` forgets a key that has
        had no rows (and no timer) for so long.
        """
        operator = PerKey.of(
            function,
            name=name or self._name(function),
            input_schema=self.stream.schema,
            key_names=self.keys,
            state=state,
            output=output,
        )
        return self._add(operator, ttl, timers=operator.takes_context)

    def process_arrow(
        self,
        function: Callable[..., Any],
        *,
        state: Declaration,
        output: Declaration,
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """A function over many keys at once: ``function(batch)`` sees their rows and state as Arrow tables and returns
        ``(results, state)`` or an ``hg.Update``. Much faster than one call per key."""
        operator = Vectorised.of(
            function,
            name=name or self._name(function),
            input_schema=self.stream.schema,
            key_names=self.keys,
            state=state,
            output=output,
        )
        return self._add(operator, ttl, timers=True)

    def aggregate(
        self,
        *,
        name: str | None = None,
        ttl: Duration | None = None,
        combine_early: bool = True,
        split: bool = False,
        **aggregates: Aggregate,
    ) -> Stream:
        """Running aggregates per key: ``aggregate(n=hg.count(), total=hg.sum("amount"))``. Emits the keys that a batch
        touched, with their new values.

        ``combine_early`` adds up rows before they are shuffled, which is nearly always right. Without it every row
        goes to the slot of its key; then ``split=True`` spreads the rows of keys that are too hot for one slot over
        all of them (W-Choices) and brings the parts together at the end of the batch.
        """
        schema = self.stream.schema
        # What an Arrow expression reads is not known, so then all columns go along.
        if all(one.where is None or isinstance(one.where, str) for one in aggregates.values()):
            used = {*self.keys, self.stream.job.event_time}
            used |= {name for one in aggregates.values() for name in (one.column, one.where) if isinstance(name, str)}
            for column in sorted(name for name in used if name and name not in schema.names):
                if column != self.stream.job.event_time:
                    raise JobError.unknown_column("aggregate", column, schema.names)
            schema = pa.schema([column for column in schema if column.name in used])
        operator = Aggregation(name or f"aggregate{len(self.stream.job._steps)}", schema, self.keys, aggregates)
        return self._add(operator, ttl, timers=False, combine_early=combine_early, splits=split)

    def _name(self, function: Callable[..., Any]) -> str:
        name = str(getattr(function, "__name__", "process"))
        return name if name != "<lambda>" else f"process{len(self.stream.job._steps)}"

    def _add(
        self,
        operator: KeyedOperator,
        ttl: Duration | None,
        *,
        timers: bool,
        combine_early: bool = False,
        splits: bool = False,
    ) -> Stream:
        job = self.stream.job
        if HASH in self.stream.schema.names:
            raise JobError.option(
                "a column of a keyed stream", "named other than the key hash that travels along", HASH
            )
        number = len(job._steps)
        node = _Node("operator", operator.name, operator.output_schema, step=number)
        job._steps.append(
            _Keyed(
                operator,
                node,
                self.keys,
                None if ttl is None else micros_of(ttl, "ttl"),
                timers,
                combine_early,
                splits,
            )
        )
        for feeder in self.stream._nodes:
            job._attach(feeder).branches.append(ToOperator(number))
        return Stream(job, [node], operator.output_schema)
