"""Skew: 16 slots, a service time per tuple, and a distribution that shifts every few intervals.

    python benchmarks/engine_skew.py [--only per-key|combinable] [--quick]

per-key      a Python function per key, Zipf 0.85 and 1.0: headgate with Mixed against headgate with hashing and Spark's
             applyInPandasWithState with 16 shuffle partitions
combinable   running count and sum whose rows are not combined early, Zipf 1.0: hot keys split (W-Choices) and Mixed
             against hashing

Work is emulated by sleeping, so that 16 slots fit on few cores: a tuple takes its service time in its slot. With n
tuples in a batch, h of them of the hottest key, no placement on 16 slots takes less than service * max(n / 16, h); keys
that may be split need only service * n / 16. A throughput is given as a share of that bound:

    share of a batch   its bound / what Spark measured for it (triggerExecution), fixed cost of the batch included
    placement          max(n / 16, h) / tuples of the fullest slot: what the placement alone allows

At a shift all keys change places in the distribution. The batch of a shift runs with the placement for the old one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

import headgate as hg
from engine import (
    Course,
    arguments,
    expected,
    latest,
    rows_of,
    run_headgate,
    run_spark,
    same,
    scratch,
    session,
    state_of,
    stream_of,
    times,
    write_batches,
)
from headgate.arrays import F64, Bool
from headgate.workloads.zipf import zipf_shares
from reporting import Claim, Report, Table, finish, panels

SLOTS = 16
KEYS = 100_000
SERVICE = 0.002
"""Seconds per tuple. With 80,000 tuples a balanced batch sleeps 10 s, while 16 slots share two cores for the rest: what
is not emulated then is a small part, as it would be with 16 cores."""

WAIT = "1 second"
"""At most so long a batch waits for the plan that the one before it gave rise to; the waiting counts."""

DEBT = 0.02
"""The twin sleeps once it owes this many seconds, and takes off what it overslept: many short sleeps are inexact."""

RECOVERED = 0.9
"""A placement has recovered from a shift when it allows this share of the bound."""

RESULT, STATE = "k long, n long, total long", "n long, total long"
MIXED, HASHED, SPARK, SPLIT = "headgate, Mixed", "headgate, hashing", "Spark", "headgate, Mixed and splitting"


@dataclass(frozen=True, slots=True)
class Setting:
    """How long a stream is; ``every`` batches it shifts. Spark gets its first ``spark`` batches."""

    rows: int
    batches: int
    every: int
    spark: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Skewed:
    """A stream: its batches, and per batch the tuples and those of the hottest key."""

    tables: list[pa.Table]
    total: F64
    hottest: F64
    is_shift: Bool

    def bound(self, *, splits: bool = False) -> F64:
        """Seconds that each batch takes at least."""
        return SERVICE * (self.total / SLOTS if splits else np.maximum(self.total / SLOTS, self.hottest))


def stream(z: float, setting: Setting) -> Skewed:
    """Batches drawn from a Zipf distribution whose keys are shuffled at each shift; the first batch is one."""
    rng = np.random.default_rng([setting.seed, int(z * 100)])
    shares = zipf_shares(KEYS, z)
    tables, totals, hottest, shifts = [], [], [], []
    keys = np.arange(KEYS)
    for number in range(setting.batches):
        shifts.append(number % setting.every == 0)
        if shifts[-1]:
            keys = rng.permutation(KEYS)
        tables.append(rows_of(keys[rng.choice(KEYS, setting.rows, p=shares)], rng))
        totals.append(float(setting.rows))
        hottest.append(float(np.bincount(tables[-1]["k"].to_numpy()).max()))
    return Skewed(tables, np.array(totals), np.array(hottest), np.array(shifts))


def on_key(key: int, rows: hg.Rows, state: dict[str, int]) -> dict[str, int]:
    """The function per key; its service time is headgate's ``service_time``."""
    state["n"] += len(rows)
    state["total"] += sum(rows["v"])
    return {"k": key, "n": state["n"], "total": state["total"]}


def twin() -> Any:
    """The same for Spark, with the service time inside."""
    service, debt = SERVICE, DEBT
    owed = 0.0

    def in_pandas(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        nonlocal owed
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n += len(frame)
            total += int(frame["v"].sum())
            owed += service * len(frame)
        if owed > debt:
            start = time.perf_counter()
            time.sleep(owed)
            owed -= time.perf_counter() - start
        state.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    return in_pandas


def headgate_side(
    spark: SparkSession, folder: Path, checkpoint: Path, skewed: Skewed, *, balance: str | None, combinable: bool
) -> Course:
    job = hg.Job("skew")
    memory = hg.sinks.memory()
    keyed = job.source(stream_of(spark, folder)).key_by("k")
    if combinable:
        split = balance is not None
        results = keyed.aggregate(n=hg.count(), total=hg.sum("v"), combine_early=False, split=split)
    else:
        results = keyed.process(on_key, state={"n": 0, "total": 0}, output=RESULT)
    results.write_to(memory)
    course = run_headgate(
        job, spark, checkpoint, slots=SLOTS, balance=balance, wait_for_plan=WAIT, service_time=SERVICE
    )
    same(latest(memory.to_arrow()), expected(skewed.tables), f"headgate, {balance}")
    return course


def spark_side(spark: SparkSession, folder: Path, checkpoint: Path, tables: list[pa.Table]) -> Course:
    frame = stream_of(spark, folder).groupBy("k").applyInPandasWithState(twin(), RESULT, STATE, "update", "NoTimeout")
    course = run_spark(frame, checkpoint)
    columns = {"k": "key.k", "n": "value.groupState.n", "total": "value.groupState.total"}
    same(state_of(spark, checkpoint, columns), expected(tables), "Spark")
    return course


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One side on one stream."""

    side: str
    course: Course
    skewed: Skewed
    splits: bool = False

    @property
    def bound(self) -> F64:
        """Seconds that each batch takes at least."""
        return self.skewed.bound(splits=self.splits)[: len(self.course.seconds)]

    @property
    def shares(self) -> F64:
        """Each batch's share of the bound."""
        return self.bound / self.course.seconds

    @property
    def placement(self) -> F64:
        """What the placement of each batch allows, as a share of the bound."""
        fullest = np.array([max(each["slot_rows"]) for each in self.course.progress], dtype=float)
        allowed: F64 = self.bound / SERVICE / fullest
        return allowed

    @property
    def fixed(self) -> float:
        """Seconds of a batch, on average, beyond what its fullest slot slept."""
        fullest = np.array([max(each["slot_rows"]) for each in self.course.progress], dtype=float)
        return float((self.course.seconds - SERVICE * fullest)[1:].mean())

    def throughput(self, *, shifts: bool) -> float:
        """Of the throughput that the bound allows, the share that was reached, with or without batches of a shift.

        The first batch of a query, in which processes start, does not count.
        """
        count = len(self.course.seconds)
        counted = (~self.skewed.is_shift[:count]) if not shifts else np.arange(count) > 0
        return float(self.bound[counted].sum() / self.course.seconds[counted].sum())

    def recovery(self) -> list[int]:
        """For each shift after the first, the intervals until the placement has recovered: 0 if it did not suffer."""
        taken = []
        starts = [*np.flatnonzero(self.skewed.is_shift)[1:].tolist(), len(self.placement)]
        for start, end in itertools.pairwise(starts):
            good = np.flatnonzero(self.placement[start:end] >= RECOVERED)
            taken.append(int(good[0]) if len(good) else end - start)
        return taken


def measured(spark: SparkSession, space: Path, z: float, setting: Setting, *, combinable: bool) -> list[Outcome]:
    """All sides on one stream, one after the other: the emulated work is not disturbed by the machine."""
    skewed = stream(z, setting)
    name = f"{'combinable' if combinable else 'per-key'}-{z}"
    folder = write_batches(space / name, skewed.tables)
    made = []
    for side, balance in ((SPLIT if combinable else MIXED, "mixed"), (HASHED, None)):
        checkpoint = space / f"{name}-{balance}"
        course = headgate_side(spark, folder, checkpoint, skewed, balance=balance, combinable=combinable)
        made.append(Outcome(side, course, skewed, combinable))
    if not combinable:
        tables = skewed.tables[: setting.spark]
        course = spark_side(spark, write_batches(space / f"{name}-short", tables), space / f"{name}-spark", tables)
        made.append(Outcome(SPARK, course, skewed))
    for one in made:
        print(f"Zipf {z}, {one.side}: {one.throughput(shifts=False):.1%} of the bound between shifts", flush=True)
        print(f"  seconds {one.course.seconds.round(2).tolist()}, bound {one.bound.round(2).tolist()}", flush=True)
    return made


def row(z: float, one: Outcome) -> tuple[object, ...]:
    ours = bool(one.course.progress)
    return (
        f"Zipf {z}",
        one.side,
        f"{one.throughput(shifts=False):.1%}",
        f"{one.throughput(shifts=True):.1%}",
        f"{one.placement[~one.skewed.is_shift].mean():.1%}" if ours else "",
        f"{one.fixed:.2f} s" if ours else "",
        f"{fmean(one.recovery()):.1f}" if ours and one.recovery() and one.side != HASHED else "",
        f"{one.course.seconds[1:].mean():.2f} s",
    )


def picture(outcomes: dict[tuple[float, bool], list[Outcome]], setting: Setting) -> Figure:
    figure, axes = panels(
        len(outcomes),
        f"Throughput of each batch as a share of its bound; {SLOTS} slots, {KEYS:,} keys, {setting.rows:,} tuples of "
        f"{SERVICE * 1e3:g} ms a batch. Dotted: all keys change places.",
    )
    for at, ((z, combinable), made) in zip(axes, outcomes.items(), strict=True):
        for one in made:
            at.plot(np.arange(len(one.shares)), one.shares, marker="o", markersize=3, label=one.side)
        for shift in np.flatnonzero(made[0].skewed.is_shift):
            at.axvline(float(shift), color="grey", linestyle=":", linewidth=0.8)
        at.axhline(0.9, color="black", linewidth=0.6, linestyle="--")
        kind = "combinable, keys split" if combinable else "function per key"
        finish(at, title=f"Zipf {z}, {kind}", xlabel="batch", ylabel="share of the bound", ylim=(0, 1.05))
    return figure


def claims_of(z: float, made: list[Outcome], *, combinable: bool) -> list[Claim]:
    ours, hashed = made[0], made[1]
    share = ours.throughput(shifts=False)
    against = ours.throughput(shifts=True) / hashed.throughput(shifts=True)
    if combinable:
        return [
            Claim(
                f"combinable, Zipf {z}: at least 90 % of the bound without the hottest key",
                f"{share:.1%} between shifts, {ours.throughput(shifts=True):.1%} with them",
                share >= 0.9,
            ),
            Claim(
                f"combinable, Zipf {z}: at least 1.8 times hashing",
                times(against),
                against >= 1.8,
                f"The batches of shifts, which are as slow as hashing, count here; without them it is "
                f"{times(share / hashed.throughput(shifts=False))}.",
            ),
        ]
    # Both sides over the same batches: as many as Spark got.
    count = len(made[2].course.seconds)
    theirs = made[2].course.seconds[1:].sum()
    faster = float(theirs / ours.course.seconds[1:count].sum())
    perfect = float(theirs / ours.bound[1:count].sum())
    return [
        Claim(
            f"Zipf {z}: at least 90 % of the bound",
            f"{share:.1%} between shifts, {ours.throughput(shifts=True):.1%} with them",
            share >= 0.9,
            "Placement takes its part (a plan is made from one batch, and the tuples of the next are drawn anew), and "
            f"so does the fixed cost: {ours.fixed:.2f} s in which {SLOTS} slots share the cores for all that is not "
            "emulated.",
        ),
        Claim(
            f"Zipf {z}: at least 2 times applyInPandasWithState",
            f"{times(faster)}; the bound itself would be {times(perfect)}",
            faster >= 2,
        ),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=80_000, help="tuples per batch")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--every", type=int, default=3, help="batches between two shifts")
    parser.add_argument("--only", choices=["per-key", "combinable"])
    options = parser.parse_args()
    setting = Setting(options.rows, options.batches, options.every, 3, options.seed)
    if options.quick:
        setting = Setting(8_000, 4, 2, 2, options.seed)
    cases = [(0.85, False), (1.0, False), (1.0, True)]
    if options.quick:
        cases = cases[1:]
    if options.only is not None:
        cases = [(z, combinable) for z, combinable in cases if combinable == (options.only == "combinable")]
    outcomes: dict[tuple[float, bool], list[Outcome]] = {}
    with scratch() as space, session(SLOTS, SLOTS) as spark:
        warm = stream(1.0, Setting(2_000, 2, 1, 1, options.seed))
        folder = write_batches(space / "warm", warm.tables)
        headgate_side(spark, folder, space / "warm-up", warm, balance="mixed", combinable=False)
        headgate_side(spark, folder, space / "warm-up-too", warm, balance="mixed", combinable=True)
        for z, combinable in cases:
            outcomes[z, combinable] = measured(spark, space, z, setting, combinable=combinable)
    claims = [
        claim for (z, combinable), made in outcomes.items() for claim in claims_of(z, made, combinable=combinable)
    ]
    table = Table(
        (
            "stream",
            "side",
            "of the bound, between shifts",
            "with the batches of shifts",
            "placement alone",
            "fixed cost a batch",
            "intervals to recover",
            "mean batch",
        ),
        [row(z, one) for (z, _), made in outcomes.items() for one in made],
    )
    recovered = [count for made in outcomes.values() for count in made[0].recovery()]
    report = Report(
        name="engine_skew",
        title="Skew: throughput as a share of what perfect balance allows",
        setup=f"{SLOTS} slots on local[{SLOTS}], {KEYS:,} keys, {setting.rows:,} tuples a batch of {SERVICE * 1e3:g} "
        f"ms each (a balanced batch sleeps {setting.rows * SERVICE / SLOTS:.2f} s), all keys change places every "
        f"{setting.every} batches. Bound: service time x max(tuples / {SLOTS}, tuples of the hottest key), for the "
        "combinable operator without the hottest key. A batch is what Spark measures (triggerExecution), with all "
        f"that is not emulated. The first batch of each query does not count. Spark's twin gets {setting.spark} "
        "batches. Counts and sums of all keys are compared with pyarrow's.",
        claims=claims,
        tables=[table],
        parameters={"rows": setting.rows, "batches": setting.batches, "every": setting.every, "service_s": SERVICE},
        seed=options.seed,
        notes=[
            f"Recovery counts the batches from a shift to the first whose placement allows {RECOVERED:.0%} of the "
            f"bound: {', '.join(map(str, recovered)) or 'no shift after the first'}. 1 is the least that a "
            "controller can do that does not see the future.",
            "Spark's twin also pays pandas for every key; its sleeping alone is that of hashing.",
        ],
        claimed_by="the target",
        picture=picture(outcomes, setting),
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
