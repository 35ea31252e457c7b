from __future__ import annotations

import json
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import I32
from headgate.routing.places import NOBODY, SHARED
from headgate.state import Bitmap, Layout, PackedRefs, Ref, RunInfo, moved


def info(name: str, batch: int, places: list[int], rows: int = 100) -> RunInfo:
    return RunInfo(name, batch, rows, 1000, "ab", Bitmap.of(places), timers={"event": (3, 9)})


def owners(*slots: int) -> I32:
    return np.array(slots, dtype=np.int32)


OLD, NEW = info("old", 4, [0, 1, 2]), info("new", 7, [0, 1])
OTHER = info("other", 5, [3])
LAYOUT = Layout({(0, 0): (Ref(OLD, OLD.places), Ref(NEW, NEW.places)), (0, 1): (Ref(OTHER, OTHER.places),)})


def test_a_place_that_moves_takes_its_bit_of_every_reference_along() -> None:
    after = moved(LAYOUT, 0, owners(0, 1, 0, 1))
    assert after.refs(0, 0) == (Ref(OLD, Bitmap.of([0, 2])), Ref(NEW, Bitmap.of([0])))
    assert after.refs(0, 1) == (Ref(OLD, Bitmap.of([1])), Ref(OTHER, Bitmap.of([3])), Ref(NEW, Bitmap.of([1])))


def test_moving_back_gives_the_layout_back() -> None:
    there = moved(LAYOUT, 0, owners(1, 1, 1, 0))
    assert moved(there, 0, owners(0, 0, 0, 1)) == LAYOUT


def test_what_does_not_change_stays_the_same_object() -> None:
    assert moved(LAYOUT, 0, owners(0, 0, 0, 1)) is LAYOUT
    assert moved(LAYOUT, 1, owners(5, 5, 5, 5)) is LAYOUT
    after = moved(LAYOUT, 0, owners(0, 0, 2, 1))
    assert after.refs(0, 0)[1] is LAYOUT.refs(0, 0)[1]
    assert after.refs(0, 1) == LAYOUT.refs(0, 1)


def test_places_of_slots_taken_away_are_dropped() -> None:
    assert moved(LAYOUT, 0, owners(0, 0)).owners == {(0, 0): (Ref(OLD, Bitmap.of([0, 1])), Ref(NEW, NEW.places))}
    assert moved(LAYOUT, 0, owners(0, 0, NOBODY, NOBODY)) == moved(LAYOUT, 0, owners(0, 0))


def test_the_driver_owns_places_too() -> None:
    assert moved(LAYOUT, 0, owners(0, 0, 0, SHARED)).refs(0, SHARED) == (Ref(OTHER, OTHER.places),)


def test_a_run_comes_after_the_references_that_are_kept() -> None:
    run = info("next", 9, [1])
    assert LAYOUT.with_run(0, 0, run, 1).refs(0, 0) == (Ref(OLD, OLD.places), Ref(run, run.places))
    assert LAYOUT.with_run(0, 0, None, 2) == LAYOUT
    assert (0, 0) not in LAYOUT.with_run(0, 0, None, 0).owners
    assert LAYOUT.with_run(3, 2, run, 0).refs(3, 2) == (Ref(run, run.places),)
    assert set(LAYOUT.runs()) == {"old", "new", "other"}


def test_a_reference_to_part_of_a_run_counts_its_share_of_the_rows() -> None:
    assert Ref(OLD, OLD.places).rows == 100
    assert Ref(OLD, Bitmap.of([1])).rows == 34


def test_a_layout_survives_json_and_pickle() -> None:
    layout = moved(LAYOUT, 0, owners(0, 1, SHARED, 1))
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert pickle.loads(pickle.dumps(layout)) == layout


@given(st.data())
def test_no_bit_is_lost_or_in_two_slots(data: st.DataObject) -> None:
    places = 12
    slot = st.integers(-1, 4)
    old = data.draw(st.lists(slot, min_size=places, max_size=places))
    new = data.draw(st.lists(slot, min_size=places, max_size=places))
    layout = Layout()
    for batch in range(data.draw(st.integers(0, 4))):
        for number in range(-1, 5):
            mine = [place for place in range(places) if old[place] == number]
            has = data.draw(st.lists(st.sampled_from(mine), unique=True)) if mine else []
            layout = layout.with_run(0, number, info(f"{batch}/{number}", batch, has) if has else None, batch)
    bits = {(ref.run.name, int(place)) for _, _, ref in layout for place in ref.places.indices()}
    after = moved(layout, 0, owners(*new))
    found = [(ref.run.name, int(place)) for _, _, ref in after for place in ref.places.indices()]
    assert sorted(found) == sorted(bits)
    for _, number, ref in after:
        assert all(new[place] == number for place in ref.places.indices())
    for refs in after.owners.values():
        assert [ref.run.batch for ref in refs] == sorted(ref.run.batch for ref in refs)
        assert len({ref.run.name for ref in refs}) == len(refs)
    assert moved(after, 0, owners(*old)) == moved(layout, 0, owners(*old))


def test_references_travel_packed_and_each_slot_unpacks_its_own() -> None:
    travelled = pickle.loads(pickle.dumps(LAYOUT.packed()))
    assert isinstance(travelled.owners, PackedRefs)
    assert travelled.refs(0, 0) == LAYOUT.refs(0, 0)
    assert travelled.refs(1, 0) == ()
    assert ((0, 1) in travelled.owners, (1, 0) in travelled.owners) == (True, False)
    assert dict(travelled.owners) == LAYOUT.owners


def test_what_differs_between_layouts_is_given_as_it_is_here() -> None:
    after = moved(LAYOUT, 0, owners(0, 2, 0, 1))
    assert LAYOUT.differing(after) == {(0, 0): LAYOUT.refs(0, 0), (0, 2): ()}
    assert after.differing(LAYOUT) == {(0, 0): after.refs(0, 0), (0, 2): after.refs(0, 2)}
    assert LAYOUT.differing(LAYOUT) == {}
