"""The last touch: take back what moves for nothing, empty draining slots with what is left of the budget."""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.planners.allocation.problem import Problem
from headgate.planners.base import ROUNDING

PAIRS = 4000
"""Moves up to which chains of two are looked at as well: their number is the square of this."""


def polished(problem: Problem, places: I32) -> I32:
    """Places at least as good with fewer moves, or with fewer items on draining slots. ``problem`` has no pins."""
    return without_idle(problem, drained(problem, places))


def without_idle(problem: Problem, places: I32) -> I32:
    """Undo, one by one, the moves whose undoing leaves the farthest slots on both sides where they are; the dearest
    first. Then chains of two moves that one could do. Moves off draining slots stay."""
    result = np.array(places, dtype=np.int32)
    moved = np.flatnonzero((result != problem.current) & problem.is_open[problem.current])
    if not len(moved):
        return result
    order = moved[np.lexsort((moved, -problem.state[moved], -problem.price[moved]))]
    loads = problem.loads(result)
    off = loads - problem.mean
    slack = ROUNDING * problem.mean
    high = problem.mean + max(0.0, float(off.max())) + slack
    low = problem.mean - max(0.0, float(-off[problem.is_open].min())) - slack
    uses, used, caps = _resources(problem, result)
    _undo(
        problem.cost,
        problem.current,
        result,
        order,
        loads * problem.capacity,
        problem.capacity,
        problem.is_open,
        uses,
        used,
        np.maximum(caps, used),
        low,
        high,
        len(order) <= PAIRS,
    )
    return result


def drained(problem: Problem, places: I32) -> I32:
    """Items still on draining slots go where they do not raise the distance, the heaviest first, while the budget
    lasts."""
    result = np.array(places, dtype=np.int32)
    stranded = np.flatnonzero(~problem.is_open[result])
    if not len(stranded):
        return result
    high = problem.mean + problem.score(result).distance + ROUNDING * problem.mean
    return _vacate(problem, result, stranded, high, len(stranded))


def cleared(problem: Problem, places: I32, at_most: int | None = None) -> I32:
    """Items still on draining slots go to the least loaded slot that has room for them, whatever that does to the
    distance, the heaviest first, while the budget lasts."""
    result = np.array(places, dtype=np.int32)
    stranded = np.flatnonzero(~problem.is_open[result])
    result = _vacate(problem, result, stranded, np.inf, at_most if at_most is not None else len(stranded))
    if problem.budget is None and at_most is None:
        # No slot has room: caps are then the lesser evil, and the search may yet mend it.
        result = np.where(problem.is_open[result], result, int(np.argmax(problem.is_open))).astype(np.int32)
    return result


def _vacate(problem: Problem, result: I32, stranded: I64, high: float, at_most: int) -> I32:
    """Move items off draining slots as long as the slot they go to stays below the mark and within its caps."""
    left = np.inf if problem.budget is None else problem.budget - problem.spent(result)
    costs = problem.loads(result) * problem.capacity
    uses, used, caps = _resources(problem, result)
    for item in stranded[np.lexsort((stranded, -problem.cost[stranded]))]:
        after = (costs + problem.cost[item]) / problem.capacity
        fits = problem.is_open & (after <= high) & (used + uses[:, [item]] <= np.maximum(caps, used)).all(axis=0)
        if at_most == 0:
            break
        if problem.price[item] > left or not fits.any():
            continue
        at_most -= 1
        slot = int(np.flatnonzero(fits)[np.argmin(after[fits])])
        left -= problem.price[item]
        for at, sign in ((int(result[item]), -1), (slot, 1)):
            costs[at] += sign * problem.cost[item]
            used[:, at] += sign * uses[:, item]
        result[item] = slot
    return result


def _resources(problem: Problem, places: I32) -> tuple[F64, F64, F64]:
    """What each item uses, what each slot uses, and the caps: a row per resource."""
    kinds = list(problem.resources.values())
    uses = np.array([kind.used for kind in kinds], dtype=np.float64).reshape(len(kinds), len(problem))
    used = np.array([kind.fixed for kind in kinds], dtype=np.float64).reshape(len(kinds), problem.slots).copy()
    for row, kind in enumerate(kinds):
        np.add.at(used[row], places, kind.used)
    caps = np.array([kind.cap for kind in kinds], dtype=np.float64).reshape(len(kinds), problem.slots)
    return uses, used, caps


@compiled
def _fits(slot: int, costs: F64, capacity: F64, is_open: Bool, used: F64, caps: F64, low: float, high: float) -> bool:
    """Whether a slot lies between the marks and within its caps; a draining slot may be below."""
    load = costs[slot] / capacity[slot]
    if load > high or (is_open[slot] and load < low):
        return False
    within = True
    for resource in range(len(used)):
        within &= used[resource, slot] <= caps[resource, slot] * (1 + ROUNDING)
    return within


@compiled
def _carry(item: int, source: int, sink: int, cost: F64, costs: F64, uses: F64, used: F64) -> None:
    costs[source] -= cost[item]
    costs[sink] += cost[item]
    for resource in range(len(uses)):
        used[resource, source] -= uses[resource, item]
        used[resource, sink] += uses[resource, item]


@compiled
def _undo(
    cost: F64,
    current: I32,
    places: I32,
    order: I64,
    costs: F64,
    capacity: F64,
    is_open: Bool,
    uses: F64,
    used: F64,
    caps: F64,
    low: float,
    high: float,
    pairs: bool,
) -> None:
    changed = True
    while changed:
        changed = False
        for item in order:
            home, away = current[item], places[item]
            if home == away:
                continue
            _carry(item, away, home, cost, costs, uses, used)
            if _fits(home, costs, capacity, is_open, used, caps, low, high) and _fits(
                away, costs, capacity, is_open, used, caps, low, high
            ):
                places[item] = home
                changed = True
                continue
            _carry(item, home, away, cost, costs, uses, used)
            if not pairs:
                continue
            # The item goes home, and one that came there goes on to where the item was: home again, if that is so.
            for guest in order:
                if places[guest] != home or current[guest] == home:
                    continue
                _carry(item, away, home, cost, costs, uses, used)
                _carry(guest, home, away, cost, costs, uses, used)
                if _fits(home, costs, capacity, is_open, used, caps, low, high) and _fits(
                    away, costs, capacity, is_open, used, caps, low, high
                ):
                    places[item], places[guest] = home, away
                    changed = True
                    break
                _carry(guest, away, home, cost, costs, uses, used)
                _carry(item, home, away, cost, costs, uses, used)
