from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headgate.cli import placement
from headgate.cli.placement import place
from headgate.cli.statistics import NO_SLOT, Statistics
from headgate.errors import InputError
from headgate.routing import Assignment, group_of, key_hash

KEYS = pa.array([f"key {number}" for number in range(400)])
SLOTS = 4


def statistics() -> Statistics:
    return Statistics(KEYS, np.arange(400.0), np.arange(400.0))


def homes() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return Assignment.hashed(SLOTS).groups[group_of(key_hash(KEYS))].astype(np.int64)


def located(placed: placement.Placement) -> list[int]:
    snapshot = placed.snapshot
    slots: list[int] = placed.assignment.locate(snapshot.hash, snapshot.operator, snapshot.group).tolist()
    return slots


def test_without_slots_keys_are_where_the_hash_puts_them() -> None:
    placed = place(statistics(), SLOTS, groups=1024)
    assert placed.home == "hash"
    assert located(placed) == homes().tolist()
    assert placed.assignment == Assignment.hashed(SLOTS)


def test_few_keys_elsewhere_are_pins() -> None:
    slot = homes()
    slot[:30] = (slot[:30] + 1) % SLOTS
    placed = place(replace(statistics(), slot=slot), SLOTS, groups=1024)
    assert placed.home == "hash"
    assert len(placed.assignment.pins) == 30
    assert located(placed) == slot.tolist()


def test_agreement_is_judged_at_half_way() -> None:
    at_home = homes()
    for away, home in ((150, "hash"), (151, "slot")):  # (1 + 1/4) / 2 of 400 keys are 250
        slot = at_home.copy()
        slot[:away] = (slot[:away] + 1) % SLOTS
        assert place(replace(statistics(), slot=slot), SLOTS, groups=1024).home == home


def test_places_of_another_hash_are_the_base() -> None:
    slot = (homes() + 1) % SLOTS
    placed = place(replace(statistics(), slot=slot), SLOTS, groups=1024)
    assert placed.home == "slot"
    assert len(placed.assignment.pins) == 0
    assert located(placed) == slot.tolist()
    assert placed.snapshot.group.tolist() == list(range(400))  # every key can be moved by itself


def test_many_keys_share_groups_of_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SINGLE_ROWS", 399)
    slot = (homes() + 1) % SLOTS
    placed = place(replace(statistics(), slot=slot), SLOTS, groups=40)
    assert located(placed) == slot.tolist()
    assert placed.snapshot.groups == 40
    assert placed.snapshot.group.tolist() == (slot * 10 + group_of(key_hash(KEYS), 10)).tolist()


@pytest.mark.parametrize("single_rows", [399, 400], ids=["groups of many keys", "a group per key"])
def test_operators_have_groups_of_their_own(monkeypatch: pytest.MonkeyPatch, single_rows: int) -> None:
    monkeypatch.setattr(placement, "SINGLE_ROWS", single_rows)
    slot = (homes() + 1) % SLOTS
    operator = tuple("map" if row < 300 else "join" for row in range(400))
    placed = place(replace(statistics(), slot=slot, operator=operator), SLOTS, groups=40, draining=[0])
    assert placed.assignment.operators == 2
    assert located(placed) == slot.tolist()
    size = placed.assignment.groups_per_operator
    assert (placed.snapshot.group // size).tolist() == placed.snapshot.operator.tolist()
    # A group without a key is never in a draining slot, so that nothing has to be moved for its sake.
    used = np.isin(np.arange(size * 2), placed.snapshot.group)
    assert (placed.assignment.groups[~used] != 0).all()


def test_empty_cells_follow_the_hash() -> None:
    slot = np.full(400, NO_SLOT)
    slot[0] = (homes()[0] + 1) % SLOTS
    placed = place(replace(statistics(), slot=slot), SLOTS, groups=1024)
    assert located(placed)[1:] == homes()[1:].tolist()


def test_the_null_key_has_a_name() -> None:
    placed = place(Statistics(pa.array(["a", None]), np.ones(2), np.ones(2)), 2, groups=8)
    assert placed.snapshot.labels == ("a", "null")


def test_faults() -> None:
    with pytest.raises(InputError, match="slots are numbered 0 to 3, but key 'key 0' names slot 9"):
        place(replace(statistics(), slot=np.full(400, 9)), SLOTS, groups=1024)
    with pytest.raises(InputError, match="one capacity per slot: expected 4, got 2"):
        place(statistics(), SLOTS, groups=1024, capacity=[1.0, 1.0])
    with pytest.raises(InputError, match="names slot 4"):
        place(statistics(), SLOTS, groups=1024, draining=[4])


@pytest.mark.parametrize("slot", [-3, SLOTS, 2**53])
def test_slots_that_do_not_exist_are_refused(slot: int) -> None:
    given = np.where(np.arange(400) == 7, slot, homes())
    with pytest.raises(InputError, match=f"slots are numbered 0 to 3, but key 'key 7' names slot {slot}: raise slots"):
        place(replace(statistics(), slot=given), SLOTS, groups=1024)
