"""The two ends of a region: where items come in and where results leave.

Three threads meet here. The feeder runs the user's iterator, which may be slow, endless or raise. The pump does
everything with sockets. The consumer is whoever iterates over the results. Only these two classes are shared.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

from headgate.regions.ledger import Entry

_END = object()


class Bell:
    """Wakes the pump from its wait for sockets. Ringing twice wakes once."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._descriptor, 1)

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)


class Inlet:
    """Items on their way in: a list that the feeder only appends to and the pump only cuts from the front.

    The feeder takes items in runs, at the speed of C. Runs double while the pump has enough and fall back to single
    items, each announced, when it has not: no item waits for the next one to arrive.
    """

    def __init__(self, items: Iterable[Any], bell: Bell) -> None:
        self._items: Iterable[Any] | None = items
        self._bell = bell
        self._held: list[Any] = []
        self._room = threading.Condition()
        self._capacity = 1
        self._closed = False
        self._ended = False
        self.error: BaseException | None = None
        self.hungry = False
        self.bulk = False
        """Whether the feeder is taking many at once and will not ring before it has them all."""
        self.thread = threading.Thread(target=self._feed, name="headgate-feeder", daemon=True)

    def _feed(self) -> None:
        try:
            items = iter(self._items or ())
            self._items = None
            run = 1
            while True:
                with self._room:
                    while len(self._held) >= self._capacity and not self._closed:
                        self._room.wait()
                    if self._closed:
                        return
                    run = 1 if self.hungry else min(2 * run, self._capacity - len(self._held))
                if run > 1:
                    self.bulk = True
                    self._held.extend(islice(items, run - 1))
                    self.bulk = False
                item = next(items, _END)
                if item is _END:
                    return
                self._held.append(item)
                if self.hungry:
                    self.hungry = False
                    self._bell.ring()
        except BaseException as error:  # whatever the user's iterator raises is raised again behind the last result
            self.error = error
        finally:
            self.bulk = False
            self._ended = True
            self._bell.ring()

    def cut(self, most: int, at_hand: int) -> list[Any]:
        """The next items, at most so many; none where there are none yet. Asks the feeder to have so many at hand."""
        items = self._held[:most]
        del self._held[: len(items)]
        if not items:
            self.hungry = True
            items = self._held[:most]  # the feeder may have come in between, and not have rung
            del self._held[: len(items)]
        with self._room:
            self._capacity = at_hand
            self._room.notify()
        return items

    def put_back(self, items: list[Any]) -> None:
        """Return items that were cut, to where they were."""
        self._held[:0] = items

    @property
    def ended(self) -> bool:
        """Whether the last item has been cut."""
        return self._ended and not self._held

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._room.notify()


class Outlet:
    """Results on their way out, in order. Counts what the consumer has taken, which makes room in the region."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._ready: deque[Entry] = deque()
        self._arrived = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None
        self._taken_tuples = self._taken_size = 0
        self.waiting = False
        """Whether the consumer has nothing left to do: then a full region waits for a worker and not for it."""
        self.pump_waits = False
        """Whether the pump wants to know of the consumer's next step."""

    def put(self, entries: list[Entry]) -> None:
        with self._arrived:
            self._ready.extend(entries)
            if self.waiting:
                self._arrived.notify()

    def end(self, error: BaseException | None) -> None:
        """Nothing follows what was put, or this error does. The first call counts."""
        with self._arrived:
            if not self._ended:
                self._ended, self._error = True, error
            self._arrived.notify()

    def take(self) -> Entry | None:
        """The next frame of results, None at the end. Waits for it. Raises what ended the stream early."""
        with self._arrived:
            while not self._ready:
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return None
                self.waiting = True
                if self.pump_waits:
                    self._bell.ring()
                self._arrived.wait()
            self.waiting = False
            entry = self._ready.popleft()
            self._taken_tuples += entry.count
            self._taken_size += entry.size
            if self.pump_waits:
                self._bell.ring()
            return entry

    def taken(self) -> tuple[int, int]:
        """Tuples and bytes that were taken since the last call."""
        with self._arrived:
            counts = self._taken_tuples, self._taken_size
            self._taken_tuples = self._taken_size = 0
        return counts
