"""The assignment: which slot has which key, ``F(k)``.

    F(k) = the slot k is pinned to, if it is pinned     (the papers' routing table A)
           the slot of k's key group, otherwise         (the papers' hash function h)

Assignments are immutable and versioned; a plan makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.arrays import F64, I32, I64, Bool, compiled, frozen_i32, frozen_i64
from headgate.errors import AssignmentError
from headgate.routing.groups import GROUPS, home_slots


@dataclass(frozen=True, slots=True, eq=False)
class Pins:
    """The routing table: explicit places of single keys, sorted by operator and key hash, each key at most once."""

    operator: I32
    hash: I64
    slot: I32

    @classmethod
    def none(cls) -> Pins:
        return cls.of([], [], [])

    @classmethod
    def of(cls, operator: ArrayLike, hashes: ArrayLike, slot: ArrayLike) -> Pins:
        """Sort and check; raises ``AssignmentError`` for a key pinned twice."""
        operators, keys, slots = (np.asarray(operator, np.int32), np.asarray(hashes, np.int64), np.asarray(slot))
        order = np.lexsort((keys, operators))
        operators, keys = operators[order], keys[order]
        twice = np.flatnonzero((operators[1:] == operators[:-1]) & (keys[1:] == keys[:-1]))
        if len(twice):
            raise AssignmentError.pinned_twice(int(operators[twice[0]]), int(keys[twice[0]]))
        return cls(frozen_i32(operators), frozen_i64(keys), frozen_i32(slots[order]))

    def __len__(self) -> int:
        return len(self.hash)

    def of_operator(self, operator: int) -> tuple[I64, I32]:
        """The hashes and slots pinned for one operator, by ascending hash."""
        first, last = np.searchsorted(self.operator, [operator, operator + 1])
        return self.hash[first:last], self.slot[first:last]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Key group -> slot, pins, and which slots are draining. Immutable; equal content compares equal.

    ``groups`` holds the slot of every key group, operator after operator; ``slots`` counts all slots, draining ones
    included: a draining slot may still hold keys but is given none.
    """

    groups: I32
    slots: int
    pins: Pins = field(default_factory=Pins.none)
    draining: frozenset[int] = frozenset()
    operators: int = 1
    version: int = 0
    _tables: dict[int, tuple[I64, I32, NDArray[np.uint64]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", frozen_i32(self.groups))
        if self.slots < 1:
            raise AssignmentError.no_slot(self.slots)
        for what, places in (("a key group", self.groups), ("a pin", self.pins.slot)):
            wrong = places[(places < 0) | (places >= self.slots)]
            if len(wrong):
                raise AssignmentError.unknown_slot(what, int(wrong[0]), self.slots)
        for slot in self.draining:
            if not 0 <= slot < self.slots:
                raise AssignmentError.unknown_slot("the list of draining slots", slot, self.slots)
        if len(self.draining) >= self.slots:
            raise AssignmentError.all_draining(self.slots)
        if self.operators < 1 or len(self.groups) % self.operators:
            raise AssignmentError.groups(self.operators, len(self.groups))

    @classmethod
    def hashed(
        cls,
        slots: int,
        groups: int = GROUPS,
        *,
        operators: int = 1,
        capacity: ArrayLike | None = None,
        draining: Iterable[int] = (),
    ) -> Assignment:
        """Plain hashing: every group at home, nothing pinned."""
        homes = home_slots(groups, slots, capacity, operators=operators)
        return cls(homes, slots, operators=operators, draining=frozenset(draining))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignment):
            return NotImplemented
        return (
            (self.version, self.slots, self.draining, self.operators)
            == (other.version, other.slots, other.draining, other.operators)
            and np.array_equal(self.groups, other.groups)
            and self.same_pins(other)
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def same_pins(self, other: Assignment) -> bool:
        return all(
            np.array_equal(getattr(self.pins, name), getattr(other.pins, name)) for name in ("operator", "hash", "slot")
        )

    @property
    def groups_per_operator(self) -> int:
        return len(self.groups) // self.operators

    @property
    def open_slots(self) -> Bool:
        """True for each slot that may be given work: those not draining."""
        is_open = np.ones(self.slots, dtype=np.bool_)
        is_open[list(self.draining)] = False
        return is_open

    def next(self, *, groups: I32 | None = None, pins: Pins | None = None) -> Assignment:
        """The next version, with other groups or pins."""
        return replace(
            self,
            groups=self.groups if groups is None else groups,
            pins=self.pins if pins is None else pins,
            version=self.version + 1,
        )

    def drain(self, *slots: int) -> Assignment:
        """The next version, with these slots draining as well."""
        return replace(self, draining=self.draining | set(slots), version=self.version + 1)

    def resized(self, slots: int) -> Assignment:
        """The next version with this many slots.

        More slots: the new ones are empty until a plan moves work to them. Fewer: slots from ``slots`` on must be
        empty already (drain them first), else ``AssignmentError``.
        """
        for what, places in (("a key group", self.groups), ("a pin", self.pins.slot)):
            if len(places) and int(places.max()) >= slots:
                raise AssignmentError.unknown_slot(what, int(places.max()), slots)
        keep = frozenset(slot for slot in self.draining if slot < slots)
        return replace(self, slots=slots, draining=keep, version=self.version + 1)

    def route(self, hashes: I64, operator: int = 0) -> I32:
        """The slot of each key hash: ``F(k)``, for whole arrays at once."""
        if not 0 <= operator < self.operators:
            raise AssignmentError.unknown_operator(operator, self.operators)
        size = self.groups_per_operator
        groups = self.groups[operator * size : (operator + 1) * size]
        return _route(np.ascontiguousarray(hashes, dtype=np.int64), groups, *self._table(operator))

    def locate(self, hashes: I64, operator: I32, group: I32) -> I32:
        """``F`` of listed keys whose key group is known: their pins, else the slot of their group."""
        slots = self.groups[group]
        for number in np.unique(self.pins.operator):
            _apply_pins(hashes, operator, number, *self._table(int(number)), slots)
        return slots

    def pinned(self, hashes: I64, operator: I32) -> Bool:
        """Whether each of these keys is pinned, be it to the slot its group has anyway."""
        slots = np.full(len(hashes), -1, dtype=np.int32)
        for number in np.unique(self.pins.operator):
            _apply_pins(hashes, operator, number, *self._table(int(number)), slots)
        return slots >= 0

    def pinned_slots(self, hashes: I64, operator: int = 0) -> I32:
        """The slot each key is pinned to, -1 where it is not pinned."""
        slots = np.full(len(hashes), -1, dtype=np.int32)
        if len(self.pins):
            _apply_table(np.ascontiguousarray(hashes, dtype=np.int64), *self._table(operator), slots)
        return slots

    def _table(self, operator: int) -> tuple[I64, I32, NDArray[np.uint64]]:
        """The pins of one operator as a hash table, built when first asked for."""
        table = self._tables.get(operator)
        if table is None:
            table = self._tables[operator] = _hash_table(*self.pins.of_operator(operator))
        return table


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Delta(F, F'): what lies elsewhere under another assignment. Rows index the listed keys or key groups."""

    rows: I64
    source: I32
    target: I32
    state_bytes: F64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total_bytes(self) -> float:
        return float(self.state_bytes.sum())


def difference(source: I32, target: I32, state_bytes: F64) -> Difference:
    """Which of the listed units change slot, and the state each carries."""
    rows = np.flatnonzero(source != target)
    return Difference(rows, source[rows], target[rows], state_bytes[rows])


def pins_from(mapping: Mapping[int, int], operator: int = 0) -> Pins:
    """Pins of one operator from a mapping of key hash to slot."""
    return Pins.of(np.full(len(mapping), operator), list(mapping.keys()), list(mapping.values()))


_Words = NDArray[np.uint64]


@compiled
def _mixed(key: int) -> np.uint64:
    return np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)


@compiled
def _hash_table(keys: I64, slots: I32) -> tuple[I64, I32, _Words]:
    """Keys and slots by open addressing (slot -1: empty), half full at most; and a bit map, a sixteenth full, that
    tells nearly every key that is not pinned by one look at a few kilobytes."""
    size = 64
    while size < 2 * len(keys):
        size *= 2
    table_keys = np.zeros(size, dtype=np.int64)
    table_slots = np.full(size, -1, dtype=np.int32)
    bits = np.zeros(size // 8, dtype=np.uint64)
    for index in range(len(keys)):
        mixed = _mixed(keys[index])
        bit = (mixed >> np.uint64(32)) & np.uint64(8 * size - 1)
        bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
        at = np.int64(mixed >> np.uint64(32)) & (size - 1)
        while table_slots[at] >= 0:
            at = (at + 1) & (size - 1)
        table_keys[at] = keys[index]
        table_slots[at] = slots[index]
    return table_keys, table_slots, bits


@compiled
def _pinned_slot(key: int, table_keys: I64, table_slots: I32, bits: _Words) -> int:
    """The slot a key is pinned to, -1 if it is not."""
    high = _mixed(key) >> np.uint64(32)
    bit = high & np.uint64(8 * len(table_keys) - 1)
    if (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) == 0:
        return -1
    mask = len(table_keys) - 1
    at = np.int64(high) & mask
    while table_slots[at] >= 0:
        if table_keys[at] == key:
            return int(table_slots[at])
        at = (at + 1) & mask
    return -1


@compiled
def _apply_pins(
    hashes: I64, operator: I32, number: int, table_keys: I64, table_slots: I32, bits: _Words, slots: I32
) -> None:
    """Overwrite the slots of the keys that are pinned for this operator."""
    for row in range(len(hashes)):
        if operator[row] == number:
            slot = _pinned_slot(hashes[row], table_keys, table_slots, bits)
            if slot >= 0:
                slots[row] = slot


@compiled
def _apply_table(hashes: I64, table_keys: I64, table_slots: I32, bits: _Words, slots: I32) -> None:
    for row in range(len(hashes)):
        slots[row] = _pinned_slot(hashes[row], table_keys, table_slots, bits)


@compiled
def _route(hashes: I64, groups: I32, table_keys: I64, table_slots: I32, bits: _Words) -> I32:
    out = np.empty(len(hashes), dtype=np.int32)
    count = len(groups)
    power_of_two = count & (count - 1) == 0
    for row in range(len(hashes)):
        key = hashes[row]
        if row and key == hashes[row - 1]:
            out[row] = out[row - 1]
            continue
        slot = _pinned_slot(key, table_keys, table_slots, bits)
        if slot < 0:
            slot = groups[key & (count - 1) if power_of_two else key % count]
        out[row] = slot
    return out
