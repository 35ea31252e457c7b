"""What a sink gets: the committed results of one batch for one output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.state import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a batch, in files that stay until the next batch has been committed.

    ``job`` identifies the checkpoint, so that two jobs writing to one place do not overwrite each other's files.
    """

    output: str
    batch: int
    job: str
    schema: pa.Schema
    names: tuple[str, ...]
    files: Files
    spark: SparkSession | None = field(repr=False)

    def table(self) -> pa.Table:
        """All rows, in memory."""
        tables = [pq.read_table(pa.BufferReader(self.files.read_bytes(name))) for name in self.names]
        return pa.concat_tables([table.cast(self.schema) for table in tables]) if tables else self.schema.empty_table()

    def frame(self) -> DataFrame:
        """The rows as a Spark DataFrame that reads the files when it is asked to."""
        from pyspark.sql.pandas.types import from_arrow_schema

        assert self.spark is not None, "a DataFrame needs Spark"
        schema = from_arrow_schema(self.schema)
        if not self.names:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(*(self.files.join(name) for name in self.names))
