"""One Spark for the pages and the example programs, started by the first test that asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture
def spark() -> Iterator[Any]:
    """The Spark of this process."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = sql.SparkSession.builder.master("local[2]").appName("headgate-docs")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    for query in session.streams.active:
        query.stop()


@pytest.fixture
def work_in(spark: Any) -> Iterator[Callable[[Path], None]]:
    """``work_in(folder)``: relative paths mean this folder in Spark, too, whose process began in another."""
    hadoop, system = spark._jvm.org.apache.hadoop.fs, spark._jvm.java.lang.System
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory(), system.getProperty("user.dir")

    def work(folder: Path) -> None:
        files.setWorkingDirectory(hadoop.Path(str(folder)))  # the file system that is open
        system.setProperty("user.dir", str(folder))  # and those that will be opened

    yield work
    files.setWorkingDirectory(before[0])
    system.setProperty("user.dir", before[1])


def pytest_sessionfinish() -> None:
    module = sys.modules.get("pyspark.sql")
    session = module.SparkSession.getActiveSession() if module is not None else None
    if session is not None:
        session.stop()
