"""Values by the order of a column: first, last, the k greatest, and all of them as a list.

What "first" means must not depend on how rows are split over tasks or on which partial row arrives first, or a replayed
batch would give something else. So the order is that of a column, ``by``, and of nothing else: not of arrival, which is
no property of the rows. Event time is a good one. Rows with equal ``by`` are told apart by the value itself:

    first("price", by="at")           least ``at``; of those the least price
    last("price", by="at")            greatest ``at``; of those the greatest price
    top_k("user", 3, by="spent")      greatest ``spent`` first; of those the least user first
    collect("page", by="at", ...)     least ``at`` first; of those the least page first

That is an order of all (by, value) pairs, so the outcome is the same to the last bit for every split and every order of
merging. Rows without a value in ``by`` or in the column are skipped. NaN is greater than any number; -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, Bool, compiled
from headgate.errors import InputError
from headgate.operators.basics import with_order
from headgate.operators.columns import type_name
from headgate.operators.folds import Aggregate, Fold, UnfitError, Where, kept
from headgate.operators.ordinals import canonical, ordinals

EVERYTHING = 2**62
"""The limit of a list without a limit."""

_NONE: I64 = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class First(Aggregate):
    """The value of the row that comes first in the order of ``by``."""

    verb = "first"

    _: KW_ONLY
    by: str

    @property
    def columns(self) -> tuple[str, ...]:
        assert self.column is not None
        return self.column, self.by

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Extreme(with_order(kinds), _order_of(self.by, kinds[1]), last=False)


@dataclass(frozen=True, slots=True)
class Last(First):
    """The value of the row that comes last in the order of ``by``."""

    verb = "last"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Extreme(with_order(kinds), _order_of(self.by, kinds[1]), last=True)


@dataclass(frozen=True, slots=True)
class Collect(Aggregate):
    """The values of up to ``limit`` rows, least ``by`` first (without it: least value first), as a list."""

    verb = "collect"

    _: KW_ONLY
    by: str | None
    limit: int | None

    @property
    def columns(self) -> tuple[str, ...]:
        assert self.column is not None
        return (self.column,) if self.by is None else (self.column, self.by)

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        order = None if self.by is None else _order_of(self.by, kinds[1])
        return _Listed(with_order(kinds), order, EVERYTHING if self.limit is None else self.limit, greatest=False)


@dataclass(frozen=True, slots=True)
class TopBy(Aggregate):
    """The values of the ``k`` rows with the greatest ``by``, greatest first, with their ``by``."""

    verb = "top_k"

    _: KW_ONLY
    by: str
    k: int

    @property
    def columns(self) -> tuple[str, ...]:
        assert self.column is not None
        return self.column, self.by

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Listed(with_order(kinds), _order_of(self.by, kinds[1]), self.k, greatest=True)


def first(column: str, *, by: str, where: Where = None) -> First:
    """The value of the row with the least ``by``; among equal ones the least value. Nulls in either are skipped.

    For a stream ``by`` is usually the column of event time. Exact; the state is one pair.
    """
    return First(column, where=where, by=by)


def last(column: str, *, by: str, where: Where = None) -> Last:
    """The value of the row with the greatest ``by``; among equal ones the greatest value. Nulls in either are skipped.

    For a stream ``by`` is usually the column of event time. Exact; the state is one pair.
    """
    return Last(column, where=where, by=by)


def collect(column: str, *, limit: int | None, by: str | None = None, where: Where = None) -> Collect:
    """The values as a list, duplicates and all, least ``by`` first; without ``by`` least value first.

    ``limit`` must be said: with one the list ends after so many, with ``limit=None`` it does not, and the state of a
    key grows with its rows. The values that are kept are the first in that order, whatever order rows arrive in. Nulls
    in either column are skipped; no values make an empty list, as in Spark.
    """
    return Collect(column, where=where, by=by, limit=None if limit is None else checked_size("collect", "limit", limit))


def checked_size(function: str, name: str, value: object) -> int:
    """A whole number of at least 1. Raises ``InputError``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{function}: {name} must be a whole number of at least 1, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class _Extreme(Fold):
    kind: pa.DataType
    order: pa.DataType
    last: bool

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return pa.field("value", self.kind), pa.field("by", self.order)

    @property
    def result(self) -> pa.DataType:
        return self.kind

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        (values, order), codes = kept(columns, codes, where)
        flip = np.int64(-1 if self.last else 0)  # exclusive or with -1 turns an order of integers round
        rank = ordinals(order) ^ flip
        rows, tied = _best(rank, _NONE, codes, keys)
        if tied:
            near = np.flatnonzero(rank == rank[rows[codes]])
            close = values.take(pa.array(near))
            picked, _ = _best(rank[near], ordinals(close) ^ flip, codes[near], keys)
            rows = np.where(picked >= 0, near[picked], -1)
        at = pa.array(rows, mask=rows < 0)
        return [canonical(values.take(at)), canonical(order.take(at))]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        return self.reduce(states, codes, keys, None)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]


@dataclass(frozen=True, slots=True)
class _Listed(Fold):
    """State: the values in a list and, where there is one, ``by`` in another; both in order, up to the limit.

    The least first, and the result is the values; or the greatest first, and the result is both.
    """

    kind: pa.DataType
    order: pa.DataType | None
    limit: int
    greatest: bool

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        values = pa.field("values", pa.list_(self.kind))
        return (values,) if self.order is None else (values, pa.field("bys", pa.list_(self.order)))

    @property
    def result(self) -> pa.DataType:
        if self.greatest:
            return pa.list_(pa.struct([pa.field("value", self.kind), pa.field("by", self.order)]))
        return pa.list_(self.kind)

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        values = columns[0]
        if self.order is None:
            starts, rows, _ = select(ordinals(values), _NONE, codes, keys, self.limit)
        else:
            rank = ordinals(columns[1]) ^ np.int64(-1 if self.greatest else 0)
            starts, rows = select_by(rank, lambda: ordinals(values), codes, keys, self.limit)
        return [lists_of(starts, canonical(column.take(pa.array(rows)))) for column in columns]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        return self.reduce([state.flatten() for state in states], spread_codes(states[0], codes), keys, None)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        if not self.greatest:
            return lists_of(bounds_of(states[0]), states[0].flatten())
        fields = list(self.result.value_type)
        elements = pa.StructArray.from_arrays([state.flatten() for state in states], fields=fields)
        return lists_of(bounds_of(states[0]), elements)


def select_by(first: I64, second: Callable[[], I64], codes: I32, keys: int, limit: int) -> tuple[I64, I64]:
    """As ``select``; the second order is made only where the first has ties that matter."""
    starts, rows, tied = select(first, _NONE, codes, keys, limit)
    if tied:
        starts, rows, _ = select(first, second(), codes, keys, limit)
    return starts, rows


def lists_of(starts: I64, elements: pa.Array) -> pa.Array:
    """A list per key: elements from one start to the next."""
    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), elements)


def lengths_of(lists: pa.Array) -> I64:
    """How long each list is; 0 where it is null."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def bounds_of(lists: pa.Array) -> I64:
    """Where the elements of each list start among those of all, with the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_of(lists))])


def spread_codes(lists: pa.Array, codes: I32) -> I32:
    """The number of the key of each element of some lists."""
    return np.repeat(codes, lengths_of(lists))


def _order_of(by: str, kind: pa.DataType) -> pa.DataType:
    try:
        return with_order([kind])
    except TypeError:
        raise UnfitError(f"needs a by of values that have an order, {by!r} is {type_name(kind)}") from None


@compiled
def _best(first: I64, second: I64, codes: I32, keys: int) -> tuple[I64, bool]:
    """The row of each key with the least (first, second), -1 for none; and whether a first was found twice.

    An empty ``second`` is no second.
    """
    rows = np.full(keys, -1, dtype=np.int64)
    tied = False
    alone = len(second) == 0
    for row in range(len(codes)):
        code = codes[row]
        held = rows[code]
        if held < 0 or first[row] < first[held]:
            rows[code] = row
        elif first[row] == first[held]:
            tied = True
            if not alone and second[row] < second[held]:
                rows[code] = row
    return rows, tied


@compiled
def _less(first: I64, second: I64, one: int, other: int) -> bool:
    if first[one] != first[other]:
        return bool(first[one] < first[other])
    return len(second) > 0 and bool(second[one] < second[other])


@compiled
def _sink(heap: I64, size: int, at: int, first: I64, second: I64) -> None:
    """Put the row at ``at`` where it belongs in a heap whose greatest row is on top."""
    row = heap[at]
    child = 2 * at + 1
    while child < size:
        if child + 1 < size and _less(first, second, heap[child], heap[child + 1]):
            child += 1
        if not _less(first, second, row, heap[child]):
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = row


@compiled
def select(first: I64, second: I64, codes: I32, keys: int, limit: int) -> tuple[I64, I64, bool]:
    """The ``limit`` rows of each key with the least (first, second), in ascending order; and whether a first was tied.

    The rows of key ``i`` are ``rows[starts[i]:starts[i + 1]]``. An empty ``second`` is no second. A heap per key: time
    n log(limit), space for what is kept.
    """
    room = np.zeros(keys, dtype=np.int64)
    for row in range(len(codes)):
        if room[codes[row]] < limit:
            room[codes[row]] += 1
    starts = np.zeros(keys + 1, dtype=np.int64)
    for key in range(keys):
        starts[key + 1] = starts[key] + room[key]
    rows = np.empty(starts[keys], dtype=np.int64)
    filled = np.zeros(keys, dtype=np.int64)
    tied = False
    for row in range(len(codes)):
        code = codes[row]
        start = starts[code]
        size = room[code]
        if filled[code] < size:
            rows[start + filled[code]] = row
            filled[code] += 1
            if filled[code] == size:
                heap = rows[start : start + size]
                for at in range(size // 2 - 1, -1, -1):
                    _sink(heap, size, at, first, second)
        else:
            top = rows[start]
            if first[row] == first[top]:
                tied = True
            if _less(first, second, row, top):
                heap = rows[start : start + size]
                heap[0] = row
                _sink(heap, size, 0, first, second)
                if first[heap[0]] == first[top]:  # one of two that are level had to go
                    tied = True
    for key in range(keys):
        heap = rows[starts[key] : starts[key + 1]]
        for size in range(len(heap) - 1, 0, -1):
            heap[0], heap[size] = heap[size], heap[0]
            _sink(heap, size, 0, first, second)
        for at in range(1, len(heap)):
            if first[heap[at]] == first[heap[at - 1]]:
                tied = True
    return starts, rows, tied
