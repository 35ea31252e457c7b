"""albic, Figures 2 to 5: the MILP against Flux, and scaling in together with balancing.

    python benchmarks/albic_solver_figures.py [--figure 2|3|4|5|all] [--quick]

Figures 2-4: load distance after one plan, for three cluster sizes, over ``varies`` and over maxMigrations; Flux, and
the MILP with several time limits. Figure 5: ten of sixty nodes are to be removed while one (1OL) or five (5OL) of the
others are fully loaded; the integrated MILP against scaling in first and balancing afterwards.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from headgate.arrays import I32
from headgate.planners import MILP, Flux, Limits, Plan
from headgate.routing import Assignment
from headgate.stats import Snapshot, measure
from headgate.workloads.clusters import NODE_LOAD, Cluster, cluster
from reporting import RESULTS, Claim, Report, Table, finish, panels

SIZES = {2: (20, 400, 10), 3: (40, 800, 20), 4: (60, 1200, 30)}
VARIES = (10, 20, 30, 40, 50)
MIGRATIONS = (10, 20, 30, 40, 50)
DEFAULT_VARIES, DEFAULT_MIGRATIONS = 30, 20
REMOVED = 10
"""albic 5.1: nodes marked for removal in Figure 5."""
FULL = 100.0
"""albic 5.1: the load, in percentage points, of the overloaded nodes of Figure 5."""


def planned(problem: Cluster, migrations: int, seconds: float | None) -> Plan:
    """Flux without seconds, the MILP with them; the limits are checked."""
    planner = Flux() if seconds is None else MILP(clock=time.perf_counter)
    limits = Limits(theta_max=0, max_migrations=migrations, time_limit_seconds=seconds or 0.0)
    plan = planner.plan(problem.snapshot, problem.assignment, limits)
    assert len(plan.moves) <= migrations
    assert plan.figures.after.load_distance <= plan.figures.before.load_distance + 1e-9
    return plan


@dataclass(frozen=True)
class Point:
    """Mean load distances of a setting: by Flux (None) and by the MILP after so many seconds."""

    varies: int
    migrations: int
    distance: dict[float | None, float]


def measured(size: tuple[int, int, int], varies: int, migrations: int, options: argparse.Namespace) -> Point:
    distance: dict[float | None, list[float]] = {None: [], **{seconds: [] for seconds in options.seconds}}
    for seed in range(options.seed, options.seed + options.instances):
        problem = cluster(*size, varies=varies, seed=seed)
        for seconds, values in distance.items():
            values.append(planned(problem, migrations, seconds).figures.after.load_distance)
        for seconds in options.seconds:
            assert distance[seconds][-1] <= distance[None][-1] + 1e-9, "the MILP is worse than Flux"
    return Point(varies, migrations, {seconds: fmean(values) for seconds, values in distance.items()})


def solver_figure(number: int, options: argparse.Namespace) -> Report:
    size = SIZES[number]
    by_varies, by_migrations = [], []
    for varies in VARIES:
        by_varies.append(measured(size, varies, DEFAULT_MIGRATIONS, options))
        print(f"figure {number}: varies {varies} done", flush=True)
    for migrations in MIGRATIONS:
        by_migrations.append(measured(size, DEFAULT_VARIES, migrations, options))
        print(f"figure {number}: maxMigrations {migrations} done", flush=True)
    points = by_varies + by_migrations
    first, last = options.seconds[0], options.seconds[-1]
    better = all(point.distance[first] < point.distance[None] for point in points)
    gain = [point.distance[None] / max(point.distance[first], 1e-9) for point in points]
    late = [(point.distance[first] - point.distance[last]) / NODE_LOAD for point in points]
    figure, axes = panels(2, f"{size[0]} nodes, {size[1]} key groups. The paper: the MILP is below Flux throughout.")
    for axis, series, label in (
        (axes[0], by_varies, f"varies, % (maxMigrations {DEFAULT_MIGRATIONS})"),
        (axes[1], by_migrations, f"maxMigrations (varies {DEFAULT_VARIES} %)"),
    ):
        x = [point.varies if series is by_varies else point.migrations for point in series]
        for seconds in (None, *options.seconds):
            name = "Flux" if seconds is None else f"MILP, {seconds:g} s"
            axis.plot(x, [point.distance[seconds] for point in series], marker="o", label=name)
        finish(axis, xlabel=label, ylabel="load distance, percentage points")
    columns = ("varies, %", "maxMigrations", "Flux", *(f"MILP, {seconds:g} s" for seconds in options.seconds))
    rows = [
        (p.varies, p.migrations, f"{p.distance[None]:.3f}", *(f"{p.distance[s]:.4f}" for s in options.seconds))
        for p in points
    ]
    return Report(
        name=f"albic_fig{number}",
        title=f"albic, Figure {number}: {size[0]} nodes, {size[1]} key groups, {size[2]} operators",
        setup="Load distance after one plan, in percentage points of a node's load (mean 50); means over "
        f"{options.instances} clusters.",
        claims=[
            Claim(
                "the MILP consistently outperforms Flux, after just a few seconds",
                f"after {first:g} s, {min(gain):.1f} to {max(gain):.1f} times smaller",
                better,
            ),
            Claim(
                "it converges within a few seconds and improves only slightly after that",
                f"from {first:g} s to {last:g} s the distance falls by at most {max(late):.2%} of the mean load",
                max(late) <= 0.005,
            ),
        ],
        tables=[Table(columns, rows)],
        parameters={"seconds": list(options.seconds), "clusters": options.instances},
        seed=options.seed,
        picture=figure,
    )


@dataclass(frozen=True)
class Course:
    """Load distance, and key groups left on the nodes to be removed, period by period."""

    distance: list[float]
    left: list[int]

    def periods_until(self, distance: float) -> int:
        """The first period from which on the distance stays below this."""
        above = [period for period, value in enumerate(self.distance) if value > distance]
        return above[-1] + 1 if above else 0

    @property
    def periods_until_empty(self) -> int:
        """The first period with nothing left on the nodes to be removed."""
        return next((period for period, left in enumerate(self.left) if left == 0), len(self.left))


def overloaded(nodes: int, seed: int) -> tuple[Snapshot, Assignment]:
    """The largest cluster; the last ten nodes are to go, ``nodes`` of the others are at 100 %."""
    problem = cluster(*SIZES[4], varies=0, seed=seed)
    assignment = problem.assignment
    load = np.array(problem.snapshot.group_cost())
    for node in range(nodes):
        mine = assignment.groups == node
        load[mine] *= FULL / load[mine].sum()
    going = range(assignment.slots - REMOVED, assignment.slots)
    return replace(problem.snapshot, rest_cost=load), assignment.drain(*going)


def integrated(snapshot: Snapshot, assignment: Assignment, seconds: float) -> Assignment:
    limits = Limits(theta_max=0, max_migrations=DEFAULT_MIGRATIONS, time_limit_seconds=seconds)
    plan = MILP(clock=time.perf_counter).plan(snapshot, assignment, limits)
    assert len(plan.moves) <= DEFAULT_MIGRATIONS
    assert all(move.target not in assignment.draining for move in plan.moves)
    return plan.assignment


def scale_in_first(snapshot: Snapshot, assignment: Assignment, seconds: float) -> Assignment:
    """Move key groups off the nodes to be removed, evenly to the others; balance only when those are empty."""
    going = np.flatnonzero(np.isin(assignment.groups, list(assignment.draining)))[:DEFAULT_MIGRATIONS]
    if not len(going):
        return integrated(snapshot, assignment, seconds)
    open_slots = np.flatnonzero(assignment.open_slots)
    groups: I32 = np.array(assignment.groups)
    sizes = np.bincount(groups, minlength=assignment.slots)
    for group in going:
        target = open_slots[np.argmin(sizes[open_slots])]
        groups[group] = target
        sizes[target] += 1
    return assignment.next(groups=groups)


def scaling_figure(options: argparse.Namespace) -> Report:
    courses: dict[str, Course] = {}
    for nodes in (1, 5):
        for name, step in (("integrated", integrated), ("scale-in first", scale_in_first)):
            snapshot, assignment = overloaded(nodes, options.seed)
            course = Course([], [])
            for _ in range(options.periods + 1):
                course.distance.append(measure(snapshot, assignment).load_distance)
                course.left.append(int(np.isin(assignment.groups, list(assignment.draining)).sum()))
                assignment = step(snapshot, assignment, options.seconds[0])
            courses[f"{name}, {nodes}OL"] = course
            print(f"figure 5: {name}, {nodes}OL done", flush=True)
    figure, axes = panels(2, "60 nodes, 10 to be removed, 20 migrations a period. The paper: integrated, a good load "
                             "distance is reached much sooner, and scaling in takes about as long.")  # fmt: skip
    for name, course in courses.items():
        style = "-" if name.startswith("integrated") else "--"
        axes[0].plot(course.distance, style, label=name)
        axes[1].plot(course.left, style, label=name)
    finish(axes[0], xlabel="adaptation period", ylabel="load distance, percentage points")
    finish(axes[1], xlabel="adaptation period", ylabel="key groups on the nodes to be removed")
    good = 0.1 * NODE_LOAD
    sooner = [
        (courses[f"integrated, {n}OL"].periods_until(good), courses[f"scale-in first, {n}OL"].periods_until(good))
        for n in (1, 5)
    ]
    empty = [
        (courses[f"integrated, {n}OL"].periods_until_empty, courses[f"scale-in first, {n}OL"].periods_until_empty)
        for n in (1, 5)
    ]
    mean = {name: fmean(course.distance) for name, course in courses.items()}
    rows = [
        (
            name,
            f"{mean[name]:.2f}",
            f"{course.distance[-1]:.3f}",
            course.periods_until(good),
            course.periods_until_empty,
        )
        for name, course in courses.items()
    ]
    return Report(
        name="albic_fig5",
        title="albic, Figure 5: scaling in together with balancing",
        setup=f"{SIZES[4][0]} nodes, {SIZES[4][1]} key groups, {REMOVED} nodes to be removed, 1 or 5 of the others at "
        f"{FULL:g} % load, {DEFAULT_MIGRATIONS} migrations a period, {options.seconds[0]:g} s a plan.",
        claims=[
            Claim(
                f"a good load distance (here: {good:g} points) is reached much faster when integrated",
                "; ".join(f"{n}OL: period {a} against {b}" for n, (a, b) in zip((1, 5), sooner, strict=True)),
                all(a < b for a, b in sooner),
            ),
            Claim(
                "scaling in completes within a similar time",
                "; ".join(f"{n}OL: period {a} against {b}" for n, (a, b) in zip((1, 5), empty, strict=True)),
                all(a <= 1.5 * b for a, b in empty),
                "Most key groups leave about as fast, but the last few only one a plan: by then emptying the nodes no "
                "longer lowers the load distance, which comes first in the model.",
            ),
        ],
        tables=[
            Table(("run", "mean distance", "last distance", "good from period", "nodes empty at period"), rows),
        ],
        parameters={"periods": options.periods},
        seed=options.seed,
        picture=figure,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", choices=["2", "3", "4", "5", "all"], default="all")
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.5, 2.0, 5.0], help="time limits of the MILP")
    parser.add_argument("--instances", type=int, default=2, help="clusters per point")
    parser.add_argument("--periods", type=int, default=16, help="adaptation periods of Figure 5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one cluster per point, a tenth of a second a plan")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.instances = [0.1, 0.2], 1
    planned(cluster(4, 40, 1, varies=30), 5, 0.05)  # compile before the clock runs
    for number in (2, 3, 4):
        if options.figure in ("all", str(number)):
            print(solver_figure(number, options).write(options.out))
    if options.figure in ("all", "5"):
        print(scaling_figure(options).write(options.out))


if __name__ == "__main__":
    main()
