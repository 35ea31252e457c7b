"""Windows in two operators: a compute that makes partials, a consolidate that merges them. Enorm 4.2, fig. 5.

    rows --compute--> partials (key, [t1, t2)) --consolidate--> windows
                      one per key and slice, which it merges    one per key and window
                      or one per key and window

    5.1   compute -> consolidate          ``Compute`` with ``Consolidate``, in either way
    5.2   compute -> compute, map         eager: ``Aggregation``, which emits what a batch changed and shares nothing
    5.3   consolidate -> consolidate      ``Consolidate`` with ``partial``: its windows are slices of the next one
    5.4   map -> anything                 rows, as soon as they are there

A compute does not care where the rows of a key are: two slots may both have partials of one key and slice, or of one
key and window, and the consolidate merges them. So its key groups move without their state, which stays behind until
its slices or windows close. A ``WindowedAggregation`` is both in one, and has to have all of a key in one slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from headgate.arrays import I64
from headgate.errors import JobError
from headgate.operators.windowed import WindowedAggregation, told
from headgate.windows import Piece, Slicing, with_helpers


@dataclass(frozen=True, slots=True, eq=False)
class Compute(WindowedAggregation):
    """Partials per key and slice, or per key and window, emitted once the watermark has passed its end. ``slicing`` has
    one hop, and its windows are the slices; ``feeds`` has the windows of the consolidate, where there is only one."""

    feeds: Slicing | None = None

    def __post_init__(self) -> None:
        WindowedAggregation.__post_init__(self)
        (hop,) = self.slicing.hops
        if hop.length != hop.every or self.slicing.lateness:
            raise JobError.window("the slices of a compute", "lie side by side and wait for no late rows", self.windows)
        object.__setattr__(self, "output_schema", self.partial_schema)

    @property
    def windows(self) -> str:
        """Its slices, and the windows that it may compute by themselves: state may have partials of both."""
        slices = told(with_helpers(self.slicing))
        return slices if self.feeds is None else f"{slices}, for {told(self.feeds)}"

    @property
    def alone(self) -> Slicing:
        """The windows of its consolidate."""
        return self.slicing if self.feeds is None else self.feeds

    def passed_on(self, piece: Piece) -> Piece:
        """Slices and windows as they are."""
        return piece

    def results(self, merged: pa.Table, piece: Piece) -> pa.Table:
        """The partials of a slice, or of a window that was computed by itself."""
        return self.placed(merged, piece)


@dataclass(frozen=True, slots=True, eq=False)
class Consolidate(WindowedAggregation):
    """Windows from the partials of a compute, or of another consolidate. ``input_schema`` is given as that of the
    compute's rows, and becomes that of its partials. ``partial``: its own windows go to another consolidate, so they
    are not finished; they must lie side by side."""

    partial: bool = False

    def __post_init__(self) -> None:
        WindowedAggregation.__post_init__(self)
        object.__setattr__(self, "input_schema", self.partial_schema)
        if self.slicing.lateness:
            raise JobError.window(
                "the lateness of a consolidate", "be zero", str(timedelta(microseconds=self.slicing.lateness)),
                "give the job slack instead: its partials come when their slice has closed",
            )  # fmt: skip
        if self.partial:
            wanted = [hop for hop in self.slicing.hops if not hop.helper]
            if len(wanted) != 1 or wanted[0].length != wanted[0].every:
                raise JobError.window("windows that another consolidate merges", "lie side by side", self.windows)
            object.__setattr__(self, "output_schema", self.partial_schema)

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Rows are partials already; those of one key and piece become one."""
        return self.combine(rows, hashes)

    def passed_on(self, piece: Piece) -> Piece | None:
        """The window that a slice is in, which is a slice of the next consolidate."""
        if not self.partial:
            return None
        hop = self.slicing.hops[0]
        start = piece.start - (piece.start - hop.offset) % hop.length
        return Piece(start, start + hop.length)

    def results(self, merged: pa.Table, piece: Piece) -> pa.Table:
        """Windows, or the partials of the next consolidate."""
        if self.partial:
            return self.placed(merged, Piece(piece.start, piece.end))
        return WindowedAggregation.results(self, merged, piece)
