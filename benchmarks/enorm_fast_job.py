"""enorm, figure 16: the fast job, four operators by the same key one after another, with 0, 2, 3 or 4 of them fused.

loans            tuples with the eight attributes that the paper's example has: each operator keeps count and sum per
                 key of its window (1, 5, 10 and 20 minutes) and sends every row on
narrow tuples    the same, and a row is a key, a value and a time
wide tuples      the same, and a row is that and a text
aggregates       each operator keeps running aggregates, and sends on those of the keys that a batch touched
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import expected, latest, same, scratch, session, times, write_batches
from enorm_runs import CORES, FILES, MINUTE, Run, fresh, rows_between, steered
from headgate.sinks import Sink
from reporting import Claim, Report, Table, falls, finish, panels

SLOTS = 2
NAMES = ("one", "five", "ten", "twenty")
INTERVALS = (1, 5, 10, 20)
"""Minutes, enorm 7, “Fast Job”."""

FUSED = (0, 2, 3, 4)
LOANS, NARROW, WIDE, AGGREGATES = FORMS = ("loans", "narrow tuples", "wide tuples", "aggregates")
TARGET = 3.0
WARM = 2
TEXT_BYTES = 100
PLAIN = "k long, v long, at timestamp"
ROWS = {
    LOANS: f"{PLAIN}, user long, approval boolean, back double, years double, income double",
    NARROW: PLAIN,
    WIDE: f"{PLAIN}, text string",
}
"""What goes from operator to operator. The only schema that the paper gives is that of its example (section 2): user,
area, date, approval, amount, return, lendingTime, income. Here ``k`` is the area, ``v`` the amount, ``at`` the date."""

SHARE = {LOANS: 1, NARROW: 1, WIDE: 4, AGGREGATES: 1}
"""A batch has the rows of a narrow one divided by this: of wide tuples fewer, as they have more bytes. The paper's
stream has no batches, so the larger they are the closer to it."""

SUMS = "k long, n long, total long"


def keeping(minutes: int, columns: Sequence[str] | None) -> Callable[[hg.Batch], Any]:
    """An operator that keeps count and sum of the latest window of each key. These columns of all rows go on; the last
    operator (None) gives what it keeps instead."""
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
        if columns is None:
            return pa.table({"k": batch.keys["k"], "n": n, "total": total}), state
        return batch.rows.select(columns), state

    return keep


def fast_job(spark: SparkSession, folder: Path, form: str, fused: int, sink: Sink) -> hg.Job:
    job = hg.Job("fast", fusion="off")
    rows = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=FILES))
    for name, minutes in zip(NAMES, INTERVALS, strict=True):
        last = name == NAMES[-1]
        if form in ROWS:
            columns = [declared.split()[0] for declared in ROWS[form].split(", ")]
            rows = rows.key_by("k").process_arrow(
                keeping(minutes, None if last else columns),
                state={"window": -1, "n": 0, "total": 0},
                output=SUMS if last else ROWS[form],
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


def completed(form: str, rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The rows with the other columns of their form."""
    if form == LOANS:
        return lent(rows, rng)
    return widened(rows, rng) if form == WIDE else rows


def lent(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The rows as requests for loans, as in examples/lending.py."""
    count, amount = rows.num_rows, rows["v"].to_numpy()
    years = rng.choice([1.0, 2.0, 3.0, 5.0], count)
    columns = {
        "user": rng.integers(0, 1_000_000, count),
        "approval": rng.random(count) < 0.7,
        "back": amount * (1 + rng.uniform(0.02, 0.09, count) * years),
        "years": years,
        "income": rng.integers(20, 120, count) * 1_000.0,
    }
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column))
    return rows


def widened(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The rows with a text that is different in each."""
    count = rows.num_rows
    letters = rng.integers(ord("a"), ord("z") + 1, count * TEXT_BYTES, dtype=np.uint8)
    ends = np.arange(0, (count + 1) * TEXT_BYTES, TEXT_BYTES, dtype=np.int32)
    texts = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters))
    return rows.append_column("text", texts)


def sent(run: Run) -> int:
    """Rows from one operator to the next in all batches."""
    edges = (below for each in run.course.progress for below in each["edges"].values())
    return sum(sum(below.values()) for below in edges)


@dataclass(frozen=True, slots=True)
class Stream:
    """What goes from operator to operator, and so many rows of it a batch."""

    form: str
    rows: int


@dataclass(slots=True)
class Race:
    """Runs of the job over some streams, with every number of fused operators, in turns."""

    spark: SparkSession
    space: Path
    keys: int
    batches: int
    rng: np.random.Generator
    seconds: dict[tuple[Stream, int], list[float]] = field(default_factory=dict)
    crossing: dict[Stream, int] = field(default_factory=dict)
    row_bytes: dict[str, int] = field(default_factory=dict)

    def run(self, stream: Stream, numbers: Sequence[int], rounds: int) -> None:
        """So many rounds over one stream. Its files are gone afterwards."""
        # All within twenty minutes, so that the last operator's window has all rows.
        last = 19 / self.batches
        tables = [
            rows_between(self.rng.integers(0, self.keys, stream.rows), last * at, last * (at + 1), self.rng)
            for at in range(self.batches)
        ]
        wanted = expected(tables)
        tables = [completed(stream.form, table, self.rng) for table in tables]
        self.row_bytes[stream.form] = round(tables[0].nbytes / tables[0].num_rows)
        folder = write_batches(self.space / "in", tables, FILES, plain=True)
        warm = write_batches(self.space / "warm", [table.slice(0, 1_000) for table in tables[:3]], FILES)
        del tables
        for fused in (numbers[0], numbers[-1]):  # Python workers start, the JVM and Numba compile, before it counts
            self._once(warm, stream.form, fused)
        for turn in range(rounds):
            for fused in numbers[:: 1 if turn % 2 == 0 else -1]:
                run, results = self._once(folder, stream.form, fused)
                same(latest(results), wanted, f"{stream.form}, {fused} fused")
                self.crossing[stream] = sent(run)
                taken = self.seconds.setdefault((stream, fused), [])
                taken.append(float(run.course.seconds[WARM:].sum()))
                print(f"  {stream.rows:,} {stream.form}, {fused} fused: {taken[-1]:.2f} s", flush=True)
        for used in (folder, warm):
            shutil.rmtree(used)

    def _once(self, folder: Path, form: str, fused: int) -> tuple[Run, pa.Table]:
        sink = hg.sinks.memory()
        checkpoint = fresh(self.space, form, fused)
        run = steered(fast_job(self.spark, folder, form, fused, sink), self.spark, checkpoint, slots=SLOTS)
        shutil.rmtree(checkpoint)
        return run, sink.to_arrow()

    def total(self, stream: Stream, fused: int) -> float:
        """The median time of all batches that count."""
        return median(self.seconds[stream, fused])

    def gain(self, stream: Stream) -> float:
        """How many times as fast all operators fused are as none: the median over rounds."""
        pairs = zip(self.seconds[stream, FUSED[0]], self.seconds[stream, FUSED[-1]], strict=True)
        return median(none / every for none, every in pairs)


def figure16(quick: bool) -> Report:
    """Time for the same rows by the number of fused operators."""
    keys, rows, batches, rounds = (500, 10_000, 4, 1) if quick else (5_000, 8_000_000, 4, 2)
    streams = {form: Stream(form, rows // SHARE[form]) for form in FORMS}
    smaller = [Stream(LOANS, rows // SHARE[LOANS] // part) for part in (8, 2)]
    with scratch() as space, session(CORES, SLOTS) as spark:
        race = Race(spark, space, keys, batches, np.random.default_rng(16))
        for stream in streams.values():
            race.run(stream, FUSED, rounds)
        for stream in smaller:
            race.run(stream, (FUSED[0], FUSED[-1]), rounds)
    total = {(form, fused): race.total(stream, fused) for form, stream in streams.items() for fused in FUSED}
    gain = {form: race.gain(stream) for form, stream in streams.items()}
    counts = {form: stream.rows for form, stream in streams.items()}
    picture, axes = panels(
        len(FORMS), f"{', '.join(f'{form}: {count:,}' for form, count in counts.items())} rows a batch, of {keys:,} "
        f"keys; {batches - WARM} batches; local[{CORES}], {SLOTS} slots.",
    )  # fmt: skip
    for panel, form in zip(axes, FORMS, strict=True):
        panel.bar([str(fused) for fused in FUSED], [total[form, fused] for fused in FUSED], 0.6)
        finish(panel, xlabel="fused operators", ylabel="seconds", title=f"{form} are sent on", legend=False)
    widths = {form: race.row_bytes[form] for form in ROWS}
    labels = {
        LOANS: f"the paper's own attributes, {widths[LOANS]} bytes a row",
        NARROW: f"rows of {widths[NARROW]} bytes",
        WIDE: f"rows of {widths[WIDE]} bytes",
    }
    return Report(
        name="enorm_fig16",
        title="enorm, figure 16: the fast job by fused operators",
        setup="Four operators by the same key, one after another. Each keeps count and sum per key of its window (1, "
        "5, 10, 20 minutes) with NumPy, and sends every row on; the last gives what it keeps. The paper does not say "
        "what its tuples are here. “Loans” have the eight attributes of its example, the only schema that it gives "
        "(section 2: user, area, date, approval, amount, return, lendingTime, income), "
        f"{widths[LOANS]} bytes a row; narrow tuples are a key, a value and a time, {widths[NARROW]} bytes; wide ones "
        f"also have a text of {TEXT_BYTES}. “Aggregates”: each operator keeps running aggregates and sends on the keys "
        f"that a batch touched. {batches} batches of {', '.join(f'{counts[form]:,} ({form})' for form in FORMS)} rows, "
        f"{keys:,} keys, of which the first {WARM} do not count, in plain Parquet files, as the paper's come from a "
        f"machine of their own; local[{CORES}], {SLOTS} slots; {rounds} round(s) in which all take turns; times are "
        "medians, “none / all” the median of the rounds' ratios. Results of all runs are equal to pyarrow's.",
        claims=[
            claim
            for form, label in labels.items()
            for claim in (
                Claim(
                    f"fusing all four operators is more than 3 times as fast as fusing none ({label})",
                    times(gain[form]),
                    gain[form] >= TARGET,
                    because="What fusion saves are shuffles, and a shuffle of narrow rows is cheap here: they cross it "
                    "as Arrow payloads, in the order of their keys, which the next operator does not sort again. The "
                    "paper serialises every tuple.",
                ),
                Claim(
                    f"the more are fused, the faster ({label})",
                    ", ".join(f"{fused}: {total[form, fused]:.2f} s" for fused in FUSED),
                    falls([total[form, fused] for fused in FUSED]),
                ),
            )
        ],
        tables=[
            Table(
                ("sent on", *(f"{fused} fused" for fused in FUSED), "none / all", "rows between operators"),
                [
                    (form, *(f"{total[form, fused]:.2f} s" for fused in FUSED), times(gain[form]),
                     f"{race.crossing[streams[form]]:,}")
                    for form in FORMS
                ],
            ),
            Table(
                ("loans a batch", "none fused", "all fused", "none / all"),
                [
                    (f"{stream.rows:,}", *(f"{race.total(stream, fused):.2f} s" for fused in (FUSED[0], FUSED[-1])),
                     times(race.gain(stream)))
                    for stream in (*smaller, streams[LOANS])
                ],
            ),
        ],
        parameters={"rows": rows, "keys": keys, "batches": batches, "rounds": rounds},
        seed=16,
        notes=[
            "Nothing is claimed of the form with aggregates, which is shown beside the paper's.",
            "The paper's stream has no batches. The smaller they are here, the more of the time goes to what Spark "
            "does once a batch, whatever is fused.",
        ],
        picture=picture,
    )  # fmt: skip
