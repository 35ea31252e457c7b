"""enorm, figure 10: the pause of a migration; and what it shares with figures 11 and 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import millis, scratch, session
from enorm_runs import (
    COMPUTE,
    CORES,
    WINDOWS,
    Run,
    check_windows,
    expected_windows,
    fresh,
    move_on,
    rows_between,
    simple_job,
    steered,
    written,
)
from headgate.arrays import I64
from reporting import Claim, Report, Table, finish, panels, rises

SLOTS, GROUPS = 4, 256
LENGTH = 5
"""Minutes of the windows."""

ROW_BYTES = 68
"""About what a partial takes in the store; what was really moved is in the tables."""

NEGLIGIBLE = 0.01
"""Seconds of a pause that nobody notices."""

SMALL = "Up to some megabytes the pause is that of opening and writing a few files, whatever they hold, and noise."

PARTS = 4
"""A quarter of the key groups moves at a time."""

WAYS = {
    "instant": ("split", "instant"),
    "disruptive": ("split", "copy"),
    "smooth": ("whole", "smooth"),
    "manifest": ("split", "manifest"),
}
"""Form of the job and ``migration=``."""


def quarter(number: int) -> range:
    """The key groups that move at the n-th time."""
    each = GROUPS // PARTS
    return range(each * number, each * (number + 1))


def once(keys: int, start: float, end: float, rng: np.random.Generator) -> pa.Table:
    """A row of every key."""
    return rows_between(rng.permutation(keys).astype(np.int64), start, end, rng)


def some(keys: int, rows: int, start: float, end: float, rng: np.random.Generator) -> pa.Table:
    """Rows of keys drawn uniformly."""
    drawn: I64 = rng.integers(0, keys, rows)
    return rows_between(drawn, start, end, rng)


def closing(keys: int, first: float, rng: np.random.Generator) -> list[pa.Table]:
    """Batches by which the windows before ``first`` close, and one more, with which the journal is complete."""
    return [some(keys, 100, first + at, first + at + 0.5, rng) for at in (0, 1, 2)]


@dataclass(slots=True)
class Moves:
    """What was measured of one way at one size of state."""

    moved: list[float] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def take(self, run: Run, at: Sequence[int], operator: str, way: str) -> None:
        """Note the migrations of a run that began with these batches."""
        over = [one for one in run.migrated(operator) if one["way"] == way]
        assert len(over) == len(at), f"{way}: {len(over)} of {len(at)} migrations are over"
        for one, batch in zip(over, at, strict=True):
            self.moved.append(one["state_bytes"])
            self.pause.append(one["pause_seconds"])
            self.copied.append(one["copied_bytes"])
            self.batches.append(one["completion_batches"])
            self.left.append(one["most_rows_left_behind"])
            self.added.append(run.added(batch))


def figure10(quick: bool) -> Report:
    """The pause of a migration against the state that moves."""
    sizes, rows, moves = ((0.1, 1.0), 500, 1) if quick else ((0.1, 0.5, 1.0, 5.0, 20.0, 50.0), 20_000, 3)
    rng = np.random.default_rng(10)
    at = [4 + 2 * number for number in range(moves)]
    results: dict[tuple[str, float], Moves] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        warm_up(spark, space, rng)
        for size in sizes:
            keys = max(100, int(size * 1e6 / ROW_BYTES * PARTS))
            count = at[-1] + 2
            tables = [once(keys, 0, 0.1, rng)]
            tables += [some(keys, rows, 0.1 + 0.8 * n / count, 0.1 + 0.8 * (n + 1) / count, rng) for n in range(count)]
            tables += closing(keys, LENGTH + 1, rng)
            folder, wanted = written(space / f"in-{size}", tables), expected_windows(tables, [LENGTH])
            for way, (form, migration) in WAYS.items():
                operator = WINDOWS if form == "whole" else COMPUTE
                script = {batch: moving(number, operator) for number, batch in enumerate(at)}
                sink = hg.sinks.memory()
                job = simple_job(spark, folder, form, [LENGTH], sink, groups=GROUPS)
                run = steered(job, spark, fresh(space, size, way), script, slots=SLOTS, migration=migration)
                check_windows(sink.to_arrow(), wanted, way)
                one = results[way, size] = Moves()
                one.take(run, at, operator, _named(way))
                print(f"  {size} MB, {way}: pause {millis(median(one.pause))}, added {millis(median(one.added))}",
                      flush=True)  # fmt: skip
    pause = {key: median(one.pause) for key, one in results.items()}
    disruptive = [pause["disruptive", size] for size in sizes]
    added = {way: median(results[way, sizes[-1]].added) for way in WAYS}
    longest = {way: max(pause[way, size] for size in sizes) for way in WAYS}
    ratio = disruptive[-1] / max(pause["instant", sizes[-1]], 1e-6)
    picture, axes = panels(
        2, f"Medians of {moves} moves. A quarter of {GROUPS} key groups moves within the first minute; {SLOTS} slots."
    )
    moved = {size: median(results["disruptive", size].moved) / 1e6 for size in sizes}
    for way in WAYS:
        axes[0].plot(list(moved.values()), [1e3 * pause[way, size] for size in sizes], "o-", label=way)
        extra = [1e3 * median(results[way, size].added) for size in sizes]
        axes[1].plot(list(moved.values()), extra, "o-", label=way)
    finish(axes[0], xlabel="state that moves, MB", ylabel="pause, ms", title="pause by the journal")
    finish(axes[1], xlabel="state that moves, MB", ylabel="added to the batch, ms", title="added to a batch",
           from_zero=False)  # fmt: skip
    return Report(
        name="enorm_fig10",
        title="enorm, figure 10: migration latency",
        setup=f"The simple job with windows of {LENGTH} minutes. A batch brings every key once, then batches of "
        f"{rows:,} rows follow within the same minute; before every second one another quarter of {GROUPS} key groups "
        f"changes slot ({moves} move(s)). Instant, disruptive and by manifest: the compute of a split job; smooth: the "
        "windows of a job that is not split. The pause is the longest time that a slot spends on moved state before "
        "it takes rows; “added” is the batch's time beyond the mean of its two neighbours. Windows of all runs are "
        f"equal to pyarrow's. local[{CORES}], {SLOTS} slots.",
        claims=[
            Claim(
                "instant migration incurs negligible latency",
                f"a pause of at most {longest['instant'] * 1e3:.3f} ms",
                longest["instant"] <= NEGLIGIBLE,
            ),
            Claim(
                "the pause of disruptive migration grows with the state",
                ", ".join(f"{moved[size]:.1f} MB: {millis(one)}" for size, one in zip(sizes, disruptive, strict=True)),
                rises(disruptive),
                because=SMALL,
            ),
            Claim(
                "the larger the state, the more efficient instant migration becomes: at least 10 times at the largest",
                f"{millis(disruptive[-1])} against {pause['instant', sizes[-1]] * 1e3:.3f} ms",
                ratio >= 10,
            ),
            Claim(
                "the same by the time of the whole batch: instant adds less than disruptive at the largest",
                f"{millis(added['instant'])} against {millis(added['disruptive'])}",
                added["instant"] < added["disruptive"],
            ),
            Claim(
                "smooth migration incurs no latency (enorm 7.3)",
                f"a pause of at most {longest['smooth'] * 1e3:.3f} ms",
                longest["smooth"] <= NEGLIGIBLE,
            ),
        ],
        tables=[
            Table(
                ("moved", "way", "pause", "added to the batch", "copied", "over after batches", "rows left behind"),
                [
                    (
                        f"{median(one.moved) / 1e6:.1f} MB", way, f"{median(one.pause) * 1e3:.3f} ms",
                        millis(median(one.added)), f"{median(one.copied) / 1e6:.1f} MB", f"{median(one.batches):.0f}",
                        f"{median(one.left):,.0f}",
                    )
                    for (way, _), one in sorted(results.items(), key=lambda item: item[0][1])
                ],
            )
        ],
        parameters={"rows": rows, "moves": moves},
        seed=10,
        notes=[
            "Only copying does anything with state before it takes rows, so the pause of the other ways is that of a "
            "step with nothing to do. “Added” shows whether they make the batch longer elsewhere; what instant and "
            "smooth moves cost later, when the parts are merged, is in figure 12.",
            "By manifest, headgate's own way, state changes owner by reference: it is as quick as instant migration, "
            "wants no consolidate behind it, and leaves nothing behind. Of it the paper says nothing."
        ],
        picture=picture,
    )  # fmt: skip


def _named(way: str) -> str:
    """What the journal calls it."""
    return "copy" if way == "disruptive" else way


def moving(number: int, operator: str) -> Callable[[hg.Query], None]:
    """What moves a quarter of the key groups, each to the next slot."""
    return lambda query: move_on(query, quarter(number), SLOTS, operator)


def warm_up(spark: SparkSession, space: Path, rng: np.random.Generator) -> None:
    """Python workers start and Numba compiles in runs of their own."""
    tables = [once(200, at, at + 0.5, rng) for at in (0, 6, 7)]
    folder = written(space / "warm", tables)
    for form in ("split", "whole"):
        job = simple_job(spark, folder, form, [LENGTH], hg.sinks.memory(), groups=GROUPS)
        steered(job, spark, fresh(space, "warm", form), {1: moving(0, WINDOWS)}, slots=SLOTS, migration="copy")
