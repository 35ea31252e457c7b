"""LLFD: least-load fit decreasing.

Problem         level the load by editing the routing table
Inputs          c(k), the tolerance theta_max, a criterion psi that says which key of a slot is taken first
Guarantee       where a perfect placement exists and no key exceeds a slot's share, no slot is more than
                (1/3)(1 - 1/N) over the mean (mixed-routing, theorem 1)
Time, space     O(K log K) to sort, O(C (log C + N)) to place C candidates, plus O(K / N) per exchange; O(K)
First appeared  Fang et al., mixed-routing, algorithm 1
Deviations      1. A key that fits nowhere goes to the least loaded slot (algorithm 1 leaves it without one).
                2. If a slot is still over the limit, LLFD with no tolerance and then packing all keys anew as by Simple
                   are tried, and the best result is taken: theorems 1, 2 and 4 hold by construction.
                3. theta counts underload as well as overload (II-A), but the paper's phase II sees only overload, and
                   would leave a new, empty slot empty. Here it also takes keys from the fullest slots, down to the
                   water level at which they fill the deficits.
                4. A key heavier than any slot's limit gets a slot for itself: it stays, everything else leaves.
                5. A trial that ends outside theta_max on either side is run again with a tighter tolerance.
                6. Equality is allowed in line 12 (as in the text): a slot may reach its limit exactly.
Backfires       on its own it neither bounds the table nor looks at state: use Mixed. It is here as the yardstick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.base import Decision, Planner
from headgate.planners.items import Items
from headgate.planners.phases import Ground, Trial, better_of, by_falling, run_phases, settle
from headgate.planners.plan import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class LLFD(Planner):
    """Takes the heaviest keys of overloaded slots and fits them into the least loaded ones, with exchanges."""

    name: ClassVar[str] = "llfd"

    def decide(self, items: Items, limits: Limits) -> Decision:
        ground = Ground.of(items)
        psi = ground.by_cost()
        order = by_falling(psi)

        def run(theta_max: float) -> tuple[Trial, int]:
            return run_phases(ground, psi, theta_max, order=order), 1

        return better_of(items, settle(items, None, run, limits.theta_max), limits.theta_max)
