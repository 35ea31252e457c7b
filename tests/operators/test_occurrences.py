"""Distinct values and the most frequent ones: exact against a Counter, bounded where counters run out."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.operators import Aggregation, distinct, top_k
from headgate.routing import key_hash

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "longs": (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "unsigned longs": (pa.uint64(), st.integers(2**64 - 3, 2**64 - 1)),
    "doubles": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), -2.5])),
    "strings": (pa.string(), st.text("ab", max_size=2)),
    "large strings": (pa.large_string(), st.text("ab", max_size=2)),
    "bytes": (pa.binary(), st.binary(max_size=1)),
    "decimals": (pa.decimal128(30, 1), st.sampled_from([Decimal("1.5"), Decimal("-2.0"), Decimal(0)])),
    "dates": (pa.date32(), st.dates()),
    "booleans": (pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("case", KINDS.values(), ids=list(KINDS))
@settings(max_examples=25)
@given(data=st.data())
def test_any_split_counts_as_a_counter_does(driver: Any, case: Any, data: Any) -> None:
    kind, values = case
    row = st.tuples(st.integers(0, 2), st.none() | values)
    rows = data.draw(st.lists(row, max_size=30), label="rows")
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    operator = Aggregation("op", schema, ("k",), {"d": distinct("v"), "t": top_k("v", 2)})
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3), label="cuts")
    table = pa.Table.from_arrays(
        [pa.array([k for k, _ in rows], pa.int64()), pa.array([v for _, v in rows], kind)], schema=schema
    )
    for got in driver(operator).batch(table, cuts=cuts):
        counts = Counter(v for k, v in rows if k == got["k"] and v is not None)
        assert got["d"] == len(counts)
        best = sorted(counts, key=lambda v: (-counts[v], v.encode() if isinstance(v, str) else v))[:2]
        assert got["t"] == [{"value": value, "count": counts[value]} for value in best]


def test_nan_is_one_value(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    values = [float("nan"), odd[0], odd[1], 1.0]
    run = driver(Aggregation("op", schema, ("k",), {"d": distinct("v")}))
    assert run.batch(pa.table({"k": [1] * 4, "v": values}, schema=schema), cuts=[2])[0]["d"] == 2


@settings(max_examples=60)
@given(
    st.integers(1, 5),
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=30), min_size=1, max_size=8),
    st.integers(1, 3),
)
def test_counts_stay_within_the_bound_whatever_is_merged_with_what(
    counters: int, chunks: list[list[int]], arity: int
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    operator = Aggregation("op", schema, ("k",), {"t": top_k("v", counters, counters=counters)})
    level = []
    for chunk in chunks:
        rows = pa.table({"k": [1] * len(chunk), "v": chunk}, schema=schema)
        level.append(operator.early(rows, key_hash(rows["k"])))
    while len(level) > 1:
        groups = [level[at : at + arity + 1] for at in range(0, len(level), arity + 1)]
        level = [
            operator.combine(pa.concat_tables([t for t, _ in group]), np.concatenate([h for _, h in group]))
            for group in groups
        ]
    counts = Counter(value for chunk in chunks for value in chunk)
    bound = sum(counts.values()) / (counters + 1)
    got = {each["value"]: each["count"] for each in operator.finished(level[0][0]).to_pylist()[0]["t"]}
    assert len(got) <= counters
    assert set(got) >= {value for value, count in counts.items() if count > bound}
    for value, count in got.items():
        assert counts[value] - bound <= count <= counts[value]


def test_frequent_values_of_a_skewed_stream_are_found_with_few_counters() -> None:
    random = np.random.default_rng(3)
    values = random.zipf(1.3, 50_000) % 10_000
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    operator = Aggregation("op", schema, ("k",), {"t": top_k("v", 5, counters=100)})
    parts = []
    for chunk in np.array_split(values, 20):
        rows = pa.table({"k": np.zeros(len(chunk), np.int64), "v": chunk}, schema=schema)
        parts.append(operator.early(rows, key_hash(rows["k"])))
    merged, _ = operator.combine(pa.concat_tables([t for t, _ in parts]), np.concatenate([h for _, h in parts]))
    got = [each["value"] for each in operator.finished(merged).to_pylist()[0]["t"]]
    assert got == [value for value, _ in Counter(values.tolist()).most_common(5)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"k": 0}, "top_k: k must be a whole number of at least 1, got 0"),
        ({"k": 5, "counters": 3}, "top_k: counters must be at least k, got 3 for the 5 most frequent values"),
        ({"k": 5, "by": "w", "counters": 9}, "top_k: counters must be left out with by, which is exact without them"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        top_k("v", **arguments)
