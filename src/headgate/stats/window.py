"""S(k, w): the state that the last w intervals left behind, key by key.

    interval   1    2    3    4    5
    s(k)       2    0    1    4    1
    S(k, 3)    2    2    3    5    6        the state of interval i - w is dropped when interval i is added

A window is immutable: ``push`` returns the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.arrays import F64, I64
from headgate.errors import LimitsError


@dataclass(frozen=True, slots=True, eq=False)
class StateWindow:
    """The per-interval states of the last ``length`` intervals of one operator."""

    length: int
    intervals: tuple[tuple[I64, F64], ...] = ()

    def __post_init__(self) -> None:
        if self.length < 1:
            raise LimitsError.parameter("StateWindow", "length", "at least 1 interval", self.length)

    def push(self, hashes: I64, state_bytes: F64) -> StateWindow:
        """The window after one more interval, in which these keys left this state."""
        kept = self.intervals[-(self.length - 1) :] if self.length > 1 else ()
        order = np.argsort(hashes, kind="stable")
        return replace(self, intervals=(*kept, (hashes[order], state_bytes[order])))

    def state_of(self, hashes: I64) -> F64:
        """S(k, w) of each key: the sum over the intervals held; 0 for a key that left nothing."""
        total = np.zeros(len(hashes))
        for known, state in self.intervals:
            if len(known):
                at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
                total += np.where(known[at] == hashes, state[at], 0.0)
        return total

    def keys(self) -> I64:
        """Every key that left state in the window, ascending."""
        if not self.intervals:
            return np.empty(0, dtype=np.int64)
        return np.unique(np.concatenate([known for known, _ in self.intervals]))
