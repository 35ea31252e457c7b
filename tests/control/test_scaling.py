"""Another number of slots, and moves by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control import moved, resized
from headgate.errors import AssignmentError, SnapshotError
from headgate.routing import Assignment, Pins, key_hash
from headgate.routing.groups import group_of

KEYS = key_hash(np.arange(20))


def counts(assignment: Assignment) -> list[int]:
    return [int(count) for count in np.bincount(assignment.groups, minlength=assignment.slots)]


class TestResized:
    @given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 200), st.integers(1, 3))
    def test_only_new_or_removed_slots_are_concerned_and_shares_stay_even(
        self, before: int, after: int, groups: int, operators: int
    ) -> None:
        old = Assignment.hashed(before, groups, operators=operators)
        new = resized(old, after)
        assert new.slots == after
        changed = old.groups != new.groups
        if after > before:
            assert (new.groups[changed] >= before).all()
        else:
            assert (old.groups[changed] >= after).all()
        for operator in range(operators):
            mine = new.groups[operator * groups : (operator + 1) * groups]
            held = np.bincount(mine, minlength=after)
            assert held.max() - held.min() <= 1

    def test_up_moves_no_more_than_the_new_slots_share(self) -> None:
        old = Assignment.hashed(4, 1024)
        new = resized(old, 5)
        assert counts(new) == [205, 205, 205, 205, 204]
        assert np.count_nonzero(old.groups != new.groups) == 204
        assert new.version == 1

    def test_down_and_up_again_comes_back_even(self) -> None:
        assert counts(resized(resized(Assignment.hashed(16, 1024), 3), 16)) == [64] * 16

    def test_the_same_number_changes_nothing(self) -> None:
        old = Assignment.hashed(4, 64)
        assert resized(old, 4) is old

    def test_what_a_plan_placed_stays(self) -> None:
        """Slot 0 has all groups: a third slot takes its third from it, slot 1 stays empty."""
        old = Assignment(np.zeros(12, dtype=np.int32), 2)
        assert counts(resized(old, 3)) == [8, 0, 4]

    def test_pins_to_removed_slots_are_dropped_and_others_stay(self) -> None:
        old = Assignment.hashed(4, 64).next(pins=Pins.of([0, 0], KEYS[:2], [3, 1]))
        new = resized(old, 3)
        assert new.pins.hash.tolist() == [KEYS[1]]
        assert new.pins.slot.tolist() == [1]
        assert new.route(KEYS[:1])[0] == new.groups[group_of(KEYS[:1], 64)[0]]
        assert resized(old, 6).same_pins(old)

    def test_draining_slots_give_first_and_get_nothing(self) -> None:
        old = Assignment.hashed(4, 60).drain(1)
        more = resized(old, 5)
        assert counts(more) == [15, 0, 15, 15, 15]
        assert more.draining == {1}
        less = resized(old, 3)
        assert counts(less) == [23, 15, 22]

    @pytest.mark.parametrize(
        ("slots", "text"),
        [(0, "an assignment needs at least one slot, got 0"), (1, "all 1 slots are draining")],
    )
    def test_impossible_numbers_are_refused(self, slots: int, text: str) -> None:
        with pytest.raises(AssignmentError, match=text):
            resized(Assignment.hashed(4, 60).drain(0), slots)


class TestMoved:
    def test_keys_are_pinned_and_groups_placed(self) -> None:
        old = Assignment.hashed(4, 64, operators=2)
        new = moved(old, 2, keys=KEYS[:3].tolist(), groups=[5, 6, 5], operator=1)
        assert new.route(KEYS[:3], 1).tolist() == [2, 2, 2]
        assert new.route(KEYS[:3], 0).tolist() == old.route(KEYS[:3], 0).tolist()
        assert new.groups[[64 + 5, 64 + 6]].tolist() == [2, 2]
        assert np.count_nonzero(new.groups != old.groups) <= 2
        assert new.version == old.version + 1

    def test_a_key_whose_group_is_there_only_loses_its_pin(self) -> None:
        old = Assignment.hashed(4, 64)
        home = int(old.route(KEYS[:1])[0])
        away = moved(old, (home + 1) % 4, keys=[int(KEYS[0])])
        back = moved(away, home, keys=[int(KEYS[0])])
        assert len(away.pins) == 1
        assert len(back.pins) == 0
        assert back.route(KEYS[:1])[0] == home

    def test_a_pinned_key_stays_when_its_group_moves(self) -> None:
        group = int(group_of(KEYS[:1], 64)[0])
        pinned = Assignment.hashed(4, 64).next(pins=Pins.of([0], KEYS[:1], [1]))
        assert moved(pinned, 3, groups=[group]).route(KEYS[:1])[0] == 1

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"to": 4}, AssignmentError, "slots are numbered 0 to 3, but a move by hand names slot 4"),
            ({"to": 1}, AssignmentError, "slot 1 is draining, so nothing may move there: choose a slot"),
            ({"to": 2, "operator": 1}, AssignmentError, "operators are numbered 0 to 0, got 1"),
            ({"to": 2, "groups": [64]}, SnapshotError, "key groups are numbered 0 to 63, got 64"),
        ],
    )
    def test_what_does_not_exist_is_refused(
        self, arguments: dict[str, object], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            moved(Assignment.hashed(4, 64).drain(1), **arguments)  # type: ignore[arg-type]

    @given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 3)), max_size=20))
    def test_a_key_is_where_it_was_last_put(self, steps: list[tuple[int, int]]) -> None:
        assignment, last = Assignment.hashed(4, 64), {}
        for key, slot in steps:
            assignment = moved(assignment, slot, keys=[int(KEYS[key])])
            last[key] = slot
        for key, slot in last.items():
            assert assignment.route(KEYS[key : key + 1])[0] == slot
