"""enorm, figure 9 and section 7.7: what consolidating costs, and what two components cost instead of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import Course, scratch, session, times
from enorm_runs import CORES, check_windows, expected_windows, fresh, rows_between, simple_job, steered, written
from reporting import Claim, Report, Table, finish, panels

SLOTS = 2
FORMS = ("combined", "split")
LENGTHS = {"2 windows": (5, 10), "6 windows": (5, 10, 15, 20, 25, 30)}
"""Minutes, enorm 7.1."""

LITTLE = 0.1
"""A difference is little up to this share."""

MORE_PARTIALS = (
    "Rows are added up before they are sent, so what is left of the rows of a minute are its keys: a minute of 100,000 "
    "rows has some 1,000, 10,000, 43,000 and 63,000 of them. The paper sends every row."
)
WARM = 1
STEP = 5
"""Minutes of the stream in a batch: five slices end in it."""


@dataclass(frozen=True, slots=True)
class Size:
    """``rows`` are those of a minute."""

    keys: tuple[int, ...]
    rows: int
    batches: int
    rounds: int


FULL = Size((1_000, 10_000, 50_000, 100_000), 100_000, 12, 2)
QUICK = Size((500, 4_000), 5_000, 8, 1)


def stream(keys: int, size: Size, rng: np.random.Generator) -> list[pa.Table]:
    """Batches of ``STEP`` minutes, and two small ones by which the last windows close."""
    tables = [
        rows_between(rng.integers(0, keys, STEP * size.rows), STEP * at, STEP * (at + 1), rng)
        for at in range(size.batches)
    ]
    end = STEP * size.batches
    return tables + [rows_between(rng.integers(0, keys, 100), end + at, end + at + 0.5, rng) for at in (0, 1)]


def took(course: Course) -> float:
    """Seconds of all batches that count: not the first, nor the one behind the last that closes nothing."""
    return float(course.seconds[WARM:-1].sum())


def timed_run(
    spark: SparkSession, folder: Path, checkpoint: Path, form: str, lengths: Sequence[int], wanted: pa.Table
) -> Course:
    sink = hg.sinks.memory()
    job = simple_job(spark, folder, form, lengths, sink)
    run = steered(job, spark, checkpoint, slots=SLOTS)
    check_windows(sink.to_arrow(), wanted, f"{form}, {len(lengths)} windows")
    sent = sum(each["edges"].get("compute", {}).get("windows", 0) for each in run.course.progress)
    assert sent, "the compute sent nothing to the consolidate"
    return run.course


def figure9(quick: bool) -> Report:
    """Throughput against the keys of a partial, for two and six windows, combined and split."""
    size = QUICK if quick else FULL
    rng = np.random.default_rng(9)
    counted = size.rows * STEP * (size.batches - WARM)
    rates: dict[tuple[str, str, int], list[float]] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        streams = {keys: stream(keys, size, rng) for keys in size.keys}
        folders = {keys: written(space / f"in-{keys}", tables) for keys, tables in streams.items()}
        wanted = {
            (name, keys): expected_windows(tables, lengths)
            for keys, tables in streams.items()
            for name, lengths in LENGTHS.items()
        }
        del streams
        _warm_up(spark, space, rng)
        for turn in range(size.rounds):
            for keys in size.keys:
                for name, lengths in LENGTHS.items():
                    for form in FORMS[:: 1 if turn % 2 == 0 else -1]:
                        checkpoint = fresh(space, "checkpoint", turn, keys, name, form)
                        course = timed_run(spark, folders[keys], checkpoint, form, lengths, wanted[name, keys])
                        rates.setdefault((name, form, keys), []).append(counted / took(course))
                        print(f"  {keys} keys, {name}, {form}: {rates[name, form, keys][-1]:,.0f} rows/s", flush=True)
    rate = {key: median(values) for key, values in rates.items()}
    return _report9(size, rate)


def _warm_up(spark: SparkSession, space: Path, rng: np.random.Generator) -> None:
    """Python workers start and Numba compiles in a run of its own."""
    tables = [rows_between(rng.integers(0, 50, 500), at, at + 1, rng) for at in (0, 6, 12)]
    folder = written(space / "warm", tables)
    for form in FORMS:
        steered(simple_job(spark, folder, form, (5,), hg.sinks.memory()), spark, fresh(space, "w", form), slots=SLOTS)


def _report9(size: Size, rate: dict[tuple[str, str, int], float]) -> Report:
    def doubling(name: str, form: str) -> float:
        """The greatest loss by doubling the keys, between neighbouring points."""
        losses = [
            1 - math.pow(rate[name, form, more] / rate[name, form, fewer], 1 / math.log2(more / fewer))
            for fewer, more in pairwise(size.keys)
        ]
        return max(losses)

    worst = {form: max(doubling(name, form) for name in LENGTHS) for form in FORMS}
    windows = [rate["6 windows", form, keys] / rate["2 windows", form, keys] for form in FORMS for keys in size.keys]
    below = [rate[name, "split", keys] / rate[name, "combined", keys] for name in LENGTHS for keys in size.keys]
    picture, (panel,) = panels(
        1, f"{size.rows:,} rows a minute, windows of 5, 10 (and 15 to 30) minutes; local[{CORES}], {SLOTS} slots.", 7
    )
    for name in LENGTHS:
        for form in FORMS:
            series = [rate[name, form, keys] / 1e6 for keys in size.keys]
            panel.plot(size.keys, series, "o-" if form == "combined" else "s--", label=f"{name}, {form}")
    finish(panel, xlabel="keys of a partial", ylabel="million rows a second", xscale="log")
    return Report(
        name="enorm_fig09",
        title="enorm, figure 9: consolidation overhead",
        setup=f"The simple job: partials of a minute by key, consolidated to windows of 5 and 10, or of 5, 10, ... 30 "
        f"minutes. {size.batches} batches of {STEP} minutes with {size.rows:,} rows each minute, keys drawn uniformly; "
        f"local[{CORES}], {SLOTS} slots; {size.rounds} rounds in which all configurations take turns, medians. The "
        "first batch does not count. Windows of all runs are equal to pyarrow's. The paper shows curves without "
        f"numbers; “little” is a tenth here.",
        claims=[
            Claim(
                "doubling the keys affects the throughput of the combined component very little",
                f"at most {worst['combined']:.0%} lost by doubling",
                worst["combined"] <= LITTLE,
                because=MORE_PARTIALS,
            ),
            Claim(
                "it affects the split component more",
                f"at most {worst['split']:.0%} against {worst['combined']:.0%}",
                worst["split"] > worst["combined"],
                because="The shuffle between the two is mostly a fixed cost of a batch, whatever the number of keys.",
            ),
            Claim(
                "the number of overlapping windows has little impact on the throughput",
                f"six windows have {min(windows):.0%} to {max(windows):.0%} of the throughput of two, median "
                f"{median(windows):.0%}",
                median(windows) >= 1 - LITTLE,
            ),
            Claim(
                "split is below combined",
                f"{min(below):.0%} to {max(below):.0%} of it, median {median(below):.0%}",
                median(below) < 1,
            ),
        ],
        tables=[
            Table(
                ("keys of a partial", *(f"{name}, {form}" for name in LENGTHS for form in FORMS)),
                [
                    (f"{keys:,}", *(f"{rate[name, form, keys]:,.0f}" for name in LENGTHS for form in FORMS))
                    for keys in size.keys
                ],
                "Rows a second",
            )
        ],
        parameters={"rows": size.rows, "batches": size.batches, "rounds": size.rounds},
        seed=9,
        picture=picture,
    )


TIMES_KEYS = 10_000
PAPER_SECONDS = {"combined": 456.0, "split": 512.0}
"""enorm 7.7."""


def section77(quick: bool) -> Report:
    """Total time for the same rows as one component and as two."""
    keys = 500 if quick else TIMES_KEYS
    size = Size((keys,), 5_000, 8, 2) if quick else Size((keys,), 300_000, 12, 3)
    rng = np.random.default_rng(77)
    lengths = LENGTHS["2 windows"]
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    used: dict[str, list[float]] = {form: [] for form in FORMS}
    with scratch() as space, session(CORES, SLOTS) as spark:
        tables = stream(keys, size, rng)
        folder, wanted = written(space / "in", tables), expected_windows(tables, lengths)
        del tables
        _warm_up(spark, space, rng)
        for turn in range(size.rounds):
            for form in FORMS[:: 1 if turn % 2 == 0 else -1]:
                course = timed_run(spark, folder, fresh(space, "checkpoint", turn, form), form, lengths, wanted)
                seconds[form].append(took(course))
                used[form].append(sum(each["seconds"]["tasks"] for each in course.progress[WARM:-1]))
                print(f"  {form}: {seconds[form][-1]:.2f} s", flush=True)
    ratios = [split / combined for split, combined in zip(seconds["split"], seconds["combined"], strict=True)]
    ratio = median(ratios)
    paper = PAPER_SECONDS["split"] / PAPER_SECONDS["combined"]
    picture, (panel,) = panels(1, "Medians of total times for the same rows, as shares of the combined job's.", 6)
    for at, (label, values) in enumerate((("paper", (1.0, paper)), ("here", (1.0, ratio)))):
        panel.bar([at - 0.2, at + 0.2], values, 0.35, color=["C0", "C1"], label=label if at else None)
    panel.set_xticks(
        [-0.2, 0.2, 0.8, 1.2], ["combined\n(paper)", "split\n(paper)", "combined\n(here)", "split\n(here)"]
    )
    finish(panel, ylabel="total time / combined", legend=False)
    rows = size.rows * STEP * size.batches
    return Report(
        name="enorm_section77",
        title="enorm, section 7.7: one component against two",
        setup=f"The simple job, windows of 5 and 10 minutes, {rows:,} rows of {keys:,} keys in {size.batches} batches "
        f"(the paper has 18 million); local[{CORES}], {SLOTS} slots; {size.rounds} rounds in which both take turns. "
        "Ratios are those of a round, their median is given. Windows of all runs are equal to pyarrow's.",
        claims=[
            Claim(
                "two components take more than 10 % longer: 512 s against 456 s",
                f"{median(seconds['split']):.1f} s against {median(seconds['combined']):.1f} s: {times(ratio)}",
                ratio > 1.1,
            )
        ],
        tables=[
            Table(
                ("form", "total", "in tasks", "against combined", "paper"),
                [
                    (form, f"{median(seconds[form]):.2f} s", f"{median(used[form]):.2f} s",
                     times(ratio if form == "split" else 1.0), f"{PAPER_SECONDS[form]:.0f} s")
                    for form in FORMS
                ],
            )
        ],
        parameters={"rows": rows, "keys": keys, "rounds": size.rounds},
        seed=77,
        notes=[f"Ratios of the rounds: {', '.join(f'{one:.2f}' for one in ratios)}."],
        picture=picture,
    )  # fmt: skip
