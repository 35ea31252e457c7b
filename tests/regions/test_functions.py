from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import isotonic_regression

from headgate.arrays import Bool
from headgate.regions.balance import RESOLUTION
from headgate.regions.functions import STEPS, Functions, line, monotone

FIRST, BOTH = np.array([True, False]), np.array([True, True])
SHARE = np.array([1.0, 1.0])


def test_a_value_tells_the_line_through_its_knee() -> None:
    told = line(np.array([300.0]), np.array([2.0]))[0]
    assert told[100] == 0  # the knee: what a worker can just keep up with
    assert told[300] == 2
    assert told[1000] == 9


def test_at_weight_0_nothing_can_be_told() -> None:
    told = line(np.array([0.0]), np.array([0.5]))[0]
    assert told[0] == 0
    assert np.isinf(told[1:]).all()


def test_the_first_value_is_taken_as_it_is_and_later_ones_by_half() -> None:
    functions = Functions(2)
    weights = np.array([500, 500])
    functions.measure(FIRST, weights, np.array([4.0, 0.0]), SHARE)
    assert functions.curves()[0, 500] == 4
    functions.measure(FIRST, weights, np.array([2.0, 0.0]), SHARE)
    assert 2 < functions.curves()[0, 500] < 3
    assert functions.measured.tolist() == [True, False]


def test_who_did_not_block_has_no_more_drag_than_the_region() -> None:
    functions = Functions(2)
    weights = np.array([500, 500])
    functions.bound(BOTH, weights, 4.0)
    assert functions.curves()[:, 500].tolist() == [4, 4]
    functions.bound(BOTH, weights, 9.0)  # says less than is known
    assert functions.curves()[:, 500].tolist() == [4, 4]
    functions.bound(BOTH, np.array([750, 250]), 2.0)
    assert functions.curves()[0, 750] == 2
    assert np.allclose(functions.curves()[1], line(np.array([500.0]), np.array([4.0]))[0])
    assert not functions.measured.any()


def test_who_gave_up_weight_cannot_have_more_drag_than_before() -> None:
    functions = Functions(2)
    functions.measure(BOTH, np.array([500, 500]), np.array([4.0, 4.0]), SHARE)
    assert functions.may_have(np.array([400, 600]), 5.0).tolist() == [False, True]


def test_blame_takes_hope_back() -> None:
    functions = Functions(2)
    functions.hope[:] = 0.5
    functions.measure(BOTH, np.array([500, 500]), np.array([4.0, 4.0]), np.array([1.0, 0.5]))
    assert functions.hope.tolist() == [1.0, 0.75]


def test_of_whom_nothing_is_known_the_mean_of_the_others_is_believed() -> None:
    functions = Functions(3)
    weights = np.array([500, 500, 0])
    functions.measure(np.array([True, True, False]), weights, np.array([4.0, 9.0, 0.0]), np.ones(3))
    assert functions.curves()[2, 500] == 6.5
    functions.forget(np.array([True, True, True]))
    assert functions.curves().max() == 0


Step = tuple[str, list[int], list[bool], float]


@st.composite
def histories(draw: Any) -> list[Step]:
    step = st.tuples(
        st.sampled_from(["measure", "bound", "forget"]),
        st.lists(st.integers(1, RESOLUTION), min_size=3, max_size=3),
        st.lists(st.booleans(), min_size=3, max_size=3),
        st.floats(0, 1e6),
    )
    steps: list[Step] = draw(st.lists(step, max_size=12))
    return steps


@given(histories())
def test_functions_are_finite_never_fall_and_are_zero_at_zero(history: list[Step]) -> None:
    functions = Functions(3)
    for kind, weights, who, drag in history:
        which: Bool = np.array(who)
        if kind == "measure":
            functions.measure(which, np.array(weights), np.full(3, drag), np.ones(3))
        elif kind == "bound":
            functions.bound(which, np.array(weights), drag)
        else:
            functions.forget(which)
        curves = functions.curves()
        assert np.isfinite(curves).all()
        assert (curves[:, 0] == 0).all()
        assert (np.diff(curves, axis=1) >= 0).all()


@given(
    arrays(np.float64, (3, 8), elements=st.floats(0, 100)),
    arrays(np.float64, (3, 8), elements=st.floats(0.01, 10)),
)
def test_one_regression_for_all_is_the_same_as_one_for_each(raw: Any, evidence: Any) -> None:
    raw[:, 0] = 0.0
    each = np.stack([isotonic_regression(row, weights=by).x for row, by in zip(raw, evidence, strict=True)])
    assert np.allclose(monotone(raw, evidence), each, atol=1e-9)


def test_a_smaller_unit_of_drag_keeps_the_line() -> None:
    functions = Functions(2)
    functions.measure(np.array([True, False]), np.array([500, 500]), np.array([9.0, 0.0]), np.ones(2))
    functions.rescale(4.0)
    fresh = Functions(2)
    fresh.measure(np.array([True, False]), np.array([500, 500]), np.array([39.0, 0.0]), np.ones(2))
    beyond = slice(50, None)  # where the knee was; below it nothing was known but that it is low
    assert np.allclose(functions.curves()[0, beyond], fresh.curves()[0, beyond])
    assert np.isinf(functions.raw[1, 1:]).all()


def test_steps_are_the_weights() -> None:
    assert STEPS[[0, -1]].tolist() == [0, RESOLUTION]
