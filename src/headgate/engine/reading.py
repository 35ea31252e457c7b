"""Reading a file with Arrow inside a task: columns go straight from the file into the function, past the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyarrow import fs

from headgate.engine.program import FileFormat, fitted
from headgate.errors import SourceError

ROWS_AT_ONCE = 1 << 20
"""Rows of a Parquet file that are handed on together; bounds the memory of a task."""


def open_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a path or URI as Spark writes it (``file:/data/x`` too), and the path in it."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(), "/" + path[len("file:") :].lstrip("/")
    if "://" not in path:
        return fs.LocalFileSystem(), path
    filesystem, inner = fs.FileSystem.from_uri(path)
    return filesystem, inner


def read_file(path: str, form: FileFormat) -> Iterator[pa.Table]:
    """The rows of one file with the columns and types of ``form``.

    Raises ``SourceError`` naming the file where it cannot be read or a column does not fit.
    """
    filesystem, inner = open_filesystem(path)
    names = list(form.columns or form.schema.names)
    schema = pa.schema([form.schema.field(name) for name in names])

    def fit(table: pa.Table) -> pa.Table:
        return fitted(
            table.select(names),
            schema,
            form.lenient,
            lambda wanted, got, error: SourceError.types(path, wanted.name, wanted.type, got, error),
        )

    try:
        if form.format == "parquet":
            with pq.ParquetFile(inner, filesystem=filesystem, memory_map=False, pre_buffer=True) as file:
                missing = [name for name in names if name not in file.schema_arrow.names]
                if missing:
                    raise SourceError.columns(path, missing, file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names, use_threads=True):
                    yield fit(pa.Table.from_batches([batch]))
            return
        with filesystem.open_input_stream(inner) as stream:
            if form.format == "csv":
                types = {one.name: pa.string() if one.name in form.lenient else one.type for one in schema}
                convert = pyarrow.csv.ConvertOptions(
                    column_types=types, include_columns=names, strings_can_be_null=True
                )
                yield fit(pyarrow.csv.read_csv(stream, convert_options=convert))
            else:
                options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
                yield fit(pyarrow.json.read_json(stream, parse_options=options))
    except (pa.ArrowException, OSError) as error:
        raise SourceError.unreadable(path, form.format, error) from error


def guess_schema(path: str, format: str) -> pa.Schema:
    """The columns of a file, as it says itself (Parquet) or as its first block suggests (CSV, JSON lines)."""
    filesystem, inner = open_filesystem(path)
    try:
        if format == "parquet":
            return pq.read_schema(inner, filesystem=filesystem).remove_metadata()
        with filesystem.open_input_stream(inner) as stream:
            if format == "csv":
                return pyarrow.csv.open_csv(stream).schema
            first = stream.read(1 << 20)
            lines = first[: first.rfind(b"\n") + 1] or first
            json.loads(lines.split(b"\n", 1)[0])
            return pyarrow.json.read_json(pa.BufferReader(lines)).schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError.unreadable(path, format, error) from error
