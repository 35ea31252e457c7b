from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import StateError
from headgate.state import Bitmap, Ref, RunWriter, fold, merge, open_run, scan, write_delta
from headgate.state.merge import GROWTH, MAX_REFS

Row = Callable[..., Any]


def content(bench: Any, refs: list[Ref], **options: Any) -> list[tuple[int, int, int | None]]:
    """(place, hash, count) of all that is left, None for a tombstone."""
    found = []
    for place, table in scan(bench.files, refs, bench.schema, **options):
        found += list(zip(place.tolist(), *(table.column(name).to_pylist() for name in ("hash", "count")), strict=True))
    return found


@pytest.fixture(params=[1, 2, 5, 1000], ids=lambda rows: f"chunks of {rows}")
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["headgate.state.merge"], "CHUNK_ROWS", request.param)


@pytest.mark.usefixtures("_chunks")
def test_a_merge_keeps_the_newest_version_of_every_key(bench: Any, row: Row) -> None:
    refs = [
        bench.ref([row(0, key, count=key) for key in range(6)] + [row(3, -1, count=7)], batch=1),
        bench.ref([row(0, 2, count=102), row(0, 4, live=False), row(9, 5, count=105)], batch=2),
        bench.ref([row(0, 0, live=False), row(0, 2, count=202), row(0, 8, count=208)], batch=3),
    ]
    everything = [
        (0, 0, None), (0, 1, 1), (0, 2, 202), (0, 3, 3), (0, 4, None), (0, 5, 5), (0, 8, 208), (3, -1, 7), (9, 5, 105),
    ]  # fmt: skip
    alive = [entry for entry in everything if entry[2] is not None]
    assert content(bench, refs, drop_dead=False) == everything
    assert content(bench, refs) == alive
    assert content(bench, refs, places=Bitmap.of([3, 9])) == [(3, -1, 7), (9, 5, 105)]
    assert content(bench, refs, drop_dead=Bitmap.of([3])) == everything, "no dead row is in place 3"
    with RunWriter(bench.files, "runs/0/4-0-bb.run", bench.schema, 4, 16) as writer:
        merge(bench.files, refs, writer, drop_dead=True, now=None)
        info = writer.finish()
    assert content(bench, [Ref(info, info.places)]) == alive


@pytest.mark.usefixtures("_chunks")
def test_a_merge_reads_only_the_places_of_each_reference(bench: Any, row: Row) -> None:
    old = bench.ref([row(place, key, count=place) for place in range(6) for key in range(3)], batch=1)
    new = bench.ref([row(place, 1, count=10 + place) for place in range(6)], batch=2)
    refs = [Ref(old.run, Bitmap.of([0, 2, 3, 12])), Ref(new.run, Bitmap.of([3, 5]))]
    assert content(bench, refs) == [
        (0, 0, 0), (0, 1, 0), (0, 2, 0), (2, 0, 2), (2, 1, 2), (2, 2, 2), (3, 0, 3), (3, 1, 13), (3, 2, 3), (5, 1, 15),
    ]  # fmt: skip


def test_expired_rows_go_like_tombstones(bench: Any, row: Row) -> None:
    refs = [bench.ref([row(0, 1, count=1, expires=50), row(0, 2, count=2, expires=51), row(0, 3, count=3)])]
    assert content(bench, refs, now=50) == [(0, 2, 2), (0, 3, 3)]
    assert content(bench, refs, now=50, drop_dead=False) == [(0, 1, 1), (0, 2, 2), (0, 3, 3)]
    assert content(bench, refs) == [(0, 1, 1), (0, 2, 2), (0, 3, 3)]


# -- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "new_rows", "taken"),
    [
        ([], 10, 0),
        ([10_000_000], 10_000, 0),
        ([10], 10, 1),
        ([40, 20, 10], 10, 3),
        ([50, 20, 10], 10, 2),
        ([40, 21, 10], 10, 1),
        ([10_000_000, 5], 0, 0),
        ([1] * MAX_REFS, 0, 0),
        ([1] * (MAX_REFS + 1), 0, MAX_REFS + 2 - MAX_REFS // 2),
        ([10**6] * MAX_REFS, 1, MAX_REFS + 1 - MAX_REFS // 2),
        ([10**6] * (MAX_REFS - 1), 1, 0),
    ],
    ids=[
        "nothing there",
        "a much larger run is not touched",
        "one of the same size",
        "a carry goes all the way",
        "a carry stops at the first larger one",
        "a carry stops early",
        "without new rows nothing is merged",
        "also at the limit",
        "beyond the limit, down to half of it",
        "one more would be too many, down to half",
        "one more is allowed",
    ],
)
def test_fold(sizes: list[int], new_rows: int, taken: int) -> None:
    assert fold(sizes, new_rows) == taken


def test_merging_waits_while_a_slot_changes_unless_there_are_too_many_references() -> None:
    sizes = [100, 10, 10]
    assert fold(sizes, 10) == 2
    assert fold(sizes, 10, later=True) == 0
    assert fold([10] * (2 * MAX_REFS - 1), 1, later=True) == 0
    assert fold([10] * (2 * MAX_REFS), 1, later=True) > MAX_REFS


@given(st.lists(st.integers(1, 200), min_size=1, max_size=400))
def test_folding_rewrites_a_row_a_logarithmic_number_of_times(batches: list[int]) -> None:
    assert GROWTH == 1
    sizes: list[int] = []
    written = 0
    for rows in batches:
        taken = fold(sizes, rows)
        merged = rows + sum(sizes[len(sizes) - taken :])
        sizes = [*sizes[: len(sizes) - taken], merged]
        written += merged
        assert len(sizes) <= MAX_REFS
        assert all(older > newer for older, newer in pairwise(sizes))
    total = sum(batches)
    assert sum(sizes) == total
    assert written <= total * (2 + np.log2(total))


# -- write_delta -----------------------------------------------------------------------------------------------------


def delta(bench: Any, rows: list[Any], refs: list[Ref], batch: int = 9, now: int | None = None) -> tuple[Any, int]:
    name = f"runs/0/{batch}-0-cc.run"
    place, table = bench.table(rows)
    return write_delta(bench.files, name, bench.schema, batch, bench.places, place, table, refs, now)


def test_a_small_delta_leaves_large_runs_unopened(bench: Any, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    large = bench.ref([row(0, key) for key in range(50)], batch=1)
    bench.files.delete(large.run.name)
    info, kept = delta(bench, [row(0, 3, count=1)], [large])
    assert (info.rows, kept, info.batch, info.places) == (1, 1, 9, Bitmap.of([0]))


def test_a_tombstone_stays_while_an_older_reference_has_its_place(bench: Any, row: Row) -> None:
    large = bench.ref([row(0, key) for key in range(50)], batch=1)
    small = bench.ref([row(0, 90, count=1), row(5, 1, live=False)], batch=2)
    info, kept = delta(bench, [row(0, 3, live=False), row(0, 90, live=False), row(4, 1, live=False)], [large, small])
    assert kept == 1
    assert content(bench, [Ref(info, info.places)], drop_dead=False) == [(0, 3, None), (0, 90, None)]


def test_dead_rows_go_when_everything_is_merged(bench: Any, row: Row) -> None:
    old = bench.ref([row(0, 1), row(0, 2, expires=5), row(0, 3, count=3)], batch=1)
    info, kept = delta(bench, [row(0, 1, live=False), row(2, 9, live=False), row(3, 4, count=4)], [old], now=5)
    assert kept == 0
    assert content(bench, [Ref(info, info.places)], drop_dead=False) == [(0, 3, 3), (3, 4, 4)]


def test_nothing_left_is_no_run_but_what_was_merged_is_gone(bench: Any, row: Row) -> None:
    old = bench.ref([row(0, 1)], batch=1)
    assert delta(bench, [row(0, 1, live=False)], [old]) == (None, 0)
    assert delta(bench, [], [old]) == (None, 1)
    assert delta(bench, [row(0, 1, live=False)], []) == (None, 0)
    assert bench.files.list("runs/0") == ["1-0-aa.run"]
    assert bench.files.stale("runs/0") == []


def test_an_expired_row_does_not_uncover_an_older_version(bench: Any, row: Row) -> None:
    large = bench.ref([row(0, key, count=key) for key in range(50)], batch=1)
    small = bench.ref([row(0, 7, count=70, expires=5)], batch=2)
    info, kept = delta(bench, [row(1, 1)], [large, small], now=10)
    assert kept == 1
    assert (0, 7, 70) in content(bench, [Ref(info, info.places)], drop_dead=False)
    assert 7 not in [key for _, key, _ in content(bench, [large, Ref(info, info.places)], now=10)]


def test_rows_out_of_order_write_nothing(bench: Any, row: Row) -> None:
    place, table = bench.table([row(0, 1), row(0, 2)])
    with pytest.raises(StateError, match="place 0 hash 1 is not"):
        write_delta(bench.files, "runs/0/1-0-x.run", bench.schema, 1, 16, place, table.take([1, 0]), [])
    assert bench.files.list("runs/0") == []


def test_a_failure_while_merging_leaves_no_file(bench: Any, row: Row) -> None:
    old = bench.ref([row(0, 1)], batch=1)
    bench.files.delete(old.run.name)
    with pytest.raises(StateError, match="not there"):
        delta(bench, [row(0, 2)], [old])
    assert bench.files.list("runs/0") == bench.files.stale("runs/0") == []


def test_many_rows_go_through_in_pieces(bench: Any, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["headgate.state.merge"], "CHUNK_ROWS", 64)
    monkeypatch.setattr(sys.modules["headgate.state.writer"], "BLOCK_ROWS", 50)
    old = bench.ref([row(key % 16, key, count=0) for key in range(500)], batch=1)
    info, kept = delta(bench, [row(key % 16, key, count=1) for key in range(0, 1000, 2)], [old])
    assert (info.rows, kept) == (750, 0)
    assert open_run(bench.files, info).table(0, 750).column("count").to_pylist().count(1) == 500
