"""MinMig, Mixed and Mixed_BF: state, table, and the compact form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitsError
from headgate.planners import LLFD, Limits, MinMig, MinTable, Mixed, MixedBF, Planner
from headgate.planners.items import Items
from headgate.planners.phases import Ground
from headgate.routing import Assignment
from headgate.stats import Snapshot
from headgate.stats.measures import locate


def zipf(keys: int, seed: int, *, intervals: int = 5) -> Snapshot:
    """A skewed interval whose state has another distribution than its load."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) ** 0.85
    weights /= weights.sum()
    cost = random.permutation(random.multinomial(10 * keys, weights))
    state = sum(random.permutation(random.multinomial(10 * keys, weights)) for _ in range(intervals))
    return Snapshot.of_keys(np.arange(keys), cost, state_bytes=np.asarray(state) + 1)


@pytest.mark.parametrize(
    ("beta", "first"),
    [
        pytest.param(1.0, {1: 1.0, 2: 1.0}, id="cost and state weigh alike"),
        pytest.param(0.5, {1: 7**-0.5, 2: 4**-0.5}, id="state weighs more: k2 goes first"),
    ],
)
def test_the_papers_priority_index(beta: float, first: dict[int, float]) -> None:
    """Section III-B: c(k1) = S(k1) = 7, c(k2) = S(k2) = 4."""
    snapshot = Snapshot.of_keys([1, 2], [7.0, 4.0], group=[0, 0], groups=1)
    assignment = Assignment(np.array([0]), 2)
    items = Items.of(snapshot, assignment, "key", Limits(), locate(snapshot, assignment))
    assert Ground.of(items).by_priority(beta).tolist() == pytest.approx(list(first.values()))


def test_minmig_moves_less_state_than_llfd_and_mintable() -> None:
    snapshot, assignment = zipf(20_000, 1), Assignment.hashed(15)
    limits = Limits(theta_max=0.05, table_max=None)
    moved = {p.name: p.plan(snapshot, assignment, limits).figures for p in (LLFD(), MinTable(), MinMig(), Mixed())}
    assert moved["minmig"].migrated_state < 0.8 * moved["llfd"].migrated_state
    assert moved["minmig"].migrated_state < 0.8 * moved["mintable"].migrated_state
    assert moved["mixed"].migrated_state == moved["minmig"].migrated_state
    assert moved["minmig"].table_size > moved["mintable"].table_size
    assert max(figures.after.theta_max for figures in moved.values()) <= 0.05 + 1e-9


def follow(planner: Planner, limits: Limits, intervals: int = 6) -> tuple[Assignment, list[float], list[float]]:
    assignment, thetas, shares = Assignment.hashed(15), [], []
    for interval in range(intervals):
        plan = planner.plan(zipf(5_000, 100 + interval), assignment, limits)
        assignment = plan.assignment
        thetas.append(plan.figures.after.theta_max)
        shares.append(plan.figures.migrated_share)
    return assignment, thetas, shares


def test_mixed_holds_the_table_where_minmig_lets_it_grow() -> None:
    limits = Limits(theta_max=0.03, table_max=150)
    mixed, thetas, _ = follow(Mixed(), limits)
    minmig, _, _ = follow(MinMig(), limits)
    assert len(mixed.pins) <= 150 < len(minmig.pins)
    assert max(thetas) <= 0.03 + 1e-9


def test_a_table_too_small_for_balance_is_held_and_said() -> None:
    snapshot, assignment = zipf(5_000, 3), Assignment.hashed(15)
    plan = Mixed().plan(snapshot, assignment, Limits(theta_max=0.001, table_max=10))
    assert plan.figures.table_size <= 10
    assert plan.figures.after.theta_max <= plan.figures.before.theta_max
    assert len(plan.refused) > 0
    assert plan.refused[0].reason == "would help, but the routing table is full"


def test_brute_force_moves_no_more_state_than_mixed() -> None:
    limits = Limits(theta_max=0.03, table_max=300)
    assignment, _, _ = follow(Mixed(), limits, intervals=4)
    snapshot = zipf(5_000, 200)
    mixed = Mixed().plan(snapshot, assignment, limits)
    every = MixedBF().plan(snapshot, assignment, limits)
    assert every.figures.details["trials"] == len(assignment.pins) + 1
    assert every.figures.migrated_state <= mixed.figures.migrated_state
    assert every.figures.table_size <= 300
    assert every.figures.after.theta_max <= 0.03 + 1e-9


@pytest.mark.parametrize("kind", [Mixed, MinTable, MinMig])
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), degree=st.sampled_from([1, 8, 64]), theta=st.sampled_from([0.02, 0.08]))
def test_the_compact_form_balances_as_well(kind: type[Planner], seed: int, degree: int, theta: float) -> None:
    snapshot, assignment = zipf(3_000, seed), Assignment.hashed(8)
    plan = kind(degree=degree).plan(snapshot, assignment, Limits(theta_max=theta))  # type: ignore[call-arg]
    assert plan.figures.after.theta_max <= theta + 1e-9


def test_records_are_far_fewer_than_keys() -> None:
    plan = Mixed(degree=8).plan(zipf(50_000, 5), Assignment.hashed(15))
    assert plan.figures.details["records"] < 50_000 / 10


def test_the_compact_form_moves_about_as_much_state() -> None:
    snapshot, assignment = zipf(50_000, 9), Assignment.hashed(15)
    exact, compact = (Mixed(degree=degree).plan(snapshot, assignment).figures for degree in (None, 8))
    assert compact.migrated_state <= 1.2 * exact.migrated_state


@pytest.mark.parametrize("kind", [MinMig, Mixed, MixedBF])
def test_a_senseless_beta_is_refused(kind: type[Planner]) -> None:
    with pytest.raises(LimitsError, match=r"beta must be a number from 0 up .* got -1"):
        kind(beta=-1)  # type: ignore[call-arg]


def test_brute_force_needs_a_try() -> None:
    with pytest.raises(LimitsError, match="tries must be at least 1"):
        MixedBF(tries=0)
