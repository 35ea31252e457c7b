"""The units a planner places: one row each, whether keys or key groups.

Planners see nothing but this. At the grain of keys, the items are the listed keys and ``fixed_cost`` is what the rest
of the groups costs where it is; at the grain of groups, the items are the groups with all their unpinned keys, and
``fixed_cost`` is what the pinned keys cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, sums
from headgate.errors import AssignmentError, LimitsError
from headgate.planners.evacuation import Evacuation
from headgate.planners.plan import Grain, Limits
from headgate.routing.assignment import Assignment
from headgate.routing.groups import home_slots
from headgate.stats.measures import Balance, balance_of, capacities
from headgate.stats.snapshot import Snapshot, Traffic


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A secondary resource: what each item uses, what the fixed part of each slot uses, and the cap of each slot."""

    used: F64
    fixed: F64
    cap: F64


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Units to place, by column.

    ``rows``      the snapshot's row of each key, or the number of each group
    ``home``      where the item goes when nobody places it: the slot of its group, or at the grain of groups the slot
                  it has now. Never a draining slot
    ``base``      the slot of every key group; differs from the assignment's groups only for groups that leave a
                  draining slot, if the limits let their unlisted keys go
    """

    grain: Grain
    rows: I64
    group: I32
    operator: I32
    cost: F64
    state_bytes: F64
    current: I32
    home: I32
    base: I32
    fixed_cost: F64
    capacity: F64
    is_open: Bool
    resources: Mapping[str, Resource]
    traffic: Traffic | None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def slots(self) -> int:
        return len(self.capacity)

    @property
    def total_cost(self) -> float:
        return float(self.cost.sum() + self.fixed_cost.sum())

    @property
    def mean(self) -> float:
        """The load every open slot would have if the cost were spread perfectly."""
        return self.total_cost / float(self.capacity[self.is_open].sum())

    @property
    def least_overload(self) -> float:
        """What the heaviest item alone puts on the strongest slot over the mean, as a share of it: no placement leaves
        less. Negative where it is lighter than a slot's share."""
        if not len(self) or self.mean == 0:
            return -1.0
        return float(self.cost.max()) / float(self.capacity[self.is_open].max()) / self.mean - 1

    def slot_costs(self, places: I32) -> F64:
        """The cost of each slot with the items at these places."""
        return sums(places, self.cost, self.slots) + self.fixed_cost

    def balance(self, places: I32) -> Balance:
        return balance_of(self.slot_costs(places), self.capacity, self.is_open)

    def on_draining(self) -> Bool:
        """True for each item that must leave because its slot drains."""
        if self.is_open.all():
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.is_open[self.current]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        assignment: Assignment,
        grain: Grain,
        limits: Limits,
        places: I32,
        evacuation: Evacuation | None = None,
    ) -> Items:
        """The items of a snapshot; ``places`` is F(k) of its keys."""
        evacuation = evacuation or Evacuation.of(snapshot, assignment, grain, limits, places)
        make = _key_items if grain == "key" else _group_items
        return make(snapshot, assignment, limits, rehomed(assignment), places, evacuation)


def check_fit(snapshot: Snapshot, assignment: Assignment, limits: Limits) -> None:
    """Raise ``InputError`` where snapshot, assignment and limits do not fit each other."""
    if snapshot.groups != len(assignment.groups):
        raise AssignmentError.groups(snapshot.groups, len(assignment.groups))
    if snapshot.capacity is not None and len(snapshot.capacity) != assignment.slots:
        raise AssignmentError.capacity_count(assignment.slots, len(snapshot.capacity))
    for name in limits.caps:
        if name not in _measured(snapshot):
            raise LimitsError.unknown_resource(name, list(_measured(snapshot)))


def rehomed(assignment: Assignment) -> I32:
    """The slot of each group, with those of draining slots sent to the slot they would have without the draining."""
    is_open = assignment.open_slots
    leaving = ~is_open[assignment.groups]
    if not leaving.any():
        return assignment.groups
    size = assignment.groups_per_operator
    homes = home_slots(size, assignment.slots, is_open.astype(float), operators=assignment.operators)
    return np.where(leaving, homes, assignment.groups).astype(np.int32)


def _key_items(
    snapshot: Snapshot, assignment: Assignment, limits: Limits, homes: I32, current: I32, evacuation: Evacuation
) -> Items:
    base = homes
    if len(evacuation.kept_groups):
        base = np.array(homes)
        base[evacuation.kept_groups] = assignment.groups[evacuation.kept_groups]
    return Items(
        grain="key",
        rows=np.arange(len(snapshot)),
        group=snapshot.group,
        operator=snapshot.operator,
        cost=snapshot.cost,
        state_bytes=snapshot.state_bytes,
        current=current,
        home=homes[snapshot.group],
        base=base,
        fixed_cost=sums(base, snapshot.rest_cost, assignment.slots),
        capacity=capacities(snapshot, assignment.slots),
        is_open=assignment.open_slots,
        resources={
            name: Resource(used, sums(base, rest, assignment.slots), _cap(name, limits, assignment.slots))
            for name, (used, rest) in _measured(snapshot).items()
            if name in limits.caps
        },
        traffic=snapshot.key_traffic,
    )


def _group_items(
    snapshot: Snapshot, assignment: Assignment, limits: Limits, base: I32, current: I32, evacuation: Evacuation
) -> Items:
    pinned = assignment.pinned(snapshot.hash, snapshot.operator)
    pinned[evacuation.keys] = False
    pinned[evacuation.loose] = False
    free, groups, slots = ~pinned, snapshot.groups, assignment.slots

    def per_group(values: F64, rest: F64) -> F64:
        return sums(snapshot.group[free], values[free], groups) + rest

    cost = per_group(snapshot.cost, snapshot.rest_cost)
    # The state of a key that joins its group from elsewhere is carried by a move of its own.
    carried = np.array(snapshot.state_bytes)
    carried[evacuation.keys] = 0.0
    state = per_group(carried, snapshot.rest_state_bytes)
    capped = {name: columns for name, columns in _measured(snapshot).items() if name in limits.caps}
    use = {name: per_group(used, rest) for name, (used, rest) in capped.items()}
    matters = (cost > 0) | (state > 0) | ~assignment.open_slots[assignment.groups]
    for values in use.values():
        matters |= values > 0
    rows = np.flatnonzero(matters)
    number_of = np.full(groups, -1, dtype=np.int64)
    number_of[rows] = np.arange(len(rows))
    resources = {
        name: Resource(use[name][rows], sums(current[pinned], used[pinned], slots), _cap(name, limits, slots))
        for name, (used, _) in capped.items()
    }
    return Items(
        grain="group",
        rows=rows,
        group=rows.astype(np.int32),
        operator=(rows // assignment.groups_per_operator).astype(np.int32),
        cost=cost[rows],
        state_bytes=state[rows],
        current=assignment.groups[rows],
        home=base[rows],
        base=base,
        fixed_cost=sums(current[pinned], snapshot.cost[pinned], slots),
        capacity=capacities(snapshot, slots),
        is_open=assignment.open_slots,
        resources=resources,
        traffic=_group_traffic(snapshot, number_of),
    )


def _group_traffic(snapshot: Snapshot, number_of: I64) -> Traffic | None:
    parts = []
    if snapshot.key_traffic is not None:
        parts.append(snapshot.key_traffic.between(snapshot.group))
    if snapshot.group_traffic is not None:
        parts.append(snapshot.group_traffic)
    if not parts:
        return None
    source = number_of[np.concatenate([part.source for part in parts])]
    target = number_of[np.concatenate([part.target for part in parts])]
    rate = np.concatenate([part.rate for part in parts])
    known = (source >= 0) & (target >= 0)
    return Traffic.of(source[known], target[known], rate[known])


def _measured(snapshot: Snapshot) -> dict[str, tuple[F64, F64]]:
    """What each listed key, and the rest of each group, use of every resource; the state is one, by its own name."""
    none = np.zeros(snapshot.groups)
    return {
        "state_bytes": (snapshot.state_bytes, snapshot.rest_state_bytes),
        **{name: (used, none) for name, used in snapshot.resources.items()},
    }


def _cap(name: str, limits: Limits, slots: int) -> F64:
    cap = np.asarray(limits.caps[name], dtype=np.float64)
    if cap.ndim == 0:
        return np.full(slots, float(cap))
    if cap.shape != (slots,):
        raise LimitsError.cap_count(name, slots, cap.size)
    return cap
