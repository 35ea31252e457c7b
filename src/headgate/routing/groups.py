"""Key groups, and the slot each has by default.

A **key group** is ``pmod(hash(key), G)``: the grain at which state is laid out and moved by default. Which slot a group
has when nobody has moved it (the papers' hash function ``h``) is decided by rendezvous hashing with bounded loads:

    every (group, slot) pair draws a pseudo-random score; a group goes to its best-scored slot that still has room,
    and a slot has room for its fair share of the groups, rounded down or up so that all find a place

So every slot gets its share of the groups to within one, which plain consistent hashing does not (1024 groups over 15
slots: 68 each, plus or minus 8), and a slot that comes or goes moves few groups beside its own share: of 1024 groups,
217 from 4 slots to 5 (the least is 205), 54 from 31 to 32 (the least is 32).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import F64, I32, I64, compiled, frozen_i32
from headgate.errors import AssignmentError, LimitsError, SnapshotError

GROUPS = 1024
"""Key groups per operator unless told otherwise.

Enough that one group is a small part of a slot's share at any size this library runs at (64 slots: 16 groups each),
few enough that a plan over groups stays a small optimisation problem and a group's statistics fit in a report row.
The number is fixed when a query first starts, so it is chosen for the largest number of slots ever wanted.
"""


def group_of(hashes: I64, groups: int = GROUPS) -> I32:
    """The key group of each key hash: the non-negative remainder, as Spark's ``pmod`` gives it."""
    if groups < 1:
        raise LimitsError.parameter("key groups", "groups", "at least 1", groups)
    if groups & (groups - 1) == 0:
        return (hashes & np.int64(groups - 1)).astype(np.int32)
    return np.mod(hashes, np.int64(groups)).astype(np.int32)


def home_slots(groups: int, slots: int, capacity: ArrayLike | None = None, *, operators: int = 1) -> I32:
    """The default slot of every group: ``groups`` numbers in 0..slots-1 per operator, one operator after the other.

    ``capacity`` weighs the shares; a slot of capacity 0 gets nothing. Operators share one placement, so that equal
    keys of chained operators start out in the same slot.
    """
    if slots < 1:
        raise AssignmentError.no_slot(slots)
    weight = np.ones(slots) if capacity is None else np.asarray(capacity, dtype=np.float64)
    if weight.shape != (slots,):
        raise AssignmentError.capacity_count(slots, weight.size)
    if not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() == 0:
        raise SnapshotError.capacity(weight.tolist())
    share = groups * weight / weight.sum()
    room = np.floor(share).astype(np.int64)
    # What rounding down left goes to the slots that lost most by it, the first of them if equal.
    room[np.argsort(room - share, kind="stable")[: groups - int(room.sum())]] += 1
    return frozen_i32(np.tile(_rendezvous(groups, weight, room), operators))


@compiled
def _score(group: int, slot: int) -> float:
    """A number in (0, 1) that depends on nothing but the pair (splitmix64 of both)."""
    x = np.uint64(group) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(slot + 1) * np.uint64(0xD1B54A32D192ED03)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (np.float64(x >> np.uint64(11)) + 0.5) / 9007199254740992.0


@compiled
def _rendezvous(groups: int, weight: F64, room: I64) -> I32:
    homes = np.empty(groups, dtype=np.int32)
    left = room.copy()
    for group in range(groups):
        best, best_score = -1, np.inf
        for slot in range(len(weight)):
            if left[slot] > 0:
                # An exponential draw with rate `weight`: the smallest wins with probability proportional to weight.
                score = -np.log(_score(group, slot)) / weight[slot]
                if score < best_score:
                    best, best_score = slot, score
        homes[group] = best
        left[best] -= 1
    return homes
