from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.state import Bitmap

PLACES = st.sets(st.integers(0, 90))


@given(PLACES, PLACES)
def test_a_bitmap_is_a_set_of_places(left: set[int], right: set[int]) -> None:
    one, other = Bitmap.of(sorted(left)), Bitmap.of(list(right))
    assert set(one.indices().tolist()) == left
    assert list(one.indices()) == sorted(left)
    assert set(one.union(other).indices().tolist()) == left | right
    assert set(one.intersect(other).indices().tolist()) == left & right
    assert set(one.minus(other).indices().tolist()) == left - right
    assert len(one) == len(left)
    assert bool(one) == bool(left)
    assert (one == other) == (left == right)
    everything = np.arange(200, dtype=np.int32)
    assert set(np.flatnonzero(one.contains(everything)).tolist()) == left
    assert [place in one for place in range(100)] == [place in left for place in range(100)]


@given(PLACES)
def test_text_and_pickle_give_the_same_set_back(places: set[int]) -> None:
    bitmap = Bitmap.of(list(places))
    assert Bitmap.from_text(bitmap.to_text()) == bitmap
    assert pickle.loads(pickle.dumps(bitmap)) == bitmap
    assert hash(Bitmap.of_mask(bitmap.mask(300))) == hash(bitmap)


def test_a_text_that_is_no_bitmap_is_refused() -> None:
    with pytest.raises(ValueError, match=r"base64|Non-base64"):
        Bitmap.from_text("*")
