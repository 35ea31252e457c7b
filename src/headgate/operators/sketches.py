"""Aggregates that are approximate, with a bound: approx_distinct and quantile.

Both are made of sketches that many keys build and merge at once, without a loop in Python (``hyperloglog``,
``compaction``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, Bool
from headgate.errors import InputError
from headgate.operators.basics import with_order
from headgate.operators.compaction import (
    MAX_SKETCH_SIZE,
    merged_summaries,
    quantiles_of,
    sketches_of,
    summaries_of_rows,
)
from headgate.operators.folds import Aggregate, Fold, Where, kept
from headgate.operators.hyperloglog import (
    MAX_PRECISION,
    MIN_PRECISION,
    estimates,
    merged_sketches,
    sketches_of_rows,
)
from headgate.operators.ordered import bounds_of, checked_size, lists_of
from headgate.operators.ordinals import from_ordinals, is_reversible, ordinals

PRECISION = 12
"""4096 registers: a standard error of 1.6 % in 4 KB, what Spark takes for its own sketches."""

SIZE = 200
"""Of a summary for quantiles: ranks are off by less than 1.35 % with 99 % confidence; DataSketches' default as well."""


@dataclass(frozen=True, slots=True)
class ApproxDistinct(Aggregate):
    """About how many distinct values a column has; or the sketch that says so."""

    verb = "approx_distinct"

    _: KW_ONLY
    precision: int
    sketch: bool

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        with_order(kinds)
        return _Sketched(self.precision, self.sketch)


@dataclass(frozen=True, slots=True)
class Quantile(Aggregate):
    """Values of a column that a given part of its values does not exceed, within a bound; without ``q`` the sketch."""

    verb = "quantile"

    _: KW_ONLY
    q: float | tuple[float, ...] | None
    size: int

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        if self.q is None:
            return _Written(_sketch_type(with_order(kinds)), self.size)
        if not is_reversible(with_order(kinds)):
            raise TypeError("numbers (decimals of up to 18 digits), dates, timestamps or booleans")
        return _Asked(kinds[0], self.size, self.q)


def approx_distinct(
    column: str, *, precision: int = PRECISION, sketch: bool = False, where: Where = None
) -> ApproxDistinct:
    """About how many distinct values a column has, in at most ``2^precision`` bytes per key. Nulls are not counted.

    The standard error is ``1.04 / sqrt(2^precision)``: 1.6 % for 12, 0.8 % for 14; two of three estimates are within
    it, 99.7 % within three times as much. Up to 3/32 of ``2^precision`` distinct values (384 for 12) the estimate is
    exact but for one chance in millions. It depends on the set of values alone: the same for every split of the rows,
    order of merging and replay.

    With ``sketch=True`` the result is the sketch itself, a HyperLogLog sketch of type HLL_8 in the format of Apache
    DataSketches: ``hll_sketch_estimate`` and ``hll_union`` of Spark read it. Null for no values. Where empty strings
    are among the values it has them, which sketches made elsewhere leave out.
    """
    if not isinstance(precision, int) or not MIN_PRECISION <= precision <= MAX_PRECISION:
        raise InputError(
            f"approx_distinct: precision must be a whole number from {MIN_PRECISION} to {MAX_PRECISION}, got "
            f"{precision!r}: 12 has a standard error of 1.6 %, each one more divides it by 1.4"
        )
    return ApproxDistinct(column, where=where, precision=precision, sketch=sketch)


def quantile(
    column: str,
    q: float | Sequence[float] | None = None,
    *,
    size: int = SIZE,
    sketch: bool = False,
    where: Where = None,
) -> Quantile:
    """The least value of a column that a part ``q`` of its values does not exceed, within a bound.

    ``q`` is a number from 0 (the least value, exactly) to 1 (the greatest, exactly), 0.5 for the median; the result has
    the column's type. Or it is a list of them, and the result is a list. A value of the column is returned, never one
    between two (``percentile_disc`` in SQL). Nulls are skipped; NaN is greater than any number; null for no values.

    Exact while a key has no more values than ``size``. Beyond that the part of values that are no greater is off by
    less than ``2.3 / size^0.97`` with 99 % confidence: 1.35 % for 200, in about 5 KB per key. Another split of the rows
    gives another value within that bound; the same partial rows give the same value.

    With ``sketch=True`` and no ``q`` the result is the sketch itself, a KLL sketch with ``k = size`` in the format of
    Apache DataSketches, which it and ``kll_sketch_get_quantile_*``, ``kll_sketch_merge_*`` and ``kll_merge_agg_*`` of
    Spark read and merge: of doubles (``_double`` in Spark) for a column of doubles, of floats (``_float``) for floats,
    of longs (``_bigint``) for integers. Other columns are refused. Null for no values. NaN is left out and not counted,
    as in sketches made elsewhere.
    """
    if checked_size("quantile", "size", size) < 8:
        raise InputError(f"quantile: size must be at least 8, got {size}")
    if sketch:
        if q is not None:
            raise InputError(
                f"quantile: q must be left out with sketch=True, got {q!r}: the result is the sketch; for values as "
                "well add a second quantile"
            )
        if size > MAX_SKETCH_SIZE:
            raise InputError(f"quantile: size must be at most {MAX_SKETCH_SIZE} with sketch=True, got {size}")
        return Quantile(column, where=where, q=None, size=size)
    if q is None:
        raise InputError("quantile: q must be given, 0.5 for the median; or sketch=True for the sketch itself")
    single = isinstance(q, int | float)
    wanted = (q,) if isinstance(q, int | float) else tuple(q)
    for each in wanted:
        if not isinstance(each, int | float) or isinstance(each, bool) or not 0 <= each <= 1:
            raise InputError(f"quantile: q must be from 0 to 1, 0.5 for the median, got {each!r}")
    if not wanted:
        raise InputError("quantile: q must be a number or a list with at least one, got an empty list")
    return Quantile(column, where=where, q=float(wanted[0]) if single else tuple(map(float, wanted)), size=size)


@dataclass(frozen=True, slots=True)
class _Sketched(Fold):
    precision: int
    sketch: bool

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        # Sketches of two precisions cannot be merged: a checkpoint with another one has another column, and is refused.
        return (pa.field(f"hll_{self.precision}", pa.binary()),)

    @property
    def result(self) -> pa.DataType:
        return pa.binary() if self.sketch else pa.int64()

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        return [sketches_of_rows(columns[0], codes, keys, self.precision)]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        states, codes = kept(states, codes, None)
        return [merged_sketches(states[0], codes, keys, self.precision)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0] if self.sketch else pa.array(estimates(states[0].fill_null(b"")))


@dataclass(frozen=True, slots=True)
class _Summarised(Fold):
    kind: pa.DataType
    size: int

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        # The integers of a summary mean other values for another type.
        return (pa.field(f"summary_{self.kind}", pa.list_(pa.int64())),)

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        return [lists_of(*summaries_of_rows(ordinals(columns[0]), codes, keys, self.size))]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        return [lists_of(*merged_summaries(*_summaries(states[0]), codes, keys, self.size))]


@dataclass(frozen=True, slots=True)
class _Asked(_Summarised):
    q: float | tuple[float, ...]

    @property
    def result(self) -> pa.DataType:
        return self.kind if isinstance(self.q, float) else pa.list_(self.kind)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        wanted = np.array([self.q] if isinstance(self.q, float) else self.q)
        found, there = quantiles_of(*_summaries(states[0]), wanted)
        values = from_ordinals(found.ravel(), self.kind)
        if isinstance(self.q, float):
            return _without(values, ~there)
        starts = np.arange(len(there) + 1, dtype=np.int64) * len(wanted)
        return _without(lists_of(starts, values), ~there)


@dataclass(frozen=True, slots=True)
class _Written(_Summarised):
    @property
    def fields(self) -> tuple[pa.Field, ...]:
        # Summaries with NaN or of another size cannot be written as sketches of this one: a checkpoint that has them
        # has another column, and is refused.
        return (pa.field(f"kll_{self.size}_{self.kind}", pa.list_(pa.int64())),)

    @property
    def result(self) -> pa.DataType:
        return pa.binary()

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        values = columns[0].cast(self.kind)
        if pa.types.is_floating(self.kind):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, self.kind), values)
        return _Summarised.reduce(self, [values], codes, keys, where)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return sketches_of(*_summaries(states[0]), self.kind, self.size)


def _sketch_type(kind: pa.DataType) -> pa.DataType:
    """What DataSketches keeps values of a type as. Raises ``TypeError``."""
    if pa.types.is_floating(kind):
        return kind if kind == pa.float64() else pa.float32()
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    raise TypeError("integers that fit long, floats or doubles for a sketch")


def _summaries(lists: pa.Array) -> tuple[I64, I64]:
    return bounds_of(lists), np.ascontiguousarray(lists.flatten().to_numpy())


def _without(values: pa.Array, gone: Bool) -> pa.Array:
    """The values, null where they are gone."""
    return values.take(pa.array(np.arange(len(values)), mask=gone)) if gone.any() else values
