"""What all tests share: Hypothesis without deadlines (the first call of a compiled function takes seconds), and one
Spark per process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "headgate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("headgate")

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
