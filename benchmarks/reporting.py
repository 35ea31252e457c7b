"""What every benchmark shares: a stamp, a timer that does not count compilation, tables, claims and pictures.

A result is two files, ``NAME.md`` and ``NAME.png``. The Markdown opens with the claims of the paper beside what was
measured; whether a claim holds is computed from the numbers. An explanation may be given for a claim in case it fails:
it is printed only then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"

REPEATS = 5
"""Timed calls of which the median is reported: enough that one disturbed call does not count."""

ABOUT = 0.25
"""A measured number is "about" the paper's if it lies within this share of it."""

SLACK = 0.05
"""A series still "rises" or "falls" if it goes back from where it was by no more than this share."""

_LEFT, _RIGHT = "---", "---:"
_CAPTION_PER_INCH = 13
_DPI = 120

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Timing(Generic[Result]):
    """Seconds of repeated calls, and what the last one returned."""

    seconds: tuple[float, ...]
    result: Result

    @property
    def median(self) -> float:
        """Half of the calls took longer."""
        return statistics.median(self.seconds)


def timed(
    call: Callable[[], Result], repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter
) -> Timing[Result]:
    """Time a call ``repeats`` times after one that does not count: Numba compiles, and caches fill, in that one.

    ``clock``: for work on one thread ``time.process_time`` leaves out what other programs do meanwhile.
    """
    result = call()
    seconds = []
    for _ in range(repeats):
        start = clock()
        result = call()
        seconds.append(clock() - start)
    return Timing(tuple(seconds), result)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says, what was measured, whether it holds; ``because``: why not, shown only where it does not."""

    paper: str
    ours: str
    holds: bool
    because: str = ""


def rises(values: Sequence[float], slack: float = SLACK) -> bool:
    """Whether the last value is above the first and none lies more than ``slack`` below the greatest before it."""
    highest = itertools.accumulate(values, max)
    return values[-1] > values[0] and all(v >= top * (1 - slack) for v, top in zip(values, highest, strict=True))


def falls(values: Sequence[float], slack: float = SLACK) -> bool:
    """Whether the last value is below the first and none lies more than ``slack`` above the least before it."""
    lowest = itertools.accumulate(values, min)
    return values[-1] < values[0] and all(v <= low * (1 + slack) for v, low in zip(values, lowest, strict=True))


def about(value: float, expected: float, share: float = ABOUT) -> bool:
    """Whether a value lies within this share of the one expected."""
    return abs(value - expected) <= share * abs(expected)


@dataclass(frozen=True, slots=True)
class Table:
    """A Markdown table: text columns are set left, all others right. Numbers come formatted or as they are."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""

    def markdown(self) -> str:
        """The table, under its title if it has one."""
        for row in self.rows:
            assert len(row) == len(self.columns), f"a row of {len(row)} cells in a table of {len(self.columns)} columns"
        is_text = [any(_is_text(row[at]) for row in self.rows) for at in range(len(self.columns))]
        lines = [_line(self.columns), "|" + "|".join(_LEFT if text else _RIGHT for text in is_text) + "|"]
        lines += [_line([_cell(cell) for cell in row]) for row in self.rows]
        return (f"### {self.title}\n\n" if self.title else "") + "\n".join(lines)


def _is_text(cell: object) -> bool:
    if not isinstance(cell, str):
        return False
    return not cell.strip().lstrip("+-<").replace(",", "").replace(".", "").replace("%", "").rstrip(" s").isdigit()


def _cell(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip()


def _version() -> str:
    changed = _git("status", "--porcelain", "--", ":/src", ":/benchmarks", ":!/benchmarks/results")
    return f"{_git('rev-parse', '--short', 'HEAD') or 'unknown'}{' (dirty)' if changed else ''}"


VERSION = _version()
"""Commit, and whether the sources differ from it, when the benchmark started: they may change while it runs."""


def stamp(parameters: Mapping[str, object], seed: int) -> str:
    """Where a result comes from: commit, whether the sources differ from it, date, Python, processors, parameters."""
    given = ", ".join(f"{name} {value}" for name, value in parameters.items())
    return (
        f"commit {VERSION}; {datetime.now(UTC):%Y-%m-%d}; Python {platform.python_version()}, {os.cpu_count()} "
        f"processors; seed {seed}; {given}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One result: what was done, the claims, the tables, a picture and the stamp."""

    name: str
    title: str
    setup: str
    claims: Sequence[Claim]
    tables: Sequence[Table]
    parameters: Mapping[str, object]
    seed: int
    notes: Sequence[str] = ()
    claimed_by: str = "the paper says"
    picture: Figure | None = field(default=None, repr=False)

    def markdown(self) -> str:
        """The whole text."""
        rows = [(claim.paper, claim.ours, "yes" if claim.holds else "**no**") for claim in self.claims]
        parts = [f"# {self.title}", self.setup, Table((self.claimed_by, "here", "holds here"), rows).markdown()]
        failed = [claim for claim in self.claims if not claim.holds and claim.because]
        if failed:
            parts.append("\n".join(f"- Not: “{claim.paper}”. {claim.because}" for claim in failed))
        if self.picture is not None:
            parts.append(f"![{self.title}]({self.name}.png)")
        parts += [table.markdown() for table in self.tables]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        parts.append(stamp(self.parameters, self.seed))
        return "\n\n".join(parts) + "\n"

    def write(self, out: Path = RESULTS) -> Path:
        """Write NAME.md, and NAME.png if there is a picture, which is closed; the path of the Markdown."""
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{self.name}.md"
        path.write_text(self.markdown(), encoding="utf-8")
        if self.picture is not None:
            self.picture.savefig(out / f"{self.name}.png", dpi=_DPI)
            plt.close(self.picture)
        return path


def panels(count: int, caption: str, width: float = 5.4, height: float = 4.4) -> tuple[Figure, list[Axes]]:
    """A picture with this many panels side by side and a caption below, wrapped to fit."""
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), squeeze=False)
    text = textwrap.fill(caption, int(_CAPTION_PER_INCH * width * count))
    lines = text.count("\n") + 1
    bottom = (0.14 * lines + 0.12) / height
    figure.text(0.5, 0.06 / height, text, ha="center", va="bottom", fontsize=8, style="italic")
    figure.set_layout_engine("tight", rect=(0, bottom, 1, 1))
    return figure, list(axes[0])


def finish(axes: Axes, *, legend: bool = True, from_zero: bool = True, **settings: Any) -> None:
    """Set labels and title, a light grid, the y axis from 0 (unless it is logarithmic) and a legend."""
    axes.set(**settings)
    axes.grid(alpha=0.3)
    if from_zero and axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    if legend:
        axes.legend(fontsize=8)


def run_figures(
    what: str | None, figures: Mapping[str, Callable[[bool], Report]], before: Callable[[], None] = lambda: None
) -> None:
    """The command line of a benchmark with several figures: make those that were asked for, one page each.

    ``figures`` are made by functions that are told whether to be quick; ``before`` is done once, before the first.
    """
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", nargs="+", choices=list(figures), default=list(figures))
    parser.add_argument("--quick", action="store_true", help="a small version, for a look")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    before()
    for name in options.figure:
        print(f"figure {name}", flush=True)
        began = time.perf_counter()
        report = figures[name](options.quick)
        if options.quick:
            report = replace(report, name=f"{report.name}-quick")
        path = report.write(options.out)
        held = sum(claim.holds for claim in report.claims)
        print(
            f"wrote {path.name}: {held} of {len(report.claims)} claims hold, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
