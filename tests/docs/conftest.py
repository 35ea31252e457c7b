"""What the pages and the example programs need beside Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


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
