"""Where results go: Parquet files, a table in memory, the terminal, a function, and through it any Spark sink.

A sink gets the committed results of each batch, in order, at least once and always the same for the same batch. The
Parquet sink and the table in memory ignore what they have seen, so results are in them exactly once. A function gets
the batch's number to do the same.
"""

from headgate.sinks.builtin import (
    ConsoleSink,
    FunctionSink,
    MemorySink,
    ParquetSink,
    Sink,
    console,
    function,
    memory,
    parquet,
)
from headgate.sinks.results import Results

__all__ = [
    "ConsoleSink",
    "FunctionSink",
    "MemorySink",
    "ParquetSink",
    "Results",
    "Sink",
    "console",
    "function",
    "memory",
    "parquet",
]
