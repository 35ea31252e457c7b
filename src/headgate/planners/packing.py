"""Longest processing time first: the packing that Simple and LPTF share."""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled, sums
from headgate.planners.items import Items


def pack(items: Items) -> I32:
    """Every item anew, the heaviest first, each into the open slot with the least load so far.

    Ties go to the slot with the smallest number; items of equal cost go in the order they are listed. O(K (log K + N)).
    """
    order = np.argsort(-items.cost, kind="stable")
    return _pack(items.cost, order, items.fixed_cost, items.capacity, items.is_open)


def evacuate(items: Items) -> I32:
    """Items of draining slots packed onto the open ones, heaviest first; everything else stays."""
    places = np.array(items.current)
    leaving = np.flatnonzero(items.on_draining())
    if len(leaving):
        order = leaving[np.argsort(-items.cost[leaving], kind="stable")]
        stay = np.ones(len(items), dtype=np.bool_)
        stay[leaving] = False
        start = sums(items.current[stay], items.cost[stay], items.slots) + items.fixed_cost
        places[order] = _pack(items.cost, order, start, items.capacity, items.is_open)[order]
    return places


@compiled
def _pack(cost: F64, order: I64, start: F64, capacity: F64, is_open: Bool) -> I32:
    places = np.full(len(cost), -1, dtype=np.int32)
    load = start.copy()
    for item in order:
        best = -1
        for slot in range(len(load)):
            if is_open[slot] and (best < 0 or load[slot] / capacity[slot] < load[best] / capacity[best]):
                best = slot
        places[item] = best
        load[best] += cost[item]
    return places
