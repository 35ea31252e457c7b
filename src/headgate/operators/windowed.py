"""Aggregates per key and window: partials per slice, merged into the windows that close.

Enorm's ``compute`` and ``consolidate`` in one operator. Rows become partials of their slice where they are read; a slot
keeps them by key and **piece** (a slice, or a window that longer ones are made of) and merges pieces when the watermark
passes the end of a window. So a row is added up once, however many windows it is in.

    rows --early--> partials (key, slice) --combine--> state (key, piece) --merge--> window --finish--> results

The other way, one computation per window, makes a partial of each window a row is in, and merges nothing: for rows that
stand for a span of time and count in every window they touch, and where most keys have one row a slice. A row is added
up in one way or the other, so both kinds of partials of one window together are the window: the way may change while
the job runs.

The identity of a partial is a 64-bit number made of the key's hash and its piece, by exclusive or with a number that
follows from the piece: so the key's hash, which says where the partial belongs, can be had back from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, compiled
from headgate.errors import InputError
from headgate.operators.aggregates import Aggregate, Aggregation
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.grouping import Grouping, check_one_key, group_rows
from headgate.windows import SLICE, Consolidation, Piece, Slicing, Spans, place_in_windows, with_helpers

HOP, START = "__hop", "__start"
"""The columns that say which piece a partial is of: the number of its hop (``SLICE`` for a slice), and its start."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns of a result that say which window it is of: from the start, inclusive, to the end, exclusive."""

INSTANT = pa.timestamp("us", tz="UTC")


def direct(hop: int) -> int:
    """What stands in ``HOP`` of partials that were computed for one window of a hop, not made of slices."""
    return -2 - hop


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: consecutive multiples of it are spread evenly."""


@compiled
def _told_apart(hashes: I64, hops: I32, starts: I64) -> I64:
    """The hash of each row with a number of its piece mixed in, one that has nothing to do with its neighbours' (the
    finaliser of splitmix64); done twice, the hash again. Rows of one piece mostly lie together."""
    numbers = np.empty_like(hashes)
    number = np.int64(0)
    for row in range(len(hashes)):
        if row == 0 or hops[row] != hops[row - 1] or starts[row] != starts[row - 1]:
            mixed = np.uint64(starts[row]) + (np.uint64(hops[row]) + np.uint64(2)) * _GOLDEN
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            number = np.int64(mixed ^ (mixed >> np.uint64(31)))
        numbers[row] = hashes[row] ^ number
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class WindowedAggregation:
    """A keyed operator that emits the aggregates of a key for every window that the watermark has passed.

    A result has the key columns, ``window_start``, ``window_end`` and one column per aggregate. Rows without a time
    are in no window and are left out. ``share``: windows may be made of windows; else of slices only. With ``until`` a
    row stands for the time from ``time`` to that column, and ``spans`` says which windows it is in. ``inner`` adds up
    by key and piece, ``outer`` by key.
    """

    name: str
    input_schema: pa.Schema
    key_names: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    slicing: Slicing
    time: str
    share: bool = True
    until: str | None = None
    spans: Spans = Spans.START
    inner: Aggregation = field(init=False, repr=False)
    outer: Aggregation = field(init=False, repr=False)
    consolidation: Consolidation = field(init=False, repr=False)
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        made = {*self.key_names, *self.aggregates}
        # Other columns may be named like the bounds: rows may be results of windows themselves.
        for name in sorted(({HOP, START} & {*self.input_schema.names, *made}) | ({WINDOW_START, WINDOW_END} & made)):
            raise InputError(
                f"operator {self.name!r} must have no column or aggregate named {name!r}, which its windows use: "
                "rename it"
            )
        if self.spans is Spans.SHARE:
            raise InputError(
                f"operator {self.name!r} must count rows that span several windows whole, got the rule SHARE: take "
                "START, END, EACH or WITHIN"
            )
        pieces = [pa.field(HOP, pa.int32()), pa.field(START, pa.int64())]
        inner = Aggregation(
            self.name, pa.schema([*self.input_schema, *pieces]), (*self.key_names, HOP, START), self.aggregates
        )
        outer = Aggregation(self.name, self.input_schema, self.key_names, self.aggregates)
        keys, results = outer.output_schema.names[: len(self.key_names)], list(outer.output_schema)
        window = [pa.field(WINDOW_START, INSTANT), pa.field(WINDOW_END, INSTANT)]
        schema = pa.schema([*results[: len(keys)], *window, *results[len(keys) :]])
        for attribute, value in (
            ("key_names", tuple(self.key_names)),
            ("aggregates", dict(self.aggregates)),
            ("inner", inner),
            ("outer", outer),
            ("consolidation", Consolidation(self.slicing)),
            ("output_schema", schema),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def windows(self) -> str:
        """The windows in words: what state depends on, and must not change on a checkpoint.

        Helpers are among them, since the state may have partials of theirs: those that ``share`` would have. So whether
        windows share may change.
        """
        return told(with_helpers(self.slicing))

    @property
    def sliceable(self) -> bool:
        """Whether windows may share slices: a row is in one slice."""
        return self.until is None or self.spans.sliceable

    @property
    def alone(self) -> Slicing:
        """The windows that are computed by themselves where slices are not shared: ``direct`` counts its hops."""
        return self.slicing

    def length(self, hop: int) -> int:
        """How long a piece of this hop is: a slice, a window, or the window that partials were computed for."""
        if hop == SLICE:
            return self.slicing.width
        return self.slicing.hops[hop].length if hop >= 0 else self.alone.hops[direct(hop)].length

    @property
    def state_schema(self) -> pa.Schema:
        return self.inner.state_schema

    @property
    def partial_schema(self) -> pa.Schema:
        return self.inner.partial_schema

    @property
    def combines(self) -> bool:
        return True

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partials, one per distinct key and slice of the rows; and the hashes of their keys."""
        return self.early_in(rows, hashes, per_window=False)

    def early_in(self, rows: pa.Table, hashes: I64, *, per_window: bool) -> tuple[pa.Table, I64]:
        """Partials, one per distinct key and slice of the rows, or one per distinct key and window."""
        rows, hashes, first, last = self._timed(rows, hashes)
        if per_window or not self.sliceable:
            position, hops, starts = self._windows(first, last)
            rows, hashes = rows.take(pa.array(position)), hashes[position]
        else:
            at = np.maximum(first, last - 1) if self.spans is Spans.END else first
            starts = self.slicing.slice_of(at)
            hops = np.full(len(starts), SLICE, dtype=np.int32)
        rows = rows.append_column(HOP, pa.array(hops)).append_column(START, pa.array(starts))
        partials, identities = self.inner.early(rows, _told_apart(hashes, hops, starts))
        return partials, self.key_hashes(partials, identities)

    def _timed(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64, I64, I64]:
        """The rows that have a time, and the times they span; a row that ends before it starts has none."""
        columns = [instants(rows.column(name)) for name in (self.time, self.until or self.time)]
        there = pc.is_valid(columns[0])
        for column in columns[1:] if self.until else ():
            there = pc.and_(there, pc.fill_null(pc.greater_equal(column, columns[0]), False))
        if not pc.all(there).as_py():
            rows, hashes = rows.filter(there), hashes[np.asarray(there)]
            columns = [column.filter(there) for column in columns]
        first, last = (
            np.asarray(column.combine_chunks()) if len(column) else np.empty(0, np.int64) for column in columns
        )
        return rows, hashes, first, last

    def _windows(self, first: I64, last: I64) -> tuple[I64, I32, I64]:
        """The windows of each row: positions of rows, hops, starts."""
        found = [
            (number, *place_in_windows(self.alone, number, first, last, self.spans)[:2])
            for number, hop in enumerate(self.alone.hops)
            if not hop.helper
        ]
        hops = np.concatenate([np.full(len(position), direct(number), dtype=np.int32) for number, position, _ in found])
        position = np.concatenate([position for _, position, _ in found])
        return position, hops, np.concatenate([starts for _, _, starts in found])

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partials, one per distinct key and piece; and the hashes of their keys."""
        combined, identities = self.inner.combine(partials, self.identities(partials, hashes))
        return combined, self.key_hashes(combined, identities)

    def identities(self, partials: pa.Table, hashes: I64) -> I64:
        """What tells partials apart: one number per key and piece."""
        return _told_apart(hashes, *_pieces(partials))

    def key_hashes(self, partials: pa.Table, identities: I64) -> I64:
        """The hashes of the keys, from the identities of the partials."""
        return _told_apart(identities, *_pieces(partials))

    def merged(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partials of several pieces -> one row per key, without its piece; and the hashes of the keys."""
        return self.outer.combine(partials.select(self.outer.partial_schema.names), hashes)

    def placed(self, merged: pa.Table, piece: Piece) -> pa.Table:
        """What ``merged`` gave, as partials of a piece."""
        count = merged.num_rows
        columns = [
            *merged.columns[: len(self.key_names)],
            pa.chunked_array([np.full(count, piece.hop, dtype=np.int32)]),
            pa.chunked_array([np.full(count, piece.start, dtype=np.int64)]),
            *merged.columns[len(self.key_names) :],
        ]
        return pa.Table.from_arrays(columns, schema=self.partial_schema)

    def passed_on(self, piece: Piece) -> Piece | None:
        """What the next operator takes partials for that have come for a piece that is over; None where windows are
        results, which do not change any more."""
        return None

    def results(self, merged: pa.Table, piece: Piece) -> pa.Table:
        """The results of a window, from what ``merged`` gave for it."""
        finished = self.outer.finished(merged)
        bounds = [pa.array(np.full(len(merged), at), INSTANT) for at in (piece.start, piece.end)]
        keys = len(self.key_names)
        columns = [*finished.columns[:keys], *bounds, *finished.columns[keys:]]
        return pa.table(columns, schema=self.output_schema)

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Not by key: windows close for all keys of a slot at once (``engine.windowed``)."""
        raise NotImplementedError("windows are processed by piece, not by key")


def told(slicing: Slicing) -> str:
    """Windows in words."""
    spans = [
        (timedelta(microseconds=each) for each in (hop.length, hop.every, hop.offset)) for hop in slicing.hops
    ]  # fmt: skip
    return "windows of " + ", ".join(f"{length} every {every} from {offset}" for length, every, offset in spans)


def grouped_by_piece(partials: pa.Table) -> tuple[Grouping, tuple[tuple[int, int], ...]]:
    """Partials by their pieces; and of each piece the hop and the start."""
    hops, starts = _pieces(partials)
    grouping = group_rows(_told_apart(np.zeros(len(starts), dtype=np.int64), hops, starts))
    check_one_key(partials.select([HOP, START]), grouping)
    first = grouping.first
    return grouping, tuple(zip(hops[first].tolist(), starts[first].tolist(), strict=True))


def pieces_of(partials: pa.Table) -> tuple[I64, I64]:
    """The hop and the start of each partial's piece."""
    hops, starts = _pieces(partials)
    return hops.astype(np.int64), starts


def _pieces(partials: pa.Table) -> tuple[I32, I64]:
    hops, starts = (partials.column(name).combine_chunks().to_numpy(zero_copy_only=False) for name in (HOP, START))
    return np.ascontiguousarray(hops, dtype=np.int32), np.ascontiguousarray(starts, dtype=np.int64)


TIMES = "a timestamp, a date or a whole number of microseconds since 1970"
"""What ``instants`` takes, for messages."""


def is_time(kind: pa.DataType) -> bool:
    """Whether ``instants`` takes a column of this type."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind))


def instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Event times as microseconds since 1970-01-01; whole numbers are taken as such."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(column, pa.timestamp("us", tz=kind.tz), safe=False), pa.int64())
    if pa.types.is_date(kind):
        return pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64())
    return pc.cast(column, pa.int64())
