"""The race: one stream, several planners, each with an assignment of its own.

    interval          i                                   i + 1
    data              ──────── counts of i ────────────│──────── counts of i + 1 ────────
    each planner      skew under the plan of i - 1     │  skew under the plan of i
                      then plans on i                  │  then plans on i + 1

So a planner is judged on data it has not seen. Every planner gets the same data. The stream fluctuates with respect to
a random partition of the keys that nobody's placement follows: if it followed plain hashing, planners that leave most
keys at home would be hit harder than those that scatter them, for no merit of the latter.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headgate.arrays import F64, I32, I64
from headgate.cli.runs import build
from headgate.planners import Limits, Planner
from headgate.planners.plan import TABLE_MAX, THETA_MAX
from headgate.routing import Assignment
from headgate.stats import Snapshot, StateWindow, measure
from headgate.workloads import ZipfStream

STATE_WINDOW = 5
"""Intervals whose state a key carries: S(k, w) with w = 5 (mixed-routing, table II)."""

BYTES_PER_TUPLE = 100
"""What a tuple leaves in the state; a unit for the picture, no result depends on it."""

MIGRATION_SHARE = 0.10
"""State that planners which hold a limit on migration may move per interval: without any limit MILP, which looks at
balance only, would move nearly everything each time, and its paper (albic, 4.3.1) never runs it so."""

TIME_LIMIT_SECONDS = 0.2
"""What an optimising planner may search per interval, so that fifty of them stay well under a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is raced on: the stream, which changes every ``every`` intervals, and the limits.

    A stream that changed by this much in each interval would leave every plan stale before its first use; there is
    nothing to be won by planning then, and ``every=1`` shows it.
    """

    keys: int = 10_000
    slots: int = 15
    z: float = 0.85
    fluctuation: float = 1.0
    every: int = 5
    theta_max: float = THETA_MAX
    table_max: int = TABLE_MAX
    seed: int = 0


@dataclass(slots=True, eq=False)
class Racer:
    """One planner on its way: its present assignment, and one figure per interval of each kind.

    ``skew`` is under the plan made before the interval, ``planned`` under the one made from it: what the planner aimed
    at, and would have if the stream stood still.
    """

    planner: Planner
    assignment: Assignment
    skew: list[float] = field(default_factory=list)
    planned: list[float] = field(default_factory=list)
    migrated: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.planner.name

    @property
    def judged(self) -> Sequence[float]:
        """The skew of the intervals that had a plan: all but the first, which is plain hashing for everybody."""
        return self.skew[1:] or self.skew

    @property
    def mean_skew(self) -> float:
        return float(np.mean(self.judged))

    @property
    def mean_migrated(self) -> float:
        return float(np.mean(self.migrated))

    def take(self, snapshot: Snapshot, limits: Limits) -> None:
        """One interval: be measured on it, then plan for the next."""
        self.skew.append(measure(snapshot, self.assignment).max_over_mean)
        start = time.perf_counter()
        plan = self.planner.plan(snapshot, self.assignment, limits)
        self.seconds.append(time.perf_counter() - start)
        self.planned.append(plan.figures.after.max_over_mean)
        self.migrated.append(plan.figures.migrated_share)
        self.assignment = plan.assignment


class Race:
    """Planners side by side over a stream; ``step`` runs one interval."""

    def __init__(self, names: Sequence[str], setting: Setting) -> None:
        self.setting = setting
        hashed = Assignment.hashed(setting.slots)
        parameters = {"seed": setting.seed}
        planners = [build(name, parameters=parameters) for name in names]
        self.racers = [Racer(planner, hashed) for planner in planners]
        self._stream = ZipfStream(keys=setting.keys, z=setting.z, fluctuation=setting.fluctuation, seed=setting.seed)
        keys = np.arange(setting.keys)
        self._snapshot = Snapshot.of_keys(keys, np.zeros(setting.keys))
        self._counts: I64 = np.zeros(setting.keys, dtype=np.int64)
        self._window = StateWindow(STATE_WINDOW)
        part = np.random.default_rng(setting.seed + 1).permutation(setting.keys) % setting.slots
        self._part_of_key: I32 = part.astype(np.int32)
        self._limits = Limits(
            theta_max=setting.theta_max, table_max=setting.table_max, time_limit_seconds=TIME_LIMIT_SECONDS
        )

    @property
    def intervals(self) -> int:
        return len(self.racers[0].skew) if self.racers else 0

    def step(self) -> None:
        """The next interval, for every planner."""
        if self.intervals % self.setting.every == 0:
            self._counts = self._stream.next(self._part_of_key, self.setting.slots)
        cost: F64 = self._counts.astype(np.float64)
        self._window = self._window.push(self._snapshot.hash, BYTES_PER_TUPLE * cost)
        state = self._window.state_of(self._snapshot.hash)
        snapshot = replace(self._snapshot, cost=cost, tuples=self._counts, state_bytes=state, interval=self.intervals)
        budget = replace(self._limits, max_migration_cost=MIGRATION_SHARE * float(state.sum()))
        for racer in self.racers:
            racer.take(snapshot, budget if racer.planner.holds_migration else self._limits)
