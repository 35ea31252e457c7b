"""Reductions by key: count, sum, min and max of a column, one value per key.

``codes`` has the number of each row's key. Nulls are skipped; a key of nothing but nulls gets null, or a count of 0.
Numbers and times go through compiled loops, everything else through Arrow's hash aggregation.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import F64, I32, I64, Bool, compiled

Reduction = Literal["count", "sum", "min", "max"]

WIDE_DIGITS = 76
"""Precision in which decimals are added up: what decimal256 holds, room for 10^38 of the widest decimals."""

_NOTHING: Bool = np.empty(0, dtype=np.bool_)


class TooLargeError(ArithmeticError):
    """A sum does not fit its type, ``kind``. ``key`` is the number of the key, None where it is not known."""

    def __init__(self, key: int | None, kind: pa.DataType) -> None:
        super().__init__(key, kind)
        self.key = key
        self.kind = kind


def reduce_rows(kind: Reduction, values: pa.Array | None, codes: I32, keys: int, where: Bool | None = None) -> pa.Array:
    """One value per key: ``keys`` values, from the rows where ``where`` is true (all of them without it).

    ``values`` of None counts rows, for "count" only. A count is int64; a sum has the type of the values, which are
    int64, float64 or a decimal; least and greatest have the type of the values. Floats order as in Spark: NaN is
    greater than any number, and -0.0 is 0.0. Raises ``TooLargeError`` when a sum of integers or decimals leaves its
    type.
    """
    valid = _valid(values, where)
    if kind == "count":
        return pa.array(_count(codes, valid, keys))
    assert values is not None
    if kind == "sum":
        return _sum(values, codes, keys, valid)
    return _extreme(kind, values, codes, keys, valid)


def merge_rows(kind: Reduction, values: pa.Array, codes: I32, keys: int) -> pa.Array:
    """Reduce values that are reductions themselves: as ``reduce_rows``, but a sum of floats is the same in any order.

    Partial sums arrive in an order that depends on the network. The few of a key are added in ascending order, so a
    batch that is replayed gives the same result to the last bit.
    """
    if kind == "sum" and pa.types.is_float64(values.type):
        valid = _valid(values, None)
        sums, seen = _sum_floats_sorted(floats(values), codes, valid, keys)
        return pa.array(sums, mask=~seen)
    return reduce_rows(kind, values, codes, keys)


def _valid(values: pa.Array | None, where: Bool | None) -> Bool:
    """Which rows count; empty for all of them."""
    if values is None or not values.null_count:
        return _NOTHING if where is None else where
    valid: Bool = np.asarray(values.is_valid())
    return valid if where is None else valid & where


def _sum(values: pa.Array, codes: I32, keys: int, valid: Bool) -> pa.Array:
    if pa.types.is_decimal(values.type):
        wide = values.cast(pa.decimal256(WIDE_DIGITS, values.type.scale))
        try:
            return _by_arrow("sum", wide, codes, keys, valid).cast(values.type)
        except pa.ArrowInvalid:
            raise TooLargeError(None, values.type) from None
    if pa.types.is_floating(values.type):
        sums, seen = _sum_floats(floats(values), codes, valid, keys)
        return pa.array(sums, mask=~seen)
    totals, seen, too_large = _sum_integers(integers(values), codes, valid, keys)
    if too_large >= 0:
        raise TooLargeError(int(too_large), values.type)
    return pa.array(totals, mask=~seen)


def _extreme(kind: Reduction, values: pa.Array, codes: I32, keys: int, valid: Bool) -> pa.Array:
    least = kind == "min"
    form = values.type
    if pa.types.is_floating(form):
        numbers = floats(values.cast(pa.float64()))
        found, seen = _extreme_floats(numbers, codes, valid, keys, least)
        return pa.array(found, mask=~seen).cast(form)
    if is_whole(form):
        whole = as_integers(values)
        extremes, seen = _extreme_integers(integers(whole), codes, valid, keys, least)
        return from_integers(pa.array(extremes, mask=~seen), form)
    return _by_arrow(kind, values, codes, keys, valid)


def is_whole(form: pa.DataType) -> bool:
    """Whether int64 holds every value of a type in its order."""
    if pa.types.is_integer(form):
        return bool(form != pa.uint64())
    return bool(pa.types.is_boolean(form) or (pa.types.is_temporal(form) and not pa.types.is_interval(form)))


def as_integers(values: pa.Array) -> pa.Array:
    """Values of a whole type as int64."""
    form = values.type
    if pa.types.is_temporal(form):
        values = values.view(pa.int64() if form.bit_width == 64 else pa.int32())
    return values.cast(pa.int64())


def from_integers(values: pa.Array, form: pa.DataType) -> pa.Array:
    """The other way round."""
    if pa.types.is_temporal(form):
        return values.cast(pa.int64() if form.bit_width == 64 else pa.int32()).view(form)
    return values.cast(form)


def integers(values: pa.Array) -> I64:
    """An int64 column as it lies in memory, whatever stands where it is null."""
    return np.frombuffer(_memory(values), dtype=np.int64)[values.offset : values.offset + len(values)]


def floats(values: pa.Array) -> F64:
    """A float64 column as it lies in memory, whatever stands where it is null."""
    return np.frombuffer(_memory(values), dtype=np.float64)[values.offset : values.offset + len(values)]


def _memory(values: pa.Array) -> pa.Buffer | bytes:
    return values.buffers()[1] or b""


def _by_arrow(kind: Reduction, values: pa.Array, codes: I32, keys: int, valid: Bool) -> pa.Array:
    table = pa.table({"key": pa.array(codes), "value": values})
    if len(valid):
        table = table.filter(pa.array(valid))
    found = table.group_by("key", use_threads=False).aggregate([("value", kind)])
    at = np.full(keys, -1, dtype=np.int64)
    at[found["key"].to_numpy()] = np.arange(len(found))
    reduced = found[f"value_{kind}"].combine_chunks()
    return reduced.take(pa.array(at, mask=at < 0))


@compiled
def _count(codes: I32, valid: Bool, keys: int) -> I64:
    counts = np.zeros(keys, dtype=np.int64)
    if len(valid):
        for row in range(len(codes)):
            counts[codes[row]] += valid[row]
    else:
        for row in range(len(codes)):
            counts[codes[row]] += 1
    return counts


@compiled
def _sum_integers(values: I64, codes: I32, valid: Bool, keys: int) -> tuple[I64, Bool, int]:
    sums = np.zeros(keys, dtype=np.int64)
    seen = np.zeros(keys, dtype=np.bool_)
    too_large = -1
    every = len(valid) == 0
    for row in range(len(codes)):
        if every or valid[row]:
            code = codes[row]
            value = values[row]
            before = sums[code]
            after = before + value
            # Only two numbers of one sign can overflow, and then the sum has the other sign.
            if ((before ^ after) & (value ^ after)) < 0 and too_large < 0:
                too_large = code
            sums[code] = after
            seen[code] = True
    return sums, seen, too_large


@compiled
def _sum_floats(values: F64, codes: I32, valid: Bool, keys: int) -> tuple[F64, Bool]:
    sums = np.zeros(keys, dtype=np.float64)
    seen = np.zeros(keys, dtype=np.bool_)
    every = len(valid) == 0
    for row in range(len(codes)):
        if every or valid[row]:
            sums[codes[row]] += values[row]
            seen[codes[row]] = True
    return sums, seen


@compiled
def _sum_floats_sorted(values: F64, codes: I32, valid: Bool, keys: int) -> tuple[F64, Bool]:
    every = len(valid) == 0
    ends = np.zeros(keys + 1, dtype=np.int64)
    for row in range(len(codes)):
        if every or valid[row]:
            ends[codes[row] + 1] += 1
    for key in range(keys):
        ends[key + 1] += ends[key]
    at = ends[:-1].copy()
    grouped = np.empty(ends[keys], dtype=np.float64)
    for row in range(len(codes)):
        if every or valid[row]:
            grouped[at[codes[row]]] = values[row]
            at[codes[row]] += 1
    sums = np.zeros(keys, dtype=np.float64)
    for key in range(keys):
        part = grouped[ends[key] : ends[key + 1]]
        if len(part) > 2:  # two numbers have the same sum either way
            part.sort()
        total = 0.0
        for value in part:
            total += value
        sums[key] = total
    return sums, ends[1:] > ends[:-1]


@compiled
def _extreme_integers(values: I64, codes: I32, valid: Bool, keys: int, least: bool) -> tuple[I64, Bool]:
    found = np.zeros(keys, dtype=np.int64)
    seen = np.zeros(keys, dtype=np.bool_)
    every = len(valid) == 0
    for row in range(len(codes)):
        if every or valid[row]:
            code = codes[row]
            value = values[row]
            if not seen[code] or (value < found[code] if least else value > found[code]):
                found[code] = value
                seen[code] = True
    return found, seen


@compiled
def _extreme_floats(values: F64, codes: I32, valid: Bool, keys: int, least: bool) -> tuple[F64, Bool]:
    found = np.zeros(keys, dtype=np.float64)
    seen = np.zeros(keys, dtype=np.bool_)
    every = len(valid) == 0
    for row in range(len(codes)):
        if every or valid[row]:
            code = codes[row]
            value = values[row] + 0.0  # makes 0.0 of -0.0
            held = found[code]
            if not seen[code]:
                better = True
            elif least:
                better = value < held or (np.isnan(held) and not np.isnan(value))
            else:
                better = value > held or (np.isnan(value) and not np.isnan(held))
            if better:
                found[code] = value
                seen[code] = True
    return found, seen


def mean_of(total: pa.Array, count: pa.Array, form: pa.DataType) -> pa.Array:
    """Sums by counts; null where the sum is. Decimals are rounded half up to the scale of ``form``, as in Spark.

    Raises ``TooLargeError`` when a mean does not fit ``form``.
    """
    if not pa.types.is_decimal(form):
        return pc.divide(total, count.cast(pa.float64()))
    # Arrow cuts a quotient off 20 digits further to the right than the sum ends, which is enough to round it right.
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    quotient = pc.divide(wide, count.cast(pa.decimal256(19, 0)))
    rounded = pc.round(quotient, ndigits=form.scale, round_mode="half_towards_infinity")
    try:
        return rounded.cast(form)
    except pa.ArrowInvalid:
        raise TooLargeError(None, form) from None
