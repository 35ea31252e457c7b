"""Sessions by key: timelines by hand, then random rows against a plain model, however they are cut and batched."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import InputError
from headgate.operators import NO_TIMER, NO_WATERMARK, SessionAggregation
from headgate.routing import key_hash
from headgate.windows import Sessions

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
GAP = 10

Row = tuple[str, int | None, int | None]


def operator(lateness: int = 0, **aggregates: Any) -> SessionAggregation:
    kind = Sessions(GAP * MICRO, lateness=lateness * MICRO)
    made = aggregates or {"n": hg.count(), "total": hg.sum("v"), "least": hg.min("v")}
    return SessionAggregation("visits", SCHEMA, ("k",), made, kind, "at")


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def plain(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Results with times in microseconds."""
    return [
        tuple((value - EPOCH) // MICRO if isinstance(value, dt.datetime) else value for value in row.values())
        for row in results
    ]


def test_a_session_comes_out_when_the_watermark_has_passed_its_end(driver: Any) -> None:
    # gap 10      0         10        20        30
    # a           x     x                             [0, 16)
    # b                           x                   [14, 24)
    # watermark                         |16 |17
    run = driver(operator())
    assert run.batch(table(("a", 1, 0), ("b", 5, 14), ("a", 2, 6))) == []
    assert run.batch(table(), watermark=16) == [], "a row at 16 could come yet, and would join"
    assert plain(run.batch(table(), watermark=17)) == [("a", 0, 16, 2, 3, 1)]
    assert set(run.state) == {"b"}
    assert plain(run.batch(table(), watermark=1000)) == [("b", 14, 24, 1, 5, 5)]
    assert run.state == {}


def test_a_row_exactly_the_gap_later_joins_and_one_more_does_not(driver: Any) -> None:
    # a   0         10         21
    #     x---------x----------x      10 joins [0, 10]; 21 is 11 after 10
    run = driver(operator())
    assert plain(run.batch(table(("a", 1, 0), ("a", 2, 10), ("a", 4, 21)), watermark=21)) == [("a", 0, 20, 2, 3, 1)]


def test_a_row_between_two_open_sessions_makes_them_one(driver: Any) -> None:
    # a   0                 18
    #     [---------)       [---------)      two sessions are open
    #             x 9                        within the gap of both
    run = driver(operator())
    run.batch(table(("a", 1, 0), ("a", 2, 18)))
    assert run.state["a"]["__start"] == [0, 18]
    run.batch(table(("a", 4, 9)))
    assert run.state["a"] == {"__start": [0], "__end": [28], "n.count": [3], "total.sum": [7], "least.min": [1]}
    assert plain(run.batch(table(), watermark=29)) == [("a", 0, 28, 3, 7, 1)]


def test_lateness_keeps_a_session_open_for_late_rows_and_delays_its_result(driver: Any) -> None:
    # a          0         10        20
    #            x    (x)              watermark 15: a row at 5 is late by 10, which lateness 10 allows
    #            [---------)  [0, 10) is emitted when the watermark has passed 10 + 10, [0, 15) when it has passed 25
    run = driver(operator(lateness=10))
    run.batch(table(("a", 1, 0)))
    assert run.batch(table(("a", 2, 5)), watermark=15) == []
    assert run.batch(table(), watermark=25) == []
    assert plain(run.batch(table(), watermark=26)) == [("a", 0, 15, 2, 3, 1)]


def test_the_timer_is_the_first_watermark_that_ends_a_session(driver: Any) -> None:
    run = driver(operator(lateness=3))
    run.batch(table(("a", 1, 0), ("a", 1, 50), ("b", 1, 7)))
    assert run.last.event_timer.tolist() == [10 + 3 + 1 if key == "a" else 17 + 3 + 1 for key in run.state]
    run.batch(table(), watermark=14)
    assert run.last.event_timer.tolist() == [50 + GAP + 3 + 1], "only a was woken, for its first session"
    assert run.last.processing_timer.tolist() == [NO_TIMER]
    assert run.last.keep.tolist() == [True]


def test_rows_that_are_behind_the_watermark_still_make_a_session(driver: Any) -> None:
    """An input turns late rows away before they get here; the results of another operator are never late."""
    run = driver(operator())
    assert plain(run.batch(table(("a", 1, 0), ("a", 2, 8)), watermark=100)) == [("a", 0, 18, 2, 3, 1)]


def test_rows_of_a_task_that_are_near_each_other_travel_as_one() -> None:
    rows = table(("a", 1, 0), ("a", 2, 30), ("b", 3, 0), ("a", 4, 5), ("b", None, None), ("a", 8, 12))
    made, hashes = operator().early(rows, key_hash(rows["k"]))
    assert made.schema.equals(operator().partial_schema)
    assert sorted(tuple(row.values()) for row in made.to_pylist()) == [
        ("a", 0, 22, 3, 13, 1),
        ("a", 30, 40, 1, 2, 2),
        ("b", 0, 10, 1, 3, 3),
    ]
    assert hashes.tolist() == key_hash(made["k"]).tolist()


def test_partial_sessions_of_several_tasks_combine() -> None:
    both = operator()
    one, two = table(("a", 1, 0), ("b", 1, 0)), table(("a", 2, 7), ("a", 4, 40))
    parts = [both.early(rows, key_hash(rows["k"])) for rows in (one, two)]
    made, hashes = both.combine(pa.concat_tables([part for part, _ in parts]), np.concatenate([h for _, h in parts]))
    assert sorted(tuple(row.values()) for row in made.to_pylist()) == [
        ("a", 0, 17, 2, 3, 1),
        ("a", 40, 50, 1, 4, 4),
        ("b", 0, 10, 1, 1, 1),
    ]
    assert hashes.tolist() == key_hash(made["k"]).tolist()


def test_times_may_be_timestamps_and_keys_several_columns(driver: Any) -> None:
    schema = pa.schema([("u", pa.string()), ("d", pa.int32()), ("at", pa.timestamp("ms", tz="Europe/Athens"))])
    visits = SessionAggregation("visits", schema, ("u", "d"), {"n": hg.count()}, Sessions("1 minute"), "at")
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    times = [start, start + dt.timedelta(seconds=40), start + dt.timedelta(seconds=101)]
    rows = pa.table([["x"] * 3, [1] * 3, times], schema=schema)
    assert driver(visits).batch(rows, watermark=2**60) == [
        {"u": "x", "d": 1, "window_start": start, "window_end": times[1] + dt.timedelta(minutes=1), "n": 2},
        {"u": "x", "d": 1, "window_start": times[2], "window_end": times[2] + dt.timedelta(minutes=1), "n": 1},
    ]


def test_means_decimals_and_texts_are_merged(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(5, 2)), ("t", pa.string()), ("at", pa.int64())])
    made = {"mean": hg.mean("d"), "last": hg.max("t")}
    run = driver(SessionAggregation("visits", schema, ("k",), made, Sessions(GAP * MICRO), "at"))
    rows = pa.Table.from_pylist([{"k": 1, "d": None, "t": "é", "at": 0}], schema=schema)
    run.batch(rows)
    run.batch(pa.table([[1, 1], pa.array([1, 2], pa.decimal128(5, 2)), ["a", None], [3, 4]], schema=schema))
    (row,) = run.batch(rows.slice(0, 0), watermark=50)
    assert (str(row["mean"]), row["last"]) == ("1.500000", "é")


@pytest.mark.parametrize(
    ("keys", "aggregates", "name"),
    [(("__start",), ["n"], "__start"), (("k",), ["window_end"], "window_end"), (("k",), ["__end"], "__end")],
)
def test_names_that_windows_use_are_refused(keys: tuple[str, ...], aggregates: list[str], name: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("__start", pa.int64())])
    made = {each: hg.count() for each in aggregates}
    with pytest.raises(InputError) as refused:
        SessionAggregation("visits", schema, keys, made, Sessions("1 s"), "at")
    assert str(refused.value) == (
        f"operator 'visits' must have no key column or aggregate named {name!r}, which its windows use: rename it"
    )


def test_it_says_its_windows() -> None:
    assert operator().windows == "sessions with a gap of 0:00:00.000010"


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(-60, 60)), max_size=12)


@given(
    batches=st.lists(st.tuples(ROWS, st.lists(st.integers(0, 12), max_size=3)), min_size=1, max_size=5),
    lateness=st.sampled_from([0, 15]),
)
def test_any_cut_and_any_batches_give_the_sessions_of_all_rows(driver: Any, batches: Any, lateness: int) -> None:
    run = driver(operator(lateness))
    every: list[tuple[str, int, int]] = []
    out: list[tuple[Any, ...]] = []
    watermark = NO_WATERMARK
    for rows, cuts in batches:
        taken = [row for row in rows if row[2] >= watermark - lateness or watermark == NO_WATERMARK]
        every += taken
        cuts = [min(cut, len(taken)) for cut in cuts]
        out += plain(run.batch(table(*taken), cuts=cuts, watermark=watermark))
        watermark = max([watermark, *(row[2] - 30 for row in taken)])
    out += plain(run.batch(table(), watermark=2**60))
    assert run.state == {}
    wanted = []
    for key in "abc":
        session: list[tuple[str, int, int]] = []
        for row in [*sorted((row for row in every if row[0] == key), key=lambda row: row[2]), (key, 0, 10**6)]:
            if session and row[2] > session[-1][2] + GAP:
                values = [value for _, value, _ in session]
                bounds = session[0][2], session[-1][2] + GAP
                wanted.append((key, *bounds, len(values), sum(values), min(values)))
                session = []
            session.append(row)
    assert sorted(out) == sorted(wanted)
