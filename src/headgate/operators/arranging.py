"""Rows in another order, when it is known where each row goes.

``take`` asks of every place in the new order which row goes there, and jumps through all rows for the answer. Here rows
are read as they lie, and each is written to its place. Where they go to few groups, as rows do that are sorted by slot
or by key, the places written to next all stay in a core's caches: about half the time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.arrays import I32, I64, compiled

WIDTHS = (8, 16, 32, 64)
"""Bits of the values that are moved one by one; all others are taken."""


def rearranged(table: pa.Table, position: I32) -> pa.Table:
    """The rows of a table, each at its position. The columns come in one chunk, unless text takes more than 2 GB."""
    order: pa.Array | None = None
    columns = []
    for column in table.columns:
        if is_plain(column):
            columns.append(_moved(column, position))
            continue
        if order is None:
            order = pa.array(order_of(position))
        columns.append(pa.table([column], names=["it"]).combine_chunks().column(0).take(order))
    return pa.table(columns, schema=table.schema)


def order_of(position: I32) -> I64:
    """The row that comes to lie at each place."""
    order = np.empty(len(position), dtype=np.int64)
    order[position] = np.arange(len(position), dtype=np.int64)
    return order


def is_ascending(position: I32) -> bool:
    """Whether every row stays where it is."""
    return bool((position[1:] > position[:-1]).all())


def is_plain(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether a column is numbers, or times, side by side, and nothing else."""
    kind = column.type
    return not column.null_count and pa.types.is_primitive(kind) and kind.bit_width in WIDTHS


def _moved(column: pa.ChunkedArray, position: I32) -> pa.Array:
    made = np.empty(len(position), dtype=f"uint{column.type.bit_width}")
    first = 0
    for chunk in column.chunks:
        _move(bits(chunk), position[first : first + len(chunk)], made)
        first += len(chunk)
    return pa.Array.from_buffers(column.type, len(made), [None, pa.py_buffer(made)])


def bits(column: pa.Array) -> NDArray[np.unsignedinteger]:
    """The values of a plain column as they lie in memory."""
    width = column.type.bit_width
    if not len(column):
        return np.empty(0, dtype=f"uint{width}")
    return np.frombuffer(column.buffers()[1], f"uint{width}", len(column), column.offset * width // 8)


@compiled
def _move(values: NDArray[np.unsignedinteger], position: I32, made: NDArray[np.unsignedinteger]) -> None:
    for row in range(len(values)):
        made[position[row]] = values[row]
