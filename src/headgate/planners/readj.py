"""Readj: send keys home where that does not hurt, then the best single move or swap of heavy keys, again and again.

Problem         balance within theta_max by moving or swapping heavy keys
Inputs          c(k), theta_max, sigma: only keys that cost at least sigma of the mean load take part
Guarantee       the squared distance from the mean falls with every step; none on table or state
Time, space     a step looks at all pairs of slots and all moves and swaps between their heavy keys, H a slot: O(N^2
                H^2) as published, O(N^2 H) with ``swaps="nearest"``; up to N H steps; and once per sigma tried
First appeared  Gedik, "Partitioning functions for stateful data parallelism in stream processing", VLDBJ 2014; as
                described in Fang et al., mixed-routing, sections V and VI
Deviations      by default the best swap of two slots is found by walking their sorted keys instead of trying all pairs:
                the same choice, save between keys of equal cost, in less time, so the baseline is stronger than the
                papers' (``swaps="every"``: theirs)
Backfires       with large sigma it cannot reach small theta_max; with small sigma it takes seconds. It does not see
                state. It is here as the baseline
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.errors import LimitsError
from headgate.planners.base import ROUNDING, Decision, Planner
from headgate.planners.items import Items
from headgate.planners.packing import evacuate
from headgate.planners.plan import Limits, Reason

SIGMAS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005)
"""The values tried when none is given: from a handful of keys a slot to hundreds; the best result counts, as in the
papers' experiments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readj(Planner):
    """``sigma``: the share of the mean load from which a key takes part; None: try ``SIGMAS`` and keep the best.

    ``swaps``: how the best swap of two slots is found: "every" tries all pairs of their heavy keys, as published;
    "nearest" walks both sorted lists once and comes to the same choice, save between keys of equal cost.
    """

    name: ClassVar[str] = "readj"
    sigma: float | None = None
    swaps: Literal["every", "nearest"] = "nearest"

    def __post_init__(self) -> None:
        if self.sigma is not None and not 0 <= self.sigma < float("inf"):
            raise LimitsError.parameter(self.name, "sigma", "a share of the mean load, or None to search", self.sigma)

    def decide(self, items: Items, limits: Limits) -> Decision:
        sigmas = SIGMAS if self.sigma is None else (self.sigma,)
        start = evacuate(items)
        attempts = [(self._attempt(items, start, sigma, limits.theta_max), sigma) for sigma in sigmas]

        def merit(attempt: tuple[I32, float]) -> tuple[float, float]:
            over = max(0.0, items.balance(attempt[0]).theta_max - limits.theta_max - ROUNDING)
            return over, float(items.state_bytes[attempt[0] != items.current].sum())

        target, sigma = min(attempts, key=merit)
        reason = np.where(target == items.home, Reason.HOME, Reason.LEVEL)
        reason[items.on_draining()] = Reason.DRAIN
        return Decision(target, reason.astype(np.int8), details={"sigma": sigma, "trials": float(len(sigmas))})

    def _attempt(self, items: Items, start: I32, sigma: float, theta_max: float) -> I32:
        heavy = items.cost >= sigma * items.mean
        heavy &= items.cost > 0
        order = np.argsort(-items.cost[heavy], kind="stable")
        rows = np.flatnonzero(heavy)[order]
        pinned = np.flatnonzero((start != items.home) & heavy)
        pinned = pinned[np.argsort(-items.cost[pinned], kind="stable")]
        return _readjust(
            items.cost,
            start,
            items.home,
            rows,
            pinned,
            items.slot_costs(start),
            items.capacity,
            items.is_open,
            items.mean,
            theta_max,
            self.swaps == "every",
        )


@compiled
def _gain(amount: float, a: int, b: int, cost: F64, capacity: F64, mean: float) -> float:
    """How much the squared distances from the mean fall when slot a hands `amount` of cost to slot b."""
    before = (cost[a] / capacity[a] - mean) ** 2 + (cost[b] / capacity[b] - mean) ** 2
    after = ((cost[a] - amount) / capacity[a] - mean) ** 2 + ((cost[b] + amount) / capacity[b] - mean) ** 2
    return float(before - after)


@compiled
def _best_amount(a: int, b: int, cost: F64, capacity: F64, mean: float) -> float:
    """The amount at which the gain is greatest."""
    pull = (cost[a] / capacity[a] - mean) / capacity[a] - (cost[b] / capacity[b] - mean) / capacity[b]
    return float(pull / (1 / capacity[a] ** 2 + 1 / capacity[b] ** 2))


@compiled
def _readjust(
    cost: F64,
    start: I32,
    home: I32,
    rows: I64,
    pinned: I64,
    slot_cost: F64,
    capacity: F64,
    is_open: Bool,
    mean: float,
    theta_max: float,
    every: bool,
) -> I32:
    places = start.copy()
    load = slot_cost.copy()
    slots = len(load)
    for key in pinned:
        a, b = places[key], home[key]
        if load[b] + cost[key] <= (1 + theta_max) * mean * capacity[b]:
            places[key] = b
            load[a] -= cost[key]
            load[b] += cost[key]
    count = len(rows)
    members = np.empty((slots, count), dtype=np.int64)
    size = np.zeros(slots, dtype=np.int64)
    for key in rows:
        slot = places[key]
        members[slot, size[slot]] = key
        size[slot] += 1
    for _ in range(4 * count + 16):
        worst = 0.0
        for slot in range(slots):
            if is_open[slot]:
                worst = max(worst, abs(load[slot] / capacity[slot] - mean))
        if worst <= theta_max * mean:
            break
        best_gain, give, take, source, target = 1e-9 * mean * mean, -1, -1, -1, -1
        for a in range(slots):
            for b in range(slots):
                if a == b or not is_open[a] or not is_open[b] or load[a] / capacity[a] <= load[b] / capacity[b]:
                    continue
                wanted = _best_amount(a, b, load, capacity, mean)
                # Moves of one key, and swaps: keys of both slots fall in cost, so as the key of a falls the key of b
                # that leaves a difference nearest to the wanted amount falls too. Position size[b] means: no swap.
                at = 0
                for index in range(size[a]):
                    key = members[a, index]
                    while at < size[b] and cost[key] - cost[members[b, at]] < wanted:
                        at += 1
                    first = 0 if every else max(0, at - 1)
                    last = size[b] if every else min(size[b], at + 1)
                    for trial in range(first, last + 1):
                        other = trial if trial < last else size[b]
                        back = cost[members[b, other]] if other < size[b] else 0.0
                        amount = cost[key] - back
                        if amount <= 0:
                            continue
                        gain = _gain(amount, a, b, load, capacity, mean)
                        if gain > best_gain:
                            best_gain, give, take, source, target = gain, index, other, a, b
        if give < 0:
            break
        key = members[source, give]
        partner = members[target, take] if take < size[target] else -1
        _remove(members, size, source, give)
        if partner >= 0:
            _remove(members, size, target, take)
            _insert(members, size, source, partner, cost)
            places[partner] = source
            load[target] -= cost[partner]
            load[source] += cost[partner]
        _insert(members, size, target, key, cost)
        places[key] = target
        load[source] -= cost[key]
        load[target] += cost[key]
    return places


@compiled
def _remove(members: I64, size: I64, slot: int, at: int) -> None:
    for index in range(at, size[slot] - 1):
        members[slot, index] = members[slot, index + 1]
    size[slot] -= 1


@compiled
def _insert(members: I64, size: I64, slot: int, key: int, cost: F64) -> None:
    at = size[slot]
    while at > 0 and cost[members[slot, at - 1]] < cost[key]:
        members[slot, at] = members[slot, at - 1]
        at -= 1
    members[slot, at] = key
    size[slot] += 1
