"""The counting bound made sharper: light and heavy items are counted each for themselves.

Problem         ``bound`` lets every slot receive the same few lightest (or heaviest) items of the whole cluster
Inputs          as in ``bound``; thresholds that part the items into light and heavy
Guarantee       as in ``bound``: what is refuted cannot be reached by any plan within the budget
Time, space     O(N n^2 M^2) for each distance and threshold, with a small constant; O(N M + M^2)
First appeared  here; the multiplier on a constraint that is given up is Lagrange's (Geoffrion 1974)
Deviations      none
Backfires       slow with hundreds of moves or of items a slot; ``applies`` says when it is worth a try

Part the items at a threshold. A slot that loses a items, p of them light, and gains b, q of them light, ends within

    [load - the heaviest so lost + the lightest so gained,  load - the lightest so lost + the heaviest so gained]

Light items that arrive have left somewhere: over all slots, the q add up to the p. Counting that as well in the state
of the shortest path would square the state. Instead every light arrival costs a toll that every light departure is
paid: in a plan the tolls cancel out, so for every toll, positive or negative, the cheapest path costs at most as many
moves as the best plan makes. If it costs more than the budget buys, for any threshold and any toll, the distance is
refuted. (A slot that must get one item lighter than its neighbours have any needs a light one, and those are few and
sit where nobody wants to lose load: that is what plain counting does not see.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.planners.allocation.problem import Problem
from headgate.planners.base import ROUNDING

QUANTILES = (0.02, 0.05, 0.08, 0.1, 0.13, 0.17, 0.25, 0.5, 0.75, 0.83, 0.87, 0.9, 0.92, 0.95, 0.98)
"""Where the items are parted, as shares of their number: closer towards the ends, because what is rare is scarce."""

TOLLS = (-1.5, -1.0, -0.8, -0.6, -0.4, -0.2, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5)
"""Tolls that are tried, in moves. Where one helped it was mostly 1: a light item more or less is a move more or less.
On ten clusters, forty tolls up to 4 refuted no more than these."""

WORK = 50_000_000
"""Combinations of losses and gains up to which the bound is tried; most are cut short, as their load is off."""


class ClassBound:
    """Refutes distances; sorts the items once for all of them. ``problem`` has no pins and a budget."""

    def __init__(self, problem: Problem, *, judge_draining: bool = True) -> None:
        self.problem = problem
        cheapest = np.cumsum(np.sort(problem.price))
        budget = float(problem.budget or 0.0) * (1 + ROUNDING) + ROUNDING
        self.moves = int(np.searchsorted(cheapest, budget, side="right"))
        self.judged = problem.is_open | judge_draining
        widest = int(min(self.moves, np.bincount(problem.current, minlength=problem.slots).max()))
        self.applies = problem.slots * (widest * self.moves) ** 2 / 8 <= WORK
        self.costs = problem.loads(problem.current) * problem.capacity
        cuts = np.unique(np.quantile(problem.cost, QUANTILES))
        self.thresholds = [float(cut) for cut in cuts if problem.cost.min() < cut]
        self.sorted: dict[float, F64] = {}

    def refutes(self, distance: float, is_late: Callable[[], bool] = lambda: False) -> bool:
        """True only if no plan within the budget has this distance or less. Gives up when it is late."""
        for place, threshold in enumerate(self.thresholds):
            if is_late():
                return False
            if self._takes_more(distance, threshold):
                # What refutes one distance often refutes the next: it is asked first.
                self.thresholds.insert(0, self.thresholds.pop(place))
                return True
        return False

    def raised(self, bound: float, reached: float, halvings: int, is_late: Callable[[], bool] = lambda: False) -> float:
        """A better bound, between the one that is known and what a plan has reached; the same when it is late."""
        problem = self.problem
        just_below = reached - 3 * ROUNDING * problem.mean
        if not self.applies or just_below <= bound:
            return bound
        if self.refutes(just_below, is_late):
            return just_below
        low, high = bound, reached
        for _ in range(halvings):
            middle = (low + high) / 2
            if self.refutes(middle, is_late):
                low = middle
            else:
                high = middle
        return low

    def _takes_more(self, distance: float, threshold: float) -> bool:
        problem = self.problem
        if threshold not in self.sorted:
            self.sorted[threshold] = _prefixes(
                problem.cost,
                problem.current,
                np.argsort(-problem.cost, kind="stable"),
                problem.slots,
                self.moves,
                threshold,
            )
        slack = ROUNDING * problem.mean
        fewest = _fewest_moves(
            self.sorted[threshold],
            self.costs,
            problem.capacity,
            problem.is_open,
            self.judged,
            problem.mean - distance - slack,
            problem.mean + distance + slack,
            self.moves,
            np.array(TOLLS),
        )
        return fewest > self.moves + ROUNDING * (1 + self.moves)


@compiled
def _prefixes(cost: F64, current: I32, by_cost: I64, slots: int, moves: int, threshold: float) -> F64:
    """Per slot, eight rows of what 0, 1, 2, ... items cost together: the heaviest and the lightest such items of the
    foreign heavy, foreign light, own heavy and own light. -1 and infinity where there are not that many."""
    sums = np.empty((slots, 8, moves + 1))
    for slot in range(slots):
        for kind in range(4):
            own, light = kind >= 2, kind % 2 == 1
            sums[slot, 2 * kind] = -1.0
            sums[slot, 2 * kind + 1] = np.inf
            sums[slot, 2 * kind : 2 * kind + 2, 0] = 0.0
            taken = 0
            for item in by_cost:
                if taken < moves and (current[item] == slot) == own and (cost[item] < threshold) == light:
                    sums[slot, 2 * kind, taken + 1] = sums[slot, 2 * kind, taken] + cost[item]
                    taken += 1
            taken = 0
            for item in by_cost[::-1]:
                if taken < moves and (current[item] == slot) == own and (cost[item] < threshold) == light:
                    sums[slot, 2 * kind + 1, taken + 1] = sums[slot, 2 * kind + 1, taken] + cost[item]
                    taken += 1
    return sums


@compiled
def _fewest_moves(
    prefixes: F64,
    costs: F64,
    capacity: F64,
    is_open: Bool,
    judged: Bool,
    low: float,
    high: float,
    moves: int,
    tolls: F64,
) -> float:
    """A number of moves that no plan with every slot between low and high can do without: the most over all tolls."""
    span = 2 * moves + 1
    paths = np.full((len(tolls), span), np.inf)
    paths[:, moves] = 0.0
    losses = np.empty((span, span))
    for slot in range(len(costs)):
        heavy_most, heavy_least, light_most, light_least = (
            prefixes[slot, 0],
            prefixes[slot, 1],
            prefixes[slot, 2],
            prefixes[slot, 3],
        )
        own_heavy_most, own_heavy_least = prefixes[slot, 4], prefixes[slot, 5]
        own_light_most, own_light_least = prefixes[slot, 6], prefixes[slot, 7]
        least_cost = low * capacity[slot] if is_open[slot] else -np.inf
        most_cost = high * capacity[slot] if judged[slot] else np.inf
        most_gains = moves if is_open[slot] else 0
        # losses[net, light]: the fewest items lost for so many lost less gained, light gained less light lost.
        losses[:] = np.inf
        for lost in range(moves + 1):
            possible = False
            for light in range(lost + 1):
                if own_light_most[light] < 0 or own_heavy_most[lost - light] < 0:
                    continue
                possible = True
                most_lost = own_light_most[light] + own_heavy_most[lost - light]
                least_lost = own_light_least[light] + own_heavy_least[lost - light]
                for gained in range(most_gains + 1):
                    fits = False
                    for light_gained in range(gained + 1):
                        if light_most[light_gained] < 0 or heavy_most[gained - light_gained] < 0:
                            continue
                        least = light_least[light_gained] + heavy_least[gained - light_gained]
                        if costs[slot] - most_lost + least > most_cost:
                            continue
                        fits = True
                        most = light_most[light_gained] + heavy_most[gained - light_gained]
                        if costs[slot] - least_lost + most >= least_cost:
                            net, change = lost - gained + moves, light_gained - light + moves
                            if lost < losses[net, change]:
                                losses[net, change] = lost
                    if not fits:
                        # More gains cost more still.
                        break
            if not possible:
                break
        for toll in range(len(tolls)):
            longer = np.full(span, np.inf)
            for net in range(span):
                cheapest = np.inf
                for change in range(span):
                    if losses[net, change] < np.inf:
                        cheapest = min(cheapest, losses[net, change] + tolls[toll] * (change - moves))
                if cheapest == np.inf:
                    continue
                shift = net - moves
                for before in range(max(0, -shift), min(span, span - shift)):
                    total = paths[toll, before] + cheapest
                    if total < longer[before + shift]:
                        longer[before + shift] = total
            paths[toll] = longer
    return float(paths[:, moves].max())
