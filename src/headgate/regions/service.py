"""Service: how long each connection was busy, and with how much. Pure.

A connection is busy from when it is sent a frame, or has answered the one before, until it answers:

    sent      1   2                     3          the splitter's clock
    answered          1       2             3
    busy      [---1---][--2---]         [-3-]      frame 2 lay in a buffer while frame 1 was worked on

The time per tuple is the worker's own plus, where it had nothing else in hand, the way there and back: never less than
the worker takes. With the next frame in hand already it is what the connection can do. The worker's own time comes with
each answer. It is never more than the connection takes. Completions per busy time are the operational law of service
demand (Denning and Buzen, 1978).
"""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I64
from headgate.regions.balance import Service


class Stopwatch:
    """Times the connections of one region. Times are of one clock that never goes back."""

    def __init__(self, connections: int) -> None:
        self._answered: I64 = np.zeros(connections, dtype=np.int64)
        self._served: F64 = np.zeros(connections)
        self._worked: F64 = np.zeros(connections)
        self._since: list[float | None] = [None] * connections

    def sent(self, connection: int, now: float) -> None:
        """It has something to do, from now on if it had nothing."""
        if self._since[connection] is None:
            self._since[connection] = now

    def answered(self, connection: int, tuples: int, seconds: float, now: float, *, more: bool) -> None:
        """It is done with its oldest frame, for which it says it took so long; ``more``: it has another."""
        since = self._since[connection]
        if since is not None:
            self._served[connection] += max(now - since, 0.0)
            self._worked[connection] += seconds
            self._answered[connection] += tuples
        self._since[connection] = now if more else None

    def lost(self, connection: int) -> None:
        """It is gone, with what it had: nothing came of the time."""
        self._since[connection] = None

    def read(self, now: float, frame: int) -> Service:
        """What there is to tell by now; ``frame`` is how many tuples a frame has."""
        current = np.array([0.0 if since is None else max(now - since, 0.0) for since in self._since])
        return Service(self._answered.copy(), self._served.copy(), self._worked.copy(), current, frame)
