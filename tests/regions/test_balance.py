from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.regions.balance import RESOLUTION, Balancer, Fixed, RoundRobin, Sample, Schedule, even, shares


def sample(at: float, *alive: bool) -> Sample:
    return Sample(at, np.zeros(len(alive)), np.array(alive))


def test_even_weights_differ_by_a_unit_at_most() -> None:
    assert even(np.array([True, True, True])).tolist() == [334, 333, 333]
    assert even(np.array([False, True, True])).tolist() == [0, 500, 500]
    assert even(np.array([False])).tolist() == [0]


@given(st.lists(st.tuples(st.floats(0, 1e9), st.booleans()), min_size=1, max_size=70))
def test_shares_sum_to_the_whole_over_the_living(given_to: list[tuple[float, bool]]) -> None:
    alive = np.array([lives for _, lives in given_to])
    weights = shares([part for part, _ in given_to], alive)
    assert weights[~alive].sum() == 0
    assert weights.sum() == (RESOLUTION if alive.any() else 0)


def test_round_robin_leaves_out_the_dead() -> None:
    balancer = RoundRobin()
    assert balancer.start(4).tolist() == [250] * 4
    assert balancer.observe(sample(1, True, False, True, False)).tolist() == [500, 0, 500, 0]
    assert balancer.view().weights.tolist() == [500, 0, 500, 0]


def test_a_fixed_split_is_shared_among_the_living() -> None:
    balancer = Fixed([65, 35, 100])
    assert balancer.start(3).tolist() == [325, 175, 500]
    assert balancer.observe(sample(1, True, True, False)).tolist() == [650, 350, 0]
    assert balancer.observe(sample(2, True, True, True)).tolist() == [325, 175, 500]


def test_where_all_with_a_share_are_dead_the_stream_goes_on() -> None:
    balancer = Fixed([1, 0, 0])
    balancer.start(3)
    assert balancer.observe(sample(1, False, True, True)).tolist() == [0, 500, 500]


def test_a_schedule_changes_with_the_first_sample_at_its_time() -> None:
    balancer = Schedule([(0, [1, 0]), (10, [1, 1]), (20, [0, 1])])
    assert balancer.start(2).tolist() == [1000, 0]
    seen = [balancer.observe(sample(at, True, True)).tolist() for at in (9.9, 10, 25)]
    assert seen == [[1000, 0], [500, 500], [0, 1000]]


@pytest.mark.parametrize(
    "balancer", [RoundRobin(), Fixed([1, 2]), Schedule([(0, [1, 2])])], ids=lambda b: type(b).__name__
)
def test_the_plain_balancers_believe_nothing(balancer: Balancer) -> None:
    weights = balancer.start(2)
    view = balancer.view()
    assert view.weights.tolist() == weights.tolist()
    assert view.rates.tolist() == [0, 0]
    assert view.clusters.tolist() == [0, 1]


def test_messages() -> None:
    with pytest.raises(
        InputError, match=r"one finite share of zero or more for each of 3 connections, got \[1.0, 2.0\]"
    ):
        Fixed([1, 2]).start(3)
    with pytest.raises(InputError, match=r"ascending times, got times \[5, 0\]: sort the splits"):
        Schedule([(5, [1]), (0, [1])])
