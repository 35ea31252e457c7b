from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitsError, SnapshotError
from headgate.planners.albic import ALBIC, standing_out
from headgate.planners.items import Items
from headgate.planners.plan import Limits, Plan
from headgate.routing import Assignment
from headgate.stats import Snapshot, Traffic
from headgate.stats.measures import locate
from headgate.workloads import cluster, drift

NODES, GROUPS, OPERATORS = 8, 80, 4


def world(
    places: list[int],
    pairs: dict[tuple[int, int], float],
    *,
    slots: int = 3,
    cost: list[float] | None = None,
    state: list[float] | None = None,
    draining: tuple[int, ...] = (),
) -> tuple[Snapshot, Assignment]:
    """Eight groups of two operators, 0 to 3 feeding 4 to 7."""
    traffic = Traffic.of([a for a, _ in pairs], [b for _, b in pairs], list(pairs.values()))
    loads = [10.0] * 8 if cost is None else cost
    snapshot = Snapshot.of_groups(loads, state_bytes=state, traffic=traffic, operators=("first", "second"))
    assignment = Assignment(np.array(places, dtype=np.int32), slots, operators=2, draining=frozenset(draining))
    return snapshot, assignment


def items_of(snapshot: Snapshot, assignment: Assignment) -> Items:
    return Items.of(snapshot, assignment, "group", Limits(), locate(snapshot, assignment))


def loose(**options: float) -> ALBIC:
    """Any balance will do, and sets are not cut for their load."""
    return ALBIC(max_load_distance=500, max_partition_load=500, step=500, **options)  # type: ignore[arg-type]


@dataclass
class Case:
    """Groups 0 and 4 are the pair to be collocated; ``together`` are partners already, ``expected`` the moves."""

    places: list[int]
    together: list[tuple[int, int]]
    expected: dict[int, int]
    moves: int = 1
    cost: list[float] = field(default_factory=lambda: [10.0] * 8)


@pytest.mark.parametrize(
    "case",
    [
        # group     0  1  2  3  4  5  6  7
        pytest.param(
            Case([0, 0, 0, 2, 1, 1, 2, 2], [], {0: 1}),
            id="case 1: neither is in a set, slot 1 has less load",
        ),
        pytest.param(
            Case([0, 0, 2, 2, 1, 1, 1, 2], [], {4: 0}),
            id="case 1: neither is in a set, slot 0 has less load",
        ),
        pytest.param(
            Case([0, 0, 2, 2, 1, 0, 0, 2], [(0, 5)], {4: 0}),
            id="case 2: the sender is in a set, its slot is taken though it has more load",
        ),
        pytest.param(
            Case([0, 1, 1, 2, 1, 2, 1, 2], [(1, 4)], {0: 1}),
            id="case 2: the receiver is in a set, its slot is taken though it has more load",
        ),
        pytest.param(
            Case([0, 1, 0, 2, 1, 0, 2, 2], [(0, 5), (1, 4)], {0: 1, 5: 1}, moves=2),
            id="case 3: both are in sets, the whole set goes to the slot with less load",
        ),
        pytest.param(
            Case([0, 1, 1, 2, 1, 0, 2, 2], [(0, 5), (1, 4)], {1: 0, 4: 0}, moves=2),
            id="case 3: both are in sets, the other slot has less load",
        ),
    ],
)
def test_where_a_pair_meets(case: Case) -> None:
    pairs = {(0, 4): 100.0} | dict.fromkeys(case.together, 90.0)
    snapshot, assignment = world(case.places, pairs, cost=case.cost)
    plan = loose().plan(snapshot, assignment, Limits(max_migrations=case.moves))
    assert {move.group: move.target for move in plan.moves} == case.expected


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        pytest.param({(0, 4): 100.0}, [(0, 4)], id="all to one of four stands out"),
        pytest.param(dict.fromkeys([(0, 4), (0, 5), (0, 6), (0, 7)], 25.0), [], id="an even spread does not"),
        pytest.param({(0, 4): 37.0, (0, 5): 63.0}, [(0, 5)], id="just under one and a half times the average"),
        pytest.param({(0, 4): 38.0, (0, 5): 62.0}, [(0, 5), (0, 4)], id="just over, most traffic first"),
        pytest.param({(0, 0): 100.0}, [], id="traffic of a group with itself is no pair"),
    ],
)
def test_which_pairs_stand_out(rates: dict[tuple[int, int], float], expected: list[tuple[int, int]]) -> None:
    snapshot, assignment = world([0, 0, 1, 1, 2, 2, 0, 1], rates)
    pairs = standing_out(items_of(snapshot, assignment), 1.5)
    assert list(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)) == expected


def test_the_average_is_over_all_downstream_operators() -> None:
    # Group 0 feeds two operators of two groups each: 40 of 100 is 1.6 times the average of 25.
    traffic = Traffic.of([0, 0, 0], [2, 3, 4], [40.0, 30.0, 30.0])
    snapshot = Snapshot.of_groups(np.ones(6), traffic=traffic, operators=("a", "b", "c"))
    assignment = Assignment(np.array([0, 0, 1, 1, 1, 1], dtype=np.int32), 2, operators=3)
    pairs = standing_out(items_of(snapshot, assignment), 1.5)
    assert pairs.target.tolist() == [2]
    assert pairs.together.tolist() == [False]


def test_ties_are_broken_by_the_seed() -> None:
    snapshot, assignment = world([0, 0, 1, 1, 2, 2, 0, 2], {(0, 4): 100.0, (2, 6): 100.0})
    plans = [loose(seed=seed).plan(snapshot, assignment, Limits(max_migrations=1)) for seed in range(12)]
    chosen = {frozenset(move.group for move in plan.moves) for plan in plans}
    assert chosen <= {frozenset({group}) for group in (0, 4, 2, 6)}
    assert len(chosen) > 1


def test_the_reason_names_the_partner() -> None:
    snapshot, assignment = world([0, 1, 0, 2, 1, 0, 2, 2], {(0, 4): 100.0, (0, 5): 90.0, (1, 4): 90.0})
    plan = loose().plan(snapshot, assignment, Limits(max_migrations=2))
    assert {move.group: move.reason for move in plan.moves} == {
        0: "joins key group 4 in slot 1, with which it exchanges the most traffic",
        5: "comes along with key group 0, which joins key group 4 in slot 1, with which it exchanges the most traffic",
    }


def test_a_level_load_is_no_reason_to_leave_a_pair_apart() -> None:
    snapshot, assignment = world([0, 0, 1, 1, 1, 1, 0, 0], {(0, 4): 100.0}, slots=2)
    plan = loose().plan(snapshot, assignment)
    assert plan.figures.before.theta_max == 0
    assert plan.figures.after.collocation == 1


def test_a_level_load_and_no_pair_apart_need_no_plan() -> None:
    snapshot, assignment = world([0, 0, 1, 1, 0, 1, 0, 1], {(0, 4): 100.0}, slots=2)
    assert ALBIC().plan(snapshot, assignment).changes_nothing


def test_a_pair_dearer_than_the_limit_is_refused_and_the_next_taken() -> None:
    state = [100.0, 10, 10, 10, 100, 10, 10, 10]
    snapshot, assignment = world([0, 0, 1, 1, 1, 1, 2, 2], {(0, 4): 100.0, (1, 5): 60.0}, state=state)
    plan = loose().plan(snapshot, assignment, Limits(max_migration_cost=50))
    assert plan.figures.warnings[0] == (
        "not collocated, the limit on migration is too low: key group 0 and key group 4 (moving 100 of 50 allowed)"
    )
    assert plan.assignment.groups[1] == plan.assignment.groups[5]
    assert plan.figures.migrated_state <= 50


def test_no_migration_at_all_is_held_too() -> None:
    snapshot, assignment = world([0, 0, 0, 0, 1, 1, 1, 2], {(0, 4): 100.0})
    assert loose().plan(snapshot, assignment, Limits(max_migrations=0)).changes_nothing


def test_a_set_that_costs_more_than_the_limit_is_cut() -> None:
    # Groups 0 and 5 are partners in the loaded slot 0; with one move allowed they cannot leave as one.
    snapshot, assignment = world([0, 0, 0, 1, 1, 0, 2, 2], {(0, 5): 100.0}, cost=[20.0, 1, 1, 20, 1, 20, 10, 10])
    plan = ALBIC(max_load_distance=500, max_partition_load=500).plan(snapshot, assignment, Limits(max_migrations=1))
    assert len(plan.moves) <= 1


def test_collocation_that_would_unbalance_too_much_gives_way_to_the_milp() -> None:
    # Together, groups 0 and 4 have all the load; apart, the two slots are level.
    cost = [50.0, 0, 0, 0, 50, 0, 0, 0]
    snapshot, assignment = world([0] * 4 + [1] * 4, {(0, 4): 100.0}, slots=2, cost=cost, state=[1.0] * 8)
    plan = ALBIC().plan(snapshot, assignment)
    assert plan.figures.after.load_distance == 0
    assert plan.figures.details["collocated_pairs"] == 0
    assert plan.figures.after.collocation == 0


def few_groups(seed: int) -> tuple[Snapshot, Assignment]:
    """Two groups a slot, each with one partner: a pair weighs about as much as a slot's share."""
    random = np.random.default_rng(seed)
    pairs = {(group, 4 + group): float(random.integers(50, 100)) for group in range(4)}
    cost = random.uniform(8, 12, 8).tolist()
    return world(random.integers(0, 4, 8).tolist(), pairs, slots=4, cost=cost)


@pytest.mark.parametrize("distance", [10, 30])
@pytest.mark.parametrize("seed", [1, 4, 7, 12])
def test_collocation_is_not_given_away_nor_do_plans_go_to_and_fro(seed: int, distance: int) -> None:
    snapshot, assignment = few_groups(seed)
    seen = [assignment.groups.tolist()]
    for run in range(6):
        planner = ALBIC(seed=run, max_load_distance=distance)
        plan = planner.plan(snapshot, assignment, Limits(theta_max=0.05, time_limit_seconds=0.02))
        before = plan.figures.before
        assert before.collocation is not None
        if after(plan, "collocation") < before.collocation:
            assert before.theta_max > distance / 100
            assert after(plan, "theta_max") < before.theta_max - 0.01
        assignment = plan.assignment
        groups = assignment.groups.tolist()
        assert groups == seen[-1] or groups not in seen
        seen.append(groups)


def test_a_pair_heavier_than_max_partition_load_is_kept_where_the_load_is_level() -> None:
    # Each slot has a pair and is level; of the pairs apart none can be brought together without parting another.
    pairs = {(0, 4): 90.0, (1, 5): 90.0, (2, 6): 90.0, (3, 7): 90.0, (0, 5): 95.0}
    snapshot, assignment = world([0, 1, 2, 3, 0, 1, 2, 3], pairs, slots=4, state=[100.0] * 8)
    plan = ALBIC(max_partition_load=10).plan(snapshot, assignment, Limits(time_limit_seconds=0.05))
    assert plan.figures.before.collocation == pytest.approx(360 / 455)
    assert plan.changes_nothing


def test_sets_are_kept_whole_where_cutting_them_would_undo_collocation() -> None:
    # Slot 0 has 10 too much. Groups 0 and 4 are the heaviest, and a pair; groups 1 and 5 fit and have no traffic.
    snapshot, assignment = world(
        [0, 0, 1, 1, 0, 0, 1, 1], {(0, 4): 100.0}, slots=2, cost=[50.0, 10, 40, 40, 50, 10, 10, 10]
    )
    planner = ALBIC(max_load_distance=15, max_partition_load=10, step=5)
    plan = planner.plan(snapshot, assignment, Limits(theta_max=0.0, max_migrations=4, time_limit_seconds=0.1))
    assert plan.figures.before.collocation == after(plan, "collocation") == 1
    assert after(plan, "load_distance") == 0


def test_a_draining_slot_is_left_whatever_that_does_to_collocation() -> None:
    snapshot, assignment = world([0, 0, 1, 1, 0, 1, 2, 2], {(0, 4): 100.0}, draining=(0,))
    plan = ALBIC(max_partition_load=5).plan(snapshot, assignment, Limits(time_limit_seconds=0.05))
    assert 0 not in plan.assignment.groups


def test_nothing_is_brought_together_in_a_draining_slot() -> None:
    # Case 1 would choose the lighter slot 1, which drains.
    snapshot, assignment = world([0, 0, 0, 2, 1, 2, 0, 2], {(0, 4): 100.0}, draining=(1,))
    plan = loose().plan(snapshot, assignment)
    assert 1 not in plan.assignment.groups


def test_more_pairs_a_plan_leave_half_of_the_limit() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, one_to_one=100)
    plan = loose(pairs=50).plan(made.snapshot, made.assignment, Limits(max_migrations=20))
    assert plan.figures.details["collocated_pairs"] == 10
    assert len(plan.moves) <= 20


def after(plan: Plan, name: str) -> float:
    value: float = getattr(plan.figures.after, name)
    return value


@pytest.mark.parametrize("pairs", [1, 4])
def test_collocation_grows_run_by_run_while_the_load_stays_level(pairs: int) -> None:
    state = cluster(NODES, GROUPS, OPERATORS, one_to_one=50)
    collocation, most = [0.0], Limits(max_migrations=8, theta_max=0, time_limit_seconds=0.05)
    for run in range(40):
        plan = ALBIC(pairs=pairs, max_partition_load=50, step=10, seed=run).plan(state.snapshot, state.assignment, most)
        assert len(plan.moves) <= 8
        assert after(plan, "theta_max") <= 0.1
        collocation.append(after(plan, "collocation"))
        state = drift(state.placed(plan.assignment), seed=run)
    assert collocation[10] > collocation[1]
    assert max(collocation) > 0.45
    assert collocation[-1] > 0.9 * max(collocation)


def test_the_same_input_and_seed_give_the_same_plan() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, varies=40, one_to_one=50)
    limits = Limits(max_migrations=6)
    assert ALBIC(seed=3).plan(made.snapshot, made.assignment, limits).assignment == (
        ALBIC(seed=3).plan(made.snapshot, made.assignment, limits).assignment
    )


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 3)), min_size=8, max_size=8),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(4, 7)), st.floats(0.1, 50), max_size=8),
    st.one_of(
        st.builds(Limits, max_migrations=st.integers(0, 8), time_limit_seconds=st.just(0.02)),
        st.builds(Limits, max_migration_cost=st.floats(0, 300), time_limit_seconds=st.just(0.02)),
    ),
    st.integers(0, 2),
)
def test_limits_hold_whatever_comes(
    groups: list[tuple[int, int, int]], pairs: dict[tuple[int, int], float], limits: Limits, draining: int
) -> None:
    snapshot, assignment = world(
        [slot for _, _, slot in groups],
        pairs,
        slots=4,
        cost=[cost for cost, _, _ in groups],
        state=[state for _, state, _ in groups],
        draining=tuple(range(draining)),
    )
    plan = ALBIC(pairs=2).plan(snapshot, assignment, limits)
    if limits.max_migrations is not None:
        assert len(plan.moves) <= limits.max_migrations
    if limits.max_migration_cost is not None:
        assert plan.figures.migrated_state <= limits.max_migration_cost * (1 + 1e-9) + 1e-9
    assert not any(move.target < draining for move in plan.moves)
    if plan.figures.details.get("collocated_pairs", 0) > 0:
        assert plan.figures.after.theta_max <= 0.1 + 1e-9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"max_load_distance": -1}, "max_load_distance must be zero or more, got -1", id="distance"),
        pytest.param({"step": 0}, "step must be above zero, got 0", id="a step of nothing never ends"),
        pytest.param({"pairs": 0}, "pairs must be at least 1, got 0", id="no pairs"),
    ],
)
def test_parameters_are_checked(options: dict[str, float], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        ALBIC(**options)  # type: ignore[arg-type]


def test_traffic_is_needed() -> None:
    snapshot = Snapshot.of_groups([1.0, 2.0])
    with pytest.raises(SnapshotError, match="ALBIC at the grain of a group needs traffic between groups"):
        ALBIC().plan(snapshot, Assignment(np.zeros(2, dtype=np.int32), 2))
