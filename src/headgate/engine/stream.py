"""Streams: what a user chains between a source and a sink. Each method adds a node to the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headgate.durations import Duration, micros_of
from headgate.engine.options import check_columns, check_whole
from headgate.engine.payload import HASH
from headgate.engine.program import REJECTED, BatchKind, FileFormat, ToOperator, ToOutput, returned_schema
from headgate.engine.windowing import PartialStream, WindowedStream, no_results_among, windows_of
from headgate.errors import JobError, KeyTypeError
from headgate.operators import (
    LEFT,
    RIGHT,
    TIMES,
    Aggregate,
    Aggregation,
    Compute,
    Declaration,
    How,
    IntervalJoin,
    KeyedOperator,
    PerKey,
    Tagged,
    Vectorised,
    is_time,
    output_columns,
)
from headgate.regions.options import options_of
from headgate.routing import key_hash
from headgate.sinks import Sink
from headgate.sinks.builtin import as_sink
from headgate.windows import CountWindows, Sessions, Slicing, Spans, TimeWindows, Tumbling

if TYPE_CHECKING:
    from headgate.engine.job import Job

ZONE = "UTC"
"""The time zone that timestamps of Spark carry inside a job, whatever that of the session is: state must outlive it."""


@dataclass(eq=False)
class Node:
    """A step while the job is being put together. ``keeps``: columns that rows leave with as they came."""

    kind: str
    name: str
    schema: pa.Schema
    frame: DataFrame | None = None
    files: FileFormat | None = None
    function: Callable[..., Any] | None = None
    batch: BatchKind = "arrow"
    step: int = -1
    region: RegionNode | None = None
    keeps: tuple[str, ...] = ()
    number: int = field(default_factory=count().__next__)
    branches: list[Node | ToOperator | ToOutput] = field(default_factory=list)


@dataclass(eq=False)
class RegionNode:
    """An ordered region while the job is being put together: an input whose rows are results of rows of another one.

    ``source`` is that input, ``path`` the steps between it and the region.
    """

    source: Node
    path: list[Node]
    function: Callable[[dict[str, Any]], Any]
    workers: int
    options: dict[str, Any]


@dataclass(eq=False)
class KeyedNode:
    """A keyed operator while the job is being put together; ``node`` is where its results branch off."""

    operator: KeyedOperator
    node: Node
    keys: tuple[str, ...]
    ttl_micros: int | None
    timers: bool
    combine_early: bool
    splits: bool
    lateness_micros: int = 0
    per_window: bool = False
    decides_sharing: bool = False


def _kept(what: str, keeps: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    """The columns a function is said to leave as they are; its rows must have them."""
    if isinstance(keeps, str):
        raise JobError.option(f"keeps of {what!r}", "a list of column names", keeps)
    for column in keeps:
        if column not in schema.names:
            raise JobError.unknown_column(f"keeps of {what}", column, schema.names)
    return tuple(keeps)


def _narrowest(schema: pa.Schema) -> pa.Field:
    """The column that takes least room."""
    return min(schema, key=lambda column: column.type.bit_width if pa.types.is_primitive(column.type) else 1 << 10)


class Stream:
    """Rows on their way through a job. Immutable: every method gives a new stream, and several may branch off one.

    ``path``: the nodes from an input down to the rows, where these are still in the order of the input; None where an
    operator or a union has lost it.
    """

    def __init__(
        self,
        job: Job,
        nodes: Sequence[Node],
        schema: pa.Schema,
        output: str | None = None,
        path: Sequence[Node] | None = None,
    ) -> None:
        self.job = job
        self.schema = schema
        self._nodes = list(nodes)
        self._output = output
        self._path = list(path) if path is not None else None

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def _in_spark(self) -> DataFrame | None:
        """The DataFrame, as long as the rows are still Spark's."""
        if len(self._nodes) == 1 and self._nodes[0].kind == "input" and self._nodes[0].files is None:
            return self._nodes[0].frame  # None for a region's results
        return None

    def _with_frame(self, frame: DataFrame) -> Stream:
        taken = {node.name for node in self.job._inputs}
        name = self._nodes[0].name
        if any(node is self._nodes[0] for node in self.job._inputs):
            name = next(f"{name}.{number}" for number in range(2, 10**6) if f"{name}.{number}" not in taken)
        check_columns("a map", frame.columns)
        schema = to_arrow_schema(frame.schema, timezone=ZONE)
        node = Node("input", name, schema, frame=frame)
        return Stream(self.job, [node], schema, path=[node])

    def map(
        self,
        *what: Column | str | Callable[[Any], Any],
        schema: Declaration | None = None,
        batch: BatchKind = "arrow",
        keeps: Sequence[str] = (),
        name: str | None = None,
    ) -> Stream:
        """Other columns: Spark expressions (columns or SQL texts, as in ``select``), or one Python function.

        A function gets whole batches of rows as an Arrow table (``batch="arrow"``), a pandas or a polars DataFrame, and
        returns rows in any of these forms; it must give the same for the same rows. Its columns are found out by
        calling it with no rows, unless ``schema`` says them. ``keeps`` names columns whose values it does not change:
        operators before and after it that have them as keys can then run in one task (``Job.explain`` says which do).
        """
        if len(what) == 1 and callable(what[0]) and not isinstance(what[0], Column):
            return self._mapped(what[0], schema, batch, keeps, name)
        frame = self._in_spark()
        if frame is None:
            raise JobError.expression("map")
        from pyspark.sql import functions as sf

        columns = [one if isinstance(one, Column) else sf.expr(str(one)) for one in what]
        return self._with_frame(frame.select(*columns))

    def _mapped(
        self,
        function: Callable[[Any], Any],
        schema: Declaration | None,
        batch: BatchKind,
        keeps: Sequence[str],
        name: str | None,
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
        kept = _kept("map", keeps, made)
        return self._below(lambda: Node("map", name, made, function=function, batch=batch, keeps=kept), made)

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
            return self._below(lambda: Node("filter", label, self.schema, function=what, batch=batch), self.schema)
        frame = self._in_spark()
        if frame is None:
            raise JobError.expression("filter")
        return self._with_frame(frame.filter(what))

    def _below(self, make: Callable[[], Node], schema: pa.Schema) -> Stream:
        nodes = []
        for node in self._nodes:
            below = make()
            self.job._attach(node).branches.append(below)
            nodes.append(below)
        path = [*self._path, *nodes] if self._path is not None else None
        return Stream(self.job, nodes, schema, path=path)

    def _tagged(self, side: Tagged) -> Stream:
        return self._below(lambda: Node("map", side.label, side.schema, function=side, keeps=side.keeps), side.schema)

    def ordered_map(
        self,
        function: Callable[[dict[str, Any]], Any],
        *,
        workers: int,
        schema: Declaration,
        name: str | None = None,
        **options: Any,
    ) -> Stream:
        """``function`` of every row, a dict, on this many workers; the results, dicts too, keep the order of the rows.

        For a heavy function without state. Workers run on the executors, each takes a core while a region runs, and
        those that are slower get fewer rows: nobody has to say how fast they are. ``schema`` declares the columns of
        the results (``"id long, score double"``). ``options``: the fields of ``headgate.regions.Options``, for example
        ``on_error="retry"`` or ``period=0.25``. Rows must still be in the order of their source: not behind a keyed
        operator or a union.
        """
        label = name or str(getattr(function, "__name__", "ordered_map"))
        if self._path is None:
            raise JobError.order_lost(label)
        check_whole("workers", workers)
        options_of({name: value for name, value in options.items() if name != "balance"})
        made = output_columns(schema)
        source, *path = self._path
        taken = {node.name for node in self.job._inputs}
        if label in taken:
            label = next(f"{label}.{number}" for number in range(2, 10**6) if f"{label}.{number}" not in taken)
        self.job._attach(source)
        node = Node("input", label, made, region=RegionNode(source, path, function, workers, options))
        self.job._attach(node)
        return Stream(self.job, [node], made, path=[node])

    def union(self, *others: Stream) -> Stream:
        """The rows of all these streams, which must have equal columns."""
        nodes = list(self._nodes)
        for other in others:
            if other.job is not self.job or not other.schema.equals(self.schema, check_metadata=False):
                raise JobError.unions(self.schema.names, other.schema.names)
            nodes += other._nodes
        return Stream(self.job, nodes, self.schema)

    def key_by(self, *columns: str) -> KeyedStream:
        """The rows by key. A key column may hold integers, strings, dates, timestamps, decimals, booleans or bytes.

        Without columns all rows are of one key, as with ``groupBy()`` in Spark: totals over everything, in one place,
        in one slot. Results then have no key columns.
        """
        if not self.schema.names:
            raise JobError.option("the rows of key_by", "rows with columns", "rows without any")
        check_columns("key_by", list(columns))
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
        keeps: Sequence[str] = (),
        name: str | None = None,
    ) -> Stream:
        """A function per key: ``on_key(key, rows, state)``, or with a fourth parameter ``context`` for timers.

        ``state`` declares the state's columns: ``{"count": 0, "total": 0.0}`` (a default says type and first value), a
        text (``"count long"``), a dataclass, or ``hg.Pickled`` for any Python object. ``ttl`` forgets a key that has
        had no rows (and no timer) for so long. ``keeps`` names key columns that every result has as they were: a next
        operator with these keys can then run in the same task, without a shuffle.

        The key is a value, a tuple where it has several columns, and ``()`` where it has none.
        """
        operator = PerKey.of(
            function,
            name=name or self._name(function),
            input_schema=self.stream.schema,
            key_names=self.keys,
            state=state,
            output=output,
        )
        return self._add(operator, ttl, timers=operator.takes_context, keeps=keeps)

    def process_arrow(
        self,
        function: Callable[..., Any],
        *,
        state: Declaration,
        output: Declaration,
        ttl: Duration | None = None,
        keeps: Sequence[str] = (),
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
        return self._add(operator, ttl, timers=True, keeps=keeps)

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
        no_results_among({"name": name, "ttl": ttl, "combine_early": combine_early, "split": split})
        label = name or f"aggregate{len(self.stream.job._steps)}"
        operator = Aggregation(label, self._used(aggregates), self.keys, aggregates)
        return self._add(operator, ttl, timers=False, combine_early=combine_early, splits=split)

    def _used(self, aggregates: Mapping[str, Aggregate], until: str | None = None) -> pa.Schema:
        """The columns that aggregates need, with the keys, the event time and until when it lasts; at least one, since
        rows without columns cannot be counted."""
        schema = self.stream.schema
        if until is not None and until not in schema.names:
            raise JobError.unknown_column("until", until, schema.names)
        if until is not None and not is_time(schema.field(until).type):
            raise JobError.option(f"until={until!r}", TIMES, str(schema.field(until).type))
        known = [one for one in aggregates.values() if isinstance(one, Aggregate)]  # the operator refuses the others
        # What an Arrow expression reads is not known, so then all columns go along.
        if not all(one.where is None or isinstance(one.where, str) for one in known):
            return schema
        used = {*self.keys, self.stream.job.event_time, until}
        used |= {name for one in known for name in (*one.columns, one.where) if isinstance(name, str)}
        for column in sorted(name for name in used if name and name not in schema.names):
            if column != self.stream.job.event_time:
                raise JobError.unknown_column("aggregate", column, schema.names)
        return pa.schema([column for column in schema if column.name in used] or [_narrowest(schema)])

    def window(
        self,
        *lengths: Duration | TimeWindows | Sessions | CountWindows,
        every: Duration | None = None,
        offset: Duration = 0,
        lateness: Duration = 0,
        spans: Spans = Spans.START,
    ) -> WindowedStream:
        """The rows by key and window of event time: ``window("1 hour")`` one after the other, ``window("1 hour",
        every="5 minutes")`` overlapping, ``window("10 minutes", "1 hour", every="10 minutes")`` several lengths at
        once; a second duration without ``every=`` is a second length, not a hop. Windows start at ``offset`` from
        1970-01-01 UTC; their start is inclusive, their end exclusive.

        ``lateness`` lets rows in that are behind the watermark by up to so much; their keys are emitted again for the
        windows that had closed. However many windows a row is in, it is added up once.

        ``spans`` (``headgate.windows.Spans``) says which windows a row is in that stands for a span of time: it needs
        ``aggregate(until=...)``.

        Instead of lengths it takes one object of ``headgate.windows``, which says all by itself: ``Tumbling``,
        ``Hopping``, ``Overlapping``, ``Sessions``, ``CountWindows``.
        """
        kind = windows_of(lengths, every, offset, lateness, spans)
        if self.stream.job.event_time is None and not isinstance(kind, CountWindows):
            raise JobError.no_event_time("window")
        return WindowedStream(self, kind)

    def compute(
        self,
        slice: Duration,
        *,
        offset: Duration = 0,
        until: str | None = None,
        spans: Spans = Spans.START,
        name: str | None = None,
        **aggregates: Aggregate,
    ) -> PartialStream:
        """Partials per key and slice of event time, for ``consolidate`` to make windows of: enorm's low-level form. Its
        ``share`` may ask for partials per key and window instead.

        Nothing else can be done with partials. A compute and its consolidates run in one task, like all operators with
        the same keys, unless they are kept apart (``Job.keep_apart``, ``aggregate(split=True)``): then key groups of
        the compute can move without their state (``migration="instant"``).

        With ``until``, a column, a row stands for the time from its event time until then, and counts in the slice
        that it starts in, or with ``Spans.END`` in the one that it ends in; with other rules each window is computed
        by itself.
        """
        no_results_among({"offset": offset, "until": until, "spans": spans, "name": name})
        job = self.stream.job
        label = name or f"compute{len(job._steps)}"
        if job.event_time is None:
            raise JobError.no_event_time("compute")
        if job.event_time not in self.stream.schema.names:
            raise JobError.unknown_column("compute", job.event_time, self.stream.schema.names)
        slicing = Slicing.of(Tumbling(slice, offset=offset))
        used = self._used(aggregates, until)
        operator = Compute(label, used, self.keys, aggregates, slicing, job.event_time, until=until, spans=spans)
        rows = self._add(operator, None, timers=False, combine_early=True)
        return PartialStream(rows, self.keys, used, aggregates, slicing)

    def session(self, gap: Duration, *, lateness: Duration = 0) -> WindowedStream:
        """The rows by key and session: ``session("30 minutes")``. A session goes on as long as the next row of its key
        comes at most ``gap`` later in event time; it covers ``[first row, last row + gap)``.

        A session is emitted once, when the watermark has passed its end plus ``lateness``; until then rows may be
        behind the watermark by up to ``lateness``, and may make one session of two.
        """
        return self.window(Sessions(gap, lateness=lateness))

    def count_window(self, rows: int, *, every: int | None = None, ttl: Duration | None = None) -> WindowedStream:
        """The rows by key and number: ``count_window(100)`` every hundred rows of a key, ``count_window(100,
        every=20)`` the last hundred after every twenty. Bounds of windows are numbers of rows, from 0.

        Rows of a key count in the order of batches, in a batch in the order of the partitions of the source and of
        rows in them, whatever their event time. A window that never gets full is never emitted; ``ttl`` forgets a key,
        and counts from 0 again, when it has had no rows for so long.
        """
        return WindowedStream(self, CountWindows(rows, every), ttl)

    def join(
        self,
        other: KeyedStream,
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        how: How = "inner",
        lateness: Duration = 0,
        suffixes: tuple[str, str] = ("", "_right"),
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows of two streams of one job that have equal keys and event times near each other:
        ``left.key_by("user").join(right.key_by("user"), within="10 minutes")``.

        A left row at ``t`` matches the right rows at ``[t - before, t + after]``, both inclusive. ``within`` is both at
        once; of ``before`` and ``after`` the one that is left out is 0. ``how="left"`` also gives the left rows that
        match nothing, once, when the watermark says that no partner can come. Keys are paired by position.

        Results have the key columns, the other left columns and the other right ones; where both sides have a column,
        ``suffixes`` go behind its two names, save that the left event time keeps its name. ``lateness`` takes rows that
        are behind the watermark by up to so much, and keeps rows that much longer.
        """
        job, event_time = self.stream.job, self.stream.job.event_time
        if not isinstance(other, KeyedStream):
            raise JobError.option(
                "the right side of a join", "a keyed stream, stream.key_by(...)", type(other).__name__
            )
        if other.stream.job is not job:
            raise JobError.joined_jobs(job.name, other.stream.job.name)
        if event_time is None:
            raise JobError.no_event_time("join")
        if (within is None) == (before is None and after is None):
            raise JobError.option(
                "the bound of a join",
                "within=, or before= and after=",
                {"within": within, "before": before, "after": after},
            )
        spans = (before or 0, after or 0) if within is None else (within, within)
        operator = IntervalJoin(
            name or f"join{len(job._steps)}",
            self.stream.schema,
            other.stream.schema,
            self.keys,
            other.keys,
            event_time,
            micros_of(spans[0], "before" if within is None else "within"),
            micros_of(spans[1], "after" if within is None else "within"),
            how,
            micros_of(lateness, "lateness"),
            suffixes,
        )
        sides = [each.stream._tagged(operator.side(side)) for each, side in ((self, LEFT), (other, RIGHT))]
        keyed = KeyedStream(sides[0].union(sides[1]), operator.key_names)
        return keyed._add(operator, None, timers=True, lateness_micros=operator.lateness_micros)

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
        lateness_micros: int = 0,
        keeps: Sequence[str] = (),
        per_window: bool = False,
        decides_sharing: bool = False,
    ) -> Stream:
        job = self.stream.job
        if HASH in self.stream.schema.names:
            raise JobError.option(
                "a column of a keyed stream", "named other than the key hash that travels along", HASH
            )
        if not isinstance(operator.name, str):
            raise JobError.option("the name of an operator", "a text", operator.name)
        number = len(job._steps)
        kept = _kept(operator.name, keeps, operator.output_schema)
        node = Node("operator", operator.name, operator.output_schema, step=number, keeps=kept)
        job._steps.append(
            KeyedNode(
                operator,
                node,
                self.keys,
                None if ttl is None else micros_of(ttl, "ttl"),
                timers,
                combine_early,
                splits,
                lateness_micros,
                per_window,
                decides_sharing,
            )
        )
        for feeder in self.stream._nodes:
            job._attach(feeder).branches.append(ToOperator(number))
        return Stream(job, [node], operator.output_schema)
