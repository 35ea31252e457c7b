"""Key groups and where they are at home."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import AssignmentError, LimitsError, SnapshotError
from headgate.routing import group_of, home_slots, key_hash


def test_groups_are_non_negative_remainders() -> None:
    hashes = np.array([-1, 0, 1, 1023, 1024, -1025], dtype=np.int64)
    assert group_of(hashes).tolist() == [1023, 0, 1, 1023, 0, 1023]
    assert group_of(hashes, 10).tolist() == [9, 0, 1, 3, 4, 5]


def test_keys_spread_evenly_over_groups() -> None:
    sizes = np.bincount(group_of(key_hash(np.arange(200_000)), 100), minlength=100)
    assert sizes.min() > 1800
    assert sizes.max() < 2200


@given(st.integers(1, 400), st.integers(1, 40))
def test_every_slot_gets_its_share_to_within_one(groups: int, slots: int) -> None:
    sizes = np.bincount(home_slots(groups, slots), minlength=slots)
    assert sizes.sum() == groups
    assert sizes.max() - sizes.min() <= 1


def test_golden_homes() -> None:
    assert home_slots(16, 4).tolist() == [0, 3, 2, 2, 1, 0, 0, 2, 3, 1, 0, 1, 2, 1, 3, 3]


@pytest.mark.parametrize("slots", [4, 10, 15, 31])
def test_one_more_slot_moves_less_than_three_times_its_share(slots: int) -> None:
    moved = np.count_nonzero(home_slots(1024, slots) != home_slots(1024, slots + 1))
    assert 1024 // (slots + 1) <= moved <= 3 * 1024 / (slots + 1)


def test_capacity_weighs_the_shares_and_zero_gets_nothing() -> None:
    sizes = np.bincount(home_slots(700, 4, [1, 2, 4, 0]), minlength=4)
    assert sizes.tolist() == [100, 200, 400, 0]


def test_operators_share_one_placement() -> None:
    homes = home_slots(64, 5, operators=3).reshape(3, 64)
    assert (homes == homes[0]).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(AssignmentError, match="needs at least one slot, got 0"):
        home_slots(8, 0)
    with pytest.raises(AssignmentError, match="one capacity per slot: expected 3, got 2"):
        home_slots(8, 3, [1, 1])
    with pytest.raises(SnapshotError, match="finite number above zero"):
        home_slots(8, 2, [0, 0])
    with pytest.raises(LimitsError, match="groups must be at least 1, got 0"):
        group_of(np.zeros(1, dtype=np.int64), 0)
