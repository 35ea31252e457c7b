"""The outbox: results are written as Parquet files by the tasks that made them, and committed with the manifest.

Sinks get them after the commit, from these files. So a result that was once committed is delivered even if the driver
dies before it could, and it is the same one: nothing is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.engine.orders import Written
from headgate.state import Checkpoint, Files

BUFFER_BYTES = 64 << 20
"""Results are held back up to this many bytes per output, so that a file has few and large row groups."""

COMPRESSION = "lz4"
"""The files are written once and read once, soon after: what is quick counts for more than what is small."""


class _Target:
    """A file of results being written, as Parquet's writer wants it."""

    def __init__(self, files: Files, name: str, schema: pa.Schema) -> None:
        self.file = files.create(name)
        self.name = name
        self.rows = 0
        self.at = 0
        self.closed = False
        self.writer = pq.ParquetWriter(
            pa.PythonFile(self, mode="w"), schema, compression=COMPRESSION, use_dictionary=_repeating(schema)
        )

    def write(self, content: bytes) -> int:
        self.file.write(content)
        self.at += len(content)
        return len(content)

    def tell(self) -> int:
        return self.at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class Outbox:
    """The result files of one task; they appear when it is finished, all or none of each."""

    files: Files
    batch: int
    task: int
    _tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    _open: dict[str, _Target] = field(default_factory=dict)

    def add(self, output: str, rows: pa.Table) -> None:
        tables = self._tables.setdefault(output, [])
        tables.append(rows)
        if sum(table.nbytes for table in tables) > BUFFER_BYTES:
            self._flush(output)

    def _flush(self, output: str) -> None:
        tables = self._tables.pop(output, [])
        if not tables:
            return
        table = pa.concat_tables(tables)
        if output not in self._open:
            name = Checkpoint.outbox_name(output, self.batch, self.task)
            self._open[output] = _Target(self.files, name, table.schema)
        self._open[output].writer.write_table(table)
        self._open[output].rows += table.num_rows

    def finish(self) -> tuple[Written, ...]:
        """Write what is held back and close the files."""
        try:
            for output in list(self._tables):
                self._flush(output)
            for target in self._open.values():
                target.writer.close()
                target.file.finish()
        except BaseException:
            self.abort()
            raise
        return tuple(Written(output, target.name, target.rows) for output, target in self._open.items())

    def abort(self) -> None:
        """Leave no trace."""
        for target in self._open.values():
            target.file.abort()


def _repeating(schema: pa.Schema) -> list[str] | bool:
    """The columns whose values may be few and long, and are worth a dictionary; numbers take as long to look up as to
    write. False if there are none."""
    return [
        each.name for each in schema if not pa.types.is_primitive(each.type) or pa.types.is_temporal(each.type)
    ] or False
