"""The plain aggregates: count, sum, mean, min, max. Their states are numbers, merged one by one.

    count   n                       sum     s
    mean    s, n  (finish: s / n)   min     m           max     m

Nulls as in SQL: they are skipped, a sum, mean, min or max of nothing is null, a count of nothing is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.columns import MAX_DIGITS
from headgate.operators.folds import Aggregate, Fold, Part, Parts, Where
from headgate.operators.reductions import mean_of

MEAN_DIGITS = 4
"""How many digits a mean of decimals has more than its column, before and after the point together, as in Spark."""


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """How many rows, or how many of them have a value in a column."""

    verb = "count"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Counted((Part("count", "count", "sum", pa.int64()),))


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum: int64 of integers, float64 of floats, decimal(38, s) of decimals."""

    verb = "sum"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return Parts((Part("sum", "sum", "sum", _sum_type(kinds)),))


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """The mean: float64 of integers and floats; of decimal(p, s), decimal(p + 4, s + 4) rounded half up."""

    verb = "mean"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        total, form = _sum_type(kinds), pa.float64()
        if pa.types.is_integer(total):
            total = pa.float64()  # as Spark does: a mean cannot overflow
        if pa.types.is_decimal(total):
            digits, scale = (min(each + MEAN_DIGITS, MAX_DIGITS) for each in (kinds[0].precision, kinds[0].scale))
            form = pa.decimal128(digits, scale)
        return _Averaged((Part("sum", "sum", "sum", total), Part("count", "count", "sum", pa.int64())), form)


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The least value, of the column's type."""

    verb = "min"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return Parts((Part("min", "min", "min", with_order(kinds)),))


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The greatest value, of the column's type."""

    verb = "max"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return Parts((Part("max", "max", "max", with_order(kinds)),))


def count(column: str | None = None, *, where: Where = None) -> Count:
    """Count rows, or the rows that have a value in ``column``."""
    return Count(column, where=where)


def sum_(column: str, *, where: Where = None) -> Sum:
    """Add up a column. A sum of integers that leaves 64 bits is an error, not a wrong number."""
    return Sum(column, where=where)


def mean(column: str, *, where: Where = None) -> Mean:
    """The mean of a column's values."""
    return Mean(column, where=where)


def min_(column: str, *, where: Where = None) -> Min:
    """The least value of a column: numbers, strings, bytes, dates, timestamps, booleans. NaN counts as greatest."""
    return Min(column, where=where)


def max_(column: str, *, where: Where = None) -> Max:
    """The greatest value of a column: numbers, strings, bytes, dates, timestamps, booleans. NaN counts as greatest."""
    return Max(column, where=where)


@dataclass(frozen=True, slots=True)
class _Counted(Parts):
    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return pc.fill_null(states[0], 0)


@dataclass(frozen=True, slots=True)
class _Averaged(Parts):
    form: pa.DataType

    @property
    def result(self) -> pa.DataType:
        return self.form

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return mean_of(states[0], states[1], self.form)


def _sum_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    if kinds:
        kind = kinds[0]
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal(kind):
            return pa.decimal128(MAX_DIGITS, kind.scale)
    raise TypeError("numbers")


def with_order(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The first of the types. Raises ``TypeError`` unless its values have an order."""
    if not kinds or pa.types.is_nested(kinds[0]) or pa.types.is_null(kinds[0]) or pa.types.is_dictionary(kinds[0]):
        raise TypeError("values that have an order")
    return kinds[0]
