"""Which partials make which window, cheapest by number of keys. Enorm 6.1, figures 7 and 8.

A window is the disjoint union of pieces: slices, or windows that lie inside it and have been made already. Merging a
piece costs its keys. The graph of all ways to make a window has the slice boundaries as nodes and the pieces as edges,
so the cheapest way is a shortest path:

        boundary     0     5     10    15    20
        slices of 1  |||||||||||||||||||||||||
        5 minutes    |-----|-----|-----|-----|
        10 minutes   |-----------|-----------|
        15 minutes   |-----------------|
        20 minutes   |-----------------------|     10 + 10, or 15 + 5, or 4 * 5, or ...: whichever has fewest keys

With as many keys in every piece the paper's windows of 5, 10, 15 and 20 minutes take 86 pieces an hour this way, and
240 when each is made of slices.

Card: docs/algorithms/consolidation.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from headgate.windows.kinds import Hop
from headgate.windows.slices import Slicing

SLICE = -1
"""The hop of a piece that is one slice, not a window."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """``[start, end)`` of some hop: the partials of a slice (``hop`` is ``SLICE``) or the result of a window."""

    start: int
    end: int
    hop: int = SLICE

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Step:
    """One window and the pieces to merge into it, from the earliest on; ``keys`` is what they have together.

    ``keys`` counts a key once per piece that has it: it is the number of merges.
    """

    window: Piece
    inputs: tuple[Piece, ...]
    keys: float


class Consolidation:
    """Plans how windows are made from slices and from each other. Holds no state; times in microseconds.

    Guarantee: the inputs of a step are disjoint, lie inside the window and cover all of it but slices without keys; no
    other choice of available pieces has fewer keys, and of those with as few none has fewer pieces.
    """

    def __init__(self, slicing: Slicing) -> None:
        self.slicing = slicing

    def window(self, hop: int, start: int) -> Piece:
        """The window of a hop that starts here."""
        return Piece(start, start + self.slicing.hops[hop].length, hop)

    def windows(self, before: int, now: int) -> tuple[Piece, ...]:
        """All windows, helpers too, that end in ``(before, now]``, in the order in which they have to be made."""
        found = [
            self.window(number, int(start))
            for number, hop in enumerate(self.slicing.hops)
            for start in _starts(hop, before - hop.length + 1, now - hop.length)
        ]
        return tuple(sorted(found, key=_order))

    def closing(self, slices: Iterable[int], before: int, now: int) -> tuple[Piece, ...]:
        """The windows over these slices that end in ``(before, now]``, in the order in which they have to be made."""
        present = np.fromiter(slices, np.int64)
        found = [
            self.window(number, int(start))
            for number in range(len(self.slicing.hops))
            for start in self.slicing.closing(present, number, before, now)
        ]
        return tuple(sorted(found, key=_order))

    def pieces(self, window: Piece) -> tuple[Piece, ...]:
        """Every piece the window may be made of: its slices, and windows inside it that are made before it.

        These are the edges of the graph of section 6.1; those of a hop that has as long a window count where they come
        earlier in the list of hops.
        """
        width = self.slicing.width
        slices = [Piece(start, start + width) for start in range(window.start, window.end, width)]
        inside = [
            piece
            for number, hop in enumerate(self.slicing.hops)
            for start in _starts(hop, window.start, window.end - hop.length)
            if _order(piece := Piece(int(start), int(start) + hop.length, number)) < _order(window)
        ]
        return (*slices, *inside)

    def step(self, window: Piece, keys: Mapping[Piece, float]) -> Step:
        """The cheapest way to make a window from the pieces that ``keys`` lists, with the number of keys of each.

        A slice that is not listed has no keys. A window that is not listed does not exist: it was not made, or it was
        dropped, or a late row came into one of its slices after it was made.
        """
        width = self.slicing.width
        ending: dict[int, list[Piece]] = {}
        for piece in self.pieces(window):
            if piece in keys:
                ending.setdefault(piece.end, []).append(piece)
        best: dict[int, tuple[float, int]] = {window.start: (0.0, 0)}
        chosen: dict[int, Piece | None] = {}
        for at in range(window.start + width, window.end + 1, width):
            best[at], chosen[at] = (float("inf"), 0), None
            arriving = ending.get(at, [])
            if not any(piece.hop == SLICE for piece in arriving):
                best[at] = best[at - width]
            for piece in sorted(arriving):
                keys_before, pieces_before = best[piece.start]
                through = (keys_before + keys[piece], pieces_before + 1)
                if through < best[at]:
                    best[at], chosen[at] = through, piece
        inputs = []
        at = window.end
        while at > window.start:
            taken = chosen[at]
            if taken is not None:
                inputs.append(taken)
            at = at - width if taken is None else taken.start
        return Step(window, tuple(reversed(inputs)), best[window.end][0])

    def plan(
        self, windows: Iterable[Piece], keys: Mapping[Piece, float], expected: Mapping[int, float] | None = None
    ) -> tuple[Step, ...]:
        """The steps that make all these windows, each from what is there and from what steps before it make.

        How many keys a window will have is known only once it is made: ``expected`` has a number per hop, that of the
        hop's last window say; without one it is taken for that of its largest input, as if every slice had the same
        keys. Executing steps one by one with ``step`` and true numbers is never worse.
        """
        known = dict(keys)
        steps = []
        for window in sorted(windows, key=_order):
            step = self.step(window, known)
            steps.append(step)
            guess = max((known[piece] for piece in step.inputs), default=0.0)
            known[window] = guess if expected is None else expected.get(window.hop, guess)
        return tuple(steps)

    def merges(self, before: int, now: int, *, efficient: bool = True) -> int:
        """How many pieces are merged for all windows that end in ``(before, now]``, every piece having as many keys.

        Not ``efficient``: every window is made of its slices (enorm, figure 8).
        """
        windows = self.windows(before, now)
        if not efficient:
            return sum(window.length // self.slicing.width for window in windows)
        return sum(self.fewest(window) for window in windows)

    def fewest(self, window: Piece) -> int:
        """The least number of pieces that make a window."""
        return len(self.step(window, dict.fromkeys(self.pieces(window), 1.0)).inputs)


def _order(piece: Piece) -> tuple[int, int, int]:
    """A window is made after all that it can be made of: shorter ones, and earlier hops among equals."""
    return piece.length, piece.hop, piece.start


def _starts(hop: Hop, low: int, high: int) -> Iterator[int]:
    """Starts of windows of a hop in ``[low, high]``."""
    first = -((hop.offset - low) // hop.every) * hop.every + hop.offset
    yield from range(first, high + 1, hop.every)
