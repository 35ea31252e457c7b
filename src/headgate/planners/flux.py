"""Flux: the most loaded slot gives its biggest suitable item to the least loaded, the second to the second last.

Problem         bring every slot within ``theta_max`` of the mean with few moves
Inputs          c(k); the limit on migration; ``theta_max``
Guarantee       the spread of the loads (the sum of squared distances from the mean) falls with every move between open
                slots; each item moves at most once
Time, space     O(K log K) to sort each slot's items, then O(N^2) a round of N / 2 moves; O(K + N)
First appeared  Shah et al., Flux (ICDE 2003), as told in enorm, section 5, and albic, section 5
Deviations      loads are cost by capacity, so slots need not be equal. Flux knows no draining: here every round first
                takes the heaviest item from each draining slot to the slot that is then least loaded, whatever that
                does to the spread, and then levels the open slots, so that neither waits for the other. An item that
                no longer fits the limit on migration is passed over for the next smaller one. Slots off the mean by no
                more than ``theta_max`` end the search ("if necessary" in enorm)
Backfires       takes the biggest item that lowers the spread, not the one that fits best, so that it needs more moves
                than necessary; it never swaps, so that with items of about equal cost it stops at half an item from
                the mean. With a tight limit on migration use MILP
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.planners.base import ROUNDING, Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.plan import Grain, Limits, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Flux(Planner):
    """Pairs the most with the least loaded slots, one item a pair and round."""

    name: ClassVar[str] = "flux"
    holds_migration: ClassVar[bool] = True

    grain: Grain = "group"

    def decide(self, items: Items, limits: Limits) -> Decision:
        by_count = limits.max_migrations is not None
        budget = limits.max_migrations if by_count else limits.max_migration_cost
        target = level(
            items.cost,
            np.ones(len(items)) if by_count else items.state_bytes,
            items.current,
            items.fixed_cost,
            items.capacity,
            items.is_open,
            items.mean,
            limits.theta_max,
            None if budget is None else float(budget),
        )
        return Decision(target, reasons(items, Reason.LEVEL))


def level(
    cost: F64,
    price: F64,
    current: I32,
    fixed_cost: F64,
    capacity: F64,
    is_open: Bool,
    mean: float,
    theta_max: float,
    budget: float | None,
) -> I32:
    """Where Flux puts every item. ``price`` is what moving an item takes from ``budget`` (None: no limit)."""
    order = np.lexsort((-cost, current))
    starts = np.searchsorted(current[order], np.arange(len(capacity) + 1))
    allowed = np.inf if budget is None else budget
    return _level(cost, price, current, order, starts, fixed_cost, capacity, is_open, mean, theta_max, allowed)


@compiled
def _standing(following: I64, at: int) -> int:
    """The first place at or after this one whose item has not gone; shortens the way for the next who asks."""
    while following[at] != at:
        following[at] = following[following[at]]
        at = following[at]
    return at


@compiled
def _first_lighter(cost: F64, order: I64, first: int, last: int, limit: float) -> int:
    """The first place between first and last, costs falling, whose item costs less than the limit."""
    while first < last:
        middle = (first + last) // 2
        if cost[order[middle]] < limit:
            last = middle
        else:
            first = middle + 1
    return first


@compiled
def _level(
    cost: F64,
    price: F64,
    current: I32,
    order: I64,
    starts: I64,
    fixed_cost: F64,
    capacity: F64,
    is_open: Bool,
    mean: float,
    theta_max: float,
    allowed: float,
) -> I32:
    """An item that arrived in a slot is not in the slot's sorted list, so that nothing moves twice."""
    target = current.copy()
    loads = fixed_cost.copy()
    for item in range(len(cost)):
        loads[current[item]] += cost[item]
    loads /= capacity
    open_slots = np.flatnonzero(is_open)
    following = np.arange(len(cost) + 1)
    left = allowed
    tolerated = theta_max * mean + ROUNDING * mean
    moved = True
    while moved:
        moved = False
        for slot in np.argsort(-loads, kind="mergesort"):
            if is_open[slot]:
                continue
            at = _standing(following, starts[slot])
            while at < starts[slot + 1]:
                item = order[at]
                following[at] = at + 1
                # What cannot be paid now cannot be paid later: it is passed over for good.
                if price[item] <= left:
                    least = open_slots[np.argmin(loads[open_slots])]
                    target[item] = least
                    left -= price[item]
                    loads[slot] -= cost[item] / capacity[slot]
                    loads[least] += cost[item] / capacity[least]
                    moved = True
                    break
                at = _standing(following, at)
        ranked = open_slots[np.argsort(-loads[open_slots], kind="mergesort")]
        for rank in range(len(ranked) // 2):
            if np.max(np.abs(loads[open_slots] - mean)) <= tolerated:
                break
            source, least = ranked[rank], ranked[len(ranked) - 1 - rank]
            give, take = 1 / capacity[source], 1 / capacity[least]
            # The spread falls by c (limit - c) (give^2 + take^2), c being what the item costs.
            limit = 2 * ((loads[source] - mean) * give - (loads[least] - mean) * take) / (give**2 + take**2)
            limit -= ROUNDING * mean
            at = _standing(following, _first_lighter(cost, order, starts[source], starts[source + 1], limit))
            while at < starts[source + 1]:
                item = order[at]
                if cost[item] <= ROUNDING * mean:
                    break
                following[at] = at + 1
                if price[item] <= left:
                    target[item] = least
                    left -= price[item]
                    loads[source] -= cost[item] * give
                    loads[least] += cost[item] * take
                    moved = True
                    break
                at = _standing(following, at)
    return target
