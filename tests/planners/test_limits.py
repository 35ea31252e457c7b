"""Limits: the errors a person reads, and how refusals are told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headgate.errors import AssignmentError, HeadgateError, LimitsError
from headgate.planners import LLFD, MILP, Flux, Limits, Mixed, Simple
from headgate.routing import Assignment
from headgate.stats import Snapshot

BAD = [
    pytest.param(
        {"theta_max": -0.1}, r"theta_max must be zero or more \(a share of the mean load\), got -0.1", id="theta"
    ),
    pytest.param({"table_max": -1}, r"table_max must be zero or more \(pins\), got -1", id="table"),
    pytest.param({"max_migrations": -2}, r"max_migrations must be zero or more \(moves\), got -2", id="migrations"),
    pytest.param({"theta_max": float("nan")}, r"theta_max must be zero or more", id="not a number"),
    pytest.param(
        {"max_migrations": 3, "max_migration_cost": 5.0},
        r"give max_migrations or max_migration_cost, not both: got 3 migrations and a cost of 5.0",
        id="both migration limits",
    ),
    pytest.param({"caps": {"memory": -1.0}}, r"the cap on 'memory' must be zero or more", id="a negative cap"),
]


@pytest.mark.parametrize(("limits", "text"), BAD)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, object], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        Limits(**limits)  # type: ignore[arg-type]


def skewed() -> tuple[Snapshot, Assignment]:
    return Snapshot.of_keys(np.arange(100), 100.0 / np.arange(1, 101), groups=32), Assignment.hashed(4, 32)


def test_a_cap_on_something_not_measured_is_refused() -> None:
    with pytest.raises(LimitsError, match=r"names the resource 'memory'.* \(it has: state_bytes\)"):
        LLFD().plan(*skewed(), Limits(caps={"memory": 5.0}))


def test_snapshot_and_assignment_must_count_the_same_groups() -> None:
    snapshot, _ = skewed()
    with pytest.raises(AssignmentError, match="counts 32 key groups and the assignment places 64"):
        LLFD().plan(snapshot, Assignment.hashed(4, 64))


def test_there_must_be_one_capacity_per_slot() -> None:
    snapshot = Snapshot.of_keys(["a"], [1], groups=8, capacity=[1, 1])
    with pytest.raises(AssignmentError, match="one capacity per slot: expected 3, got 2"):
        LLFD().plan(snapshot, Assignment.hashed(3, 8))


def test_every_error_is_a_headgate_error() -> None:
    for kind in (LimitsError, AssignmentError):
        assert issubclass(kind, HeadgateError)
        assert issubclass(kind, ValueError)


def test_moves_past_the_limit_are_refused_with_the_reason() -> None:
    snapshot, assignment = skewed()
    free = LLFD().plan(snapshot, assignment, Limits(theta_max=0.01))
    bound = LLFD().plan(snapshot, assignment, Limits(theta_max=0.01, max_migrations=2))
    assert len(bound.moves) == 2
    assert len(bound.moves) + len(bound.refused) == len(free.moves)
    assert {move.reason for move in bound.refused} == {"would help, but the limit on migration is reached"}
    assert bound.figures.after.theta_max < bound.figures.before.theta_max


def test_a_planner_without_a_grip_on_the_table_says_so() -> None:
    plan = Simple().plan(*skewed(), Limits(table_max=3))
    assert f"has {plan.figures.table_size} entries, more than table_max = 3" in plan.figures.warnings[0]


def test_a_table_that_cannot_shrink_fast_enough_is_said() -> None:
    snapshot, assignment = skewed()
    long = LLFD().plan(snapshot, assignment, Limits(theta_max=0.0, table_max=None)).assignment
    assert len(long.pins) > 4
    plan = Mixed().plan(snapshot, long, Limits(theta_max=0.5, table_max=2, max_migrations=1))
    assert len(plan.moves) <= 1
    assert "the limit on migration leaves no more moves to shorten it with" in plan.figures.warnings[0]


def test_moves_can_be_sliced_and_indexed() -> None:
    plan = LLFD().plan(*skewed(), Limits(theta_max=0.01))
    assert plan.moves[-1] == plan.moves[len(plan.moves) - 1]
    assert plan.moves[:2] == [plan.moves[0], plan.moves[1]]
    with pytest.raises(IndexError):
        plan.moves[len(plan.moves)]


def test_a_cap_that_a_planner_does_not_look_at_is_said_when_exceeded() -> None:
    snapshot = Snapshot.of_keys(np.arange(8), np.ones(8), group=np.zeros(8), groups=1, resources={"memory": np.ones(8)})
    plan = LLFD().plan(snapshot, Assignment(np.zeros(1, np.int32), 2), Limits(caps={"memory": 3.0}))
    (warning,) = plan.figures.warnings
    assert warning.startswith("2 of 2 slots use more memory than their cap, slot 0 the most with 4")


@pytest.mark.parametrize("grain", ["key", "group"])
def test_a_cap_on_state_counts_the_unlisted_keys_too(grain: str) -> None:
    # Group 0 has 60 bytes of unlisted keys beside key a; slot 0 may hold 50.
    snapshot = Snapshot.of_keys(["a"], [1.0], state_bytes=[10], group=[0], groups=2)
    snapshot = replace(snapshot, rest_state_bytes=np.array([60.0, 0.0]))
    limits = Limits(caps={"state_bytes": 50.0}, theta_max=10)
    plan = MILP(grain=grain).plan(snapshot, Assignment(np.array([0, 1], np.int32), 2), limits)  # type: ignore[arg-type]
    assert any("slots use more state_bytes than their cap" in warning for warning in plan.figures.warnings)


def test_a_cap_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(LimitsError, match="the cap on 'memory' must be zero or more"):
        Limits(caps={"memory": [1.0, float("nan")]})


def test_half_a_move_is_refused() -> None:
    with pytest.raises(LimitsError, match=r"max_migrations must be a whole number, got 1.5"):
        Limits(max_migrations=1.5)  # type: ignore[arg-type]


def test_a_grain_nobody_knows_is_refused() -> None:
    with pytest.raises(LimitsError, match=r'grain must be "key" or "group", got keys'):
        LLFD(grain="keys").plan(*skewed())  # type: ignore[arg-type]


def test_a_hot_group_is_named_with_its_heaviest_key() -> None:
    snapshot = Snapshot.of_keys(["hot", "warm", "cold"], [100.0, 5, 1], group=[0, 0, 1], groups=2)
    plan = Flux().plan(snapshot, Assignment(np.array([0, 1], np.int32), 2))
    assert plan.figures.warnings[0].startswith("key group 0 (its heaviest key is 'hot') alone costs 1.98 times")
