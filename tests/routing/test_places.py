"""Places: every key has one, every place one owner, and a relocation names exactly the keys whose place changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import I64
from headgate.control import moved, resized
from headgate.routing import SHARED, Assignment, Places, Relocation
from headgate.routing.groups import group_of
from headgate.routing.places import NOBODY

GROUPS = 6
KEYS = np.arange(-40, 41, dtype=np.int64) * 1_000_003
NONE = np.empty(0, dtype=np.int64)

NUMBERS = st.frozensets(st.integers(0, len(KEYS) - 1), max_size=6)


def hashes(numbers: frozenset[int]) -> I64:
    return KEYS[sorted(numbers)]


@st.composite
def placed(draw: st.DrawFn) -> Places:
    """Any assignment that moves by hand and changes of slots lead to, with any keys split."""
    assignment = Assignment.hashed(draw(st.integers(1, 4)), GROUPS, operators=2)
    for _ in range(draw(st.integers(0, 3))):
        groups = draw(st.frozensets(st.integers(0, GROUPS - 1), max_size=3))
        to, operator = draw(st.integers(0, assignment.slots - 1)), draw(st.integers(0, 1))
        assignment = moved(assignment, to, keys=hashes(draw(NUMBERS)), groups=groups, operator=operator)
        assignment = resized(assignment, draw(st.integers(1, 4)))
    return Places(assignment, draw(st.integers(0, 1)), np.sort(hashes(draw(NUMBERS))))


@given(places=placed())
def test_a_key_is_placed_by_being_split_pinned_or_in_its_group(places: Places) -> None:
    pinned = dict(
        zip(*(column.tolist() for column in places.assignment.pins.of_operator(places.operator)), strict=True)
    )
    for key, place, group in zip(KEYS.tolist(), places.of(KEYS).tolist(), group_of(KEYS, GROUPS).tolist(), strict=True):
        if key in places.shared:
            assert place == GROUPS == places.shared_place
        elif key in pinned:
            assert place == GROUPS + 1 + pinned[key]
        else:
            assert place == group


@given(places=placed())
def test_the_owner_of_a_keys_place_is_the_slot_that_its_rows_go_to(places: Places) -> None:
    owners = places.owners()
    assert len(owners) == places.count == GROUPS + 1 + places.assignment.slots
    assert owners[GROUPS] == SHARED
    single = KEYS[~np.isin(KEYS, places.shared)]
    assert (owners[places.of(single)] == places.assignment.route(single, places.operator)).all()
    assert sorted(set(places.listed().tolist())) == places.listed().tolist(), "ascending, each once"


@given(before=placed(), after=placed())
def test_a_relocation_names_the_keys_whose_place_changes_and_no_other(before: Places, after: Places) -> None:
    after = Places(after.assignment, before.operator, after.shared)
    moving = Relocation.between(before, after)
    old, new = before.of(KEYS), after.of(KEYS)
    assert moving.hash.tolist() == KEYS[old != new].tolist()
    assert len(moving) == int((old != new).sum())
    assert moving.source_place.tolist() == old[old != new].tolist()
    assert moving.target_place.tolist() == new[old != new].tolist()
    assert (moving.source == before.owners()[moving.source_place]).all()
    assert (moving.target == after.owners()[moving.target_place]).all()
    for place, cleaner in zip(moving.source_place.tolist(), moving.cleaner.tolist(), strict=True):
        assert cleaner == (after.owners()[place] if place < after.count else NOBODY)


KEY = int(KEYS[3])
GROUP = int(group_of(KEYS[3:4], GROUPS)[0])


@pytest.mark.parametrize(
    ("before", "after", "source", "cleaner", "target"),
    [
        pytest.param((3, None, ()), (3, 2, ()), "group", "group", 2, id="pinned: from the group's slot to its own"),
        pytest.param((3, 2, ()), (3, None, ()), 2, 2, "group", id="unpinned: back to its group"),
        pytest.param((3, 1, ()), (3, 2, ()), 1, 1, 2, id="pinned elsewhere"),
        pytest.param((3, None, ()), (3, None, (KEY,)), "group", "group", SHARED, id="split: the driver takes it"),
        pytest.param((3, 2, (KEY,)), (3, 2, ()), SHARED, SHARED, 2, id="joined again: to where it is pinned"),
        pytest.param((3, 2, ()), (2, None, ()), 2, NOBODY, "group", id="its slot is taken away: nobody cleans up"),
    ],
)
def test_who_gives_takes_and_cleans_up(
    before: Any, after: Any, source: object, cleaner: object, target: object
) -> None:
    def places(slots: int, pin: int | None, shared: tuple[int, ...]) -> Places:
        # The group is in slot 0 throughout, so that a pin elsewhere is a pin.
        assignment = moved(Assignment.hashed(slots, GROUPS), 0, groups=[GROUP])
        if pin is not None:
            assignment = moved(assignment, pin, keys=[KEY])
        return Places(assignment, 0, np.array(shared, dtype=np.int64))

    moving = Relocation.between(places(*before), places(*after))
    assert moving.hash.tolist() == [KEY]
    named = [0 if who == "group" else who for who in (source, cleaner, target)]
    assert [int(column[0]) for column in (moving.source, moving.cleaner, moving.target)] == named


def test_a_group_that_changes_slot_relocates_no_key() -> None:
    before = Assignment.hashed(3, GROUPS)
    after = moved(before, 2, groups=range(GROUPS))
    assert len(Relocation.between(Places(before, 0, NONE), Places(after, 0, NONE))) == 0
