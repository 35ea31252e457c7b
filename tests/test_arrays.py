"""Helpers of arrays that hot loops rest on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headgate.arrays import by_place


@given(
    hashes=hnp.arrays(np.int64, st.integers(0, 50), unique=True),
    most=st.sampled_from([0, 3, 65_535, 65_536, 2**31 - 1]),
    seed=st.integers(0, 9),
)
def test_rows_by_place_are_in_the_order_of_a_plain_sort(hashes: np.ndarray, most: int, seed: int) -> None:
    place = np.random.default_rng(seed).integers(0, most, len(hashes), endpoint=True).astype(np.int32)
    order = by_place(place, hashes)
    assert [(place[at], hashes[at]) for at in order] == sorted(zip(place, hashes, strict=True))


@pytest.mark.parametrize("place", [[1, 0, 1, 0], [70_000, 0, 70_000, 0]])
def test_equal_rows_all_stay(place: list[int]) -> None:
    order = by_place(np.array(place, dtype=np.int32), np.zeros(4, dtype=np.int64))
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert sorted(order[:2].tolist()) == [1, 3]
