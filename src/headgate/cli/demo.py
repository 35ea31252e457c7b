"""``headgate demo``: a skewed word stream on local Spark, first hashed, then levelled, live."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli import comparison, page, panel, picture, report, show
from headgate.cli.comparison import WARM_UP, RunRecord
from headgate.cli.options import finite, within
from headgate.cli.runs import planner_names
from headgate.cli.showcase import Showcase, explained, need_spark
from headgate.cli.state import say
from headgate.cli.words import WordStream
from headgate.control import Entry
from headgate.errors import HeadgateError, InputError

PICTURE, PAGE = "words.png", "words.html"

SLOTS, WORDS, ROWS, BATCHES, SHIFT_EVERY, SERVICE_MS = 8, 2_000, 3_000, 12, 6, 4.0
"""Two periods of six batches: the first shows how the load is levelled, the second how it is levelled again. At 4 ms a
row a slot is busy for 1.5 seconds per batch, so that imbalance shows beside the fixed cost of a batch on two cores, and
both runs together take little more than a minute."""

HASHED = "plain hashing"

OTHER_LINES = 17
"""Lines of a frame besides the bars."""


def demo(
    slots: Annotated[int, typer.Option(help="Slots that share the work; Spark runs as local[SLOTS].")] = SLOTS,
    rows: Annotated[int, typer.Option(help="Rows per batch.")] = ROWS,
    batches: Annotated[int, typer.Option(help="Batches of each run.")] = BATCHES,
    words: Annotated[int, typer.Option(help="Different words.")] = WORDS,
    zipf: Annotated[float, typer.Option(help="Skew of the word frequencies (Zipf exponent).")] = 1.0,
    shift_every: Annotated[int, typer.Option(help="Batches until other words become popular.")] = SHIFT_EVERY,
    service_time: Annotated[float, typer.Option(help="Milliseconds that a row takes in its slot.")] = SERVICE_MS,
    planner: Annotated[str, typer.Option(help="The planner of the second run; headgate race compares them.")] = "mixed",
    out: Annotated[Path, typer.Option(help="Directory for the picture and the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Equal seeds give equal streams.")] = 0,
    live: Annotated[
        bool, typer.Option("--live/--no-live", help="Draw on the terminal, or print a line a batch.")
    ] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkpoints, and say where they are.")] = False,
) -> None:
    """Watch a skewed word count on Spark level out: first with plain hashing, then with a planner.

    Both runs count the same words, and the counts are checked. The slots are emulated: each row takes a little time in
    its slot, so two cores are enough. Takes about two minutes.

    \b
    Examples:
      headgate demo
      headgate demo --zipf 1.2 --shift-every 3 --planner dlb-h
      headgate demo --no-live --out results --keep
    """
    for option, value, least, most in (
        ("--slots", slots, 2, 64),
        ("--rows", rows, 1, 1_000_000),
        ("--batches", batches, 2, 10_000),
        ("--words", words, 1, 1_000_000),
        ("--shift-every", shift_every, 1, 10_000),
        ("--seed", seed, 0, 2**63 - 1),
    ):
        within(option, value, least, most)
    finite("--service-time", service_time)
    finite("--zipf", zipf)
    names = planner_names(planner)
    if len(names) != 1:
        raise InputError(f"--planner must be one planner, got {planner!r}: headgate race compares several")
    need_spark()
    out.mkdir(parents=True, exist_ok=True)
    for name in (PICTURE, PAGE):
        report.check_target(out / name, "--out")
    stream = WordStream(words=words, rows=rows, batches=batches, z=zipf, every=shift_every, seed=seed)
    console = Console(highlight=False)
    told = (
        f"{batches} batches of {rows:,} words, {words:,} different ones with Zipf frequencies (z = {zipf:g}), on "
        f"{slots} slots; a row takes {service_time:g} ms in its slot, and every {shift_every} batches other words "
        "become popular."
    )
    say(console, told)
    busy = busy_note(os.getloadavg()[0], os.cpu_count() or 1)
    if busy:
        say(console, busy, "yellow")
    with _workshop(console, keep) as work:
        showcase = Showcase(stream, slots=slots, service_ms=service_time, planner=names[0], work=work)
        screen = Screen(console, batches, live and console.is_terminal)
        first, second = _runs(showcase, screen, names[0])
        _check(stream, first, second)
        _conclude(console, stream, first, second, told, out)


def busy_note(load: float, cores: int) -> str | None:
    """What to say of a machine that has other things to do; None where it has not."""
    if load <= cores:
        return None
    return (
        f"note: this machine is busy (load {load:.1f} on {cores} cores), so times and throughput will say little; skew "
        "and moves hold"
    )


@contextmanager
def _workshop(console: Console, keep: bool) -> Iterator[Path]:
    """A directory for the stream and the checkpoints; gone afterwards unless it is to be kept."""
    work = Path(tempfile.mkdtemp(prefix="headgate-demo-"))
    try:
        yield work
    except Exception:
        keep = True  # what Spark said is in there
        raise
    finally:
        if keep:
            say(console, f"kept: {work} (headgate state {work}/levelled)")
        else:
            shutil.rmtree(work, ignore_errors=True)


def _runs(showcase: Showcase, screen: Screen, planner: str) -> tuple[RunRecord, RunRecord]:
    try:
        with screen.waiting() as told:
            showcase.open(told)
        say(screen.console, f"to follow it from another terminal: headgate top {showcase.checkpoint('levelled')}")
        records = []
        for number, (name, title) in enumerate((("hashed", HASHED), ("levelled", planner))):
            with screen.showing(f"run {number + 1} of 2: {title}") as watch:
                records.append(showcase.run(name, title, balanced=number == 1, watch=watch))
        return records[0], records[1]
    except Exception as error:
        raise explained(error, showcase.log) from error
    finally:
        showcase.close()


def _check(stream: WordStream, *runs: RunRecord) -> None:
    """Both runs must have counted every word right. A difference is a fault of headgate, and ends the program."""
    expected = stream.totals()
    for run in runs:
        wrong = comparison.mistakes(run, expected)
        if wrong:
            raise HeadgateError(
                f"the counts of the run with {run.title} are wrong for {len(wrong)} words, {', '.join(wrong[:3])}: "
                "this is a fault of headgate, please report it"
            )


def _conclude(console: Console, stream: WordStream, first: RunRecord, second: RunRecord, told: str, out: Path) -> None:
    total = stream.rows * stream.batches
    rows = comparison.comparison(first, second)
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for head in (first.title, second.title, "ratio"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    show.show_whole(console, table)
    measured = f"batches {WARM_UP} to {stream.batches - 1}" if stream.batches > WARM_UP + 1 else f"batch {WARM_UP}"
    say(
        console,
        f"Measured over {measured} of each run: batch 0 is warm-up and does not count. Workers were started and code "
        "was compiled before the first run.",
        "dim",
    )
    console.print()
    finding = comparison.finding(first, second)
    say(console, finding, "bold")
    say(console, f"Both runs counted all {total:,} words right: {len(second.counts):,} counts compared, all equal.")
    title = f"{stream.rows:,} words a batch on {len(first.loads[0])} slots, Zipf {stream.z:g}"
    shifts = stream.shifts()
    report.write_whole(out / PICTURE, lambda part: picture.draw_runs(first, second, title, shifts, part))
    text = page.page("Word count on Spark: hashed and levelled", told, finding, first, second, rows, shifts)
    report.write_whole(out / PAGE, lambda part: part.write_text(text, encoding="utf-8"))
    console.print(Text(f"picture: {out / PICTURE}", style="bold"), soft_wrap=True)
    console.print(Text(f"page:    {out / PAGE}", style="bold"), soft_wrap=True)


Watch = Callable[[list[dict[str, Any]], list[Entry]], None]


class Screen:
    """Where a run is shown: drawn anew on a terminal, a line per batch elsewhere."""

    def __init__(self, console: Console, batches: int, live: bool) -> None:
        self.console = console
        self.batches = batches
        self.live = live
        self._longest = 0.0

    @contextmanager
    def waiting(self) -> Iterator[Callable[[str], None]]:
        """While there is nothing to show but what is being waited for."""
        if not self.live:
            yield lambda text: say(self.console, text)
            return
        with self.console.status("") as status:
            yield lambda text: status.update(text)

    @contextmanager
    def showing(self, title: str) -> Iterator[Watch]:
        """While a run goes on: gives the function to call with what happened so far."""
        if not self.live:
            say(self.console, title, "bold")
            told = 0

            def tell(recent: list[dict[str, Any]], entries: list[Entry]) -> None:
                nonlocal told
                for progress in recent[told:]:
                    say(self.console, panel.batch_line(progress))
                    of_batch = [entry for entry in entries if entry.batch == progress["batch"]]
                    for line in panel.digest(of_batch, panel.MOVES_TOLD + 2):
                        say(self.console, f"  {line}")
                told = len(recent)

            yield tell
            return
        with Live(console=self.console, auto_refresh=False) as drawing:
            yield lambda recent, entries: drawing.update(self._frame(title, recent, entries), refresh=True)

    def _frame(self, title: str, recent: list[dict[str, Any]], entries: list[Entry]) -> Group:
        for progress in recent[WARM_UP:]:
            self._longest = max(self._longest, *progress["slot_seconds"])
        view = panel.View(
            width=self.console.width,
            bars=max(4, min(panel.MOST_BARS, self.console.height - OTHER_LINES)),
            longest=self._longest or None,
            ascii_only=self.console.options.ascii_only,
        )
        status = f"{len(recent)} of {self.batches} batches"
        return Group(*panel.frame(title, status, recent, entries, view))
