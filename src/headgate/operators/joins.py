"""The equi-join of two streams within a time bound: rows of a key whose event times are near each other.

Card

    Problem          pairs of rows of two streams that have one key, and times at most so far apart
    State per key    the rows of either side that a partner may still come for, by time: one list per column and side
    Guarantee        every pair of rows that were taken and match comes out once; in a left join every left row without
                     a partner once. Whatever the order of rows, their batches and where their key lives
    Time             O(n log n) in the rows and buffered rows of the keys that a batch touches, plus the pairs

A left row at ``t`` matches the right rows at ``[t - before, t + after]``, both ends inclusive:

    right            |<--- before --->|<-- after -->|
    left ------------|----------------t-------------|--------> event time
                 t - before                     t + after

In a batch all pairs are made but those of two buffered rows, which came out before:

                     old right   new right
    old left             -           x          new right rows against all left ones,
    new left             x           x          then old right rows against new left ones

When a row is dropped. ``w`` is the watermark of the batch; rows at or after ``w - lateness`` are taken, now and later:

    left row         once  t + after + lateness < w; in a left join it comes out then, if it never had a partner
    right row        once  t + before + lateness < w
    at the same time with ``=`` a partner exactly there could still come

A key is woken when its last row can go, not its first, unless a left row has to come out; a key that has rows in a
batch is tidied anyway. So a quiet key holds what it needed when it last had rows, and keys are not read and written
again for every row that ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import F64, I64, Bool, compiled
from headgate.errors import JobError
from headgate.operators.contract import NO_TIMER, Clock, KeyedInput, KeyedOutput
from headgate.operators.lists import gathered, listed, spread
from headgate.operators.windowed import instants
from headgate.windows.slices import expand

How = Literal["inner", "left"]
"""Which left rows come out: those with a partner, or all."""

SIDE = "__side"
"""The column that says of which stream a row is."""

LEFT, RIGHT = 0, 1

MATCHED = "matched"
"""The state of left joins: which of the buffered left rows have had a partner. Other columns have a dot in them."""

LONGEST_MICROS = 10_000 * 365 * 86_400_000_000
"""Ten thousand years: no bound is longer than all of time, and sums of a time and bounds stay far from 64 bits."""

LAST_INSTANT = 253_402_300_799_999_999
"""The end of the year 9999, the watermark at the end of the input: by then every row is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """Rows of one side as rows of the join: a function from table to table.

    ``source`` says for each column of the join which column of the side it is; the others are null. ``keys`` are the
    side's own names of the key columns.
    """

    side: int
    keys: tuple[str, ...]
    schema: pa.Schema
    source: Mapping[str, str]

    @property
    def label(self) -> str:
        return "left side" if self.side == LEFT else "right side"

    @property
    def keeps(self) -> tuple[str, ...]:
        """The key columns that have one name on both sides, and so leave as they came."""
        return tuple(name for name in self.keys if self.source.get(name) == name)

    def __call__(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        columns = []
        for column in self.schema:
            if column.name == SIDE:
                columns.append(pa.array(np.full(count, self.side, np.int8)))
            elif column.name in self.source:
                columns.append(rows.column(self.source[column.name]))
            else:
                columns.append(pa.nulls(count, column.type))
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """A column of one side: its name there, in the rows of the join, in the state and in the results."""

    own: str
    joined: str
    stored: str
    result: str
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class IntervalJoin:
    """A keyed operator that joins two streams, whose rows come with their side in ``__side``.

    ``left`` and ``right`` are the columns of the streams. A result has the key columns under their left names, the
    other columns of the left row and those of the right row, which in a left join may be null. A column of both sides
    has a suffix per side; the event time keeps its name on the left. Keys are paired by position.

    Rows without a time match nothing. In a left join a left row without a time comes out at once.
    """

    name: str
    left: pa.Schema
    right: pa.Schema
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    time: str
    before_micros: int
    after_micros: int
    how: How = "inner"
    lateness_micros: int = 0
    suffixes: tuple[str, str] = ("", "_right")
    input_schema: pa.Schema = field(init=False)
    key_names: tuple[str, ...] = field(init=False)
    state_schema: pa.Schema = field(init=False)
    output_schema: pa.Schema = field(init=False)
    _left: tuple[_Column, ...] = field(init=False, repr=False)
    _right: tuple[_Column, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        columns = self._columns()
        keys = [pa.field(name, self.left.field(name).type) for name in self.left_keys]
        union = {column.joined: pa.field(column.joined, column.type) for side in columns for column in side}
        results = [pa.field(column.result, column.type) for side in columns for column in side]
        state = [listed(pa.field(column.stored, column.type) for column in side) for side in columns]
        matched = listed([pa.field(MATCHED, pa.bool_())]) if self.how == "left" else []
        names = [each.name for each in (*keys, *results)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise JobError.joined_twice(self.name, twice, self.suffixes)
        for attribute, value in (
            ("key_names", tuple(self.left_keys)),
            ("_left", columns[0]),
            ("_right", columns[1]),
            ("input_schema", pa.schema([*keys, pa.field(SIDE, pa.int8()), *union.values()])),
            ("state_schema", pa.schema([*state[0], *matched, *state[1]])),
            ("output_schema", pa.schema([*keys, *results])),
        ):
            object.__setattr__(self, attribute, value)

    def _check(self) -> None:
        if self.how not in ("inner", "left"):
            raise JobError.option("how", '"inner" or "left"', self.how)
        texts = not isinstance(self.suffixes, str) and all(isinstance(suffix, str) for suffix in self.suffixes)
        if not texts or len(self.suffixes) != 2:
            raise JobError.option("suffixes", "two texts, one per side", self.suffixes)
        spans = {"before": self.before_micros, "after": self.after_micros, "lateness": self.lateness_micros}
        for what, micros in spans.items():
            if micros > LONGEST_MICROS:
                raise JobError.option(f"{what} of a join", "at most ten thousand years", micros)
        for schema, keys in ((self.left, self.left_keys), (self.right, self.right_keys)):
            if self.time not in schema.names:
                raise JobError.unknown_column("join", self.time, schema.names)
            if self.time in keys:
                raise JobError.option(
                    "the keys of a join", f"other columns than the event time {self.time!r}, which bounds it", keys
                )
            if SIDE in schema.names:
                raise JobError.option(
                    "a column of a joined stream", "named other than the side that travels along", SIDE
                )
        if not self.left_keys and not self.right_keys:
            raise JobError.joined_by_nothing(self.name)
        if len(self.left_keys) != len(self.right_keys):
            raise JobError.joined_keys(self.name, self.left_keys, self.right_keys)
        for one, other in ((self.time, self.time), *zip(self.left_keys, self.right_keys, strict=True)):
            kinds = self.left.field(one).type, self.right.field(other).type
            if kinds[0] != kinds[1]:
                raise JobError.joined_types(self.name, one, kinds[0], other, kinds[1])

    def _columns(self) -> tuple[tuple[_Column, ...], tuple[_Column, ...]]:
        """The columns of both sides but their keys.

        Columns of one name and one type are one column in the rows of the join: each row is of one side only.
        """
        left = [column for column in self.left if column.name not in self.left_keys]
        right = [column for column in self.right if column.name not in self.right_keys]
        kinds = {column.name: column.type for column in left}
        both = {column.name for column in right} & set(self.left.names)
        ours, theirs = [], []
        for column in left:
            clashes = column.name in both and column.name != self.time
            result = column.name + (self.suffixes[0] if clashes else "")
            ours.append(_Column(column.name, column.name, f"left.{column.name}", result, column.type))
        taken = {*self.left.names, SIDE}
        for column in right:
            joined = column.name
            if kinds.get(joined) != column.type:
                while joined in taken:
                    joined += "_right"
                taken.add(joined)
            result = column.name + (self.suffixes[1] if column.name in both else "")
            theirs.append(_Column(column.name, joined, f"right.{column.name}", result, column.type))
        return tuple(ours), tuple(theirs)

    @property
    def combines(self) -> bool:
        return False

    @property
    def partial_schema(self) -> pa.Schema:
        return self.input_schema

    @property
    def windows(self) -> str:
        """The join in words: what state depends on, and must not change on a checkpoint."""
        before, after = (timedelta(microseconds=each) for each in (self.before_micros, self.after_micros))
        span = f"up to {after} before or after" if before == after else f"from {before} before to {after} after"
        return f"{self.how} join with right rows {span}"

    def side(self, number: int) -> Tagged:
        """What makes rows of the join from rows of a side, ``LEFT`` or ``RIGHT``."""
        own, keys = (self._left, self.left_keys) if number == LEFT else (self._right, self.right_keys)
        source = {column.joined: column.own for column in own}
        return Tagged(number, keys, self.input_schema, source | dict(zip(self.left_keys, keys, strict=True)))

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are."""
        return rows, hashes

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are."""
        return partials, hashes

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Emit the pairs that new rows make, then drop what nothing can match any more.

        The timer of a key is the watermark at which its next left row without a partner comes out, or else the one at
        which its last row can go.
        """
        started = clock() if clock is not None else 0.0
        count = len(given)
        of_row = np.repeat(np.arange(count, dtype=np.int64), np.diff(given.starts))
        side = np.asarray(given.rows.column(SIDE)) if len(of_row) else np.empty(0, np.int8)
        left = self._buffer(given, of_row, side == LEFT, self._left)
        right = self._buffer(given, of_row, side == RIGHT, self._right)
        reach = self.before_micros, self.after_micros
        ours, theirs = _pairs(left, right.only(right.fresh), *reach)
        more = _pairs(left.only(left.fresh), right.only(~right.fresh), *reach)
        ours, theirs = np.concatenate([ours, more[0]]), np.concatenate([theirs, more[1]])
        had = self._had(given, left)
        had[ours] = True
        left_end = self._end(left.time, self.after_micros)
        right_end = self._end(right.time, self.before_micros)
        gone, right_gone = left_end < given.watermark, right_end < given.watermark
        alone = np.empty(0, np.int64)
        if self.how == "left":
            alone = np.concatenate([left.timeless, left.order[gone & ~had[left.order]]])
        results = self._results(given, left, right, ours, theirs, alone)
        stay, right_stay = ~gone, ~right_gone
        timer = np.full(count, NO_TIMER)
        _latest(timer, left.key[stay], left_end[stay])
        _latest(timer, right.key[right_stay], right_end[right_stay])
        keep = timer != NO_TIMER
        if self.how == "left":
            waiting = stay & ~had[left.order]
            _earliest(timer, left.key[waiting], left_end[waiting])
        timer[keep] += 1
        lists = [self._kept(left, stay, self._left, count)]
        if self.how == "left":
            flags = pa.table([pa.array(had[left.order[stay]])], names=[MATCHED])
            lists.append(gathered(flags, left.key[stay], count))
        lists.append(self._kept(right, right_stay, self._right, count))
        state = pa.Table.from_arrays([column for part in lists for column in part.columns], schema=self.state_schema)
        seconds = None
        if clock is not None:
            pairs = np.bincount(left.owner[ours], minlength=count)
            seconds = _shared(clock() - started, left.sizes(count) + right.sizes(count) + pairs)
        return KeyedOutput(results, state, keep, timer, np.full(count, NO_TIMER), seconds)

    def _buffer(self, given: KeyedInput, of_row: I64, mine: Bool, columns: Sequence[_Column]) -> _Buffer:
        """The rows of a side: those that were kept, then the new ones."""
        names = [column.joined for column in columns]
        old_owner, old = spread(given.state.select([column.stored for column in columns]))
        new = given.rows.select(names).filter(pa.array(mine))
        table = pa.concat_tables([old.rename_columns(names), new]).combine_chunks()
        owner = np.concatenate([old_owner, of_row[mine]])
        times = instants(table.column(self.time))
        time = np.asarray(pc.fill_null(times, 0), dtype=np.int64)
        fresh = np.arange(len(old_owner), len(owner))
        timeless = np.empty(0, np.int64)
        if times.null_count:
            there = np.asarray(pc.is_valid(times))
            fresh, timeless = fresh[there[fresh]], np.flatnonzero(~there)
        if not _ascend(owner, time, fresh):
            fresh = fresh[np.lexsort((time[fresh], owner[fresh]))]
        order = _merged(owner, time, len(old_owner), fresh)
        return _Buffer(table, owner, order, owner[order], time[order], order >= len(old_owner), timeless)

    def _had(self, given: KeyedInput, left: _Buffer) -> Bool:
        """Which left rows have had a partner before."""
        had = np.zeros(len(left.owner), np.bool_)
        if self.how == "left":
            _, flags = spread(given.state.select([MATCHED]))
            had[: flags.num_rows] = np.asarray(flags.column(0), dtype=np.bool_)
        return had

    def _end(self, time: I64, reach: int) -> I64:
        """The last watermark at which rows may still get a partner that lies up to so far ahead."""
        reach += self.lateness_micros
        end: I64 = np.minimum(time, LAST_INSTANT - 1 - reach) + reach
        return end

    def _results(
        self, given: KeyedInput, left: _Buffer, right: _Buffer, ours: I64, theirs: I64, alone: I64
    ) -> pa.Table:
        rows = np.concatenate([ours, alone])
        index = pa.array(rows)
        partner = pa.array(np.concatenate([theirs, np.zeros_like(alone)]), mask=np.arange(len(rows)) >= len(ours))
        key = pa.array(left.owner[rows])
        columns = [given.keys.column(name).take(key) for name in self.key_names]
        columns += [left.table.column(at).take(index) for at in range(len(self._left))]
        columns += [right.table.column(at).take(partner) for at in range(len(self._right))]
        return pa.Table.from_arrays(columns, schema=self.output_schema)

    def _kept(self, side: _Buffer, stay: Bool, columns: Sequence[_Column], count: int) -> pa.Table:
        left = side.table.take(pa.array(side.order[stay]))
        return gathered(left.rename_columns([column.stored for column in columns]), side.key[stay], count)


@dataclass(frozen=True, slots=True, eq=False)
class _Buffer:
    """The rows of a side: ``table`` as they came, and each one's key in ``owner``.

    ``order`` has the rows with a time, by key and time; rows of one time in the order they came. ``key``, ``time`` and
    ``fresh`` (not from the state) go by it. ``timeless`` are the other rows.
    """

    table: pa.Table
    owner: I64
    order: I64
    key: I64
    time: I64
    fresh: Bool
    timeless: I64

    def only(self, which: Bool) -> _Buffer:
        """Some of the rows that have a time; the table stays whole."""
        return _Buffer(
            self.table, self.owner, self.order[which], self.key[which], self.time[which], self.fresh[which],
            self.timeless,
        )  # fmt: skip

    def sizes(self, keys: int) -> I64:
        """How many rows each key has."""
        return np.bincount(self.owner, minlength=keys)


def _pairs(left: _Buffer, right: _Buffer, before: int, after: int) -> tuple[I64, I64]:
    """The rows of each matching pair."""
    limits = np.iinfo(np.int64)
    earliest = np.maximum(left.time, limits.min + before) - before
    latest = np.minimum(left.time, limits.max - after) + after
    first, end = _ranges(left.key, earliest, latest, right.key, right.time)
    row, partner = expand(first, end - first)
    return left.order[row], right.order[partner]


@compiled
def _ranges(key: I64, earliest: I64, latest: I64, other_key: I64, other_time: I64) -> tuple[I64, I64]:
    """For each row, where its partners begin and end: the others of its key between two times, both inclusive.

    Both sides ascend by key and time, so both bounds only move on.
    """
    first = np.empty(len(key), dtype=np.int64)
    end = np.empty(len(key), dtype=np.int64)
    low = 0
    high = 0
    count = len(other_key)
    for row in range(len(key)):
        mine = key[row]
        while low < count and (other_key[low] < mine or (other_key[low] == mine and other_time[low] < earliest[row])):
            low += 1
        high = max(high, low)
        while high < count and other_key[high] == mine and other_time[high] <= latest[row]:
            high += 1
        first[row] = low
        end[row] = high
    return first, end


@compiled
def _ascend(key: I64, time: I64, rows: I64) -> bool:
    """Whether rows lie by key and time: those of a stream often come so."""
    for at in range(1, len(rows)):
        one, two = rows[at - 1], rows[at]
        if key[one] > key[two] or (key[one] == key[two] and time[one] > time[two]):
            return False
    return True


@compiled
def _merged(key: I64, time: I64, old: int, fresh: I64) -> I64:
    """The first ``old`` rows and the fresh ones, both by key and time, in one order; old ones first at one time."""
    order = np.empty(old + len(fresh), dtype=np.int64)
    left = 0
    right = 0
    for at in range(len(order)):
        take_old = right == len(fresh)
        if not take_old and left < old:
            new = fresh[right]
            take_old = key[left] < key[new] or (key[left] == key[new] and time[left] <= time[new])
        if take_old:
            order[at] = left
            left += 1
        else:
            order[at] = fresh[right]
            right += 1
    return order


@compiled
def _latest(timer: I64, key: I64, end: I64) -> None:
    for row in range(len(key)):
        timer[key[row]] = max(timer[key[row]], end[row])


@compiled
def _earliest(timer: I64, key: I64, end: I64) -> None:
    """Sets, for each key that is there, its first row's end: rows of a key end in their order."""
    for row in range(len(key) - 1, -1, -1):
        timer[key[row]] = end[row]


def _shared(seconds: float, weights: I64) -> F64:
    """The time of a call, by the rows and pairs that each key had: pairs are what hot keys cost."""
    shares: F64 = weights.astype(np.float64) * (seconds / max(1, int(weights.sum())))
    return shares
