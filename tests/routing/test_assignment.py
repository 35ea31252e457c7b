"""F(k): pins before groups; immutable versions; the difference of two assignments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import AssignmentError
from headgate.routing import Assignment, Pins, difference, group_of, key_hash, pins_from


def test_a_pin_wins_over_the_group() -> None:
    hashes = key_hash(["hot", "cold"])
    plain = Assignment.hashed(4)
    home = plain.route(hashes)
    elsewhere = (int(home[0]) + 1) % 4
    pinned = plain.next(pins=pins_from({int(hashes[0]): elsewhere}))
    assert pinned.route(hashes).tolist() == [elsewhere, int(home[1])]
    assert pinned.version == plain.version + 1


@given(
    st.integers(1, 20),
    st.sampled_from([1, 7, 64, 1000]),
    st.dictionaries(st.integers(0, 300), st.integers(0, 19), max_size=60),
)
def test_route_is_the_table_then_the_group(slots: int, groups: int, table: dict[int, int]) -> None:
    hashes = key_hash(np.arange(301))
    wanted = {int(hashes[key]): slot % slots for key, slot in table.items()}
    assignment = Assignment.hashed(slots, groups).next(pins=pins_from(wanted))
    expected = [
        wanted.get(int(key), int(assignment.groups[int(key) % groups]))  # Python's remainder is pmod
        for key in hashes
    ]
    assert assignment.route(hashes).tolist() == expected
    assert assignment.route(np.repeat(hashes, 3)).tolist() == np.repeat(expected, 3).tolist()
    operator = np.zeros(301, dtype=np.int32)
    assert assignment.locate(hashes, operator, group_of(hashes, groups)).tolist() == expected


def test_each_operator_has_its_own_pins_and_groups() -> None:
    hashes = key_hash(["k"])
    pins = Pins.of([0, 1], [hashes[0], hashes[0]], [2, 3])
    assignment = Assignment.hashed(5, 16, operators=2).next(pins=pins)
    assert assignment.route(hashes, operator=0).tolist() == [2]
    assert assignment.route(hashes, operator=1).tolist() == [3]
    both = assignment.locate(np.repeat(hashes, 2), np.array([0, 1], np.int32), np.array([0, 16], np.int32))
    assert both.tolist() == [2, 3]
    with pytest.raises(AssignmentError, match="operators are numbered 0 to 1, got 2"):
        assignment.route(hashes, operator=2)


def test_assignments_do_not_change() -> None:
    groups = np.zeros(8, dtype=np.int32)
    assignment = Assignment(groups, 2)
    groups[0] = 1
    assert assignment.groups[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        assignment.groups[0] = 1


def test_equal_content_compares_equal() -> None:
    assert Assignment.hashed(3) == Assignment.hashed(3)
    assert Assignment.hashed(3) != Assignment.hashed(4)
    assert Assignment.hashed(3) != Assignment.hashed(3).next(pins=pins_from({1: 1}))
    assert Assignment.hashed(3) != "hashed"


def test_the_difference_carries_the_state() -> None:
    moved = difference(np.array([0, 1, 2], np.int32), np.array([0, 2, 1], np.int32), np.array([5.0, 7.0, 11.0]))
    assert moved.rows.tolist() == [1, 2]
    assert (moved.source.tolist(), moved.target.tolist()) == ([1, 2], [2, 1])
    assert moved.total_bytes == 18.0
    assert len(moved) == 2


def test_slots_grow_empty_and_shrink_only_when_empty() -> None:
    assignment = Assignment.hashed(3, 12)
    assert assignment.resized(5).slots == 5
    assert 4 not in assignment.resized(5).groups
    with pytest.raises(AssignmentError, match=r"slots are numbered 0 to 1, but a key group names slot 2"):
        assignment.resized(2)


BAD = [
    pytest.param(lambda: Assignment(np.array([0]), 0), "needs at least one slot, got 0", id="no slot"),
    pytest.param(lambda: Assignment(np.array([3]), 2), "a key group names slot 3", id="a group in a slot not there"),
    pytest.param(
        lambda: Assignment(np.array([0]), 2, pins_from({1: 9})), "a pin names slot 9", id="a pin to a slot not there"
    ),
    pytest.param(
        lambda: Assignment.hashed(2, draining=[5]), "list of draining slots names slot 5", id="draining nothing"
    ),
    pytest.param(lambda: Assignment.hashed(2).drain(0, 1), "all 2 slots are draining", id="nowhere left"),
    pytest.param(lambda: Pins.of([0, 0], [7, 7], [0, 1]), "key hash 7 of operator 0 is pinned more", id="pinned twice"),
]


@pytest.mark.parametrize(("make", "text"), BAD)
def test_what_cannot_be_is_refused(make: object, text: str) -> None:
    with pytest.raises(AssignmentError, match=text):
        make()  # type: ignore[operator]
