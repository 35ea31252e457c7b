"""Heavy hitters: the keys with much of the weight, in memory that does not grow with the number of keys.

Problem         which of millions of keys are worth listing one by one, without a counter for each
Inputs          batches of (key hash, weight); m, the number of counters
Guarantee       0 <= true weight - estimate <= error <= total / (m + 1), for every key, held or not (a key that is not
                held has the estimate 0); the same after any sequence of ``add`` and ``merge``
Time, space     O(B + m log m) for a batch of B rows; O(m) between batches
First appeared  Misra and Gries, "Finding repeated elements" (1982); the merge is that of Agarwal et al., "Mergeable
                summaries" (PODS 2012)
Deviations      a whole batch is counted exactly before the summary is cut back to m counters, so that the
                error is that of one cut per batch instead of one per row; a batch takes O(B) memory while it is added
Backfires       on an even stream: no key is heavy and the estimates fall to nothing. ``above`` then says that it may
                have missed keys
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import F64, I64, compiled, frozen_f64, frozen_i64
from headgate.errors import LimitsError, SnapshotError

COUNTERS = 4096
"""Counters unless told otherwise: keys above 1/4096 of the weight are held for sure, for 64 kB."""


@dataclass(frozen=True, slots=True, eq=False)
class Heavy:
    """The keys above a share of the weight, by descending estimate.

    ``guaranteed`` are above it for sure; ``possible`` are all that may be, the guaranteed ones first. ``complete`` says
    that no key above the share is missing from ``possible``: so it is whenever the share is at least 1 / (m + 1).
    """

    guaranteed: I64
    possible: I64
    complete: bool


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """A summary of weighted keys in at most ``counters`` counters. Immutable: ``add`` and ``merge`` give a new one.

    ``hash`` is ascending; ``estimate`` never exceeds the true weight and falls short of it by ``error`` at most.
    """

    counters: int = COUNTERS
    hash: I64 = field(default_factory=lambda: frozen_i64([]))
    estimate: F64 = field(default_factory=lambda: frozen_f64([]))
    total: float = 0.0
    error: float = 0.0

    def __post_init__(self) -> None:
        if self.counters < 1:
            raise LimitsError.parameter("HeavyKeys", "counters", "at least 1", self.counters)

    def __len__(self) -> int:
        return len(self.hash)

    def add(self, hashes: ArrayLike, weights: ArrayLike | None = None) -> HeavyKeys:
        """The summary after one more batch; without weights every row counts 1."""
        keys = np.asarray(hashes, dtype=np.int64)
        if weights is None:
            distinct, times = np.unique(keys, return_counts=True)
            return self._with(distinct, times.astype(np.float64), float(len(keys)), 0.0)
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != keys.shape:
            raise SnapshotError.length("weights", len(keys), given.size)
        if not np.isfinite(given).all():
            raise SnapshotError.not_finite("a weight", keys[~np.isfinite(given)].tolist())
        if (given < 0).any():
            raise SnapshotError.negative("a weight", keys[given < 0].tolist(), float(given.min()))
        return self._with(*_added(keys, given), float(given.sum()), 0.0)

    def merge(self, other: HeavyKeys) -> HeavyKeys:
        """The summary of both streams together. Raises ``SnapshotError`` where the numbers of counters differ."""
        if self.counters != other.counters:
            raise SnapshotError.mismatch("the number of counters", self.counters, other.counters)
        return self._with(other.hash, other.estimate, other.total, other.error)

    def estimate_of(self, hashes: ArrayLike) -> F64:
        """The estimate of each key; 0 for a key that is not held."""
        keys = np.asarray(hashes, dtype=np.int64)
        if not len(self):
            return np.zeros(len(keys))
        at = np.minimum(np.searchsorted(self.hash, keys), len(self) - 1)
        return np.where(self.hash[at] == keys, self.estimate[at], 0.0)

    def above(self, share: float) -> Heavy:
        """The keys with more than ``share`` of the total weight."""
        bar = share * self.total
        order = np.argsort(-self.estimate, kind="stable")
        ranked, estimate = self.hash[order], self.estimate[order]
        sure = int(np.searchsorted(-estimate, -bar))
        maybe = int(np.searchsorted(-estimate, -(bar - self.error)))
        return Heavy(frozen_i64(ranked[:sure]), frozen_i64(ranked[:maybe]), bar >= self.error)

    def _with(self, keys: I64, weights: F64, total: float, error: float) -> HeavyKeys:
        """Join distinct keys and their weights, then cut back: subtract the (m+1)-th largest, keep what is positive.

        Whatever is cut off is cut off m + 1 counters at once, so all cuts together are at most total / (m + 1).
        """
        if len(self):
            keys, weights = _added(np.concatenate([self.hash, keys]), np.concatenate([self.estimate, weights]))
        cut = 0.0
        if len(keys) > self.counters:
            cut = float(np.partition(weights, len(weights) - self.counters - 1)[len(weights) - self.counters - 1])
            weights = weights - cut
        held = np.flatnonzero(weights > 0)
        held = held[np.argsort(keys[held])]
        return replace(
            self,
            hash=frozen_i64(keys[held]),
            estimate=frozen_f64(weights[held]),
            total=self.total + total,
            error=self.error + error + cut,
        )


@compiled
def _added(keys: I64, weights: F64) -> tuple[I64, F64]:
    """Distinct keys in the order they first occur, each with what its weights add up to: a hash table, half empty."""
    size = 2
    while size < 2 * len(keys):
        size *= 2
    row_of = np.full(size, -1, dtype=np.int64)
    distinct, totals = np.empty(len(keys), dtype=np.int64), np.zeros(len(keys))
    count = 0
    for row in range(len(keys)):
        at = np.int64((np.uint64(keys[row]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & (size - 1)
        while row_of[at] >= 0 and distinct[row_of[at]] != keys[row]:
            at = (at + 1) & (size - 1)
        if row_of[at] < 0:
            row_of[at] = count
            distinct[count] = keys[row]
            count += 1
        totals[row_of[at]] += weights[row]
    return distinct[:count], totals[:count]
