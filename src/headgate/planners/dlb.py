"""DLB: move one key at a time from a loaded slot to the least loaded, while the spread shrinks.

Problem         keep imbScore (the relative standard deviation of the loads, in percent) under a threshold
Inputs          c(k); the threshold; which key to take: the lightest (DLB-L) or the heaviest that helps (DLB-H)
Guarantee       imbScore never rises; a key moves at most once; stops at the threshold or where no move of a key that
                has not moved yet to the least loaded slot helps
Time, space     O(K log K) to sort each slot's keys, then O(N + log K) a move; a table entry per key moved off its hash
First appeared  Zacheilas et al., cep-dlb, algorithm 1
Deviations      the trial loads are reset after a failed trial (algorithm 1 lets them pile up); DLB-L, too, moves a key
                only if that lowers imbScore, as lines 15-16 demand; a slot whose move was refused is tried again after
                the next accepted one
Backfires       DLB-L moves many keys where one would do; DLB-H cannot fine-tune when all keys are heavy. Neither looks
                at state: with much state behind light keys use MinMig or Mixed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.packing import evacuate
from headgate.planners.plan import Limits, Reason
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance

IMBALANCE_PERCENT = 15.0
"""cep-dlb, section 4: the threshold of imbScore in the experiments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DLB(Planner):
    imbalance_percent: float = IMBALANCE_PERCENT
    heaviest: ClassVar[bool]

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        return before.rsd > self.imbalance_percent or bool(items.on_draining().any())

    def decide(self, items: Items, limits: Limits) -> Decision:
        places = evacuate(items)
        order = np.lexsort((-items.cost, places))
        starts = np.searchsorted(places[order], np.arange(items.slots + 1))
        target = _balance(
            items.cost,
            places,
            order,
            starts,
            items.slot_costs(places),
            items.capacity,
            items.is_open,
            items.mean,
            self.imbalance_percent / 100,
            self.heaviest,
        )
        return Decision(target, reasons(items, Reason.LEVEL))


@dataclass(frozen=True, slots=True, kw_only=True)
class DLBL(_DLB):
    """Takes the lightest key of the loaded slot: many small moves, fine tuning."""

    name: ClassVar[str] = "dlb-l"
    heaviest: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DLBH(_DLB):
    """Takes the heaviest key of the loaded slot that lowers imbScore: few moves."""

    name: ClassVar[str] = "dlb-h"
    heaviest: ClassVar[bool] = True


@compiled
def _gain(loaded: float, least: float, share: float, share_least: float, mean: float) -> float:
    """How much the sum of squared deviations falls when a slot gives `share` of load and another gets `share_least`."""
    before = (loaded - mean) ** 2 + (least - mean) ** 2
    return before - (loaded - share - mean) ** 2 - (least + share_least - mean) ** 2


@compiled
def _balance(
    cost: F64,
    places: I32,
    order: I64,
    starts: I64,
    slot_cost: F64,
    capacity: F64,
    is_open: Bool,
    mean: float,
    threshold: float,
    heaviest: bool,
) -> I32:
    """Keys that arrive in a slot are not moved on: a slot's sorted list only shrinks, and a key moves at most once."""
    target = places.copy()
    loads = slot_cost / capacity
    open_slots = np.flatnonzero(is_open)
    first, last = starts[:-1].copy(), starts[1:].copy()
    gone = np.zeros(len(cost), dtype=np.bool_)
    while np.sqrt(np.mean((loads[open_slots] - mean) ** 2)) > threshold * mean:
        least = open_slots[np.argmin(loads[open_slots])]
        moved = False
        for loaded in open_slots[np.argsort(-loads[open_slots])]:
            if loaded == least:
                break
            key = -1
            if heaviest:
                for at in range(first[loaded], last[loaded]):
                    item = order[at]
                    if not gone[item] and (
                        _gain(
                            loads[loaded],
                            loads[least],
                            cost[item] / capacity[loaded],
                            cost[item] / capacity[least],
                            mean,
                        )
                        > 0
                    ):
                        key = item
                        break
            else:
                while last[loaded] > first[loaded] and (
                    gone[order[last[loaded] - 1]] or cost[order[last[loaded] - 1]] == 0
                ):
                    last[loaded] -= 1
                if last[loaded] > first[loaded]:
                    key = order[last[loaded] - 1]
            if key < 0:
                continue
            share, share_least = cost[key] / capacity[loaded], cost[key] / capacity[least]
            if share <= 0 or _gain(loads[loaded], loads[least], share, share_least, mean) <= 1e-12 * mean * mean:
                continue
            target[key] = least
            gone[key] = True
            loads[loaded] -= share
            loads[least] += share_least
            moved = True
            break
        if not moved:
            break
    return target
