"""Ledger: which frame is where, and what may leave the region next. Pure.

A frame is in one of these states, and goes only along the arrows:

    opened --sent--> out --answered--> done --(all before it are done) release--> released --taken--> forgotten
                      |  ^
                 lost v  | sent
                     owed

From these follow the promises of a region: a frame is released once and in the order it was opened, whoever died in
between; what a dead connection had is owed, and nothing else is sent again; an answer counts only from the connection
that has the frame.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from headgate.regions.frames import Frame


@dataclass(slots=True, eq=False)
class Entry:
    """One frame of tuples on its way through the region."""

    first: int
    count: int
    data: bytes
    """The frame's bytes, kept to be sent again; empty once it is answered."""
    holder: int | None = None
    """The connection that has it, None while it is owed."""
    answer: Frame | None = None
    deaths: int = 0
    """How many connections died while this was their oldest frame, that is, the one they worked on."""

    @property
    def size(self) -> int:
        return len(self.data) if self.answer is None else len(self.answer.payload)


@dataclass(slots=True)
class Ledger:
    """The books of one stream. Tuples and bytes count from when they are opened until they are taken."""

    tuples: int = 0
    """In the region now: opened and not taken."""
    size: int = 0
    """Their bytes, as tuples or, once answered, as results."""
    opened: int = 0
    """The position of the next new tuple."""
    released: int = 0
    """The position up to which results have left, exclusive."""
    again: int = 0
    """Tuples that were sent a second time or more."""
    _entries: deque[Entry] = field(default_factory=deque)
    _out: dict[int, dict[int, Entry]] = field(default_factory=dict)
    _owed: list[tuple[int, Entry]] = field(default_factory=list)

    def open(self, count: int, data: bytes) -> Entry:
        """A new frame with the next ``count`` tuples. It is nobody's until it is sent."""
        entry = Entry(self.opened, count, data)
        self.opened += count
        self.tuples += count
        self.size += len(data)
        self._entries.append(entry)
        return entry

    def sent(self, entry: Entry, connection: int) -> None:
        """The frame is with this connection from now on, also while part of it is still to be written."""
        if entry.holder is not None or entry.answer is not None:
            raise AssertionError(f"frame {entry.first} is with connection {entry.holder} or answered")
        entry.holder = connection
        self._out.setdefault(connection, {})[entry.first] = entry

    def answered(self, connection: int, frame: Frame) -> bool:
        """Note a result. False, and nothing is noted, where this connection was not asked for it."""
        entry = self._out.get(connection, {}).get(frame.first)
        if entry is None or entry.count != frame.count:
            return False
        del self._out[connection][frame.first]
        self.size += len(frame.payload) - entry.size
        entry.answer, entry.data, entry.holder = frame, b"", None
        return True

    def lost(self, connection: int) -> Entry | None:
        """The connection is dead: what it had is owed, oldest first. Returns the frame it worked on, if any."""
        entries = self._out.pop(connection, {})
        worked_on = min(entries.values(), key=lambda entry: entry.first, default=None)
        if worked_on is not None:
            worked_on.deaths += 1
        for entry in entries.values():
            entry.holder = None
            self.again += entry.count
            insort(self._owed, (entry.first, entry))
        return worked_on

    def owed(self) -> Entry | None:
        """The oldest frame that must be sent again, if there is one; it is owed no longer."""
        return self._owed.pop(0)[1] if self._owed else None

    def release(self) -> list[Entry]:
        """The frames that may leave now, in order, each once."""
        ready = []
        while self._entries and self._entries[0].answer is not None:
            entry = self._entries.popleft()
            self.released = entry.first + entry.count
            ready.append(entry)
        return ready

    def taken(self, tuples: int, size: int) -> None:
        """The consumer has these of what was released: there is room for as many more."""
        self.tuples -= tuples
        self.size -= size

    def outstanding(self, connection: int) -> int:
        """Frames that this connection has and has not answered."""
        return len(self._out.get(connection, ()))

    def oldest(self) -> int | None:
        """The connection that everybody waits for: it has the first frame that is not answered."""
        return self._entries[0].holder if self._entries else None

    @property
    def empty(self) -> bool:
        """Whether everything that was opened has been released."""
        return not self._entries
