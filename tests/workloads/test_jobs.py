from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import LimitsError
from headgate.workloads import random_job


@given(st.integers(4, 150), st.integers(0, 1000))
def test_the_shape_is_the_papers(operators: int, seed: int) -> None:
    job = random_job(operators, seed=seed)
    assert len(job.operators) == operators
    assert 3 <= job.levels <= 0.75 * operators
    levels = [operator.level for operator in job.operators]
    assert levels == sorted(levels)
    assert set(levels) == set(range(job.levels))
    assert all(1 <= len(operator.attributes) <= 30 for operator in job.operators)
    sent = np.zeros(operators)
    for flow in job.flows:
        assert levels[flow.target] == levels[flow.source] + 1
        sent[flow.source] += flow.tuples
    assert sent.max() <= 1000


def test_every_operator_feeds_the_whole_next_level() -> None:
    job = random_job(60, seed=2)
    level = [operator.level for operator in job.operators]
    pairs = {(flow.source, flow.target) for flow in job.flows}
    assert pairs == {(a, b) for a in range(60) for b in range(60) if level[b] == level[a] + 1}


def test_attribute_sets_start_at_half_and_change_in_small_steps() -> None:
    sizes = [len(operator.attributes) for operator in random_job(150, seed=1).operators]
    assert sizes[0] == 15
    assert max(abs(a - b) for a, b in itertools.pairwise(sizes)) <= 3
    assert len(set(sizes)) > 5


def test_the_seed_decides_everything() -> None:
    assert random_job(30, seed=4) == random_job(30, seed=4)
    assert random_job(30, seed=4) != random_job(30, seed=5)


def test_three_levels_need_four_operators() -> None:
    with pytest.raises(LimitsError, match="operators must be at least 4, got 3"):
        random_job(3)
