"""Count windows: hops over the numbers of a key's rows instead of over time.

        row numbers      0   1   2   3   4   5   6
        rows 4, every 2  |---------------|
                                 |---------------|
        slices of 2      |-------|-------|-------|

``Slicing.of(CountWindows(4, 2))`` does all but two things: numbering rows, and closing, which happens key by key.
"""

from __future__ import annotations

import numpy as np

from headgate.arrays import I64
from headgate.windows.kinds import Hop
from headgate.windows.slices import expand


def row_numbers(key: I64, seen: I64) -> tuple[I64, I64]:
    """The number of each row among those of its key, and how many rows each key has had after them.

    ``key`` has numbers from 0, ``seen`` how many rows each key had before. Rows count in the order they are given: the
    caller has to give them in an order that a replay repeats.
    """
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    new = np.ones(len(key), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    begin = np.maximum.accumulate(np.where(new, np.arange(len(key)), 0)) if len(key) else np.empty(0, np.int64)
    numbers = np.empty(len(key), np.int64)
    numbers[order] = np.arange(len(key)) - begin
    now = seen + np.bincount(key, minlength=len(seen)).astype(np.int64)
    return numbers + seen[key], now


def closing_counts(before: I64, now: I64, hop: Hop) -> tuple[I64, I64]:
    """The windows that end as keys go from ``before`` to ``now`` rows: positions of keys, and first row numbers.

    Window ``k`` ends with its last row: ``before < k * every + rows <= now``.
    """
    first = np.maximum((before - hop.length) // hop.every + 1, 0)
    position, number = expand(first, (now - hop.length) // hop.every - first + 1)
    return position, number * hop.every
