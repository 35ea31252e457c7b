"""What a planner takes and gives: limits in, a plan out, every move and refusal with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, overload

import numpy as np

from headgate.arrays import F64, I8, I32, I64
from headgate.errors import LimitsError
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance

Grain = Literal["key", "group"]
"""What a plan moves: single listed keys (by pinning them) or whole key groups."""

THETA_MAX = 0.08
"""mixed-routing, table II: the default tolerance on load imbalance."""

TABLE_MAX = 3000
"""mixed-routing, table II: the default size of the routing table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may do. Raises ``LimitsError`` for limits that contradict each other.

    ``theta_max``            how far a slot's load may lie from the mean, as a share of the mean; the target of the plan
    ``table_max``            pins that the routing table may hold; None: no limit. Held by the planners that control the
                             table (MinTable, Mixed, Mixed_BF); the others say in a warning when they exceed it
    ``max_migrations``       moves a plan may make; None: no limit
    ``max_migration_cost``   state bytes a plan may move; None: no limit
    ``caps``                 resource name -> the most a slot may use of it: one number, or one per slot (MILP, ALBIC)
    ``time_limit_seconds``   how long an optimising planner may search
    """

    theta_max: float = THETA_MAX
    table_max: int | None = TABLE_MAX
    max_migrations: int | None = None
    max_migration_cost: float | None = None
    caps: Mapping[str, float | Sequence[float]] = field(default_factory=dict)
    time_limit_seconds: float = 2.0

    def __post_init__(self) -> None:
        units = {
            "theta_max": "a share of the mean load",
            "table_max": "pins",
            "max_migrations": "moves",
            "max_migration_cost": "bytes of state",
            "time_limit_seconds": "seconds",
        }
        for name, unit in units.items():
            value = getattr(self, name)
            if value is not None and not (value >= 0 and value < float("inf")):
                raise LimitsError.negative(name, value, unit)
        if self.max_migrations is not None and self.max_migration_cost is not None:
            raise LimitsError.both_migration_limits(self.max_migrations, self.max_migration_cost)
        for name, cap in self.caps.items():
            if not (np.asarray(cap, dtype=float) >= 0).all():
                raise LimitsError.negative(f"the cap on {name!r}", float(np.min(cap)), "the unit of the resource")
        for name in ("table_max", "max_migrations"):
            value = getattr(self, name)
            if value is not None and int(value) != value:
                raise LimitsError.parameter("limits", name, "a whole number", value)

    @property
    def bounds_migration(self) -> bool:
        return self.max_migrations is not None or self.max_migration_cost is not None


class Reason(IntEnum):
    """Why a unit moves, or does not; the texts are in ``REASONS``."""

    OVERLOAD = 0
    EXCHANGE = 1
    HOME = 2
    DRAIN = 3
    FILL = 4
    REPACK = 5
    LEVEL = 6
    COLLOCATE = 7
    MIGRATION_LIMIT = 8
    TABLE_LIMIT = 9
    WORSE = 10
    IN_TURN = 11


REASONS: Mapping[Reason, str] = {
    Reason.OVERLOAD: "slot {source} is {source_off} the mean; slot {target}, {target_off}, has room",
    Reason.EXCHANGE: "makes room in slot {source} for a heavier key; slot {target}, {target_off}, takes it",
    Reason.HOME: "goes back to the slot its hash names and frees an entry of the routing table",
    Reason.DRAIN: "slot {source} is draining",
    Reason.FILL: "slot {target} is {target_off} the mean; slot {source}, {source_off}, can spare it",
    Reason.REPACK: "all keys are packed anew, the heaviest first, each into the least loaded slot",
    Reason.LEVEL: "brings slot {source}, {source_off}, and slot {target}, {target_off}, closer to the mean",
    Reason.COLLOCATE: "joins the units it exchanges data with in slot {target}",
    Reason.MIGRATION_LIMIT: "would help, but the limit on migration is reached",
    Reason.TABLE_LIMIT: "would help, but the routing table is full",
    Reason.WORSE: "with the moves that the limits leave, the balance would be worse than it is",
    Reason.IN_TURN: "slot {source}, {source_off} before the plan, gives it up; slot {target}, {target_off} before, has "
    "room once others have left it",
}


@dataclass(frozen=True, slots=True)
class Move:
    """One unit that changes slot. ``key`` is None where a whole key group moves."""

    key: object | None
    group: int
    operator: str
    source: int
    target: int
    cost: float
    state_bytes: float
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Naming:
    """What moves are called: how units are labelled, and the loads their reasons speak of.

    ``first_key_row``: rows of moves from here on are those of listed keys, counted from here; below it, whole groups.
    """

    first_key_row: int
    label: Callable[[int], object]
    operators: tuple[str, ...]
    loads: F64
    mean: float


@dataclass(frozen=True, slots=True, eq=False)
class Moves(Sequence[Move]):
    """Moves, or refused moves, held by column: a plan may have a million. Items are made when asked for."""

    rows: I64
    group: I32
    operator: I32
    source: I32
    target: I32
    cost: F64
    state_bytes: F64
    reason: I8
    naming: Naming
    notes: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Move: ...
    @overload
    def __getitem__(self, index: slice) -> list[Move]: ...
    def __getitem__(self, index: int | slice) -> Move | list[Move]:
        if isinstance(index, slice):
            return [self._move(at) for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._move(index % len(self))

    def __iter__(self) -> Iterator[Move]:
        return (self._move(at) for at in range(len(self)))

    def _move(self, at: int) -> Move:
        row, source, target = int(self.rows[at]), int(self.source[at]), int(self.target[at])
        first = self.naming.first_key_row
        return Move(
            key=self.naming.label(row - first) if row >= first else None,
            group=int(self.group[at]),
            operator=self.naming.operators[int(self.operator[at])],
            source=source,
            target=target,
            cost=float(self.cost[at]),
            state_bytes=float(self.state_bytes[at]),
            reason=self.notes.get(row) or self._reason(int(self.reason[at]), source, target),
        )

    def _reason(self, code: int, source: int, target: int) -> str:
        """The text of a reason. Loads are those before the plan; where they alone do not explain a move, because other
        moves come before it, the text says so."""
        from_share, to_share = self._share(source), self._share(target)
        reason = Reason(code)
        later = (reason == Reason.OVERLOAD and to_share >= 0) or (reason == Reason.FILL and to_share >= 0)
        if later or (reason == Reason.OVERLOAD and from_share < 0):
            reason = Reason.IN_TURN
        return REASONS[reason].format(
            source=source, target=target, source_off=_off(from_share), target_off=_off(to_share)
        )

    def _share(self, slot: int) -> float:
        """How far the slot is off the mean before the plan, as a share of the mean."""
        return float(self.naming.loads[slot] / self.naming.mean - 1) if self.naming.mean else 0.0


def _off(share: float) -> str:
    return f"{abs(share):.1%} {'over' if share >= 0 else 'under'}"


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """What a plan gains and costs.

    ``bound`` is a proven lower bound on the load distance that any plan under the same limits can reach, where the
    planner has one, and ``gap`` how far the plan may be from the best: (reached - bound) / reached, 0 when proven best.
    """

    before: Balance
    after: Balance
    table_before: int
    table_size: int
    migrated_state: float
    migrated_share: float
    bound: float | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        if self.bound is None:
            return None
        reached = self.after.load_distance
        return max(0.0, reached - self.bound) / reached if reached > 0 else 0.0

    @property
    def is_proven(self) -> bool:
        """Whether no plan under the same limits has a smaller load distance, up to the tolerance of the solver."""
        return self.gap is not None and (self.gap == 0 or bool(self.details.get("proven", 0.0)))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A new assignment, the moves that lead to it, and those refused, with the reasons."""

    planner: str
    assignment: Assignment
    moves: Moves
    refused: Moves
    figures: Figures

    @property
    def changes_nothing(self) -> bool:
        return len(self.moves) == 0
