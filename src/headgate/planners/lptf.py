"""LPTF: longest processing time first, when the engines' loads differ too much.

Problem         keep the relative standard deviation of the loads under a threshold
Inputs          c(k); the threshold on imbScore in percent
Guarantee       as Simple: at most (1/3)(1 - 1/N) over the mean where a perfect placement exists
Time, space     O(K (log K + N)); a routing table of about K (1 - 1/N) entries
First appeared  Graham 1969; the baseline of cep-dlb, section 4
Deviations      none
Backfires       moves most of the state at every rebalancing (cep-dlb saw 76 % of the keys); use DLB or Mixed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.dlb import IMBALANCE_PERCENT
from headgate.planners.items import Items
from headgate.planners.packing import pack
from headgate.planners.plan import Limits, Reason
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance


@dataclass(frozen=True, slots=True, kw_only=True)
class LPTF(Planner):
    """Packs everything anew once imbScore exceeds ``imbalance_percent``."""

    name: ClassVar[str] = "lptf"
    imbalance_percent: float = IMBALANCE_PERCENT

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        return before.rsd > self.imbalance_percent or bool(items.on_draining().any())

    def decide(self, items: Items, limits: Limits) -> Decision:
        return Decision(pack(items), reasons(items, Reason.REPACK))
