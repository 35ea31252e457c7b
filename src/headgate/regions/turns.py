"""Turns: weighted round-robin without bursts.

Problem         send frames over connections in the ratio of their weights, and evenly in time: a connection with weight
                250 of 1000 gets every fourth frame, not 250 in a row. A burst fills a buffer that the same share,
                spread out, would never fill, and the blocking rate would measure the bursts
Inputs          weights of zero or more, which may change at any time
Guarantee       deterministic; a connection without weight gets no turn. While the weights stay, after every turn every
                connection has had its proportional share of the turns to within less than one turn; after a whole
                round (as many turns as the weights sum to) exactly its share. When the weights change, what a
                connection is owed carries over, at most one turn of it: no burst follows
Time, space     O(N) a turn in compiled code, O(N) memory
First appeared  Tijdeman, "The chairman assignment problem" (1980); section 5.1 of the blocking-rate paper only says
                "weighted round-robin". The smooth round-robin of web servers looks alike, but strays by more than one
                turn when weights differ much
Backfires       connections of equal weight take turns in the same order for ever, which is what makes drafting (section
                4.2) so regular
"""

from __future__ import annotations

import numpy as np

from headgate.arrays import F64, I64, compiled
from headgate.errors import InputError


class Turns:
    """Says whose turn it is. Not for several threads at once."""

    def __init__(self, weights: I64) -> None:
        self._weights = _checked(weights)
        self._owed: F64 = np.zeros(len(self._weights))

    @property
    def weights(self) -> I64:
        return self._weights.copy()

    def set(self, weights: I64) -> None:
        """Go on with these weights. What each connection is owed, or has had too early, carries over up to one turn."""
        fresh = _checked(weights)
        if len(fresh) != len(self._weights):
            raise InputError(
                f"turns among {len(self._weights)} connections need as many weights, got {len(fresh)}: make new turns "
                "when the number of connections changes"
            )
        before, after = self._weights.sum(), fresh.sum()
        turns = np.clip(self._owed / before, -1.0, 1.0) if before else np.zeros(len(fresh))
        weighted = fresh > 0
        turns[~weighted] = 0.0
        if weighted.any():
            turns[weighted] -= turns[weighted].mean()  # what all are owed together must come to nothing
        self._owed = turns * after
        self._weights = fresh

    def next(self) -> int:
        """The connection that gets the next frame; -1 where no connection has weight."""
        return int(turn(self._weights, self._owed))

    def take(self, count: int) -> I64:
        """The connections of the next ``count`` turns, as if by as many calls of :meth:`next`."""
        return _turns(self._weights, self._owed, count)


def _checked(weights: I64) -> I64:
    fresh = np.array(weights, dtype=np.int64)
    if fresh.ndim != 1 or (fresh < 0).any():
        raise InputError(
            f"weights must be a flat list of whole numbers of zero or more, got {fresh.tolist()}: give one per "
            "connection, and zero to those that should get nothing"
        )
    return fresh


@compiled
def turn(weights: I64, owed: F64) -> int:
    """Whose turn it is. ``owed``, in turns times the sum of the weights, is brought up to date.

    Of the connections that are owed at least 1/(2N - 2) of a turn, the one that first comes to be owed a turn less
    that much gets it: Tijdeman's rule, with N counted over the connections that have weight.
    """
    total = 0
    among = 0
    for at in range(len(weights)):
        if weights[at] > 0:
            total += weights[at]
            among += 1
    slack = total / (2 * among - 2) if among > 1 else 0.0
    chosen = fallback = -1
    soonest = 0.0
    for at in range(len(weights)):
        if weights[at] == 0:
            continue
        owed[at] += weights[at]
        if fallback < 0 or owed[at] > owed[fallback]:
            fallback = at
        if owed[at] >= slack:
            due = np.ceil((total - slack - owed[at]) / weights[at])
            if chosen < 0 or due < soonest or (due == soonest and owed[at] > owed[chosen]):
                chosen, soonest = at, due
    if chosen < 0:  # only after a change of weights, or where there is a single connection
        chosen = fallback
    if chosen >= 0:
        owed[chosen] -= total
    return chosen


@compiled
def _turns(weights: I64, owed: F64, count: int) -> I64:
    taken = np.empty(count, dtype=np.int64)
    for at in range(count):
        taken[at] = turn(weights, owed)
    return taken
