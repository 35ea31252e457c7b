"""Simple: pack all keys anew, the heaviest first.

Problem         balance, whatever it costs
Inputs          c(k)
Guarantee       where a perfect placement exists and no key exceeds a slot's share, no slot is more than
                (1/3)(1 - 1/N) over the mean (mixed-routing, lemma 3)
Time, space     O(K (log K + N)); a routing table of about K (1 - 1/N) entries
First appeared  Fang et al., mixed-routing, algorithm 5; the packing is Graham's LPT (1969)
Deviations      slots of unequal capacity are filled by load, not by cost
Backfires       always, as a planner: nearly all state moves each time. It is the yardstick of balance
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.packing import pack
from headgate.planners.plan import Limits, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple(Planner):
    """Longest processing time first over all keys."""

    name: ClassVar[str] = "simple"

    def decide(self, items: Items, limits: Limits) -> Decision:
        return Decision(pack(items), reasons(items, Reason.REPACK))
