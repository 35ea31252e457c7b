"""How level the load is, in every measure the papers use.

All of them look at **loads**: a slot's cost divided by its capacity, so that a slot of capacity 0.5 is level with the
others when it has half their cost. The mean is what every open slot would have if the cost were spread perfectly:
total cost / total capacity of the slots that are not draining.

==================  ===============================================  ================================================
measure             formula                                          paper
==================  ===============================================  ================================================
``theta_max``       max over open slots of |load - mean| / mean      mixed-routing, II-A
``max_over_mean``   max load / mean                                  mixed-routing, V ("workload skewness")
``load_distance``   max over open slots of |load - mean|             albic, 4.3.1; in the unit of the loads
``rsd``             100 * standard deviation / mean, in percent      cep-dlb, 3.1 (imbScore)
``collocation``     share of traffic whose two ends share a slot     albic, 5.3
==================  ===============================================  ================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, sums
from headgate.routing.assignment import Assignment, Difference, difference
from headgate.stats.snapshot import Snapshot, Traffic


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """The measures of one assignment under one snapshot. With no load at all everything is level: all zero."""

    loads: F64
    mean: float
    theta_max: float
    max_over_mean: float
    load_distance: float
    rsd: float
    collocation: float | None = None

    @property
    def theta(self) -> F64:
        """theta(d): how far each slot is off the mean, as a share of it; draining slots included."""
        return np.abs(self.loads / self.mean - 1) if self.mean > 0 else np.zeros(len(self.loads))


def balance_of(cost: F64, capacity: F64, is_open: Bool, collocation: float | None = None) -> Balance:
    """Measure slots with this cost each. Draining slots count in ``loads`` and in the mean, not in the deviations."""
    loads = cost / capacity
    mean = float(cost.sum() / capacity[is_open].sum())
    if mean == 0:
        return Balance(loads, 0.0, 0.0, 1.0, 0.0, 0.0, collocation)
    judged = loads[is_open]
    distance = float(np.abs(judged - mean).max())
    # With slots draining or of unequal capacity the mean of the loads is not `mean`; the spread is about `mean`.
    spread = float(np.sqrt(np.mean((judged / mean - 1) ** 2)))
    return Balance(
        loads=loads,
        mean=mean,
        theta_max=distance / mean,
        max_over_mean=float(judged.max()) / mean,
        load_distance=distance,
        rsd=100 * spread,
        collocation=collocation,
    )


def in_turn(parts: Sequence[Balance], collocation: float | None = None) -> Balance:
    """The measures of stages that run one after another, from those of each stage.

    The mean is the sum of their means, the highest load the sum of their highest loads, which is what a batch waits
    for, and the distance from the mean the sum of their distances. Of a single stage these are its own measures.
    """
    mean = sum(part.mean for part in parts)
    loads: F64 = np.sum([part.loads for part in parts], axis=0)
    if mean == 0:
        return Balance(loads, 0.0, 0.0, 1.0, 0.0, 0.0, collocation)
    distance = sum(part.load_distance for part in parts)
    return Balance(
        loads=loads,
        mean=mean,
        theta_max=distance / mean,
        max_over_mean=sum(part.max_over_mean * part.mean for part in parts) / mean,
        load_distance=distance,
        rsd=sum(part.rsd * part.mean for part in parts) / mean,
        collocation=collocation,
    )


def slot_costs(snapshot: Snapshot, assignment: Assignment, places: I32 | None = None) -> F64:
    """L(d): the cost of each slot, listed keys and the rest of the groups together.

    ``places``: the slot of each listed key, where the caller has it already.
    """
    if places is None:
        places = locate(snapshot, assignment)
    listed = sums(places, snapshot.cost, assignment.slots)
    return listed + sums(assignment.groups, snapshot.rest_cost, assignment.slots)


def groups_of(operators: I64, size: int) -> I64:
    """The key groups of these operators, in their order, ``size`` of each."""
    groups: I64 = (operators[:, None] * size + np.arange(size)).ravel()
    return groups


def locate(snapshot: Snapshot, assignment: Assignment) -> I32:
    """F(k) of every listed key."""
    return assignment.locate(snapshot.hash, snapshot.operator, snapshot.group)


def measure(snapshot: Snapshot, assignment: Assignment, places: I32 | None = None) -> Balance:
    """All measures of an assignment under a snapshot. ``places``: the slot of each listed key, where known already."""
    if places is None:
        places = locate(snapshot, assignment)
    return balance_of(
        slot_costs(snapshot, assignment, places),
        capacities(snapshot, assignment.slots),
        assignment.open_slots,
        collocation_factor(snapshot, assignment, places),
    )


def measure_apart(snapshot: Snapshot, assignment: Assignment, parts: Iterable[I64]) -> list[Balance]:
    """The measures of parts of the operators, each by itself: L(d) and theta(d) of their keys and groups alone."""
    places, size = locate(snapshot, assignment), assignment.groups_per_operator
    capacity, is_open = capacities(snapshot, assignment.slots), assignment.open_slots
    balances = []
    for operators in parts:
        mine, own = np.isin(snapshot.operator, operators), groups_of(operators, size)
        cost = sums(places[mine], snapshot.cost[mine], assignment.slots)
        cost += sums(assignment.groups[own], snapshot.rest_cost[own], assignment.slots)
        balances.append(balance_of(cost, capacity, is_open))
    return balances


def measure_operators(snapshot: Snapshot, assignment: Assignment) -> dict[str, Balance]:
    """The measures of each operator by itself, by its name."""
    each = [np.array([number]) for number in range(len(snapshot.operators))]
    return dict(zip(snapshot.operators, measure_apart(snapshot, assignment, each), strict=True))


def capacities(snapshot: Snapshot, slots: int) -> F64:
    """The capacity of each slot; 1.0 where the snapshot does not say."""
    known = np.ones(slots)
    if snapshot.capacity is not None:
        known[: len(snapshot.capacity)] = snapshot.capacity[:slots]
    return known


def collocation_factor(snapshot: Snapshot, assignment: Assignment, places: I32 | None = None) -> float | None:
    """The share of the traffic that stays within a slot; None where no traffic was measured."""
    parts: list[tuple[Traffic, I32]] = []
    if snapshot.key_traffic is not None:
        parts.append((snapshot.key_traffic, locate(snapshot, assignment) if places is None else places))
    if snapshot.group_traffic is not None:
        parts.append((snapshot.group_traffic, assignment.groups))
    total = sum(traffic.total for traffic, _ in parts)
    if total == 0:
        return None
    return sum(traffic.kept_within(slots) for traffic, slots in parts) / total


def delta(snapshot: Snapshot, before: Assignment, after: Assignment) -> Difference:
    """Delta(F, F'): the listed keys that change slot, then the rest of the groups that do, with the state they carry.

    A row of 0 or more is a key's row in the snapshot; -1 - g stands for the unlisted keys of key group g.
    """
    keys = difference(locate(snapshot, before), locate(snapshot, after), snapshot.state_bytes)
    rest = difference(before.groups, after.groups, snapshot.rest_state_bytes)
    there = (snapshot.rest_cost[rest.rows] > 0) | (rest.state_bytes > 0)
    return Difference(
        rows=np.concatenate([keys.rows, -1 - rest.rows[there]]),
        source=np.concatenate([keys.source, rest.source[there]]),
        target=np.concatenate([keys.target, rest.target[there]]),
        state_bytes=np.concatenate([keys.state_bytes, rest.state_bytes[there]]),
    )


def load_index(total_cost: float, initial_cost: float) -> float:
    """albic 5: the system's load now, in percent of its load right after the start."""
    return 100 * total_cost / initial_cost if initial_cost else 100.0
