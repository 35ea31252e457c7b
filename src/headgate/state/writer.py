"""Writing runs, in the format that ``state/runs.py`` draws and reads."""

from __future__ import annotations

import json
import tempfile

import numpy as np
import pyarrow as pa
import xxhash

from headgate.arrays import I32, I64, compiled
from headgate.errors import StateError
from headgate.state.bitmap import Bitmap
from headgate.state.files import COPY_BYTES, Files
from headgate.state.rows import HASH, LIVE, NEVER, TIMERS, Timer, times
from headgate.state.runs import ALIGNMENT, END, FORMAT, MAGIC, RunInfo, fingerprint, named

BLOCK_ROWS = 262_144
"""Rows per block. A lookup pays about 0.1 ms per block it touches, so few large blocks: 10 million rows make 39."""

BLOCK_BYTES = 32 * 2**20
"""A block also ends at about this size, which bounds the memory of writing one when the rows are wide."""

SPOOL_BYTES = 64 * 2**20
"""A writer keeps the hashes of 8 million rows in memory; beyond that they wait in a temporary file."""


class RunWriter:
    """Writes one run, appended to in ascending order. Needs the memory of one block, however many rows come.

    ``places`` is how many places there are, not how many are used. As a context manager it drops the file unless
    ``finish`` was called.
    """

    def __init__(self, files: Files, name: str, schema: pa.Schema, batch: int, places: int) -> None:
        self._name = files.join(name)
        self._writer = files.create(name)
        self.schema = schema
        self._body = schema.remove(HASH)
        self._batch = batch
        self._counts = np.zeros(places, dtype=np.int64)
        self._content = xxhash.xxh3_64()
        self._position = 0
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._rows = 0
        self._dead = 0
        self._last = (-1, 0)
        self._blocks: list[list[int]] = []
        self._spans: dict[Timer, tuple[int, int]] = {}
        # Holds the hashes until the blocks are written.
        self._hashes = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 - closed by finish or abort
        self._write(MAGIC + FORMAT.to_bytes(2, "little"))
        self._schema_at = self._section(schema.serialize())

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    @property
    def rows(self) -> int:
        """How many rows were appended."""
        return self._rows + self._pending_rows

    def append(self, place: I32, table: pa.Table) -> None:
        """Add rows: their places, and a table of the run's columns.

        ``StateError`` when they are not in strictly ascending order of (place, hash), also against what came before,
        for a place that does not exist, and for other columns than the run's.
        """
        if not table.schema.equals(self.schema):
            table = fitted(table, self.schema, self._name)
        if not len(place):
            return
        hashes = np.asarray(table.column(HASH), dtype=np.int64)
        wrong = disorder(place, hashes, *self._last)
        if wrong >= 0:
            raise StateError.unordered(self._name, int(place[wrong]), int(hashes[wrong]))
        if place[-1] >= len(self._counts) or place[0] < 0:
            raise StateError.place_range(self._name, int(place[-1]), len(self._counts))
        self._last = (int(place[-1]), int(hashes[-1]))
        self._counts += np.bincount(place, minlength=len(self._counts))
        self._hashes.write(hashes.data)
        body = table.remove_column(HASH)
        width = max(1, body.nbytes // len(body))
        start = 0
        while start < len(body):
            room = max(1, min(BLOCK_ROWS - self._pending_rows, (BLOCK_BYTES - self._pending_bytes) // width))
            piece = body.slice(start, room)
            self._pending.append(piece)
            self._pending_rows += len(piece)
            self._pending_bytes += len(piece) * width
            start += len(piece)
            if self._pending_rows >= BLOCK_ROWS or self._pending_bytes + width > BLOCK_BYTES:
                self._flush()

    def finish(self) -> RunInfo:
        """Write the index and the footer, and make the file appear."""
        self._flush()
        hashes_at = self._align()
        self._hashes.seek(0)
        while piece := self._hashes.read(COPY_BYTES):
            self._write(piece)
        self._hashes.close()
        offsets = np.zeros(len(self._counts) + 1, dtype=np.int64)
        np.cumsum(self._counts, out=offsets[1:])
        offsets_at = self._section(offsets.data)[0]
        checksum = self._content.hexdigest()
        footer = json.dumps(
            {
                "format": FORMAT,
                "batch": self._batch,
                "rows": self._rows,
                "places": len(self._counts),
                "schema": self._schema_at,
                "fingerprint": fingerprint(self.schema),
                "blocks": self._blocks,
                "hashes": hashes_at,
                "offsets": offsets_at,
                "checksum": checksum,
            },
            separators=(",", ":"),
        ).encode()
        tail = footer + len(footer).to_bytes(4, "little") + xxhash.xxh3_64_digest(footer) + END
        self._write(tail)
        self._writer.finish()
        return RunInfo(
            name=self._writer.name,
            batch=self._batch,
            rows=self._rows,
            bytes=self._position,
            checksum=checksum,
            places=Bitmap.of_mask(self._counts > 0),
            dead=self._dead,
            timers=self._spans,
        )

    def abort(self) -> None:
        """Drop the file; nothing once it is finished."""
        self._writer.abort()
        self._hashes.close()

    def _flush(self) -> None:
        if not self._pending:
            return
        table = self._pending[0] if len(self._pending) == 1 else pa.concat_tables(self._pending)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        # More than one batch only when the text of a column exceeds what one array can hold.
        for batch in table.combine_chunks().to_batches():
            rows = batch.num_rows
            self._dead += rows - int(np.count_nonzero(np.asarray(batch.column(LIVE - 1))))
            entry = [self._rows, rows, *self._section(batch.serialize())]
            for kind, column in TIMERS.items():
                entry += self._timers(kind, batch.column(column - 1))
            self._blocks.append(entry)
            self._rows += rows

    def _timers(self, kind: Timer, column: pa.Array) -> list[int]:
        """Write the timers of a block in order of time; where they lie and how many there are."""
        if column.null_count == len(column):
            return [0, 0]
        at = times(column)
        order = np.argsort(at, kind="stable")[: len(at) - column.null_count]
        at = at[order]
        first, last = self._spans.get(kind, (NEVER, -NEVER))
        self._spans[kind] = (min(first, int(at[0])), max(last, int(at[-1])))
        position = self._section(at.data)[0]
        self._section((order + self._rows).astype(np.int64).data)
        return [position, len(at)]

    def _section(self, content: bytes | memoryview | pa.Buffer) -> list[int]:
        position = self._align()
        self._write(content)
        return [position, self._position - position]

    def _align(self) -> int:
        self._write(bytes(-self._position % ALIGNMENT))
        return self._position

    def _write(self, content: bytes | memoryview | pa.Buffer) -> None:
        view = memoryview(content)
        self._content.update(view)
        self._writer.write(content)
        self._position += view.nbytes


def fitted(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The same table under this schema, which may differ in metadata and 'not null' only; else ``StateError``."""
    if table.schema.names != schema.names or table.schema.types != schema.types:
        raise StateError.schema(name, named(schema), named(table.schema))
    return pa.Table.from_arrays(table.columns, schema=schema)


@compiled
def disorder(place: I32, hashes: I64, last_place: int, last_hash: int) -> int:
    """The first row that does not come after the one before it, in order of (place, hash); -1 if all do."""
    for row in range(len(place)):
        if place[row] < last_place or (place[row] == last_place and hashes[row] <= last_hash):
            return row
        last_place, last_hash = place[row], hashes[row]
    return -1
