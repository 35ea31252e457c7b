"""The papers' synthetic stream: Zipf frequencies that change hands from interval to interval.

Problem         a skewed stream whose skew a router cannot learn once and for all
Inputs          K keys, the exponent z, tuples per interval, the fluctuation rate f; each interval, the slot of each key
Guarantee       the counts of an interval add up to ``tuples`` exactly; the multiset of counts never changes, only who
                has which; from the second interval on the load of at least one slot differs from the interval before
                by f or more, |L_i(d) - L_(i-1)(d)| / L_(i-1)(d) >= f, both loads taken under the slots passed in
Time, space     O(K) an interval, about 60 ms for a million keys; three arrays of K
First appeared  Fang et al., mixed-routing, section V, "Synthetic Data"
Deviations      the paper does not say for which d the change must reach f: here for some d (the maximum over slots).
                It prints L_i(d) in the denominator; here the change is measured against what the slot had before, so
                that f = 1 is a slot that doubled or emptied. Pairs to swap are not drawn blindly, which for a million
                keys would never move a slot by more than some 25 %: one slot grows (or shrinks), by swaps between the
                key of a random tuple and a random lighter key on the other side
Backfires       few slots or few keys may leave f out of reach (no slot of two can triple): then the change is the
                greatest that swaps can make
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.arrays import F64, I32, I64, compiled, sums
from headgate.errors import AssignmentError, LimitsError

KEYS = 1_000_000
"""mixed-routing, table II: the default size of the key domain."""

EXPONENT = 0.85
"""mixed-routing, table II: the default skewness z."""

FLUCTUATION = 1.0
"""mixed-routing, table II: the default fluctuation rate f."""

TUPLES_PER_KEY = 10
"""The paper does not say; at ten a key even the tail of the default stream shows up now and then."""

DRAWS = 4096
"""Swaps tried per batch of random numbers; the default stream needs about a hundred."""

BATCHES = 16
"""Batches tried by chance before the rest of the way is taken by the heaviest swaps."""


def zipf_shares(keys: int, z: float) -> F64:
    """The share of the r-th most frequent of ``keys`` keys, r^-z scaled to add up to 1, most frequent first."""
    if keys < 1:
        raise LimitsError.parameter("Zipf", "keys", "at least 1", keys)
    if not 0 <= z < np.inf:
        raise LimitsError.parameter("Zipf", "z", "zero or more", z)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    shares: F64 = weights / weights.sum()
    return shares


def apportion(shares: F64, total: int) -> I64:
    """Whole numbers that add up to ``total``, each the expected value rounded down or up (largest remainder)."""
    expected = shares * total
    counts = np.floor(expected).astype(np.int64)
    left = total - int(counts.sum())
    if left > 0:
        counts[np.argsort(counts - expected, kind="stable")[:left]] += 1
    return counts


@dataclass(slots=True, kw_only=True)
class ZipfStream:
    """An endless stream of intervals: ``next`` gives each key's tuples. Seeded, and mutable: it remembers who has what.

    Counts are expected values rounded to whole tuples, not a sample: what differs between two intervals is the
    fluctuation, not noise. A key may have no tuple in an interval.
    """

    keys: int = KEYS
    z: float = EXPONENT
    fluctuation: float = FLUCTUATION
    tuples: int | None = None
    seed: int = 0
    _counts: I64 = field(init=False, repr=False)
    _key_of_rank: I64 = field(init=False, repr=False)
    _rank_of_key: I64 = field(init=False, repr=False)
    _random: np.random.Generator = field(init=False, repr=False)
    _started: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.fluctuation < np.inf:
            raise LimitsError.parameter("ZipfStream", "fluctuation", "zero or more", self.fluctuation)
        total = TUPLES_PER_KEY * self.keys if self.tuples is None else self.tuples
        if total < 0:
            raise LimitsError.parameter("ZipfStream", "tuples", "zero or more", total)
        # Sorting the rounded counts keeps them in the order of the ranks where remainders came out otherwise.
        self._counts = -np.sort(-apportion(zipf_shares(self.keys, self.z), total))
        self._random = np.random.default_rng(self.seed)
        self._key_of_rank = self._random.permutation(self.keys)
        self._rank_of_key = np.empty(self.keys, dtype=np.int64)
        self._rank_of_key[self._key_of_rank] = np.arange(self.keys)

    def next(self, slot_of_key: I32, slots: int) -> I64:
        """The tuples of each key in the next interval; ``slot_of_key`` says which slot has it as the interval begins.

        The first interval is the plain distribution: there is nothing yet that it could differ from.
        """
        if slot_of_key.shape != (self.keys,):
            raise LimitsError.parameter(
                "ZipfStream", "slot_of_key", f"one slot for {self.keys} keys", slot_of_key.shape
            )
        if slots < 1:
            raise AssignmentError.no_slot(slots)
        if self._started and self.fluctuation > 0 and slots > 1:
            self._fluctuate(slot_of_key, slots)
        self._started = True
        return self._counts[self._rank_of_key]

    def _fluctuate(self, slot_of_key: I32, slots: int) -> None:
        before = sums(slot_of_key, self._counts[self._rank_of_key], slots)
        slot, grows = self._chosen(slot_of_key, before)
        if slot < 0:
            return
        inside = np.flatnonzero(slot_of_key == slot)
        outside = np.flatnonzero(slot_of_key != slot)
        lighter = inside if grows else outside
        upto = np.cumsum(self._counts, dtype=np.float64)
        load = before.copy()
        state = (self._counts, self._key_of_rank, self._rank_of_key, slot_of_key, load, before, self.fluctuation)
        for _ in range(BATCHES):
            if _swap_by_chance(self._random.random((DRAWS, 2)), upto, lighter, slot, grows, *state):
                return
        ranks = (outside if grows else inside)[np.argsort(self._rank_of_key[outside if grows else inside])]
        _swap_heaviest(ranks, lighter[np.argsort(-self._rank_of_key[lighter])], *state)

    def _chosen(self, slot_of_key: I32, before: F64) -> tuple[int, bool]:
        """A random slot and direction with which f can be reached; the farthest-reaching one if none can."""
        slots = len(before)
        held = np.bincount(slot_of_key, minlength=slots)
        upto = np.concatenate([[0], np.cumsum(self._counts)]).astype(np.float64)
        most, least = upto[held], upto[-1] - upto[self.keys - held]
        known = np.where(before > 0, before, 1.0)
        reach = np.stack([np.where(before > 0, most / known - 1, most), np.where(before > 0, 1 - least / known, 0.0)])
        able = np.flatnonzero(reach.ravel() >= self.fluctuation)
        at = int(self._random.choice(able)) if len(able) else int(np.argmax(reach))
        return (at % slots, at < slots) if reach.ravel()[at] > 0 else (-1, True)


@compiled
def _swap(
    first: int, second: int, counts: I64, key_of_rank: I64, rank_of_key: I64, slot_of_key: I32, load: F64
) -> None:
    rank, other = rank_of_key[first], rank_of_key[second]
    key_of_rank[rank], key_of_rank[other] = second, first
    rank_of_key[first], rank_of_key[second] = other, rank
    load[slot_of_key[first]] += counts[other] - counts[rank]
    load[slot_of_key[second]] += counts[rank] - counts[other]


@compiled
def _changed(slot: int, load: F64, before: F64, fluctuation: float) -> bool:
    change = abs(load[slot] - before[slot])
    return bool(change > 0 and change >= fluctuation * before[slot])


@compiled
def _swap_by_chance(
    uniform: F64,
    upto: F64,
    lighter: I64,
    slot: int,
    grows: bool,
    counts: I64,
    key_of_rank: I64,
    rank_of_key: I64,
    slot_of_key: I32,
    load: F64,
    before: F64,
    fluctuation: float,
) -> bool:
    """Swap until some slot has changed enough; False if the random numbers run out first."""
    for draw in range(len(uniform)):
        rank = min(np.searchsorted(upto, uniform[draw, 0] * upto[-1], side="right"), len(upto) - 1)
        key = key_of_rank[rank]
        if (slot_of_key[key] == slot) == grows:
            continue
        partner = lighter[int(uniform[draw, 1] * len(lighter))]
        if counts[rank_of_key[partner]] >= counts[rank]:
            continue
        _swap(key, partner, counts, key_of_rank, rank_of_key, slot_of_key, load)
        if _changed(slot_of_key[key], load, before, fluctuation) or _changed(
            slot_of_key[partner], load, before, fluctuation
        ):
            return True
    return False


@compiled
def _swap_heaviest(
    heavy: I64,
    light: I64,
    counts: I64,
    key_of_rank: I64,
    rank_of_key: I64,
    slot_of_key: I32,
    load: F64,
    before: F64,
    fluctuation: float,
) -> None:
    """Swap the heaviest of one side with the lightest of the other until some slot has changed enough."""
    for at in range(min(len(heavy), len(light))):
        if counts[rank_of_key[heavy[at]]] <= counts[rank_of_key[light[at]]]:
            return
        _swap(heavy[at], light[at], counts, key_of_rank, rank_of_key, slot_of_key, load)
        if _changed(slot_of_key[heavy[at]], load, before, fluctuation) or _changed(
            slot_of_key[light[at]], load, before, fluctuation
        ):
            return
