"""What holds for every aggregate: any order of partial rows, any split, replays, pickling, windows, nothing at all."""

from __future__ import annotations

import datetime as dt
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.arrays import I64
from headgate.errors import InputError
from headgate.operators import (
    Aggregate,
    Aggregation,
    WindowedAggregation,
    aggregate,
    approx_distinct,
    collect,
    count,
    distinct,
    first,
    last,
    max_,
    mean,
    min_,
    quantile,
    stddev,
    sum_,
    top_k,
    variance,
)
from headgate.operators.lists import gathered, spread
from headgate.routing import key_hash
from headgate.windows import Slicing, window

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("at", pa.int64())])


def add_up(state: dict[str, Any], v: pa.Array) -> dict[str, Any]:
    return {"total": state["total"] + (pc.sum(v).as_py() or 0)}


def add_two(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"total": one["total"] + other["total"]}


EXACT: dict[str, Aggregate] = {
    "count": count(),
    "sum": sum_("v"),
    "min": min_("s"),
    "max": max_("f"),
    "first": first("s", by="at"),
    "last": last("f", by="at"),
    "distinct": distinct("s"),
    "distinct_floats": distinct("f"),
    "approx_distinct": approx_distinct("v"),
    "sketch": approx_distinct("s", precision=7, sketch=True),
    "top_by": top_k("s", 2, by="f"),
    "collect": collect("s", limit=None),
    "collect_by": collect("v", by="at", limit=3),
    "own": aggregate("v", state={"total": 0}, update=add_up, merge=add_two),
    "where": distinct("v", where=pc.field("v") > 2),
}
"""The same to the last bit for every split of the rows."""

BOUNDED: dict[str, Aggregate] = {
    "mean": mean("f"),
    "variance": variance("f"),
    "stddev": stddev("v", sample=False),
    "quantile": quantile("f", 0.5, size=8),
    "quantiles": quantile("v", [0, 0.3, 1], size=8),
    "kll": quantile("f", sketch=True, size=8),
    "top": top_k("s", 2, counters=2),
}
"""The same to the last bit for the same partial rows."""

EVERY = EXACT | BOUNDED

values = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.integers(-5, 5) | st.integers(-(2**40), 2**40),
    st.none() | st.floats(-1e9, 1e9) | st.sampled_from([float("nan"), float("inf"), -0.0, 0.0]),
    st.none() | st.text("aäz", max_size=2),
    st.none() | st.integers(0, 4),
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(SCHEMA.types)], schema=SCHEMA
    )


def partials(operator: Any, chunks: list[pa.Table]) -> tuple[pa.Table, I64]:
    made = [operator.early(chunk, key_hash(chunk["k"])) for chunk in chunks]
    return pa.concat_tables([each for each, _ in made]), np.concatenate([hashes for _, hashes in made])


def bits(results: pa.Table) -> dict[Any, Any]:
    """Results by key, floats by their bits; NaN is NaN."""
    return {row["k"]: {name: _bits(value) for name, value in row.items()} for row in results.to_pylist()}


def _bits(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if np.isnan(value) else np.float64(value).tobytes()
    if isinstance(value, list):
        return [_bits(each) for each in value]
    return {name: _bits(each) for name, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.lists(values, max_size=14), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_partial_rows_give_the_same_bits_in_any_order(chunks: list[list[Any]], random: Any) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), EVERY)
    rows, hashes = partials(operator, [table(chunk) for chunk in chunks])
    one = operator.combine(rows, hashes)[0]
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    order = np.array(shuffled, np.int64)
    other = operator.combine(rows.take(order), hashes[order])[0]
    assert bits(one) == bits(other)
    assert bits(operator.finished(one)) == bits(operator.finished(other))


@settings(max_examples=60)
@given(st.lists(values, max_size=40), st.lists(st.integers(0, 40), max_size=4), st.integers(1, 4))
def test_exact_ones_give_the_same_bits_for_any_split_and_any_tree(rows: list[Any], cuts: list[int], arity: int) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), EXACT)
    whole, _ = operator.early(table(rows), key_hash(table(rows)["k"]))
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    level = [
        operator.early(part, key_hash(part["k"]))
        for part in (table(rows[start:stop]) for start, stop in pairwise(bounds))
    ]
    while len(level) > 1:
        groups = [level[at : at + arity + 1] for at in range(0, len(level), arity + 1)]
        level = [
            operator.combine(pa.concat_tables([t for t, _ in group]), np.concatenate([h for _, h in group]))
            for group in groups
        ]
    assert bits(level[0][0]) == bits(whole)


@settings(max_examples=25)
@given(st.lists(st.lists(values, max_size=10), min_size=1, max_size=4))
def test_a_running_aggregate_gives_what_all_rows_give(driver: Any, batches: list[list[Any]]) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), EXACT)
    run = driver(operator)
    seen: list[Any] = []
    for batch in batches:
        seen += batch
        results = run.batch(table(batch), cuts=[len(batch) // 2])
        everything = bits(operator.finished(operator.early(table(seen), key_hash(table(seen)["k"]))[0]))
        for row in results:
            assert {name: _bits(value) for name, value in row.items()} == everything[row["k"]]


def test_a_replayed_batch_leaves_the_same_state_bytes(driver: Any) -> None:
    random = np.random.default_rng(5)
    size = 4000
    rows = pa.table(
        {
            "k": pa.array(random.choice(["a", "b", "c"], size)),
            "v": random.integers(0, 10**6, size),
            "f": random.normal(size=size),
            "s": pa.array([f"s{n}" for n in random.integers(0, 900, size)]),
            "at": random.integers(0, 50, size),
        },
        schema=SCHEMA,
    )
    states = []
    for _ in range(2):
        run = driver(Aggregation("op", SCHEMA, ("k",), EVERY | {"median": quantile("f", 0.5), "top": top_k("s", 9)}))
        run.batch(rows.slice(0, 1500), cuts=[700])
        run.batch(rows.slice(1500), cuts=[100, 2000])
        states.append(run.state)
    assert states[0] == states[1]


def test_nothing_but_nulls_gives_nulls_zeros_and_empty_lists(driver: Any) -> None:
    results = driver(Aggregation("op", SCHEMA, ("k",), EVERY)).batch(table([("a", None, None, None, None)]))
    assert results == [
        {
            "k": "a", "count": 1, "sum": None, "min": None, "max": None, "first": None, "last": None, "distinct": 0,
            "distinct_floats": 0, "approx_distinct": 0, "sketch": None, "top_by": [], "collect": [], "collect_by": [],
            "own": 0, "where": 0, "mean": None, "variance": None, "stddev": None, "quantile": None, "quantiles": None,
            "kll": None, "top": [],
        }
    ]  # fmt: skip


def test_no_rows_give_no_partial_rows(driver: Any) -> None:
    run = driver(Aggregation("op", SCHEMA, ("k",), EVERY))
    assert run.batch(SCHEMA.empty_table()) == []


def test_a_condition_that_no_row_meets_is_as_no_value(driver: Any) -> None:
    never = {
        "d": distinct("s", where=pc.field("v") > 99),
        "m": quantile("v", 0.5, where=pc.field("v") > 99),
        "s": variance("v", where=pc.field("v") > 99),
        "f": first("v", by="at", where=pc.field("v") > 99),
        "o": aggregate(
            "v", state={"total": 7}, zero={"total": 0}, update=add_up, merge=add_two, where=pc.field("v") > 99
        ),
    }
    results = driver(Aggregation("op", SCHEMA, ("k",), never)).batch(table([("a", 1, 1.0, "x", 1)]))
    assert results == [{"k": "a", "d": 0, "m": None, "s": None, "f": None, "o": 0}]


def test_a_pickled_operator_works_on(driver: Any) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), EVERY)
    copy = pickle.loads(pickle.dumps(operator))
    rows = table([("a", 1, 2.0, "x", 1), ("a", 3, 4.0, "y", 2), ("b", 5, None, "z", 3)])
    assert copy.state_schema == operator.state_schema
    assert driver(copy).batch(rows) == driver(operator).batch(rows)


def test_windows_merge_the_slices_of_every_aggregate() -> None:
    """
    slices   [0      10)[10     20)[20     30)
    rows      1 2        3 4        5 6
    window   [0------------------20)
                        [10-----------------30)
    """
    micros = dt.timedelta(microseconds=1)
    slicing = Slicing.of(window(20 * micros, every=10 * micros))
    operator = WindowedAggregation("op", SCHEMA, ("k",), EVERY, slicing, "at")
    rows = [("a", at, at / 2, f"s{at % 3}", at * 5 - 4) for at in range(1, 7)]
    early = [operator.early(table(rows[cut : cut + 2]), key_hash(pa.array(["a", "a"]))) for cut in (4, 0, 2)]
    kept, hashes = operator.combine(pa.concat_tables([t for t, _ in early]), np.concatenate([h for _, h in early]))
    assert sorted(kept["__start"].to_pylist()) == [0, 10, 20]
    plain = Aggregation("op", SCHEMA, ("k",), EVERY)
    for start in (0, 10):
        of_window = pc.and_(pc.greater_equal(kept["__start"], start), pc.less(kept["__start"], start + 20))
        merged, _ = operator.merged(kept.filter(of_window), hashes[np.asarray(of_window)])
        got = operator.outer.finished(merged)
        inside = table([row for row in rows if start <= row[4] < start + 20])
        expected = plain.finished(plain.early(inside, key_hash(inside["k"]))[0])
        exact = ["k", *EXACT]
        assert bits(got.select(exact)) == bits(expected.select(exact))
        one, other = got.to_pylist()[0], expected.to_pylist()[0]
        assert one["variance"] == pytest.approx(other["variance"], rel=1e-12)
        assert one["quantile"] == other["quantile"]  # no more values than the summary holds


def test_state_of_every_aggregate_survives_the_lists_of_sessions_and_count_windows() -> None:
    operator = Aggregation("op", SCHEMA, ("k",), EVERY)
    rows = table([("a", 1, 2.0, "x", 1), ("b", 5, None, "z", 3), ("a", 3, 4.0, "y", 2)])
    states = operator.early(rows, np.arange(3))[0].select(operator.state_schema.names)
    owner, back = spread(gathered(states, np.array([0, 0, 2]), 3))
    assert owner.tolist() == [0, 0, 2]
    assert back.cast(operator.state_schema).equals(states)


def test_a_by_that_is_no_column_is_refused() -> None:
    with pytest.raises(InputError, match="'x' uses the column 'when', which the input does not have"):
        Aggregation("op", SCHEMA, ("k",), {"x": first("v", by="when")})
