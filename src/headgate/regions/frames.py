"""Frames: how tuples travel between a region and its workers. Pure.

A frame is a header of 32 bytes and a payload, all numbers big-endian:

    kind 1 | flags 1 | buffers 2 | count 4 | first 8 | nanoseconds 8 | size 8 | payload: size bytes

``first`` is the position of the frame's first tuple in the stream and ``count`` how many tuples follow it. A result has
the same two, so it says which frame it answers. ``nanoseconds`` is how long a worker took. The payload is described in
:mod:`headgate.regions.cargo`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from headgate.errors import FrameError

HEADER = struct.Struct("!BBHIQQQ")

MOST_TUPLES = 2**32 - 1
"""What the header's count can say."""

MOST_BUFFERS = 2**16 - 1
"""What the header's number of buffers can say; a payload with more keeps them in its pickle."""

FAULTY = 1
"""Flag of a result: the payload lists tuples for which the function raised."""


class Kind(IntEnum):
    """What a frame is for."""

    SETUP = 1
    """To the worker: the function and how to run it. Once, first."""
    READY = 2
    """From the worker: the function is loaded."""
    REFUSED = 3
    """From the worker: the function could not be loaded; the payload is the traceback as UTF-8."""
    TUPLES = 4
    """To the worker: run these."""
    RESULT = 5
    """From the worker: what came of one frame of tuples."""
    ALIVE = 6
    """From the worker: a sign of life, sent while it works and while it waits."""


_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it was received. ``payload`` is the frame's own memory, and may be written to."""

    kind: Kind
    flags: int
    buffers: int
    count: int
    first: int
    nanoseconds: int
    payload: bytearray


def encode(
    kind: Kind,
    parts: list[bytes | memoryview] | None = None,
    *,
    flags: int = 0,
    buffers: int = 0,
    count: int = 0,
    first: int = 0,
    nanoseconds: int = 0,
) -> bytes:
    """The bytes of one frame. The parts are copied, so that what they came from may change afterwards."""
    parts = parts or []
    size = sum(len(part) for part in parts)
    return b"".join([HEADER.pack(kind, flags, buffers, count, first, nanoseconds, size), *parts])


class Decoder:
    """Turns bytes into frames, however they were cut up.

    Memory: at most what was fed and not yet returned; a payload above ``most_bytes`` is refused when its header is
    read, before any of it is kept. Raises ``FrameError`` and nothing else; after that the connection cannot be used.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = bytearray()
        self._wanted = HEADER.size
        self._header: tuple[Kind, int, int, int, int, int] | None = None

    @property
    def wants(self) -> int:
        """How many more bytes finish the header or the payload that is being read: a reader that takes no more than
        this never reads ahead of what it works on."""
        return self._wanted - len(self._held)

    @property
    def within(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._header is not None or bool(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The frames that are complete with these bytes, in order. What is left waits for the next call."""
        self._held += data
        frames = []
        start = 0
        while len(self._held) - start >= self._wanted:
            end = start + self._wanted
            if self._header is None:
                self._read_header(start)
            else:
                frames.append(Frame(*self._header, payload=self._held[start:end]))
                self._header, self._wanted = None, HEADER.size
            start = end
        del self._held[:start]
        return iter(frames)

    def _read_header(self, at: int) -> None:
        kind, flags, buffers, count, first, nanoseconds, size = HEADER.unpack_from(self._held, at)
        if kind not in _KINDS:
            raise FrameError.kind(kind)
        if size > self._most:
            raise FrameError.too_large(size, self._most)
        self._header = (_KINDS[kind], flags, buffers, count, first, nanoseconds)
        self._wanted = size
