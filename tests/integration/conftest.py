"""One Spark for all integration tests of a process, and the small things they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A Java that starts quickly and leaves the cores to the tasks: no test lives long enough to gain from more."""

Feed = Callable[..., Path]


def pytest_configure() -> None:
    # Spark's Python workers must be the Python of the tests.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)


def pytest_sessionfinish() -> None:
    module = sys.modules.get("pyspark.sql")
    session = module.SparkSession.getActiveSession() if module is not None else None
    if session is not None:
        session.stop()


@pytest.fixture
def spark() -> Iterator[Any]:
    """The Spark of this process; it is started by the first test that asks, and ends with the last."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    builder = sql.SparkSession.builder.master("local[2]").appName("headgate-tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    for query in session.streams.active:
        query.stop()


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """``feed(table, ...)`` puts each table as one Parquet file where a stream reads; returns the directory."""
    folder = tmp_path / "in"
    folder.mkdir()

    def put(*tables: pa.Table, into: str = "in") -> Path:
        target = tmp_path / into
        target.mkdir(exist_ok=True)
        for table in tables:
            number = len(list(target.glob("*.parquet")))
            hidden = target / f".{number:05d}.tmp"
            pq.write_table(table, hidden)
            moment = 1_700_000_000 + number  # Spark takes files in the order of their times
            os.utime(hidden, (moment, moment))
            hidden.rename(target / f"{number:05d}.parquet")
        return target

    return put
