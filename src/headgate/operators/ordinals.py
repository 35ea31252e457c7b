"""Values as 64-bit integers that have the same order, so that one compiled loop serves columns of every type.

Floats order as in Spark: NaN is equal to NaN and greater than any number, -0.0 is 0.0. Strings and bytes order by byte.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64
from headgate.operators.reductions import as_integers, floats, from_integers, integers, is_whole

WHOLE_DIGITS = 18
"""The greatest precision of a decimal whose digits every 64-bit integer holds."""

_LEAST = np.int64(-(2**63))
_ALL_BUT_SIGN = np.int64(2**63 - 1)


def is_reversible(kind: pa.DataType) -> bool:
    """Whether the values of a type follow from their ordinals alone."""
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= WHOLE_DIGITS)
    return is_whole(kind) or bool(pa.types.is_floating(kind)) or bool(kind == pa.uint64())


def ordinals(values: pa.Array) -> I64:
    """Integers that are equal where the values are, and less where they are less. Any number where they are null.

    Those of reversible types can be compared between columns. Those of others (strings, bytes, wide decimals) are
    ranks, good for these values only; they cost a sort of the distinct values.
    """
    kind = values.type
    if is_whole(kind):
        return integers(as_integers(values))
    if pa.types.is_floating(kind):
        return _of_floats(canonical(values.cast(pa.float64())))
    if kind == pa.uint64():
        return integers(values.view(pa.int64())) ^ _LEAST
    if is_reversible(kind):
        memory = values.buffers()[1] or b""
        # A decimal is 128 bits, of which the lower 64 are the number where it has up to 18 digits.
        return np.frombuffer(memory, dtype=np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2].copy()
    codes, found = encoded(values)
    if not len(found):
        return np.zeros(len(values), dtype=np.int64)
    rank: I64 = np.asarray(pc.rank(found, tiebreaker="first")).astype(np.int64)
    return rank[codes]


def from_ordinals(numbers: I64, kind: pa.DataType) -> pa.Array:
    """The values of a reversible type that have these ordinals."""
    if is_whole(kind):
        return from_integers(pa.array(numbers), kind)
    if pa.types.is_floating(kind):
        bits = numbers ^ ((numbers >> np.int64(63)) & _ALL_BUT_SIGN)
        return pa.array(bits.view(np.float64)).cast(kind)
    if kind == pa.uint64():
        return pa.array((numbers ^ _LEAST).view(np.uint64))
    words = np.empty((len(numbers), 2), dtype=np.int64)
    words[:, 0] = numbers
    words[:, 1] = numbers >> np.int64(63)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(words.tobytes())])


def canonical(values: pa.Array) -> pa.Array:
    """Floats with one NaN and one zero; other values as they are. So equal values have equal bits."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = floats(values.cast(pa.float64())) + 0.0  # makes 0.0 of -0.0
    numbers[np.isnan(numbers)] = np.nan
    mask = np.asarray(values.is_null()) if values.null_count else None
    return pa.array(numbers, mask=mask, from_pandas=False).cast(values.type)


def encoded(values: pa.Array) -> tuple[I32, pa.Array]:
    """The distinct values in the order they appear in, and for each value which of them it is. 0 where it is null."""
    dictionary = canonical(values).dictionary_encode()
    codes: I32 = np.asarray(pc.fill_null(dictionary.indices, 0)).astype(np.int32, copy=False)
    return codes, dictionary.dictionary


def _of_floats(values: pa.Array) -> I64:
    bits = floats(values).view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & _ALL_BUT_SIGN)
