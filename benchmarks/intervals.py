"""One planner through many intervals of the papers' synthetic stream, every plan timed and checked.

    interval   keys change hands  ->  statistics  ->  plan  ->  the plan is applied
                                                      ^ timed, checked, recorded

A plan is judged on the statistics it was made from, as in mixed-routing: migration cost, generation time and table size
belong to the interval whose imbalance the plan removes. Each planner lives on with its own assignment, and the stream
fluctuates against that, so two planners that start alike see different streams later.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headgate.arrays import I32, I64
from headgate.planners import Limits, MinMig, MinTable, Mixed, Plan, Planner
from headgate.routing import key_hash
from headgate.routing.assignment import Assignment
from headgate.routing.groups import GROUPS, group_of
from headgate.stats import Snapshot, StateWindow
from headgate.workloads import ZipfStream

SLOTS, WINDOW, FLUCTUATION, EXPONENT = 15, 5, 1.0, 0.85
"""mixed-routing, table II: the defaults of N_D, w, f and z."""

CLOCK = time.process_time
"""Planners run on one thread: its processor time leaves out what other programs do meanwhile."""

LEVELLING = (Mixed, MinTable, MinMig)
"""Planners that must reach theta_max unless the plan says why not: a key too hot, or moves refused by a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A stream and the slots it flows to. Every tuple costs 1 and leaves 1 unit of state for ``window`` intervals."""

    keys: int
    slots: int = SLOTS
    window: int = WINDOW
    fluctuation: float = FLUCTUATION
    z: float = EXPONENT
    groups: int = GROUPS
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known when an interval ends: its statistics and the assignment they were taken under."""

    snapshot: Snapshot
    assignment: Assignment
    places: I32


@dataclass(frozen=True, slots=True)
class Step:
    """One adjustment."""

    seconds: float
    twin_seconds: float
    migrated_percent: float
    table_size: int
    theta_before: float
    theta: float
    moves: int
    is_reached: bool
    is_possible: bool


@dataclass(frozen=True, slots=True)
class Course:
    """The adjustments of one planner that count, those of several runs one after the other."""

    steps: tuple[Step, ...]

    def __add__(self, other: Course) -> Course:
        return Course(self.steps + other.steps)

    @property
    def milliseconds(self) -> float:
        """The median generation time."""
        return 1000 * statistics.median(step.seconds for step in self.steps)

    @property
    def twin_milliseconds(self) -> float:
        """The median generation time of the twin, where there was one."""
        return 1000 * statistics.median(step.twin_seconds for step in self.steps if step.twin_seconds >= 0)

    @property
    def migrated_percent(self) -> float:
        """The mean migration cost: the share of all state that moves in an adjustment."""
        return statistics.fmean(step.migrated_percent for step in self.steps)

    @property
    def table_size(self) -> float:
        """The mean number of entries of the routing table."""
        return statistics.fmean(step.table_size for step in self.steps)

    @property
    def table_peak(self) -> int:
        """The most entries the routing table had."""
        return max(step.table_size for step in self.steps)

    @property
    def moves(self) -> float:
        """The mean number of keys that move in an adjustment."""
        return statistics.fmean(step.moves for step in self.steps)

    @property
    def theta(self) -> float:
        """The mean theta after an adjustment."""
        return statistics.fmean(step.theta for step in self.steps)

    @property
    def missed_percent(self) -> float:
        """How often theta_max was not reached."""
        return 100 * statistics.fmean(not step.is_reached for step in self.steps)


@lru_cache(maxsize=2)
def hashes_of(keys: int) -> I64:
    """The hashes of this many keys, ascending: key i of the stream is the i-th of them."""
    return np.sort(key_hash(np.arange(keys)))


class Flow:
    """A stream under way: gives the statistics of the next interval, and takes the assignment from then on."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.hashes = hashes_of(setting.keys)
        self.group = group_of(self.hashes, setting.groups)
        self.operator = np.zeros(setting.keys, dtype=np.int32)
        self.assignment = Assignment.hashed(setting.slots, setting.groups)
        self.stream = ZipfStream(keys=setting.keys, z=setting.z, fluctuation=setting.fluctuation, seed=setting.seed)
        self.window = StateWindow(setting.window)

    def next(self) -> Interval:
        """The next interval, under the assignment held now."""
        places = self.assignment.route(self.hashes)
        counts = self.stream.next(places, self.setting.slots)
        cost = counts.astype(np.float64)
        self.window = self.window.push(self.hashes, cost)
        snapshot = Snapshot(
            hash=self.hashes,
            operator=self.operator,
            group=self.group,
            cost=cost,
            tuples=counts,
            state_bytes=self.window.state_of(self.hashes),
            groups=self.setting.groups,
        )
        return Interval(snapshot, self.assignment, places)


def follow(
    planner: Planner, limits: Limits, setting: Setting, *, warm: int, measured: int, twin: Planner | None = None
) -> Course:
    """Let a planner adjust ``warm`` times, then ``measured`` times that count. See ``steps`` for the twin."""
    return Course(tuple(steps(planner, limits, setting, warm=warm, measured=measured, twin=twin)))


def steps(
    planner: Planner, limits: Limits, setting: Setting, *, warm: int, measured: int, twin: Planner | None = None
) -> Iterator[Step]:
    """Adjust after every interval and yield those after the first ``warm``. A ``twin`` plans the measured intervals as
    well and must come to the same loads (of two keys that cost the same it may choose the other): its time counts."""
    flow = Flow(setting)
    for number in range(warm + measured):
        interval = flow.next()
        start = CLOCK()
        plan = planner.plan(interval.snapshot, interval.assignment, limits)
        seconds = CLOCK() - start
        is_reached, is_possible = check(planner, plan, interval, limits)
        flow.assignment = plan.assignment
        if number < warm:
            continue
        twin_seconds = float("nan")
        if twin is not None:
            start = CLOCK()
            other = twin.plan(interval.snapshot, interval.assignment, limits)
            twin_seconds = CLOCK() - start
            same = np.allclose(other.figures.after.loads, plan.figures.after.loads)
            assert same, f"{twin} and {planner} should come to the same loads"
        yield Step(
            seconds=seconds,
            twin_seconds=twin_seconds,
            migrated_percent=100 * plan.figures.migrated_share,
            table_size=plan.figures.table_size,
            theta_before=plan.figures.before.theta_max,
            theta=plan.figures.after.theta_max,
            moves=len(plan.moves),
            is_reached=is_reached,
            is_possible=is_possible,
        )


def check(planner: Planner, plan: Plan, interval: Interval, limits: Limits) -> tuple[bool, bool]:
    """Assert that no key is lost, none moves unsaid, the table holds and theta_max is reached where it can be.

    Whether theta_max was reached, and whether it could be: not if one key is too hot for any placement.
    """
    snapshot, figures = interval.snapshot, plan.figures
    after = plan.assignment.route(snapshot.hash)
    moved = np.array(interval.places)
    moved[plan.moves.rows] = plan.moves.target
    assert np.array_equal(after, moved), "the new assignment is not the old one with the moves made"
    assert 0 <= after.min() <= after.max() < plan.assignment.slots, "a key has no slot"
    loads = np.bincount(after, snapshot.cost, minlength=plan.assignment.slots)
    assert np.allclose(loads, figures.after.loads), "the loads are not those the plan promised"
    assert figures.table_size == len(plan.assignment.pins)
    if planner.controls_table and limits.table_max is not None:
        assert figures.table_size <= limits.table_max, "the routing table is longer than allowed"
    is_reached = figures.after.theta_max <= limits.theta_max + 1e-9
    is_possible = not any("no placement can bring theta" in warning for warning in figures.warnings)
    if isinstance(planner, LEVELLING) and is_possible and not len(plan.refused):
        assert is_reached, f"{planner.name} left theta at {figures.after.theta_max:.4f}, over {limits.theta_max}"
    return is_reached, is_possible
