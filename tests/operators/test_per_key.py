"""A function per key: what it is handed, what becomes of what it returns, and what is said when it goes wrong."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError, UserFunctionError
from headgate.operators import NO_TIMER, Context, PerKey, Pickled, Rows

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
MINUTE = 60_000_000


def table(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def per_key(
    function: Any, state: Any = None, output: Any = "k string, n long", keys: tuple[str, ...] = ("k",)
) -> PerKey:
    return PerKey.of(function, name="op", input_schema=SCHEMA, key_names=keys, state=state or {"n": 0}, output=output)


def running_count(key: str, rows: Rows, state: dict[str, Any]) -> Any:
    state["n"] += len(rows)
    return key, state["n"]


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-9, 9)), max_size=10), max_size=4),
    st.sampled_from(["tuple", "dict", "list", "generator"]),
)
def test_rows_and_state_are_those_of_a_plain_loop(driver: Any, batches: list[Any], form: str) -> None:
    def on_key(key: str, rows: Rows, state: dict[str, Any]) -> Any:
        values = rows["v"]
        state["n"] += len(rows)
        state["last"] = values[-1]
        row = {"total": sum(value or 0 for value in values), "k": key, "n": state["n"], "values": values}
        ordered = (key, row["n"], row["total"], values)
        return {"tuple": ordered, "dict": row, "list": [row, ordered], "generator": iter([ordered])}[form]

    run = driver(per_key(on_key, {"n": 0, "last": "long"}, "k string, n long, total long, values array<long>"))
    model: dict[str, list[Any]] = {}
    for batch in batches:
        new: dict[str, list[Any]] = {}
        for key, value in batch:
            new.setdefault(key, []).append(value)
            model.setdefault(key, []).append(value)
        results = run.batch(table(*batch))
        expected = [
            {"k": key, "n": len(model[key]), "total": sum(value or 0 for value in values), "values": values}
            for key, values in sorted(new.items())
        ] * (2 if form == "list" else 1)
        assert sorted(results, key=lambda row: str(row["k"])) == sorted(expected, key=lambda row: str(row["k"]))
    assert run.state == {key: {"n": len(values), "last": values[-1]} for key, values in model.items()}


def test_rows_in_every_form(driver: Any) -> None:
    seen: dict[str, Any] = {}

    def on_key(key: str, rows: Rows, state: Any) -> None:
        seen[key] = (len(rows), rows["v"], list(rows), rows.arrow(), rows.numpy("v"), rows.names, repr(rows))

    driver(per_key(on_key)).batch(table(("a", 1), ("b", 9), ("a", 2)))
    length, values, dicts, arrow, array, names, text = seen["a"]
    assert (length, values, names) == (2, [1, 2], ["k", "v"])
    assert dicts == [{"k": "a", "v": 1}, {"k": "a", "v": 2}]
    assert arrow.equals(table(("a", 1), ("a", 2)))
    assert (array.tolist(), array.dtype, array.flags.writeable) == ([1, 2], np.int64, False)
    assert text == "Rows(2 rows of k, v)"
    assert seen["b"][1] == [9]


def test_rows_that_a_function_keeps_do_not_change(driver: Any) -> None:
    kept: dict[str, Rows] = {}
    driver(per_key(lambda key, rows, state: kept.update({key: rows}))).batch(table(("a", 1), ("b", 2), ("c", 3)))
    assert {key: rows["v"] for key, rows in kept.items()} == {"a": [1], "b": [2], "c": [3]}


def test_a_key_of_several_columns_is_a_tuple(driver: Any) -> None:
    run = driver(per_key(lambda key, rows, state: {"k": repr(key), "n": len(rows)}, keys=("k", "v")))
    assert run.batch(table(("a", 1), ("a", 1))) == [{"k": "('a', 1)", "n": 2}]


@dataclass
class Session:
    count: int = 0
    pages: list[str] = field(default_factory=list)
    last: dt.datetime | None = None


@dataclass(kw_only=True, slots=True)
class Keyword:
    first: int = 5
    second: str | None = None


def test_state_as_a_dataclass(driver: Any) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def on_key(key: str, rows: Rows, state: Session) -> Any:
        assert isinstance(state, Session)
        state.count += len(rows)
        state.pages.append(key)
        state.last = at
        return key, state.count

    run = driver(per_key(on_key, Session))
    run.batch(table(("a", 1), ("b", 1)))
    results = run.batch(table(("a", 1), ("c", 1)))
    assert {row["k"]: row["n"] for row in results} == {"a": 2, "c": 1}
    assert run.state == {
        "a": {"count": 2, "pages": ["a", "a"], "last": at},
        "b": {"count": 1, "pages": ["b"], "last": at},
        "c": {"count": 1, "pages": ["c"], "last": at},
    }


def test_state_as_a_dataclass_with_keywords(driver: Any) -> None:
    def on_key(key: str, rows: Rows, state: Keyword) -> None:
        state.first += 1
        state.second = key

    run = driver(per_key(on_key, Keyword))
    run.batch(table(("a", 1)))
    run.batch(table(("a", 1)))
    assert run.state == {"a": {"first": 7, "second": "a"}}


def test_state_as_a_pickled_object(driver: Any) -> None:
    def on_key(key: str, rows: Rows, state: Counter[int]) -> Any:
        state.update(rows["v"])
        return key, state.most_common(1)[0][0]

    run = driver(per_key(on_key, Pickled(Counter)))
    run.batch(table(("a", 1), ("b", 3)))
    assert run.batch(table(("a", 2), ("a", 2))) == [{"k": "a", "n": 2}]
    assert pickle.loads(run.state["a"]["pickled"]) == Counter({1: 1, 2: 2})


def test_one_state_column_and_one_output_column(driver: Any) -> None:
    def on_key(key: str, rows: Rows, state: dict[str, int]) -> Iterator[Any]:
        state["n"] += 1
        yield {"n": state["n"]}
        yield (-state["n"],)

    run = driver(per_key(on_key, output="n long"))
    run.batch(table(("a", 1)))
    assert run.batch(table(("a", 1))) == [{"n": 2}, {"n": -2}]


def test_a_named_tuple_is_a_row(driver: Any) -> None:
    class Out(NamedTuple):
        k: str
        n: int

    assert driver(per_key(lambda key, rows, state: Out(key, 1))).batch(table(("a", 1))) == [{"k": "a", "n": 1}]


def test_no_rows_make_no_call(driver: Any) -> None:
    run = driver(per_key(lambda key, rows, state: 1 / 0))
    assert run.batch(table()) == []


def test_the_cost_of_each_key_is_what_the_clock_says(driver: Any) -> None:
    time = [0.0]

    def on_key(key: str, rows: Rows, state: Any) -> None:
        time[0] += {"a": 1.0, "b": 0.25}[key]

    run = driver(per_key(on_key))
    run.batch(table(("a", 1), ("b", 2)), clock=lambda: time[0])
    assert sorted(run.last.seconds.tolist()) == [0.25, 1.0]
    run.batch(table(("a", 1)))
    assert run.last.seconds is None


# Timers. A key counts its rows, and reports and forgets itself a minute of event time after its last row.
#
#     watermark   none      10:30      11:01       11:02
#     rows        a at 10   b          -           a
#     timers      a 11:00   b 12:00    a fires     a is new
def test_a_timer_fires_once_the_watermark_has_reached_it(driver: Any) -> None:
    seen: list[Any] = []

    def on_key(key: str, rows: Rows, state: dict[str, int], context: Context) -> Any:
        seen.append((key, len(rows), context.is_new, context.fired, context.timer))
        if context.fired:
            context.forget()
            return key, state["n"]
        state["n"] += len(rows)
        context.set_timer(dt.datetime(1970, 1, 1, 11 if key == "a" else 12))
        return None

    run = driver(per_key(on_key))
    hour = 60 * MINUTE
    assert run.batch(table(("a", 1))) == []
    assert run.batch(table(("b", 1)), watermark=10 * hour + 30 * MINUTE) == []
    assert run.batch(table(), watermark=11 * hour) == [{"k": "a", "n": 1}]
    assert run.batch(table(("a", 1)), watermark=11 * hour + MINUTE) == []
    assert seen == [
        ("a", 1, True, None, None),
        ("b", 1, True, None, None),
        ("a", 0, False, "event", None),
        ("a", 1, True, None, None),
    ]
    assert run.state.keys() == {"a", "b"}


def test_a_timer_in_processing_time_and_what_a_context_shows(driver: Any) -> None:
    shown: list[Any] = []

    def on_key(key: str, rows: Rows, state: dict[str, int], context: Context) -> None:
        shown.append(
            (context.now, context.watermark, context.fired, context.fired_processing, context.processing_timer)
        )
        if len(shown) == 1:
            context.set_processing_timer(dt.timedelta(minutes=2))
            context.set_timer(dt.datetime(2030, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))))
        elif len(shown) == 2:
            context.clear_timer()
        elif len(shown) == 3:
            context.set_processing_timer(dt.datetime(1970, 1, 1, 1, tzinfo=dt.UTC))
            context.clear_processing_timer()

    run = driver(per_key(on_key))
    run.batch(table(("a", 1)), now=MINUTE)
    assert run.last.event_timer.tolist() == [int(dt.datetime(2029, 12, 31, 23, tzinfo=dt.UTC).timestamp()) * 10**6]
    assert run.last.processing_timer.tolist() == [3 * MINUTE]
    run.batch(table(("a", 1)), now=2 * MINUTE, watermark=0)
    assert run.last.event_timer.tolist() == [NO_TIMER]
    run.batch(table(), now=3 * MINUTE)
    run.batch(table(), now=300 * MINUTE)
    day = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert shown == [
        (day + dt.timedelta(minutes=1), None, None, False, None),
        (day + dt.timedelta(minutes=2), day, None, False, day + dt.timedelta(minutes=3)),
        (day + dt.timedelta(minutes=3), None, "processing", True, None),
    ]


def test_a_function_without_a_context_spends_due_timers_and_keeps_others(driver: Any) -> None:
    def setting(key: str, rows: Rows, state: Any, context: Context) -> None:
        context.set_timer(dt.datetime(1970, 1, 1, 0, rows["v"][0]))

    run = driver(per_key(setting))
    run.batch(table(("a", 1), ("b", 5)))
    run.operator = per_key(running_count)
    assert run.batch(table(("b", 0)), watermark=2 * MINUTE) == [{"k": "b", "n": 1}, {"k": "a", "n": 0}]
    assert run.last.event_timer.tolist() == [5 * MINUTE, NO_TIMER]


def boom(key: str, rows: Rows, state: Any) -> Any:
    if key == "b":
        raise ZeroDivisionError("no")
    return key, 1


def late_boom(key: str, rows: Rows, state: Any) -> Any:
    yield key, 1
    raise KeyError("late")


def test_a_function_that_raises_is_named_with_its_key_and_row(driver: Any) -> None:
    with pytest.raises(UserFunctionError, match="operator 'op' raised ZeroDivisionError: no for key 'b'") as caught:
        driver(per_key(boom)).batch(table(("a", 1), ("b", 2), ("b", 3)))
    error = caught.value
    assert (error.operator, error.key, error.row) == ("op", "b", {"k": "b", "v": 2})
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        pytest.param(late_boom, "raised KeyError: 'late' for key 'a'", id="a generator that raises"),
        pytest.param(lambda k, r, s: s["x"], "raised KeyError: 'x' for key 'a'", id="state that was not declared"),
        pytest.param(
            lambda k, r, s: r["x"], "InputError: the rows have no column 'x': they have k, v", id="an unknown column"
        ),
        pytest.param(
            lambda k, r, s, c: c.set_timer(5),
            r"set_timer takes a datetime, got 5 \(int\)",
            id="a timer that is no time",
        ),
        pytest.param(
            lambda k, r, s, c: c.set_processing_timer(5), "set_processing_timer takes a datetime, or", id="nor this one"
        ),
    ],
)
def test_whatever_is_raised_in_the_function_is_its_error(driver: Any, function: Any, text: str) -> None:
    with pytest.raises(UserFunctionError, match=text):
        driver(per_key(function)).batch(table(("a", 1)))


def drop(key: str, rows: Rows, state: dict[str, Any]) -> None:
    if key == "b":
        del state["n"]


def rename(key: str, rows: Rows, state: dict[str, Any]) -> None:
    state["m"] = state.pop("n")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        pytest.param(lambda k, r, s: {"k": k}, "must have the output columns k, n; missing: n", id="a column short"),
        pytest.param(lambda k, r, s: {"k": k, "m": 1}, "k, n; missing: n, unknown: m", id="another column"),
        pytest.param(lambda k, r, s: [{"k": k, "n": 1, "m": 1}], "k, n; unknown: m", id="a column too many"),
        pytest.param(lambda k, r, s: (k,), r"columns k, n, got 1 values \('b',\) \(tuple\)", id="a tuple too short"),
        pytest.param(lambda k, r, s: 7, r"must return None, a row .* got 7 \(int\)", id="a number"),
        pytest.param(lambda k, r, s: "xy", r"must return None, a row .* got 'xy' \(str\)", id="a string"),
        pytest.param(lambda k, r, s: [k], r"a row must be a dict or a tuple, got 'b' \(str\)", id="a string as a row"),
        pytest.param(
            lambda k, r, s: [(k, 1), (k, "x")],
            r"output column 'n' must be long, got 'x' \(str\)",
            id="a string as a number",
        ),
        pytest.param(lambda k, r, s: (k, 1.5), r"output column 'n' must be long, got 1.5 \(float\)", id="a fraction"),
        pytest.param(
            lambda k, r, s: (k, 2**63), "output column 'n' must be long, got 9223372036854775808", id="too big"
        ),
        pytest.param(lambda k, r, s: (5, 1), r"output column 'k' must be string, got 5 \(int\)", id="a number as text"),
        pytest.param(lambda k, r, s: s.update(n="x"), r"state column 'n' must be long, got 'x'", id="state of a type"),
        pytest.param(lambda k, r, s: s.update(m=1), "state must keep its columns n; unknown: m", id="state grown"),
        pytest.param(drop, "state must keep its columns n; missing: n", id="state gone"),
        pytest.param(rename, "state must keep its columns n; missing: n, unknown: m", id="state renamed"),
    ],
)
def test_what_does_not_fit_the_columns_is_named_with_its_key(driver: Any, function: Any, text: str) -> None:
    with pytest.raises(InputError, match="operator 'op', key 'b': .*" + text) as caught:
        driver(per_key(lambda k, r, s: function(k, r, s) if k == "b" else None)).batch(
            table(("a", 1), ("b", 2), ("c", 3))
        )
    assert str(caught.value).endswith("change the function, or declare other columns")


def test_an_object_that_cannot_be_pickled_is_the_function_s_fault(driver: Any) -> None:
    with pytest.raises(UserFunctionError, match="for key 'a'"):
        driver(per_key(lambda k, r, s: s.update(f=lambda: 0), Pickled(dict))).batch(table(("a", 1)))


def test_a_long_value_is_cut_short_in_the_message(driver: Any) -> None:
    with pytest.raises(InputError, match=r"got 'x{79}\.\.\. \(str\)"):
        driver(per_key(lambda k, r, s: (k, "x" * 1000))).batch(table(("a", 1)))


def test_a_function_of_two_arguments_is_refused() -> None:
    with pytest.raises(InputError, match=r"must take \(key, rows, state\) or .* but takes \(key, rows\)"):
        per_key(lambda key, rows: None)


def test_a_pickled_operator_works_on(driver: Any) -> None:
    copy = pickle.loads(pickle.dumps(per_key(running_count)))
    assert driver(copy).batch(table(("a", 1), ("a", 2))) == [{"k": "a", "n": 2}]
    assert (copy.combines, copy.partial_schema) == (False, SCHEMA)
    rows, hashes = copy.combine(table(("a", 1)), np.array([1]))
    assert (rows.num_rows, hashes.tolist()) == (1, [1])
