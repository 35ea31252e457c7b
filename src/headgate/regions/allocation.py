"""Minimax separable resource allocation: share out units so that the worst-off connection is as well off as can be.

Problem         minimise max F_j(w_j) with sum w_j = R and m_j <= w_j <= M_j, in whole units (section 5.2)
Inputs          F_j at 0..R, zero or more and non-decreasing; the bounds; what to prefer among equals
Guarantee       exact. Equal values are shared out so that nobody is further above the preferred weight than need be;
                what is left goes to the first connections. Both methods give the same weights, not only the same value
Time, space     ``fox``: O(N + R log N). ``select``: O(N log R) for each of the at most 63 bits of a value, and
                O(R log R) for units of equal value
First appeared  Fox (1966) as ``fox``; Galil and Megiddo (1979) search for the value, as ``select`` does
Deviations      the paper does not say what happens to equal values. They are the rule, not the exception: below their
                knees all functions are zero, and the first connection would get everything
Backfires       where functions are flat, the preference decides alone
"""

from __future__ import annotations

import heapq

import numpy as np

from headgate.arrays import F64, I64, compiled
from headgate.errors import InputError


def fox(functions: F64, units: int, least: I64, most: I64, prefer: I64) -> I64:
    """Hand out one unit at a time, always where it does least harm: what :func:`select` is measured by.

    ``functions`` has a row per connection with its values at 0, 1, ..., non-decreasing. The maximum also counts the
    values at ``least``, which no choice can avoid.
    """
    _check(functions, units, least, most)
    weights = least.copy()
    heap = [_offer(functions, at, int(weights[at]) + 1, prefer) for at in range(len(weights)) if most[at] > least[at]]
    heapq.heapify(heap)
    for _ in range(units - int(least.sum())):
        at = heap[0][2]
        weights[at] += 1
        if weights[at] < most[at]:
            heapq.heapreplace(heap, _offer(functions, at, int(weights[at]) + 1, prefer))
        else:
            heapq.heappop(heap)
    return weights


def select(functions: F64, units: int, least: I64, most: I64, prefer: I64) -> I64:
    """The same weights as :func:`fox`: a binary search for the value up to which everybody can be served."""
    _check(functions, units, least, most)
    left = units - int(least.sum())
    if left == 0:
        return least.copy()
    below, level = _level(functions, least, most, left)
    upto = _count(functions, least, most, level)
    weights: I64 = least + below
    tied = upto - below
    at = np.repeat(np.arange(len(weights)), tied)
    step = weights[at] + 1 + np.arange(len(at)) - np.repeat(np.cumsum(tied) - tied, tied)
    order = np.lexsort((at, step - prefer[at]))[: left - int(below.sum())]
    weights += np.bincount(at[order], minlength=len(weights))
    return weights


@compiled
def _level(functions: F64, least: I64, most: I64, left: int) -> tuple[I64, float]:
    """The highest value that is handed out, and how many units of each connection lie below it.

    Values of zero or more are in the order of their bits, so that halving the range of bits finds the value exactly.
    """
    ends = np.zeros(2)
    for at in range(len(functions)):
        ends[1] = max(ends[1], functions[at, most[at]])
    bits = ends.view(np.int64)
    low, high = bits[0], bits[1]  # at or below high there are enough units
    probe = np.zeros(1, dtype=np.int64)
    while low < high:
        probe[0] = low + (high - low) // 2
        if _count(functions, least, most, probe.view(np.float64)[0]).sum() >= left:
            high = probe[0]
        else:
            low = probe[0] + 1
    probe[0] = high
    level = probe.view(np.float64)[0]
    if high == 0:
        return np.zeros_like(least), level
    probe[0] = high - 1
    return _count(functions, least, most, probe.view(np.float64)[0]), level


@compiled
def _count(functions: F64, least: I64, most: I64, level: float) -> I64:
    """How many further units each connection can take without exceeding the level."""
    counts = np.zeros_like(least)
    for at in range(len(functions)):
        low, high = least[at], most[at]
        while low < high:
            middle = (low + high + 1) // 2
            if functions[at, middle] <= level:
                low = middle
            else:
                high = middle - 1
        counts[at] = low - least[at]
    return counts


def _offer(functions: F64, at: int, step: int, prefer: I64) -> tuple[float, int, int]:
    return float(functions[at, step]), step - int(prefer[at]), at


def _check(functions: F64, units: int, least: I64, most: I64) -> None:
    highest = functions.shape[1] - 1
    if (least < 0).any() or (least > most).any() or (most > highest).any():
        raise InputError(
            f"bounds must hold 0 <= least <= most <= {highest} for each connection, got least {least.tolist()} and "
            f"most {most.tolist()}: bring the bounds in order"
        )
    if not least.sum() <= units <= most.sum():
        raise InputError(
            f"{units} units must fit between the bounds, but those sum to {least.sum()} at least and {most.sum()} at "
            "most: lower the one or raise the other"
        )
