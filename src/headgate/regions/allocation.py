"""Minimax separable resource allocation: share out units so that the worst-off connection is as well off as can be.

Problem         minimise max F_j(w_j) with sum w_j = R and m_j <= w_j <= M_j, in whole units (section 5.2)
Inputs          F_j at 0..R, non-decreasing; the bounds; what to prefer among equals
Guarantee       exact. Equal values are shared out so that nobody is further above the preferred weight than need be;
                what is left goes to the first connections. Both methods give the same weights, not only the same value
Time, space     ``fox``: O(N + R log N). ``select``: O(N R) by selection, in a few passes over the matrix
First appeared  Fox (1966) as ``fox``; ``select`` is the idea of Frederickson and Johnson (1982), that the units handed
                out are the R - sum m_j smallest values of the matrix, without their reduction of the search space
Deviations      the paper does not say what happens to equal values. They are the rule, not the exception: below their
                knees all functions are zero, and the first connection would get everything
Backfires       where functions are flat, the preference decides alone
"""

from __future__ import annotations

import heapq

import numpy as np

from headgate.arrays import F64, I64
from headgate.errors import InputError


def fox(functions: F64, units: int, least: I64, most: I64, prefer: I64) -> I64:
    """Hand out one unit at a time, always where it does least harm: the yardstick for :func:`select`.

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
    """The same weights as :func:`fox`, found by selecting the smallest values of all functions together."""
    _check(functions, units, least, most)
    left = units - int(least.sum())
    if left == 0:
        return least.copy()
    steps = np.arange(functions.shape[1])
    open_to = (steps > least[:, None]) & (steps <= most[:, None])
    level = np.partition(functions[open_to], left - 1)[left - 1]
    below = open_to & (functions < level)
    weights: I64 = least + below.sum(axis=1)
    left -= int(below.sum())
    at, step = np.nonzero(open_to & (functions == level))  # by connection, then ascending: each its next steps
    order = np.lexsort((at, step - prefer[at]))[:left]
    weights += np.bincount(at[order], minlength=len(weights))
    return weights


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
