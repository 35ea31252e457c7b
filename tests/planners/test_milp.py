"""MILP: against brute force, against HiGHS, and the promises it makes: limits, bound, lemmas, no idle moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitsError, SolverError
from headgate.planners.allocation import Problem, Score, model, solve
from headgate.planners.allocation.bound import lower_bound
from headgate.planners.allocation.classes import ClassBound
from headgate.planners.allocation.model import solve_exactly
from headgate.planners.allocation.polish import without_idle
from headgate.planners.flux import Flux, level
from headgate.planners.items import Items, Resource
from headgate.planners.milp import MILP
from headgate.planners.plan import Limits
from headgate.routing.assignment import Assignment
from headgate.stats.measures import locate
from headgate.stats.snapshot import Snapshot
from headgate.workloads.clusters import cluster

SLACK = 1e-7
"""Share of the mean within which distances count as equal: HiGHS' tolerance, and a little."""


def problem_of(
    cost: list[float],
    at: list[int],
    slots: int,
    *,
    price: list[float] | None = None,
    budget: float | None = None,
    capacity: list[float] | None = None,
    draining: tuple[int, ...] = (),
    fixed: list[float] | None = None,
    pinned: list[int] | None = None,
    resources: dict[str, Resource] | None = None,
) -> Problem:
    is_open = np.ones(slots, dtype=np.bool_)
    is_open[list(draining)] = False
    return Problem(
        cost=np.array(cost, dtype=float),
        price=np.array(price if price is not None else np.ones(len(cost)), dtype=float),
        state=np.array(cost, dtype=float),
        current=np.array(at, dtype=np.int32),
        fixed_cost=np.array(fixed if fixed is not None else np.zeros(slots), dtype=float),
        capacity=np.array(capacity if capacity is not None else np.ones(slots), dtype=float),
        is_open=is_open,
        budget=budget,
        pinned=None if pinned is None else np.array(pinned, dtype=np.int32),
        resources=resources or {},
    )


def best_by_force(problem: Problem, *, emptied: bool = False) -> tuple[Score, float]:
    """The best score of all placements, and the least load distance over the open slots alone.

    ``emptied``: only placements that leave nothing on draining slots, save what is pinned there.
    """
    free = np.ones(len(problem), dtype=np.bool_) if problem.pinned is None else problem.pinned < 0
    best: Score | None = None
    least = np.inf
    for choice in product(range(problem.slots), repeat=len(problem)):
        places = np.array(choice, dtype=np.int32)
        if not problem.admits(places) or (emptied and not problem.is_open[places[free]].all()):
            continue
        score = problem.score(places)
        off = problem.loads(places) - problem.mean
        if score.excess == 0:
            least = min(least, float(np.abs(off[problem.is_open]).max()))
        if best is None or problem.is_better(score, best):
            best = score
    assert best is not None
    return best, least


@st.composite
def small_problems(draw: st.DrawFn, capped: bool = False, pins: bool = False) -> Problem:
    slots = draw(st.integers(2, 3))
    items = draw(st.integers(1, 6))
    values = st.lists(st.integers(0, 12), min_size=items, max_size=items)
    is_priced = draw(st.booleans())
    at = draw(st.lists(st.integers(0, slots - 1), min_size=items, max_size=items))
    price = draw(values) if is_priced else [1] * items
    budget = draw(st.one_of(st.none(), st.integers(0, 20 if is_priced else 4)))
    pinned = None
    if pins:
        pinned = [draw(st.sampled_from([-1, -1, slot])) for slot in at]
    resources = {}
    if capped:
        used = np.array(draw(values), dtype=float)
        resources["memory"] = Resource(used, np.zeros(slots), np.full(slots, float(draw(st.integers(4, 30)))))
    return problem_of(
        [float(value) for value in draw(values)],
        at,
        slots,
        price=[float(value) for value in price],
        budget=budget,
        capacity=draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=slots, max_size=slots)),
        draining=draw(st.sampled_from([(), (), (1,)])),
        fixed=[float(draw(st.sampled_from([0, 0, 3]))) for _ in range(slots)],
        pinned=pinned,
        resources=resources,
    )


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_finds_what_brute_force_finds_and_its_bound_holds(problem: Problem) -> None:
    if problem.mean == 0:
        return
    best, least = best_by_force(problem, emptied=problem.budget is None)
    solution = solve(problem, time_limit_seconds=0.5)
    slack = SLACK * problem.mean
    assert solution.is_forced or solution.score.distance == pytest.approx(best.distance, abs=slack)
    assert solution.bound <= best.distance + slack
    assert solution.open_bound <= least + slack
    assert problem.admits(solution.places)
    if problem.is_open.all():
        assert solution.score.spread == pytest.approx(best.spread, abs=1e-3 * problem.mean)


@settings(max_examples=120, deadline=None)
@given(small_problems())
def test_counting_bound_holds_for_every_placement(problem: Problem) -> None:
    if problem.mean == 0:
        return
    best, least = best_by_force(problem)
    assert lower_bound(problem) <= best.distance + 1e-9 * problem.mean
    assert lower_bound(problem, judge_draining=False) <= least + 1e-9 * problem.mean
    if problem.budget is not None:
        slack = 1e-8 * problem.mean
        assert not ClassBound(problem).refutes(best.distance + slack)
        assert not ClassBound(problem, judge_draining=False).refutes(least + slack)
        assert ClassBound(problem).raised(0.0, best.distance, 20) <= best.distance + slack


def test_counting_light_items_apart_refutes_more() -> None:
    """One slot must trade for an item lighter than any but those of the lightest slots, who would need another move."""
    state = cluster(40, 800, 20, varies=44, seed=5)
    snapshot = state.snapshot
    problem = problem_of(snapshot.group_cost().tolist(), state.assignment.groups.tolist(), 40, budget=17)
    assert lower_bound(problem) == pytest.approx(0.5778, abs=1e-3)
    assert ClassBound(problem).refutes(0.597)
    assert not ClassBound(problem).refutes(0.598)
    assert solve(problem, time_limit_seconds=1.0).is_proven


@settings(max_examples=25, deadline=None)
@given(small_problems(capped=True))
def test_holds_caps_where_they_can_be_held(problem: Problem) -> None:
    if problem.mean == 0:
        return
    best, _ = best_by_force(problem, emptied=problem.budget is None)
    solution = solve(problem, time_limit_seconds=0.5)
    if best.excess == 0:
        assert solution.score.excess == 0
        assert solution.is_forced or solution.score.distance == pytest.approx(best.distance, abs=SLACK * problem.mean)
    elif problem.is_open.all():
        assert solution.score.excess <= problem.excess(problem.start)


@settings(max_examples=25, deadline=None)
@given(small_problems(pins=True))
def test_pinned_items_are_where_they_must_be(problem: Problem) -> None:
    if problem.mean == 0:
        return
    solution = solve(problem, time_limit_seconds=0.1)
    assert problem.admits(solution.places)
    best, _ = best_by_force(problem, emptied=problem.budget is None)
    assert solution.bound <= best.distance + SLACK * problem.mean
    assert solution.is_forced or solution.score.distance == pytest.approx(best.distance, abs=SLACK * problem.mean)


@st.composite
def medium_problems(draw: st.DrawFn) -> Problem:
    """Four slots of some twenty items with costs of all kinds."""
    seed = draw(st.integers(0, 2**20))
    random = np.random.default_rng(seed)
    items = draw(st.integers(12, 20))
    kind = draw(st.sampled_from(["alike", "skewed", "equal"]))
    cost = {
        "alike": 1 + random.uniform(-0.05, 0.05, items),
        "skewed": random.lognormal(0, 1, items),
        "equal": np.ones(items),
    }[kind]
    return problem_of(
        cost.tolist(),
        random.integers(0, 4, items).tolist(),
        4,
        budget=draw(st.sampled_from([1, 2, 3, 4])),
        draining=draw(st.sampled_from([(), (3,)])),
    )


@settings(max_examples=15, deadline=None)
@given(medium_problems())
def test_agrees_with_the_full_model_solved_to_the_end(problem: Problem) -> None:
    exact = solve_exactly(problem)
    assert exact.is_proven
    assert exact.places is not None
    optimum = problem.score(exact.places).distance
    slack = SLACK * problem.mean
    assert exact.bound <= optimum + slack
    assert lower_bound(problem) <= optimum + slack
    assert not ClassBound(problem).refutes(optimum + slack)
    solution = solve(problem, time_limit_seconds=0.5)
    if not solution.is_forced:
        assert solution.score.distance == pytest.approx(optimum, abs=slack)
        assert solution.is_proven


@settings(max_examples=20, deadline=None)
@given(medium_problems())
def test_never_worse_than_staying_nor_than_flux(problem: Problem) -> None:
    solution = solve(problem, time_limit_seconds=0.01)
    flux = level(
        problem.cost,
        problem.price,
        problem.current,
        problem.fixed_cost,
        problem.capacity,
        problem.is_open,
        problem.mean,
        0.0,
        problem.budget,
    )
    for other in (problem.current, flux):
        assert solution.is_forced or not problem.is_better(problem.score(other), solution.score)


@settings(max_examples=20, deadline=None)
@given(medium_problems())
def test_lemma_1_nothing_moves_to_a_slot_that_drains(problem: Problem) -> None:
    solution = solve(problem, time_limit_seconds=0.05)
    moved = solution.places != problem.current
    assert problem.is_open[solution.places[moved]].all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**20))
def test_lemma_2_the_least_distance_leaves_draining_slots_empty(seed: int) -> None:
    random = np.random.default_rng(seed)
    problem = problem_of(
        random.uniform(0.5, 1.5, 12).tolist(), random.integers(0, 4, 12).tolist(), 4, draining=(3,), budget=None
    )
    solution = solve(problem, time_limit_seconds=0.05)
    assert solution.score.stranded == 0
    # What stays on draining slots is missing from the others: some slot is that far below the mean.
    for places in (problem.current, solution.places):
        missing = problem.cost[~problem.is_open[places]].sum() / problem.capacity[problem.is_open].sum()
        assert problem.score(places).distance >= missing * (1 - 1e-9)


def test_a_draining_slot_is_emptied_over_several_plans() -> None:
    cost = [2.0] * 12
    assignment = Assignment(np.arange(12, dtype=np.int32) % 4, 4, draining=frozenset({3}))
    snapshot = Snapshot.of_groups(cost)
    limits = Limits(theta_max=0.0, max_migrations=1, time_limit_seconds=0.05)
    for left in (2, 1, 0):
        plan = MILP().plan(snapshot, assignment, limits)
        assert [(move.source, move.reason) for move in plan.moves] == [(3, "slot 3 is draining")]
        assignment = plan.assignment
        assert np.count_nonzero(assignment.groups == 3) == left


def test_a_draining_slot_gives_up_what_is_too_big_to_move_without_harm() -> None:
    """Ten level slots and one item of 3 that none of them can take without being 2.7 over: it goes all the same."""
    problem = problem_of([5.0] * 10 + [3.0], list(range(11)), 11, draining=(10,), budget=5)
    solution = solve(problem, time_limit_seconds=0.05)
    assert solution.score.stranded == 0
    assert solution.is_forced
    assert solution.score.spent == 1
    assert solve(problem_of([5.0] * 10 + [3.0], list(range(11)), 11, draining=(10,))).score.stranded == 0


def test_items_without_cost_leave_a_draining_slot_too() -> None:
    solution = solve(problem_of([0.0, 0.0], [0, 1], 2, draining=(1,)))
    assert solution.places.tolist() == [0, 0]


def test_equal_groups_end_level_and_the_plan_is_proven_best() -> None:
    snapshot = Snapshot.of_groups([1.0] * 12)
    plan = MILP().plan(
        snapshot, Assignment(np.zeros(12, dtype=np.int32), 3), Limits(theta_max=0.0, time_limit_seconds=0.1)
    )
    assert plan.figures.after.load_distance == 0
    assert plan.figures.gap == 0
    assert len(plan.moves) == 8


def test_the_limit_on_moves_leaves_the_farthest_slot_where_it_must() -> None:
    """Three slots 4 over and three 4 under, items of 2: each needs two moves, and only four are allowed.

    over   0 1 2    +4 +4 +4
    under  3 4 5    -4 -4 -4      whatever moves, one pair keeps 4 or two keep 2
    """
    cost, at = [], []
    for slot in range(6):
        count = 12 if slot < 3 else 8
        cost += [2.0] * count
        at += [slot] * count
    snapshot = Snapshot.of_groups(cost)
    plan = MILP().plan(
        snapshot,
        Assignment(np.array(at, dtype=np.int32), 6),
        Limits(theta_max=0.0, max_migrations=4, time_limit_seconds=0.1),
    )
    assert plan.figures.before.load_distance == 4
    assert plan.figures.after.load_distance == 2
    assert plan.figures.bound == pytest.approx(2)
    assert plan.figures.gap == pytest.approx(0, abs=1e-6)
    assert len(plan.moves) <= 4


def test_a_swap_does_what_flux_cannot() -> None:
    snapshot = Snapshot.of_groups([11.0, 10.0, 9.0, 10.0])
    assignment = Assignment(np.array([0, 0, 1, 1]), 2)
    limits = Limits(theta_max=0.0, max_migrations=2, time_limit_seconds=0.05)
    assert Flux().plan(snapshot, assignment, limits).changes_nothing
    plan = MILP().plan(snapshot, assignment, limits)
    assert plan.figures.after.load_distance == 0
    assert len(plan.moves) == 2


def test_a_hot_group_is_left_alone_and_its_slot_emptied() -> None:
    """One group of twice the mean: (5) of the model cannot hold, the rest of its slot moves away."""
    snapshot = Snapshot.of_groups([40.0, 1.0, 10.0, 9.0])
    plan = MILP().plan(snapshot, Assignment(np.array([0, 0, 1, 2]), 3), Limits(theta_max=0.0, time_limit_seconds=0.05))
    assert [(move.group, move.source, move.target) for move in plan.moves] == [(1, 0, 2)]
    assert plan.figures.bound == pytest.approx(20)
    assert plan.figures.gap == pytest.approx(0, abs=1e-6)


def test_capacity_decides_what_level_means() -> None:
    snapshot = Snapshot.of_groups([1.0] * 9, capacity=[2.0, 1.0])
    plan = MILP().plan(
        snapshot, Assignment(np.array([0] * 3 + [1] * 6), 2), Limits(theta_max=0.0, time_limit_seconds=0.05)
    )
    assert np.bincount(plan.assignment.groups).tolist() == [6, 3]


def test_a_cap_keeps_a_slot_from_taking_more() -> None:
    """Slot 1 has room for load, not for memory: what leaves slot 0 goes to slot 2."""
    snapshot = Snapshot.of_keys(
        ["a", "b", "c", "d", "e"],
        [6.0, 2.0, 2.0, 2.0, 0.0],
        state_bytes=[1.0] * 5,
        groups=5,
        group=[0, 1, 2, 3, 4],
        resources={"memory": [1.0, 1.0, 1.0, 1.0, 9.0]},
    )
    assignment = Assignment(np.array([0, 0, 0, 0, 1]), 3)
    free = MILP().plan(snapshot, assignment, Limits(theta_max=0.0, time_limit_seconds=0.05))
    assert free.figures.after.load_distance == 2
    limits = Limits(theta_max=0.0, caps={"memory": [99, 9, 99]}, max_migrations=2, time_limit_seconds=0.05)
    capped = MILP().plan(snapshot, assignment, limits)
    assert capped.assignment.groups[4] == 1
    assert (capped.assignment.groups[:4] != 1).all()
    assert capped.figures.after.loads.tolist() in ([6, 0, 6], [8, 0, 4])


def crowded(factor: float, size: int = 0) -> Problem:
    """Slot 2 has the least load and no memory left: by load alone much would go there. ``size``: more items a slot."""
    random = np.random.default_rng(11)
    cost = np.concatenate([random.uniform(2, 4, 8 + 2 * size), random.uniform(1, 2, 6 + size), [0.5]])
    at = [0] * (8 + 2 * size) + [1] * (6 + size) + [2]
    used = np.append(np.ones(len(cost) - 1), 8.0)
    caps = np.array([99.0, 99.0, 10.0])
    memory = Resource(used, np.zeros(3), caps)
    return problem_of((cost * factor).tolist(), at, 3, price=[1] * len(at), budget=6, resources={"memory": memory})


@pytest.mark.parametrize("size", [pytest.param(0, id="exact"), pytest.param(40, id="local search")])
@pytest.mark.parametrize("factor", [1e-200, 1e-100, 1e-8, 1e8, 1e12, 1e100, 1e200])
def test_the_unit_of_the_costs_makes_no_difference(factor: float, size: int) -> None:
    plain, scaled = crowded(1.0, size), crowded(factor, size)
    first, second = (solve(problem, time_limit_seconds=0.2) for problem in (plain, scaled))
    assert second.score.excess == 0
    # Among thousands of near-equal places, how sums round may decide between two of the same distance.
    assert size or np.array_equal(first.places, second.places)
    assert second.score.distance == pytest.approx(first.score.distance * factor, rel=1e-9)
    assert second.bound == pytest.approx(first.bound * factor, rel=1e-6)
    assert second.open_bound == pytest.approx(first.open_bound * factor, rel=1e-6)
    assert second.is_proven == first.is_proven


@pytest.mark.parametrize("factor", [1e-300, 1e-8, 1.0, 1e8, 1e200])
def test_caps_come_first_then_distance_then_draining(factor: float) -> None:
    problem = problem_of([4 * factor, 2 * factor], [0, 1], 2)
    base = Score(excess=0.0, distance=factor, stranded=0, spread=factor, spent=0.0, carried=0.0)
    assert problem.is_better(base._replace(distance=3 * factor), base._replace(excess=0.1))
    assert problem.is_better(base, base._replace(stranded=1))
    assert problem.is_better(base._replace(stranded=1), base._replace(distance=1.01 * factor))
    assert problem.is_better(base, base._replace(spread=1.01 * factor))
    assert not problem.is_better(base, base._replace(distance=(1 + 1e-12) * factor))


@pytest.mark.parametrize("factor", [1.0, 1e8, 1e10, 1e-8])
def test_caps_hold_whatever_the_unit_of_the_costs(factor: float) -> None:
    """Slot 0 uses more than its cap, and what levels the load best leaves it so."""
    snapshot = Snapshot.of_keys(
        ["a", "b", "c", "d"],
        [5 * factor, 1 * factor, 3 * factor, 3 * factor],
        groups=4,
        group=[0, 1, 2, 3],
        resources={"memory": [6.0, 6.0, 1.0, 1.0]},
    )
    assignment = Assignment(np.array([0, 0, 1, 1]), 2)
    limits = Limits(theta_max=0.0, caps={"memory": 10}, max_migrations=2, time_limit_seconds=0.05)
    problem = Problem.of(Items.of(snapshot, assignment, "group", limits, locate(snapshot, assignment)), limits)
    solution = solve(problem, time_limit_seconds=0.05)
    assert problem.excess(problem.current) > 0
    assert solution.score.excess == 0
    assert solution.places.tolist() == solve(replace(problem, cost=problem.cost / factor)).places.tolist()


@pytest.mark.parametrize("size", [pytest.param(1, id="exact"), pytest.param(60, id="local search")])
def test_an_infinite_cap_is_no_cap(size: int) -> None:
    cost = np.tile([6.0, 2.0, 2.0, 2.0], size)
    snapshot = Snapshot.of_keys(
        np.arange(len(cost)),
        cost,
        groups=len(cost),
        group=np.arange(len(cost)),
        resources={"mem": np.full(len(cost), 60.0 / size)},
    )
    assignment = Assignment(np.zeros(len(cost), dtype=np.int32), 2)
    limits = Limits(theta_max=0.0, caps={"mem": [100, np.inf]}, time_limit_seconds=0.1)
    plan = MILP().plan(snapshot, assignment, limits)
    assert np.count_nonzero(plan.assignment.groups == 0) * 60 <= 100 * size
    free = MILP().plan(snapshot, assignment, replace(limits, caps={"mem": np.inf}))
    assert free.figures.after.load_distance == 0


def test_an_item_far_beyond_a_cap_stays_out() -> None:
    """1e20 of a cap of 1 is more than HiGHS takes for a number: twice the cap says the same."""
    memory = Resource(np.array([1e20, 0.5, 0.5]), np.zeros(2), np.array([np.inf, 1.0]))
    solution = solve(problem_of([2, 2, 2], [0, 0, 0], 2, resources={"memory": memory}), time_limit_seconds=0.05)
    assert solution.places[0] == 0
    assert solution.score == (0, 1, 0, 2, 1, 2)


def test_a_model_that_highs_refuses_is_an_error() -> None:
    memory = Resource(np.ones(3), np.zeros(2), np.array([np.nan, 1.0]))
    with pytest.raises(SolverError, match="HiGHS ended with status"):
        solve_exactly(problem_of([2, 2, 2], [0, 0, 0], 2, resources={"memory": memory}))


@pytest.mark.parametrize(
    ("cost", "at", "rows"),
    [
        pytest.param([4.0, 3.0, 2.0, 1.0], [0, 0, 1, 1], 1, id="known places hold it"),
        pytest.param([40.0, 1.0, 10.0, 9.0], [0, 0, 1, 2], 0, id="one item of twice the mean: nothing does"),
    ],
)
def test_row_5_is_in_the_model_where_it_can_hold(
    cost: list[float], at: list[int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[bool] = []

    def build(problem: Problem, *, within_mean: bool) -> model._Model:
        built.append(within_mean)
        made = plain(problem, within_mean=within_mean)
        assert made.highs.getNumRow() == without + within_mean
        return made

    plain = model._build
    problem = problem_of(cost, at, max(at) + 1)
    without = plain(problem, within_mean=False).highs.getNumRow()
    monkeypatch.setattr(model, "_build", build)
    exact = solve_exactly(problem)
    best, _ = best_by_force(problem)
    assert built == [bool(rows)]
    assert exact.is_proven
    assert exact.places is not None
    assert problem.score(exact.places).distance == pytest.approx(best.distance, abs=SLACK * problem.mean)


def test_row_5_is_left_out_where_the_known_places_exceed_a_cap() -> None:
    """Within the cap all is on one slot, twice the mean or a little more off: level places are no proof of (5)."""
    memory = Resource(np.array([1.0, 1.0]), np.zeros(3), np.array([9.0, 0.0, 0.0]))
    problem = problem_of([3.0, 3.0], [0, 1], 3, resources={"memory": memory})
    assert problem.score(problem.current).distance <= problem.mean
    exact = solve_exactly(problem)
    assert exact.places is not None
    assert exact.places.tolist() == [0, 0]


def test_state_limits_what_moves() -> None:
    snapshot = Snapshot.of_groups([4.0, 4.0, 2.0, 2.0], state_bytes=[100.0, 100.0, 10.0, 10.0])
    assignment = Assignment(np.array([0, 0, 0, 0]), 2)
    plan = MILP().plan(snapshot, assignment, Limits(theta_max=0.0, max_migration_cost=20, time_limit_seconds=0.05))
    assert sorted(move.group for move in plan.moves) == [2, 3]
    assert plan.figures.migrated_state == 20
    assert plan.figures.after.load_distance == 2
    # Fractions of the state could do a little better, and that is all the bound knows of prices.
    assert plan.figures.bound is not None
    assert 1.5 < plan.figures.bound <= 2


def test_pins_that_the_budget_cannot_pay_are_an_error() -> None:
    with pytest.raises(LimitsError, match="budget must be at least 2, the price of moving the pinned items, got 1"):
        problem_of([1, 1, 1], [0, 0, 0], 2, budget=1, pinned=[1, 1, -1])


def test_pins_are_paid_first() -> None:
    """Two moves: one takes the pinned item over, the other levels."""
    problem = problem_of([4, 2, 2, 1], [0, 0, 0, 0], 2, budget=2, pinned=[-1, -1, -1, 1])
    solution = solve(problem, time_limit_seconds=0.05)
    assert solution.places.tolist() in ([1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1])
    assert solution.places[3] == 1
    assert solution.score.distance == 0.5
    assert solution.is_proven


def test_idle_moves_are_taken_back() -> None:
    """Six twins: one went from 0 to 2 by way of 1, where another made room for it, and two traded places.

    before   0: a b c d   1: e f   2:
    after    0: b f       1: a c   2: d e      the same loads take two moves to slot 2
    """
    problem = problem_of([4, 4, 4, 4, 4, 4], [0, 0, 0, 0, 1, 1], 3, budget=6)
    wasteful = np.array([1, 0, 1, 2, 2, 0], dtype=np.int32)
    tidy = without_idle(problem, wasteful)
    assert problem.score(tidy).distance == 0
    assert np.count_nonzero(tidy != problem.current) == 2


@settings(max_examples=20, deadline=None)
@given(medium_problems())
def test_no_move_can_be_taken_back_for_free(problem: Problem) -> None:
    solution = solve(problem, time_limit_seconds=0.02)
    for item in np.flatnonzero((solution.places != problem.current) & problem.is_open[problem.current]):
        places = solution.places.copy()
        places[item] = problem.current[item]
        assert not problem.is_better(problem.score(places), solution.score)


def test_the_same_seed_gives_the_same_plan() -> None:
    random = np.random.default_rng(5)
    cost = (2.5 * (1 + random.uniform(-0.05, 0.05, 200))).tolist()
    problem = problem_of(cost, (np.arange(200) % 10).tolist(), 10, budget=8)
    first, second = (solve(problem, seed=3, time_limit_seconds=0.1) for _ in range(2))
    assert np.array_equal(first.places, second.places)
    assert first.bound == second.bound


def test_the_clock_ends_the_search() -> None:
    random = np.random.default_rng(5)
    problem = problem_of(random.uniform(1, 2, 400).tolist(), (np.arange(400) % 20).tolist(), 20, budget=100)
    now = [0.0]

    def clock() -> float:
        now[0] += 0.05
        return now[0]

    solution = solve(problem, time_limit_seconds=1.0, clock=clock)
    assert now[0] < 2.0
    assert solution.steps > 0
    assert problem.admits(solution.places)


def test_a_plan_within_theta_max_moves_nothing() -> None:
    plan = MILP().plan(Snapshot.of_groups([1.0, 1.01]), Assignment(np.array([0, 1]), 2), Limits(theta_max=0.05))
    assert plan.changes_nothing


def test_keys_can_be_moved_too() -> None:
    snapshot = Snapshot.of_keys(["a", "b", "c", "d"], [4.0, 3.0, 2.0, 1.0], groups=4)
    assignment = Assignment(np.zeros(4, dtype=np.int32), 2)
    plan = MILP(grain="key").plan(snapshot, assignment, Limits(theta_max=0.0, time_limit_seconds=0.05))
    assert plan.figures.after.load_distance == 0
    assert len(plan.moves) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_within_a_percent_of_the_mean_on_a_cluster_of_albic(seed: int) -> None:
    random = np.random.default_rng(seed)
    cost = 2.5 * (1 + random.uniform(-0.05, 0.05, 1200))
    at = np.arange(1200) % 60
    for slot in range(12):
        mine = np.flatnonzero(at == slot)[:10]
        cost[mine] *= 1.4 if slot < 6 else 0.6
    problem = problem_of(cost.tolist(), at.tolist(), 60, budget=20 + 5 * seed)
    solution = solve(problem, time_limit_seconds=2.0)
    assert solution.score.distance - solution.bound <= 0.01 * problem.mean
