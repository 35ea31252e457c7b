"""The snapshot: immutable statistics of one interval, from which every plan is made.

A snapshot lists the keys that are known one by one (all of them, or the heavy ones) and, per key group, the **rest**:
what the group's unlisted keys cost together. Key-level planners move listed keys and take the rest as given;
group-level planners move whole groups.

=================  ==============================================================================================
paper              here
=================  ==============================================================================================
g(k)               ``tuples[k]``
c(k)               ``cost[k]``, in any unit as long as it is one unit (seconds of CPU, tuples, ...)
S(k, w)            ``state_bytes[k]``: the state of the last w intervals (see ``StateWindow``)
gLoad, sigma       the sum of both over a group's keys and its rest
out(g_i, g_j)      ``key_traffic`` between listed keys, ``group_traffic`` between key groups
node capacity      ``capacity[slot]``, 1.0 being an ordinary slot
=================  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import F64, I32, I64, frozen_f64, frozen_i32, frozen_i64, sums
from headgate.errors import SnapshotError
from headgate.routing.groups import GROUPS, group_of
from headgate.routing.keyhash import Column, key_hash

TUPLES_MAX = 2**53
"""The most tuples that a cost is taken for where nobody counted them: beyond it a float is no whole number."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Rates sent from one unit to another, each (source, target) pair at most once."""

    source: I64
    target: I64
    rate: F64

    @classmethod
    def of(cls, source: ArrayLike, target: ArrayLike, rate: ArrayLike) -> Traffic:
        """Add up what is listed more than once and drop pairs without traffic."""
        sources, targets, rates = np.asarray(source, np.int64), np.asarray(target, np.int64), np.asarray(rate, float)
        if not np.isfinite(rates).all():
            raise SnapshotError.not_finite("a traffic rate", sources[~np.isfinite(rates)].tolist())
        if (rates < 0).any():
            raise SnapshotError.negative("a traffic rate", sources[rates < 0].tolist(), float(rates.min()))
        if not len(rates):
            return cls(frozen_i64([]), frozen_i64([]), frozen_f64([]))
        pairs, where = np.unique(np.stack([sources, targets]), axis=1, return_inverse=True)
        totals = sums(where.ravel(), rates, pairs.shape[1])
        keep = totals > 0
        return cls(frozen_i64(pairs[0, keep]), frozen_i64(pairs[1, keep]), frozen_f64(totals[keep]))

    def __len__(self) -> int:
        return len(self.rate)

    @property
    def total(self) -> float:
        return float(self.rate.sum())

    def between(self, unit_of: ArrayLike) -> Traffic:
        """The same traffic between coarser units: ``unit_of`` names the unit of every present one."""
        units = np.asarray(unit_of, dtype=np.int64)
        return Traffic.of(units[self.source], units[self.target], self.rate)

    def kept_within(self, slots: I32) -> float:
        """The rate between units of one slot, ``slots`` naming the slot of every unit."""
        return float(self.rate[slots[self.source] == slots[self.target]].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Statistics of one interval. Build it with ``Snapshot.of_keys``; join those of many slots with ``merge``.

    All arrays are read-only. Keys are unique per operator. Raises ``SnapshotError`` for values that are negative or not
    finite, for keys listed twice and for columns of unequal length.
    """

    hash: I64
    operator: I32
    group: I32
    cost: F64
    tuples: I64
    state_bytes: F64
    groups: int
    labels: tuple[object, ...] | None = None
    rest_cost: F64 = field(default_factory=lambda: np.empty(0))
    rest_tuples: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rest_state_bytes: F64 = field(default_factory=lambda: np.empty(0))
    resources: Mapping[str, F64] = field(default_factory=dict)
    key_traffic: Traffic | None = None
    group_traffic: Traffic | None = None
    capacity: F64 | None = None
    busy_seconds: F64 | None = None
    operators: tuple[str, ...] = ("",)
    interval: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "hash", frozen_i64(self.hash))
        for name in ("operator", "group"):
            put(self, name, frozen_i32(getattr(self, name)))
        put(self, "tuples", frozen_i64(self.tuples))
        for name in ("cost", "state_bytes"):
            put(self, name, frozen_f64(getattr(self, name)))
        put(self, "resources", {name: frozen_f64(values) for name, values in self.resources.items()})
        for name in ("rest_cost", "rest_tuples", "rest_state_bytes"):
            values = getattr(self, name)
            if not len(values):
                values = np.zeros(self.groups, dtype=values.dtype)
            put(self, name, frozen_i64(values) if name == "rest_tuples" else frozen_f64(values))
        self._check()

    def _check(self) -> None:
        columns: dict[str, F64 | I64] = {
            "cost": self.cost,
            "state_bytes": self.state_bytes,
            "tuples": self.tuples,
            **self.resources,
        }
        for name, values in columns.items():
            if len(values) != len(self.hash):
                raise SnapshotError.length(name, len(self.hash), len(values))
            self._check_values(name, values, self.label)
        for name in ("rest_cost", "rest_tuples", "rest_state_bytes"):
            values = getattr(self, name)
            if len(values) != self.groups:
                raise SnapshotError.length(name, self.groups, len(values))
            self._check_values(name, values, str)
        for name, column in (("cost", self.cost), ("rest_cost", self.rest_cost), ("state_bytes", self.state_bytes)):
            with np.errstate(over="ignore"):
                if not np.isfinite(column.sum()):
                    raise SnapshotError.too_large(name)
        for traffic, units, what in ((self.key_traffic, len(self), "key"), (self.group_traffic, self.groups, "group")):
            if traffic is not None and len(traffic):
                ends = np.concatenate([traffic.source, traffic.target])
                if ends.min() < 0 or ends.max() >= units:
                    raise SnapshotError.traffic_range(what, units, int(ends[(ends < 0) | (ends >= units)][0]))
        if len(self.group) and not 0 <= int(self.group.min()) <= int(self.group.max()) < self.groups:
            worst = int(self.group.max() if self.group.max() >= self.groups else self.group.min())
            raise SnapshotError.group_range(worst, self.groups)
        if self.capacity is not None:
            put_capacity = frozen_f64(self.capacity)
            if not np.isfinite(put_capacity).all() or (put_capacity <= 0).any():
                raise SnapshotError.capacity(put_capacity.tolist())
            object.__setattr__(self, "capacity", put_capacity)
        self._check_unique()

    @staticmethod
    def _check_values(name: str, values: F64 | I64, label: object) -> None:
        describe = label if callable(label) else str
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise SnapshotError.not_finite(name, [describe(int(i)) for i in np.flatnonzero(~np.isfinite(values))])
        if len(values) and values.min() < 0:
            rows = np.flatnonzero(values < 0)
            raise SnapshotError.negative(name, [describe(int(i)) for i in rows], float(values[rows[0]]))

    def _check_unique(self) -> None:
        if len(self.operators) == 1:
            order = np.argsort(self.hash, kind="stable")
            same = self.hash[order][1:] == self.hash[order][:-1]
        else:
            order = np.lexsort((self.hash, self.operator))
            hashes, numbers = self.hash[order], self.operator[order]
            same = (hashes[1:] == hashes[:-1]) & (numbers[1:] == numbers[:-1])
        if same.any():
            raise SnapshotError.key_twice([self.label(int(row)) for row in order[1:][same]])

    @classmethod
    def of_keys(
        cls,
        keys: Column,
        cost: ArrayLike,
        *,
        state_bytes: ArrayLike | None = None,
        tuples: ArrayLike | None = None,
        operator: Sequence[str] | None = None,
        groups: int = GROUPS,
        group: ArrayLike | None = None,
        resources: Mapping[str, ArrayLike] | None = None,
        traffic: Traffic | None = None,
        capacity: ArrayLike | None = None,
        interval: int = 0,
    ) -> Snapshot:
        """A snapshot that lists every key.

        ``state_bytes`` defaults to the cost (state in step with load, as in the papers' word count), ``tuples`` to the
        cost rounded. ``operator`` names each key's operator; groups are counted per operator. ``group`` overrides the
        key group of each key, for statistics that come from another system's hash; then ``groups`` counts them all.
        ``traffic`` is between rows of ``keys``.
        """
        costs = np.asarray(cost, dtype=np.float64)
        hashes = key_hash(keys)
        names = tuple(dict.fromkeys(operator)) if operator is not None and len(operator) else ("",)
        numbers = np.zeros(len(hashes), dtype=np.int32)
        if len(names) > 1 and operator is not None:
            if len(operator) != len(hashes):
                raise SnapshotError.length("operator", len(hashes), len(operator))
            index = {name: number for number, name in enumerate(names)}
            numbers = np.array([index[name] for name in operator], dtype=np.int32)
        if group is None:
            group = group_of(hashes, groups) + numbers * np.int32(groups)
            groups = groups * len(names)
        if len(costs) != len(hashes):
            raise SnapshotError.length("cost", len(hashes), len(costs))
        rounded = np.zeros(0) if not np.isfinite(costs).all() else np.clip(np.rint(costs), 0, TUPLES_MAX)
        return cls(
            hash=hashes,
            operator=numbers,
            group=np.asarray(group, dtype=np.int32),
            cost=costs,
            tuples=np.asarray(rounded if tuples is None else tuples, dtype=np.int64),
            state_bytes=np.asarray(costs if state_bytes is None else state_bytes, dtype=np.float64),
            groups=groups,
            labels=_labels(keys),
            resources={name: np.asarray(values, float) for name, values in (resources or {}).items()},
            key_traffic=traffic,
            capacity=None if capacity is None else np.asarray(capacity, dtype=np.float64),
            operators=names,
            interval=interval,
        )

    @classmethod
    def of_groups(
        cls,
        cost: ArrayLike,
        *,
        state_bytes: ArrayLike | None = None,
        tuples: ArrayLike | None = None,
        operators: tuple[str, ...] = ("",),
        traffic: Traffic | None = None,
        capacity: ArrayLike | None = None,
        interval: int = 0,
    ) -> Snapshot:
        """A snapshot that knows key groups only, none of their keys: ``cost`` has one value per group."""
        costs = np.asarray(cost, dtype=np.float64)
        none = np.empty(0)
        return cls(
            hash=none.astype(np.int64),
            operator=none.astype(np.int32),
            group=none.astype(np.int32),
            cost=none,
            tuples=none.astype(np.int64),
            state_bytes=none,
            groups=len(costs),
            rest_cost=costs,
            rest_state_bytes=np.asarray(costs if state_bytes is None else state_bytes, dtype=np.float64),
            rest_tuples=np.asarray(np.zeros(len(costs)) if tuples is None else tuples).astype(np.int64),
            group_traffic=traffic,
            capacity=None if capacity is None else np.asarray(capacity, dtype=np.float64),
            operators=operators,
            interval=interval,
        )

    def __len__(self) -> int:
        return len(self.hash)

    def label(self, row: int) -> object:
        """What a person calls the key of this row; its hash in hexadecimal where nobody said."""
        if self.labels is not None:
            return self.labels[row]
        return f"{int(self.hash[row]) & (2**64 - 1):016x}"

    @property
    def total_cost(self) -> float:
        return float(self.cost.sum() + self.rest_cost.sum())

    @property
    def total_state_bytes(self) -> float:
        return float(self.state_bytes.sum() + self.rest_state_bytes.sum())

    def group_cost(self) -> F64:
        """Cost per key group, listed keys and rest together."""
        return sums(self.group, self.cost, self.groups) + self.rest_cost

    def with_state(self, state_bytes: ArrayLike) -> Snapshot:
        """The same snapshot with another S(k, w)."""
        return replace(self, state_bytes=np.asarray(state_bytes, dtype=np.float64))

    @staticmethod
    def merge(parts: Iterable[Snapshot]) -> Snapshot:
        """Join the snapshots of many slots: equal keys and groups add up. Raises ``SnapshotError`` where they differ
        on the number of groups, the operators or the capacities."""
        snapshots = list(parts)
        if not snapshots:
            raise SnapshotError("merge needs at least one snapshot, got none")
        first = snapshots[0]
        for other in snapshots[1:]:
            for what in ("groups", "operators", "interval"):
                if getattr(first, what) != getattr(other, what):
                    raise SnapshotError.mismatch(what, getattr(first, what), getattr(other, what))
            if (first.capacity is None) != (other.capacity is None) or (
                first.capacity is not None and not np.array_equal(first.capacity, other.capacity)  # type: ignore[arg-type]
            ):
                raise SnapshotError.mismatch("capacity", first.capacity, other.capacity)
            if set(first.resources) != set(other.resources):
                raise SnapshotError.mismatch("resources", sorted(first.resources), sorted(other.resources))
        return _merge(snapshots)


def _merge(parts: list[Snapshot]) -> Snapshot:
    first = parts[0]
    operator = np.concatenate([part.operator for part in parts])
    hashes = np.concatenate([part.hash for part in parts])
    order = np.lexsort((hashes, operator))
    hashes, operator = hashes[order], operator[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (hashes[1:] != hashes[:-1]) | (operator[1:] != operator[:-1])
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.cumsum(fresh) - 1
    kept = order[fresh]

    def total(values: list[F64] | list[I64]) -> F64:
        return sums(row_of, np.concatenate(values), len(kept))

    labels = None
    if all(part.labels is not None for part in parts):
        joined = [label for part in parts for label in part.labels or ()]
        labels = tuple(joined[row] for row in kept)
    starts = np.cumsum([0] + [len(part) for part in parts])
    key_traffic = [
        part.key_traffic.between(row_of[start : start + len(part)])
        for start, part in zip(starts, parts, strict=False)
        if part.key_traffic is not None
    ]
    return replace(
        first,
        hash=hashes[fresh],
        operator=operator[fresh],
        group=np.concatenate([part.group for part in parts])[kept],
        cost=total([part.cost for part in parts]),
        tuples=total([part.tuples for part in parts]).astype(np.int64),
        state_bytes=total([part.state_bytes for part in parts]),
        labels=labels,
        rest_cost=np.sum([part.rest_cost for part in parts], axis=0),
        rest_tuples=np.sum([part.rest_tuples for part in parts], axis=0),
        rest_state_bytes=np.sum([part.rest_state_bytes for part in parts], axis=0),
        resources={name: total([part.resources[name] for part in parts]) for name in first.resources},
        key_traffic=_joined(key_traffic),
        group_traffic=_joined([part.group_traffic for part in parts if part.group_traffic is not None]),
        busy_seconds=_busy(parts),
    )


def _busy(parts: list[Snapshot]) -> F64 | None:
    measured = [part.busy_seconds for part in parts if part.busy_seconds is not None]
    return np.sum(measured, axis=0) if measured else None


def _joined(parts: list[Traffic]) -> Traffic | None:
    if not parts:
        return None
    return Traffic.of(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.rate for part in parts]),
    )


def _labels(keys: Column) -> tuple[object, ...]:
    to_list = getattr(keys, "to_pylist", None) or getattr(keys, "tolist", None)
    return tuple(to_list()) if to_list is not None else tuple(keys)
