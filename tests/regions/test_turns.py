from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.regions.turns import Turns

WEIGHTS = st.lists(st.integers(0, 400), min_size=1, max_size=24).filter(lambda weights: sum(weights) > 0)


def turns(*weights: int) -> Turns:
    return Turns(np.array(weights))


def test_turns_are_spread_out() -> None:
    assert turns(500, 300, 200).take(10).tolist() == [0, 1, 2, 0, 0, 1, 0, 2, 1, 0]
    assert turns(1, 1, 1).take(6).tolist() == [0, 1, 2, 0, 1, 2]
    assert turns(0, 7).take(3).tolist() == [1, 1, 1]


def test_nobody_has_a_turn_without_weight() -> None:
    assert turns(0, 0).next() == -1


@given(WEIGHTS)
def test_after_every_turn_everyone_is_within_a_turn_of_the_share(weights: list[int]) -> None:
    total = sum(weights)
    taken = Turns(np.array(weights)).take(2 * total)
    had = np.cumsum(taken[:, None] == np.arange(len(weights)), axis=0)
    due = np.arange(1, 2 * total + 1)[:, None] * np.array(weights) / total
    assert np.abs(had - due).max() < 1
    assert had[total - 1].tolist() == weights


@given(WEIGHTS, st.integers(1, 50))
def test_many_turns_at_once_are_the_same_as_one_by_one(weights: list[int], count: int) -> None:
    one_by_one = Turns(np.array(weights))
    assert Turns(np.array(weights)).take(count).tolist() == [one_by_one.next() for _ in range(count)]


@given(st.lists(st.tuples(st.lists(st.integers(0, 300), min_size=4, max_size=4), st.integers(0, 40)), min_size=1))
def test_no_burst_follows_a_change_of_weights(changes: list[tuple[list[int], int]]) -> None:
    order = turns(250, 250, 250, 250)
    for weights, count in changes:
        order.set(np.array(weights))
        if sum(weights) == 0:
            continue
        taken = order.take(count)
        for connection, weight in enumerate(weights):
            had = np.cumsum(taken == connection)
            share = weight / sum(weights)
            # Its share, what it is owed, at most a turn and the mean of the others' credits, and the turn it is in.
            assert (had <= np.arange(1, count + 1) * share + 3).all()


def test_setting_the_same_weights_again_changes_nothing() -> None:
    order, other = turns(600, 250, 150), turns(600, 250, 150)
    for _ in range(200):
        order.set(np.array([600, 250, 150]))
        assert order.next() == other.next()


def test_messages() -> None:
    with pytest.raises(InputError, match=r"whole numbers of zero or more, got \[1, -1\]: give one per connection"):
        turns(1, -1)
    with pytest.raises(InputError, match="turns among 2 connections need as many weights, got 3: make new turns"):
        turns(1, 1).set(np.array([1, 1, 1]))
