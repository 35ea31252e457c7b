"""Flux: decisions worked out by hand, then properties over random clusters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.planners.flux import Flux, level
from headgate.planners.plan import Limits
from headgate.routing.assignment import Assignment
from headgate.stats.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Case:
    cost: list[float]
    at: list[int]
    slots: int
    moves: list[tuple[int, int, int]]
    """(group, source, target), in the order of the groups."""
    limits: Limits = field(default_factory=lambda: Limits(theta_max=0.0))
    state: list[float] | None = None
    capacity: list[float] | None = None
    draining: tuple[int, ...] = ()


CASES = {
    "nothing to do when all slots are level": Case(cost=[2, 2, 2], at=[0, 1, 2], slots=3, moves=[]),
    "the biggest group that lowers the spread moves, not the biggest": Case(
        cost=[20, 3, 2, 1, 10], at=[0, 0, 0, 0, 1], slots=2, moves=[(1, 0, 1), (2, 0, 1), (3, 0, 1)]
    ),
    "the second gives to the second last": Case(
        cost=[10, 3, 10.5, 1, 10, 8.5], at=[0, 0, 1, 1, 2, 3], slots=4, moves=[(1, 0, 3), (3, 1, 2)]
    ),
    "nothing moves within theta_max": Case(
        cost=[5, 1, 5], at=[0, 0, 1], slots=2, moves=[], limits=Limits(theta_max=0.1)
    ),
    "stops when theta_max is met": Case(
        cost=[4, 1, 1, 1, 1], at=[0, 0, 0, 0, 1], slots=2, moves=[(0, 0, 1)], limits=Limits(theta_max=0.5)
    ),
    "stops when the moves are used up": Case(
        cost=[1, 1, 1, 1, 1, 1],
        at=[0] * 6,
        slots=2,
        moves=[(0, 0, 1), (1, 0, 1)],
        limits=Limits(theta_max=0.0, max_migrations=2),
    ),
    "a group with too much state is passed over for a smaller one": Case(
        cost=[3, 2, 4, 1],
        state=[100, 5, 100, 1],
        at=[0, 0, 0, 1],
        slots=2,
        moves=[(1, 0, 1)],
        limits=Limits(theta_max=0.0, max_migration_cost=5),
    ),
    "a slot of twice the capacity is level with twice the cost": Case(
        cost=[2, 2, 2, 2, 2, 2], at=[0, 0, 0, 1, 1, 1], slots=2, capacity=[2.0, 1.0], moves=[(3, 1, 0)]
    ),
    "a draining slot gives its biggest group to the least loaded": Case(
        cost=[5, 3, 4, 1],
        at=[0, 0, 1, 2],
        slots=3,
        draining=(0,),
        moves=[(0, 0, 2), (1, 0, 1)],
        limits=Limits(theta_max=1.0),
    ),
    "draining and levelling take turns under a limit": Case(
        cost=[2, 2, 6, 2, 2, 1],
        at=[0, 0, 1, 1, 1, 2],
        slots=3,
        draining=(0,),
        moves=[(0, 0, 2), (2, 1, 2)],
        limits=Limits(theta_max=0.0, max_migrations=2),
    ),
    "a hot group that no move can help stays": Case(cost=[100, 1, 1], at=[0, 1, 2], slots=3, moves=[]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_decides(case: Case) -> None:
    snapshot = Snapshot.of_groups(case.cost, state_bytes=case.state, capacity=case.capacity)
    assignment = Assignment(np.array(case.at, dtype=np.int32), case.slots, draining=frozenset(case.draining))
    plan = Flux().plan(snapshot, assignment, case.limits)
    assert [(move.group, move.source, move.target) for move in plan.moves] == case.moves


def test_says_why() -> None:
    snapshot = Snapshot.of_groups([2.0, 2.0, 3.0, 1.0])
    plan = Flux().plan(snapshot, Assignment(np.array([0, 0, 0, 1]), 3, draining=frozenset({1})), Limits(theta_max=0.0))
    assert {move.group: move.reason for move in plan.moves} == {
        2: "brings slot 0, 75.0% over, and slot 2, 100.0% under, closer to the mean",
        3: "slot 1 is draining",
    }


@st.composite
def clusters(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    slots = draw(st.integers(1, 5))
    items = draw(st.integers(1, 20))
    cost = np.array(draw(st.lists(st.integers(0, 20), min_size=items, max_size=items)), dtype=float)
    price = np.array(draw(st.lists(st.integers(0, 5), min_size=items, max_size=items)), dtype=float)
    at = np.array(draw(st.lists(st.integers(0, slots - 1), min_size=items, max_size=items)), dtype=np.int32)
    capacity = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=slots, max_size=slots)))
    is_open = np.array(draw(st.lists(st.booleans(), min_size=slots, max_size=slots)))
    is_open[draw(st.integers(0, slots - 1))] = True
    return cost, price, at, capacity, is_open


@settings(max_examples=150, deadline=None)
@given(clusters(), st.one_of(st.none(), st.integers(0, 20)))
def test_holds_the_limit_never_fills_a_draining_slot_and_lowers_the_spread(
    cluster: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], budget: int | None
) -> None:
    cost, price, at, capacity, is_open = cluster
    mean = cost.sum() / capacity[is_open].sum()
    after = level(cost, price, at, np.zeros(len(capacity)), capacity, is_open, mean, 0.0, budget)
    moved = after != at
    assert is_open[after[moved]].all()
    if budget is None:
        assert is_open[after].all()
    else:
        assert price[moved].sum() <= budget

    def spread(places: np.ndarray) -> float:
        return float(((np.bincount(places, cost, len(capacity)) / capacity - mean) ** 2).sum())

    if is_open.all():
        assert spread(after) <= spread(at) * (1 + 1e-9)
