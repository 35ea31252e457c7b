from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import F64, I64
from headgate.errors import InputError
from headgate.regions.allocation import fox, select

Problem = tuple[F64, int, I64, I64, I64]


@st.composite
def problems(draw: Any, connections: int = 6, units: int = 40) -> Problem:
    """Functions with long flat stretches, as blocking rates have them: few different values."""
    count = draw(st.integers(1, connections))
    total = draw(st.integers(1, units))
    row = st.lists(st.integers(0, 4), min_size=total, max_size=total)
    rises = np.array([draw(row) for _ in range(count)], dtype=np.float64)
    rises *= np.array(draw(st.lists(st.integers(0, 1), min_size=total, max_size=total)))
    functions = np.concatenate([np.zeros((count, 1)), np.cumsum(rises, axis=1)], axis=1)
    somewhere = np.array(draw(st.lists(st.integers(0, total), min_size=count, max_size=count)))
    cuts = np.sort(
        np.array(draw(st.lists(st.integers(0, total), min_size=count - 1, max_size=count - 1)), dtype=np.int64)
    )
    feasible = np.diff(np.concatenate([[0], cuts, [total]]))
    least = np.maximum(feasible - somewhere, 0)
    most = np.minimum(feasible + somewhere[::-1], total)
    prefer = np.array(draw(st.lists(st.integers(0, total), min_size=count, max_size=count)))
    return functions, total, least, most, prefer


def worst(functions: F64, weights: I64) -> float:
    return float(functions[np.arange(len(weights)), weights].max())


@given(problems())
def test_all_units_are_shared_out_within_the_bounds(problem: Problem) -> None:
    _, units, least, most, _ = problem
    weights = select(*problem)
    assert weights.sum() == units
    assert ((least <= weights) & (weights <= most)).all()


@given(problems())
def test_selection_and_greedy_agree_to_the_unit(problem: Problem) -> None:
    assert select(*problem).tolist() == fox(*problem).tolist()


@given(problems(connections=3, units=7))
def test_no_other_split_is_better(problem: Problem) -> None:
    functions, units, least, most, _ = problem
    ranges = [range(low, high + 1) for low, high in zip(least, most, strict=True)]
    best = min(worst(functions, np.array(split)) for split in product(*ranges) if sum(split) == units)
    assert worst(functions, fox(*problem)) == best


def test_equal_connections_get_equal_weights_where_nothing_blocks() -> None:
    flat = np.zeros((3, 1001))
    bounds = np.zeros(3, dtype=np.int64), np.full(3, 1000)
    assert select(flat, 1000, *bounds, np.zeros(3, dtype=np.int64)).tolist() == [334, 333, 333]


def test_equals_stay_at_the_preferred_weights() -> None:
    flat = np.zeros((3, 1001))
    bounds = np.zeros(3, dtype=np.int64), np.full(3, 1000)
    assert select(flat, 1000, *bounds, np.array([700, 200, 100])).tolist() == [700, 200, 100]
    assert select(flat, 1000, *bounds, np.array([700, 200, 40])).tolist() == [720, 220, 60]


def test_a_steep_function_gets_what_is_left() -> None:
    steps = np.arange(1001.0)
    functions = np.stack([steps, 9 * steps])
    bounds = np.zeros(2, dtype=np.int64), np.full(2, 1000)
    assert select(functions, 1000, *bounds, np.zeros(2, dtype=np.int64)).tolist() == [900, 100]


@pytest.mark.parametrize("method", [fox, select])
def test_messages(method: Any) -> None:
    flat, nothing = np.zeros((2, 11)), np.zeros(2, dtype=np.int64)
    with pytest.raises(
        InputError, match="10 units must fit between the bounds, but those sum to 0 at least and 8 at most"
    ):
        method(flat, 10, nothing, np.array([4, 4]), nothing)
    with pytest.raises(
        InputError, match=r"0 <= least <= most <= 10 for each connection, got least \[5, 0\] and most \[4"
    ):
        method(flat, 10, np.array([5, 0]), np.array([4, 10]), nothing)
