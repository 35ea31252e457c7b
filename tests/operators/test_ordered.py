"""First, last, the k greatest and lists: by a column and never by arrival, ties by value."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.operators import Aggregation, collect, first, last, top_k

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "longs": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
    "unsigned longs": (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 2)),
    "doubles": (pa.float64(), st.floats(allow_nan=False)),
    "floats": (pa.float32(), st.floats(allow_nan=False, width=32)),
    "strings": (pa.string(), st.text("aäß€z\U0001f600", max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=2)),
    "decimals": (pa.decimal128(10, 2), st.decimals(-(10**5), 10**5, places=2)),
    "wide decimals": (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    "timestamps": (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    "dates": (pa.date32(), st.dates()),
    "booleans": (pa.bool_(), st.booleans()),
}


def ascending(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("case", KINDS.values(), ids=list(KINDS))
@settings(max_examples=25)
@given(data=st.data())
def test_any_split_gives_what_sorting_gives(driver: Any, case: Any, data: Any) -> None:
    kind, values = case
    order = data.draw(st.sampled_from(list(KINDS.values())), label="order")
    row = st.tuples(st.none() | values, st.none() | order[1])
    rows = data.draw(st.lists(row, min_size=1, max_size=20), label="rows")
    rows += rows[: len(rows) // 3]  # some rows twice
    schema = pa.schema([("k", pa.int64()), ("v", kind), ("o", order[0])])
    operator = Aggregation(
        "op",
        schema,
        ("k",),
        {
            "first": first("v", by="o"),
            "last": last("v", by="o"),
            "some": collect("v", by="o", limit=3),
            "all": collect("v", limit=None),
            "top": top_k("v", 2, by="o"),
        },
    )
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3), label="cuts")
    table = pa.Table.from_arrays(
        [pa.array([1] * len(rows)), pa.array([v for v, _ in rows], kind), pa.array([o for _, o in rows], order[0])],
        schema=schema,
    )
    got = driver(operator).batch(table, cuts=cuts)[0]
    pairs = sorted(
        ((v, o) for v, o in rows if v is not None and o is not None),
        key=lambda pair: (ascending(pair[1]), ascending(pair[0])),
    )
    assert got["first"] == (pairs[0][0] if pairs else None)
    assert got["last"] == (pairs[-1][0] if pairs else None)
    assert got["some"] == [value for value, _ in pairs[:3]]
    assert got["all"] == sorted((v for v, _ in rows if v is not None), key=ascending)
    best = sorted(pairs, key=lambda pair: ascending(pair[0]))
    best.sort(key=lambda pair: ascending(pair[1]), reverse=True)
    assert got["top"] == [{"value": value, "by": by} for value, by in best[:2]]


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("at", pa.float64()), ("l", pa.list_(pa.int64()))])


def test_nan_is_greater_than_any_number_and_minus_zero_is_zero(driver: Any) -> None:
    nan = float("nan")
    rows = pa.table({"k": [1] * 4, "v": [1.0, -0.0, 3.0, 4.0], "at": [nan, -0.0, 0.0, 7.0], "l": [[], [], [], []]})
    aggregates = {"f": first("v", by="at"), "l": last("v", by="at"), "c": collect("at", limit=9)}
    got = driver(Aggregation("op", SCHEMA, ("k",), aggregates)).batch(rows.cast(SCHEMA))[0]
    assert (got["f"], got["l"]) == (0.0, 1.0)
    assert str(got["f"]) == "0.0"
    assert str(got["c"]) == "[0.0, 0.0, 7.0, nan]"


def test_two_that_are_level_where_the_limit_cuts_are_told_apart_by_value(driver: Any) -> None:
    """Both 5s are among the two least until the 3 comes; which of them has to go then must not be chance."""
    for values in ([8.0, 9.0, 1.0], [9.0, 8.0, 1.0]):
        rows = pa.table({"k": [1] * 3, "v": values, "at": [5.0, 5.0, 3.0], "l": [[], [], []]}).cast(SCHEMA)
        got = driver(Aggregation("op", SCHEMA, ("k",), {"c": collect("v", by="at", limit=2)})).batch(rows)
        assert got[0]["c"] == [1.0, 8.0]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(InputError, match="collect: limit must be a whole number of at least 1, got 0"):
        collect("v", limit=0)
    with pytest.raises(InputError, match="top_k: k must be a whole number of at least 1, got True"):
        top_k("v", True, by="at")
    with pytest.raises(InputError, match="the first 'x' needs a by of values that have an order, 'l' is array<long>"):
        Aggregation("op", SCHEMA, ("k",), {"x": first("v", by="l")})
    with pytest.raises(
        InputError, match="the collect 'x' needs a column of values that have an order, got array<long>"
    ):
        Aggregation("op", SCHEMA, ("k",), {"x": collect("l", limit=3)})


def test_types_are_those_of_the_columns() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.decimal128(9, 2)), ("at", pa.timestamp("us", tz="UTC"))])
    operator = Aggregation("op", schema, ("k",), {"f": first("v", by="at"), "t": top_k("v", 1, by="at")})
    pair = pa.struct([("value", pa.decimal128(9, 2)), ("by", pa.timestamp("us", tz="UTC"))])
    assert operator.output_schema.types == [pa.int64(), pa.decimal128(9, 2), pa.list_(pair)]
