"""What slots report after each batch, and what becomes of it: the statistics of an interval.

    OperatorLoad   one slot, one operator, one batch: cost per key group, and its heaviest keys one by one
    Interval       adds up the reports of an interval's batches
    Tally          what they came to: immutable; blends with the interval before, becomes a snapshot

Costs may be in any unit as long as it is one unit; slots report seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.arrays import F64, I32, I64, Bool, among, frozen_f64, frozen_i32, frozen_i64, sums
from headgate.errors import AssignmentError, LimitsError, SnapshotError
from headgate.routing.assignment import Assignment
from headgate.routing.groups import GROUPS, group_of
from headgate.stats.snapshot import Snapshot

Number = TypeVar("Number", bound=np.generic)

HEAVY_KEYS = 256
"""Keys that a slot lists one by one, per operator and batch, besides those that are pinned.

Mixed aiming at theta 0.02 from plain hashing, 16 slots, 100,000 keys (five seeds). Balance is max(total / slots,
hottest key) / highest load:

    listed per slot               32      64     128     256     512    1024
    Zipf 0.85   balance         0.89    0.93    0.98    0.98    0.98    0.98
                keys moved       480     959     131     159     159     159
    Zipf 1.0    balance         0.77    0.79    0.81    0.84    0.87    0.90
                with groups     1.00    1.00    1.00    1.00    1.00    1.00    (levelled as well)
                keys moved       480     958   1,925     338     594   1,106

Shown too few keys, Mixed finds no way to balance and packs all of them anew. 256 is the first number that is enough at
both, and a report of 256 keys is some 15 kB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class OperatorLoad:
    """What one slot did for one operator in one batch.

    ``seconds`` is how long the slot was busy. ``group`` numbers the key groups it touched, within the operator (0 to
    G - 1), each once; ``tuples`` and ``cost`` are theirs, heavy keys included. ``heavy_*`` list single keys, each once,
    with what people call them in ``heavy_label`` (empty: by their hash) and the bytes of their state.

    Raises ``SnapshotError`` for columns of unequal length.
    """

    operator: int
    slot: int
    seconds: float
    group: I32
    tuples: I64
    cost: F64
    heavy_hash: I64 = field(default_factory=lambda: frozen_i64([]))
    heavy_tuples: I64 = field(default_factory=lambda: frozen_i64([]))
    heavy_cost: F64 = field(default_factory=lambda: frozen_f64([]))
    heavy_bytes: F64 = field(default_factory=lambda: frozen_f64([]))
    heavy_label: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        for names in (("group", "tuples", "cost"), ("heavy_hash", "heavy_tuples", "heavy_cost", "heavy_bytes")):
            for name in names[1:]:
                expected, got = len(getattr(self, names[0])), len(getattr(self, name))
                if got != expected:
                    raise SnapshotError.length(name, expected, got)
        if self.heavy_label and len(self.heavy_label) != len(self.heavy_hash):
            raise SnapshotError.length("heavy_label", len(self.heavy_hash), len(self.heavy_label))

    @classmethod
    def of_keys(
        cls,
        operator: int,
        slot: int,
        seconds: float,
        *,
        hashes: I64,
        tuples: I64,
        state_bytes: F64,
        cost: F64 | None = None,
        groups: int = GROUPS,
        pinned: I64 | None = None,
        limit: int = HEAVY_KEYS,
        label: Callable[[I64], Sequence[object]] | None = None,
    ) -> OperatorLoad:
        """The report on the keys of a batch, each listed once. Without ``cost`` the busy seconds are shared out by
        tuples. ``label`` is asked for the labels of the rows that are listed."""
        if cost is None:
            cost = seconds * tuples / max(int(tuples.sum()), 1)
        group = group_of(hashes, groups)
        touched = np.flatnonzero(np.bincount(group, minlength=groups))
        rows = heaviest(hashes, cost, limit, pinned)
        return cls(
            operator,
            slot,
            seconds,
            frozen_i32(touched),
            frozen_i64(sums(group, tuples, groups)[touched].astype(np.int64)),
            frozen_f64(sums(group, cost, groups)[touched]),
            frozen_i64(hashes[rows]),
            frozen_i64(tuples[rows]),
            frozen_f64(cost[rows]),
            frozen_f64(state_bytes[rows]),
            tuple(label(rows)) if label is not None else (),
        )


def heaviest(hashes: I64, cost: F64, limit: int = HEAVY_KEYS, pinned: I64 | None = None) -> I64:
    """Which keys a slot lists: the rows of the ``limit`` costliest, and of all that are pinned, ascending.

    Of keys that cost the same the smaller hash goes first; a key that costs nothing is listed only if it is pinned. A
    pinned key is always listed because it counts for the slot it is pinned to: unlisted, its cost would count for the
    slot of its group.
    """
    if limit < 0:
        raise LimitsError.parameter("heaviest", "limit", "zero or more keys", limit)
    rows = np.flatnonzero(cost > 0) if limit else np.empty(0, dtype=np.int64)
    if len(rows) > limit:
        bar = np.partition(cost[rows], len(rows) - limit)[len(rows) - limit]
        above, level = rows[cost[rows] > bar], rows[cost[rows] == bar]
        level = level[np.argsort(hashes[level], kind="stable")][: limit - len(above)]
        rows = np.concatenate([above, level])
    if pinned is not None and len(pinned):
        rows = np.concatenate([rows, np.flatnonzero(among(hashes, pinned))])
    return np.unique(rows).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The statistics of an interval, by key group and by listed key; immutable.

    Groups are numbered operator after operator. Listed keys are sorted by operator and hash, each once; ``state`` is
    that of the last batch that listed the key. ``group_state`` has the state of each group's keys that are not pinned.
    """

    operators: int
    groups: int
    group_cost: F64
    group_tuples: F64
    group_state: F64
    busy: F64
    operator: I32
    hash: I64
    group: I32
    cost: F64
    tuples: F64
    state: F64
    label: tuple[object, ...]
    batch: int = 0

    def __len__(self) -> int:
        return len(self.hash)

    @property
    def total_cost(self) -> float:
        return float(self.group_cost.sum())

    def blended(self, before: Tally, weight: float, shift: float) -> Tally:
        """The running mean with the intervals before: this interval counts ``weight``, what came before the rest.

        Only small changes are smoothed: a listed key, or the unlisted rest of a group, whose cost differs from history
        by more than the share ``shift`` has its new cost at once, and so has a key without history. History counts as
        if it had had this interval's total cost: the input may come faster or slower. Keys that are not listed now are
        not listed in the result.
        """
        if weight >= 1 or before.total_cost <= 0 or self.total_cost <= 0:
            return self
        scale = self.total_cost / before.total_cost
        row, known = _match(self, before)
        old = np.where(known, scale * before.cost[row], self.cost) if len(before) else self.cost
        cost, factor = _smoothed(self.cost, old, weight, shift)
        listed = _listed(self)
        old_listed = sums(self.group, np.where(known, old, 0.0), len(self.group_cost))
        # A key that is listed in one interval and not in the other is in the rest of the other: the same on both sides.
        rest, rest_factor = _smoothed(
            np.maximum(self.group_cost - listed, 0.0),
            np.maximum(scale * before.group_cost - old_listed - _unmatched(self, known), 0.0),
            weight,
            shift,
        )
        rest_tuples = np.maximum(self.group_tuples - sums(self.group, self.tuples, len(listed)), 0.0)
        tuples = self.tuples * factor
        return replace(
            self,
            group_cost=frozen_f64(sums(self.group, cost, len(listed)) + rest),
            group_tuples=frozen_f64(sums(self.group, tuples, len(listed)) + rest_tuples * rest_factor),
            cost=frozen_f64(cost),
            tuples=frozen_f64(tuples),
        )

    def snapshot(
        self,
        assignment: Assignment,
        *,
        names: Sequence[str] = (),
        capacity: ArrayLike | None = None,
        split: Sequence[I64] = (),
    ) -> Snapshot:
        """A snapshot: the listed keys, and per group what they leave of its total, never below zero.

        ``assignment`` says which keys are pinned: their state is not part of their group's. Keys that are ``split``
        (hashes per operator) are left out, with their cost: every slot has its part of them, no plan can move them.
        Raises ``AssignmentError`` where the assignment has other key groups.
        """
        if len(assignment.groups) != len(self.group_cost):
            raise AssignmentError.groups(len(self.group_cost), len(assignment.groups))
        left_out = np.zeros(len(self), dtype=np.bool_)
        for number, hashes in enumerate(split):
            left_out |= (self.operator == number) & among(self.hash, hashes)
        inside = ~assignment.pinned(self.hash, self.operator) & ~left_out
        size, shown = len(self.group_cost), np.flatnonzero(~left_out)
        rest_tuples = np.rint(self.group_tuples - sums(self.group, self.tuples, size))
        return Snapshot(
            hash=self.hash[shown],
            operator=self.operator[shown],
            group=self.group[shown],
            cost=self.cost[shown],
            tuples=np.rint(self.tuples[shown]).astype(np.int64),
            state_bytes=self.state[shown],
            groups=size,
            labels=tuple(self.label[row] for row in shown),
            rest_cost=np.maximum(self.group_cost - sums(self.group, self.cost, size), 0.0),
            rest_tuples=np.maximum(rest_tuples, 0.0).astype(np.int64),
            rest_state_bytes=np.maximum(self.group_state - sums(self.group[inside], self.state[inside], size), 0.0),
            capacity=None if capacity is None else np.asarray(capacity, dtype=np.float64),
            busy_seconds=self.busy,
            operators=tuple(names) if len(names) == self.operators else tuple(map(str, range(self.operators))),
            interval=max(self.batch, 0),
        )


class Interval:
    """Adds up the reports of the batches of one interval. Mutable; ``tally`` gives what they came to so far.

    ``groups`` is counted per operator.
    """

    def __init__(self, groups: int = GROUPS, operators: int = 1) -> None:
        self.groups = groups
        self.operators = operators
        self.batches = 0
        self._batch = -1
        self._cost = np.zeros(groups * operators)
        self._tuples = np.zeros(groups * operators)
        self._state = np.zeros(groups * operators)
        self._busy = np.zeros(0)
        self._heavy: list[OperatorLoad] = []

    def add(self, batch: int, loads: Sequence[OperatorLoad], state_bytes: Sequence[ArrayLike] = ()) -> None:
        """One more batch: what its slots reported, and per operator the state of each key group after it.

        ``state_bytes`` has an array per operator with at least one value per key group; what follows those (the store
        counts by place) is not read. Without it the state of unlisted keys is taken to be what it was before.

        Raises ``SnapshotError`` for a key group, and ``AssignmentError`` for an operator, that does not exist; then
        nothing was added.
        """
        for load in loads:
            if not 0 <= load.operator < self.operators:
                raise AssignmentError.unknown_operator(load.operator, self.operators)
            if len(load.group) and not 0 <= int(load.group.min()) <= int(load.group.max()) < self.groups:
                worst = int(load.group.max() if load.group.max() >= self.groups else load.group.min())
                raise SnapshotError.group_range(worst, self.groups)
        states = [np.asarray(values, dtype=np.float64)[: self.groups] for values in state_bytes]
        for values in states:
            if len(values) != self.groups:
                raise SnapshotError.length("state_bytes", self.groups, len(values))
        for load in loads:
            at = load.group + load.operator * self.groups
            np.add.at(self._cost, at, load.cost)
            np.add.at(self._tuples, at, load.tuples)
            if load.slot >= len(self._busy):
                self._busy = np.concatenate([self._busy, np.zeros(load.slot + 1 - len(self._busy))])
            self._busy[load.slot] += load.seconds
            if len(load.heavy_hash):
                self._heavy.append(load)
        for number, values in enumerate(states[: self.operators]):
            self._state[number * self.groups : (number + 1) * self.groups] = values
        self.batches += 1
        self._batch = batch

    def tally(self) -> Tally:
        """The statistics of the batches added so far. A key listed in some of them counts what was listed; the rest of
        its cost stays with its group."""
        loads = self._heavy
        operator = _joined([np.full(len(load.heavy_hash), load.operator) for load in loads], np.int32)
        hashes = _joined([load.heavy_hash for load in loads], np.int64)
        labels = [label for load in loads for label in _labels(load)]
        order = np.lexsort((hashes, operator))
        last = np.ones(len(order), dtype=np.bool_)
        sorted_hash, sorted_operator = hashes[order], operator[order]
        last[:-1] = (sorted_hash[1:] != sorted_hash[:-1]) | (sorted_operator[1:] != sorted_operator[:-1])
        row_of = np.empty(len(order), dtype=np.int64)
        row_of[order] = np.concatenate([[0], np.cumsum(last)[:-1]]) if len(order) else 0
        kept = order[last]
        keys, operators = frozen_i64(hashes[kept]), frozen_i32(operator[kept])
        return Tally(
            operators=self.operators,
            groups=self.groups,
            group_cost=frozen_f64(self._cost.copy()),
            group_tuples=frozen_f64(self._tuples.copy()),
            group_state=frozen_f64(self._state.copy()),
            busy=frozen_f64(self._busy.copy()),
            operator=operators,
            hash=keys,
            group=frozen_i32(group_of(keys, self.groups) + operators * np.int32(self.groups)),
            cost=frozen_f64(sums(row_of, _joined([load.heavy_cost for load in loads], np.float64), len(kept))),
            tuples=frozen_f64(sums(row_of, _joined([load.heavy_tuples for load in loads], np.float64), len(kept))),
            state=frozen_f64(_joined([load.heavy_bytes for load in loads], np.float64)[kept]),
            label=tuple(labels[row] for row in kept),
            batch=self._batch,
        )

    def next(self) -> Interval:
        """An empty interval after this one, which starts from its state bytes."""
        following = Interval(self.groups, self.operators)
        following._state[:] = self._state
        return following


def _joined(parts: Sequence[NDArray[np.generic]], dtype: type[Number]) -> NDArray[Number]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype=dtype)


def _labels(load: OperatorLoad) -> Sequence[object]:
    return load.heavy_label or [f"{int(key) & (2**64 - 1):016x}" for key in load.heavy_hash]


def _listed(tally: Tally) -> F64:
    return sums(tally.group, tally.cost, len(tally.group_cost))


def _unmatched(tally: Tally, known: Bool) -> F64:
    """Per group, what its keys without history cost: before, about as much was part of the group's rest."""
    return sums(tally.group[~known], tally.cost[~known], len(tally.group_cost))


def _smoothed(new: F64, old: F64, weight: float, shift: float) -> tuple[F64, F64]:
    """The running mean where the change is small, the new value elsewhere; and the factor from new to that."""
    small = (np.abs(new - old) <= shift * old) & (new > 0)
    mean = np.where(small, weight * new + (1 - weight) * old, new)
    return mean, np.divide(mean, new, out=np.ones(len(new)), where=new > 0)


def _match(tally: Tally, before: Tally) -> tuple[I64, Bool]:
    """The row of each key in the statistics before, and whether it has one."""
    row = np.zeros(len(tally), dtype=np.int64)
    known = np.zeros(len(tally), dtype=np.bool_)
    for number in range(tally.operators):
        first, end = np.searchsorted(before.operator, [number, number + 1])
        mine = np.flatnonzero(tally.operator == number)
        if end > first and len(mine):
            at = np.minimum(np.searchsorted(before.hash[first:end], tally.hash[mine]), end - first - 1) + first
            row[mine], known[mine] = at, before.hash[at] == tally.hash[mine]
    return row, known
