"""The three phases that LLFD, MinTable, MinMig and Mixed share (mixed-routing, section III).

    I    cleaning    send some pinned keys home, virtually
    II   preparing   take keys from slots over the limit, by a criterion psi, into the candidate set
    III  assigning   LLFD: the heaviest candidate first, into the least loaded slot, exchanging lighter keys if need be

They work on records: keys as they are (a count of one each) or their compact form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import F64, I8, I32, I64, Bool, sums
from headgate.planners.base import ROUNDING, Decision, reasons
from headgate.planners.fitting import by_slot, fit, hand_out
from headgate.planners.items import Items
from headgate.planners.packing import pack
from headgate.planners.plan import Reason
from headgate.stats.compact import Compact, Records, compact

_TIGHTENINGS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)
"""The shares of theta_max that are tried in turn until a trial ends within theta_max: a tighter one moves more."""

Column = TypeVar("Column", bound=NDArray[np.generic])


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What the three phases work on: records, and the slots they may go to."""

    records: Records
    fixed_cost: F64
    capacity: F64
    is_open: Bool

    @classmethod
    def of(cls, items: Items, compact: Compact | None = None) -> Ground:
        """The items as they are, or their compact form."""
        if compact is None:
            count = np.ones(len(items), dtype=np.int64)
            records = Records(items.cost, items.state_bytes, count, items.current, items.home)
        else:
            records = compact.records
        return cls(records, items.fixed_cost, items.capacity, items.is_open)

    @property
    def slots(self) -> int:
        return len(self.capacity)

    @property
    def mean(self) -> float:
        total = float((self.records.cost * self.records.count).sum() + self.fixed_cost.sum())
        return total / float(self.capacity[self.is_open].sum())

    def by_cost(self) -> F64:
        """psi of MinTable: highest cost first."""
        return self.records.cost

    def by_priority(self, beta: float) -> F64:
        """psi of MinMig: largest gamma = c^beta / S first; a key without state is free to move."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gamma = self.records.cost**beta / self.records.state_bytes
        return np.where(self.records.cost > 0, gamma, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One pass through the phases. Quantities: ``stay`` of each record did not move from ``place`` (where phase I left
    it); entry i says that ``quantity[i]`` keys of record ``record[i]`` go to ``slot[i]``."""

    ground: Ground
    place: I32
    record: I64
    slot: I32
    quantity: I64
    reason: I8
    stay: I64
    load: F64
    split: I64
    """Of a record of which phase I sent only a part home, that part is a record of its own: here, the one it was of."""

    @property
    def table_size(self) -> int:
        """Keys that end up somewhere else than their hash says."""
        home = self._of(self.ground.records.home)
        away = int(self.stay[self.place != home].sum())
        return away + int(self.quantity[self.slot != home[self.record]].sum())

    @property
    def migrated_state(self) -> float:
        """State bytes of all keys that end up somewhere else than they are now."""
        state, current = self._of(self.ground.records.state_bytes), self._of(self.ground.records.current)
        moved = float((self.stay * state)[self.place != current].sum())
        away = self.slot != current[self.record]
        return moved + float((self.quantity[away] * state[self.record[away]]).sum())

    @property
    def overload(self) -> float:
        """The greatest load of an open slot over the mean, as a share of the mean."""
        ground, mean = self.ground, self.ground.mean
        return float((self.load / ground.capacity)[ground.is_open].max()) / mean - 1 if mean > 0 else 0.0

    @property
    def theta(self) -> float:
        """max |load - mean| / mean over the open slots."""
        ground, mean = self.ground, self.ground.mean
        loads = (self.load / ground.capacity)[ground.is_open]
        return float(np.abs(loads - mean).max()) / mean if mean > 0 else 0.0

    def _of(self, column: Column) -> Column:
        """A column of the ground's records, with the split part's value at the end."""
        return np.append(column, column[self.split]) if len(self.split) else column  # type: ignore[return-value]

    def targets(self, items: Items, compact: Compact | None) -> tuple[I32, I8]:
        """The slot of each item and why, on the way back from records to keys."""
        target, reason = np.array(items.current), reasons(items, Reason.HOME)
        parent = np.concatenate([np.arange(len(self.ground.records)), self.split])
        at_home = np.flatnonzero((self.place != self._of(self.ground.records.current)) & (self.stay > 0))
        record = np.concatenate([at_home, self.record])
        slot = np.concatenate([self.place[at_home], self.slot])
        quantity = np.concatenate([self.stay[at_home], self.quantity])
        why = np.concatenate([np.full(len(at_home), Reason.HOME, dtype=np.int8), self.reason])
        if compact is None:
            whose = parent[record]
            target[whose], reason[whose] = slot, why
        else:
            hand_out(parent[record], slot, quantity, why, compact.keys, compact.starts, target, reason)
        reason[items.on_draining()] = Reason.DRAIN
        return target, reason


def run_phases(ground: Ground, psi: F64, theta_max: float, *, back: int = 0, order: I64 | None = None) -> Trial:
    """Phase I: send ``back`` pinned keys home, those with the least state first. Phase II: take keys from slots over
    the limit, by psi. Phase III: LLFD. ``order``: the records by falling psi, where the caller has it already."""
    records = ground.records
    if order is None:
        order = by_falling(psi)
    place, count, split = _clean(records, back)
    parent = np.concatenate([np.arange(len(records)), split])
    if len(split):
        order = _with_split(order, split, len(records))
    cost = records.cost[parent] if len(split) else records.cost
    mean = ground.mean
    limit = np.where(ground.is_open, (1 + theta_max) * mean * ground.capacity, -1.0)
    load = sums(place, cost * count, ground.slots) + ground.fixed_cost
    shed = np.minimum(limit, water_level(load, ground, mean, theta_max) * ground.capacity)
    members, starts = by_slot(order, place, ground.slots)
    stay = count.copy()
    held = _hold_giants(ground, cost, count, place, limit, shed)
    record, slot, quantity, reason = fit(
        cost, stay, members, starts, held, limit, shed, load, ground.capacity, ground.is_open, ROUNDING * mean
    )
    return Trial(ground, place, record, slot, quantity, reason, stay, load, split)


def _hold_giants(ground: Ground, cost: F64, count: I64, place: I32, limit: F64, shed: F64) -> Bool:
    """Keys too heavy for any slot stay where they are, and everything else leaves their slot, whose limit they become:
    moving one only costs its state. Of several in one slot the heaviest stays; so does none in a weaker slot."""
    held = np.zeros(len(cost), dtype=np.bool_)
    strongest = float(ground.capacity[ground.is_open].max())
    giants = np.flatnonzero((cost > float(limit.max()) * (1 + ROUNDING)) & (count == 1))
    for giant in giants[np.argsort(-cost[giants], kind="stable")]:
        slot = place[giant]
        if ground.is_open[slot] and ground.capacity[slot] == strongest and shed[slot] < cost[giant]:
            held[giant] = True
            limit[slot] = shed[slot] = cost[giant] + ground.fixed_cost[slot]
    return held


def by_falling(psi: F64) -> I64:
    """Rows by falling psi, equal ones as listed."""
    return np.argsort(-psi, kind="stable")


def water_level(load: F64, ground: Ground, mean: float, theta_max: float) -> float:
    """The load down to which full slots must give so that no open slot stays under (1 - theta_max) of the mean.

    Infinite when nothing is that low: then only overload matters, as in the paper.
    """
    capacity = ground.capacity[ground.is_open]
    loads = load[ground.is_open] / capacity
    lacking = float((np.maximum(0.0, (1 - theta_max) * mean - loads) * capacity).sum())
    spare = float((np.maximum(0.0, loads - (1 + theta_max) * mean) * capacity).sum())
    arriving = float(load[~ground.is_open].sum())
    if lacking <= (spare + arriving) * (1 + ROUNDING):
        return float("inf")
    wanted = lacking - arriving
    order = np.argsort(-loads)
    loads, capacity = loads[order], capacity[order]
    for take in range(1, len(loads) + 1):
        level = (float((loads[:take] * capacity[:take]).sum()) - wanted) / float(capacity[:take].sum())
        if take == len(loads) or level >= loads[take]:
            return max(level, mean)
    return mean


def _clean(records: Records, back: int) -> tuple[I32, I64, I64]:
    """Phase I: where each record is after ``back`` keys went home, and the part of a record that was split for it."""
    none = np.empty(0, dtype=np.int64)
    if back <= 0:
        return records.current, records.count, none
    pinned = np.flatnonzero(records.current != records.home)
    pinned = pinned[np.argsort(records.state_bytes[pinned], kind="stable")]
    until = np.cumsum(records.count[pinned])
    whole = pinned[until <= back]
    place, count = np.array(records.current), records.count
    place[whole] = records.home[whole]
    left = back - (int(until[len(whole) - 1]) if len(whole) else 0)
    if left <= 0 or len(whole) == len(pinned):
        return place, count, none
    partly = pinned[len(whole)]
    count = np.append(count, left)
    count[partly] -= left
    return np.append(place, records.home[partly]), count, np.array([partly])


def _with_split(order: I64, split: I64, records: int) -> I64:
    """Put the split part right behind the record it came from."""
    at = int(np.flatnonzero(order == split[0])[0])
    return np.insert(order, at + 1, records)


def settle(
    items: Items,
    compact: Compact | None,
    run: Callable[[float], tuple[Trial, int]],
    theta_max: float,
    exact: Callable[[], Decision] | None = None,
) -> Decision:
    """The decision of a trial within theta_max; ``run`` makes the trial for a tolerance and says how many it took.

    A trial can end outside: records only estimate the loads, and LLFD looks at overload alone. It is then run again
    with a tighter tolerance, which leaves less for any slot to lack, unless one key is too hot for any placement. Where
    records stay too coarse for the tolerance, ``exact`` plans on the keys themselves.
    """
    best: Decision | None = None
    reached, tried = float("inf"), 0
    reachable = items.least_overload <= theta_max
    aim = theta_max
    for share in _TIGHTENINGS if reachable else _TIGHTENINGS[:1]:
        tolerance = min(aim, share * theta_max)
        trial, runs = run(tolerance)
        tried += runs
        target, reason = trial.targets(items, compact)
        balance = items.balance(target)
        theta = balance.theta_max
        if best is None or theta < reached:
            details = {"trials": float(tried), "records": float(len(trial.ground.records))}
            best, reached = Decision(target, reason, details=details, balance=balance), theta
        if theta <= theta_max + ROUNDING or tolerance == 0:
            break
        aim = max(0.0, tolerance - max(0.0, balance.max_over_mean - 1 - theta_max))
    if exact is not None and compact is not None and reachable and reached > theta_max + ROUNDING:
        return exact()
    assert best is not None
    return best


def repacked(items: Items) -> Decision:
    """All items packed anew: what LLFD falls back on."""
    return Decision(pack(items), reasons(items, Reason.REPACK))


def better_of(items: Items, trial: Decision, theta_max: float, table_max: int | None = None) -> Decision:
    """The trial; or, where it leaves a slot over the limit, what balances better of LLFD and packing everything anew.

    LLFD is tried with its own tolerance and with none, so theorems 1, 2 and 4 hold whatever the trial did. What needs
    more than ``table_max`` entries is not considered.
    """

    def overload(decision: Decision) -> float:
        return (decision.balance or items.balance(decision.target)).max_over_mean - 1

    best, reached = trial, overload(trial)
    aim = max(theta_max, items.least_overload) + ROUNDING
    if reached <= aim:
        return trial
    ground = Ground.of(items)
    psi = ground.by_cost()
    for other in (
        *(Decision(*run_phases(ground, psi, tolerance).targets(items, None)) for tolerance in (theta_max, 0.0)),
        repacked(items),
    ):
        entries = int(np.count_nonzero(other.target != items.home))
        if table_max is not None and entries > table_max:
            continue
        if overload(other) < reached - ROUNDING:
            best, reached = Decision(other.target, other.reason, details=trial.details), overload(other)
        if reached <= aim:
            break
    return best


def compact_of(items: Items, degree: int | None) -> Compact | None:
    """Records of the items with this degree R; None: plan on the items as they are."""
    if degree is None:
        return None
    return compact(items.cost, items.state_bytes, items.current, items.home, items.slots, degree)
