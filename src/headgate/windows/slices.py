"""Slices: the pieces of time that overlapping windows share. Numbers over int64 microseconds, vectorised.

A slice is

1. ``[start, start + width)`` with ``start = anchor + i * width`` for a whole ``i``, so slices tile all time;
2. inside or outside of every window, never partly in it;
3. as wide as 2 allows for a regular grid: ``width`` is the greatest common divisor of all lengths, all hops and all
   differences between offsets, and ``anchor`` is the first offset.

        length 30, every 20            |-----------------------------|
                                                           |-----------------------------|
        length 20, every 20            |-------------------|-------------------|
        slices of 10                   |---------|---------|---------|---------|

A slice is named by its start, a window by its hop (its place in ``Slicing.hops``) and its start. Times before 1970 are
negative and nothing special: all divisions round down.

Card: docs/algorithms/slicing.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.arrays import I64, Bool, compiled
from headgate.errors import JobError
from headgate.windows.kinds import CountWindows, Hop, TimeWindows, common_divisor
from headgate.windows.progress import NO_WATERMARK

NEVER = NO_WATERMARK
"""In answers to "until when": not at all. Less than or equal to every watermark."""


@dataclass(frozen=True, slots=True)
class Slicing:
    """The slices of some hops, and the arithmetic between times, slices and windows.

    ``lateness`` is how long, in event time, a window is kept after its end for late rows. ``slice_micros`` asks for
    slices narrower than need be, which must divide the widest; partials of the paper's simple job are a minute long
    although its windows would allow five.
    """

    hops: tuple[Hop, ...]
    lateness: int = 0
    slice_micros: int | None = None
    width: int = field(init=False)
    anchor: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.hops:
            raise JobError.window("slices", "be for at least one hop", 0)
        if self.lateness < 0:
            raise JobError.window("the lateness of windows", "be zero or more", self.lateness)
        width = common_divisor(self.hops)
        if self.slice_micros is not None:
            if self.slice_micros < 1 or width % self.slice_micros:
                raise JobError.window(
                    "the width of slices",
                    f"divide {width}, the greatest that fits all windows",
                    self.slice_micros,
                    "leave it out, or take a divisor",
                )
            width = self.slice_micros
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "anchor", self.hops[0].offset % width)

    @classmethod
    def of(cls, kind: TimeWindows | CountWindows) -> Slicing:
        """The slices of these windows."""
        return cls(kind.hops, 0 if isinstance(kind, CountWindows) else kind.lateness_micros)

    @property
    def longest(self) -> int:
        """The length of the longest window."""
        return max(hop.length for hop in self.hops)

    @property
    def windows_per_row(self) -> float:
        """W of enorm 5.1.1: in how many windows a row is, helpers left out."""
        return sum(hop.windows_per_row for hop in self.hops if not hop.helper)

    def slice_of(self, times: I64) -> I64:
        """The start of the slice that each time lies in."""
        return _starts(times, self.anchor, self.width)

    def windows_of(self, times: I64, hop: int) -> tuple[I64, I64]:
        """The windows of a hop that contain each time (a slice's start, or a row's time).

        Two arrays of equal length: positions in ``times``, ascending, and the windows' starts, ascending for each.
        Between ``floor`` and ``ceil`` of ``length / every`` windows a time.
        """
        one = self.hops[hop]
        last = (times - one.offset) // one.every
        before = (times - one.offset - one.length) // one.every
        position, number = expand(before + 1, last - before)
        return position, number * one.every + one.offset

    def slices_of(self, windows: I64, hop: int) -> tuple[I64, I64]:
        """The slices of windows of a hop: positions in ``windows`` and slice starts, ascending for each."""
        count = self.hops[hop].length // self.width
        position, number = expand(np.zeros(len(windows), np.int64), np.full(len(windows), count, np.int64))
        return position, windows[position] + number * self.width

    def closing(self, slices: I64, hop: int, before: int, now: int) -> I64:
        """The windows of a hop over any of these slices that end when the watermark goes from ``before`` to ``now``.

        Ends in ``(before, now]``; starts ascending, each once. Windows without a slice are not there: nothing came.
        Helpers that no window covers are not there either: nobody would merge them.
        """
        found = self._ending(slices, hop, before, now)
        if self.hops[hop].helper:
            found = found[self.needed_until(found, found + self.hops[hop].length) > before]
        return found

    def reopened(self, touched: I64, hop: int, watermark: int) -> I64:
        """The windows of a hop that have been emitted and are so again, since late rows came into these slices.

        Those with ``end <= watermark < end + lateness``. Pass the watermark that the window's first result was made at
        or a later one.
        """
        return self._ending(touched, hop, watermark - self.lateness, watermark)

    def _ending(self, slices: I64, hop: int, after: int, upto: int) -> I64:
        """The windows of a hop over any of these slices with ends in ``(after, upto]``: starts ascending, each once.

        Linear in the slices and the windows found, however many windows a slice is in.
        """
        one, slices = self.hops[hop], np.unique(slices)
        low, high = (max(NEVER, (at - one.offset - one.length) // one.every) for at in (after, upto))
        first = np.maximum((slices - one.offset - one.length) // one.every, low) + 1
        last = np.minimum((slices - one.offset) // one.every, high)
        first[1:] = np.maximum(first[1:], last[:-1] + 1)  # windows over the slice before it are found already
        _, number = expand(first, last - first + 1)
        return number * one.every + one.offset

    def stale(self, starts: I64, ends: I64, touched: I64) -> Bool:
        """Which results ``[start, end)`` made earlier no longer tell all, since rows came into these slices later.

        They must not be merged into other windows: leave them out of what ``Consolidation.step`` is told is there.
        """
        ascending = np.sort(touched)
        found: Bool = np.searchsorted(ascending, starts) < np.searchsorted(ascending, ends)
        return found

    def needed_until(self, starts: I64, ends: I64) -> I64:
        """The watermark at which each piece ``[start, end)`` can be dropped: no window that covers it is left.

        That is the latest end of such a window, plus the lateness; ``NEVER`` where no window covers the piece (a gap
        between windows). Pieces are slices or whole windows. Helpers keep nothing alive: they are made of what others
        need.
        """
        until = np.full(len(starts), NEVER, np.int64)
        for hop in self.hops:
            if hop.helper:
                continue
            last = (starts - hop.offset) // hop.every * hop.every + hop.offset + hop.length
            np.maximum(until, np.where(last >= ends, last + self.lateness, NEVER), out=until)
        return until

    def begun_until(self, time: int) -> int:
        """The watermark at which no window that starts before a time is left: the latest end of such a window, plus the
        lateness. Helpers are left out."""
        ends = [
            (time - 1 - hop.offset) // hop.every * hop.every + hop.offset + hop.length
            for hop in self.hops
            if not hop.helper
        ]
        return max(ends) + self.lateness

    def spanned(self, slices: I64) -> tuple[I64, I64]:
        """The starts of the first and of the last window, helpers left out, that each slice is in."""
        hops = [hop for hop in self.hops if not hop.helper]
        first = [((slices - hop.offset - hop.length) // hop.every + 1) * hop.every + hop.offset for hop in hops]
        last = [(slices - hop.offset) // hop.every * hop.every + hop.offset for hop in hops]
        return np.minimum.reduce(first), np.maximum.reduce(last)

    def droppable(self, slices: I64, watermark: int) -> Bool:
        """Which slices no window needs any more at this watermark."""
        gone: Bool = self.needed_until(slices, slices + self.width) <= watermark
        return gone

    def late(self, times: I64, watermark: int) -> Bool:
        """Which rows come too late for every window they would be in, or are in none: the rows to drop and count.

        A row may be too late for a short window and on time for a long one. It then counts in the long one only, so
        results of the short one must not be merged into the long one any more (see ``Consolidation``).
        """
        return self.droppable(self.slice_of(times), watermark)


def expand(first: I64, counts: I64) -> tuple[I64, I64]:
    """``counts[i]`` numbers from ``first[i]`` up, for every i: the i of each, and the number."""
    counts = np.maximum(counts, 0)
    position = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    return position, first[position] + np.arange(len(position)) - begin[position]


@compiled
def _starts(times: I64, anchor: int, width: int) -> I64:
    """The start of each time's slice. Times that lie together are mostly of one: then there is nothing to divide."""
    starts = np.empty(len(times), dtype=np.int64)
    start = anchor
    for at in range(len(times)):
        if not 0 <= times[at] - start < width:
            start = (times[at] - anchor) // width * width + anchor
        starts[at] = start
    return starts
