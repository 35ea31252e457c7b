"""Aggregates per key over windows of so many of its rows.

Card

    Problem          the last hundred rows of a key, every twenty rows
    State per key    how many rows it has had, and the parts of the slices of windows that are not full yet
    Guarantee        window k of a key has its rows [k * every, k * every + rows), counted from 0; it comes out once, in
                     the batch of its last row
    Time             a row is added up once; of n slices a window is made of, about log n are merged, and no loop over
                     keys

The order of a key's rows is that of batches; in a batch that of the senders (the partitions of the source, or the
slots of the operator before), and of rows at a sender. Payloads carry their sender's number and their own, so a batch
that is replayed numbers its rows alike, whichever task ends first. Times do not matter to it.

    row numbers      0   1   2   3   4   5   6   7
    rows 4, every 2  |---------------|                     [0, 4): slices 0 and 2
                             |---------------|             [2, 6): slices 2 and 4
    slices of 2      |-------|-------|-------|             a slice is never partly in a window

A window of n slices is put together from blocks of 1, 2, 4, ... slices, each made of two of half its size, where that
is fewer merges than n for each window:

    13 slices        |-|-------|---------------|           1 + 4 + 8

Rows cannot be reduced before they are shuffled: a task does not know what numbers they will have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I64
from headgate.operators.aggregates import Aggregate, Aggregation
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.lists import check_reserved, gathered, listed, merged_by, spread, with_window
from headgate.operators.rows import spent
from headgate.operators.windowed import WINDOW_END, WINDOW_START
from headgate.windows import CountWindows, Hop, closing_counts, row_numbers
from headgate.windows.kinds import common_divisor
from headgate.windows.slices import expand

ROWS = "__rows"
"""The column of the state that says how many rows a key has had."""


@dataclass(frozen=True, slots=True, eq=False)
class CountAggregation:
    """A keyed operator that emits the aggregates of a window of rows of a key once it is full.

    A result has the key columns, ``window_start`` and ``window_end`` (numbers of rows of the key from 0, the end
    exclusive) and one column per aggregate. Windows that are not full are never emitted, also not when the input ends.
    """

    name: str
    input_schema: pa.Schema
    key_names: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    kind: CountWindows
    aggregation: Aggregation = field(init=False, repr=False)
    hop: Hop = field(init=False, repr=False)
    width: int = field(init=False, repr=False)
    state_schema: pa.Schema = field(init=False)
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        check_reserved(self.name, self.key_names, self.aggregates, ROWS)
        aggregation = Aggregation(self.name, self.input_schema, tuple(self.key_names), self.aggregates)
        window = [pa.field(WINDOW_START, pa.int64()), pa.field(WINDOW_END, pa.int64())]
        outputs, keys = list(aggregation.output_schema), len(self.key_names)
        for attribute, value in (
            ("key_names", tuple(self.key_names)),
            ("aggregates", dict(self.aggregates)),
            ("aggregation", aggregation),
            ("hop", self.kind.hops[0]),
            ("width", common_divisor(self.kind.hops)),
            ("state_schema", pa.schema([pa.field(ROWS, pa.int64()), *listed(aggregation.state_schema)])),
            ("output_schema", pa.schema([*outputs[:keys], *window, *outputs[keys:]])),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def combines(self) -> bool:
        return False

    @property
    def partial_schema(self) -> pa.Schema:
        return self.input_schema

    @property
    def windows(self) -> str:
        """The windows in words: what state depends on, and must not change on a checkpoint."""
        return f"windows of {self.hop.length} rows, one every {self.hop.every}"

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are: their numbers are not known yet."""
        return rows, hashes

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are."""
        return partials, hashes

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Number the rows, add them to their slices, emit the windows that are full, keep the slices of the others."""
        count = len(given)
        seen = np.asarray(pc.fill_null(given.state.column(ROWS), 0), dtype=np.int64)
        of_row = np.repeat(np.arange(count, dtype=np.int64), np.diff(given.starts))
        numbers, now = row_numbers(of_row, seen)
        slices = self._slices(given, of_row, numbers, seen, now)
        position, start = closing_counts(seen, now, self.hop)
        windows = self._windows(slices, slices.index(position, start))
        bounds = (pa.array(each) for each in (start, start + self.hop.length))
        results = with_window(self.aggregation.finished(windows), len(self.key_names), *bounds)
        needed = slices.start >= self._first_open(now)[slices.key]
        left = slices.parts.filter(pa.array(needed)).select(self.aggregation.state_schema.names)
        state = gathered(left, slices.key[needed], count).add_column(0, ROWS, pa.array(now))
        return KeyedOutput(
            results,
            state,
            np.ones(count, np.bool_),
            spent(given.event_timer, given.fired_event),
            spent(given.processing_timer, given.fired_processing),
        )

    def _first_open(self, seen: I64) -> I64:
        """The first row of the first window that is not full yet, when keys have had so many rows."""
        first: I64 = np.maximum((seen - self.hop.length) // self.hop.every + 1, 0) * self.hop.every
        return first

    def _slices(self, given: KeyedInput, of_row: I64, numbers: I64, seen: I64, now: I64) -> _Slices:
        """All slices that windows of this batch are made of: those that were kept, and those of the new rows."""
        kept, opened = spread(given.state.select(self.aggregation.state_schema.names))
        first = self._first_open(seen)
        # A key keeps its slices from the first open window on, without a hole.
        behind = np.arange(len(kept)) - np.searchsorted(kept, kept)
        rows = given.rows
        if self.hop.every > self.hop.length:
            inside = numbers % self.hop.every < self.hop.length
            rows, of_row, numbers = rows.filter(pa.array(inside)), of_row[inside], numbers[inside]
        begin = np.concatenate([[0], np.cumsum(np.maximum(now - first, 0) // self.width + 1)[:-1]])

        def code(key: I64, number: I64) -> I64:
            found: I64 = begin[key] + (number - first[key]) // self.width
            return found

        fresh, fresh_code = self.aggregation.early(rows, code(of_row, numbers))
        for at, name in enumerate(self.key_names):
            opened = opened.add_column(at, name, given.keys.column(name).take(pa.array(kept)))
        old_code = code(kept, first[kept] + behind * self.width)
        every = pa.concat_tables([opened, fresh])
        parts, codes = merged_by(self.aggregation, every, np.concatenate([old_code, fresh_code]))
        key = np.searchsorted(begin, codes, side="right") - 1
        start = first[key] + (codes - begin[key]) * self.width
        return _Slices(parts, key, start, codes, begin, first, self.width)

    def _windows(self, slices: _Slices, at: I64) -> pa.Table:
        """The parts of windows that begin with these slices."""
        size = self.hop.length // self.width
        levels = size.bit_length() - 1
        doubling = 2 * len(slices.key) * levels + len(at) * size.bit_count()
        if len(at) * size <= doubling:
            window, slice_ = expand(at, np.full(len(at), size))
            return merged_by(self.aggregation, slices.parts.take(pa.array(slice_)), window)[0]
        block, pieces, width = slices.parts, [], 1
        while True:
            if size & width:
                pieces.append(block.take(pa.array(at)))
                at = at + width
            if 2 * width > size:
                break
            left = np.flatnonzero(slices.key[:-width] == slices.key[width:])
            both = pa.concat_tables([block, block.take(pa.array(left + width))])
            block, _ = merged_by(self.aggregation, both, np.concatenate([np.arange(len(slices.key)), left]))
            width *= 2
        number = np.tile(np.arange(len(at)), len(pieces))
        return merged_by(self.aggregation, pa.concat_tables(pieces), number)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Slices:
    """Slices by key and number of their first row, and what tells where one is."""

    parts: pa.Table
    key: I64
    start: I64
    codes: I64
    begin: I64
    first: I64
    width: int

    def index(self, key: I64, start: I64) -> I64:
        """The places of slices, which must be there."""
        found: I64 = np.searchsorted(self.codes, self.begin[key] + (start - self.first[key]) // self.width)
        return found
