"""How small the load distance can get at best: bounds that hold for every plan within the budget.

Problem         a proven lower bound on d, next to the plan that a search finds
Inputs          c(k), prices, the budget, where the items are
Guarantee       no places within the budget have a smaller distance
Time, space     O(N M^2 + N K) for each d tried, about fifty of them, M being the moves the budget buys; O(N M)
First appeared  here; the linear relaxation of albic's model moves fractions of items and says next to nothing
Deviations      resource caps are left out: a bound without them is lower, and still a bound
Backfires       where the budget is ample the distance falls far below the cost of an item, and what then limits it
                (which sums the items can make) is not counted: the bound stays near 0 while the plan is at its best

The counting bound asks, for a trial d, how many moves it takes at least to bring every slot within d of the mean. A
slot that loses a of its items and gains b others ends within

    [load - its a largest + the b smallest elsewhere,  load - its a smallest + the b largest elsewhere]

and (a, b) is of use only if this interval meets [mean - d, mean + d]. Every move is one loss and one gain, so all
losses add up to all gains, and the cheapest way to pick an (a, b) for every slot is a shortest path over the slots
whose state is the losses less the gains so far. If even that takes more moves than the budget buys, no plan reaches d.
"""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.planners.allocation.problem import Problem
from headgate.planners.base import ROUNDING

HALVINGS = 44
"""Halvings of the interval in which the bound lies: 2^-44 of the distance at the start is less than rounding."""

COUNT_SPACE = 10_000_000
"""Slots times moves up to which moves are counted: above it the budget is hardly what limits."""

PATH_WORK = 20_000_000
"""Steps that one shortest path may take, of which there are about fifty; above it losses and gains are added up,
each for itself."""


def lower_bound(problem: Problem, *, judge_draining: bool = True) -> float:
    """No places within the budget have a smaller distance. ``problem`` has no pins.

    ``judge_draining``: whether draining slots, too, may not exceed the mean by more than d, as in albic (3).
    """
    floor = _structural(problem)
    if problem.budget is None or not len(problem):
        return floor
    counting = _Counting(problem, judge_draining)
    reached = float(counting.furthest())
    low, high = floor, max(floor, reached)
    if high <= floor or counting.reaches(floor):
        return floor
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if counting.reaches(middle):
            high = middle
        else:
            low = middle
    # What counts as reached within rounding may not exceed what a plan reaches.
    return max(floor, low - ROUNDING * problem.mean)


def _structural(problem: Problem) -> float:
    """What no budget can mend: a slot's fixed cost, one item too big for every slot, fewer items than slots."""
    is_open, mean = problem.is_open, problem.mean
    fixed = problem.fixed_cost / problem.capacity - mean
    bound = max(0.0, float(fixed[is_open].max()))
    if not len(problem):
        return max(bound, float(-fixed[is_open].min()))
    here = problem.cost[is_open[problem.current]]
    if len(here):
        bound = max(bound, float(here.max()) / float(problem.capacity[is_open].max()) - mean)
    lacking = np.sort(-fixed[is_open])[::-1]
    if len(lacking) > len(problem):
        bound = max(bound, float(lacking[len(problem)]))
    return bound


class _Counting:
    """Asks whether the budget could suffice for a distance; sorted once, asked about fifty times."""

    def __init__(self, problem: Problem, judge_draining: bool) -> None:
        self.problem = problem
        budget = float(problem.budget or 0.0) * (1 + ROUNDING) + ROUNDING
        self.budget = budget
        cheapest = np.cumsum(np.sort(problem.price))
        self.moves = int(np.searchsorted(cheapest, budget, side="right"))
        self.judged = problem.is_open | judge_draining
        self.loads = problem.loads(problem.current)
        order = np.lexsort((-problem.cost, problem.current))
        self.own = problem.cost[order]
        self.starts = np.searchsorted(problem.current[order], np.arange(problem.slots + 1))
        self.by_cost = np.argsort(-problem.cost, kind="stable")
        self.counts = problem.slots * (self.moves + 1) <= COUNT_SPACE
        if not self.counts:
            self.moves = 0
        self.gain_most, self.gain_least = _foreign(
            problem.cost, problem.current, self.by_cost, problem.slots, self.moves
        )
        self.is_uniform = bool(problem.price.max() == problem.price.min())
        with np.errstate(divide="ignore", invalid="ignore"):
            self.by_worth = np.argsort(-(problem.cost / problem.price), kind="stable")
        widest = int(min(self.moves, np.diff(self.starts).max()))
        self.by_path = problem.slots * (2 * self.moves + 1) * (widest + self.moves + 1) <= PATH_WORK

    def furthest(self) -> float:
        """The distance without a move."""
        off = self.loads - self.problem.mean
        return max(0.0, float(off[self.judged].max()), float(-off[self.problem.is_open].min()))

    def reaches(self, distance: float) -> bool:
        """False only if no plan within the budget has this distance or less."""
        problem = self.problem
        slack = ROUNDING * problem.mean
        low, high = problem.mean - distance - slack, problem.mean + distance + slack
        counted = self.counts and _fewest_moves(
            self.own,
            self.starts,
            self.loads * problem.capacity,
            self.gain_most,
            self.gain_least,
            problem.capacity,
            problem.is_open,
            self.judged,
            low,
            high,
            self.moves,
            self.by_path,
        )
        if counted > self.moves:
            return False
        if self.is_uniform:
            return True
        paid = _least_price(
            problem.cost,
            problem.price,
            problem.current,
            self.by_worth,
            self.loads,
            problem.capacity,
            problem.is_open,
            self.judged,
            low,
            high,
        )
        return paid <= self.budget


@compiled
def _foreign(cost: F64, current: I32, by_cost: I64, slots: int, moves: int) -> tuple[F64, F64]:
    """Per slot and number of items: the most and the least that so many items from elsewhere can cost.

    Infinite (least) and -1 (most) where there are not that many.
    """
    most = np.full((slots, moves + 1), -1.0)
    least = np.full((slots, moves + 1), np.inf)
    for slot in range(slots):
        most[slot, 0], least[slot, 0] = 0.0, 0.0
        taken = 0
        for item in by_cost:
            if taken == moves:
                break
            if current[item] != slot:
                taken += 1
                most[slot, taken] = most[slot, taken - 1] + cost[item]
        taken = 0
        for item in by_cost[::-1]:
            if taken == moves:
                break
            if current[item] != slot:
                taken += 1
                least[slot, taken] = least[slot, taken - 1] + cost[item]
    return most, least


@compiled
def _fewest_moves(
    own: F64,
    starts: I64,
    slot_cost: F64,
    gain_most: F64,
    gain_least: F64,
    capacity: F64,
    is_open: Bool,
    judged: Bool,
    low: float,
    high: float,
    moves: int,
    by_path: bool,
) -> int:
    """The fewest moves that could bring every slot between low and high; moves + 1 where that is too few."""
    too_many = moves + 1
    losses, gains = 0, 0
    span = 2 * moves + 1
    path = np.full(span, too_many, dtype=np.int64)
    path[moves] = 0
    option = np.empty(span, dtype=np.int64)
    for slot in range(len(capacity)):
        first, last = starts[slot], starts[slot + 1]
        least_cost = low * capacity[slot] if is_open[slot] else -np.inf
        most_cost = high * capacity[slot] if judged[slot] else np.inf
        most_gains = moves if is_open[slot] else 0
        option[:] = too_many
        found = False
        lost_large, lost_small = 0.0, 0.0
        enough, fits = 0, -1
        for lost in range(min(moves, last - first) + 1):
            if lost > 0:
                lost_large += own[first + lost - 1]
                lost_small += own[last - lost]
            # Gains from `enough` to `fits` can put the slot in the band; both only grow with what is lost.
            while enough <= most_gains and (
                gain_most[slot, enough] < 0 or slot_cost[slot] - lost_small + gain_most[slot, enough] < least_cost
            ):
                enough += 1
            while fits < most_gains and slot_cost[slot] - lost_large + gain_least[slot, fits + 1] <= most_cost:
                fits += 1
            if enough > most_gains or enough > fits:
                continue
            if not found:
                found = True
                losses += lost
                gains += enough
                if not by_path:
                    break
            for gained in range(enough, fits + 1):
                if option[lost - gained + moves] > lost:
                    option[lost - gained + moves] = lost
        if not found or losses > moves or gains > moves:
            return too_many
        if by_path:
            longer = np.full(span, too_many, dtype=np.int64)
            for change in range(span):
                lost = option[change]
                if lost == too_many:
                    continue
                shift = change - moves
                for net in range(max(0, -shift), min(span, span - shift)):
                    total = path[net] + lost
                    if total < longer[net + shift]:
                        longer[net + shift] = total
            path = longer
    return min(too_many, path[moves]) if by_path else max(losses, gains)


@compiled
def _least_price(
    cost: F64,
    price: F64,
    current: I32,
    by_worth: I64,
    loads: F64,
    capacity: F64,
    is_open: Bool,
    judged: Bool,
    low: float,
    high: float,
) -> float:
    """The least that the moves cost if items could be cut: what overloaded slots must shed each, or what the slots that
    lack load must get together, whichever is more. ``by_worth``: the most cost for the price first."""
    shed = np.zeros(len(loads))
    lacking = 0.0
    for slot in range(len(loads)):
        if judged[slot] and loads[slot] > high:
            shed[slot] = (loads[slot] - high) * capacity[slot]
        if is_open[slot] and loads[slot] < low:
            lacking += (low - loads[slot]) * capacity[slot]
    paid_out, paid_in = 0.0, 0.0
    for item in by_worth:
        slot = current[item]
        if cost[item] <= 0:
            continue
        if shed[slot] > 0:
            share = min(1.0, shed[slot] / cost[item])
            shed[slot] -= share * cost[item]
            paid_out += share * price[item]
        if lacking > 0 and not (is_open[slot] and loads[slot] < low):
            share = min(1.0, lacking / cost[item])
            lacking -= share * cost[item]
            paid_in += share * price[item]
    if lacking > ROUNDING * high * len(loads) or shed.max() > ROUNDING * high * len(loads):
        return np.inf
    return max(paid_out, paid_in)
