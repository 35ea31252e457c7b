"""The solver: the best of several starts, improved by local search, with a proven bound beside it.

fold the pins, scale the mean to about 1
              -> bound (counting)
              -> Flux, as a plan to beat
              -> exact, where the model is small
              -> anneal from where things are, aiming between bound and best, until both meet or the time is up;
                 now and then a sharper bound (classes)
              -> narrow the other side
              -> take back idle moves, empty draining slots

Annealing begins every run at the current places, not at Flux's: with the budget spent already it is slower to find its
way. Handing the worst slots and a few partners to HiGHS (a large neighbourhood) is not done, nor has it been tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headgate.arrays import I32
from headgate.planners.allocation.anneal import Annealing
from headgate.planners.allocation.bound import lower_bound
from headgate.planners.allocation.classes import ClassBound
from headgate.planners.allocation.model import solve_exactly
from headgate.planners.allocation.polish import cleared, polished
from headgate.planners.allocation.problem import Problem, Solution
from headgate.planners.base import ROUNDING
from headgate.planners.flux import level

SECONDS = 2.0
"""albic, section 5.1: good plans come within a few seconds."""

STEPS_PER_SECOND = 1_500_000
"""Proposals that stand for a second where there is no clock: what one core of an ordinary machine makes, roughly."""

EXACT_SIZE = 360
"""Slots times items up to which the full model goes to HiGHS. With few moves allowed it mostly proves the optimum there
in a second or two (6 slots, 60 items, 6 moves); with many it may not finish at smaller sizes either (6, 40, 10)."""

EXACT_SHARE = 0.4
"""The share of the time that HiGHS may have for each of its two objectives where the model is small."""

NODES_PER_SECOND = 1_000
"""Nodes of HiGHS' search tree that stand for a second where there is no clock."""

RUN_STEPS = 500_000
"""Proposals of the first runs of the local search: long enough to cool down with a thousand items."""

RUN_STEPS_PER_ITEM = 400
"""And at least this many per item."""

RUN_GROWTH = 1.5
"""Every round of runs is that much longer than the last: short ones find the easy plans, long ones the hard."""

AIMS = (0.15, 0.3, 0.6)
"""Where the first target of a run lies between the bound and the best so far. Too low, and the search spreads its
violations over all slots; too high, and it rests too early. Which is best differs, so they take turns."""

PROVEN = 1e-8
"""A distance within this share of the mean from the bound is the least there is: bounds are rounded down by less."""

BOUND_SHARE = 0.15
"""The share of the time that each try at a sharper bound may take: most are done sooner."""

HALVINGS = 10
"""Halvings of what lies between bound and plan: to a thousandth of it."""

PROGRESS_SHARE = 0.25
"""The share of the budget that empties draining slots where nothing would leave them for the sake of the distance."""

NARROW_SHARE = 0.1
"""The share of the time for the second objective."""


def solve(
    problem: Problem,
    *,
    seed: int = 0,
    time_limit_seconds: float = SECONDS,
    clock: Callable[[], float] | None = None,
) -> Solution:
    """The best places found for the items, never worse than leaving them (pins apart) and never worse than Flux.

    Draining slots are emptied where there is no budget; under a budget items leave them as far as that serves the
    distance, and one item at least where the budget pays for it.

    Deterministic for ``seed`` without a clock: then a fixed number of steps stands for the time limit. With a clock (it
    returns seconds) the search goes on until the limit.
    """
    core, free = problem.folded()
    places = np.array(problem.start, dtype=np.int32)
    flux = _flux(core)
    if core.mean <= 0 or not len(core):
        places[free] = flux
        return Solution(places=places, score=problem.score(places), bound=0.0, open_bound=0.0, is_proven=core.mean <= 0)
    core, exponent = core.normalised()
    if core.budget is None and not core.is_open.all():
        core = _evacuated(core)
    search = _Search(core, seed, time_limit_seconds, clock)
    search.run(flux)
    places[free] = search.best
    return Solution(
        places=places,
        score=problem.score(places),
        bound=float(np.ldexp(search.bound, exponent)),
        open_bound=float(np.ldexp(search.open_bound, exponent)),
        is_proven=search.is_proven,
        is_forced=search.is_forced,
        steps=search.steps,
    )


def _flux(problem: Problem) -> I32:
    """Where Flux puts the items; where they are, if that does not hold the budget."""
    places = level(
        problem.cost,
        problem.price,
        problem.current,
        problem.fixed_cost,
        problem.capacity,
        problem.is_open,
        problem.mean,
        0.0,
        problem.budget,
    )
    return places if problem.admits(places) else np.array(problem.current, dtype=np.int32)


def _evacuated(problem: Problem) -> Problem:
    """Without a budget nothing excuses an item left on a draining slot: they are moved off before the search begins,
    and the search finds them on open slots."""
    leaving = ~problem.is_open[problem.current]
    return replace(
        problem,
        current=np.where(leaving, cleared(problem, problem.current), problem.current).astype(np.int32),
        price=np.where(leaving, 0.0, problem.price),
        state=np.where(leaving, 0.0, problem.state),
    )


class _Search:
    """One solution in the making. ``problem`` has no pins and at least one item."""

    def __init__(self, problem: Problem, seed: int, seconds: float, clock: Callable[[], float] | None) -> None:
        self.problem = problem
        self.seed = seed
        self.seconds = seconds
        self.clock = clock
        self.began = clock() if clock is not None else 0.0
        self.steps = 0
        self.best: I32 = np.array(problem.current, dtype=np.int32)
        self.bound = 0.0
        self.open_bound = 0.0
        closed = ~problem.is_open
        self.drains = bool(closed[problem.current].any() or problem.fixed_cost[closed].any())
        self.is_optimal = False
        self.is_forced = False
        self.compared = np.inf
        self.classes: ClassBound | None = None

    def run(self, *starts: I32) -> None:
        """Search, beginning with where things are, these starts, and Flux."""
        problem = self.problem
        self.bound = self.open_bound = lower_bound(problem)
        if self.drains:
            self.open_bound = lower_bound(problem, judge_draining=False)
        budget = problem.budget
        for start in (*starts, _flux(problem)):
            self._offer(start)
        if not self.is_proven and len(problem) * problem.slots <= EXACT_SIZE:
            self._solve_exactly()
        if budget is None or budget > 0:
            self._anneal()
        self._offer(polished(problem, self.best))
        self._make_progress()

    def _make_progress(self) -> None:
        """Where all that is on draining slots would stay, because each of its items is too big to move without harm,
        some of them go all the same: otherwise the slot would never be empty."""
        problem = self.problem
        stuck = ~problem.is_open[problem.current]
        if stuck.any() and np.array_equal(self.best[stuck], problem.current[stuck]):
            affordable = 0.0 if problem.budget is None else problem.budget / max(float(problem.price.max()), ROUNDING)
            places = cleared(problem, self.best, at_most=max(1, int(PROGRESS_SHARE * affordable)))
            self.is_forced = not np.array_equal(places, self.best)
            self.is_optimal &= not self.is_forced
            self.best = places

    @property
    def is_proven(self) -> bool:
        score = self.problem.score(self.best)
        reached = score.distance <= self.bound + PROVEN * self.problem.mean
        return score.excess == 0 and (self.is_optimal or reached)

    def _offer(self, places: I32) -> None:
        problem = self.problem
        if problem.admits(places) and problem.is_better(problem.score(places), problem.score(self.best)):
            self.best = places

    def _left(self) -> float:
        """Seconds that are left; without a clock, as many as the steps stand for."""
        gone = self.steps / STEPS_PER_SECOND if self.clock is None else self.clock() - self.began
        return self.seconds - gone

    def _solve_exactly(self) -> None:
        seconds = EXACT_SHARE * self.seconds
        if self.clock is None:
            exact = solve_exactly(self.problem, nodes=int(seconds * NODES_PER_SECOND), warm=self.best)
        else:
            exact = solve_exactly(self.problem, seconds=seconds, warm=self.best)
        if exact.places is not None:
            self._offer(exact.places)
        self.is_optimal = exact.is_proven
        self.bound = max(self.bound, exact.bound)
        if not self.drains:
            self.open_bound = self.bound

    def _anneal(self) -> None:
        problem = self.problem
        annealing = Annealing.of(problem, self.best, self.seed)
        length = max(RUN_STEPS, RUN_STEPS_PER_ITEM * len(problem))
        reserve = NARROW_SHARE * self.seconds
        turn = 0
        if self.clock is not None:
            # The first step in a new installation compiles the search for seconds, which are not to count.
            start = self.clock()
            annealing.run(1, problem.current, until=self.bound, aim=self.bound)
            annealing.narrow(1)
            self.began += self.clock() - start
        self.best = annealing.places
        while not self.is_proven and self._left() > reserve:
            score = problem.score(annealing.places)
            aim = self.bound + AIMS[turn % len(AIMS)] * (score.distance - self.bound)
            steps = self._affordable(length, reserve)
            if steps == 0:
                break
            annealing.run(steps, problem.current, until=self.bound + PROVEN * problem.mean, aim=aim)
            self.best = annealing.places
            turn += 1
            if turn % len(AIMS) == 0:
                length = int(length * RUN_GROWTH)
                self._raise_bound()
        narrowing = self._affordable(length, 0.0)
        if narrowing > 0 and not self.is_optimal:
            annealing.narrow(narrowing)
        self.best = annealing.places

    def _raise_bound(self) -> None:
        """Count light and heavy items apart, as soon as there is a plan to compare with, and for each better plan."""
        problem = self.problem
        reached = problem.score(self.best).distance
        if problem.budget is None or reached >= self.compared:
            return
        self.compared = reached
        self.classes = self.classes or ClassBound(problem)
        until = self._left() - BOUND_SHARE * self.seconds
        self.bound = self.classes.raised(self.bound, reached, HALVINGS, lambda: self._left() < until)
        if not self.drains:
            self.open_bound = self.bound

    def _affordable(self, length: int, reserve: float) -> int:
        """How many steps the next run may take."""
        left = max(0.0, self._left() - reserve)
        if self.clock is None:
            steps = min(length, int(left * STEPS_PER_SECOND))
        else:
            pace = self.steps / max(self.clock() - self.began, 1e-3) if self.steps else STEPS_PER_SECOND / 4
            steps = min(length, int(left * pace))
        self.steps += steps
        return steps
