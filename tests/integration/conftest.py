"""The small things that integration tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Feed = Callable[..., Path]


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
