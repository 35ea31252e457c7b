"""Key groups on their way from one slot to another while both are at work: enorm's smooth migration.

                          since
    windows   |-----------|
                  |-------+----|           these have begun: the old slot's, and their rows go to it
                      |---+-------|
                          |----------|     these begin now or later: the new slot's
                              |----------|

Rows that are in windows of both kinds go to both slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headgate.arrays import I32, I64, Bool

LONG_AGO = -(2**63)
"""Before every window: nothing is handed over."""


@dataclass(frozen=True, slots=True, order=True)
class Handover:
    """A key group of an operator: ``slot`` finishes the windows that start before ``since`` (microseconds), whoever the
    assignment gives it to does the others."""

    operator: int
    group: int
    slot: int
    since: int


@dataclass(frozen=True, slots=True, eq=False)
class Handovers:
    """Those of one operator, by key group: the old slot (-1: none) and the time from which the new one is in charge."""

    slot: I32
    since: I64

    @classmethod
    def of(cls, handovers: Iterable[Handover], operator: int, groups: int) -> Handovers | None:
        """None where no group of the operator is on its way."""
        mine = [one for one in handovers if one.operator == operator]
        if not mine:
            return None
        slot, since = np.full(groups, -1, dtype=np.int32), np.full(groups, LONG_AGO, dtype=np.int64)
        for one in mine:
            slot[one.group], since[one.group] = one.slot, one.since
        return cls(slot, since)

    def routed(self, group: I32, slots: I32, first: I64, last: I64) -> tuple[I64, I32]:
        """Where rows go: positions of rows, some of them twice, and slots.

        ``slots`` is what the assignment says; ``first`` and ``last`` are the starts of the first and the last window
        that a row is in.
        """
        old = np.flatnonzero((self.slot[group] >= 0) & (first < self.since[group]))
        new = np.flatnonzero(last >= self.since[group])
        return np.concatenate([new, old]), np.concatenate([slots[new], self.slot[group][old]])

    def mine(self, group: I32, slot: int, start: int) -> Bool:
        """Whether the window that starts here is this slot's to emit, for keys of these groups that it has."""
        is_old = self.slot[group] == slot
        mine: Bool = np.where(is_old, start < self.since[group], start >= self.since[group])
        return mine
