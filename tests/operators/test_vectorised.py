"""A function over all keys of a batch: what it sees, what it may return, what is said when it does not fit."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError, UserFunctionError
from headgate.operators import NO_TIMER, Batch, Pickled, Update, Vectorised

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def table(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def vectorised(function: Any, state: Any = None, keys: tuple[str, ...] = ("k",)) -> Vectorised:
    return Vectorised.of(
        function, name="op", input_schema=SCHEMA, key_names=keys, state=state or {"n": 0}, output="k string, n long"
    )


def running_sum(batch: Batch) -> Any:
    values = pc.fill_null(batch.rows["v"], 0).to_numpy()
    totals = np.bincount(batch.key_of_row, values, minlength=len(batch)).astype(np.int64)
    state = pa.table({"n": pc.add(batch.state["n"], pa.array(totals))})
    return batch.keys.append_column("n", state["n"]), state


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-9, 9)), max_size=10), max_size=4))
def test_results_and_state_are_those_of_a_plain_loop(driver: Any, batches: list[Any]) -> None:
    run = driver(vectorised(running_sum))
    model: dict[str, int] = {}
    for batch in batches:
        for key, value in batch:
            model[key] = model.get(key, 0) + (value or 0)
        results = {row["k"]: row["n"] for row in run.batch(table(*batch))}
        assert results == {key: model[key] for key, _ in batch}
    assert run.state == {key: {"n": total} for key, total in model.items()}


def test_a_batch_shows_keys_rows_state_and_time(driver: Any) -> None:
    seen: list[Batch] = []

    def on_batch(batch: Batch) -> Any:
        seen.append(batch)
        return None, pa.table({"n": [7] * len(batch), "name": ["x"] * len(batch)})

    run = driver(vectorised(on_batch, {"n": 5, "name": "string"}))
    run.batch(table(("a", 1)))
    run.batch(table(("a", 2), ("b", 3), ("a", 4)), now=8, watermark=9)
    batch = seen[1]
    order = batch.keys["k"].to_pylist()
    old, new = order.index("a"), order.index("b")
    assert len(batch) == 2
    assert (batch.counts[old], batch.counts[new]) == (2, 1)
    assert [order[key] for key in batch.key_of_row] == batch.rows["k"].to_pylist()
    assert batch.rows["v"].to_pylist()[batch.starts[old] : batch.starts[old + 1]] == [2, 4]
    assert (batch.is_new[old], batch.is_new[new]) == (False, True)
    assert batch.state.slice(old, 1).to_pylist() == [{"n": 7, "name": "x"}]
    assert batch.state.slice(new, 1).to_pylist() == [{"n": 5, "name": None}]
    assert (batch.now, batch.watermark) == (8, 9)


def test_timers_and_forgetting(driver: Any) -> None:
    fired: list[Any] = []

    def on_batch(batch: Batch) -> Update:
        fired.append((batch.fired_event.tolist(), batch.fired_processing.tolist(), batch.counts.tolist()))
        if batch.fired_event.any():
            return Update(forget=batch.fired_event)
        timer = np.full(len(batch), 100, np.int64)
        return Update({"k": batch.keys["k"], "n": batch.counts}, None, event_timer=timer, processing_timer=timer + 100)

    run = driver(vectorised(on_batch))
    assert run.batch(table(("a", 1))) == [{"k": "a", "n": 1}]
    assert run.last.event_timer.tolist() == [100]
    assert run.batch(table(), now=200) == [{"k": "a", "n": 0}]
    assert run.batch(table(), watermark=100) == []
    assert run.state == {}
    assert fired == [([False], [False], [1]), ([False], [True], [0]), ([True], [False], [0])]


def test_due_timers_are_spent_and_others_stay(driver: Any) -> None:
    def on_batch(batch: Batch) -> Update:
        if len(calls) == 0:
            calls.append(1)
            return Update(event_timer=np.array([5]), processing_timer=np.array([50]))
        return Update()

    calls: list[int] = []
    run = driver(vectorised(on_batch))
    run.batch(table(("a", 1)))
    run.batch(table(("a", 1)), watermark=7)
    assert (run.last.event_timer.tolist(), run.last.processing_timer.tolist()) == ([NO_TIMER], [50])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda t: t.to_pandas(), id="pandas frames"),
        pytest.param(lambda t: t.to_batches()[0], id="record batches"),
        pytest.param(lambda t: {name: t[name] for name in reversed(t.column_names)}, id="mappings in another order"),
        pytest.param(lambda t: t.cast(pa.schema([(f.name, _wider(f.type)) for f in t.schema])), id="castable types"),
    ],
)
def test_whatever_arrow_makes_a_table_of_will_do(driver: Any, make: Any) -> None:
    def on_batch(batch: Batch) -> Any:
        results, state = running_sum(batch)
        return make(results), make(state)

    run = driver(vectorised(on_batch))
    assert run.batch(table(("a", 1), ("a", 2))) == [{"k": "a", "n": 3}]
    assert run.state == {"a": {"n": 3}}


def _wider(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string(kind) else pa.int16()


def test_no_keys_make_no_call(driver: Any) -> None:
    assert driver(vectorised(lambda batch: 1 / 0)).batch(table()) == []


def fails(batch: Batch) -> Any:
    raise ZeroDivisionError("no")


def test_a_function_that_raises_is_named_with_one_of_its_keys(driver: Any) -> None:
    with pytest.raises(UserFunctionError, match="operator 'op' raised ZeroDivisionError: no for key 'a'") as caught:
        driver(vectorised(fails)).batch(table(("a", 1)))
    assert caught.value.row == {"k": "a", "v": 1}
    with pytest.raises(UserFunctionError, match=r"for key one of 2, the first of them '[ab]'"):
        driver(vectorised(fails)).batch(table(("a", 1), ("b", 1)))


RESULTS = pa.table({"k": ["a", "b"], "n": [1, 2]})
STATE = pa.table({"n": [1, 2]})


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        pytest.param(None, r"must return an Update or a pair \(results, state\), got a NoneType", id="nothing"),
        pytest.param(
            (RESULTS, STATE.slice(1)), "state must have one row per key.* expected 2, got 1", id="short state"
        ),
        pytest.param((RESULTS, RESULTS), "the state must have the columns n, each once; unknown: k", id="wrong state"),
        pytest.param((STATE, STATE), "results must have the columns k, n, each once; missing: k", id="wrong results"),
        pytest.param((5, STATE), "the results must be an Arrow table or what .* got a int", id="a number"),
        pytest.param(
            (pa.table({"k": ["a"], "n": ["x"]}), STATE),
            "column 'n' of the results must be long, got string",
            id="a type that cannot be cast",
        ),
        pytest.param(
            (pa.table({"k": ["a"], "n": [1.5]}), STATE),
            "column 'n' of the results must be long, got double",
            id="a cast that would lose something",
        ),
        pytest.param(
            (pa.Table.from_arrays([pa.array(["a"])] * 2 + [pa.array([1])], ["k", "k", "n"]), STATE),
            "some come twice",
            id="a column twice",
        ),
        pytest.param(Update(forget=[True]), "forget must have one row per key.* expected 2, got 1", id="a short mask"),
        pytest.param(Update(forget=[1, 0]), "forget must be an array of bool, got int64", id="numbers for a mask"),
        pytest.param(Update(event_timer=[0.5, 1.0]), "event_timer must be an array of int64, got float64", id="floats"),
        pytest.param(Update(processing_timer=np.zeros((2, 1), np.int64)), "processing_timer must have", id="a matrix"),
    ],
)
def test_what_does_not_fit_is_named(driver: Any, returned: Any, text: str) -> None:
    with pytest.raises(InputError, match="operator 'op': .*" + text):
        driver(vectorised(lambda batch: returned)).batch(table(("a", 1), ("b", 2)))


def test_state_must_be_typed() -> None:
    with pytest.raises(InputError, match="operator 'op' is vectorised, and its state must be typed columns"):
        vectorised(running_sum, Pickled())


def test_a_pickled_operator_works_on(driver: Any) -> None:
    copy = pickle.loads(pickle.dumps(vectorised(running_sum)))
    assert driver(copy).batch(table(("a", 1), ("a", 2))) == [{"k": "a", "n": 3}]
    assert (copy.combines, copy.partial_schema) == (False, SCHEMA)
    assert copy.combine(table(("a", 1)), np.array([1]))[1].tolist() == [1]
