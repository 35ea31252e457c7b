"""What the figures of mixed-routing share: how much is run, a parameter swept by several planners, tables, pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate.planners import Limits, MinTable, Mixed, Planner
from headgate.planners.minmig import BETA
from headgate.planners.plan import TABLE_MAX, THETA_MAX
from headgate.routing.groups import GROUPS
from intervals import (
    EXPONENT,
    FLUCTUATION,
    SLOTS,
    WINDOW,
    Course,
    Setting,
    follow,
)
from reporting import Table, finish, panels

MUCH = 1.5
"""The factor from which on a cost is "much" lower here."""

LARGE_MARGIN = 3.0
"""The factor from which on a planner is faster "by a large margin" here."""

ORDER_OF_MAGNITUDE = 10.0

TRIES = 64
"""Values of n that Mixed_BF tries at most: all of them would take N_A runs a plan."""

WARM = 5
"""Adjustments that do not count, so that compilation, and a window of 5 not yet full, do not."""

NOISE = 0.15
"""A series of times, or of costs of a few adjustments, may go back by this share and still rise or fall."""

STABLE = 1.25
"""The factor between the largest and the smallest value up to which a series is "stable" here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is run: keys, keys where the paper's 10^6 matter, adjustments that count for each, and so on."""

    keys: int
    large: int
    measured: int
    measured_large: int
    runs: int
    adjustments: int
    repeats: int
    quick: bool
    seed: int
    out: Path

    def thin(self, values: Sequence[Any]) -> Sequence[Any]:
        """All values; a quick run takes the first, the middle and the last."""
        return values if not self.quick else [values[0], values[len(values) // 2], values[-1]]


Case = tuple[Planner, Limits, Setting]
Lines = dict[str, dict[float, Course]]


def sweep(
    scale: Scale,
    figure: str,
    values: Sequence[float],
    lines: Mapping[str, Callable[[Any], Case]],
    *,
    measured: int,
    warm: int = WARM,
    runs: int | None = None,
) -> Lines:
    """Each line's course at each value, those of several runs with their own seeds joined."""
    courses: Lines = {name: {} for name in lines}
    runs = runs or scale.runs
    for run in range(runs):  # the outer loop, so that a machine that slows down meanwhile does so for every value
        for value in values:
            start = time.perf_counter()
            for name, case in lines.items():
                planner, limits, setting = case(value)
                setting = replace(setting, seed=setting.seed + run)
                length = max(warm, setting.window) if warm else 0
                course = follow(planner, limits, setting, warm=length, measured=measured)
                courses[name][value] = courses[name][value] + course if run else course
            seconds = time.perf_counter() - start
            print(f"  figure {figure}: {value:g}, run {run + 1} of {runs}, done in {seconds:.1f} s", flush=True)
    return courses


def by_window(make: Callable[[Any, int], tuple[Limits, Setting]], windows: Sequence[int] = (1, 5)) -> Mapping[str, Any]:
    """The four lines of figures 8 to 10: Mixed and MinTable, each with a short and a long window."""

    def line(planner: Planner, window: int) -> Callable[[Any], Case]:
        return lambda value: (planner, *make(value, window))

    planners = {"Mixed": Mixed(), "MinTable": MinTable()}
    return {f"{name}, w={window}": line(planner, window) for name, planner in planners.items() for window in windows}


def rows_of(lines: Lines) -> Table:
    """Every course of every line."""
    return Table(
        ("", "planner", "generation, ms", "migration cost, %", "keys moved", "table", "theta", "theta_max missed, %"),
        [
            (
                f"{value:g}",
                name,
                f"{course.milliseconds:.1f}",
                f"{course.migrated_percent:.2f}",
                f"{course.moves:.0f}",
                f"{course.table_size:.0f}",
                f"{course.theta:.3f}",
                f"{course.missed_percent:.0f}",
            )
            for value in next(iter(lines.values()))
            for name, course in ((name, by_value[value]) for name, by_value in lines.items())
        ],
    )


def costs(by_value: Mapping[float, Course]) -> list[float]:
    return [course.migrated_percent for course in by_value.values()]


def times(by_value: Mapping[float, Course]) -> list[float]:
    return [course.milliseconds for course in by_value.values()]


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def span(values: Sequence[float], form: str = ".2f") -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


STYLES = {"Mixed": "o", "MinTable": "s", "Mixed_BF": "^", "Readj": "D", "MinMig": "v"}


def draw(lines: Lines, caption: str, label: str, axis: str = "linear", *, log_time: bool = False) -> Any:
    """Generation time on the left, migration cost on the right."""
    picture, (left, right) = panels(2, caption)
    for number, (name, by_value) in enumerate(lines.items()):
        look: dict[str, Any] = {
            "marker": STYLES.get(name.split(",")[0].split(" ")[0], "o"),
            "linestyle": "--" if "w=1" in name else "-",
            "color": f"C{number}",
            "label": name,
        }
        left.plot(list(by_value), times(by_value), **look)
        right.plot(list(by_value), costs(by_value), **look)
    if log_time:
        left.set_yscale("log")
    finish(left, xlabel=label, ylabel="plan generation time, ms (median)", xscale=axis)
    finish(right, xlabel=label, ylabel="migration cost, % of all state (mean)", xscale=axis)
    return picture


def common(scale: Scale, **changed: object) -> dict[str, object]:
    """The parameters of the stamp."""
    defaults = {
        "K": scale.keys,
        "N_D": SLOTS,
        "w": WINDOW,
        "theta_max": THETA_MAX,
        "N_A": TABLE_MAX,
        "f": FLUCTUATION,
        "z": EXPONENT,
        "beta": BETA,
        "key groups": GROUPS,
        "runs": scale.runs,
        "measured": scale.measured,
    }
    return {**defaults, **changed}


JUDGED = (
    "Plans are judged on the statistics they were made from, as in the paper: generation time (median, processor time "
    "of the one thread that plans), migration cost (mean share of all state that moves) and table size belong to the "
    "interval whose imbalance the plan removes."
)
LONGER = (
    "Migration cost is a share of all state, which a longer window makes larger, while a key that has just become "
    "heavy carries little of it: part of what w = 5 gains is the measure."
)
IN_STEP = (
    "With w = 1 a key's state is its load of the same interval, so no planner can move less state than the excess load "
    "of the full slots."
)
SMALL_TABLE = (
    "The stream here reaches the fluctuation by a few heavy keys changing hands, so a plan needs few entries; the "
    "paper's needs thousands."
)
