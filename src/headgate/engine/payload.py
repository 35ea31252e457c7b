"""Rows on their way through Spark's shuffle: one Arrow IPC stream per (target slot, chunk) in a binary column.

Spark then shuffles a few large values instead of millions of rows. ``part`` and ``seq`` (the partition that sent the
payload, and its number there) restore an order that does not depend on which task finished first, so that a replayed
batch sees the rows of a key in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headgate.arrays import I32, I64, compiled
from headgate.engine.arrivals import Arrived
from headgate.operators import is_ascending, rearranged

HASH = "__hash"
"""The column with the key hash that travels with the rows."""

REPORT = -1
"""The operator number of payloads that are reports for the driver, passed on by every stage."""

EXCHANGE_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("operator", pa.int32()),
        ("part", pa.int32()),
        ("seq", pa.int32()),
        ("payload", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Parcel:
    """One payload as it arrived."""

    operator: int
    part: int
    seq: int
    payload: pa.Buffer


@dataclass(slots=True)
class Sender:
    """Makes the exchange rows of one task."""

    part: int
    seq: int = field(default=0, init=False)

    def rows(self, operator: int, table: pa.Table, hashes: I64, slots: I32, count: int) -> Iterator[pa.RecordBatch]:
        """Exchange rows for these table rows, one per slot that gets any; rows keep their order within a slot."""
        position, starts = by_slot(slots, count)
        table = table.append_column(HASH, pa.array(hashes))
        table = table.combine_chunks() if is_ascending(position) else rearranged(table, position)
        for slot in np.flatnonzero(np.diff(starts)):
            first, last = int(starts[slot]), int(starts[slot + 1])
            yield self.row(int(slot), operator, encode(table.slice(first, last - first)))

    def row(self, slot: int, operator: int, payload: pa.Buffer) -> pa.RecordBatch:
        """The exchange row for one payload."""
        self.seq += 1
        return exchange_row(slot, Parcel(operator, self.part, self.seq, payload))


def exchange_row(slot: int, parcel: Parcel) -> pa.RecordBatch:
    """A row that brings a parcel to a slot. The payload is not copied."""
    numbers = (slot, parcel.operator, parcel.part, parcel.seq)
    bounds = pa.py_buffer(np.array([0, len(parcel.payload)], dtype=np.int32))
    payload = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, parcel.payload])
    return pa.record_batch([*(pa.array([number], pa.int32()) for number in numbers), payload], schema=EXCHANGE_SCHEMA)


def encode(table: pa.Table) -> pa.Buffer:
    """The rows as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decode(payload: pa.Buffer | bytes) -> pa.Table:
    """The rows of one payload, without copying them."""
    return pa.ipc.open_stream(payload).read_all()


def received(batches: Iterator[pa.RecordBatch]) -> list[Parcel]:
    """All payloads of a task's input, in the order in which they were sent."""
    parcels = []
    for batch in batches:
        columns = [batch.column(name) for name in ("operator", "part", "seq")]
        operators, parts, seqs = (column.to_pylist() for column in columns)
        buffers = _views(batch.column("payload"))
        parcels += [Parcel(*given) for given in zip(operators, parts, seqs, buffers, strict=True)]
    parcels.sort(key=lambda parcel: (parcel.operator, parcel.part, parcel.seq))
    return parcels


def _views(column: pa.Array) -> list[pa.Buffer]:
    """The values of a column of bytes where they lie; a scalar of it would hold a copy."""
    if not len(column):
        return []
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32  # Spark's useLargeVarTypes
    bounds = np.frombuffer(offsets, dtype=width)[column.offset :][: len(column) + 1].tolist()
    return [data.slice(start, end - start) for start, end in pairwise(bounds)]


def rows_of(parcels: Sequence[Parcel], operator: int) -> Arrived | None:
    """The rows sent to one operator, a chunk for each payload; None where there are none."""
    tables = [decode(parcel.payload) for parcel in parcels if parcel.operator == operator]
    if not tables:
        return None
    table = pa.concat_tables(tables)
    hashes = table.column(HASH).combine_chunks().to_numpy() if table.num_rows else np.empty(0, dtype=np.int64)
    return Arrived(table.drop_columns([HASH]), hashes)


@compiled
def by_slot(slots: I32, count: int) -> tuple[I32, I64]:
    """Where each row goes when they are sorted by slot, each slot's rows in their order; where each slot's start."""
    starts = np.zeros(count + 1, dtype=np.int64)
    for row in range(len(slots)):
        starts[slots[row] + 1] += 1
    for slot in range(count):
        starts[slot + 1] += starts[slot]
    free = starts[:-1].copy()
    position = np.empty(len(slots), dtype=np.int32)
    for row in range(len(slots)):
        position[row] = free[slots[row]]
        free[slots[row]] += 1
    return position, starts
