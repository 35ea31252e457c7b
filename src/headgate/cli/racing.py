"""``headgate race``: the planners at work on the papers' synthetic stream, live. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli import picture, report, show
from headgate.cli.options import finite, within
from headgate.cli.panel import ASCII_SPARKS, SPARKS, spark
from headgate.cli.race import MIGRATION_SHARE, Race, Racer, Setting
from headgate.cli.runs import planner_names, warm_up
from headgate.planners import PLANNERS
from headgate.planners.plan import TABLE_MAX, THETA_MAX

RACING = ("hash", "flux", "readj", "dlb-h", "dlb-l", "mixed", "milp")
"""Those raced unless told otherwise: plain hashing, the baselines of the papers, and what they propose."""

HASHING = "hash"

SPARK_WIDTH = 24
"""The intervals that fit into the table beside the figures, on 80 columns."""

PRINTED_EVERY = 10
"""Intervals between two lines where the output is not a terminal."""

CLEARLY = 0.75
"""A planner counts as levelling the load when it takes away at least this share of hashing's excess over the mean."""


def race(
    intervals: Annotated[int, typer.Option(help="How many intervals to run.")] = 50,
    keys: Annotated[int, typer.Option(help="Keys of the stream.")] = 10_000,
    slots: Annotated[int, typer.Option(help="Slots that share the work.")] = 15,
    z: Annotated[float, typer.Option(help="Skew of the key frequencies (Zipf exponent).")] = 0.85,
    fluctuation: Annotated[float, typer.Option(help="How much a part of the load changes each time.")] = 1.0,
    every: Annotated[int, typer.Option(help="Intervals from one change of the stream to the next.")] = 5,
    theta: Annotated[float, typer.Option(help="How far a slot may be off the mean, as a share of it.")] = THETA_MAX,
    table_max: Annotated[int, typer.Option(help="Entries that the routing table may have.")] = TABLE_MAX,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal streams.")] = 0,
    planners: Annotated[
        str | None, typer.Option(help=f"Names with commas between them, or 'all'; otherwise {', '.join(RACING)}.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path(picture.RACE),
) -> None:
    """Watch planners level a skewed stream whose hot keys keep changing, side by side.

    \b
    Examples:
      headgate race
      headgate race --slots 40 --z 1.0 --planners hash,mixed,milp --out race.png
    """
    for option, value, least, most in (
        ("--intervals", intervals, 2, 100_000),
        ("--keys", keys, 1, 10_000_000),
        ("--slots", slots, 1, 1024),
        ("--every", every, 1, 100_000),
        ("--seed", seed, 0, 2**63 - 1),
    ):
        within(option, value, least, most)
    finite("--theta", theta)
    finite("--table-max", table_max)
    names = planner_names(planners) if planners else [name for name in RACING if name in PLANNERS]
    setting = Setting(
        keys=keys,
        slots=slots,
        z=z,
        fluctuation=fluctuation,
        every=every,
        theta_max=theta,
        table_max=table_max,
        seed=seed,
    )
    running = Race(names, setting)
    if out == Path(picture.RACE):
        out.parent.mkdir(exist_ok=True)
    report.check_target(out, "--out", picture.SUFFIXES)
    console = Console(highlight=False)
    _introduce(console, running)
    _prepare(console, running)
    _run(console, running, intervals)
    show.show_whole(console, _table(console, running.racers, intervals, final=True))
    console.print()
    for line in findings(running.racers):
        console.print(Text(line), soft_wrap=not console.is_terminal)
    title = f"{keys:,} keys on {slots} slots, Zipf {z:g}, fluctuation {fluctuation:g} every {every} intervals"
    report.write_whole(out, lambda part: picture.draw_race(running.racers, title, part))
    console.print(Text(f"picture: {out}", style="bold"), soft_wrap=True)


def _introduce(console: Console, race: Race) -> None:
    setting = race.setting
    limited = [racer.name for racer in race.racers if racer.planner.holds_migration]
    often = "interval" if setting.every == 1 else f"{setting.every} intervals"
    text = (
        f"{len(race.racers)} planners spread the same stream, {setting.keys:,} keys with Zipf frequencies "
        f"(z = {setting.z:g}), over {setting.slots} slots; every {often} keys trade frequencies until one part in "
        f"{setting.slots} of the keys has {setting.fluctuation:.0%} more or less load. "
        "Each planner plans after every interval, is judged on the next, which it has not seen (skew = load of the "
        "fullest slot / mean, 1 is level), and pays in state that has to move"
    )
    if limited:
        text += f" ({', '.join(limited)}: at most {MIGRATION_SHARE:.0%} of it per interval)"
    console.print(Text(f"{text}."), soft_wrap=not console.is_terminal)
    console.print()


def _prepare(console: Console, race: Race) -> None:
    planners = [racer.planner for racer in race.racers]
    if not console.is_terminal:
        warm_up(planners)
        return
    with console.status("compiling (first run only)"):
        warm_up(planners)


def _run(console: Console, race: Race, intervals: int) -> None:
    if not console.is_terminal:
        for interval in range(1, intervals + 1):
            race.step()
            if interval % PRINTED_EVERY == 0:
                skews = ", ".join(f"{racer.name} {racer.skew[-1]:.2f}" for racer in race.racers)
                console.print(Text(f"interval {interval}: skew {skews}"), soft_wrap=True)
        console.print()
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for _ in range(intervals):
            race.step()
            live.update(_table(console, race.racers, intervals))


def _table(console: Console, racers: Sequence[Racer], intervals: int, *, final: bool = False) -> Table:
    """The figures so far; at the end the worst interval stands where the present one stood."""
    done = len(racers[0].skew)
    table = Table(
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold",
        title=f"interval {done} of {intervals}",
        title_justify="left",
        title_style="dim",
    )
    table.add_column("\nplanner", no_wrap=True)
    now = "max" if final else "now"
    for head in ("fresh\nplan", f"skew\n{now}", "skew\nmean"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("skew of the last\nintervals", no_wrap=True)
    for head in (f"moved\n{now} %", "moved\nmean %", "moved\nin all", "\ntable", "plan\nms"):
        table.add_column(head, justify="right", no_wrap=True)
    sparks = ASCII_SPARKS if console.options.ascii_only else SPARKS
    highest = max(max(racer.skew) for racer in racers)
    lowest_mean = min(racer.mean_skew for racer in racers)
    for racer in racers:
        table.add_row(
            racer.name,
            f"{np.mean(racer.planned):.2f}",
            f"{max(racer.judged) if final else racer.skew[-1]:.2f}",
            f"{racer.mean_skew:.2f}",
            Text(spark(racer.skew[-SPARK_WIDTH:], highest, sparks), style="cyan"),
            f"{100 * (max(racer.migrated) if final else racer.migrated[-1]):.1f}",
            f"{100 * racer.mean_migrated:.1f}",
            f"{sum(racer.migrated):.1f}x",
            f"{len(racer.assignment.pins):,}",
            _milliseconds(float(np.median(racer.seconds))),
            style="bold green" if racer.mean_skew == lowest_mean and len(racers) > 1 else "",
        )
    return table


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


def findings(racers: Sequence[Racer]) -> list[str]:
    """What this run shows, in sentences that its figures bear out."""
    by_name = {racer.name: racer for racer in racers}
    others = [racer for racer in racers if racer.name != HASHING]
    if not others:
        return []
    best = min(others, key=lambda racer: racer.mean_skew)
    hashing = by_name.get(HASHING)
    if hashing is None:
        return [f"{best.name} has the lowest mean skew, {best.mean_skew:.2f}; {_price(best)}."]
    lines = []
    excess = hashing.mean_skew - 1
    if best.mean_skew >= hashing.mean_skew:
        return [f"In this run no planner is more level than plain hashing, whose mean skew is {hashing.mean_skew:.2f}."]
    lines.append(
        f"Plain hashing leaves the fullest slot at {hashing.mean_skew:.2f} times the mean; {best.name} is the most "
        f"level with {best.mean_skew:.2f}, and {_price(best)}."
    )
    level = [racer for racer in others if hashing.mean_skew - racer.mean_skew >= CLEARLY * excess]
    if len(level) > 1:
        thrifty = min(level, key=lambda racer: racer.mean_migrated)
        those = f"the {len(level)} planners that take away {CLEARLY:.0%} or more of hashing's excess"
        if thrifty is best:
            lines.append(f"It also moves the least state of {those}.")
        else:
            lines.append(
                f"Of {those}, {thrifty.name} moves the least state: {thrifty.mean_migrated:.1%} per interval, at a "
                f"mean skew of {thrifty.mean_skew:.2f}."
            )
    return lines


def _price(racer: Racer) -> str:
    return (
        f"moves {racer.mean_migrated:.1%} of the state per interval for it, with a plan in "
        f"{_milliseconds(float(np.median(racer.seconds)))} ms (median)"
    )
