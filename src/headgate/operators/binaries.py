"""Columns of bytes as compiled loops see them: where each value starts, and the bytes of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.arrays import I64, compiled
from headgate.operators.folds import UnfitError

U8 = NDArray[np.uint8]

MAX_BYTES = 2**31 - 1
"""What the 32-bit offsets of an Arrow column reach."""


def bytes_of(values: pa.Array) -> tuple[I64, U8]:
    """Where the bytes of each value start, with the end of the last; and the bytes."""
    if not len(values):
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    ends: NDArray[Any] = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    ends = ends[values.offset : values.offset + len(values) + 1]
    return ends.astype(np.int64), np.frombuffer(data or b"", dtype=np.uint8)


def binary_of(ends: I64, data: U8) -> pa.Array:
    """A column of sketches, each from one end to the next, the first from 0; null for an empty one.

    Raises ``UnfitError`` where they are more than a column holds.
    """
    if ends[-1] > MAX_BYTES:
        raise UnfitError(
            f"has sketches of {ends[-1]} bytes in one task, which must be no more than {MAX_BYTES}: take a lower "
            "precision or size, or more slots"
        )
    empty = ends[1:] == ends[:-1]
    valid = pa.array(~empty).buffers()[1] if empty.any() else None
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [valid, offsets, pa.py_buffer(data)])


@compiled
def put_word(data: U8, at: int, word: np.uint64, length: int) -> None:
    """Write a number as up to 8 bytes, least first."""
    for byte in range(length):
        data[at + byte] = np.uint8((word >> np.uint64(8 * byte)) & np.uint64(255))
