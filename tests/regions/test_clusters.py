from __future__ import annotations

import numpy as np
import pytest

from headgate.arrays import F64
from headgate.regions.clusters import ALPHA, APART, clusters, distances, pooled
from headgate.regions.functions import line


def with_knees(*knees: float) -> F64:
    return line(np.array(knees), np.zeros(len(knees)))


def test_alpha_brings_values_onto_the_scale_of_weights() -> None:
    assert pytest.approx(1) == ALPHA


def test_the_distance_is_that_of_what_differs_most() -> None:
    apart = distances(with_knees(10, 10, 100))
    assert apart[0, 1] == 0
    assert apart[0, 2] == apart[2, 0] == pytest.approx(np.log(10), rel=0.05)


def test_functions_that_never_block_are_alike() -> None:
    never = np.zeros((2, 1001))
    assert distances(never).max() == 0
    assert distances(np.concatenate([never, with_knees(10)]))[0, 2] > 10


def test_classes_are_told_apart_and_numbered_in_order_of_appearance() -> None:
    assert clusters(with_knees(2, 40, 0.4, 40.4, 2.02, 39)).tolist() == [0, 1, 2, 1, 0, 1]
    assert clusters(with_knees(5)).tolist() == [0]
    assert clusters(np.zeros((0, 1001))).tolist() == []


def test_no_two_members_are_further_apart_than_the_limit() -> None:
    functions = with_knees(*np.geomspace(20, 200, 40))
    members, apart = clusters(functions), distances(functions)
    assert 5 < len(set(members.tolist())) < 20
    assert apart[members[:, None] == members].max() <= APART


def test_a_cluster_believes_the_mean_by_evidence() -> None:
    functions = np.array([[0.0, 1.0, 2.0], [0.0, 3.0, 4.0], [0.0, 9.0, 9.0]])
    evidence = np.array([[1.0, 1.0, 3.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0]])
    assert pooled(functions, evidence, np.array([0, 0, 1])).tolist() == [[0, 2.5, 2.5], [0, 2.5, 2.5], [0, 9, 9]]


def test_a_pooled_function_never_falls() -> None:
    functions = np.array([[0.0, 1.0, 1.0], [0.0, 9.0, 9.0]])
    evidence = np.array([[1.0, 1.0, 9.0], [1.0, 9.0, 1.0]])
    shared = pooled(functions, evidence, np.array([0, 0]))
    assert shared.tolist() == [[0.0, 8.2, 8.2], [0.0, 8.2, 8.2]]
