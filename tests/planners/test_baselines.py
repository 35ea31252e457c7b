"""Hash, Simple, LPTF, DLB and Readj: what each does on small cases worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LimitsError
from headgate.planners import DLBH, DLBL, LPTF, Hash, Limits, Planner, Readj, Simple
from headgate.routing import Assignment, pins_from
from headgate.stats import Snapshot


def placed(slots: dict[int, list[float]]) -> tuple[Snapshot, Assignment]:
    """Keys named s<slot>-<position>, each a key group of its own, in the slots given."""
    names = [f"s{slot}-{index}" for slot, costs in slots.items() for index in range(len(costs))]
    where = [slot for slot, costs in slots.items() for _ in costs]
    costs = [cost for row in slots.values() for cost in row]
    snapshot = Snapshot.of_keys(names, costs, group=np.arange(len(names)), groups=len(names))
    return snapshot, Assignment(np.array(where), len(slots))


MOVES = [
    pytest.param(
        DLBH(imbalance_percent=1),
        {0: [8, 2], 1: [4], 2: [7]},
        {"s0-1": 1},
        id="dlb-h takes the heaviest key that helps, not the heaviest",
    ),
    pytest.param(
        DLBL(imbalance_percent=1),
        {0: [6, 2, 1], 1: [3], 2: [6]},
        {"s0-1": 1, "s0-2": 1},
        id="dlb-l takes the lightest keys one by one",
    ),
    pytest.param(DLBH(), {0: [10, 2], 1: [10], 2: [11]}, {}, id="dlb does nothing under its threshold"),
    pytest.param(LPTF(), {0: [10, 2], 1: [10], 2: [11]}, {}, id="lptf does nothing under its threshold"),
    pytest.param(LPTF(), {0: [5, 4, 3], 1: [1]}, {"s0-1": 1, "s0-2": 1, "s1-0": 0}, id="lptf packs all anew"),
    pytest.param(Simple(), {0: [5, 4, 3], 1: [1]}, {"s0-1": 1, "s0-2": 1, "s1-0": 0}, id="simple packs all anew"),
    pytest.param(Readj(), {0: [7, 5], 1: [4, 2]}, {"s0-0": 1, "s1-0": 0}, id="readj swaps 7 for 4: 9 and 9"),
    pytest.param(Readj(), {0: [4, 4, 4], 1: [4]}, {"s0-0": 1}, id="readj moves a key where no swap is better"),
]


@pytest.mark.parametrize(("planner", "slots", "expected"), MOVES)
def test_which_keys_move(planner: Planner, slots: dict[int, list[float]], expected: dict[str, int]) -> None:
    plan = planner.plan(*placed(slots), Limits(theta_max=0.01, table_max=None))
    assert {move.key: move.target for move in plan.moves} == expected


def test_hash_sends_pinned_keys_home() -> None:
    snapshot = Snapshot.of_keys(["a", "b"], [1, 1], groups=16)
    home = Assignment.hashed(4, 16)
    pinned = home.next(pins=pins_from({int(snapshot.hash[0]): (int(home.route(snapshot.hash)[0]) + 1) % 4}))
    plan = Hash().plan(snapshot, pinned)
    assert [move.key for move in plan.moves] == ["a"]
    assert plan.assignment.route(snapshot.hash).tolist() == home.route(snapshot.hash).tolist()
    assert plan.figures.table_size == 0


def best_possible(costs: list[int], slots: int) -> float:
    """Brute force: the lowest greatest load of any placement."""
    return min(
        max(sum(c for c, s in zip(costs, choice, strict=True) if s == slot) for slot in range(slots))
        for choice in itertools.product(range(slots), repeat=len(costs))
    )


@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.integers(1, 3))
def test_simple_is_within_four_thirds_of_the_best_placement(costs: list[int], slots: int) -> None:
    snapshot = Snapshot.of_keys(np.arange(len(costs)), costs, group=np.zeros(len(costs)), groups=1)
    plan = Simple().plan(snapshot, Assignment(np.array([0]), slots), Limits(theta_max=0, table_max=None))
    best = best_possible(costs, slots)
    assert best <= plan.figures.after.loads.max() <= (4 / 3 - 1 / (3 * slots)) * best + 1e-9


@given(st.lists(st.integers(1, 40), min_size=4, max_size=40), st.integers(2, 5), st.sampled_from([0.0, 0.001, 0.1]))
def test_readj_finds_the_same_swaps_both_ways(costs: list[int], slots: int, sigma: float) -> None:
    snapshot = Snapshot.of_keys(np.arange(len(costs)), [c + 0.001 * i for i, c in enumerate(costs)], groups=32)
    assignment = Assignment.hashed(slots, 32)
    limits = Limits(theta_max=0.02, table_max=None)
    nearest = Readj(sigma=sigma).plan(snapshot, assignment, limits)
    every = Readj(sigma=sigma, swaps="every").plan(snapshot, assignment, limits)
    assert nearest.figures.after.theta_max == pytest.approx(every.figures.after.theta_max, abs=1e-3)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=40), st.integers(2, 5))
def test_dlb_never_raises_the_spread(costs: list[int], slots: int) -> None:
    snapshot = Snapshot.of_keys(np.arange(len(costs)), costs, groups=32)
    for planner in (DLBL(imbalance_percent=2), DLBH(imbalance_percent=2)):
        figures = planner.plan(snapshot, Assignment.hashed(slots, 32), Limits(table_max=None)).figures
        assert figures.after.rsd <= figures.before.rsd + 1e-9


def test_readj_needs_a_sensible_sigma() -> None:
    with pytest.raises(LimitsError, match=r"sigma must be a share of the mean load, or None to search, got -0.1"):
        Readj(sigma=-0.1)
