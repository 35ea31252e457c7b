"""Variance and standard deviation against Python's exact ones, far from zero too."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.operators import Aggregation, stddev, variance

EVERY = {
    "sample": variance("v"),
    "all": variance("v", sample=False),
    "dev": stddev("v"),
    "dev_all": stddev("v", sample=False),
}


def operator(kind: pa.DataType) -> Aggregation:
    return Aggregation("op", pa.schema([("k", pa.int64()), ("v", kind)]), ("k",), EVERY)


@given(
    st.sampled_from([0.0, 1e3, -1e6]),
    st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_any_split_gives_the_variance_to_within_rounding(driver: Any, far: float, near: list[float], cuts: Any) -> None:
    values = [far + each for each in near]
    rows = pa.table({"k": [1] * len(values), "v": values})
    got = driver(operator(pa.float64())).batch(rows, cuts=[min(cut, len(values)) for cut in cuts])[0]
    exact = float(statistics.pvariance([Fraction(each) for each in values]))
    # A deviation is off by the rounding of the mean: ten units in its last place, with room.
    off = 1e-14 * max(1.0, abs(far)) * max(1.0, math.sqrt(exact))
    assert got["all"] == pytest.approx(exact, rel=1e-11, abs=10 * off)
    assert got["dev_all"] == math.sqrt(got["all"])
    if len(values) == 1:
        assert (got["sample"], got["dev"], got["all"]) == (None, None, 0.0)
    else:
        assert got["sample"] == pytest.approx(got["all"] * len(values) / (len(values) - 1), rel=1e-12)


def test_no_digits_are_lost_far_from_zero(driver: Any) -> None:
    """A sum of squares would leave none of them: 1e9 squared has 18 digits, and a double 16."""
    values = [1e9 + each for each in (4.0, 7.0, 13.0, 16.0)]
    got = driver(operator(pa.float64())).batch(pa.table({"k": [1] * 4, "v": values}), cuts=[1, 3])
    assert got[0]["sample"] == 30.0


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.decimal128(9, 2)])
def test_of_every_kind_of_number(driver: Any, kind: pa.DataType) -> None:
    values = pa.array([Decimal(each) for each in (2, 4, 4, 4, 5, 5, 7, 9)] + [None], pa.decimal128(9, 2)).cast(kind)
    got = driver(operator(kind)).batch(pa.table({"k": [1] * 9, "v": values}))
    assert (got[0]["all"], got[0]["dev_all"]) == (4.0, 2.0)


def test_nan_spreads_and_stays_in_its_key(driver: Any) -> None:
    got = driver(operator(pa.float64())).batch(pa.table({"k": [1, 1, 2, 2], "v": [1.0, math.nan, 1.0, 3.0]}))
    found = {row["k"]: row["all"] for row in got}
    assert math.isnan(found[1])
    assert found[2] == 1.0


def test_text_has_no_variance() -> None:
    with pytest.raises(InputError, match="the variance 'sample' needs a column of numbers, got string: cast it first"):
        operator(pa.string())
