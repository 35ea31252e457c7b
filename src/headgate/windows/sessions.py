"""Session windows: rows of a key, each no more than a gap after the one before.

        rows       x    x   x              x
        alone      [----)   [----)         [----)          each row on its own covers [t, t + gap)
                        [----)
        sessions   [-------------)         [----)          what overlaps or touches is one session

An open session is kept as ``(key, start, end)``, ``end`` being its last row's time plus the gap, and takes part in the
merge like a row that covers more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.arrays import I64, Bool, compiled


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Sessions by key and start, and which of them each row and each open session went into.

    ``fresh`` marks sessions that no open one is in: only rows of this batch.
    """

    key: I64
    start: I64
    end: I64
    fresh: Bool
    of_row: I64
    of_open: I64

    def __len__(self) -> int:
        return len(self.key)


def merge_sessions(key: I64, time: I64, open_key: I64, open_start: I64, open_end: I64, *, gap: int) -> Merged:
    """Rows and open sessions -> the sessions that they make together. Keys are numbers; rows may come in any order.

    The result depends on the set of rows only, not on their order nor on how they are split into batches, as long as
    no session is taken away in between that a later row could have joined (see ``session_closed``).
    O(n log n) for n rows and open sessions.
    """
    keys = np.concatenate([key, open_key])
    starts = np.concatenate([time, open_start])
    ends = np.concatenate([time + gap, open_end])
    order = np.lexsort((starts, keys))
    number, end = _merge(keys[order], starts[order], ends[order])
    count = int(number[-1]) + 1 if len(number) else 0
    first = np.searchsorted(number, np.arange(count))
    of = np.empty(len(keys), np.int64)
    of[order] = number
    fresh = np.ones(count, np.bool_)
    fresh[of[len(key) :]] = False
    return Merged(keys[order][first], starts[order][first], end[:count], fresh, of[: len(key)], of[len(key) :])


def session_closed(end: I64, watermark: int, lateness: int = 0) -> Bool:
    """Which sessions can get no more rows: ``end + lateness < watermark``.

    Not ``<=``: a row at ``end`` exactly is on time while the watermark is ``end``, and joins.
    """
    closed: Bool = end < max(watermark - lateness, -(2**63))
    return closed


@compiled
def _merge(key: I64, start: I64, end: I64) -> tuple[I64, I64]:
    """Of intervals by key and start: the number of the session of each, and the end of each session."""
    number = np.empty(len(key), np.int64)
    ends = np.empty(len(key), np.int64)
    at = -1
    for i in range(len(key)):
        if i == 0 or key[i] != key[i - 1] or start[i] > ends[at]:
            at += 1
            ends[at] = end[i]
        elif end[i] > ends[at]:
            ends[at] = end[i]
        number[i] = at
    return number, ends
