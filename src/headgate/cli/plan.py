"""``headgate plan``: statistics in, a plan out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from headgate.cli import options, picture, report, show
from headgate.cli.placement import Placement, place
from headgate.cli.runs import ALL, Outcome, build, planner_names, run, warm_up
from headgate.cli.statistics import read_statistics, read_traffic
from headgate.errors import InputError
from headgate.planners import PLANNERS, Limits, Planner
from headgate.planners.minmig import BETA
from headgate.planners.plan import TABLE_MAX, THETA_MAX
from headgate.routing import GROUPS

MOST_SLOTS = 65_536
MOST_GROUPS = 2**24
"""Beyond these, a typing error is likelier than a cluster."""

MOST_SEED = 2**63 - 1


class GrainOption(StrEnum):
    """What a plan may move."""

    AUTO = "auto"
    KEY = "key"
    GROUP = "group"


def plan(
    stats: Annotated[Path, typer.Argument(help="Statistics, one row per key: .csv or .parquet", metavar="STATS")],
    slots: Annotated[int, typer.Option(help="How many slots there are, draining ones too.")],
    planner: Annotated[
        str, typer.Option(help=f"One of {', '.join(PLANNERS)}, several with commas between them, or all.")
    ] = "mixed",
    traffic: Annotated[Path | None, typer.Option(help="Traffic between keys: columns src, dst, rate.")] = None,
    theta: Annotated[float, typer.Option(help="How far a slot may be off the mean, as a share of it.")] = THETA_MAX,
    table_max: Annotated[int, typer.Option(help="Entries that the routing table may have.")] = TABLE_MAX,
    beta: Annotated[float, typer.Option(help="MinMig and Mixed take keys by cost^beta / state.")] = BETA,
    window: Annotated[int, typer.Option(help="Intervals whose state is summed; needs a column 'interval'.")] = 1,
    max_migrations: Annotated[int | None, typer.Option(help="The most moves.")] = None,
    max_migration_cost: Annotated[float | None, typer.Option(help="The most state moved, in bytes.")] = None,
    draining: Annotated[str | None, typer.Option(help="Slots to empty: 3,4")] = None,
    capacity: Annotated[str | None, typer.Option(help="How strong each slot is: 1,1,0.5")] = None,
    cap: Annotated[list[str] | None, typer.Option(help="NAME=VALUE: the most a slot may use of a column.")] = None,
    groups: Annotated[int, typer.Option(help="Key groups per operator.")] = GROUPS,
    grain: Annotated[
        GrainOption, typer.Option(help="What moves: keys or key groups; auto is the planner's own choice.")
    ] = GrainOption.AUTO,
    time_limit: Annotated[float, typer.Option(help="Seconds an optimising planner may search.")] = 2.0,
    seed: Annotated[
        int,
        typer.Option(
            help="Equal seeds give equal plans (milp and albic search as long as time lets them, and may differ: "
            "--repeatable)."
        ),
    ] = 0,
    repeatable: Annotated[
        bool,
        typer.Option(
            "--repeatable",
            help="Let milp and albic search a fixed number of steps for each second of --time-limit, without a clock: "
            "equal seeds give equal plans.",
        ),
    ] = False,
    moves: Annotated[int, typer.Option(help="How many moves to show.")] = 20,
    json: Annotated[Path | None, typer.Option(help="Write the plan here as JSON; '-' is standard output.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the loads before and after: FILE.png")] = None,
) -> None:
    """Plan where every key should be, and say what that gains and costs.

    STATS has the columns key and cost, and may have state_bytes, slot (where the key is now), operator, tuples and
    interval; other numeric columns are resources for --cap. Nothing is changed anywhere: a plan is a proposal.

    \b
    Examples:
      headgate plan stats.csv --slots 8
      headgate plan stats.parquet --planner all --slots 8 --draining 7
      headgate plan stats.csv --traffic flows.csv --planner albic --slots 20 --json plan.json
    """
    options.within("--slots", slots, 1, MOST_SLOTS)
    options.within("--groups", groups, 1, MOST_GROUPS)
    options.within("--moves", moves, 0, sys.maxsize)
    options.within("--seed", seed, 0, MOST_SEED)
    for option, value in (
        ("--theta", theta),
        ("--table-max", table_max),
        ("--beta", beta),
        ("--max-migrations", max_migrations),
        ("--max-migration-cost", max_migration_cost),
        ("--time-limit", time_limit),
    ):
        options.finite(option, value)
    report.check_target(json, "--json", allow_stdout=True)
    report.check_target(plot, "--plot", picture.SUFFIXES)
    report.check_apart(json, plot, "--json and --plot")
    names = planner_names(planner)
    if max_migrations is not None and max_migration_cost is not None:
        raise InputError(
            f"give --max-migrations or --max-migration-cost, not both: got {max_migrations} moves and "
            f"{max_migration_cost:g} bytes; the first counts moves, the second adds up the state they carry"
        )
    limits = Limits(
        theta_max=theta,
        table_max=table_max,
        max_migrations=max_migrations,
        max_migration_cost=max_migration_cost,
        caps=options.caps(cap or ()),
        time_limit_seconds=time_limit,
    )
    strength, leaving = options.capacities(capacity), options.slot_numbers(draining)
    with _status("reading the statistics") as status:
        statistics = read_statistics(stats, window=window, caps=limits.caps)
        flows = read_traffic(traffic, statistics) if traffic else None
        placement = place(statistics, slots, groups=groups, draining=leaving, capacity=strength, traffic=flows)
        parameters = {"beta": beta, "seed": seed}
        planners = [
            build(name, rows=len(statistics), grain=grain.value, parameters=parameters, repeatable=repeatable)
            for name in names
        ]
        outcomes = _planned(planners, placement, limits, status)
    side_by_side = len(names) > 1 or planner.strip().lower() == ALL
    text = ""
    if json:
        whole = report.report_all(outcomes, placement) if side_by_side else report.report_one(outcomes[0], placement)
        text = report.json_text(whole, ascii_only=json == report.STDOUT)
    if plot:
        drawn = outcomes if side_by_side else outcomes[0]
        report.write_whole(plot, lambda part: picture.draw(drawn, placement, limits, part))
    if json:
        report.write_json(text, json)
    if json != report.STDOUT:
        _show(outcomes, placement, limits, side_by_side, moves, statistics.notes)
        for path in (json, plot):
            if path:
                Console().print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _planned(planners: list[Planner], placement: Placement, limits: Limits, status: Status | None) -> list[Outcome]:
    def say(text: str) -> None:
        if status:
            status.update(text)

    say("compiling (first run only)")
    warm_up(planners, limits)
    order = {planner.name: at for at, planner in enumerate(planners, 1)}
    return run(
        planners,
        placement,
        limits,
        keep_going=len(planners) > 1,
        started=lambda name: say(f"planning: {name} ({order[name]} of {len(planners)})"),
    )


def _show(
    outcomes: list[Outcome],
    placement: Placement,
    limits: Limits,
    side_by_side: bool,
    moves: int,
    notes: tuple[str, ...],
) -> None:
    console = Console(highlight=False)
    for note in notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if side_by_side:
        show.show_comparison(console, outcomes, placement, limits)
    else:
        show.show_plan(console, outcomes[0], placement, limits, moves=moves)


@contextmanager
def _status(text: str) -> Iterator[Status | None]:
    """A line on stderr that says what is going on, as long as somebody looks at it."""
    if not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status(text) as status:
        yield status
