"""MinMig: move as little state as possible.

Problem         balance within theta_max with as little migrated state as possible
Inputs          c(k), S(k, w), theta_max, beta
Guarantee       that of LLFD for the balance; none on the table
Time, space     that of LLFD
First appeared  Fang et al., mixed-routing, algorithm 3
Deviations      those of LLFD; a key without state has infinite priority; also on the compact form (``degree``)
Backfires       the table grows with every plan towards K (1 - 1/N) entries; use Mixed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from headgate.errors import LimitsError
from headgate.planners.base import Decision, Planner
from headgate.planners.items import Items
from headgate.planners.phases import Ground, Trial, better_of, by_falling, compact_of, run_phases, settle
from headgate.planners.plan import Limits

BETA = 1.5
"""mixed-routing, appendix: from 1.5 on the table is as small as it gets and the migration cost has not risen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMig(Planner):
    """Takes keys by gamma = c^beta / S: much load for little state first.

    ``degree``: R of the compact form to plan on; None plans on the keys themselves.
    """

    name: ClassVar[str] = "minmig"
    beta: float = BETA
    degree: int | None = None

    def __post_init__(self) -> None:
        check_beta(self.name, self.beta)

    def decide(self, items: Items, limits: Limits) -> Decision:
        compact = compact_of(items, self.degree)
        ground = Ground.of(items, compact)
        psi = ground.by_priority(self.beta)
        order = by_falling(psi)

        def run(theta_max: float) -> tuple[Trial, int]:
            return run_phases(ground, psi, theta_max, order=order), 1

        def exact() -> Decision:
            return replace(self, degree=None).decide(items, limits)

        return better_of(items, settle(items, compact, run, limits.theta_max, exact), limits.theta_max)


def check_beta(planner: str, beta: float) -> None:
    """Raise unless beta is a usable exponent."""
    if not 0 <= beta < float("inf"):
        raise LimitsError.parameter(planner, "beta", "a number from 0 up (1 weighs cost and state alike)", beta)
