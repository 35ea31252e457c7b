"""The sinks that come with headgate."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headgate.errors import InputError, SinkError
from headgate.sinks.results import Results
from headgate.state import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONSOLE_ROWS = 20
"""Rows of a batch that the console shows, as Spark's console sink does."""


class Sink(Protocol):
    """Takes the results of one batch. Called again with the same batch after a crash: must then change nothing."""

    def deliver(self, results: Results) -> None: ...


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """A directory of Parquet files, one per batch and task, named by batch: a batch delivered twice is there once.

    A file appears whole or not at all. Readers see the files of a batch as they arrive.
    """

    path: str

    def deliver(self, results: Results) -> None:
        target = Files.at(self.path)
        for number, name in enumerate(sorted(results.names)):
            final = f"part-{results.batch:012d}-{number:05d}-{results.output}-{results.job}.parquet"
            target.write_bytes(final, results.files.read_bytes(name))


@dataclass(slots=True)
class MemorySink:
    """A table in the driver's memory, for tests and notebooks: ``to_arrow()``, ``to_pandas()``, ``frame(spark)``."""

    name: str = ""
    _batches: dict[int, pa.Table] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def deliver(self, results: Results) -> None:
        table = results.table()
        with self._lock:
            self._batches[results.batch] = table
        if self.name and results.spark is not None:
            self.frame(results.spark).createOrReplaceTempView(self.name)

    def to_arrow(self) -> pa.Table:
        """All rows so far, batch after batch; an empty table before the first."""
        with self._lock:
            tables = [self._batches[batch] for batch in sorted(self._batches)]
        return pa.concat_tables(tables) if tables else pa.table({})

    def to_pylist(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self.to_arrow().to_pylist()
        return rows

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.to_arrow())


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """The first rows of each batch, printed as a table."""

    rows: int = CONSOLE_ROWS
    terminal: Console = field(default_factory=Console)

    def deliver(self, results: Results) -> None:
        table = results.table()
        shown = Table()
        for name in table.column_names:
            shown.add_column(name)
        for row in table.slice(0, self.rows).to_pylist():
            shown.add_row(*(str(value) for value in row.values()))
        title = f"batch {results.batch}, {results.output}: {table.num_rows} rows"
        self.terminal.print(title, markup=False, highlight=False, soft_wrap=True)  # no wider than the table otherwise
        self.terminal.print(shown)
        if table.num_rows > self.rows:
            self.terminal.print(f"only the first {self.rows} rows are shown")


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """Calls ``function(frame, batch)``. The function must do nothing, or the same again, for a batch it has seen."""

    function: Callable[[DataFrame, int], object]

    def deliver(self, results: Results) -> None:
        try:
            self.function(results.frame(), results.batch)
        except Exception as error:
            raise SinkError.failed(results.output, results.batch, error) from error


def parquet(path: str) -> ParquetSink:
    """Parquet files under ``path`` (a local path or any URI that Arrow opens), exactly once."""
    return ParquetSink(str(path))


def memory(name: str = "") -> MemorySink:
    """A table in memory; with a name also a temporary view in Spark."""
    return MemorySink(name)


def console(rows: int = CONSOLE_ROWS) -> ConsoleSink:
    """Print the first rows of each batch."""
    return ConsoleSink(rows)


def function(call: Callable[[DataFrame, int], object]) -> FunctionSink:
    """``call(frame, batch)`` for each batch that has results: the way to any sink that Spark can write to."""
    return FunctionSink(call)


def as_sink(target: object) -> Sink:
    """A sink, or a plain function taken as one; raises ``InputError`` for anything else."""
    if hasattr(target, "deliver"):
        return target
    if callable(target):
        return FunctionSink(target)
    raise InputError(
        f"write_to needs a sink of headgate.sinks or a function f(frame, batch), got {type(target).__name__}"
    )
