"""Sizing: how many tuples go into a frame, and how many frames a worker has at once. Pure.

Cheap tuples must share the cost of a frame, and dear ones must travel alone: what sits in a frame, or waits behind one,
cannot be given to another worker any more. So a frame is as many tuples as a worker does in a few milliseconds, by what
workers report with each result. All connections get frames of one size, so that weights count tuples.

What a worker has unanswered is bounded in seconds of its own work, for the same reason: many frames where they are done
in no time, two where each takes long. Kernel buffers would hold hundreds of small frames, and blocking would tell of a
slow worker seconds too late.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

TARGET = 0.005
"""Seconds of work in a frame on the fastest worker. Some fifty times what a frame costs by itself."""

IN_HAND = 0.020
"""Seconds of its own work that a worker has unanswered: enough for it to go on while the splitter's process is not
scheduled for a moment, little beside a sampling period of a second."""

FEWEST_AHEAD, MOST_AHEAD = 2, 64
"""Frames unanswered at least, one to work on and one on its way in, and at the most."""

FIRST_AHEAD = 4
"""Frames unanswered of a worker that has not answered yet."""

SLOWEST = 0.050
"""Seconds of work in a frame on the slowest worker: where one is a hundred times slower, the frames of all shrink, so
that it blocks in time and not seconds later."""

FRAMES_AT_HAND = 4
"""Frames of tuples that are read before they are needed, so that feeder and pump seldom wait for each other."""

TUPLES_AT_HAND = 64
"""Tuples that are read before they are needed, where frames are small and tuples, too: with one tuple a frame, feeder
and pump would hand over four at a time, and on a busy machine each handing over takes milliseconds."""

FRAMES = 9
"""Frames of each worker that count. Of the fastest worker the best one: a worker that loses its processor for a moment
must not make frames small, since small frames make that moment count for more. Of the slowest the median."""

SMOOTHING = 0.25
"""How much the newest frame counts in the bytes of a tuple."""

GROWTH = 4
"""A frame may be this many times as large as the last: the first ones are small, because nothing is known yet."""


@dataclass(slots=True)
class Sizing:
    """Follows what tuples cost and says how many make a frame: from 1 to ``most_tuples``, about ``most_bytes``."""

    most_tuples: int
    most_bytes: int
    tuples: int = 1
    _bytes: float | None = None
    _costs: dict[int, deque[float]] = field(default_factory=dict)
    _best: dict[int, float] = field(default_factory=dict)
    _median: dict[int, float] = field(default_factory=dict)

    def answered(self, connection: int, count: int, seconds: float) -> None:
        """A worker took this long for this many tuples."""
        costs = self._costs.setdefault(connection, deque(maxlen=FRAMES))
        costs.append(seconds / count)
        ranked = sorted(costs)
        self._best[connection], self._median[connection] = ranked[0], ranked[len(ranked) // 2]
        self._settle()

    def sent(self, count: int, size: int) -> None:
        """A frame of this many tuples had this many bytes."""
        each = size / count
        self._bytes = each if self._bytes is None else self._bytes + SMOOTHING * (each - self._bytes)

    def lost(self, connection: int) -> None:
        """The connection is gone, and what its tuples cost with it."""
        for books in (self._costs, self._best, self._median):
            books.pop(connection, None)

    @property
    def at_hand(self) -> int:
        """Tuples to read before they are needed: no more than some of the largest frames, in tuples and in bytes."""
        frames = FRAMES_AT_HAND * self.tuples
        if not self._bytes:
            return frames
        most = FRAMES_AT_HAND * min(self.most_tuples, int(self.most_bytes / self._bytes))
        return max(frames, min(TUPLES_AT_HAND, most))

    def ahead(self, connection: int) -> int:
        """Frames that this worker may have unanswered."""
        cost = self._median.get(connection)
        if cost is None:
            return FIRST_AHEAD
        if cost * self.tuples * MOST_AHEAD <= IN_HAND:
            return MOST_AHEAD
        return max(FEWEST_AHEAD, round(IN_HAND / (cost * self.tuples)))

    def _settle(self) -> None:
        wanted = float(min(self.most_tuples, GROWTH * self.tuples))
        for cost, seconds in ((min(self._best.values()), TARGET), (max(self._median.values()), SLOWEST)):
            if cost * wanted > seconds:
                wanted = seconds / cost
        if self._bytes and self._bytes * wanted > self.most_bytes:
            wanted = self.most_bytes / self._bytes
        self.tuples = max(1, int(wanted))
