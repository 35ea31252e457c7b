from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitsError, SnapshotError
from headgate.planners.cola import COLA
from headgate.planners.partitioning import Graph
from headgate.planners.plan import Limits
from headgate.routing import Assignment
from headgate.stats import Snapshot, Traffic
from headgate.workloads import cluster, drift

NODES, GROUPS, OPERATORS = 10, 200, 5


def pairs_world(pairs: int, slots: int, capacity: list[float] | None = None) -> tuple[Snapshot, Assignment]:
    """``pairs`` groups that each send everything to one partner, placed apart: partner i is group pairs + i."""
    source = np.arange(pairs)
    snapshot = Snapshot.of_groups(
        np.full(2 * pairs, 10.0),
        traffic=Traffic.of(source, source + pairs, np.full(pairs, 100.0)),
        operators=("first", "second"),
        capacity=capacity,
    )
    places = np.concatenate([source % slots, (source + 1) % slots]).astype(np.int32)
    return snapshot, Assignment(places, slots, operators=2)


def test_pairs_end_up_together_and_the_load_is_level() -> None:
    plan = COLA().plan(*pairs_world(12, 4))
    assert plan.figures.before.collocation == 0
    assert plan.figures.after.collocation == 1
    assert plan.figures.after.load_distance == pytest.approx(0)


@pytest.mark.parametrize("one_to_one", [0.0, 50.0, 100.0])
def test_the_load_distance_asked_for_is_reached(one_to_one: float) -> None:
    made = cluster(NODES, GROUPS, OPERATORS, varies=20, one_to_one=one_to_one)
    plan = COLA(max_load_distance=5).plan(made.snapshot, made.assignment)
    assert plan.figures.after.theta_max <= 0.05
    assert (plan.figures.after.collocation or 0) > 0.75 * one_to_one / 100


def test_a_looser_load_distance_needs_fewer_pieces() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, varies=20, one_to_one=100)
    tight, loose = (
        COLA(max_load_distance=percent).plan(made.snapshot, made.assignment).figures for percent in (2.0, 30.0)
    )
    assert loose.details["pieces"] < tight.details["pieces"]
    assert (loose.after.collocation or 0) >= (tight.after.collocation or 0)


def test_what_cannot_be_level_is_as_level_as_it_gets() -> None:
    # One group has most of the load, so no number of pieces levels three slots.
    snapshot = Snapshot.of_groups([90.0, 5, 5, 5], traffic=Traffic.of([0, 1], [2, 3], [1.0, 1.0]))
    plan = COLA().plan(snapshot, Assignment(np.zeros(4, dtype=np.int32), 3))
    assert sorted(plan.figures.after.loads.tolist()) == [5, 10, 90]


def test_renaming_slots_keeps_state_where_it_is() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, one_to_one=50)
    renamed = COLA().plan(made.snapshot, made.assignment)
    named = COLA(relabel=False).plan(made.snapshot, made.assignment)
    assert renamed.figures.after.load_distance == pytest.approx(named.figures.after.load_distance)
    assert renamed.figures.after.collocation == pytest.approx(named.figures.after.collocation)
    assert len(renamed.moves) < len(named.moves)
    assert len(COLA().plan(made.snapshot, renamed.assignment).moves) == 0


def test_slots_of_unequal_capacity_do_not_swap_names() -> None:
    snapshot, assignment = pairs_world(12, 3, capacity=[1.0, 2.0, 1.0])
    plan = COLA().plan(snapshot, assignment)
    assert plan.figures.after.loads.tolist() == [60.0, 60.0, 60.0]


def test_a_drifting_load_moves_nearly_everything() -> None:
    # What the card warns of.
    made = cluster(NODES, GROUPS, OPERATORS, varies=20, one_to_one=50)
    first = COLA().plan(made.snapshot, made.assignment)
    later = drift(made.placed(first.assignment), percent=10, seed=1)
    assert len(COLA().plan(later.snapshot, later.assignment).moves) > GROUPS / 4


def test_draining_slots_are_emptied() -> None:
    snapshot, assignment = pairs_world(12, 4)
    plan = COLA().plan(snapshot, assignment.drain(2))
    assert set(plan.assignment.groups.tolist()) == {0, 1, 3}
    assert plan.figures.after.theta_max == 0
    assert (plan.figures.after.collocation or 0) > 0.7


def test_a_reason_tells_of_the_piece() -> None:
    plan = COLA().plan(*pairs_world(12, 4))
    assert plan.moves[0].reason.startswith(
        "belongs to a piece of 6 groups, cut from the rest where little is exchanged"
    )


def test_traffic_is_needed() -> None:
    snapshot = Snapshot.of_groups([1.0, 2.0])
    with pytest.raises(SnapshotError, match="COLA at the grain of a group needs traffic between groups"):
        COLA().plan(snapshot, Assignment(np.zeros(2, dtype=np.int32), 2))


def test_parameters_are_checked() -> None:
    with pytest.raises(LimitsError, match="COLA: max_load_distance must be zero or more percent, got -1"):
        COLA(max_load_distance=-1)


def test_the_same_input_and_seed_give_the_same_plan() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, varies=20, one_to_one=50)
    assert COLA(seed=3).plan(made.snapshot, made.assignment).assignment == (
        COLA(seed=3).plan(made.snapshot, made.assignment).assignment
    )


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.floats(0.1, 50)), max_size=20),
    st.integers(1, 5),
)
def test_every_group_has_one_slot(loads: list[float], edges: list[tuple[int, int, float]], slots: int) -> None:
    known = [(a % len(loads), b % len(loads), rate) for a, b, rate in edges]
    snapshot = Snapshot.of_groups(loads, traffic=Traffic.of(*([edge[i] for edge in known] for i in range(3))))
    assignment = Assignment(np.zeros(len(loads), dtype=np.int32), slots)
    plan = COLA().plan(snapshot, assignment, Limits(max_migrations=4))
    assert len(plan.moves) <= 4
    assert len(plan.assignment.groups) == len(loads)
    assert plan.figures.after.loads.sum() == pytest.approx(sum(loads))


@pytest.mark.parametrize(
    ("size", "edges", "parts", "expected"),
    [
        pytest.param(4, [(0, 1), (2, 3)], 1, [{0, 1, 2, 3}], id="one part has all"),
        pytest.param(4, [(0, 1), (2, 3)], 2, [{0, 1}, {2, 3}], id="partners stay together"),
        pytest.param(3, [(0, 1), (1, 2)], 5, [{0}, {1}, {2}], id="more parts than members"),
        pytest.param(4, [], 2, [{0, 2}, {1, 3}], id="without traffic by weight alone"),
        pytest.param(4, [(0, 0), (1, 1)], 2, [{0, 2}, {1, 3}], id="traffic with itself counts for nothing"),
    ],
)
def test_splitting_a_graph(size: int, edges: list[tuple[int, int]], parts: int, expected: list[set[int]]) -> None:
    traffic = Traffic.of([a for a, _ in edges], [b for _, b in edges], np.ones(len(edges)))
    part_of = Graph(size, traffic).split(np.arange(size), np.ones(size), parts, seed=0)
    found = [set(np.flatnonzero(part_of == part).tolist()) for part in np.unique(part_of)]
    assert sorted(found, key=min) == expected
