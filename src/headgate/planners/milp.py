"""MILP: the least load distance that the limit on migration allows.

Problem         minimise d, the farthest that a slot's load is off the mean; among equals, how far the slots on either
                side of the mean are off it; among equals, what has to move
Inputs          c(k), S(k); max_migrations or max_migration_cost; capacities; caps on other resources
Guarantee       limits held, and caps where it finds a way to; never worse than doing nothing, nor than Flux under the
                same limits (draining apart, see below); nothing moves to a draining slot (lemma 1); ``bound`` is
                proven: no plan under the same limits has a smaller distance. Without a clock the same input and seed
                give the same plan
Time, space     ``Limits.time_limit_seconds`` in all, less where the bound is reached; O(K + N M), M the moves allowed
First appeared  Madsen et al., albic, section 4.3.1
Deviations      the mean is not rounded up. (5), mean - d >= 0, is in the model where places are known that hold it, and
                left out otherwise: where one group alone is more than twice the mean, nothing holds it. Draining slots
                may only lose groups. Between plans of equal d, one that leaves less on draining slots is preferred to
                one that narrows the spread; without a limit on migration they are emptied, and under one at least one
                group leaves per plan, even where that raises d: by the model alone a group too big for the rest would
                stay for ever (lemma 2 supposes groups that can be cut). CPLEX on the plain model gives way to local
                search with a bound of its own (``allocation``), because HiGHS may fail to finish in seconds with 6
                slots, 40 groups and 10 moves already; it solves, and proves, what is small
Backfires       ``theta_max`` says when to plan, not when to stop: with an ample limit on migration the plan uses it
                all for gains that no one will notice. The distance looks at the worst slots only, so that one hot group
                makes all other imbalance invisible. Traffic is not looked at: use ALBIC
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.allocation import Problem, solve
from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.plan import Grain, Limits, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MILP(Planner):
    """Minimises the load distance under the limits.

    ``clock`` returns seconds (``time.monotonic`` will do) and lets the search use the time limit to the full; without
    it a number of steps stands for the limit, about as long on an ordinary core.
    """

    name: ClassVar[str] = "milp"
    holds_migration: ClassVar[bool] = True

    grain: Grain = "group"
    clock: Callable[[], float] | None = None

    def decide(self, items: Items, limits: Limits) -> Decision:
        solution = solve(
            Problem.of(items, limits),
            seed=self.seed,
            time_limit_seconds=limits.time_limit_seconds,
            clock=self.clock,
        )
        return Decision(
            solution.places,
            reasons(items, Reason.LEVEL),
            bound=solution.open_bound,
            details={"proven": float(solution.is_proven), "steps": float(solution.steps)},
        )
