"""enorm, figure 16: the fast job, four operators by the same key one after another, with 0, 2, 3 or 4 of them fused.

tuples      each operator keeps count and sum per key of its window (1, 5, 10 and 20 minutes) and sends every row on
aggregates  each operator keeps running aggregates, and sends on those of the keys that a batch touched
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import expected, latest, same, scratch, session, times
from enorm_runs import CORES, FILES, MINUTE, Run, fresh, rows_between, steered, written
from headgate.sinks import Sink
from reporting import Claim, Report, Table, falls, finish, panels

SLOTS = 2
NAMES = ("one", "five", "ten", "twenty")
INTERVALS = (1, 5, 10, 20)
"""Minutes, enorm 7, “Fast Job”."""

FUSED = (0, 2, 3, 4)
FORMS = ("tuples", "aggregates")
TARGET = 3.0
WARM = 2
ROWS = "k long, v long, at timestamp"
SUMS = "k long, n long, total long"


def keeping(minutes: int, *, last: bool) -> Callable[[hg.Batch], Any]:
    """An operator that keeps count and sum of the latest window of each key. All rows go on; the last operator gives
    what it keeps instead."""
    length = minutes * MINUTE

    def keep(batch: hg.Batch) -> Any:
        window = np.asarray(batch.rows["at"].cast("int64")) // length
        values = np.asarray(batch.rows["v"])
        starts = batch.starts[:-1]
        newest = np.maximum.reduceat(window, starts)
        counted = window == np.repeat(newest, batch.counts)
        n, total = np.add.reduceat(counted.astype(np.int64), starts), np.add.reduceat(values * counted, starts)
        goes_on = np.asarray(batch.state["window"]) == newest
        n = n + np.where(goes_on, np.asarray(batch.state["n"]), 0)
        total = total + np.where(goes_on, np.asarray(batch.state["total"]), 0)
        state = pa.table({"window": newest, "n": n, "total": total})
        if last:
            return pa.table({"k": batch.keys["k"], "n": n, "total": total}), state
        return batch.rows.select(["k", "v", "at"]), state

    return keep


def fast_job(spark: SparkSession, folder: Path, form: str, fused: int, sink: Sink) -> hg.Job:
    job = hg.Job("fast", fusion="off")
    rows = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=FILES))
    for name, minutes in zip(NAMES, INTERVALS, strict=True):
        last = name == NAMES[-1]
        if form == "tuples":
            rows = rows.key_by("k").process_arrow(
                keeping(minutes, last=last),
                state={"window": -1, "n": 0, "total": 0},
                output=SUMS if last else ROWS,
                keeps=["k"],
                name=name,
            )
        elif name == NAMES[0]:
            rows = rows.key_by("k").aggregate(name=name, n=hg.count(), total=hg.sum("v"))
        else:
            rows = rows.key_by("k").aggregate(name=name, n=hg.max("n"), total=hg.max("total"))
    rows.write_to(sink)
    if fused:
        job.fuse(*NAMES[:fused])
    components = len(set(job.components().component))
    assert components == (len(NAMES) - fused + 1 if fused else len(NAMES)), "operators are not fused as asked"
    return job


def sent(run: Run) -> int:
    """Rows from one operator to the next in all batches."""
    edges = (below for each in run.course.progress for below in each["edges"].values())
    return sum(sum(below.values()) for below in edges)


def figure16(quick: bool) -> Report:
    """Time for the same rows by the number of fused operators."""
    keys, rows, batches, rounds = (500, 10_000, 4, 1) if quick else (5_000, 4_000_000, 6, 2)
    rng = np.random.default_rng(16)
    seconds: dict[tuple[str, int], list[float]] = {(form, fused): [] for form in FORMS for fused in FUSED}
    crossing: dict[str, int] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        # All within twenty minutes, so that the last operator's window has all rows.
        tables = [
            rows_between(rng.integers(0, keys, rows), 19 * at / batches, 19 * (at + 1) / batches, rng)
            for at in range(batches)
        ]
        folder, wanted = written(space / "in", tables), expected(tables)
        warm = written(space / "warm", [table.slice(0, 1_000) for table in tables[:3]])
        del tables
        for form in FORMS:  # Python workers start, and the JVM and Numba compile, before anything counts
            for fused in (FUSED[0], FUSED[-1]):
                job = fast_job(spark, warm, form, fused, hg.sinks.memory())
                steered(job, spark, fresh(space, "warm", form, fused), slots=SLOTS)
        for turn in range(rounds):
            for form in FORMS:
                for fused in FUSED[:: 1 if turn % 2 == 0 else -1]:
                    sink = hg.sinks.memory()
                    run = steered(
                        fast_job(spark, folder, form, fused, sink), spark, fresh(space, turn, form, fused), slots=SLOTS
                    )
                    same(latest(sink.to_arrow()), wanted, f"{form}, {fused} fused")
                    crossing[form] = sent(run)
                    seconds[form, fused].append(float(run.course.seconds[WARM:].sum()))
                    print(f"  {form}, {fused} fused: {seconds[form, fused][-1]:.2f} s", flush=True)
    total = {key: median(values) for key, values in seconds.items()}
    gain = {
        form: median(none / every for none, every in zip(seconds[form, 0], seconds[form, 4], strict=True))
        for form in FORMS
    }
    picture, axes = panels(
        len(FORMS), f"{rows:,} rows of {keys:,} keys a batch, {batches - WARM} batches; local[{CORES}], {SLOTS} slots."
    )
    for panel, form in zip(axes, FORMS, strict=True):
        panel.bar([str(fused) for fused in FUSED], [total[form, fused] for fused in FUSED], 0.6)
        finish(panel, xlabel="fused operators", ylabel="seconds", title=f"{form} are sent on", legend=False)
    series = [total["tuples", fused] for fused in FUSED]
    return Report(
        name="enorm_fig16",
        title="enorm, figure 16: the fast job by fused operators",
        setup="Four operators by the same key, one after another. “Tuples”, the paper's form: each keeps count and sum "
        "per key of its window (1, 5, 10, 20 minutes) with NumPy, and sends every row on; the last gives what it "
        "keeps. “Aggregates”: each keeps running aggregates and sends on the keys that a batch touched. "
        f"{batches} batches of {rows:,} rows, {keys:,} keys, of which the first {WARM} do not count; local[{CORES}], "
        f"{SLOTS} slots; {rounds} round(s) in which all take turns. Results of all runs are equal to pyarrow's.",
        claims=[
            Claim(
                "fusing all four operators is more than 3 times as fast as fusing none",
                times(gain["tuples"]),
                gain["tuples"] >= TARGET,
                because="What fusion saves are shuffles, and a shuffle is cheap here: rows cross it as Arrow payloads, "
                "in the order of their keys, which the next operator does not sort again. The paper serialises every "
                "tuple.",
            ),
            Claim(
                "the more are fused, the faster",
                ", ".join(f"{fused}: {one:.2f} s" for fused, one in zip(FUSED, series, strict=True)),
                falls(series),
            ),
        ],
        tables=[
            Table(
                ("sent on", *(f"{fused} fused" for fused in FUSED), "none / all", "rows between operators"),
                [
                    (form, *(f"{total[form, fused]:.2f} s" for fused in FUSED), times(gain[form]),
                     f"{crossing[form]:,}")
                    for form in FORMS
                ],
            )
        ],
        parameters={"rows": rows, "keys": keys, "batches": batches, "rounds": rounds},
        seed=16,
        notes=["Nothing is claimed of the form with aggregates, which is shown beside the paper's."],
        picture=picture,
    )  # fmt: skip
