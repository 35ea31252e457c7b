"""Split-key routers: one key in several slots, for operators that can merge partial results.

Problem         level load without moving any state, even for a key hotter than a slot's share
Inputs          the key hash and the weight of each tuple; each sender knows only what it has sent itself
Guarantee       PKG: a key is in at most 2 slots. D-Choices, W-Choices: a key that was never heavy is in at most 2, a
                heavy one in at most d or all N; heavy is more than theta of a sender's weight, found in bounded memory
Time, space     PKG O(1) a tuple, D-Choices O(d), W-Choices O(N) for heavy keys; O(N) per sender, the other two
                O(N + 4/theta)
First appeared  Nasir et al., "The power of both choices" (ICDE 2015), which albic calls PoTC: PKG. Nasir et al., "When
                two choices are not enough" (ICDE 2016): D-Choices and W-Choices
Deviations      the heavy keys are counted by Misra-Gries instead of SpaceSaving (same memory, same bound, estimates
                from below); d is computed anew every 1,024 tuples; nobody is heavy before the counters have seen as
                many tuples as there are counters, when any key would be
Backfires       every slot a key is in holds a partial state that must be merged before results are final
                (``slots_per_key`` counts them); joins, ordered and other operators that do not merge cannot use it;
                slots are taken to be equally fast. PKG cannot level a key above 2/N of the load
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import F64, I32, I64, compiled, frozen_i64
from headgate.errors import AssignmentError, LimitsError, SnapshotError

THETA_SHARE = 0.2
"""theta * N: Nasir et al. 2016 allow 1/5 to 2 and use 1/5, below which a key cannot unbalance two choices."""

EPSILON = 1e-4
"""Nasir et al. 2016: the imbalance that D-Choices aims at, as a share of the weight."""

COUNTERS_PER_THETA = 4
"""Counters of a sender times theta: a key's share is then known to a quarter of theta."""

REFRESH = 1024
"""Tuples between two computations of d: it changes with the head of the distribution, which changes slowly."""

_TWO, _SOME, _ALL = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitter:
    """What all senders of a stream agree on: the number of slots and the hash functions (by ``seed``)."""

    kind: ClassVar[int]
    name: ClassVar[str]

    slots: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise AssignmentError.no_slot(self.slots)

    def sender(self) -> Sender:
        """A sender that has sent nothing yet. Each has load estimates of its own."""
        return Sender(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PKG(Splitter):
    """Partial key grouping: of a key's two slots, the one to which this sender has sent less."""

    kind: ClassVar[int] = _TWO
    name: ClassVar[str] = "pkg"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Headed(Splitter):
    theta: float | None = None
    """The share of the weight above which a key is heavy; None: 1 / (5 N)."""

    def __post_init__(self) -> None:
        super(_Headed, self).__post_init__()  # slots=True makes another class, which bare super misses
        if self.theta is not None and not 0 < self.theta <= 1:
            raise LimitsError.parameter(type(self).__name__, "theta", "above 0 and at most 1", self.theta)

    @property
    def heavy_share(self) -> float:
        return THETA_SHARE / self.slots if self.theta is None else self.theta


@dataclass(frozen=True, slots=True, kw_only=True)
class DChoices(_Headed):
    """Heavy keys choose among d slots, d being the least that levels the load; the others among two."""

    kind: ClassVar[int] = _SOME
    name: ClassVar[str] = "d-choices"


@dataclass(frozen=True, slots=True, kw_only=True)
class WChoices(_Headed):
    """Heavy keys choose among all slots; the others among two."""

    kind: ClassVar[int] = _ALL
    name: ClassVar[str] = "w-choices"


@dataclass(slots=True, eq=False)
class Sender:
    """The mutable state of one sender: what it has sent to each slot, and its counters of heavy keys.

    Tuples are routed one after the other, each after the loads of those before it; how they are cut into batches makes
    no difference.
    """

    splitter: Splitter
    loads: F64 = field(init=False)
    _keys: I64 = field(init=False, repr=False)
    _counts: F64 = field(init=False, repr=False)
    _marks: I64 = field(init=False, repr=False)
    _total: F64 = field(init=False, repr=False)
    _theta: float = field(init=False, repr=False)
    _counters: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        splitter = self.splitter
        self.loads = np.zeros(splitter.slots)
        self._theta = splitter.heavy_share if isinstance(splitter, _Headed) else 1.0
        self._counters = int(np.ceil(COUNTERS_PER_THETA / self._theta))
        # Half empty at most, so that probes stay short.
        size = 1 << int(2 * self._counters).bit_length()
        self._keys = np.zeros(size, dtype=np.int64)
        self._counts = np.zeros(size)
        self._marks = np.array([0, 0, 2], dtype=np.int64)
        self._total = np.zeros(1)

    @property
    def choices(self) -> int:
        """How many slots a heavy key may choose among now."""
        if self.splitter.kind == _ALL:
            return self.splitter.slots
        return int(self._marks[2])

    def route(self, hashes: I64, weight: F64 | None = None) -> I32:
        """The slot of each tuple; ``weight`` is what each adds to the load of its slot (1 unless given)."""
        keys = np.ascontiguousarray(hashes, dtype=np.int64)
        weights = np.ones(len(keys)) if weight is None else np.ascontiguousarray(weight, dtype=np.float64)
        if weights.shape != keys.shape:
            raise SnapshotError.length("weight", len(keys), weights.size)
        if len(weights) and not weights.min() >= 0:
            raise SnapshotError.negative("weight", keys[~(weights >= 0)].tolist(), float(weights.min()))
        return _route(
            keys,
            weights,
            self.splitter.kind,
            self.splitter.seed,
            self.loads,
            self._keys,
            self._counts,
            self._marks,
            self._total,
            self._theta,
            self._counters,
        )


def slots_per_key(hashes: ArrayLike, slots: ArrayLike) -> tuple[I64, I64]:
    """The distinct keys, ascending, and over how many slots each was spread: the partial states to be merged."""
    keys, places = np.asarray(hashes, dtype=np.int64), np.asarray(slots, dtype=np.int64)
    if not len(keys):
        return frozen_i64([]), frozen_i64([])
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    fresh_key = np.concatenate([[True], keys[1:] != keys[:-1]])
    fresh_pair = fresh_key | np.concatenate([[True], places[1:] != places[:-1]])
    counts = np.add.reduceat(fresh_pair.astype(np.int64), np.flatnonzero(fresh_key))
    return frozen_i64(keys[fresh_key]), frozen_i64(counts)


@compiled
def _mixed(key: np.int64, salt: int) -> np.uint64:
    """splitmix64 of the key with a salt: one hash function per salt."""
    x = np.uint64(key) + np.uint64(salt + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _least(key: np.int64, choices: int, seed: int, loads: F64) -> np.int64:
    """The least loaded of the key's first ``choices`` slots, the earliest of equals."""
    slots = np.uint64(len(loads))
    start = _mixed(key, seed)
    best = np.int64(-1)
    for choice in range(choices):
        slot = np.int64(_mixed(np.int64(start), choice) % slots)
        if best < 0 or loads[slot] < loads[best]:
            best = slot
    return best


@compiled
def _at(key: np.int64, table_keys: I64, table_counts: F64) -> np.int64:
    """Where the key is in the table of counters, or where it would go; a count of 0 marks an empty place."""
    mask = len(table_keys) - 1
    at = np.int64(_mixed(key, 0)) & mask
    while table_counts[at] > 0 and table_keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def _count(key: np.int64, weight: float, table_keys: I64, table_counts: F64, marks: I64, counters: int) -> float:
    """Misra-Gries: count the key, and give its estimate. Cutting all counters costs O(m), at most every m-th tuple or
    so, as each cut takes away as much weight from each of m counters."""
    at = _at(key, table_keys, table_counts)
    if table_counts[at] > 0:
        table_counts[at] += weight
        return float(table_counts[at])
    if marks[0] >= counters:
        held = np.flatnonzero(table_counts > 0)
        keys, counts = table_keys[held].copy(), table_counts[held].copy()
        cut = min(weight, counts.min())
        weight -= cut
        table_counts[:] = 0
        marks[0] = 0
        for index in range(len(held)):
            if counts[index] > cut:
                place = _at(keys[index], table_keys, table_counts)
                table_keys[place], table_counts[place] = keys[index], counts[index] - cut
                marks[0] += 1
        at = _at(key, table_keys, table_counts)
    if weight > 0:
        table_keys[at], table_counts[at] = key, weight
        marks[0] += 1
    return weight


@compiled
def _choices(table_counts: F64, total: float, theta: float, slots: int) -> int:
    """The least d for which every prefix of the heavy keys fits its expected slots (Nasir et al. 2016, section 4).

    The h heaviest keys reach b = N - N ((N-1)/N)^(h d) slots in expectation. These get all of the h keys, of each other
    heavy key what falls into them with all d choices, of each light key what does with both: together at most
    b (1/N + epsilon).
    """
    head = -np.sort(-table_counts[table_counts > theta * total] / total)
    if not len(head):
        return 2
    upto = np.cumsum(head)
    tail = max(0.0, 1.0 - upto[-1])
    for d in range(max(2, int(np.ceil(head[0] * slots))), slots):
        fits = True
        for h in range(len(head)):
            reached = slots - slots * ((slots - 1) / slots) ** ((h + 1) * d)
            part = reached / slots
            if upto[h] + part**d * (upto[-1] - upto[h]) + part**2 * tail > reached * (1 / slots + EPSILON):
                fits = False
                break
        if fits:
            return d
    return slots


@compiled
def _route(
    keys: I64,
    weights: F64,
    kind: int,
    seed: int,
    loads: F64,
    table_keys: I64,
    table_counts: F64,
    marks: I64,
    total: F64,
    theta: float,
    counters: int,
) -> I32:
    """``marks`` holds the number of keys in the table, of tuples seen, and d."""
    out = np.empty(len(keys), dtype=np.int32)
    slots = len(loads)
    for row in range(len(keys)):
        key, weight = keys[row], weights[row]
        heavy = False
        if kind != _TWO:
            if kind == _SOME and marks[1] % REFRESH == 0 and marks[1] >= counters:
                marks[2] = _choices(table_counts, total[0], theta, slots)
            total[0] += weight
            estimate = _count(key, weight, table_keys, table_counts, marks, counters)
            marks[1] += 1
            heavy = marks[1] > counters and estimate > theta * total[0]
        # d at N means that no number of hashed choices is enough: then, as in W-Choices, every slot is one.
        if heavy and (kind == _ALL or marks[2] >= slots):
            slot = np.int64(np.argmin(loads))
        else:
            slot = _least(key, marks[2] if heavy else 2, seed, loads)
        loads[slot] += weight
        out[row] = slot
    return out
