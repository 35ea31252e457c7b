"""The one interface of all planners, and how a decision becomes a plan.

A planner is a small frozen dataclass: its fields are the algorithm's parameters, its ``decide`` is the algorithm, which
says where every item should be. Everything that holds for all planners is here: checking the input, doing nothing when
nothing is needed, holding the limits, never making the balance worse, and saying why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, get_args

import numpy as np

from headgate.arrays import F64, I8, I32, I64, Bool, compiled, sums
from headgate.errors import LimitsError
from headgate.planners.evacuation import Evacuation
from headgate.planners.items import Items, check_fit, rehomed
from headgate.planners.plan import Figures, Grain, Limits, Moves, Naming, Plan, Reason
from headgate.routing.assignment import Assignment, Pins
from headgate.stats.measures import Balance, collocation_factor, locate, measure
from headgate.stats.snapshot import Snapshot

ROUNDING = 1e-9
"""Loads closer than this share of the mean count as equal: sums of floats taken in another order differ that much."""


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Where an algorithm wants every item, and why.

    ``reason`` has a ``Reason`` per item (read for those that move); ``notes`` a text of its own for single items.
    ``bound`` is a proven lower bound on the load distance, where the algorithm has one. ``balance`` is that of the
    target, where the algorithm has measured it.
    """

    target: I32
    reason: I8
    notes: Mapping[int, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    bound: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    balance: Balance | None = None

    @classmethod
    def stay(cls, items: Items) -> Decision:
        return cls(items.current, reasons(items, Reason.LEVEL))


def reasons(items: Items, reason: Reason) -> I8:
    """The same reason for every item, save those that leave a draining slot."""
    return np.where(items.on_draining(), Reason.DRAIN, reason).astype(np.int8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner(ABC):
    """(snapshot, assignment, limits) -> plan. Pure: the same input and seed give the same plan.

    ``grain``: what is moved, single keys or whole key groups; every algorithm can do both, the default is the paper's.
    """

    name: ClassVar[str]
    controls_table: ClassVar[bool] = False
    """Whether the algorithm holds ``Limits.table_max``."""
    holds_migration: ClassVar[bool] = False
    """Whether the algorithm itself holds the limits on migration; for the others the moves that help most are kept."""
    guards_balance: ClassVar[bool] = True
    """Whether a plan that would leave the balance worse than it is is refused."""

    grain: Grain = "key"
    seed: int = 0

    def plan(self, snapshot: Snapshot, assignment: Assignment, limits: Limits | None = None) -> Plan:
        """A plan for the next interval, from the statistics of the last one.

        An empty snapshot, and one that is balanced already, give a plan without moves. Raises ``InputError`` where the
        three do not fit each other.
        """
        return self._plan(self.decide, snapshot, assignment, limits)

    def _plan(
        self,
        decide: Callable[[Items, Limits], Decision],
        snapshot: Snapshot,
        assignment: Assignment,
        limits: Limits | None,
    ) -> Plan:
        limits = limits or Limits()
        if self.grain not in get_args(Grain):
            raise LimitsError.parameter(self.name, "grain", '"key" or "group"', self.grain)
        check_fit(snapshot, assignment, limits)
        places = locate(snapshot, assignment)
        evacuation = Evacuation.of(snapshot, assignment, self.grain, limits, places)
        limits = evacuation.limits
        items = Items.of(snapshot, assignment, self.grain, limits, places, evacuation)
        before = measure(snapshot, assignment, places)
        if not len(items) or not self.is_needed(items, before, assignment, limits):
            decision = Decision.stay(items)
        else:
            decision = decide(items, limits)
        return _Conclusion(self, snapshot, assignment, limits, items, decision, before, evacuation, places).plan()

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        """Whether there is anything to do: a slot out of balance, a table too long, a draining slot not yet empty, a
        cap exceeded."""
        if before.theta_max > limits.theta_max + ROUNDING or items.on_draining().any():
            return True
        if self.controls_table and limits.table_max is not None and len(assignment.pins) > limits.table_max:
            return True
        return any(
            (sums(items.current, resource.used, items.slots) + resource.fixed > resource.cap).any()
            for resource in items.resources.values()
        )

    @abstractmethod
    def decide(self, items: Items, limits: Limits) -> Decision:
        """Where every item should be. Called only when ``is_needed``."""


class _Conclusion:
    """From a decision to a plan: holds the limits, builds the assignment, measures, explains."""

    def __init__(
        self,
        planner: Planner,
        snapshot: Snapshot,
        assignment: Assignment,
        limits: Limits,
        items: Items,
        decision: Decision,
        before: Balance,
        evacuation: Evacuation,
        places: I32,
    ) -> None:
        self.planner = planner
        self.snapshot = snapshot
        self.assignment = assignment
        self.limits = limits
        self.items = items
        self.before = before
        self.evacuation = evacuation
        self.places = places
        self.decision = decision
        self.target = np.array(decision.target, dtype=np.int32)
        self.reason = np.array(decision.reason, dtype=np.int8)
        self.balance = decision.balance
        self.refused: dict[int, tuple[int, Reason]] = {}
        self.warnings = list(decision.warnings)

    def plan(self) -> Plan:
        items = self.items
        if len(items):
            if self.planner.controls_table:
                self._hold_table()
            if self.limits.bounds_migration:
                self._hold_migration()
            self._hold_balance()
        assignment = self._assignment()
        after = self._after(assignment)
        moves = self._moves(np.flatnonzero(self.target != items.current), self.target, self.reason)
        moves = self._with_evacuated(moves, assignment)
        migrated = float(moves.state_bytes.sum())
        total = self.snapshot.total_state_bytes
        self._warn(after, assignment)
        figures = Figures(
            before=self.before,
            after=after,
            table_before=len(self.assignment.pins),
            table_size=len(assignment.pins),
            migrated_state=migrated,
            migrated_share=migrated / total if total else 0.0,
            bound=self.decision.bound,
            warnings=tuple(self.warnings),
            details=self.decision.details,
        )
        return Plan(self.planner.name, assignment, moves, self._refusals(), figures)

    def _after(self, assignment: Assignment) -> Balance:
        if assignment is self.assignment:
            return self.before
        if self.items.grain != "key":
            return measure(self.snapshot, assignment)
        if self.balance is None or assignment.groups is not self.items.base:
            return measure(self.snapshot, assignment, self.target)
        return replace(self.balance, collocation=collocation_factor(self.snapshot, assignment, self.target))

    def _hold_table(self) -> None:
        """Send home the lightest pinned keys until the table fits."""
        limit = self.limits.table_max
        if limit is None or self.items.grain != "key":
            return
        pinned = np.flatnonzero(self.target != self.items.home)
        excess = len(pinned) - limit
        if excess <= 0:
            return
        unwanted = pinned[np.argsort(self.items.cost[pinned], kind="stable")[:excess]]
        for item in unwanted:
            self.refused[int(item)] = (int(self.target[item]), Reason.TABLE_LIMIT)
        self.balance = None
        self.target[unwanted] = self.items.home[unwanted]
        self.reason[unwanted] = np.where(self.items.on_draining()[unwanted], Reason.DRAIN, Reason.HOME)

    def _hold_migration(self) -> None:
        """Keep the moves that level the load most, as many as the limit allows."""
        items = self.items
        moving = np.flatnonzero(self.target != items.current)
        price = np.ones(len(moving)) if self.limits.max_migrations is not None else items.state_bytes[moving]
        budget = self.limits.max_migrations
        allowed = float(self.limits.max_migration_cost or 0.0) if budget is None else float(budget)
        if price.sum() <= allowed:
            return
        kept = _best_moves(
            items.cost[moving],
            price,
            items.current[moving].astype(np.int64),
            self.target[moving].astype(np.int64),
            items.slot_costs(items.current),
            items.capacity,
            items.is_open,
            items.mean,
            allowed,
        )
        self._refuse(moving[~kept], Reason.MIGRATION_LIMIT)

    def _hold_balance(self) -> None:
        """A plan that would leave the balance worse than it is moves nothing, unless a slot must be emptied, a table
        shortened or a cap held."""
        items = self.items
        moving = np.flatnonzero(self.target != items.current)
        over = self.limits.table_max is not None and len(self.assignment.pins) > self.limits.table_max
        forced = self.assignment.draining or (self.planner.controls_table and over) or items.resources
        if not len(moving) or forced or not self.planner.guards_balance:
            return
        if self.balance is None:
            self.balance = items.balance(self.target)
        if self.balance.theta_max > self.before.theta_max * (1 + ROUNDING) + ROUNDING:
            self._refuse(moving, Reason.WORSE)

    def _refuse(self, moving: I64, reason: Reason) -> None:
        for item in moving:
            self.refused.setdefault(int(item), (int(self.target[item]), reason))
        self.balance = None
        self.target[moving] = self.items.current[moving]

    def _assignment(self) -> Assignment:
        """The next version; the same version where nothing changes."""
        items, old = self.items, self.assignment
        if items.grain == "group":
            groups = np.array(items.base)
            groups[items.rows] = self.target
            pins = self._pins_left(groups)
        else:
            groups = self._base()
            pins = self._pins(groups)
        new = old.next(groups=groups, pins=pins)
        same = np.array_equal(groups, old.groups) and new.same_pins(old)
        return old if same else new

    def _base(self) -> I32:
        """The slot of each group. One that should leave a draining slot stays while limits keep most of its keys there,
        so that the keys that stay need no pins."""
        items, old = self.items, self.assignment
        if items.base is old.groups or not self.limits.bounds_migration:
            return items.base
        ones = np.ones(len(items))
        stay = sums(items.group, ones * (self.target == old.groups[items.group]), len(old.groups))
        gone = sums(items.group, ones * (self.target == items.home), len(old.groups))
        stays = stay > gone
        stays[self.evacuation.groups] = False
        return np.where(stays, old.groups, items.base).astype(np.int32)

    def _pins_left(self, groups: I32) -> Pins:
        """At the grain of groups: all pins but those of keys that were released, or that their group has caught up
        with; and those to draining slots of keys nobody listed, unless limits bound what may move."""
        old, snapshot = self.assignment, self.snapshot
        unlisted = self._unlisted_pins()
        gone = np.zeros(len(snapshot), dtype=np.bool_)
        gone[self.evacuation.keys] = True
        gone[self.evacuation.loose] = True
        gone |= groups[snapshot.group] == self.places
        keep = unlisted & (old.open_slots[old.pins.slot] | self.limits.bounds_migration)
        for operator in np.unique(old.pins.operator):
            mine = np.flatnonzero((old.pins.operator == operator) & ~unlisted)
            rows = (snapshot.operator == operator) & ~gone
            keep[mine] = np.isin(old.pins.hash[mine], snapshot.hash[rows])
        return Pins(old.pins.operator[keep], old.pins.hash[keep], old.pins.slot[keep])

    def _pins(self, groups: I32) -> Pins:
        """Pins of listed keys that are not at home, and those of keys nobody listed, as long as their slot stays."""
        old, snapshot = self.assignment, self.snapshot
        away = np.flatnonzero(self.target != groups[self.items.group])
        operator, hashes, slot = snapshot.operator[away], snapshot.hash[away], self.target[away]
        unlisted = self._unlisted_pins()
        keep = unlisted & (old.open_slots[old.pins.slot] | self.limits.bounds_migration)
        if self.planner.controls_table and self.limits.table_max is not None and not self.limits.bounds_migration:
            spare = max(0, self.limits.table_max - len(away))
            keep &= np.cumsum(keep) <= spare
        return Pins.of(
            np.concatenate([operator, old.pins.operator[keep]]),
            np.concatenate([hashes, old.pins.hash[keep]]),
            np.concatenate([slot, old.pins.slot[keep]]),
        )

    def _unlisted_pins(self) -> Bool:
        pins, snapshot = self.assignment.pins, self.snapshot
        unlisted = np.ones(len(pins), dtype=np.bool_)
        for operator in np.unique(pins.operator):
            mine = np.flatnonzero(pins.operator == operator)
            # Nearly always every pinned key is listed, and away from its group's slot: look among those few first.
            for rows in (np.flatnonzero(self.places != self.assignment.groups[snapshot.group]), slice(None)):
                same = snapshot.operator[rows] == operator
                unlisted[mine] = ~np.isin(pins.hash[mine], snapshot.hash[rows][same])
                if not unlisted[mine].any():
                    break
        return unlisted

    def _moves(self, rows: I64, target: I32, reason: I8) -> Moves:
        items = self.items
        first = 0 if items.grain == "key" else len(self.assignment.groups)
        naming = Naming(first, self._label, self._operators(), self.before.loads, self.before.mean)
        return Moves(
            rows=items.rows[rows],
            group=items.group[rows],
            operator=items.operator[rows],
            source=items.current[rows],
            target=target[rows],
            cost=items.cost[rows],
            state_bytes=items.state_bytes[rows],
            reason=reason[rows],
            naming=naming,
            notes={int(items.rows[row]): text for row, text in self.decision.notes.items()},
        )

    def _with_evacuated(self, moves: Moves, assignment: Assignment) -> Moves:
        """Add what leaves draining slots besides the items: unlisted keys of groups, keys that lost their pin."""
        groups = self.evacuation.groups
        if len(groups):
            moves = self._joined(moves, -1 - groups, assignment.groups[groups], Reason.DRAIN)
        rows = self.evacuation.keys
        if len(rows):
            moves = self._joined(moves, rows, assignment.groups[self.snapshot.group[rows]], Reason.DRAIN)
        return moves

    def _joined(self, moves: Moves, rows: I64, target: I32, reason: Reason) -> Moves:
        """These moves and more: rows of listed keys, or -1 - g for the unlisted keys of group g."""
        snapshot, old = self.snapshot, self.assignment
        is_rest = rows < 0
        if is_rest.any():
            group = (-1 - rows).astype(np.int32)
            source, cost, state = old.groups[group], snapshot.rest_cost[group], snapshot.rest_state_bytes[group]
        else:
            group = snapshot.group[rows]
            source = self.places[rows]
            cost, state = snapshot.cost[rows], snapshot.state_bytes[rows]
        # A key among groups is told from a group by a row past all groups.
        shown = rows if is_rest.any() or self.items.grain == "key" else rows + len(old.groups)
        return replace(
            moves,
            rows=np.concatenate([moves.rows, shown]),
            group=np.concatenate([moves.group, group]),
            operator=np.concatenate([moves.operator, (group // old.groups_per_operator).astype(np.int32)]),
            source=np.concatenate([moves.source, source]),
            target=np.concatenate([moves.target, target]),
            cost=np.concatenate([moves.cost, cost]),
            state_bytes=np.concatenate([moves.state_bytes, state]),
            reason=np.concatenate([moves.reason, np.full(len(rows), reason, dtype=np.int8)]),
        )

    def _refusals(self) -> Moves:
        rows = np.array(sorted(self.refused), dtype=np.int64)
        target = np.array(self.items.current)
        reason = np.zeros(len(target), dtype=np.int8)
        for row, (slot, why) in self.refused.items():
            target[row], reason[row] = slot, why
        refused = replace(self._moves(rows, target, reason), notes={})
        kept = self.evacuation.kept_groups
        if len(kept):
            homes = rehomed(self.assignment)[kept]
            refused = self._joined(refused, -1 - kept, homes, Reason.MIGRATION_LIMIT)
        kept = self.evacuation.kept_keys
        if len(kept):
            homes = rehomed(self.assignment)[self.snapshot.group[kept]]
            refused = self._joined(refused, kept, homes, Reason.MIGRATION_LIMIT)
        return refused

    def _label(self, row: int) -> object:
        return self.snapshot.label(row)

    def _name(self, row: int) -> str:
        """What a warning calls an item: a key, or a key group and the heaviest of its listed keys."""
        if self.items.grain == "key":
            return f"key {self._label(row)!r}"
        mine = np.flatnonzero(self.snapshot.group == row)
        if not len(mine):
            return f"key group {row}"
        heaviest = self._label(int(mine[np.argmax(self.snapshot.cost[mine])]))
        return f"key group {row} (its heaviest key is {heaviest!r})"

    def _operators(self) -> tuple[str, ...]:
        names = self.snapshot.operators
        return names if len(names) == self.assignment.operators else tuple(map(str, range(self.assignment.operators)))

    def _warn(self, after: Balance, assignment: Assignment) -> None:
        items, limits = self.items, self.limits
        if len(items) and items.mean > 0:
            reachable = items.least_overload
            if reachable > limits.theta_max:
                hottest = int(np.argmax(items.cost))
                what = self._name(int(items.rows[hottest]))
                self.warnings.append(
                    f"{what} alone costs {1 + reachable:.2f} times a slot's share, so no placement can bring theta "
                    f"below {reachable:.3f}: split the key (PKG, D-Choices) if its operator combines partial results"
                )
        for name, resource in items.resources.items():
            used = sums(self.target, resource.used, items.slots) + resource.fixed
            over = np.flatnonzero(used > resource.cap * (1 + ROUNDING))
            if len(over):
                worst = int(over[np.argmax(used[over])])
                self.warnings.append(
                    f"{len(over)} of {items.slots} slots use more {name} than their cap, slot {worst} the most with "
                    f"{used[worst]:g}: of the planners, MILP and ALBIC look at caps"
                )
        table = limits.table_max
        if table is None or len(assignment.pins) <= table:
            return
        if not self.planner.controls_table or items.grain != "key":
            at = "" if items.grain == "key" else " while it plans for key groups"
            self.warnings.append(
                f"the routing table has {len(assignment.pins)} entries, more than table_max = {table}: "
                f"{self.planner.name} does not control its size{at}; Mixed does, planning for keys"
            )
        else:
            self.warnings.append(
                f"the routing table keeps {len(assignment.pins)} entries, more than table_max = {table}: the limit on "
                "migration leaves no more moves to shorten it with; it shrinks over the next plans"
            )


@compiled
def _best_moves(
    cost: F64,
    price: F64,
    source: I64,
    target: I64,
    slot_cost: F64,
    capacity: F64,
    is_open: Bool,
    mean: float,
    allowed: float,
) -> Bool:
    """Greedy choice under a budget: moves off draining slots first, then, pass by pass, every move that brings its two
    slots closer to the mean (in squared distance), the heaviest first."""
    kept = np.zeros(len(cost), dtype=np.bool_)
    order = np.argsort(-cost)
    left = allowed
    load = slot_cost.copy()
    for must in (True, False):
        changed = True
        while changed:
            changed = False
            for move in order:
                a, b, c = source[move], target[move], cost[move]
                if kept[move] or price[move] > left or is_open[a] == must:
                    continue
                before = (load[a] / capacity[a] - mean) ** 2 + (load[b] / capacity[b] - mean) ** 2
                after = ((load[a] - c) / capacity[a] - mean) ** 2 + ((load[b] + c) / capacity[b] - mean) ** 2
                if must or after < before:
                    kept[move] = True
                    changed = True
                    left -= price[move]
                    load[a] -= c
                    load[b] += c
    return kept
