"""Which values a key has, and how often: exact distinct, and the most frequent values.

Both keep values in lists, in ascending order, so equal states have equal bytes. Values are numbered once for all keys;
the rest is arithmetic on pairs (key, number of the value) in one 64-bit integer.

Most frequent values
    Problem          the k most frequent values of a key with bounded state
    Guarantee        a value's count is at most n / (counters + 1) too small and never too great, where n is the number
                     of the key's values; exact while a key has no more distinct values than counters. So every value
                     that makes up more than n / (counters + 1) of the key is in the state.
    Time and space   linear in rows, a sort of the distinct values; at most ``counters`` values and counts per key
    First appeared   Misra and Gries 1982; merging as in Agarwal et al., Mergeable Summaries (PODS 2012), section 3
    Deviations       any number of summaries is merged at once: counts are added up, then the (counters + 1)-th
                     greatest is taken off all of them. At least counters + 1 counts shrink by what the error grows by,
                     so the bound is that of merging two by two, or better.
    Backfires        values that are all about equally rare: none is frequent, and what remains is close to arbitrary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, Bool, compiled
from headgate.errors import InputError
from headgate.operators.basics import with_order
from headgate.operators.folds import Aggregate, Fold, Where, kept
from headgate.operators.grouping import distinct as factorised
from headgate.operators.ordered import TopBy, checked_size, lists_of, select_by, spread_codes
from headgate.operators.ordinals import encoded, ordinals

COUNTERS = 1000
"""Counters of a key for its most frequent values: counts are off by less than 0.1 % of the key's rows, in some 16 KB
for a key that has that many distinct values."""

_NUMBER_BITS = np.int64(32)
_NUMBER = np.int64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Distinct(Aggregate):
    """How many distinct values a column has, exactly."""

    verb = "distinct"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Distinct(with_order(kinds))


@dataclass(frozen=True, slots=True)
class Frequent(Aggregate):
    """The ``k`` most frequent values of a column, with their counts."""

    verb = "top_k"

    _: KW_ONLY
    k: int
    counters: int

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Frequent(with_order(kinds), self.k, self.counters)


def distinct(column: str, *, where: Where = None) -> Distinct:
    """Count the distinct values of a column, exactly. Nulls are not counted; NaN is one value, 0.0 and -0.0 are one.

    The state of a key holds every distinct value it has had: where that is too much, take ``approx_distinct``.
    """
    return Distinct(column, where=where)


def top_k(
    column: str, k: int, *, by: str | None = None, counters: int | None = None, where: Where = None
) -> Frequent | TopBy:
    """The ``k`` most frequent values of a column; with ``by``, the values of the ``k`` rows with the greatest ``by``.

    The result is a list of structs, best first. Without ``by`` they have ``value`` and ``count``; equal counts order by
    value, least first. Exact while a key has no more than ``counters`` distinct values (1000, or k if that is more);
    beyond that a count may be too small by up to the number of the key's values divided by ``counters + 1``, and is
    never too great. With ``by`` they have ``value`` and ``by``; equal ``by`` order by value, least first; exact, and a
    value that several rows have appears several times. Nulls in either column are skipped; no values make an empty
    list.
    """
    checked_size("top_k", "k", k)
    if by is not None:
        if counters is not None:
            raise InputError("top_k: counters must be left out with by, which is exact without them")
        return TopBy(column, where=where, by=by, k=k)
    if counters is None:
        counters = max(COUNTERS, k)
    if checked_size("top_k", "counters", counters) < k:
        raise InputError(f"top_k: counters must be at least k, got {counters} for the {k} most frequent values")
    return Frequent(column, where=where, k=k, counters=counters)


@dataclass(frozen=True, slots=True)
class _Distinct(Fold):
    kind: pa.DataType

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field("values", pa.list_(self.kind)),)

    @property
    def result(self) -> pa.DataType:
        return pa.int64()

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        pairs, values = _pairs(columns[0], codes)
        _, first = factorised(pairs)
        starts, found = _by_key(np.sort(pairs[first]), keys)
        return [lists_of(starts, values.take(pa.array(found)))]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        return self.reduce([states[0].flatten()], spread_codes(states[0], codes), keys, None)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return pc.fill_null(pc.list_value_length(states[0]), 0).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class _Frequent(Fold):
    kind: pa.DataType
    k: int
    counters: int

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return pa.field("values", pa.list_(self.kind)), pa.field("counts", pa.list_(pa.int64()))

    @property
    def result(self) -> pa.DataType:
        return pa.list_(pa.struct([pa.field("value", self.kind), pa.field("count", pa.int64())]))

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        return self._counted(columns[0], np.ones(len(codes), dtype=np.int64), codes, keys)

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        values, counts = (state.flatten() for state in states)
        return self._counted(values, np.asarray(counts), spread_codes(states[0], codes), keys)

    def _counted(self, column: pa.Array, counts: I64, codes: I32, keys: int) -> list[pa.Array]:
        pairs, values = _pairs(column, codes)
        of_row, first = factorised(pairs)
        total = _added(of_row, counts, len(first))
        ascending = np.argsort(pairs[first])
        starts, found = _by_key(pairs[first][ascending], keys)
        total = total[ascending]
        _take_off(starts, total, self.counters)
        left = total > 0
        if not left.all():
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(left)])[starts]
            found, total = found[left], total[left]
        return [lists_of(starts, values.take(pa.array(found))), lists_of(starts, pa.array(total))]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        values, counts = (state.flatten() for state in states)
        own = np.arange(len(states[0]), dtype=np.int32)
        codes = spread_codes(states[0], own)
        starts, rows = select_by(-np.asarray(counts), lambda: ordinals(values), codes, len(own), self.k)
        at = pa.array(rows)
        fields = list(self.result.value_type)
        return lists_of(starts, pa.StructArray.from_arrays([values.take(at), counts.take(at)], fields=fields))


def _pairs(values: pa.Array, codes: I32) -> tuple[I64, pa.Array]:
    """Key and value of each row as one number, and the distinct values in ascending order, which it refers to."""
    numbers, found = encoded(values)
    order = np.asarray(pc.sort_indices(found)).astype(np.int64)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    of_row = rank[numbers] if len(order) else np.zeros(len(codes), dtype=np.int64)
    return (codes.astype(np.int64) << _NUMBER_BITS) | of_row, found.take(pa.array(order))


def _by_key(pairs: I64, keys: int) -> tuple[I64, I64]:
    """Where the pairs of each key start, and the numbers of the values; the pairs ascend."""
    starts = np.searchsorted(pairs, np.arange(keys + 1, dtype=np.int64) << _NUMBER_BITS)
    return starts.astype(np.int64), pairs & _NUMBER


@compiled
def _added(codes: I32, counts: I64, size: int) -> I64:
    total = np.zeros(size, dtype=np.int64)
    for row in range(len(codes)):
        total[codes[row]] += counts[row]
    return total


@compiled
def _take_off(starts: I64, counts: I64, counters: int) -> None:
    """Where a key has more counts than counters, take the (counters + 1)-th greatest off all of them, in place."""
    for key in range(len(starts) - 1):
        own = counts[starts[key] : starts[key + 1]]
        size = len(own)
        if size > counters:
            off = np.sort(own)[size - counters - 1]
            for at in range(size):
                own[at] -= off
