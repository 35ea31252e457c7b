"""Count windows by key: timelines by hand, then random rows against a plain list per key."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import InputError
from headgate.operators import CountAggregation
from headgate.windows import CountWindows

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def operator(rows: int, every: int | None = None, **aggregates: Any) -> CountAggregation:
    made = aggregates or {"n": hg.count(), "total": hg.sum("v"), "least": hg.min("v")}
    return CountAggregation("last", SCHEMA, ("k",), made, CountWindows(rows, every))


def table(*rows: tuple[str, int | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "v": value} for key, value in rows], schema=SCHEMA)


def plain(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in results)


def test_a_window_comes_out_with_its_last_row(driver: Any) -> None:
    # a    0 1 2 | 3 4        rows of a, a new window every 3; b has its own numbers
    #      |---|   |---
    run = driver(operator(3))
    assert run.batch(table(("a", 1), ("b", 9), ("a", 2))) == []
    assert plain(run.batch(table(("a", 3), ("a", 4)))) == [("a", 0, 3, 3, 6, 1)]
    assert run.state == {
        "a": {"__rows": 4, "n.count": [1], "total.sum": [4], "least.min": [4]},
        "b": {"__rows": 1, "n.count": [1], "total.sum": [9], "least.min": [9]},
    }


def test_windows_overlap_and_share_slices(driver: Any) -> None:
    # a               0   1   2   3   4   5   6   7
    # rows 4 every 2  |---------------|                  1 2 3 4
    #                         |---------------|          3 4 5 6
    #                                 |---------------|  5 6 7 8
    run = driver(operator(4, 2))
    assert plain(run.batch(table(*(("a", value) for value in range(1, 6))))) == [("a", 0, 4, 4, 10, 1)]
    assert run.state["a"] == {"__rows": 5, "n.count": [2, 1], "total.sum": [7, 5], "least.min": [3, 5]}
    assert plain(run.batch(table(("a", 6), ("a", 7), ("a", 8)))) == [("a", 2, 6, 4, 18, 3), ("a", 4, 8, 4, 26, 5)]


def test_rows_between_windows_are_counted_and_not_kept(driver: Any) -> None:
    # a               0   1   2   3   4   5   6
    # rows 2 every 5  |-------|           |-------|
    run = driver(operator(2, 5))
    assert plain(run.batch(table(("a", 1), ("a", 2), ("a", 3)))) == [("a", 0, 2, 2, 3, 1)]
    assert run.state["a"] == {"__rows": 3, "n.count": [], "total.sum": [], "least.min": []}
    assert run.batch(table(("a", 4), ("a", 5), ("a", 6))) == []
    assert plain(run.batch(table(("a", 7)))) == [("a", 5, 7, 2, 13, 6)]


def test_a_batch_may_fill_many_windows_of_a_key(driver: Any) -> None:
    run = driver(operator(64, 1))
    made = plain(run.batch(table(*(("a", value) for value in range(300)), *(("b", value) for value in range(63)))))
    assert made == [("a", at, at + 64, 64, sum(range(at, at + 64)), at) for at in range(237)]
    assert len(run.state["a"]["n.count"]) == len(run.state["b"]["n.count"]) == 63


def test_nulls_count_as_rows(driver: Any) -> None:
    run = driver(operator(2, None, n=hg.count(), known=hg.count("v"), total=hg.sum("v")))
    rows = table(("a", None), ("a", None), ("a", None), ("a", 4))
    assert plain(run.batch(rows)) == [("a", 0, 2, 2, 0, None), ("a", 2, 4, 2, 1, 4)]


def test_a_task_cannot_reduce_rows() -> None:
    rows, hashes = table(("a", 1), ("a", 2)), np.array([1, 1])
    assert not operator(2).combines
    for step in (operator(2).early, operator(2).combine):
        assert step(rows, hashes) == (rows, hashes)
    assert operator(2).partial_schema.equals(SCHEMA)


def test_names_that_windows_use_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        operator(2, None, window_start=hg.count())
    assert str(refused.value) == (
        "operator 'last' must have no key column or aggregate named 'window_start', which its windows use: rename it"
    )


def test_it_says_its_windows() -> None:
    assert operator(100, 20).windows == "windows of 100 rows, one every 20"


@given(
    rows=st.integers(1, 20),
    every=st.integers(1, 20),
    batches=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=40), max_size=5),
)
def test_any_batches_give_the_windows_of_all_rows(driver: Any, rows: int, every: int, batches: Any) -> None:
    run = driver(operator(rows, every))
    seen: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        wanted = []
        for key, value in batch:
            seen[key].append(value)
            start = len(seen[key]) - rows
            if start >= 0 and start % every == 0:
                last = seen[key][-rows:]
                wanted.append((key, start, start + rows, rows, sum(last), min(last)))
        assert plain(run.batch(table(*batch))) == sorted(wanted)
    for key, state in run.state.items():
        assert state["__rows"] == len(seen[key])
        assert len(state["n.count"]) <= -(-rows // np.gcd(rows, every)), "no more than the slices of a window"


def test_keys_are_those_of_the_rows(driver: Any) -> None:
    schema = pa.schema([("u", pa.string()), ("d", pa.int32()), ("v", pa.float64())])
    last = CountAggregation("last", schema, ("u", "d"), {"mean": hg.mean("v")}, CountWindows(2))
    rows = pa.table([["x", "y", "x", "x"], [1, 1, 1, 2], [1.0, 2.0, 4.0, 8.0]], schema=schema)
    assert driver(last).batch(rows) == [{"u": "x", "d": 1, "window_start": 0, "window_end": 2, "mean": 2.5}]
