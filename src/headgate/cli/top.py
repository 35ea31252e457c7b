"""``headgate top``: follow a running query from another terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headgate.cli import panel, stored
from headgate.cli.options import finite
from headgate.cli.state import say
from headgate.cli.stored import Runner
from headgate.control import Entry
from headgate.errors import InputError
from headgate.state import Checkpoint

ENTRIES = 200
"""Journal entries read for the last few lines: a plan may have some fifty moves."""

OTHER_LINES = 17
"""Lines of a frame besides the bars."""

SCALE = 5
"""Batches whose busiest slot is a full bar: bars of neighbouring frames compare, and a slow start is soon forgotten."""

SHORTEST = 0.1
"""Seconds between two looks, at the least: a look reads a few files."""


def top(
    checkpoint: Annotated[str, typer.Argument(help="What start(checkpoint=...) was given.", metavar="CHECKPOINT")],
    every: Annotated[float, typer.Option(help="Seconds from one look to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one frame and leave.")] = False,
    lines: Annotated[int, typer.Option(help="Lines of the journal to show.")] = 8,
) -> None:
    """Follow a running query: a bar per slot, rows per second, batch time, skew, state, moves and why.

    Reads the checkpoint only. Ends when the query stops, or with Ctrl-C. Where the output is no terminal there is a
    line per batch.

    \b
    Examples:
      headgate top ckpt
      headgate top ckpt --once
    """
    finite("--every", every)
    if every < SHORTEST:
        raise InputError(f"--every must be at least {SHORTEST:g} seconds, got {every:g}")
    store = stored.open_checkpoint(checkpoint)
    console = Console(highlight=False)
    try:
        if once:
            for line in drawn(look(store), console, lines, height=None):
                console.print(line, no_wrap=True, overflow="ignore", crop=False)
        elif console.is_terminal:
            _live(console, store, every, lines)
        else:
            _plain(console, store, every, lines)
    except KeyboardInterrupt:
        return


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to see at one moment."""

    job: str
    runner: Runner
    recent: tuple[dict[str, Any], ...]
    entries: tuple[Entry, ...]
    at: float


def look(store: Checkpoint, clock: Callable[[], float] = time.time) -> Look:
    """Read what the query left behind so far. Who runs it is read first: what a stopped query did is then complete."""
    runner = stored.runner(store, clock=clock)
    recent = tuple(store.progress(panel.RECENT))
    return Look(stored.job_name(store), runner, recent, tuple(stored.last_entries(store, ENTRIES)), clock())


def drawn(seen: Look, console: Console, lines: int, *, height: int | None) -> list[Text]:
    """The frame for a moment, on a screen of this height."""
    slots = f", {seen.recent[-1]['slots']} slots" if seen.recent else ""
    status = seen.runner.text
    if seen.recent and seen.runner.running:
        status += f"; last batch began {panel.age_of(seen.recent[-1], seen.at):,.0f} s ago"
    bars = panel.MOST_BARS if height is None else max(4, min(panel.MOST_BARS, height - OTHER_LINES))
    view = panel.View(
        width=console.width,
        bars=bars,
        longest=max((max(each["slot_seconds"], default=0.0) for each in seen.recent[-SCALE:]), default=None),
        ascii_only=console.options.ascii_only,
    )
    return panel.frame(f"{seen.job}{slots}", status, seen.recent, seen.entries, view, lines=lines)


def _live(console: Console, store: Checkpoint, every: float, lines: int) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            seen = look(store)
            live.update(Group(*drawn(seen, console, lines, height=console.height)), refresh=True)
            if not seen.runner.running:
                break
            time.sleep(every)
    say(console, "the query is not running", "bold")


def _plain(console: Console, store: Checkpoint, every: float, lines: int) -> None:
    """A line per batch, and the decisions that held from it on."""
    told = -1
    status = ""
    while True:
        seen = look(store)
        state = seen.runner.text.partition(",")[0]
        if state != status:
            say(console, f"{seen.job}: {seen.runner.text}")
            status = state
        for progress in seen.recent:
            if int(progress["batch"]) > told:
                told = int(progress["batch"])
                say(console, panel.batch_line(progress))
                of_batch = [entry for entry in seen.entries if entry.batch == told]
                for line in panel.digest(of_batch, lines):
                    say(console, f"  {line}")
        if not seen.runner.running:
            return
        time.sleep(every)
