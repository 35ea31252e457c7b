"""Rows by key: which rows belong to one key, and the keys in the order in which state is laid out.

Keys are told apart by their 64-bit hash; that equal hashes are equal keys is checked, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.arrays import I32, I64, Bool, compiled
from headgate.errors import KeyCollisionError
from headgate.operators.arranging import bits, is_ascending, is_plain, rearranged
from headgate.routing import row_hash

RUN = 8
"""Rows of one key that lie side by side, on average, from which on rows count as coming key by key."""

FIRST_LOOK = 1 << 12
"""Rows by which is seen that others do not come key by key either, without looking at them."""

FIRST_TABLE = 1 << 12
"""Entries of the hash table that factorising starts with: 64 KB, which stays in a core's caches; it grows."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The distinct keys of some rows, or of some runs of rows, each of which is a row here.

    Key ``i`` has the hash ``hashes[i]`` and, where places were given, the place ``place[i]``; keys ascend by (place,
    hash). ``codes`` has the key of each row, ``first`` the first row of each key. When rows are in the order of their
    keys, and within a key as they came, rows ``starts[i]`` to ``starts[i + 1]`` are those of key ``i``; ``position``
    says where each row goes in that order.
    """

    codes: I32
    first: I64
    starts: I64
    position: I32 | None
    """None where the rows came in this order, as they do from an operator with the same keys."""
    hashes: I64
    place: I32 | None

    def __len__(self) -> int:
        """How many keys."""
        return len(self.hashes)

    def arranged(self, rows: pa.Table) -> pa.Table:
        """The rows that were grouped in the order of their keys."""
        return rows if self.position is None else rearranged(rows, self.position)


def group_rows(hashes: I64, place_of: Callable[[I64], I32] | None = None) -> Grouping:
    """Group rows by the hashes of their keys.

    ``place_of`` gives the places of the rows at some positions, one for each key, and must be a function of the hash;
    without it keys ascend by hash alone. Linear in the rows; only the distinct keys are placed and sorted. Of rows that
    come key by key, only the first of each key is looked at for long.
    """
    count = len(hashes)
    runs = _run_starts(hashes, count // RUN)
    codes, first = distinct(hashes[runs] if len(runs) else hashes)
    first = runs[first] if len(runs) else first
    by_key = np.argsort(hashes[first])
    places = None
    if place_of is not None:
        places = place_of(first[by_key])
        by_place = np.argsort(places, kind="stable")
        by_key, places = by_key[by_place], places[by_place]
    first, rank = first[by_key], _inverse(by_key)
    if len(runs):
        starts = np.append(runs, count)
        keys = rank[codes]
        if is_ascending(keys):
            return Grouping(np.repeat(keys, np.diff(starts)), first, starts, None, hashes[first], places)
        codes = np.repeat(codes, np.diff(starts))
    starts, position = _arrange(codes, rank, len(first))
    moved = None if is_ascending(position) else position
    return Grouping(codes, first, starts, moved, hashes[first], places)


def key_runs(keys: pa.Table) -> I64 | None:
    """Where each run of rows with one key begins; no key is null.

    None where rows do not come key by key, and for types of keys that are seldom.
    """
    found: list[I64] = []
    first, before = 0, None
    for batch in keys.to_batches():
        count = batch.num_rows
        if not count:
            continue
        changed = np.zeros(count - 1, dtype=np.bool_)
        for column in batch.columns:
            own = _changes(column)
            if own is None:
                return None
            changed |= own
        runs = np.append(0, np.flatnonzero(changed) + 1)
        if len(runs) * RUN > count >= FIRST_LOOK:
            return None
        last, head = batch.slice(count - 1), batch.slice(0, 1)
        found.append(first + (runs[1:] if before is not None and before.equals(head) else runs))
        first, before = first + count, last
    runs = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    return runs if 0 < len(runs) * RUN <= first else None


def _changes(column: pa.Array) -> Bool | None:
    """Whether each value but the first differs from the one before; None for types that are seldom keys."""
    if is_plain(column):
        values = bits(column)
        changed: Bool = values[1:] != values[:-1]
        return changed
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    return None


def distinct(hashes: I64) -> tuple[I32, I64]:
    """The number of each row's key, counted from 0 as keys first appear, and the row where each first appeared."""
    return _factorise(np.ascontiguousarray(hashes, dtype=np.int64), FIRST_TABLE)


def check_one_key(keys: pa.Table, grouping: Grouping) -> None:
    """Check that rows with one hash have one key; ``keys`` has the key columns of the rows that were grouped.

    Null equals null. Raises ``KeyCollisionError`` with the first key that shares its hash with an earlier one.
    """
    distinct_keys(keys, grouping.codes, grouping.first)


def distinct_keys(keys: pa.Table, codes: I32, first: I64) -> pa.Table:
    """The key of each number in ``codes``, checked as ``check_one_key`` does."""
    found = keys_at(first, keys)
    wrong = -1
    for column, expected in zip(keys.columns, found.columns, strict=True):
        row = _first_other(column.combine_chunks(), expected.combine_chunks(), codes)
        if row >= 0 and (wrong < 0 or row < wrong):
            wrong = row
    if wrong >= 0:
        shared = row_hash(keys.slice(wrong, 1))
        raise KeyCollisionError.two_keys(_key_at(found, codes[wrong]), _key_at(keys, wrong), int(shared[0]))
    return found


def keys_at(rows: I64, *keys: pa.Table) -> pa.Table:
    """The keys at some rows of tables that lie one below the other, with the types of the first.

    Without key columns there is one key, and a table of it has rows but no columns: ``take`` and ``concat_tables``
    would lose their number.
    """
    first, *rest = keys
    if not first.num_columns:
        return pa.table([pa.nulls(len(rows))], names=["none"]).select([])
    table = pa.concat_tables([first, *(each.cast(first.schema) for each in rest)]) if rest else first
    return table.take(pa.array(rows))


def _key_at(keys: pa.Table, row: int) -> object:
    values = tuple(column[int(row)].as_py() for column in keys.columns)
    return values[0] if len(values) == 1 else values


def _first_other(array: pa.Array, expected: pa.Array, codes: I32) -> int:
    """The first row whose value is not the expected one of its key, -1 if there is none.

    The expected values lie close together in memory, so looking them up is cheap.
    """
    kind = array.type
    if not array.null_count:
        if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return int(_other_number(bits(array), bits(expected), codes))
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return int(_other_bytes(*_bytes(array), *_bytes(expected), codes))
    wanted = expected.take(pa.array(codes))
    same = pc.fill_null(pc.equal(array, wanted), False)
    same = pc.or_(same, pc.and_(pc.is_null(array), pc.is_null(wanted)))
    rows = np.flatnonzero(~np.asarray(same))
    return int(rows[0]) if len(rows) else -1


def _bytes(array: pa.Array) -> tuple[I32, NDArray[np.uint8]]:
    """Where each value of a column of strings or bytes starts, and the bytes."""
    _, offsets, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return ends, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)


@compiled
def _factorise(hashes: I64, size: int) -> tuple[I32, I64]:
    """Open addressing, at most half full; the table doubles as keys turn up, so that few keys make a small table.

    An entry is a hash and, beside it, the number of its key plus one (0: empty): one cache line for both.
    """
    codes = np.empty(len(hashes), dtype=np.int32)
    first = np.empty(len(hashes), dtype=np.int64)
    table = np.zeros(2 * size, dtype=np.int64)
    count = 0
    # The high bits of a product: a slot's keys share the low bits of their hashes, because those make the key group.
    shift = np.uint64(64)
    rest = size
    while rest > 1:
        shift -= np.uint64(1)
        rest //= 2
    for row in range(len(hashes)):
        key = hashes[row]
        if row and key == hashes[row - 1]:
            codes[row] = codes[row - 1]
            continue
        at = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
        code = table[2 * at + 1]
        while code != 0 and table[2 * at] != key:
            at = (at + 1) & (size - 1)
            code = table[2 * at + 1]
        if code == 0:
            first[count] = row
            count += 1
            code = count
            table[2 * at] = key
            table[2 * at + 1] = code
            if 2 * count > size:
                size *= 2
                shift -= np.uint64(1)
                table = np.zeros(2 * size, dtype=np.int64)
                for number in range(count):
                    old = hashes[first[number]]
                    at = np.int64((np.uint64(old) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
                    while table[2 * at + 1] != 0:
                        at = (at + 1) & (size - 1)
                    table[2 * at] = old
                    table[2 * at + 1] = number + 1
        codes[row] = code - 1
    return codes, first[:count].copy()


@compiled
def _inverse(order: I64) -> I32:
    rank = np.empty(len(order), dtype=np.int32)
    for at in range(len(order)):
        rank[order[at]] = at
    return rank


@compiled
def _run_starts(hashes: I64, most: int) -> I64:
    """Where rows with one hash after another begin; nothing where there would be more than so many."""
    starts = np.empty(most, dtype=np.int64)
    found = 0
    for row in range(len(hashes)):
        if row == 0 or hashes[row] != hashes[row - 1]:
            if found == most:
                return starts[:0]
            starts[found] = row
            found += 1
    return starts[:found]


@compiled
def _arrange(codes: I32, rank: I32, keys: int) -> tuple[I64, I32]:
    """Renumber the rows' keys by rank, in place; where each key's rows start, and where each row goes among all.

    What is counted for a key is kept aside while its rows come one after another: reading a number back from where it
    was just written takes longer than all else in these loops.
    """
    count = len(codes)
    starts = np.zeros(keys + 1, dtype=np.int64)
    position = np.empty(count, dtype=np.int32)
    row = 0
    while row < count:
        was, first = codes[row], row
        code = rank[was]
        while row < count and codes[row] == was:
            codes[row] = code
            row += 1
        starts[code + 1] += row - first
    for key in range(keys):
        starts[key + 1] += starts[key]
    free = starts[:-1].copy()
    row = 0
    while row < count:
        code, first = codes[row], row
        shift = free[code] - first
        while row < count and codes[row] == code:
            position[row] = row + shift
            row += 1
        free[code] += row - first
    return starts, position


@compiled
def _other_number(values: NDArray[np.integer], expected: NDArray[np.integer], codes: I32) -> int:
    for row in range(len(values)):
        if values[row] != expected[codes[row]]:
            return row
    return -1


@compiled
def _other_bytes(
    ends: I32, data: NDArray[np.uint8], expected_ends: I32, expected: NDArray[np.uint8], codes: I32
) -> int:
    for row in range(len(codes)):
        start = ends[row]
        length = ends[row + 1] - start
        other = expected_ends[codes[row]]
        if expected_ends[codes[row] + 1] - other != length:
            return row
        # No early way out: so the compiler can compare many bytes at once.
        differ = np.uint8(0)
        for at in range(length):
            differ |= data[start + at] ^ expected[other + at]
        if differ != 0:
            return row
    return -1
