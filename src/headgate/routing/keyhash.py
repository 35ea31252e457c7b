"""The key hash: 64 bits that every process, platform and version of headgate agrees on.

It is XXH64 with seed 42, computed over the columns of a key from left to right, each column's hash being the seed of
the next. It is the value that Spark SQL's ``xxhash64`` gives, with every integer taken as a 64-bit one:

=====================  ==============================================================  =========================
column                 what is hashed                                                  in Spark SQL
=====================  ==============================================================  =========================
any integer            8 bytes, two's complement                                       xxhash64(cast(k as bigint))
string, bytes          its bytes (strings as UTF-8)                                    xxhash64(k)
boolean                4 bytes, 1 or 0                                                 xxhash64(k)
date                   4 bytes, days since 1970-01-01                                  xxhash64(k)
timestamp              8 bytes, microseconds since 1970-01-01                          xxhash64(k)
decimal, precision     the unscaled value: 8 bytes up to precision 18, beyond that     xxhash64(k)
                       the shortest big-endian two's complement bytes
null                   nothing: the seed passes through                                xxhash64(k)
no column at all       nothing: every row has the seed, 42, and all rows are one key
=====================  ==============================================================  =========================

So ``xxhash64(cast(user as bigint), country)`` in Spark equals ``key_hash(user, country)`` here. Floats are refused:
0.1 + 0.2 and 0.3 are different keys, and nobody means that. Times finer than a microsecond are cut to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.arrays import I64, Bool, compiled, word_at
from headgate.errors import KeyTypeError

SEED = 42
"""Spark's default seed of ``xxhash64``; part of the format of saved state, never to change."""

Column: TypeAlias = "pa.Array | pa.ChunkedArray | NDArray[np.generic] | Sequence[object]"

_U64: TypeAlias = NDArray[np.uint64]
_U8: TypeAlias = NDArray[np.uint8]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

_DECIMAL_WORD = 18
"""The greatest precision whose unscaled value always fits in 64 bits."""


def key_hash(*columns: Column) -> I64:
    """The 64-bit hash of each row's key; keys of several columns are hashed left to right.

    Columns are Arrow arrays, NumPy arrays or plain sequences of equal length. Integers of every width hash alike, so
    does a dictionary column and its plain form, a string and a large string.

    Raises ``KeyTypeError`` for a column of floats, structs or lists, and for columns of unequal length.
    """
    if not columns:
        raise KeyTypeError.lengths([])
    arrays = [_arrow(column, position) for position, column in enumerate(columns)]
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise KeyTypeError.lengths(lengths)
    hashes = np.full(lengths[0], SEED, dtype=np.uint64)
    for position, array in enumerate(arrays):
        _fold(array, position, hashes)
    return hashes.view(np.int64)


def row_hash(keys: pa.Table) -> I64:
    """The hash of each row of a table of key columns. Without columns all rows are one key, whose hash is the seed."""
    return key_hash(*keys.columns) if keys.num_columns else np.full(keys.num_rows, SEED, dtype=np.int64)


def _arrow(column: Column, position: int) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    array = column
    if not isinstance(array, pa.Array):
        try:
            array = pa.array(column)
        except (pa.ArrowException, OverflowError) as error:
            raise KeyTypeError.mixed(position, error) from error
        if pa.types.is_decimal(array.type):
            raise KeyTypeError.untyped_decimal(position)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = pc.cast(array, pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _fold(array: pa.Array, position: int, hashes: _U64) -> None:
    """Fold one column into the hashes, in place."""
    kind = array.type
    valid = _validity(array)
    if pa.types.is_null(kind):
        return
    if pa.types.is_boolean(kind):
        _fold_ints(_words(pc.cast(array, pa.int32()), np.int32), valid, hashes)
    elif pa.types.is_uint64(kind):
        _fold_longs(_words(array, np.uint64).view(np.int64), valid, hashes)
    elif pa.types.is_integer(kind):
        _fold_longs(_words(pc.cast(array, pa.int64()), np.int64), valid, hashes)
    elif pa.types.is_date(kind):
        _fold_ints(_words(pc.cast(array, pa.date32()), np.int32), valid, hashes)
    elif pa.types.is_timestamp(kind):
        micros = pc.cast(array, pa.timestamp("us", tz=kind.tz), safe=False)
        _fold_longs(_words(micros, np.int64), valid, hashes)
    elif pa.types.is_decimal(kind) and kind.bit_width <= 128:
        wide = array if kind.bit_width == 128 else pc.cast(array, pa.decimal128(kind.precision, kind.scale))
        if kind.precision <= _DECIMAL_WORD:
            _fold_longs(np.ascontiguousarray(_pairs(wide)[:, 0]), valid, hashes)
        else:
            _fold_unscaled(_pairs(wide).view(np.uint8), valid, hashes)
    elif pa.types.is_fixed_size_binary(kind):
        _fold_bytes(*_texts(pc.cast(array, pa.large_binary())), valid, hashes)
    elif _is_text(kind):
        _fold_bytes(*_texts(array), valid, hashes)
    else:
        raise KeyTypeError.unhashable(position, kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _validity(array: pa.Array) -> Bool:
    if array.null_count == 0:
        return np.empty(0, dtype=np.bool_)
    valid: Bool = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid


def _words(array: pa.Array, dtype: type[np.generic]) -> NDArray[np.generic]:
    """The values buffer as it lies in memory; nulls hold whatever the buffer holds."""
    values = np.frombuffer(array.buffers()[1] or b"", dtype=dtype)
    return values[array.offset : array.offset + len(array)]


def _pairs(array: pa.Array) -> I64:
    words = np.frombuffer(array.buffers()[1] or b"", dtype=np.int64).reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def _texts(array: pa.Array) -> tuple[NDArray[np.generic], _U8]:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets or b"\0" * 8, dtype=np.int64 if large else np.int32)
    return bounds[array.offset : array.offset + len(array) + 1], np.frombuffer(data or b"", dtype=np.uint8)


@compiled
def _rotl(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@compiled
def _avalanche(x: np.uint64) -> np.uint64:
    x ^= x >> np.uint64(33)
    x *= _P2
    x ^= x >> np.uint64(29)
    x *= _P3
    return x ^ (x >> np.uint64(32))


@compiled
def _step_word(hashed: np.uint64, word: np.uint64) -> np.uint64:
    hashed ^= _rotl(word * _P2, 31) * _P1
    return _rotl(hashed, 27) * _P1 + _P4


@compiled
def _fold_longs(values: NDArray[np.generic], valid: Bool, hashes: _U64) -> None:
    """A key that comes again and again, as in the results of an operator, is hashed once."""
    seed, word = np.uint64(0), np.uint64(0)
    hashed = _avalanche(_step_word(seed + _P5 + np.uint64(8), word))
    for row in range(len(hashes)):
        if len(valid) and not valid[row]:
            continue
        if hashes[row] != seed or np.uint64(values[row]) != word:
            seed, word = hashes[row], np.uint64(values[row])
            hashed = _avalanche(_step_word(seed + _P5 + np.uint64(8), word))
        hashes[row] = hashed


@compiled
def _fold_ints(values: NDArray[np.generic], valid: Bool, hashes: _U64) -> None:
    for row in range(len(hashes)):
        if len(valid) and not valid[row]:
            continue
        half = np.uint64(values[row]) & np.uint64(0xFFFFFFFF)
        start = (hashes[row] + _P5 + np.uint64(4)) ^ (half * _P1)
        hashes[row] = _avalanche(_rotl(start, 23) * _P2 + _P3)


@compiled
def _round(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    return _rotl(accumulator + word * _P2, 31) * _P1


@compiled
def _xxh64(data: _U8, start: int, end: int, seed: np.uint64) -> np.uint64:
    at = start
    if end - start >= 32:
        a, b = seed + _P1 + _P2, seed + _P2
        c, d = seed, seed - _P1
        while at <= end - 32:
            a = _round(a, word_at(data, at, 8))
            b = _round(b, word_at(data, at + 8, 8))
            c = _round(c, word_at(data, at + 16, 8))
            d = _round(d, word_at(data, at + 24, 8))
            at += 32
        hashed = _rotl(a, 1) + _rotl(b, 7) + _rotl(c, 12) + _rotl(d, 18)
        for lane in (a, b, c, d):
            hashed = (hashed ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        hashed = seed + _P5
    hashed += np.uint64(end - start)
    while at <= end - 8:
        hashed = _step_word(hashed, word_at(data, at, 8))
        at += 8
    if at <= end - 4:
        hashed ^= word_at(data, at, 4) * _P1
        hashed = _rotl(hashed, 23) * _P2 + _P3
        at += 4
    while at < end:
        hashed ^= np.uint64(data[at]) * _P5
        hashed = _rotl(hashed, 11) * _P1
        at += 1
    return _avalanche(hashed)


@compiled
def _fold_bytes(bounds: NDArray[np.generic], data: _U8, valid: Bool, hashes: _U64) -> None:
    for row in range(len(hashes)):
        if len(valid) and not valid[row]:
            continue
        hashes[row] = _xxh64(data, bounds[row], bounds[row + 1], hashes[row])


@compiled
def _fold_unscaled(wide: _U8, valid: Bool, hashes: _U64) -> None:
    """Decimals past 18 digits: the shortest big-endian two's complement bytes of the unscaled value."""
    text = np.empty(16, dtype=np.uint8)
    for row in range(len(hashes)):
        if len(valid) and not valid[row]:
            continue
        value = wide[row]
        fill = 0xFF if value[15] & 0x80 else 0
        size = 16
        while size > 1 and value[size - 1] == fill and (value[size - 2] & 0x80) == (fill & 0x80):
            size -= 1
        for index in range(size):
            text[index] = value[size - 1 - index]
        hashes[row] = _xxh64(text, 0, size, hashes[row])
