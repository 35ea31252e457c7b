"""Rows by key: the same groups as a dict makes, in the order of the state; two keys with one hash are found."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import KeyCollisionError
from headgate.operators import check_one_key, group_rows, key_runs
from headgate.operators.grouping import FIRST_TABLE, RUN

int64 = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


def expected_groups(hashes: list[int], place: list[int]) -> dict[tuple[int, int], list[int]]:
    groups: dict[tuple[int, int], list[int]] = {}
    for row, each in enumerate(zip(place, hashes, strict=True)):
        groups.setdefault(each, []).append(row)
    return dict(sorted(groups.items()))


@given(
    st.lists(st.one_of(int64, st.integers(0, 3)), max_size=80).flatmap(
        lambda drawn: st.sampled_from([drawn, sorted(drawn), [each for each in drawn for _ in range(2 * RUN)]])
    ),
    st.sampled_from([1, 3, 16]),
    st.booleans(),
)
def test_groups_are_those_of_a_dict_sorted_by_place_and_hash(hashes: list[int], places: int, placed: bool) -> None:
    place = [value % places if placed else 0 for value in hashes]
    placing = np.array(place, np.int32)
    grouping = group_rows(np.array(hashes, np.int64), (lambda at: placing[at]) if placed else None)
    groups = expected_groups(hashes, place)
    assert len(grouping) == len(groups)
    assert grouping.hashes.tolist() == [value for _, value in groups]
    numbered = pa.table({"row": np.arange(len(hashes))})
    order = [row for rows in groups.values() for row in rows]
    assert grouping.arranged(numbered).column("row").to_pylist() == order
    assert (grouping.position is None) == (order == sorted(order))
    assert grouping.starts.tolist() == np.cumsum([0, *map(len, groups.values())]).tolist()
    assert grouping.first.tolist() == [rows[0] for rows in groups.values()]
    assert [grouping.hashes[code] for code in grouping.codes] == hashes
    if placed:
        assert grouping.place is not None
        assert grouping.place.tolist() == [where for where, _ in groups]
    else:
        assert grouping.place is None


def test_the_table_grows_with_the_keys() -> None:
    keys = 5 * FIRST_TABLE
    hashes = np.random.default_rng(1).permutation(np.repeat(np.arange(keys, dtype=np.int64) << 40, 3))
    grouping = group_rows(hashes)
    assert grouping.hashes.tolist() == (np.arange(keys) << 40).tolist()
    assert (np.diff(grouping.starts) == 3).all()
    arranged = grouping.arranged(pa.table({"hash": hashes})).column("hash").to_numpy()
    assert (arranged == np.repeat(grouping.hashes, 3)).all()


COLUMNS: list[tuple[str, pa.DataType, Any, Any]] = [
    ("integers", pa.int64(), 1, 2),
    ("small integers", pa.int8(), 1, 2),
    ("strings", pa.string(), "ab", "ac"),
    ("strings of other lengths", pa.string(), "ab", "abc"),
    ("bytes", pa.binary(), b"\x00", b"\x01"),
    ("long strings", pa.large_string(), "ab", "ac"),
    ("booleans", pa.bool_(), True, False),
    ("dates", pa.date32(), dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    ("timestamps", pa.timestamp("us"), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)),
    ("decimals", pa.decimal128(10, 2), Decimal("1.00"), Decimal("1.01")),
]


@pytest.mark.parametrize(("kind", "one", "other"), [c[1:] for c in COLUMNS], ids=[c[0] for c in COLUMNS])
@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
def test_two_keys_with_one_hash_are_found(kind: pa.DataType, one: Any, other: Any, nulls: bool) -> None:
    hashes = np.array([7, 5, 7, 5, 9, 5], np.int64)
    fine = [one, other, one, other, None if nulls else one, other]
    # A slice of a larger table in two chunks: offsets must be heeded.
    for values in (fine, [*fine[:3], one, *fine[4:]]):
        column = pa.chunked_array([pa.array([other, *values[:2]], kind), pa.array(values[2:], kind)]).slice(1)
        table = pa.table({"k": column, "same": pa.array([1] * 6)})
        if values == fine:
            check_one_key(table, group_rows(hashes))
        else:
            with pytest.raises(KeyCollisionError) as caught:
                check_one_key(table, group_rows(hashes))
            assert (caught.value.first, caught.value.second) == ((other, 1), (one, 1))
            assert "have the same 64-bit hash" in str(caught.value)


def test_null_equals_null_and_nothing_else() -> None:
    hashes = np.array([42, 42], np.int64)
    check_one_key(pa.table({"k": pa.array([None, None], pa.string())}), group_rows(hashes))
    with pytest.raises(KeyCollisionError, match="the keys None and 'a' have the same"):
        check_one_key(pa.table({"k": pa.array([None, "a"])}), group_rows(hashes))


def test_no_rows() -> None:
    grouping = group_rows(np.empty(0, np.int64))
    assert (len(grouping), grouping.starts.tolist()) == (0, [0])
    check_one_key(pa.table({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())}), grouping)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "bc"]), st.integers(1, 40)), max_size=12),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_runs_of_keys_begin_where_any_column_changes(drawn: list[tuple[int, str, int]], cuts: list[int]) -> None:
    rows = [(number, text) for number, text, times in drawn for _ in range(times)]
    table = pa.table(
        {"number": pa.array([row[0] for row in rows], pa.int32()), "text": pa.array([row[1] for row in rows])}
    )
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    chunks = [table.slice(low, high - low) for low, high in pairwise(edges)] or [table]
    chunked = pa.concat_tables(chunks)
    wanted = [row for row in range(len(rows)) if row == 0 or rows[row] != rows[row - 1]]
    found = key_runs(chunked)
    assert (found is None) == (not rows or len(wanted) * RUN > len(rows))
    assert found is None or found.tolist() == wanted


def test_keys_of_seldom_types_have_no_runs() -> None:
    assert key_runs(pa.table({"k": pa.array([Decimal(1)] * 100)})) is None
    assert key_runs(pa.table({"k": pa.array([True] * 100)})) is None
    assert key_runs(pa.table({"k": pa.array(["a"] * 100).dictionary_encode()})) is None
