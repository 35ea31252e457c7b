"""A stream of files that the tasks open themselves.

Spark tracks which files are new, exactly once, by its ``binaryFile`` source, of which only the names are asked for, so
no content is read by the JVM. The tasks read the files with Arrow, only the columns that the job uses where that is
known. What this gains over rows that come through the JVM: benchmarks/results/engine_aggregate.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from headgate.engine.program import FileFormat
from headgate.engine.reading import guess_schema
from headgate.errors import SourceError
from headgate.operators import output_columns

Format = Literal["parquet", "csv", "json"]

NAMES = StructType(
    [
        StructField("path", StringType()),
        StructField("modificationTime", TimestampType()),
        StructField("length", LongType()),
        StructField("content", BinaryType()),
    ]
)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A streaming or static source of files; hand it to ``Job.source``."""

    frame: DataFrame
    form: FileFormat


def files(
    spark: SparkSession,
    path: str,
    *,
    format: Format = "parquet",
    schema: pa.Schema | str | None = None,
    max_files_per_trigger: int | None = None,
    pattern: str | None = None,
    streaming: bool = True,
) -> FileSource:
    """Files under ``path`` (a directory or a glob) as a source.

    ``schema``: columns as an Arrow schema or as text (``"user string, amount double"``); guessed from one file where
    absent. ``pattern``: a glob for file names (``"*.parquet"``). ``streaming=False`` reads what is there, once.

    Raises ``SourceError`` where no schema is given and there is no file to guess it from.
    """
    if format not in ("parquet", "csv", "json"):
        raise SourceError.format(format)
    static = spark.read.format("binaryFile").schema(NAMES)
    if pattern is not None:
        static = static.option("pathGlobFilter", pattern)
    if schema is None:
        first = static.load(path).select("path").head(1)
        if not first:
            raise SourceError.no_files(path)
        arrow = guess_schema(first[0][0], format)
    else:
        arrow = schema if isinstance(schema, pa.Schema) else output_columns(schema)
    if not streaming:
        return FileSource(static.load(path).select("path", "length"), FileFormat(format, arrow))
    reader = spark.readStream.format("binaryFile").schema(NAMES)
    for name, value in (("pathGlobFilter", pattern), ("maxFilesPerTrigger", max_files_per_trigger)):
        if value is not None:
            reader = reader.option(name, str(value))
    return FileSource(reader.load(path).select("path", "length"), FileFormat(format, arrow))
