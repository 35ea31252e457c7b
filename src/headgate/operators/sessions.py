"""Aggregates per key and session: rows of a key that come no more than a gap apart.

Card

    Problem          a window per visit: it has no start that a clock knows, and ends when its key has been quiet
    State per key    its open sessions: lists of start, end and the parts of the aggregates
    Guarantee        sessions and aggregates are those of the rows that were taken, whatever their order, their batches
                     and where their key lived; each session comes out once
    Time             O(n log n) in the partials and open sessions of the keys that a batch touches, no loop over keys

Rows become partial sessions where they are read, for rows that are near each other stay so; only these travel:

    task 1     x x      x            [-----)    [----)         partials (key, start, end, parts)
    task 2         x                     [----)
    open                           [----)                      state
                                   -----------------------
    sessions                       [----------)[----)          what overlaps or touches is one

When a session ends. ``end`` is its last row plus the gap, ``w`` the watermark of the batch:

    rows              taken while they are at or after w - lateness, turned away as late before it
    a session         is emitted and forgotten in the first batch with end + lateness < w
    at the same time  with end + lateness = w a row at end could still come, and would join

So no row that is taken could have joined a session that is gone, and a result is final. The price of ``lateness`` is
that results come so much later. Other windows are emitted at once and again when late rows came; sessions are not,
because a late row may make one session of two, and then two results would have to be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I64
from headgate.operators.aggregates import Aggregate, Aggregation
from headgate.operators.contract import NO_TIMER, Clock, KeyedInput, KeyedOutput
from headgate.operators.lists import check_reserved, gathered, listed, merged_by, spread, with_window
from headgate.operators.windowed import INSTANT, START, WINDOW_END, WINDOW_START, instants
from headgate.windows import Merged, Sessions, merge_sessions, session_closed

END = "__end"
"""The column that says where a partial session ends: the time of its last row, plus the gap."""

_NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SessionAggregation:
    """A keyed operator that emits the aggregates of a session once the watermark has passed its end.

    A result has the key columns, ``window_start`` (the time of the first row), ``window_end`` (the time of the last
    row plus the gap) and one column per aggregate. A row exactly the gap after the last one still belongs to the
    session. Rows without a time are in no session and are left out.
    """

    name: str
    input_schema: pa.Schema
    key_names: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    kind: Sessions
    time: str
    aggregation: Aggregation = field(init=False, repr=False)
    state_schema: pa.Schema = field(init=False)
    partial_schema: pa.Schema = field(init=False)
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        check_reserved(self.name, self.key_names, self.aggregates, START, END)
        aggregation = Aggregation(self.name, self.input_schema, tuple(self.key_names), self.aggregates)
        keys, parts = [self.input_schema.field(name) for name in self.key_names], list(aggregation.state_schema)
        bounds = [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        window = [pa.field(WINDOW_START, INSTANT), pa.field(WINDOW_END, INSTANT)]
        for attribute, value in (
            ("key_names", tuple(self.key_names)),
            ("aggregates", dict(self.aggregates)),
            ("aggregation", aggregation),
            ("state_schema", pa.schema(listed([*bounds, *parts]))),
            ("partial_schema", pa.schema([*keys, *bounds, *parts])),
            ("output_schema", pa.schema([*keys, *window, *list(aggregation.output_schema)[len(keys) :]])),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def combines(self) -> bool:
        return True

    @property
    def windows(self) -> str:
        """The windows in words: what state depends on, and must not change on a checkpoint."""
        return f"sessions with a gap of {self.kind.gap}"

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partial sessions: one for the rows of a key that lie within the gap of each other; and their keys' hashes."""
        times = instants(rows.column(self.time))
        if times.null_count:
            there = pc.is_valid(times)
            rows, hashes, times = rows.filter(there), hashes[np.asarray(there)], times.filter(there)
        time = times.combine_chunks().to_numpy() if len(times) else _NONE
        sessions = merge_sessions(hashes, time, _NONE, _NONE, _NONE, gap=self.kind.gap_micros)
        partials, numbers = self.aggregation.early(rows, sessions.of_row)
        return self._bounded(partials, sessions, numbers), sessions.key[numbers]

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partial sessions, those of a key that overlap or touch made one; and their keys' hashes."""
        sessions, merged = self._merged(partials, hashes)
        return merged, sessions.key

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Partial sessions join those that are open; what no row can join any more is emitted and forgotten.

        The timer of a key is the first watermark that ends one of its sessions.
        """
        count = len(given)
        names = self.state_schema.names
        owner, opened = spread(given.state)
        of_row = np.repeat(np.arange(count, dtype=np.int64), np.diff(given.starts))
        key = np.concatenate([owner, of_row])
        partials = pa.concat_tables([opened, given.rows.select(names)])
        for at, name in enumerate(self.key_names):
            partials = partials.add_column(at, name, given.keys.column(name).take(pa.array(key)))
        sessions, merged = self._merged(partials, key)
        closed = session_closed(sessions.end, given.watermark, self.kind.lateness_micros)
        left = ~closed
        key, end = sessions.key[left], sessions.end[left]
        first = np.ones(len(key), np.bool_)
        first[1:] = key[1:] != key[:-1]
        timer = np.full(count, NO_TIMER)
        timer[key[first]] = end[first] + self.kind.lateness_micros + 1  # sessions of a key end in their order
        keep = np.zeros(count, np.bool_)
        keep[key] = True
        return KeyedOutput(
            self._results(merged.filter(pa.array(closed))),
            gathered(merged.filter(pa.array(left)).select(names), key, count),
            keep,
            timer,
            np.full(count, NO_TIMER),
        )

    def _merged(self, partials: pa.Table, key: I64) -> tuple[Merged, pa.Table]:
        """The sessions that partial ones make together, by key and start, and the partial of each. Keys are numbers."""
        start, end = (partials.column(name).to_numpy() for name in (START, END))
        sessions = merge_sessions(_NONE, _NONE, key, start, end, gap=self.kind.gap_micros)
        names = self.aggregation.partial_schema.names
        merged, numbers = merged_by(self.aggregation, partials.select(names), sessions.of_open)
        return sessions, self._bounded(merged, sessions, numbers)

    def _bounded(self, partials: pa.Table, sessions: Merged, numbers: I64) -> pa.Table:
        keys = len(self.key_names)
        bounds = [pa.chunked_array([each[numbers]]) for each in (sessions.start, sessions.end)]
        columns = partials.columns
        return pa.Table.from_arrays([*columns[:keys], *bounds, *columns[keys:]], schema=self.partial_schema)

    def _results(self, closed: pa.Table) -> pa.Table:
        bounds = (closed.column(name).combine_chunks().cast(INSTANT) for name in (START, END))
        finished = self.aggregation.finished(closed.select(self.aggregation.partial_schema.names))
        return with_window(finished, len(self.key_names), *bounds)
