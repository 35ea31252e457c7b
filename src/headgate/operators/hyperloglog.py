"""HyperLogLog sketches in the format of Apache DataSketches, for many keys at once.

Problem          how many distinct values a key has, in a few KB, mergeable
Inputs           values, hashed to 128 bits with MurmurHash3 and DataSketches' default seed
Guarantee        standard error 1.04 / sqrt(2^precision): 1.6 % for 12. Practically exact while a key has no more
                 distinct values than fit the sparse form (3/32 of 2^precision: 384 for 12). The bytes of a sketch
                 follow from the set of values alone: any order, any split and any merging gives the same.
Time and space   linear; 4 bytes per distinct value, then 2^precision bytes
First appeared   Flajolet et al. 2007; estimator of Ertl, New cardinality estimation algorithms for HyperLogLog
                 sketches (2017), algorithm 6, which needs no correction tables
Deviations       DataSketches' own estimate follows the order of updates (HIP); ours does not. The sketches are
                 marked as merged, so that DataSketches and Spark read them and use their own estimator for that.
                 Empty strings count; DataSketches leaves them out.
Backfires        many keys with more distinct values than the sparse form holds: each takes 2^precision bytes

    byte  0        1   2   3          4      5       6       7                8
    LIST  2        1   7   precision  3      flags   count   8 (HLL_8, list)  coupons, 4 bytes each
    SET   3        1   7   precision  size   flags   0       9 (HLL_8, set)   count (4 bytes), coupons
    HLL   10       1   7   precision  0      flags   0       10 (HLL_8, hll)  hip, kxq0, kxq1 (doubles), empty
                                                                              registers, 0 (4 bytes each), registers

A coupon is a 26-bit address and, above it, 6 bits with the number of leading zeros plus one. A register is the greatest
such number among the addresses that end in its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.arrays import I32, I64, compiled, word_at
from headgate.operators.binaries import U8, binary_of, bytes_of, put_word
from headgate.operators.folds import by_key, sort_few
from headgate.operators.ordinals import canonical, is_reversible, ordinals

U32 = NDArray[np.uint32]

MIN_PRECISION, MAX_PRECISION = 7, 21
"""The bounds of DataSketches."""

SEED = np.uint64(9001)
"""DataSketches' default seed; sketches with another cannot be merged with theirs."""

LIST_COUPONS = 7
"""A list that has 8 coupons becomes a set."""

_LIST, _SET, _HLL = 2, 3, 10
"""The first byte of each form."""

_LIST_HEAD, _SET_HEAD, _HLL_HEAD = 8, 12, 40
"""Where the coupons or registers start."""

_MERGED, _COMPACT = 16, 8
"""Flags: the order of updates is unknown; no room between coupons."""

_MOST = 63
"""The greatest value of a register."""


def sparse_room(precision: int) -> int:
    """How many coupons are kept one by one before registers take over: three quarters of an eighth of the registers.

    DataSketches goes from a list to registers at once where precision is below 8.
    """
    return LIST_COUPONS if precision < 8 else 3 * (1 << (precision - 3)) // 4


def coupons(values: pa.Array) -> U32:
    """The coupons of values without nulls. Equal values of one type have equal coupons.

    Whole numbers, times and decimals of up to 18 digits are hashed as 64-bit integers, floats as doubles, strings and
    bytes as bytes: as DataSketches does.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = np.asarray(canonical(values.cast(pa.float64())))
        return _coupons_of_numbers(np.ascontiguousarray(numbers).view(np.uint64), SEED)
    if kind == pa.uint64():
        return _coupons_of_numbers(np.ascontiguousarray(np.asarray(values)), SEED)
    if is_reversible(kind):
        return _coupons_of_numbers(np.ascontiguousarray(ordinals(values)).view(np.uint64), SEED)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        ends = (np.arange(len(values) + 1, dtype=np.int64) + values.offset) * width
        memory = values.buffers()[1]
        return _coupons_of_bytes(ends, np.frombuffer(memory or b"", dtype=np.uint8), SEED)
    return _coupons_of_bytes(*bytes_of(values), SEED)


def sketches_of_rows(values: pa.Array, codes: I32, keys: int, precision: int) -> pa.Array:
    """A sketch per key; null for a key without values."""
    starts, order = by_key(codes, keys)
    return binary_of(*_sketch_rows(coupons(values), starts, order, precision, sparse_room(precision)))


def merged_sketches(sketches: pa.Array, codes: I32, keys: int, precision: int) -> pa.Array:
    """A sketch per key of all values that its sketches have seen; no nulls among them."""
    starts, order = by_key(codes, keys)
    ends, data = bytes_of(sketches)
    return binary_of(*_merge_sketches(ends, data, starts, order, precision, sparse_room(precision)))


def estimates(sketches: pa.Array) -> I64:
    """How many distinct values the sketches have seen, to the nearest whole number; no nulls among them."""
    return _estimates(*bytes_of(sketches))


@compiled
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@compiled
def _mixed(word: np.uint64) -> np.uint64:
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xFF51AFD7ED558CCD)
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xC4CEB9FE1A85EC53)
    word ^= word >> np.uint64(33)
    return word


@compiled
def _scrambled_low(word: np.uint64) -> np.uint64:
    return _rotated(word * np.uint64(0x87C37B91114253D5), 31) * np.uint64(0x4CF5AD432745937F)


@compiled
def _scrambled_high(word: np.uint64) -> np.uint64:
    return _rotated(word * np.uint64(0x4CF5AD432745937F), 33) * np.uint64(0x87C37B91114253D5)


@compiled
def _coupon(low: np.uint64, high: np.uint64, length: int) -> np.uint32:
    """The last steps of MurmurHash3, and the coupon of the hash."""
    low ^= np.uint64(length)
    high ^= np.uint64(length)
    low += high
    high += low
    low = _mixed(low)
    high = _mixed(high)
    low += high
    high += low
    zeros = 0
    while zeros < 62 and (high >> np.uint64(63 - zeros)) & np.uint64(1) == np.uint64(0):
        zeros += 1
    return np.uint32((np.uint64(zeros + 1) << np.uint64(26)) | (low & np.uint64(0x3FFFFFF)))


@compiled
def _coupons_of_numbers(numbers: NDArray[np.uint64], seed: np.uint64) -> U32:
    found = np.empty(len(numbers), dtype=np.uint32)
    for row in range(len(numbers)):
        found[row] = _coupon(seed ^ _scrambled_low(numbers[row]), seed, 8)
    return found


@compiled
def _coupons_of_bytes(ends: I64, data: U8, seed: np.uint64) -> U32:
    found = np.empty(len(ends) - 1, dtype=np.uint32)
    for row in range(len(ends) - 1):
        at = ends[row]
        end = ends[row + 1]
        length = end - at
        low = seed
        high = seed
        while end - at >= 16:
            low ^= _scrambled_low(word_at(data, at, 8))
            low = (_rotated(low, 27) + high) * np.uint64(5) + np.uint64(0x52DCE729)
            high ^= _scrambled_high(word_at(data, at + 8, 8))
            high = (_rotated(high, 31) + low) * np.uint64(5) + np.uint64(0x38495AB5)
            at += 16
        if end - at > 8:
            high ^= _scrambled_high(word_at(data, at + 8, end - at - 8))
            low ^= _scrambled_low(word_at(data, at, 8))
        elif end > at:
            low ^= _scrambled_low(word_at(data, at, end - at))
        found[row] = _coupon(low, high, length)
    return found


@compiled
def _add(coupon: np.uint32, table: U32, found: U32, slots: I64, count: int, registers: U8) -> int:
    """Add a coupon; returns how many distinct ones there are, one more than there is room for once registers count.

    ``table`` says which coupons there are, ``found`` and ``slots`` have them and their places in the table one after
    the other.
    """
    room = len(found)
    if count <= room:
        mask = np.int64(len(table) - 1)
        at = np.int64((np.uint64(coupon) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & mask
        while table[at] != 0 and table[at] != coupon:
            at = (at + 1) & mask
        if table[at] == coupon:
            return count
        if count < room:
            table[at] = coupon
            found[count] = coupon
            slots[count] = at
            return count + 1
        _to_registers(found, count, registers)
        count = room + 1
    _register(coupon, registers)
    return count


@compiled
def _to_registers(found: U32, count: int, registers: U8) -> None:
    for at in range(count):
        _register(found[at], registers)


@compiled
def _clear(table: U32, slots: I64, count: int, registers: U8) -> None:
    """Make room for the next key."""
    if count > len(slots):
        table[:] = 0
        registers[:] = 0
    else:
        for at in range(count):
            table[slots[at]] = 0


@compiled
def _register(coupon: np.uint32, registers: U8) -> None:
    at = coupon & np.uint32(len(registers) - 1)
    value = np.uint8(coupon >> np.uint32(26))
    if value > registers[at]:
        registers[at] = value


@compiled
def _write(data: U8, at: int, found: U32, count: int, registers: U8, precision: int) -> int:
    """Write a sketch; returns where it ends. Nothing is written for no coupons."""
    if count == 0:
        return at
    data[at : at + _LIST_HEAD] = 0
    data[at + 1] = 1
    data[at + 2] = 7
    data[at + 3] = precision
    if count > len(found):
        return _write_registers(data, at, registers)
    data[at + 5] = _COMPACT
    if count <= LIST_COUPONS:
        data[at] = _LIST
        data[at + 4] = 3
        data[at + 6] = count
        data[at + 7] = 8
        at += _LIST_HEAD
    else:
        size = 5
        while 4 * count > 3 << size:
            size += 1
        data[at] = _SET
        data[at + 4] = size
        data[at + 7] = 9
        put_word(data, at + 8, np.uint64(count), 4)
        at += _SET_HEAD
    sort_few(found[:count])
    for number in range(count):
        put_word(data, at, np.uint64(found[number]), 4)
        at += 4
    return at


@compiled
def _write_registers(data: U8, at: int, registers: U8) -> int:
    empty = 0
    sums = np.zeros(3, dtype=np.float64)  # the first is DataSketches' running estimate, which merged sketches lack
    for register in registers:
        empty += register == 0
        sums[1 if register < 32 else 2] += 2.0 ** -np.float64(register)
    data[at] = _HLL
    data[at + 5] = _MERGED | _COMPACT
    data[at + 7] = 10
    words = sums.view(np.uint64)
    for number in range(3):
        put_word(data, at + 8 + 8 * number, words[number], 8)
    put_word(data, at + 32, np.uint64(empty), 4)
    put_word(data, at + 36, np.uint64(0), 4)
    data[at + _HLL_HEAD : at + _HLL_HEAD + len(registers)] = registers
    return at + _HLL_HEAD + len(registers)


@compiled
def _table_for(room: int) -> U32:
    """At most half full."""
    size = 16
    while size < 2 * room:
        size *= 2
    return np.zeros(size, dtype=np.uint32)


@compiled
def _sketch_rows(coupons: U32, starts: I64, order: I64, precision: int, room: int) -> tuple[I64, U8]:
    keys = len(starts) - 1
    size = 0
    most = max(_SET_HEAD + 4 * room, _HLL_HEAD + (1 << precision))
    for key in range(keys):
        rows = starts[key + 1] - starts[key]
        size += most if rows > room else _SET_HEAD + 4 * rows
    data = np.empty(size, dtype=np.uint8)
    ends = np.zeros(keys + 1, dtype=np.int64)
    table = _table_for(room)
    found = np.empty(room, dtype=np.uint32)
    slots = np.empty(room, dtype=np.int64)
    registers = np.zeros(1 << precision, dtype=np.uint8)
    for key in range(keys):
        count = 0
        for at in range(starts[key], starts[key + 1]):
            count = _add(coupons[order[at]], table, found, slots, count, registers)
        ends[key + 1] = _write(data, ends[key], found, count, registers, precision)
        _clear(table, slots, count, registers)
    return ends, data[: ends[keys]].copy()


@compiled
def _merge_sketches(ends: I64, data: U8, starts: I64, order: I64, precision: int, room: int) -> tuple[I64, U8]:
    keys = len(starts) - 1
    size = 0
    most = max(_SET_HEAD + 4 * room, _HLL_HEAD + (1 << precision))
    for key in range(keys):
        own = 0
        for at in range(starts[key], starts[key + 1]):
            # A set has a longer head than a list.
            own += ends[order[at] + 1] - ends[order[at]] + _SET_HEAD - _LIST_HEAD
        size += most if own > _SET_HEAD + 4 * room else own
    merged = np.empty(size, dtype=np.uint8)
    bounds = np.zeros(keys + 1, dtype=np.int64)
    table = _table_for(room)
    found = np.empty(room, dtype=np.uint32)
    slots = np.empty(room, dtype=np.int64)
    registers = np.zeros(1 << precision, dtype=np.uint8)
    for key in range(keys):
        if starts[key + 1] - starts[key] == 1:
            row = order[starts[key]]
            length = ends[row + 1] - ends[row]
            merged[bounds[key] : bounds[key] + length] = data[ends[row] : ends[row + 1]]
            bounds[key + 1] = bounds[key] + length
            continue
        count = 0
        for at in range(starts[key], starts[key + 1]):
            start = ends[order[at]]
            end = ends[order[at] + 1]
            if end > start and data[start] == _HLL:
                if count <= room:
                    _to_registers(found, count, registers)
                    count = room + 1
                for number in range(len(registers)):
                    registers[number] = max(registers[number], data[start + _HLL_HEAD + number])
            elif end > start:
                place = start + (_LIST_HEAD if data[start] == _LIST else _SET_HEAD)
                while place < end:
                    coupon = np.uint32(word_at(data, place, 4))
                    count = _add(coupon, table, found, slots, count, registers)
                    place += 4
        bounds[key + 1] = _write(merged, bounds[key], found, count, registers, precision)
        _clear(table, slots, count, registers)
    return bounds, merged[: bounds[keys]].copy()


@compiled
def _estimates(ends: I64, data: U8) -> I64:
    found = np.zeros(len(ends) - 1, dtype=np.int64)
    counts = np.zeros(_MOST + 1, dtype=np.int64)
    for row in range(len(ends) - 1):
        start = ends[row]
        end = ends[row + 1]
        if end == start:
            continue
        if data[start] != _HLL:
            number = (end - start - (_LIST_HEAD if data[start] == _LIST else _SET_HEAD)) // 4
            # Two values share a coupon where address and zeros agree: once in 2^26 pairs, and then once in three.
            found[row] = np.int64(np.rint(number + number * (number - 1.0) / (6.0 * 2.0**26)))
            continue
        counts[:] = 0
        for at in range(start + _HLL_HEAD, end):
            counts[data[at]] += 1
        found[row] = np.int64(np.rint(_estimate(counts, end - start - _HLL_HEAD)))
    return found


@compiled
def _estimate(counts: I64, registers: int) -> float:
    """Ertl's algorithm 6, from how many registers have each value."""
    total = registers * _tau(1.0 - counts[_MOST] / registers)
    for value in range(_MOST - 1, 0, -1):
        total = 0.5 * (total + counts[value])
    total += registers * _sigma(counts[0] / registers)
    return float(registers / (2.0 * np.log(2.0)) * registers / total)


@compiled
def _sigma(part: float) -> float:
    if part == 1.0:
        return np.inf
    factor = 1.0
    total = part
    before = -1.0
    while total != before:
        part *= part
        before = total
        total += part * factor
        factor += factor
    return total


@compiled
def _tau(part: float) -> float:
    if part == 0.0 or part == 1.0:
        return 0.0
    factor = 1.0
    total = 1.0 - part
    before = -1.0
    while total != before:
        part = np.sqrt(part)
        before = total
        factor *= 0.5
        total -= (1.0 - part) ** 2 * factor
    return total / 3.0
