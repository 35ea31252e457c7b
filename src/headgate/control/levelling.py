"""Key groups on top of keys: levels what a plan for single keys cannot move.

Problem         a planner for keys moves listed keys only; the unlisted ones of a slot's groups stay, and where a key
                hotter than a slot's share lives they come on top of it
Inputs          a plan for keys, the snapshot and limits it was made with
Guarantee       the highest load is no higher than after the plan for keys; table_max and the limits on migration hold
                for both together
Time, space     one run of the planner over the key groups
First appeared  here. Moving a key group costs little in headgate: its state stays where it lies
Deviations      none
Backfires       where state is copied when groups move: then a plan for keys alone moves less. ``level_groups=False``

A listed key that weighs more than ``PIN_SHARE`` of a slot's share is first pinned where it is, so that its group can
leave without it; pins that turn out not to be needed are dropped again. At Zipf 1.0 (100,000 keys, 16 slots) the
hottest key has 1.3 times a slot's share, and the unlisted keys beside it keep a plan for keys at 0.84 of the best
throughput; with the 64 groups of its slot moved elsewhere it reaches 1.00.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.planners.base import Planner
from headgate.planners.plan import Limits, Plan
from headgate.routing.assignment import Assignment, Pins
from headgate.stats.measures import locate, measure
from headgate.stats.snapshot import Snapshot

PIN_SHARE = 0.02
"""Listed keys heavier than this share of a slot's fair load leave their group before the groups are levelled. Of the
default 1,024 groups over 16 slots one weighs 1/64 = 0.016 of that: a heavier key makes its group hard to place."""


@dataclass(frozen=True, slots=True, eq=False)
class Levelled:
    """The assignment after both plans, and the plan for the groups; its ``moves`` come after those for keys."""

    assignment: Assignment
    plan: Plan


def level_groups(
    planner: Planner, snapshot: Snapshot, keys: Plan, assignment: Assignment, limits: Limits
) -> Levelled | None:
    """Level key groups after a plan for keys of ``assignment``. None where that gains nothing."""
    left = left_of(limits, len(keys.moves), keys.figures.migrated_state)
    before = measure(snapshot, keys.assignment)
    pinned = _pin_heavy(snapshot, keys.assignment, before.mean, limits.table_max)
    plan = replace(planner, grain="group").plan(snapshot, pinned, left)
    if plan.changes_nothing or plan.figures.after.max_over_mean >= before.max_over_mean:
        return None
    return Levelled(replace(plan.assignment, version=assignment.version + 1), plan)


def left_of(limits: Limits, moves: int, state_bytes: float) -> Limits:
    """What a plan with so many moves of so much state has left of the limits on migration."""
    if limits.max_migrations is not None:
        return replace(limits, max_migrations=max(0, limits.max_migrations - moves))
    if limits.max_migration_cost is not None:
        return replace(limits, max_migration_cost=max(0.0, limits.max_migration_cost - state_bytes))
    return limits


def _pin_heavy(snapshot: Snapshot, assignment: Assignment, mean: float, table_max: int | None) -> Assignment:
    """Pin heavy listed keys where they are, the heaviest first, as many as the table has room for."""
    free = ~assignment.pinned(snapshot.hash, snapshot.operator)
    heavy = np.flatnonzero(free & (snapshot.cost > PIN_SHARE * mean))
    heavy = heavy[np.argsort(-snapshot.cost[heavy], kind="stable")]
    if table_max is not None:
        heavy = heavy[: max(0, table_max - len(assignment.pins))]
    pins = assignment.pins
    return assignment.next(
        pins=Pins.of(
            np.concatenate([pins.operator, snapshot.operator[heavy]]),
            np.concatenate([pins.hash, snapshot.hash[heavy]]),
            np.concatenate([pins.slot, locate(snapshot, assignment)[heavy]]),
        )
    )
