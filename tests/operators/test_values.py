"""Python values as Arrow columns: what Arrow would take for something else is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import InputError
from headgate.operators import type_name, type_of
from headgate.operators.values import table_of

DAY = dt.date(2026, 1, 2)
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


def build(kind: str, values: list[Any]) -> pa.Table:
    return table_of("op", "output", pa.schema([("x", type_of(kind))]), [values], lambda row: f"key {row}")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", np.int32(3), 3),
        ("double", 3, 3.0),
        ("double", np.float32(0.5), 0.5),
        ("string", "x", "x"),
        ("binary", b"x", b"x"),
        ("boolean", np.bool_(True), True),
        ("date", DAY, DAY),
        ("timestamp", NOON, NOON),
        ("timestamp", NOON.replace(tzinfo=None), NOON),
        ("decimal(5,2)", Decimal("1.5"), Decimal("1.50")),
        ("array<long>", np.array([1, 2]), [1, 2]),
        ("array<long>", (1, None), [1, None]),
        ("struct<a: long>", {"a": 1}, {"a": 1}),
        ("map<string, long>", {"a": 1}, [("a", 1)]),
    ],
)
def test_values_of_the_type(kind: str, value: Any, expected: Any) -> None:
    assert build(kind, [None, value])["x"].to_pylist() == [None, expected]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", 1.5),
        ("int", 2.0),
        ("long", Decimal("1.5")),
        ("long", np.float64(1.5)),
        ("long", "1"),
        ("byte", 128),
        ("double", "1"),
        ("string", b"x"),
        ("string", 1),
        ("binary", "x"),
        ("boolean", 1),
        ("date", NOON),
        ("date", 1),
        ("timestamp", 1),
        ("timestamp", DAY),
        ("decimal(5,2)", Decimal("1.555")),
        ("array<long>", [1, 1.5]),
        ("array<long>", np.array([1.5])),
        ("array<long>", b"x"),
        ("array<array<long>>", [[1], [1.5]]),
        ("array<long>", 7),
        ("struct<a: long>", {"a": 1.5}),
        ("map<string, long>", {"a": 1.5}),
        ("map<string, long>", [("a", 1.5)]),
    ],
)
def test_values_of_another_type_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        build(kind, [None, value])
    named = type_name(type_of(kind))
    assert str(caught.value) == (
        f"operator 'op', key 'key 1': output column 'x' must be {named}, got {value!r} ({type(value).__name__}): "
        "change the function, or declare other columns"
    )
