"""Draining: what leaves besides the items is a move like any other, within the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.planners import MILP, Flux, Limits, Mixed, Planner
from headgate.routing import Assignment, Pins, key_hash
from headgate.stats import Snapshot, delta


@pytest.mark.parametrize("planner", [Flux(), MILP()], ids=lambda p: p.name)
def test_a_pinned_key_stays_when_its_group_moves_although_the_pin_names_the_groups_slot(planner: Planner) -> None:
    keys = ["a", "b", "c", "d"]
    snapshot = Snapshot.of_keys(keys, [10, 10, 1, 1], group=[0, 1, 2, 3], groups=4, state_bytes=[100] * 4)
    pins = Pins.of([0, 0], key_hash(keys)[:2], [0, 0])
    assignment = Assignment(np.array([0, 0, 1, 1], np.int32), 2, pins)
    plan = planner.plan(snapshot, assignment)
    assert plan.figures.after.theta_max <= plan.figures.before.theta_max
    assert plan.figures.migrated_state == delta(snapshot, assignment, plan.assignment).total_bytes


def pinned_to_draining() -> tuple[Snapshot, Assignment]:
    snapshot = Snapshot.of_keys(["a", "b"], [10, 1], group=[0, 1], groups=2, state_bytes=[100, 5])
    pins = Pins.of([0], key_hash(["a"]), [1])
    return snapshot, Assignment(np.array([0, 0], np.int32), 2, pins, frozenset([1]))


def test_a_key_pinned_to_a_draining_slot_leaves_by_a_move_of_its_own() -> None:
    plan = Flux().plan(*pinned_to_draining())
    (move,) = plan.moves
    assert (move.key, move.source, move.target, move.state_bytes) == ("a", 1, 0, 100.0)
    assert move.reason == "slot 1 is draining"
    assert plan.figures.table_size == 0


def test_and_stays_where_the_limit_forbids_it() -> None:
    plan = Flux().plan(*pinned_to_draining(), Limits(max_migrations=0))
    assert plan.changes_nothing
    assert plan.figures.after.loads.tolist() == [1, 10]
    (refused,) = plan.refused
    assert (refused.key, refused.reason) == ("a", "would help, but the limit on migration is reached")


def with_unlisted_keys() -> tuple[Snapshot, Assignment]:
    snapshot = replace(
        Snapshot.of_keys(["a"], [1], group=[0], groups=4, state_bytes=[1]),
        rest_cost=np.array([0, 50.0, 50, 50]),
        rest_state_bytes=np.array([0, 1e6, 2e6, 3e6]),
    )
    return snapshot, Assignment(np.array([0, 1, 1, 1], np.int32), 2, draining=frozenset([1]))


@pytest.mark.parametrize(
    ("limits", "moved", "bytes_moved"),
    [
        pytest.param(Limits(), 3, 6e6, id="no limit: all leave"),
        pytest.param(Limits(max_migrations=0), 0, 0, id="no move allowed"),
        pytest.param(Limits(max_migrations=2), 2, 3e6, id="two moves: those with the least state"),
        pytest.param(Limits(max_migration_cost=10), 0, 0, id="too few bytes for any"),
        pytest.param(Limits(max_migration_cost=3.5e6), 2, 3e6, id="bytes for two"),
    ],
)
def test_unlisted_keys_leave_with_their_group_within_the_limits(limits: Limits, moved: int, bytes_moved: float) -> None:
    snapshot, assignment = with_unlisted_keys()
    plan = Mixed().plan(snapshot, assignment, limits)
    assert len(plan.moves) == moved
    assert len(plan.moves) + len(plan.refused) == 3
    assert plan.figures.migrated_state == bytes_moved
    assert delta(snapshot, assignment, plan.assignment).total_bytes == bytes_moved


def test_pins_of_unlisted_keys_stay_while_nothing_may_move() -> None:
    snapshot = Snapshot.of_keys(["a"], [1], groups=8)
    pins = Pins.of(np.zeros(5), key_hash(["v", "w", "x", "y", "z"]), np.zeros(5))
    assignment = Assignment.hashed(2, 8).next(pins=pins)
    plan = Mixed().plan(snapshot, assignment, Limits(table_max=1, max_migrations=0))
    assert len(plan.assignment.pins) == 5
