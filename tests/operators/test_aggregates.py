"""Aggregates against a plain model: any values, any split of the rows over chunks and batches; overflow is an error."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InputError, KeyCollisionError
from headgate.operators import Aggregate, Aggregation, count, max_, mean, min_, sum_
from headgate.routing import key_hash

CENT = pa.decimal128(12, 2)


def least(values: list[Any]) -> Any:
    """NaN is greater than any number, and -0.0 is 0.0."""
    return min(values, key=_rank) + 0.0 if isinstance(values[0], float) else min(values)


def greatest(values: list[Any]) -> Any:
    return max(values, key=_rank) + 0.0 if isinstance(values[0], float) else max(values)


def _rank(value: float) -> tuple[bool, float]:
    return math.isnan(value), 0.0 if math.isnan(value) else value


def decimal_mean(values: list[Decimal]) -> Decimal:
    return (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


finite = st.floats(-1e6, 1e6)
texts = st.text(st.sampled_from("aäß€z\U0001f600"), max_size=3)
moments = st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2040, 1, 1))
cents = st.decimals(-(10**8), 10**8, places=2)
Model = Callable[[list[Any]], Any]

CASES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[str], Aggregate], Model, pa.DataType]] = {
    "sum of longs": (pa.int64(), st.integers(-(10**15), 10**15), sum_, sum, pa.int64()),
    "sum of bytes": (pa.int8(), st.integers(-128, 127), sum_, sum, pa.int64()),
    "sum of unsigned": (pa.uint32(), st.integers(0, 2**32 - 1), sum_, sum, pa.int64()),
    "sum of doubles": (pa.float64(), finite, sum_, sum, pa.float64()),
    "sum of floats": (pa.float32(), st.floats(-100, 100, width=32), sum_, sum, pa.float64()),
    "sum of decimals": (CENT, cents, sum_, lambda v: sum(v, Decimal(0)), pa.decimal128(38, 2)),
    "mean of longs": (pa.int64(), st.integers(-(10**9), 10**9), mean, lambda v: sum(v) / len(v), pa.float64()),
    "mean of doubles": (pa.float64(), finite, mean, lambda v: sum(v) / len(v), pa.float64()),
    "mean of decimals": (CENT, cents, mean, decimal_mean, pa.decimal128(16, 6)),
    "min of longs": (pa.int64(), st.integers(-(2**63), 2**63 - 1), min_, min, pa.int64()),
    "max of longs": (pa.int64(), st.integers(-(2**63), 2**63 - 1), max_, max, pa.int64()),
    "max of unsigned longs": (pa.uint64(), st.integers(0, 2**64 - 1), max_, max, pa.uint64()),
    "min of shorts": (pa.int16(), st.integers(-9, 9), min_, min, pa.int16()),
    "min of doubles, NaN among them": (pa.float64(), st.floats(), min_, least, pa.float64()),
    "max of doubles, NaN among them": (pa.float64(), st.floats(), max_, greatest, pa.float64()),
    "max of floats": (pa.float32(), st.floats(width=32), max_, greatest, pa.float32()),
    "min of strings": (pa.string(), texts, min_, lambda v: min(v, key=str.encode), pa.string()),
    "max of strings": (pa.string(), texts, max_, lambda v: max(v, key=str.encode), pa.string()),
    "max of bytes": (pa.binary(), st.binary(max_size=3), max_, max, pa.binary()),
    "min of decimals": (CENT, cents, min_, min, CENT),
    "max of timestamps": (pa.timestamp("us"), moments, max_, max, pa.timestamp("us")),
    "min of dates": (pa.date32(), st.dates(), min_, min, pa.date32()),
    "max of booleans": (pa.bool_(), st.booleans(), max_, max, pa.bool_()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
@settings(max_examples=25)  # of each of the cases
@given(data=st.data())
def test_any_split_of_the_rows_gives_what_one_pass_over_the_values_gives(driver: Any, case: Any, data: Any) -> None:
    kind, values, aggregate, model, result = case
    row = st.tuples(st.sampled_from(["a", "b", "", None]), st.none() | values)
    batches = data.draw(st.lists(st.lists(row, max_size=12), max_size=4), label="batches")
    schema = pa.schema([("k", pa.string()), ("v", kind)])
    operator = Aggregation("op", schema, ("k",), {"n": count(), "filled": count("v"), "x": aggregate("v")})
    assert operator.output_schema.types == [pa.string(), pa.int64(), pa.int64(), result]
    run = driver(operator)
    seen: dict[Any, list[Any]] = {}
    for rows in batches:
        for key, value in rows:
            seen.setdefault(key, []).append(value)
        cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3), label="cuts")
        table = pa.Table.from_arrays(
            [pa.array([key for key, _ in rows], pa.string()), pa.array([value for _, value in rows], kind)],
            schema=schema,
        )
        results = {each["k"]: each for each in run.batch(table, cuts=cuts)}
        assert results.keys() == {key for key, _ in rows}
        for key, got in results.items():
            filled = [value for value in seen[key] if value is not None]
            assert (got["n"], got["filled"]) == (len(seen[key]), len(filled))
            if not filled:
                assert got["x"] is None
            elif isinstance(expected := model(filled), float) and aggregate in (sum_, mean):
                assert got["x"] == pytest.approx(expected, rel=1e-9, abs=1e-6)
            elif isinstance(expected, float) and math.isnan(expected):
                assert math.isnan(got["x"])
            else:
                assert got["x"] == expected
                assert not isinstance(expected, float) or math.copysign(1, got["x"]) == math.copysign(1, expected)


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ok", pa.bool_()), ("f", pa.float64())])


def table(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=False)) for row in rows], SCHEMA)


def test_where_takes_true_and_nothing_else(driver: Any) -> None:
    operator = Aggregation(
        "op",
        SCHEMA,
        ("k",),
        {"n": count(where="ok"), "s": sum_("v", where="ok"), "big": count(where=pc.field("v") > 1), "all": count()},
    )
    results = driver(operator).batch(table((1, 1, True), (1, 2, False), (1, 4, None), (1, None, True), (2, 8, False)))
    assert sorted(results, key=lambda row: int(row["k"])) == [
        {"k": 1, "n": 2, "s": 1, "big": 2, "all": 4},
        {"k": 2, "n": 0, "s": None, "big": 1, "all": 1},
    ]


def test_keys_of_several_columns(driver: Any) -> None:
    operator = Aggregation("op", SCHEMA, ("ok", "k"), {"n": count()})
    run = driver(operator)
    run.batch(table((1, 1, True), (1, 1, False), (1, 1, True)), cuts=[1])
    assert run.state == {(True, 1): {"n.count": 2}, (False, 1): {"n.count": 1}}


def test_combine_makes_one_partial_row_per_key() -> None:
    operator = Aggregation("op", SCHEMA, ("k",), {"n": count(), "s": sum_("v"), "m": max_("f")})
    rows = table((1, 1, None, 0.5), (2, None, None, None), (1, 3, None, 9.5), (3, 4, None, 1.0))
    parts = [operator.early(part, key_hash(part["k"])) for part in (rows.slice(0, 2), rows.slice(2))]
    merged, hashes = operator.combine(
        pa.concat_tables([part for part, _ in parts]), np.concatenate([hashes for _, hashes in parts])
    )
    whole, whole_hashes = operator.early(rows, key_hash(rows["k"]))
    assert merged.equals(whole)
    assert hashes.tolist() == whole_hashes.tolist() == key_hash([1, 2, 3]).tolist()
    assert merged.to_pylist() == [
        {"k": 1, "n.count": 2, "s.sum": 4, "m.max": 9.5},
        {"k": 2, "n.count": 1, "s.sum": None, "m.max": None},
        {"k": 3, "n.count": 1, "s.sum": 4, "m.max": 1.0},
    ]


@given(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=8), st.randoms())
def test_partial_sums_of_floats_give_the_same_in_any_order(values: list[float], random: Any) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), {"s": sum_("f"), "m": mean("f")})
    parts = [operator.early(part := table((1, None, None, value)), key_hash(part["k"])) for value in values]
    shuffled = list(parts)
    random.shuffle(shuffled)
    one, other = (
        operator.combine(pa.concat_tables([t for t, _ in each]), np.concatenate([h for _, h in each]))[0]
        for each in (parts, shuffled)
    )
    assert one.equals(other)


def test_no_rows_give_no_results(driver: Any) -> None:
    run = driver(Aggregation("op", SCHEMA, ("k",), {"n": count(), "s": sum_("v"), "m": min_("f")}))
    assert run.batch(SCHEMA.empty_table()) == []
    assert run.state == {}


def test_a_sum_of_integers_does_not_wrap_around(driver: Any) -> None:
    run = driver(Aggregation("totals", SCHEMA, ("k",), {"s": sum_("v")}))
    top = 2**63 - 1
    text = (
        "operator 'totals': the sum 's' of column 'v' of key 7 must fit long, and is beyond it: cast the column to "
        r"decimal\(38,0\) or double first"
    )
    with pytest.raises(InputError, match=text):
        run.batch(table((1, 1), (7, top), (7, 1)))
    with pytest.raises(InputError, match=text):
        run.batch(table((1, 1), (7, -top), (7, -2)), cuts=[2])
    assert run.batch(table((7, top))) == [{"k": 7, "s": top}]
    with pytest.raises(InputError, match=text):
        run.batch(table((7, 1)))
    assert run.batch(table((7, -top))) == [{"k": 7, "s": 0}]


def test_a_sum_of_decimals_does_not_leave_38_digits(driver: Any) -> None:
    kind = pa.decimal128(38, 0)
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    run = driver(Aggregation("totals", schema, ("k",), {"s": sum_("v")}))
    top = pa.table({"k": [1, 1, 1], "v": pa.array([Decimal("9" * 38)] * 3, kind)})
    with pytest.raises(InputError, match=r"the sum 's' of column 'v' must fit decimal\(38,0\), and is beyond it"):
        run.batch(top)
    back = pa.table({"k": [1], "v": pa.array([Decimal("-" + "9" * 38)], kind)})
    assert run.batch(pa.concat_tables([top.slice(1), back]))[0]["s"] == Decimal("9" * 38)


def test_a_mean_of_decimals_is_rounded_half_away_from_zero(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.decimal128(5, 0))])
    run = driver(Aggregation("op", schema, ("k",), {"m": mean("v")}))
    rows = pa.table({"k": [0] * 32 + [1] * 32, "v": pa.array([Decimal(1)] + [0] * 31 + [Decimal(-1)] + [0] * 31)})
    results = run.batch(rows.cast(schema))
    assert {row["k"]: row["m"] for row in results} == {0: Decimal("0.0313"), 1: Decimal("-0.0313")}  # 0.03125


def test_unsigned_longs_that_no_long_holds_are_refused(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.uint64())])
    run = driver(Aggregation("op", schema, ("k",), {"s": sum_("v")}))
    text = "operator 'op': the sum 's' of column 'v' must have values that fit long, and one does not"
    with pytest.raises(InputError, match=text):
        run.batch(pa.table({"k": [1], "v": pa.array([2**64 - 1], pa.uint64())}))


def test_two_keys_with_one_hash_are_found_before_they_are_added_up() -> None:
    operator = Aggregation("op", SCHEMA, ("k",), {"n": count()})
    with pytest.raises(KeyCollisionError, match="the keys 1 and 2 have the same"):
        operator.early(table((1, 1), (2, 1)), np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("keys", "aggregates", "text"),
    [
        pytest.param(("k",), {}, "operator 'op' must have at least one aggregate", id="none"),
        pytest.param(("k",), {"n": 3}, r"'n' must be an aggregate such as count\(\) .* got 3", id="a number"),
        pytest.param(("k",), {"n": sum_("w")}, "uses the column 'w', which the input does not have", id="no column"),
        pytest.param(("k",), {"n": count(where="w")}, "uses the column 'w'", id="no column to ask"),
        pytest.param(("k",), {"n": count(where="v")}, "must be a boolean column, 'v' is long", id="not a condition"),
        pytest.param(
            ("k",), {"n": count(where=pc.field("w") > 1)},
            r"the where of 'n' must be a boolean column or an expression of pyarrow.compute that its rows have, got "
            r"\(w > 1\): No match for FieldRef.Name\(w\)",
            id="an expression over a column that is not there",
        ),
        pytest.param(
            ("k",), {"n": count(where=pc.field("v"))}, "that is true or false, v is long: compare it with something",
            id="an expression that is no condition",
        ),
        pytest.param(
            ("k",), {"n": count(where=5)}, "pyarrow.compute, got 5: for example pc.field", id="neither of both",
        ),
        pytest.param(("k",), {"n": count}, r"such as count\(\) .* got <function count", id="an aggregate not called"),
        pytest.param(
            ("k",), {"n": sum_("ok")}, "the sum 'n' needs a column of numbers, got boolean", id="not a number"
        ),
        pytest.param(("k",), {"k": count()}, "names that its key columns do not have, clash: k", id="a key's name"),
        pytest.param(("x",), {"n": count()}, "must be keyed by columns of its input, unknown: x", id="no key"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(keys: tuple[str, ...], aggregates: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Aggregation("op", SCHEMA, keys, aggregates)


def test_lists_have_no_order() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))])
    with pytest.raises(InputError, match="the min 'x' needs a column of values that have an order, got array<long>"):
        Aggregation("op", schema, ("k",), {"x": min_("v")})


def test_a_pickled_operator_works_on(driver: Any) -> None:
    operator = Aggregation("op", SCHEMA, ("k",), {"n": count(where=pc.field("v") > 1), "m": mean("f")})
    copy = pickle.loads(pickle.dumps(operator))
    assert copy.state_schema == operator.state_schema
    rows = table((1, 5, None, 2.0), (1, 0, None, 4.0))
    assert driver(copy).batch(rows) == driver(operator).batch(rows) == [{"k": 1, "n": 1, "m": 3.0}]
