"""Hash: key grouping, what every engine does by default.

Problem         send equal keys to the same slot, with no state in the router
Inputs          nothing but the key
Guarantee       every slot gets its share of the key groups to within one; none on the load
Time, space     O(K) to send everything home; no routing table
First appeared  the default of every engine (Storm calls it fields grouping, cep-dlb calls it KG)
Deviations      key groups stand between keys and slots, see ``routing.groups``
Backfires       when a few keys have much of the load, or many slots share few keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.plan import Limits, Reason
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash(Planner):
    """Leaves everything where the hash puts it, and sends home what is elsewhere."""

    name: ClassVar[str] = "hash"
    guards_balance: ClassVar[bool] = False

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        return bool((items.current != items.home).any())

    def decide(self, items: Items, limits: Limits) -> Decision:
        return Decision(items.home, reasons(items, Reason.HOME))
