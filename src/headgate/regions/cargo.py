"""Cargo: tuples and functions as bytes, and back. Pure.

A payload is a table of lengths, a pickle (protocol 5) and its out-of-band buffers:

    lengths: 8 bytes for each buffer | pickle | buffer | buffer ...

so that the contents of arrays are copied once and not through the pickle. They come back as writable memory. Arrow
tables and record batches, also within tuples and lists, are written as Arrow IPC streams: a slice of a large table then
travels as a slice, where pickle would send the whole of it.

Loading a pickle runs code. Only bytes of a peer that has been through :mod:`headgate.regions.greeting` may come here.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from headgate.errors import FrameError, ShippingError
from headgate.regions.frames import MOST_BUFFERS

PROTOCOL = 5

CLOUDPICKLES = ("cloudpickle", "pyspark.cloudpickle")
"""Where functions without a name are pickled, in order of preference. PySpark carries its own copy."""

MAIN = b"__main__"
"""In a pickle, says that something is to be found in the main script, which a remote worker does not have."""

Parts = list[bytes | memoryview]


class _Writer(list[Any]):
    """What a pickler writes to: the pieces as they come."""

    def write(self, piece: bytes) -> None:
        self.append(bytes(piece))


def dump(value: object) -> tuple[Parts, int]:
    """The parts of a payload, and how many of them are buffers. Raises what pickling raises."""
    kept: list[pickle.PickleBuffer] = []
    arrow = sys.modules.get("pyarrow")
    if arrow is None or not hasattr(arrow, "Table"):  # it may be half imported by another thread
        body: Parts = [pickle.dumps(value, PROTOCOL, buffer_callback=kept.append)]
    else:
        writer = _Writer()
        pickler = pickle.Pickler(writer, PROTOCOL, buffer_callback=kept.append)
        pickler.dispatch_table = copyreg.dispatch_table | {arrow.Table: _table, arrow.RecordBatch: _batch}
        pickler.dump(value)
        body = list(writer)
    if not kept:
        return body, 0
    try:
        raws = [buffer.raw() for buffer in kept]
    except BufferError:  # not contiguous: pickle it in band
        raws = []
    if not raws or len(raws) > MOST_BUFFERS:
        return [pickle.dumps(value, PROTOCOL)], 0
    return [struct.pack(f"!{len(raws)}Q", *(len(raw) for raw in raws)), *body, *raws], len(raws)


def load(payload: bytearray, buffers: int) -> Any:
    """What was dumped. Raises ``FrameError`` for lengths that do not fit, otherwise what unpickling raises."""
    if not buffers:
        return pickle.loads(payload)
    view = memoryview(payload)
    start = 8 * buffers
    if start > len(view):
        raise FrameError.torn(f"a table of {buffers} buffers in {len(view)} bytes")
    lengths = struct.unpack_from(f"!{buffers}Q", view)
    at = len(view) - sum(lengths)
    if at < start:
        raise FrameError.torn(f"buffers of {sum(lengths)} bytes in {len(view)}")
    body = view[start:at]
    raws = []
    for length in lengths:
        raws.append(view[at : at + length])
        at += length
    return pickle.loads(body, buffers=raws)


def dump_function(function: Callable[..., object], *, main: bool) -> bytes:
    """A function as bytes: by its name where workers can import it, otherwise by value.

    ``main`` says whether workers can import the main script. Raises ``ShippingError`` where neither way works.
    """
    reason: object
    try:
        by_name = pickle.dumps(function, PROTOCOL)
    except Exception as error:
        reason = error
    else:
        if main or MAIN not in by_name:
            return by_name
        reason = "it lives in the main script, which the workers cannot import"
    for name in CLOUDPICKLES:
        try:
            cloudpickle = import_module(name)
        except ImportError:
            continue
        try:
            return bytes(cloudpickle.dumps(function, PROTOCOL))
        except Exception as error:
            raise ShippingError.function(function, error) from error
    raise ShippingError.function(function, reason)


def first_unpicklable(values: Sequence[object]) -> tuple[int, Exception] | None:
    """Which of several values cannot be pickled, and why; None where each of them can."""
    for at, value in enumerate(values):
        try:
            dump(value)
        except Exception as error:
            return at, error
    return None


def _table(table: Any) -> tuple[Any, ...]:
    return _open_table, (pickle.PickleBuffer(_ipc(table)),)


def _batch(batch: Any) -> tuple[Any, ...]:
    return _open_batch, (pickle.PickleBuffer(_ipc(batch)),)


def _ipc(data: Any) -> Any:
    arrow = import_module("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return sink.getvalue()


def _open_table(buffer: Any) -> Any:
    return import_module("pyarrow").ipc.open_stream(buffer).read_all()


def _open_batch(buffer: Any) -> Any:
    arrow = import_module("pyarrow")
    reader = arrow.ipc.open_stream(buffer)
    batches = list(reader)
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=reader.schema)
