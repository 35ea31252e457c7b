"""headgate's key hash is Spark's ``xxhash64``: asked of Spark itself."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from headgate.routing import group_of, key_hash

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {
    "i": pa.array([0, 1, -1, None, 2**31 - 1, 12345], pa.int32()),
    "l": pa.array([0, 1, -1, None, 2**63 - 1, -(2**63)], pa.int64()),
    "s": pa.array(["", "a", "headgate", "é" * 20, None, "x" * 100]),
    "b": pa.array([True, False, None, True, False, True]),
    "d": pa.array([dt.date(1970, 1, 1), dt.date(2026, 11, 15), dt.date(1900, 1, 1), None, None, dt.date(2000, 2, 29)]),
    "t": pa.array([dt.datetime(2026, 11, 15, 1, 2, 3, 456789), None] * 3, pa.timestamp("us", tz="UTC")),
    "m": pa.array([Decimal(text) for text in ("0.00", "1.50", "-1.50", "99999999.99", "-0.01", "7.00")]),
    "n": pa.array([Decimal(n) for n in (0, 1, -1, 10**30 + 7, -(10**30) - 7, -128)], pa.decimal128(38, 0)),
    "y": pa.array([b"", b"\x00", b"\xff" * 33, None, b"abcd", b"12345678"]),
}


def _ask(spark: object, expression: str) -> list[int]:
    frame = spark.createDataFrame(pa.table(COLUMNS))  # type: ignore[attr-defined]
    return [row[0] for row in frame.selectExpr(expression).collect()]


def test_every_type_hashes_as_spark_does(spark: object) -> None:
    for name, column in COLUMNS.items():
        expression = f"cast({name} as bigint)" if name in "il" else name
        assert key_hash(column).tolist() == _ask(spark, f"xxhash64({expression})"), name


def test_several_columns_and_key_groups_agree_with_spark(spark: object) -> None:
    mine = key_hash(COLUMNS["i"], COLUMNS["s"], COLUMNS["d"], COLUMNS["n"])
    assert mine.tolist() == _ask(spark, "xxhash64(cast(i as bigint), s, d, n)")
    for groups in (1000, 1024):
        assert group_of(key_hash(COLUMNS["s"]), groups).tolist() == _ask(spark, f"pmod(xxhash64(s), {groups})")
