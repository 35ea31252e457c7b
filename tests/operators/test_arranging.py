"""Rows that go to known positions: as ``take`` would have them, whatever the columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.operators import is_ascending, rearranged
from headgate.operators.arranging import order_of

COLUMNS = {
    "int8": pa.array([1, 2, 3, 4], pa.int8()),
    "int16": pa.array([1, -2, 3, 4], pa.int16()),
    "float": pa.array([1.5, float("nan"), -0.0, 4.0], pa.float32()),
    "double": pa.array([1.5, float("inf"), -0.0, 4.0]),
    "half": pa.array(np.array([1, 2, 3, 4], np.float16)),
    "timestamp": pa.array([dt.datetime(2026, 1, day) for day in (1, 2, 3, 4)], pa.timestamp("us", tz="UTC")),
    "date": pa.array([dt.date(2026, 1, day) for day in (1, 2, 3, 4)]),
    "boolean": pa.array([True, False, False, True]),
    "some null": pa.array([1, None, 3, None]),
    "all null": pa.nulls(4),
    "decimal": pa.array([Decimal("1.25"), Decimal("-2"), Decimal("3"), Decimal("4")], pa.decimal128(20, 2)),
    "text": pa.array(["a", "", "longer", None]),
    "bytes": pa.array([b"a", b"", b"longer", b"d"]),
    "list": pa.array([[1], [], None, [2, 3]]),
    "struct": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}]),
    "dictionary": pa.array(["a", "b", "a", "c"]).dictionary_encode(),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_any_column_goes_where_it_is_told_to(name: str) -> None:
    column = COLUMNS[name]
    table = pa.table({"it": pa.chunked_array([column.slice(1, 2), column.slice(0, 0), column])})
    position = np.array([5, 0, 3, 1, 4, 2], np.int32)
    wanted = table.combine_chunks().take(pa.array([1, 3, 5, 2, 4, 0]))
    got = rearranged(table, position)
    got.validate(full=True)
    assert got.schema == table.schema
    assert repr(got.column("it").to_pylist()) == repr(wanted.column("it").to_pylist()), "NaN and -0.0 as they were"
    assert got.column("it").num_chunks == 1


@given(st.permutations(range(30)), st.integers(0, 30), st.integers(0, 3))
def test_rows_stay_together(order: list[int], cut: int, chunked: int) -> None:
    position = np.argsort(order).astype(np.int32)
    table = pa.table({"number": np.arange(30), "text": [str(row) for row in range(30)]})
    for _ in range(chunked):
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    got = rearranged(table, position)
    assert got.column("number").to_pylist() == order
    assert got.column("text").to_pylist() == [str(row) for row in order]
    assert order_of(position).tolist() == order
    assert is_ascending(position) == (order == sorted(order))


def test_a_buffer_may_be_longer_than_its_values() -> None:
    data = pa.py_buffer(np.array([1, 2, 3], np.int32).tobytes() + b"?")
    column = pa.Array.from_buffers(pa.int32(), 3, [None, data])
    assert rearranged(pa.table({"it": column}), np.array([2, 0, 1], np.int32)).column("it").to_pylist() == [2, 3, 1]


def test_no_rows_and_no_columns() -> None:
    none = np.empty(0, np.int32)
    assert rearranged(pa.table({"it": pa.array([], pa.int64())}), none).num_rows == 0
    assert is_ascending(none)
