from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import KeyCollisionError
from headgate.state import Bitmap, Found, Ref, due, lookup

Row = Callable[..., Any]


def counts(bench: Any, refs: list[Ref], asked: list[tuple[int, int]], **options: Any) -> list[int | None]:
    found: Found = lookup(bench.files, refs, bench.schema, *bench.keys(asked), **options)
    values: list[int | None] = found.table.column("count").to_pylist()
    assert found.present.tolist() == [value is not None for value in values]
    assert found.table.schema.equals(bench.schema)
    return values


def test_the_newest_version_wins(bench: Any, row: Row) -> None:
    refs = [
        bench.ref([row(0, 1, count=10), row(0, 2, count=20), row(5, 3, count=30)], batch=1),
        bench.ref([row(0, 2, count=21), row(6, 4, count=40)], batch=2),
    ]
    assert counts(bench, refs, [(0, 1), (0, 2), (0, 9), (5, 3), (6, 4), (7, 1)]) == [10, 21, None, 30, 40, None]


def test_a_tombstone_hides_older_versions_and_a_newer_one_shows_again(bench: Any, row: Row) -> None:
    refs = [bench.ref([row(0, 1, count=10)], batch=1), bench.ref([row(0, 1, live=False)], batch=2)]
    assert counts(bench, refs, [(0, 1)]) == [None]
    assert counts(bench, [*refs, bench.ref([row(0, 1, count=12)], batch=3)], [(0, 1)]) == [12]


def test_only_the_places_of_a_reference_are_read(bench: Any, row: Row) -> None:
    ref = bench.ref([row(0, 1, count=10), row(5, 3, count=30)])
    assert counts(bench, [Ref(ref.run, Bitmap.of([5]))], [(0, 1), (5, 3)]) == [None, 30]


def test_a_place_that_a_run_does_not_know_has_no_rows_in_it(make_bench: Any, bench: Any, row: Row) -> None:
    small = make_bench(bench.files, places=4).ref([row(3, 1, count=10)], batch=1)
    large = bench.ref([row(9, 1, count=20)], batch=2)
    assert counts(bench, [small, large], [(3, 1), (9, 1), (12, 1)]) == [10, 20, None]


def test_an_expired_row_is_absent_at_the_moment_it_expires(bench: Any, row: Row) -> None:
    refs = [bench.ref([row(0, 1, count=9)], batch=1), bench.ref([row(0, 1, count=10, expires=100)], batch=2)]
    assert counts(bench, refs, [(0, 1)], now=99) == [10]
    assert counts(bench, refs, [(0, 1)], now=100) == [None], "and the older version does not come back"
    assert counts(bench, refs, [(0, 1)]) == [10]


def test_nothing_asked_and_nothing_there(bench: Any, row: Row) -> None:
    assert counts(bench, [], [(0, 1)]) == [None]
    assert counts(bench, [bench.ref([row(0, 1)])], []) == []


def test_two_keys_with_one_hash_are_an_error_that_names_both(bench: Any, row: Row) -> None:
    refs = [bench.ref([row(0, 1, word="apple"), row(0, 2, word="pear"), row(0, 3, live=False)])]
    asked = bench.keys([(0, 1), (0, 2), (0, 3), (0, 4)])
    same = pa.table({"word": ["apple", "pear", "plum", None]})
    assert lookup(bench.files, refs, bench.schema, *asked, keys=same).present.tolist() == [True, True, False, False]
    other = pa.table({"word": ["apple", "peach", "plum", None]})
    with pytest.raises(
        KeyCollisionError, match=r"keys \('pear',\) and \('peach',\) have the same 64-bit hash 2"
    ) as caught:
        lookup(bench.files, refs, bench.schema, *asked, keys=other)
    assert (caught.value.first, caught.value.second, caught.value.hash) == (("pear",), ("peach",), 2)
    with pytest.raises(KeyCollisionError, match=r"\('pear',\) and \(None,\)"):
        lookup(bench.files, refs, bench.schema, *asked, keys=pa.table({"word": ["apple", None, "plum", "x"]}))


def test_a_null_key_is_itself(bench: Any, row: Row) -> None:
    place, table = bench.table([row(0, 1, count=3)])
    refs = [bench.ref([row(1, 5)])]
    del place
    nulled = table.set_column(5, "word", pa.nulls(1, pa.string()))
    from headgate.state import RunWriter

    with RunWriter(bench.files, "runs/0/9-0-aa.run", bench.schema, 9, 16) as writer:
        writer.append(bench.keys([(0, 1)])[0], nulled)
        info = writer.finish()
    found = lookup(
        bench.files,
        [*refs, Ref(info, info.places)],
        bench.schema,
        *bench.keys([(0, 1)]),
        keys=pa.table({"word": pa.nulls(1, pa.string())}),
    )
    assert found.present.tolist() == [True]


# Timers. A row per version of a key; the watermark goes from `after` to `upto`:
#
#     batch 1   key 1: 10   key 2: 20   key 3: 30   key 4: 15
#     batch 2               key 2: 40               key 4: dead
#     batch 3   key 5: 5 (set in the past)
#
#     (8, 30]   ->  1 and 3; 5 only if batch 3 is fresh


@pytest.mark.parametrize(
    ("after", "upto", "fresh_from", "expected"),
    [
        (8, 30, 9, [1, 3]),
        (8, 30, 3, [1, 3, 5]),
        (None, 30, 9, [1, 3, 5]),
        (10, 30, 9, [3]),
        (8, 29, 9, [1]),
        (30, 40, 9, [2]),
        (8, 9, 9, []),
    ],
    ids=[
        "replaced and dead ones do not fire",
        "a fresh run may hold a timer set in the past",
        "no lower bound",
        "the lower bound is out",
        "the upper bound is in",
        "the newer timer of a key",
        "none",
    ],
)
def test_due_timers(bench: Any, row: Row, after: int | None, upto: int, fresh_from: int, expected: list[int]) -> None:
    refs = [
        bench.ref([row(0, 1, event=10), row(0, 2, event=20), row(1, 3, event=30), row(1, 4, event=15)], batch=1),
        bench.ref([row(0, 2, event=40), row(1, 4, live=False)], batch=2),
        bench.ref([row(2, 5, event=5)], batch=3),
    ]
    place, hashes = due(bench.files, refs, bench.schema, "event", after=after, upto=upto, fresh_from=fresh_from)
    assert hashes.tolist() == expected
    assert place.tolist() == [{1: 0, 2: 0, 3: 1, 5: 2}[key] for key in expected]


def test_timers_of_other_places_kinds_and_expired_keys_do_not_fire(bench: Any, row: Row) -> None:
    ref = bench.ref([row(0, 1, event=10, expires=50), row(1, 2, event=10), row(1, 3, processing=10)])
    both = [Ref(ref.run, Bitmap.of([0, 1]))]
    assert due(bench.files, both, bench.schema, "event", after=None, upto=10, now=50)[1].tolist() == [2]
    assert due(bench.files, both, bench.schema, "event", after=None, upto=10, now=49)[1].tolist() == [1, 2]
    assert due(bench.files, both, bench.schema, "expires", after=None, upto=50)[1].tolist() == [1]
    first = [Ref(ref.run, Bitmap.of([0]))]
    assert due(bench.files, first, bench.schema, "processing", after=None, upto=99)[1].tolist() == []
    assert due(bench.files, first, bench.schema, "event", after=None, upto=10)[1].tolist() == [1]
