"""``headgate region-demo``: an ordered region with one slow worker, first round-robin, then balanced, live."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli import show
from headgate.cli.options import finite, within
from headgate.cli.panel import ASCII_SPARKS, SPARKS, fitted, spark
from headgate.cli.show import Glyphs
from headgate.cli.state import say
from headgate.errors import HeadgateError, InputError
from headgate.regions import Balancer, BlockingRate, Progress, Region, RoundRobin

WORKERS, SLOWDOWN, SECONDS = 3, 100.0, 18.0
"""Section 6.1 of the blocking-rate paper: three workers, one of them 100 times slower. Both runs together take about
half a minute."""

ITEM_SECONDS = 0.001
"""What an item takes: asleep, so that any machine has enough processors."""

PERIOD = 0.25
"""Seconds between two samples: a worker 100 times slower does two or three items in that time."""

LOADED = 1 / 3
"""The part of the balanced run in which the load is there; round-robin is run as long with it, and a sixth without."""

LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0

MOST_WORKERS = 32
"""Workers that have a line each."""

LAST = 0.4
"""The part of each phase, at its end, that throughput is taken over: what is settled, not how it got there."""

TOLD_EVERY = 4
"""Periods from one line to the next, where the output is no terminal."""

RECENT = 40
"""Periods that the course of the throughput shows."""

SLOW = 0


class Item(NamedTuple):
    """One item: its number, and which process takes how many times as long for it."""

    number: int
    slow_process: int
    factor: float


def work(item: Item) -> int:
    """Takes its time, and gives the number back."""
    factor = item.factor if os.getpid() == item.slow_process else 1.0
    time.sleep(ITEM_SECONDS * factor)
    return item.number


@dataclass(slots=True)
class Record:
    """What a run did: its periods, how many results there were, and when the load left."""

    title: str
    unloaded_at: float = float("inf")
    """Seconds since the region began."""
    results: int = 0
    periods: list[Progress] = field(default_factory=list)

    def throughput(self, *, loaded: bool) -> float:
        """Items per second at the end of a phase; 0 where it had no period."""
        phase = [each.throughput for each in self.periods if (each.at <= self.unloaded_at) is loaded]
        last = phase[-max(1, round(LAST * len(phase))) :]
        return sum(last) / len(last) if last else 0.0

    def weight(self, *, loaded: bool) -> float:
        """The share of the slow worker when a phase ended, in percent."""
        phase = [each for each in self.periods if (each.at <= self.unloaded_at) is loaded]
        return float(phase[-1].weights[SLOW]) / 10 if phase else 0.0


def region_demo(
    workers: Annotated[int, typer.Option(help="Worker processes; the first one is slow.")] = WORKERS,
    slowdown: Annotated[float, typer.Option(help="How many times slower the slow worker is.")] = SLOWDOWN,
    seconds: Annotated[
        float, typer.Option(help="Length of the balanced run; round-robin takes half of that.")
    ] = SECONDS,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Draw on the terminal, or print a line now and then.")
    ] = True,
) -> None:
    """Watch an ordered region find its slow worker, and take it back when the load is gone.

    A region runs a function on several processes and keeps the results in order, so one slow worker holds up all. The
    first run shares items out evenly (round-robin), the second by blocking rate. In both, one worker is slow at first.
    An item takes a millisecond, asleep: any machine will do. Takes about half a minute, and needs no Spark.

    \b
    Examples:
      headgate region-demo
      headgate region-demo --workers 8 --slowdown 10
      headgate region-demo --seconds 60 --no-watch
    """
    within("--workers", workers, 2, MOST_WORKERS)
    finite("--slowdown", slowdown)
    if not 1 <= slowdown <= 1000:
        raise InputError(f"--slowdown must be from 1 to 1,000, got {slowdown:g}")
    finite("--seconds", seconds)
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise InputError(f"--seconds must be from {LEAST_SECONDS:g} to {MOST_SECONDS:,.0f}, got {seconds:g}")
    console = Console(highlight=False)
    say(
        console,
        f"{workers} workers, a millisecond an item; worker 1 takes {slowdown:g} times as long for the first "
        f"{LOADED * seconds:.0f} seconds of each run.",
    )
    screen = Screen(console, watch and console.is_terminal)
    plans: list[tuple[str, Balancer, float]] = [
        ("round-robin", RoundRobin(), seconds * (LOADED + LOADED / 2)),
        ("blocking rate", BlockingRate(), seconds),
    ]
    records = []
    for number, (title, balancer, length) in enumerate(plans, 1):
        with screen.showing(f"run {number} of 2: {title}", length) as tell:
            records.append(_run(title, balancer, workers, slowdown, (LOADED * seconds, length), tell))
    _conclude(console, *records)


def _run(
    title: str,
    balancer: Balancer,
    workers: int,
    slowdown: float,
    times: tuple[float, float],
    tell: Callable[[Record], None],
) -> Record:
    """Run until the time is up; ``times``: when the load leaves and when the source ends, in seconds."""
    record, fresh = Record(title), deque[Progress]()
    load_leaves, ends = times

    def items() -> Iterator[Item]:
        while any(process is None for process in region.processes()) or not region.processes():
            time.sleep(0.01)  # until every worker is there
        slow = region.processes()[SLOW] or 0
        began = time.monotonic()
        number = 0
        while (passed := time.monotonic() - began) < ends:
            if passed >= load_leaves and record.unloaded_at == float("inf"):
                record.unloaded_at = fresh[-1].at if fresh else record.periods[-1].at if record.periods else 0.0
            yield Item(number, slow, slowdown if passed < load_leaves else 1.0)
            number += 1

    with Region(work, workers, balance=balancer, period=PERIOD, listener=fresh.append) as region:
        for result in region.run(items()):
            if result != record.results:
                raise HeadgateError(
                    f"result {result} came where {record.results} was due: this is a fault of headgate, please "
                    "report it"
                )
            record.results += 1
            if fresh:
                while fresh:
                    record.periods.append(fresh.popleft())
                tell(record)
    return record


def _conclude(console: Console, plain: Record, balanced: Record) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for head in (plain.title, balanced.title, "ratio"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, loaded in (("items/s, one worker slow", True), ("items/s, all equal again", False)):
        first, second = plain.throughput(loaded=loaded), balanced.throughput(loaded=loaded)
        table.add_row(name, f"{first:,.0f}", f"{second:,.0f}", f"{second / first:.1f}" if first else "")
    for name, loaded in (("share of worker 1, slow", True), ("share of worker 1, at the end", False)):
        table.add_row(name, f"{plain.weight(loaded=loaded):.1f} %", f"{balanced.weight(loaded=loaded):.1f} %", "")
    console.print()
    show.show_whole(console, table)
    say(
        console,
        f"Throughput at the end of each phase. {plain.results + balanced.results:,} results, all in order.",
        "dim",
    )


class Screen:
    """Where a run is shown: drawn anew on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, live: bool) -> None:
        self.console, self.live = console, live

    @contextmanager
    def showing(self, title: str, seconds: float) -> Iterator[Callable[[Record], None]]:
        """While a run goes on: gives the function to call with what happened so far."""
        if not self.live:
            say(self.console, title, "bold")
            told = 0

            def tell(record: Record) -> None:
                nonlocal told
                for each in record.periods[told:]:
                    told += 1
                    if told % TOLD_EVERY == 0:
                        say(self.console, line(each))

            yield tell
            return
        with Live(console=self.console, auto_refresh=False) as drawing:
            glyphs = Glyphs.of(self.console)
            sparks = ASCII_SPARKS if self.console.options.ascii_only else SPARKS
            yield lambda record: drawing.update(
                Group(*frame(title, seconds, record, self.console.width, glyphs, sparks)), refresh=True
            )


def line(progress: Progress) -> str:
    """One period in a line."""
    weights = " ".join(f"{weight / 10:.1f}" for weight in progress.weights)
    rates = " ".join(f"{min(rate, 1.0):.2f}" for rate in progress.rates)
    return f"{progress.at:5.1f} s  {progress.throughput:7,.0f} items/s  weights % {weights}  blocked {rates}"


def frame(title: str, seconds: float, record: Record, width: int, glyphs: Glyphs, sparks: str) -> list[Text]:
    """The whole screen, line by line; no line is longer than the terminal is wide."""
    if not record.periods:
        return [Text(fitted(title, width), style="bold")]
    last = record.periods[-1]
    loaded = last.at <= record.unloaded_at
    phase = "worker 1 is slow" if loaded else "the load is gone"
    status = f"{last.at:.0f} of {seconds:.0f} s   {phase}   {last.throughput:,.0f} items/s"
    lines = [Text(fitted(title, width), style="bold"), Text(fitted(status, width)), Text("")]
    before = record.periods[-2] if len(record.periods) > 1 else None
    bar_width = max(10, width - 55)
    for worker, (weight, rate) in enumerate(zip(last.weights, last.rates, strict=True)):
        text = Text(f"worker {worker + 1:<2} ")
        slow = worker == SLOW and loaded
        bar = glyphs.bar(float(weight) / 1000, bar_width)
        text.append(bar, style="red" if slow else "green")
        text.append(" " * (bar_width - len(bar)))
        text.append(f" {weight / 10:5.1f} %  blocked {100 * min(float(rate), 1.0):3.0f} %")
        text.append(f"  {_answered(before, last, worker):6,.0f}/s")
        if slow:
            text.append("  slow", style="red")
        lines.append(text)
    course = [each.throughput for each in record.periods[-RECENT:]]
    highest = max(course)
    steps = spark([1 + value / highest for value in course], 2.0, sparks) if highest > 0 else ""
    lines += [Text(""), Text(fitted(f"{steps}  items/s, highest {highest:,.0f}", width), style="cyan")]
    return lines


def _answered(before: Progress | None, last: Progress, worker: int) -> float:
    """Items per second that this worker has answered in the last period."""
    since: Sequence[int] = before.counters.answered.tolist() if before is not None else [0] * len(last.weights)
    lasted = last.at - (before.at if before is not None else 0.0)
    return (int(last.counters.answered[worker]) - since[worker]) / lasted if lasted > 0 else 0.0
