"""Summaries for quantiles, for many keys at once: KLL without chance.

Problem          the value at a given rank among a key's values, in a few KB, mergeable
Inputs           values as integers of the same order (``ordinals``)
Guarantee        exact up to ``size`` values. Beyond that ranks are off by less than 2.3 / size^0.97 of the number of
                 values with 99 % confidence (1.35 % for 200), as with KLL; less where rows are reduced many at a time,
                 because then there are fewer compactions. The same rows or the same summaries, in any order, give the
                 same bytes.
Time and space   a sort of a key's values; up to about 3 size integers per key
First appeared   Karnin, Lang and Liberty, Optimal quantile approximation in streams (2016); capacities are those of
                 DataSketches
Deviations       KLL tosses a coin for which half of a level goes up. DataSketches' coins cannot be seeded from Python,
                 so a replayed batch would have another state. Ours follow from what is compacted: a hash of the level.
                 All else is as in DataSketches, so that a summary can be written as a sketch that it goes on with.
Backfires        data made to fool the hash; ranks within 1 % of either end, where 1.35 % is a lot

Level h holds values that stand for 2^h values each. When there are more values than capacity, the lowest level that is
full is sorted, and every other value of it goes one level up:

    level 0   1 2 4 5 7 9   coin 1   ->   level 0   (empty)
    level 1   3 8                         level 1   2 3 5 8 9

A summary is a list of integers: least, greatest, number of levels, the size of each level, the values of each level in
ascending order. No values: an empty list.

A sketch of DataSketches is the same in bytes, with the number of values (n) in it and the levels told by where they
start in a buffer of all capacities, which is filled from its end:

    byte   0   1   2    3             4, 5   6   7   8
    one    2   2   15   4 (single)    size   8   0   the value
    more   5   1   15   2 (ascending) size   8   0   n (8 bytes), size (2), levels (1), 0 (1), the start of each level
                                                     (4 each), least, greatest, the values of each level
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.operators.binaries import U8, binary_of, put_word
from headgate.operators.folds import by_key, sort_few
from headgate.operators.ordinals import from_ordinals

HEAD = 3
"""Least, greatest, number of levels."""

MAX_LEVELS = 60
"""More than any number of rows needs: values of the top level would stand for 2^59 each."""

SHRINK = 2.0 / 3.0
"""How much smaller the capacity of each lower level is; the paper's c (section 3), with the value of DataSketches."""

MIN_CAPACITY = 8
"""Of a level, so that low levels are not compacted all the time; the value of DataSketches."""

MAX_SKETCH_SIZE = 2**16 - 1
"""The greatest size that a sketch of DataSketches can have."""

_FAMILY = 15
"""What DataSketches calls KLL."""

_ONE_HEAD, _MORE_HEAD = 8, 20
"""How long a sketch of one value, and of more, is before its value or the starts of its levels."""

_ASCENDING, _SINGLE = 2, 4
"""Flags: level 0 is sorted, as the others always are; there is one value."""

RANK_SLACK = 1e-9
"""How far above a whole number a rank may be by rounding: 0.07 * 100 is 7.000000000000001, and means 7."""


def summaries_of_rows(values: I64, codes: I32, keys: int, size: int) -> tuple[I64, I64]:
    """The summaries of each key's values: where each starts, with the end of the last; and the integers."""
    return _summarise(values, *by_key(codes, keys), size)


def merged_summaries(starts: I64, summaries: I64, codes: I32, keys: int, size: int) -> tuple[I64, I64]:
    """A summary per key of all values that its summaries stand for."""
    return _merge(starts, summaries, *by_key(codes, keys), size)


def quantiles_of(starts: I64, summaries: I64, wanted: F64) -> tuple[I64, Bool]:
    """The value of each summary at each part (0 to 1), a row per summary; and which summaries have any."""
    return _quantiles(starts, summaries, wanted), starts[1:] > starts[:-1]


def sketches_of(starts: I64, summaries: I64, kind: pa.DataType, size: int) -> pa.Array:
    """The summaries as sketches of DataSketches, with values of a kind: int64, float64 or float32.

    Null for no values. The summaries must have been made with this size, of at most ``MAX_SKETCH_SIZE``.
    """
    # What is no value among the integers of a summary becomes nonsense, which is not written.
    values = np.asarray(from_ordinals(summaries, kind))
    return binary_of(*_sketches(starts, summaries, values.view(np.uint8), values.itemsize, size))


@compiled
def _capacity(level: int, levels: int, size: int) -> int:
    return max(MIN_CAPACITY, int(np.rint(size * SHRINK ** (levels - 1 - level))))


@compiled
def _rank(part: float, total: int) -> int:
    """How many of so many values are a part of them, rounded up."""
    return int(np.ceil(part * total * (1.0 - RANK_SLACK)))


@compiled
def _coin(values: I64, level: int) -> np.uint64:
    """Bits that look random and follow from the values."""
    mixed = np.uint64(level + 1) * np.uint64(0x9E3779B97F4A7C15)
    for value in values:
        mixed = (mixed ^ np.uint64(value)) * np.uint64(0xD6E8FEB86659FD93)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def _compact(items: I64, begins: I64, sizes: I64, levels: int, size: int, spare: I64) -> int:
    """Compact levels in place until they are within capacity; returns how many levels there are then.

    Level ``h`` lies in ``items[begins[h] : begins[h] + sizes[h]]``, ascending, below the next one; there may be gaps.
    """
    total = 0
    room = 0
    for level in range(levels):
        total += sizes[level]
        room += _capacity(level, levels, size)
    while total > room:
        level = 0
        while sizes[level] < _capacity(level, levels, size):
            level += 1
        count = sizes[level]
        start = begins[level]
        if level + 1 == levels:
            begins[levels] = start + count
            sizes[levels] = 0
            levels += 1
        coin = _coin(items[start : start + count], level)
        pairs = count // 2
        odd = count % 2
        first = start
        if odd:  # the least or the greatest stays
            if coin & np.uint64(2):
                first += 1
                stays = items[start]
            else:
                stays = items[start + count - 1]
        first += np.int64(coin & np.uint64(1))
        for pair in range(pairs):
            spare[pair] = items[first + 2 * pair]
        if odd:
            items[start] = stays
        # The next level grows downwards, so that nothing is written over before it is read.
        read = begins[level + 1]
        end = read + sizes[level + 1]
        write = read - pairs
        begins[level + 1] = write
        pair = 0
        while pair < pairs:
            if read < end and items[read] < spare[pair]:
                items[write] = items[read]
                read += 1
            else:
                items[write] = spare[pair]
                pair += 1
            write += 1
        sizes[level] = odd
        sizes[level + 1] += pairs
        total -= pairs
        room = 0
        for each in range(levels):
            room += _capacity(each, levels, size)
    return levels


@compiled
def _most(count: int, levels: int, size: int) -> int:
    """How long a summary of so many values in so many levels can be."""
    if levels <= 1 and count <= size:
        return HEAD + 1 + count
    return HEAD + MAX_LEVELS + min(count, 3 * size + (MIN_CAPACITY + 1) * MAX_LEVELS)


@compiled
def _write(out: I64, at: int, least: int, greatest: int, items: I64, begins: I64, sizes: I64, levels: int) -> int:
    """Write a summary; returns where it ends."""
    out[at] = least
    out[at + 1] = greatest
    out[at + 2] = levels
    out[at + HEAD : at + HEAD + levels] = sizes[:levels]
    at += HEAD + levels
    for level in range(levels):
        out[at : at + sizes[level]] = items[begins[level] : begins[level] + sizes[level]]
        at += sizes[level]
    return at


@compiled
def _summarise(values: I64, starts: I64, order: I64, size: int) -> tuple[I64, I64]:
    keys = len(starts) - 1
    longest = 0
    room = 0
    for key in range(keys):
        count = starts[key + 1] - starts[key]
        longest = max(longest, count)
        room += _most(count, 1, size) if count else 0
    out = np.empty(room, dtype=np.int64)
    ends = np.zeros(keys + 1, dtype=np.int64)
    spare = np.empty(longest // 2 + 1, dtype=np.int64)
    begins = np.zeros(MAX_LEVELS, dtype=np.int64)
    sizes = np.zeros(MAX_LEVELS, dtype=np.int64)
    arranged = values[order]
    for key in range(keys):
        count = starts[key + 1] - starts[key]
        ends[key + 1] = ends[key]
        if count:
            items = arranged[starts[key] : starts[key + 1]]
            sort_few(items)
            least = items[0]
            greatest = items[count - 1]
            begins[0] = 0
            sizes[0] = count
            levels = _compact(items, begins, sizes, 1, size, spare)
            ends[key + 1] = _write(out, ends[key], least, greatest, items, begins, sizes, levels)
    return ends, out[: ends[keys]].copy()


@compiled
def _merge(bounds: I64, summaries: I64, starts: I64, order: I64, size: int) -> tuple[I64, I64]:
    keys = len(starts) - 1
    longest = 0
    room = 0
    for key in range(keys):
        count = 0
        levels = 0
        for at in range(starts[key], starts[key + 1]):
            row = order[at]
            if bounds[row + 1] > bounds[row]:
                own = summaries[bounds[row] + 2]
                levels = max(levels, own)
                count += bounds[row + 1] - bounds[row] - HEAD - own
        longest = max(longest, count)
        room += _most(count, levels, size) if count else 0
    out = np.empty(room, dtype=np.int64)
    ends = np.zeros(keys + 1, dtype=np.int64)
    items = np.empty(longest, dtype=np.int64)
    spare = np.empty(longest // 2 + 1, dtype=np.int64)
    begins = np.zeros(MAX_LEVELS, dtype=np.int64)
    sizes = np.zeros(MAX_LEVELS, dtype=np.int64)
    for key in range(keys):
        least = 0
        greatest = 0
        levels = 0
        parts = 0
        for at in range(starts[key], starts[key + 1]):
            row = order[at]
            begin = bounds[row]
            if bounds[row + 1] > begin:
                least = summaries[begin] if parts == 0 else min(least, summaries[begin])
                greatest = summaries[begin + 1] if parts == 0 else max(greatest, summaries[begin + 1])
                levels = max(levels, summaries[begin + 2])
                parts += 1
        ends[key + 1] = ends[key]
        if parts == 0:
            continue
        filled = 0
        for level in range(levels):
            begins[level] = filled
            for at in range(starts[key], starts[key + 1]):
                begin = bounds[order[at]]
                if bounds[order[at] + 1] > begin and summaries[begin + 2] > level:
                    source = begin + HEAD + summaries[begin + 2]
                    for lower in range(level):
                        source += summaries[begin + HEAD + lower]
                    count = summaries[begin + HEAD + level]
                    items[filled : filled + count] = summaries[source : source + count]
                    filled += count
            sizes[level] = filled - begins[level]
            if parts > 1:
                sort_few(items[begins[level] : filled])
        if parts > 1:
            levels = _compact(items, begins, sizes, levels, size, spare)
        ends[key + 1] = _write(out, ends[key], least, greatest, items, begins, sizes, levels)
    return ends, out[: ends[keys]].copy()


@compiled
def _quantiles(starts: I64, summaries: I64, wanted: F64) -> I64:
    rows = len(starts) - 1
    found = np.zeros((rows, len(wanted)), dtype=np.int64)
    for row in range(rows):
        begin = starts[row]
        if starts[row + 1] == begin:
            continue
        levels = summaries[begin + 2]
        items = summaries[begin + HEAD + levels : starts[row + 1]]
        if levels == 1:
            for number in range(len(wanted)):
                found[row, number] = items[max(0, _rank(wanted[number], len(items)) - 1)]
            continue
        weights = np.empty(len(items), dtype=np.int64)
        filled = 0
        total = 0
        for level in range(levels):
            count = summaries[begin + HEAD + level]
            weights[filled : filled + count] = 1 << level
            filled += count
            total += count << level
        order = np.argsort(items)
        for number in range(len(wanted)):
            part = wanted[number]
            if part <= 0.0:
                found[row, number] = summaries[begin]
            elif part >= 1.0:
                found[row, number] = summaries[begin + 1]
            else:
                rank = _rank(part, total)
                reached = 0
                for at in order:
                    reached += weights[at]
                    if reached >= rank:
                        found[row, number] = items[at]
                        break
    return found


@compiled
def _sketches(starts: I64, summaries: I64, values: U8, width: int, size: int) -> tuple[I64, U8]:
    """Where each sketch starts, with the end of the last; and the bytes. ``values`` has those of the summaries."""
    rows = len(starts) - 1
    ends = np.zeros(rows + 1, dtype=np.int64)
    for row in range(rows):
        length = starts[row + 1] - starts[row]
        ends[row + 1] = ends[row]
        if length:
            levels = summaries[starts[row] + 2]
            count = length - HEAD - levels
            ends[row + 1] += _ONE_HEAD + width if count == 1 else _MORE_HEAD + 4 * levels + (2 + count) * width
    data = np.zeros(ends[rows], dtype=np.uint8)
    for row in range(rows):
        begin = starts[row]
        if starts[row + 1] == begin:
            continue
        levels = summaries[begin + 2]
        items = begin + HEAD + levels
        count = starts[row + 1] - items
        at = ends[row]
        data[at : at + 4] = (2, 2, _FAMILY, _SINGLE) if count == 1 else (5, 1, _FAMILY, _ASCENDING)
        put_word(data, at + 4, np.uint64(size), 2)
        data[at + 6] = MIN_CAPACITY
        if count == 1:
            at += _ONE_HEAD
        else:
            place = -count
            for level in range(levels):
                place += _capacity(level, levels, size)
            total = 0
            for level in range(levels):
                put_word(data, at + _MORE_HEAD + 4 * level, np.uint64(place), 4)
                place += summaries[begin + HEAD + level]
                total += summaries[begin + HEAD + level] << level
            put_word(data, at + 8, np.uint64(total), 8)
            put_word(data, at + 16, np.uint64(size), 2)
            data[at + 18] = levels
            at += _MORE_HEAD + 4 * levels
            data[at : at + 2 * width] = values[begin * width : (begin + 2) * width]
            at += 2 * width
        data[at : ends[row + 1]] = values[items * width : starts[row + 1] * width]
    return ends, data
