from __future__ import annotations

import numpy as np
import pytest

from headgate.errors import LimitsError
from headgate.stats import measure
from headgate.workloads import cluster, drift, node_loads

NODES, GROUPS, OPERATORS = 20, 400, 10


@pytest.mark.parametrize("one_to_one", [None, 50.0])
def test_every_node_has_the_same_number_of_groups(one_to_one: float | None) -> None:
    made = cluster(NODES, GROUPS, OPERATORS, one_to_one=one_to_one)
    assert np.bincount(made.assignment.groups).tolist() == [GROUPS // NODES] * NODES


def test_group_loads_lie_within_five_percent_of_the_mean() -> None:
    load = cluster(NODES, GROUPS, OPERATORS).snapshot.group_cost()
    assert load.min() >= 2.5 * 0.95
    assert load.max() <= 2.5 * 1.05
    assert load.max() - load.min() > 0.2


def test_a_fifth_of_the_nodes_vary_half_up_half_down() -> None:
    plain = node_loads(cluster(NODES, GROUPS, OPERATORS, seed=3))
    varied = node_loads(cluster(NODES, GROUPS, OPERATORS, varies=40, seed=3))
    change = np.round(varied / plain - 1, 9)
    assert sorted(change[change != 0].tolist()) == [-0.2, -0.2, 0.2, 0.2]


def test_a_set_of_groups_is_scaled_not_all_of_them() -> None:
    plain = cluster(NODES, GROUPS, OPERATORS, seed=3).snapshot.group_cost()
    varied = cluster(NODES, GROUPS, OPERATORS, varies=40, seed=3).snapshot.group_cost()
    changed = int((plain != varied).sum())
    assert 4 * 10 <= changed <= 4 * 20
    assert changed < 4 * 20


def test_without_traffic_there_is_none() -> None:
    assert cluster(NODES, GROUPS, OPERATORS).snapshot.group_traffic is None


@pytest.mark.parametrize("one_to_one", [0.0, 50.0, 100.0])
def test_the_share_of_one_to_one_groups_is_as_asked(one_to_one: float) -> None:
    traffic = cluster(NODES, GROUPS, OPERATORS, one_to_one=one_to_one).snapshot.group_traffic
    assert traffic is not None
    size = GROUPS // OPERATORS
    receivers = np.bincount(traffic.source, minlength=GROUPS)
    senders = GROUPS - size
    assert int((receivers == 1).sum()) == senders * one_to_one / 100
    assert int((receivers == size).sum()) == senders * (1 - one_to_one / 100)
    assert np.allclose(np.bincount(traffic.source, traffic.rate)[:senders], 100)
    assert (traffic.target // size == traffic.source // size + 1).all()


def test_placement_starts_without_any_collocation() -> None:
    made = cluster(40, 800, 20, one_to_one=100)
    assert measure(made.snapshot, made.assignment).collocation == 0


def test_more_operators_than_nodes_still_keep_neighbours_apart() -> None:
    made = cluster(4, 80, 8, one_to_one=100)
    assert measure(made.snapshot, made.assignment).collocation == 0


def test_drift_changes_a_fifth_of_the_nodes_by_two_percent_at_most() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, one_to_one=50)
    later = drift(made, seed=7)
    change = node_loads(later) / node_loads(made) - 1
    assert int((np.abs(change) > 1e-12).sum()) == 4
    assert np.abs(change).max() <= 0.02
    assert later.snapshot.interval == 1
    assert later.snapshot.group_traffic is made.snapshot.group_traffic


def test_drift_follows_the_assignment_it_is_given() -> None:
    made = cluster(NODES, GROUPS, OPERATORS, one_to_one=50)
    everything_on_one = made.placed(made.assignment.next(groups=np.zeros(GROUPS, dtype=np.int32)))
    later = [node_loads(drift(everything_on_one, seed=seed))[0] for seed in range(20)]
    assert len(set(later)) > 1  # the one node with work was adjusted in some iterations


def test_the_seed_decides_everything() -> None:
    one, same, other = (cluster(NODES, GROUPS, OPERATORS, varies=20, one_to_one=50, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.snapshot.group_cost(), same.snapshot.group_cost())
    assert not np.array_equal(one.snapshot.group_cost(), other.snapshot.group_cost())


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        pytest.param((4, 10, 3), {}, "groups must be a multiple of the operators", id="uneven operators"),
        pytest.param((4, 12, 3), {"varies": 300.0}, "varies must be between 0 and 200 percent", id="too much variance"),
        pytest.param((4, 12, 3), {"one_to_one": 101.0}, "one_to_one must be between 0 and 100", id="over all groups"),
    ],
)
def test_impossible_clusters_are_refused(sizes: tuple[int, int, int], options: dict[str, float], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        cluster(*sizes, **options)  # type: ignore[arg-type]
