"""Running planners: from names and options to plans, with the time each took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from headgate.cli.placement import SINGLE_ROWS, Placement
from headgate.errors import HeadgateError, InputError, SnapshotError
from headgate.planners import PLANNERS, Grain, Limits, Plan, Planner
from headgate.routing import Assignment
from headgate.stats import Snapshot, Traffic
from headgate.stats.measures import Balance

ALL = "all"
"""The planner name that stands for every planner."""

FLAGS = {
    "theta_max": "--theta",
    "table_max": "--table-max",
    "max_migrations": "--max-migrations",
    "max_migration_cost": "--max-migration-cost",
    "time_limit_seconds": "--time-limit",
}
"""Limits, and the options that set them."""

GrainChoice = Literal["auto", "key", "group"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of one planner: a plan and the seconds it took, or the reason why there is none.

    ``warnings`` are for a plan looked at by itself, ``notes`` for one among others: what the figures show is left out.
    """

    planner: str
    plan: Plan | None = None
    grain: Grain = "key"
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fault: str | None = None


def planner_names(text: str) -> list[str]:
    """``mixed`` or ``all`` or ``mixed,milp`` -> names. Raises ``InputError`` for a name nobody has."""
    names = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if names == [ALL]:
        return list(PLANNERS)
    if ALL in names:
        raise InputError(f"{ALL} stands for every planner and alone, got {text!r}: write {ALL}, or names without it")
    unknown = [name for name in names if name not in PLANNERS]
    if unknown or not names:
        got = ", ".join(unknown) or repr(text)
        raise InputError(f"there is no planner {got}: choose {ALL} or one of {', '.join(PLANNERS)}")
    return names


def build(
    name: str,
    *,
    parameters: Mapping[str, object],
    grain: GrainChoice = "auto",
    rows: int | None = None,
    repeatable: bool = False,
) -> Planner:
    """The planner of that name with those of the parameters that it has.

    A grain of "auto" is the planner's own, except that few ``rows`` are always planned key by key. ``repeatable``: a
    fixed number of steps stands for the time limit, so that how fast the machine is does not matter.
    """
    cls = PLANNERS[name]
    known = {field.name: field for field in fields(cls)}
    chosen = {key: value for key, value in parameters.items() if key in known}
    if "clock" in known and not repeatable:
        chosen["clock"] = time.perf_counter
    if grain != "auto":
        chosen["grain"] = grain
    elif rows is not None and rows <= SINGLE_ROWS:
        chosen["grain"] = "key"
    return cls(**chosen)  # type: ignore[arg-type]  # filtered by the fields of the class


WARM_KEYS = 200
"""Keys of the warm-up: enough that the MILP goes on from the exact solver to its search."""


def warm_up(planners: Sequence[Planner], limits: Limits | None = None) -> None:
    """Let every planner compile what it needs on a few keys, so that its seconds, and the seconds of a time limit, are
    those of planning. ``limits``: the real ones, because what bounds migration is compiled as well."""
    cost = np.arange(float(WARM_KEYS), 0.0, -1.0) ** 2
    traffic = Traffic.of(range(WARM_KEYS - 1), range(1, WARM_KEYS), np.ones(WARM_KEYS - 1))
    snapshot = Snapshot.of_keys(np.arange(WARM_KEYS), cost, groups=64, traffic=traffic)
    short = Limits(time_limit_seconds=0.1)
    if limits is not None and limits.max_migrations is not None:
        short = replace(short, max_migrations=1)
    elif limits is not None and limits.max_migration_cost is not None:
        short = replace(short, max_migration_cost=float(cost.max()))
    for planner in planners:
        try:
            planner.plan(snapshot, Assignment.hashed(3, 64), short)
        except HeadgateError:  # the real input says it again
            continue


def run(
    planners: Sequence[Planner],
    placement: Placement,
    limits: Limits,
    *,
    keep_going: bool = False,
    started: Callable[[str], None] = lambda name: None,
) -> list[Outcome]:
    """Plan with each. With ``keep_going`` a planner that cannot run on this input gives the reason instead of raising;
    input that no planner can use raises all the same."""
    outcomes = []
    faults: list[HeadgateError] = []
    for planner in planners:
        started(planner.name)
        start = time.perf_counter()
        try:
            plan = planner.plan(placement.snapshot, placement.assignment, limits)
        except HeadgateError as error:
            fault = _in_options(error, placement)
            faults.append(fault)
            outcomes.append(Outcome(planner.name, grain=planner.grain, fault=str(fault)))
            continue
        seconds = time.perf_counter() - start
        notes = tuple(map(in_flags, plan.figures.warnings))
        warnings = (*notes, *_out_of_reach(plan, placement, limits))
        outcomes.append(Outcome(planner.name, plan, planner.grain, seconds, warnings, notes))
    if faults and (not keep_going or len(faults) == len(planners)):
        raise faults[0]
    return outcomes


def in_flags(text: str) -> str:
    """What the library calls ``table_max = 3`` is ``--table-max 3`` on the command line."""
    for name, flag in FLAGS.items():
        text = text.replace(f"{name} = ", f"{flag} ")
    return text


def _in_options(error: HeadgateError, placement: Placement) -> HeadgateError:
    """The same fault in words of the command line: there, traffic is a file that nobody named."""
    told, what, _ = str(error).partition(" needs traffic between ")
    if not (what and isinstance(error, SnapshotError)) or placement.snapshot.key_traffic is not None:
        return error
    return SnapshotError(
        f"{told.split()[0]} needs traffic between keys, and none was given: give --traffic FILE with the columns src, "
        "dst and rate, or choose another planner"
    )


def _out_of_reach(plan: Plan, placement: Placement, limits: Limits) -> list[str]:
    """Say that balance was not reached and what to do; nothing where a single key is to blame, the plan says so."""
    after, snapshot = plan.figures.after, placement.snapshot
    if after.theta_max <= limits.theta_max or not len(snapshot):
        return []
    strongest = 1.0 if snapshot.capacity is None else float(snapshot.capacity.max())
    if float(snapshot.cost.max()) / strongest / after.mean - 1 > limits.theta_max:
        return []
    if plan.planner == "hash":
        advice = "hashing does not look at the load"
    elif len(plan.refused):
        advice = f"{len(plan.refused):,} moves were refused, see the reasons"
    else:
        advice = f"{plan.planner} found no better placement under these limits; compare with --planner {ALL}"
    return [f"theta is {after.theta_max:.3f} after the plan, above --theta {limits.theta_max:g}: {advice}"]


def relative_loads(balance: Balance) -> list[float]:
    """How far each slot is off the mean, as a share of it; 0 where there is no load at all."""
    return [float(load / balance.mean - 1) if balance.mean else 0.0 for load in balance.loads]
