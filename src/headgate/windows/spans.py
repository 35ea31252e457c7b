"""Rows that stand for a span of time, such as results of an earlier window: which slices or windows they go to.

Enorm 4.1 gives every tuple two times, and 4.2 leaves it to the user what happens to one that spans several windows.
The rules are drawn at ``Spans``. A row spans ``[t1, t2)``, or the instant ``t1`` where both are equal; a row with
``t2 < t1`` makes no sense and has to be taken out first (``valid_spans``).
"""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I64, Bool
from headgate.errors import JobError
from headgate.windows.kinds import Spans
from headgate.windows.slices import Slicing, expand


def valid_spans(t1: I64, t2: I64) -> Bool:
    """Which rows end no earlier than they start."""
    valid: Bool = t1 <= t2
    return valid


def place_in_slices(slicing: Slicing, t1: I64, t2: I64, rule: Spans) -> tuple[I64, I64, F64]:
    """The slices that rows go to: positions of rows, slice starts, and the share of the row that goes there.

    Shares of a row add up to 1, and are 1 under START and END. Raises ``JobError`` for rules under which windows cannot
    share slices.
    """
    if not rule.sliceable:
        raise JobError.window(
            "the rule for rows that span several windows",
            "be START, END or SHARE where windows share slices",
            rule.name,
            "have one computation per window, or take another rule",
        )
    last = np.maximum(t1, t2 - 1)
    if rule is not Spans.SHARE:
        slices = slicing.slice_of(t1 if rule is Spans.START else last)
        return np.arange(len(t1)), slices, np.ones(len(t1))
    first = slicing.slice_of(t1)
    position, number = expand(np.zeros(len(t1), np.int64), (slicing.slice_of(last) - first) // slicing.width + 1)
    slices = first[position] + number * slicing.width
    return position, slices, _share(t1[position], t2[position], slices, slicing.width)


def place_in_windows(slicing: Slicing, hop: int, t1: I64, t2: I64, rule: Spans) -> tuple[I64, I64, F64]:
    """The windows of a hop that rows go to: positions of rows, window starts, and the row's share in each.

    A row is in a window at most once. Shares are 1 but under SHARE, where those of one row add up to the number of
    windows that each instant of it is in.
    """
    last = np.maximum(t1, t2 - 1)
    if rule in (Spans.START, Spans.END):
        position, starts = slicing.windows_of(t1 if rule is Spans.START else last, hop)
        return position, starts, np.ones(len(position))
    one = slicing.hops[hop]
    # Windows that touch the span end after its first instant and start no later than its last.
    low = (t1 - one.offset - one.length) // one.every + 1
    high = (last - one.offset) // one.every
    if rule is Spans.WITHIN:
        low = np.maximum(low, -((one.offset + one.length - last - 1) // one.every))
        high = np.minimum(high, (t1 - one.offset) // one.every)
    position, number = expand(low, high - low + 1)
    starts = number * one.every + one.offset
    if rule is Spans.SHARE:
        return position, starts, _share(t1[position], t2[position], starts, one.length)
    return position, starts, np.ones(len(position))


def _share(t1: I64, t2: I64, starts: I64, length: int) -> F64:
    inside = np.minimum(t2, starts + length) - np.maximum(t1, starts)
    share: F64 = np.where(t2 > t1, inside / np.maximum(t2 - t1, 1), 1.0)
    return share
