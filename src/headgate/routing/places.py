"""Places: where in the store the state of a key lies.

A **place** is a number; one place always has exactly one owner, the slot that reads and writes it:

    ==============  ====================================================  ============================
    place           which keys                                            owner
    ==============  ====================================================  ============================
    0 .. G-1        those of a key group that are not pinned              the slot of the key group
    G               those that are split over slots ("shared")            the driver (``SHARED``)
    G + 1 + s       those pinned to slot s                                slot s
    ==============  ====================================================  ============================

A key group that goes to another slot keeps its place: only the owner of the place changes, and no state is copied.
A key that is pinned, unpinned, pinned elsewhere, split or joined changes place: its one row is copied. So moving a
group costs a line in a manifest, and moving a key costs that key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.arrays import I32, I64, among, frozen_i32
from headgate.routing.assignment import Assignment
from headgate.routing.groups import group_of

SHARED = -1
"""The owner of split keys: not a slot but the driver, which merges what the slots computed for them."""

NOBODY = -2
"""Stands for the owner of a place that no longer exists."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of one operator under one assignment. ``shared`` holds the hashes of split keys, ascending."""

    assignment: Assignment
    operator: int
    shared: I64

    @property
    def groups(self) -> int:
        return self.assignment.groups_per_operator

    @property
    def count(self) -> int:
        """How many places there are: key groups, the shared place, one per slot for its pinned keys."""
        return self.groups + 1 + self.assignment.slots

    @property
    def shared_place(self) -> int:
        return self.groups

    def of(self, hashes: I64) -> I32:
        """The place of each key."""
        groups = self.groups
        place = group_of(hashes, groups)
        if len(self.assignment.pins):
            slots = self.assignment.pinned_slots(hashes, self.operator)
            place = np.where(slots >= 0, groups + 1 + slots, place).astype(np.int32)
        if len(self.shared):
            place = np.where(among(hashes, self.shared), groups, place).astype(np.int32)
        return place

    def owners(self) -> I32:
        """The owner of each place: a slot, or ``SHARED``."""
        size = self.groups
        groups = self.assignment.groups[self.operator * size : (self.operator + 1) * size]
        slots = np.arange(self.assignment.slots, dtype=np.int32)
        return frozen_i32(np.concatenate([groups, np.array([SHARED], dtype=np.int32), slots]))

    def listed(self) -> I64:
        """The keys that are not where their group is: pinned or split, ascending."""
        pinned, _ = self.assignment.pins.of_operator(self.operator)
        return np.union1d(pinned, self.shared)


@dataclass(frozen=True, slots=True, eq=False)
class Relocation:
    """The keys that change place between two assignments, ascending by hash: each has one row to be copied.

    ``source`` owned the row before and is read; ``target`` writes it at its new place; ``cleaner`` owns the old place
    now and marks the row there as gone (``NOBODY`` where the old place is no more: a slot that was taken away).
    """

    hash: I64
    source_place: I32
    source: I32
    cleaner: I32
    target_place: I32
    target: I32

    @classmethod
    def between(cls, before: Places, after: Places) -> Relocation:
        """Which keys change place, and who gives, takes and cleans up."""
        keys = np.union1d(before.listed(), after.listed())
        source_place, target_place = before.of(keys), after.of(keys)
        rows = np.flatnonzero(source_place != target_place)
        source_place, target_place = source_place[rows], target_place[rows]
        # A place beyond the last one is that of a slot taken away, whose references are dropped as a whole.
        owners = np.concatenate([after.owners(), np.full(max(0, before.count - after.count), NOBODY, dtype=np.int32)])
        return cls(
            hash=keys[rows],
            source_place=source_place,
            source=before.owners()[source_place],
            cleaner=owners[source_place],
            target_place=target_place,
            target=after.owners()[target_place],
        )

    def __len__(self) -> int:
        return len(self.hash)
