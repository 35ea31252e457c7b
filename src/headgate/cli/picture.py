"""Pictures of plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headgate.cli.comparison import RunRecord
from headgate.cli.placement import Placement
from headgate.cli.race import Racer
from headgate.cli.runs import Outcome
from headgate.planners import Limits

SUFFIXES = (".png", ".svg", ".pdf")

RACE = "demo/planners.png"
"""Where the race leaves its picture; its folder is made where it is missing."""

BEFORE, AFTER, MEAN, BAND = "#b8bcc4", "#2a6fbb", "#222222", "#8fc98f"
"""Grey for what was, blue for what will be, a black line for the mean, green for what theta allows."""

MOST_TICKS = 40
"""More slot numbers than this do not fit beside each other."""

DPI = 150

LINES = ("#9a9da3", "#e39c37", "#8a63b8", "#3b9b8f", "#9ccb86", "#2a6fbb", "#c8483f", "#6b4a2f", "#d681b4", "#4a4f57")
"""One colour per planner in the order they are named; grey first, for plain hashing."""

FEATURED = ("mixed", "milp")
"""What the papers propose is drawn a little stronger than what they compare it with."""


def draw(outcomes: Outcome | Sequence[Outcome], placement: Placement, limits: Limits, path: Path) -> None:
    """One plan: loads per slot before and after. Several: theta and migrated state of each. Written to ``path``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    if isinstance(outcomes, Outcome):
        _draw_loads(figure.subplots(), outcomes, placement, limits)
    else:
        planned = [outcome for outcome in outcomes if outcome.plan is not None]
        figure.set_size_inches(10, 1.6 + 0.36 * len(planned))
        _draw_planners(figure.subplots(1, 2, sharey=True), planned, limits)
    figure.savefig(path, dpi=DPI)


def _draw_loads(axes, outcome: Outcome, placement: Placement, limits: Limits) -> None:  # type: ignore[no-untyped-def]
    if outcome.plan is None:
        return
    before, after = outcome.plan.figures.before, outcome.plan.figures.after
    slots = np.arange(len(before.loads))
    low, high = after.mean * (1 - limits.theta_max), after.mean * (1 + limits.theta_max)
    axes.axhspan(low, high, color=BAND, alpha=0.35, lw=0, label=f"within theta = {limits.theta_max:g}", zorder=0)
    axes.axhline(after.mean, color=MEAN, lw=1, ls="--", label="mean", zorder=3)
    axes.bar(slots - 0.2, before.loads, 0.4, color=BEFORE, label=f"before, theta {before.theta_max:.3f}", zorder=2)
    axes.bar(slots + 0.2, after.loads, 0.4, color=AFTER, label=f"after, theta {after.theta_max:.3f}", zorder=2)
    draining = placement.assignment.draining
    axes.set_xticks(slots[:: max(1, -(-len(slots) // MOST_TICKS))])
    axes.set_xlim(-0.7, len(slots) - 0.3)
    axes.set_ylim(0, 1.18 * max(float(before.loads.max()), float(after.loads.max()), high, 1e-12))
    for slot in draining:
        axes.annotate("drains", (slot, 0), (0, 3), textcoords="offset points", rotation=90, ha="center", fontsize=7)
    axes.set_xlabel("slot")
    axes.set_ylabel("load (cost / capacity)")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    figures = outcome.plan.figures
    axes.set_title(
        f"{outcome.planner}: {len(outcome.plan.moves):,} moves, {figures.migrated_share:.1%} of the state", loc="left"
    )
    axes.legend(ncols=4, loc="upper right", fontsize=8, frameon=False)
    _tidy(axes)


def _draw_planners(panels, outcomes: Sequence[Outcome], limits: Limits) -> None:  # type: ignore[no-untyped-def]
    rows = np.arange(len(outcomes))
    figures = [outcome.plan.figures for outcome in outcomes if outcome.plan is not None]
    theta = [each.after.theta_max for each in figures]
    share = [100 * each.migrated_share for each in figures]
    left, right = panels
    left.axvspan(0, limits.theta_max, color=BAND, alpha=0.35, lw=0, zorder=0)
    for axes, values, form in ((left, theta, "{:.3f}"), (right, share, "{:.1f}%")):
        bars = axes.barh(rows, values, 0.65, color=AFTER, zorder=2)
        axes.bar_label(bars, [form.format(value) for value in values], padding=3, fontsize=8)
        axes.set_xlim(0, 1.18 * max(*values, 1e-12) if len(values) > 1 else None)
        _tidy(axes)
    if figures:
        now = figures[0].before.theta_max
        left.axvline(now, color=MEAN, lw=1, ls="--")
        left.set_xlim(0, 1.18 * max(*theta, now, limits.theta_max))
        left.set_title(
            f"theta after the plan (dashed: now, green: at most {limits.theta_max:g})", loc="left", fontsize=10
        )
    right.set_title("state that moves, share of all", loc="left", fontsize=10)
    left.set_yticks(rows, [outcome.planner for outcome in outcomes])
    left.invert_yaxis()


def draw_race(racers: Sequence[Racer], title: str, path: Path) -> None:
    """Skew, migration and migration so far, per interval and planner."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(1.6, 1, 1))
    for at, racer in enumerate(racers):
        look = {"color": LINES[at % len(LINES)], "lw": 2.2 if racer.name in FEATURED else 1.3, "drawstyle": "steps-mid"}
        moved = 100 * np.array(racer.migrated)
        intervals = np.arange(1, len(moved) + 1)
        panels[0].plot(intervals, racer.skew, label=f"{racer.name} (mean {racer.mean_skew:.2f})", **look)
        panels[1].plot(intervals, moved, **look)
        panels[2].plot(intervals, np.cumsum(moved) / 100, **look)
    panels[0].axhline(1, color=MEAN, lw=1, ls="--")
    heads = (
        "skew: load of the fullest slot / mean load, under the plan made before the interval",
        "state moved per interval, percent of all state",
        "state moved so far, in multiples of all state",
    )
    for axes, head in zip(panels, heads, strict=True):
        axes.set_title(head, loc="left", fontsize=10)
        axes.grid(axis="y", color="#e4e6ea", lw=0.8)
        _tidy(axes)
    panels[-1].set_xlabel("interval")
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=DPI)


def _tidy(axes) -> None:  # type: ignore[no-untyped-def]
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)


def draw_runs(first: RunRecord, second: RunRecord, title: str, shifts: Sequence[int], path: Path) -> None:
    """Two runs of the demonstration: batch time, skew, and the load of every slot in every batch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 9.5), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(4, 1, height_ratios=(1.3, 1.0, 1.0, 1.0), sharex=True)
    for run, colour in ((first, LINES[0]), (second, AFTER)):
        batches = np.arange(len(run.progress))
        rows[0].plot(batches, run.batch_seconds, color=colour, lw=2, marker="o", ms=4, label=run.title)
        rows[1].plot(batches, run.skews, color=colour, lw=2, marker="o", ms=4)
    rows[1].axhline(1, color=MEAN, lw=1, ls=":")
    counted = [value for run in (first, second) for value in run.of_measured(run.batch_seconds)]
    rows[0].set_ylim(0, 1.1 * max([*counted, 1e-9]))
    rows[0].legend(frameon=False, fontsize=9, ncols=2, loc="lower right")
    shown = None
    highest = max((max(row, default=1.0) for run in (first, second) for row in _relative(run)), default=1.0)
    for axes, run in zip(rows[2:], (first, second), strict=True):
        shown = axes.imshow(
            np.array(_relative(run)).T, aspect="auto", cmap="RdBu_r", vmin=max(0.0, 2 - highest), vmax=highest
        )
        axes.set_ylabel("slot")
    heads = (
        "batch time in seconds (dashed: other words become popular; batch 0 does not count)",
        "skew: the busiest slot / mean of the slots",
        f"busy time of each slot / mean of the batch, {first.title}",
        f"busy time of each slot / mean of the batch, {second.title}",
    )
    for axes, head in zip(rows, heads, strict=True):
        axes.set_title(head, loc="left", fontsize=10)
        _tidy(axes)
        for batch in shifts:
            axes.axvline(batch - 0.5, color=MEAN, lw=1, ls="--", alpha=0.6)
    for axes in rows[:2]:
        axes.grid(axis="y", color="#e4e6ea", lw=0.8)
    rows[-1].set_xlabel("batch")
    if shown is not None:
        figure.colorbar(shown, ax=list(rows[2:]), shrink=0.8, pad=0.01)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=DPI)


def _relative(run: RunRecord) -> list[list[float]]:
    """Loads as multiples of the batch's mean."""
    means = [sum(loads) / max(len(loads), 1) for loads in run.loads]
    return [[load / mean if mean > 0 else 1.0 for load in loads] for loads, mean in zip(run.loads, means, strict=True)]
