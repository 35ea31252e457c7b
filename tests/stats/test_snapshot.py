"""Snapshots: what they hold, what they refuse, how they merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import SnapshotError
from headgate.routing import Assignment, key_hash
from headgate.stats import (
    Snapshot,
    StateWindow,
    Traffic,
    collocation_factor,
    delta,
    load_index,
    measure,
    measure_operators,
    slot_costs,
)


def test_state_defaults_to_the_cost_and_tuples_to_the_cost_rounded() -> None:
    snapshot = Snapshot.of_keys(["a", "b"], [1.6, 2.0])
    assert snapshot.state_bytes.tolist() == [1.6, 2.0]
    assert snapshot.tuples.tolist() == [2, 2]
    assert snapshot.total_cost == 3.6
    assert snapshot.label(1) == "b"


BAD = [
    pytest.param({"cost": [1, -2]}, r"cost must be zero or more, got -2.0 for key b", id="negative cost"),
    pytest.param({"cost": [1, float("nan")]}, r"cost must be a finite number, got NaN or infinity for key b", id="nan"),
    pytest.param({"cost": [float("inf"), 1]}, r"cost must be a finite number.* for key a", id="infinite cost"),
    pytest.param({"cost": [1]}, r"expected 2 cost, got 1", id="too few costs"),
    pytest.param({"state_bytes": [1, -1]}, r"state_bytes must be zero or more", id="negative state"),
    pytest.param({"resources": {"memory": [1]}}, r"expected 2 memory, got 1", id="a short resource"),
    pytest.param({"group": [0, 9], "groups": 4}, r"key groups are numbered 0 to 3, got 9", id="a group not there"),
    pytest.param({"capacity": [1, 0]}, r"capacity must be a finite number above zero, got \[1.0, 0.0\]", id="no power"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_bad_statistics_are_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(SnapshotError, match=text):
        Snapshot.of_keys(["a", "b"], **{"cost": [1, 2], **change})  # type: ignore[arg-type]


def test_a_key_listed_twice_is_named() -> None:
    with pytest.raises(SnapshotError, match="listed more than once: a: add their rows up first"):
        Snapshot.of_keys(["a", "b", "a"], [1, 2, 3])
    two = Snapshot.of_keys(["a", "a"], [1, 2], operator=["map", "sum"])
    assert two.operators == ("map", "sum")
    assert two.groups == 2048


def test_snapshots_do_not_change() -> None:
    cost = np.array([1.0, 2.0])
    snapshot = Snapshot.of_keys(["a", "b"], cost)
    cost[0] = 99
    assert snapshot.cost[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        snapshot.cost[0] = 5


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 100)), max_size=80))
def test_merging_slots_adds_up_what_each_saw(rows: list[tuple[int, int, int]]) -> None:
    parts = []
    for slot in range(6):
        mine: dict[int, float] = {}
        for key, where, cost in rows:
            if where == slot:
                mine[key] = mine.get(key, 0.0) + cost
        parts.append(Snapshot.of_keys(np.array(list(mine), dtype=np.int64), list(mine.values()), groups=16))
    merged = Snapshot.merge(parts)
    expected: dict[int, float] = {}
    for key, _, cost in rows:
        expected[key] = expected.get(key, 0.0) + cost
    assert {merged.label(row): merged.cost[row] for row in range(len(merged))} == expected
    assert merged.hash.tolist() == sorted(merged.hash.tolist())


def test_merging_keeps_traffic_rest_and_busy_time() -> None:
    left = Snapshot.of_keys(["a", "b"], [1, 2], groups=4, traffic=Traffic.of([0], [1], [5.0]))
    right = Snapshot.of_keys(["b", "c"], [4, 8], groups=4, traffic=Traffic.of([0, 0], [1, 1], [1.0, 2.0]))
    merged = Snapshot.merge([left, right])
    cost = {merged.label(row): float(merged.cost[row]) for row in range(3)}
    assert cost == {"a": 1.0, "b": 6.0, "c": 8.0}
    assert merged.key_traffic is not None
    named = {
        (merged.label(int(s)), merged.label(int(t))): float(r)
        for s, t, r in zip(merged.key_traffic.source, merged.key_traffic.target, merged.key_traffic.rate, strict=True)
    }
    assert named == {("a", "b"): 5.0, ("b", "c"): 3.0}


def test_snapshots_that_do_not_match_are_not_merged() -> None:
    with pytest.raises(SnapshotError, match="agree on groups: one has 4, another 8"):
        Snapshot.merge([Snapshot.of_keys(["a"], [1], groups=4), Snapshot.of_keys(["a"], [1], groups=8)])
    with pytest.raises(SnapshotError, match="at least one snapshot"):
        Snapshot.merge([])


def test_measures_of_a_hand_made_case() -> None:
    #       slot 0   slot 1   slot 2    mean 4
    # load    6        4        2
    snapshot = Snapshot.of_keys(["a", "b", "c", "d"], [5, 1, 4, 2], group=[0, 0, 1, 2], groups=3)
    balance = measure(snapshot, Assignment(np.array([0, 1, 2]), 3))
    assert balance.loads.tolist() == [6, 4, 2]
    assert balance.mean == 4
    assert balance.theta_max == 0.5
    assert balance.max_over_mean == 1.5
    assert balance.load_distance == 2
    assert balance.rsd == pytest.approx(100 * np.std([6, 4, 2]) / 4)
    assert balance.collocation is None


def test_each_slot_and_each_operator_can_be_looked_at() -> None:
    snapshot = Snapshot.of_keys(["a", "b", "a", "b"], [3, 1, 2, 2], operator=["map", "map", "sum", "sum"], groups=8)
    assignment = Assignment.hashed(2, 8, operators=2)
    places = assignment.route(snapshot.hash[:2])
    together = measure(snapshot, assignment)
    assert together.theta.max() == together.theta_max
    apart = measure_operators(snapshot, assignment)
    assert list(apart) == ["map", "sum"]
    assert apart["map"].loads.tolist() == [
        float(sum(c for c, s in zip([3, 1], places, strict=True) if s == d)) for d in (0, 1)
    ]
    assert sum(balance.loads for balance in apart.values()).tolist() == together.loads.tolist()  # type: ignore[union-attr]


def test_capacity_scales_loads_and_draining_slots_are_not_judged() -> None:
    snapshot = Snapshot.of_keys(["a", "b", "c"], [4, 2, 3], group=[0, 1, 2], groups=3, capacity=[1, 0.5, 1])
    balance = measure(snapshot, Assignment(np.array([0, 1, 2]), 3).drain(2))
    assert balance.loads.tolist() == [4, 4, 3]
    assert balance.mean == pytest.approx(9 / 1.5)
    assert balance.load_distance == pytest.approx(2.0)


def test_collocation_is_the_share_of_traffic_within_slots() -> None:
    traffic = Traffic.of([0, 1, 0], [1, 2, 2], [6.0, 3.0, 1.0])
    snapshot = Snapshot.of_keys(["a", "b", "c"], [1, 1, 1], group=[0, 1, 2], groups=3, traffic=traffic)
    assert collocation_factor(snapshot, Assignment(np.array([0, 0, 1]), 2)) == pytest.approx(0.6)
    grouped = Snapshot.of_groups([1, 1, 1], traffic=traffic)
    assert collocation_factor(grouped, Assignment(np.array([1, 0, 1]), 2)) == pytest.approx(0.1)


def test_delta_lists_what_lies_elsewhere_with_its_state() -> None:
    snapshot = Snapshot.of_keys(["a", "b"], [1, 2], state_bytes=[10, 20], group=[0, 1], groups=3)
    light = replace(snapshot, rest_state_bytes=np.array([0.0, 5.0, 0.0]))
    before = Assignment(np.array([0, 0, 1]), 2)
    after = before.next(groups=np.array([0, 1, 0]))
    moved = delta(light, before, after)
    assert moved.rows.tolist() == [1, -2]
    assert moved.state_bytes.tolist() == [20, 5]
    assert (moved.source.tolist(), moved.target.tolist()) == ([0, 0], [1, 1])
    assert len(delta(light, before, before)) == 0


def test_no_load_is_level() -> None:
    balance = measure(Snapshot.of_keys([], []), Assignment.hashed(3))
    assert (balance.theta_max, balance.rsd, balance.load_distance) == (0, 0, 0)


def test_the_rest_of_the_groups_counts() -> None:
    snapshot = Snapshot.of_groups([1, 2, 3])
    assert slot_costs(snapshot, Assignment(np.array([0, 1, 1]), 2)).tolist() == [1, 5]
    assert load_index(30, 60) == 50


def test_traffic_refuses_what_is_no_rate() -> None:
    with pytest.raises(SnapshotError, match="a traffic rate must be zero or more"):
        Traffic.of([0], [1], [-1.0])
    with pytest.raises(SnapshotError, match="a traffic rate must be a finite number"):
        Traffic.of([0], [1], [float("nan")])


def test_state_of_the_last_w_intervals() -> None:
    # interval  1  2  3  4  5
    # s(k)      2  0  1  4  1
    # S(k, 3)   2  2  3  5  6
    keys = key_hash(["k", "other"])
    window, seen = StateWindow(3), []
    for state in (2.0, 0.0, 1.0, 4.0, 1.0):
        window = window.push(keys[:1], np.array([state]))
        seen.append(window.state_of(keys).tolist())
    assert seen == [[2, 0], [2, 0], [3, 0], [5, 0], [6, 0]]
    assert window.keys().tolist() == keys[:1].tolist()
    assert StateWindow(2).state_of(keys).tolist() == [0, 0]


def test_costs_too_large_to_add_up_are_refused() -> None:
    with pytest.raises(SnapshotError, match="values of cost must add up to a finite number"):
        Snapshot.of_keys(["a", "b"], [1.7e308, 1.7e308])


def test_huge_costs_are_measured_all_the_same() -> None:
    snapshot = Snapshot.of_keys(["a", "b"], [3e200, 1e200], group=[0, 1], groups=2)
    balance = measure(snapshot, Assignment(np.array([0, 1], np.int32), 2))
    assert balance.theta_max == pytest.approx(0.5)
    assert balance.rsd == pytest.approx(50)


def test_traffic_of_keys_that_are_not_there_is_refused() -> None:
    with pytest.raises(SnapshotError, match="traffic is between keys 0 to 1, got 7"):
        Snapshot.of_keys(["a", "b"], [1, 2], traffic=Traffic.of([0], [7], [1.0]))
