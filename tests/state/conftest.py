"""What the tests of the store share: state rows made from plain tuples, and a store in an empty directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.arrays import I32, I64
from headgate.state import Files, Ref, RunInfo, RunWriter, row_schema
from headgate.state.runs import forget_runs

SCHEMA = row_schema(pa.schema([("word", pa.string())]), pa.schema([("count", pa.int64())]))


@dataclass(frozen=True)
class Row:
    """A state row, with the defaults that most tests want."""

    place: int
    hash: int
    count: int | None = 0
    live: bool = True
    event: int | None = None
    processing: int | None = None
    expires: int | None = None
    word: str | None = None


@dataclass(frozen=True)
class Bench:
    """A store with one operator, ``places`` places and helpers to fill it."""

    files: Files
    places: int = 16
    schema: pa.Schema = SCHEMA

    def table(self, rows: Iterable[Row]) -> tuple[I32, pa.Table]:
        """Places and rows in the order of a run."""
        ordered = sorted(rows, key=lambda row: (row.place, row.hash))
        columns: list[list[object]] = [
            [row.hash for row in ordered],
            [row.live for row in ordered],
            [row.event for row in ordered],
            [row.processing for row in ordered],
            [row.expires for row in ordered],
            [(row.word or f"w{row.hash}") if row.live else None for row in ordered],
            [row.count if row.live else None for row in ordered],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return np.array([row.place for row in ordered], dtype=np.int32), pa.Table.from_arrays(
            arrays, schema=self.schema
        )

    def run(self, rows: Iterable[Row], name: str = "runs/0/0-0-aa.run", batch: int = 0) -> RunInfo:
        place, table = self.table(rows)
        with RunWriter(self.files, name, self.schema, batch, self.places) as writer:
            writer.append(place, table)
            return writer.finish()

    def ref(self, rows: Iterable[Row], batch: int = 0) -> Ref:
        info = self.run(rows, f"runs/0/{batch}-0-aa.run", batch)
        return Ref(info, info.places)

    def keys(self, rows: Iterable[tuple[int, int]]) -> tuple[I32, I64]:
        ordered = sorted(rows)
        return (
            np.array([place for place, _ in ordered], dtype=np.int32),
            np.array([key for _, key in ordered], dtype=np.int64),
        )


@pytest.fixture(autouse=True)
def _no_open_runs() -> None:
    forget_runs()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Files.at(tmp_path / "store"))


@pytest.fixture(scope="session")
def row() -> Callable[..., Row]:
    return Row


@pytest.fixture(scope="session")
def make_bench() -> type[Bench]:
    return Bench
