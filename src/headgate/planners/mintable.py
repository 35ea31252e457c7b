"""MinTable: the smallest routing table, built from scratch each time.

Problem         balance within theta_max with as few table entries as possible
Inputs          c(k), theta_max
Guarantee       that of LLFD; the table holds only keys that had to leave their hash's slot
Time, space     that of LLFD
First appeared  Fang et al., mixed-routing, algorithm 2
Deviations      those of LLFD; also on the compact form (``degree``)
Backfires       every entry goes home before it is placed again, so much state moves (three times as much as Mixed)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from headgate.planners.base import Decision, Planner
from headgate.planners.items import Items
from headgate.planners.phases import Ground, Trial, better_of, by_falling, compact_of, run_phases, settle
from headgate.planners.plan import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class MinTable(Planner):
    """Sends every pinned key home, then levels with the heaviest keys first.

    ``degree``: R of the compact form to plan on; None plans on the keys themselves.
    """

    name: ClassVar[str] = "mintable"
    controls_table: ClassVar[bool] = True
    degree: int | None = None

    def decide(self, items: Items, limits: Limits) -> Decision:
        compact = compact_of(items, self.degree)
        ground = Ground.of(items, compact)
        everything = int(ground.records.count[ground.records.current != ground.records.home].sum())
        psi = ground.by_cost()
        order = by_falling(psi)

        def run(theta_max: float) -> tuple[Trial, int]:
            return run_phases(ground, psi, theta_max, back=everything, order=order), 1

        def exact() -> Decision:
            return replace(self, degree=None).decide(items, limits)

        return better_of(items, settle(items, compact, run, limits.theta_max, exact), limits.theta_max)
