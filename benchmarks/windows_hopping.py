"""Hopping windows: headgate against Spark's own sliding windows, and what another overlapping window costs.

    python benchmarks/windows_hopping.py [--rows 1000000] [--only {short,long,many,overlap}] [--quick]

Count and sum per key and window, a minute of the stream per batch, keys drawn by Zipf 0.85, two cores, two slots or
shuffle partitions. The twin is Spark's groupBy(window(...)) in append mode with its default state store and with
RocksDB. Both sides read the same Parquet files. Results of the windows that both sides closed are compared.

    short     5 minutes every minute
    long      60 minutes every minute; against RocksDB on a tenth of the rows, which takes minutes a batch
    many      ten lengths at once, every minute; the twin needs a query for each length
    overlap   1 to 60 windows over every row: what headgate's batches cost
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import headgate as hg
from engine import (
    STORES,
    Course,
    arguments,
    millis,
    run_headgate,
    run_spark,
    scratch,
    session,
    timers_of,
    times,
    write_batches,
)
from headgate.arrays import F64
from reporting import Claim, Report, Table

CORES = SLOTS = 2
FILES = 4
MINUTE = 60_000_000
SKEW = 0.85
LENGTHS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)
"""Minutes of the ten windows that run at once."""

HEAP = "16g"
"""Java's: Spark's default store keeps 60 windows of every key in it, twice. With 3 GiB it runs out."""

WARM_UP = 12
"""Small batches of each side before anything counts: a JVM goes on compiling for that long."""

SPARKS = 5
"""Minutes of an hour's windows that Spark has, of which the first two do not count."""

OVERLAPS = (1, 2, 5, 10, 20, 30, 60)
FLOOR = (
    "The larger part of a batch is Spark's own, whatever the rows: what it does outside headgate, and two stages of "
    "tasks in which the slots work for a fraction of the time. The more rows a minute has, the less that counts."
)
SCHEMA = "k long, v long, at timestamp"
PARTS = ("short", "long", "many", "overlap")


def minutes(folder: Path, rng: np.random.Generator, count: int, rows: int, keys: int) -> Path:
    """A folder of Parquet files with a minute of rows per batch."""
    share = 1 / np.arange(1, keys + 1) ** SKEW
    ranks: F64 = np.cumsum(share / share.sum())
    for number in range(count):
        at = np.sort(number * MINUTE + rng.integers(0, MINUTE, rows))
        table = pa.table(
            {
                "k": np.searchsorted(ranks, rng.random(rows)),
                "v": rng.integers(0, 100, rows),
                "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            }
        )
        write_batches(folder, [table], FILES, first=number)
    return folder


def ours(
    spark: SparkSession, folder: Path, checkpoint: Path, lengths: Sequence[int], *, share: bool = True
) -> tuple[Course, pa.Table]:
    """headgate over all minutes, and its results."""
    job = hg.Job("windows", event_time="at")
    sink = hg.sinks.memory()
    rows = hg.sources.files(spark, str(folder), max_files_per_trigger=FILES)
    spans = [f"{length} minutes" for length in lengths]
    job.source(rows).key_by("k").window(*spans, every="1 minute").aggregate(
        share=share, n=hg.count(), total=hg.sum("v")
    ).write_to(sink)
    course = run_headgate(job, spark, checkpoint, slots=SLOTS)
    return course, sink.to_arrow()


def theirs(
    spark: SparkSession, folder: Path, checkpoint: Path, length: int, store: str, batches: int, *, keep: bool = False
) -> tuple[Course, pa.Table | None]:
    """Spark's sliding window over the first minutes; with its results, in a run whose times do not count, if asked."""
    kept: list[pa.Table] = []
    some = checkpoint.parent / f"{checkpoint.name}-in"
    some.mkdir()
    for path in sorted(folder.glob("*.parquet"))[: batches * FILES]:
        (some / path.name).hardlink_to(path)
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).parquet(str(some))
    made = (
        frame.withWatermark("at", "0 seconds")
        .groupBy(sf.window("at", f"{length} minutes", "1 minute"), "k")
        .agg(sf.count("*").alias("n"), sf.sum("v").alias("total"))
    )
    flat = made.select("k", sf.col("window.start").alias("start"), sf.col("window.end").alias("end"), "n", "total")

    def take(rows: Any, _: int) -> None:
        kept.append(rows.toArrow())

    course = run_spark(flat, checkpoint, store=STORES[store], sink=take if keep else None, mode="append")
    return course, pa.concat_tables(kept) if keep else None


def compare(got: pa.Table, wanted: pa.Table, what: str) -> int:
    """Check the results of all windows that Spark closed; returns how many results these are."""
    columns = {"k": "k", "window_start": "start", "window_end": "end", "n": "n", "total": "total"}
    mine = pa.table({new: got.column(old) for old, new in columns.items()})
    mine = mine.filter(pc.is_in(mine.column("end"), value_set=pc.unique(wanted.column("end"))))
    order = [("start", "ascending"), ("end", "ascending"), ("k", "ascending")]
    lengths = pc.unique(pc.subtract(wanted.column("end"), wanted.column("start")))
    mine = mine.filter(pc.is_in(pc.subtract(mine.column("end"), mine.column("start")), value_set=lengths))
    mine, wanted = mine.sort_by(order), wanted.sort_by(order)
    assert wanted.num_rows, f"{what}: Spark closed no window"
    assert mine.num_rows == wanted.num_rows, f"{what}: {mine.num_rows} results instead of {wanted.num_rows}"
    for name in columns.values():
        ours_, theirs_ = (np.asarray(table.column(name).cast(pa.int64())) for table in (mine, wanted))
        assert (ours_ == theirs_).all(), f"{what}: {int((ours_ != theirs_).sum())} results have a wrong {name!r}"
    return int(wanted.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """The same windows on both sides: how long batches took, and how many results were compared."""

    course: Course
    twins: dict[str, list[Course]]
    """Spark's, by store, a query for each length."""
    compared: int

    @property
    def seconds(self) -> float:
        """Of a batch here."""
        return self.course.median(warm_up(self.course))

    def spark(self, store: str) -> float:
        """Of a batch of Spark's, all lengths one after the other."""
        return sum(course.median() for course in self.twins[store])

    @property
    def ratio(self) -> float:
        """Against the better store."""
        return min(map(self.spark, self.twins)) / self.seconds

    def table(self, rows: int, what: str) -> Table:
        """All sides, and how they compare."""
        sides = {f"headgate, {what}": self.seconds} | {f"Spark, {store}": self.spark(store) for store in self.twins}
        best = min(map(self.spark, self.twins))
        return Table(
            ("side", "a minute of the stream", "rows/s", "against the better store"),
            [(side, millis(taken), f"{rows / taken:,.0f}", times(best / taken)) for side, taken in sides.items()],
        )


def race(
    spark: SparkSession, space: Path, folder: Path, lengths: Sequence[int], batches: int, name: str, checked: int,
    stores: Sequence[str] = tuple(STORES),
) -> Race:  # fmt: skip
    """Both sides, one after the other. Spark has fewer batches where a batch takes it long: a row goes into as many
    windows from the first batch on."""
    course, results = ours(spark, folder, space / f"{name}-ours", lengths)
    print(f"{name}: headgate: {course.seconds.round(2).tolist()} s", flush=True)
    twins: dict[str, list[Course]] = {store: [] for store in stores}
    compared = 0
    for length in lengths:
        for store in stores:
            at = space / f"{name}-{length}-{store.replace(' ', '-')}"
            twins[store].append(theirs(spark, folder, at, length, store, batches)[0])
            taken = twins[store][-1].seconds.round(2).tolist()
            print(f"{name}: Spark, {length} minutes, {store}: {taken} s", flush=True)
    for length in lengths[:: max(1, len(lengths) - 1)]:
        _, wanted = theirs(spark, folder, space / f"{name}-{length}-check", length, "default store", checked, keep=True)
        assert wanted is not None
        compared += compare(results, wanted, f"{name}, {length} minutes")
    return Race(course, twins, compared)


def warm_up(course: Course) -> int:
    """Batches that do not count: a window must have been whole for some time."""
    return max(2, len(course.seconds) // 2)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per minute, where windows are short")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    rows, keys, quick = options.rows, options.keys, options.quick
    if quick:
        rows, keys = rows // 20, keys // 20
    rng = np.random.default_rng(options.seed)
    wanted = [options.only] if options.only else list(PARTS)
    few = rows // 10
    settings = {"spark__sql__session__timeZone": "UTC", "spark__driver__memory": HEAP}
    with scratch() as space, session(CORES, SLOTS, **settings) as spark:
        warm = minutes(space / "warm", rng, WARM_UP, few, keys)
        ours(spark, warm, space / "warm-up", [2])
        for store in STORES:
            theirs(spark, warm, space / f"warm-up-{store.replace(' ', '-')}", 2, store, WARM_UP)
        if "short" in wanted:
            folder = minutes(space / "short", rng, 8, rows, keys)
            run = race(spark, space, folder, [5], 8, "short", 4)
            write(
                options,
                "windows_short",
                "Windows of 5 minutes every minute",
                f"8 minutes of {rows:,} rows, {keys:,} keys",
                [Claim("at least 6 times Spark's better store", times(run.ratio), run.ratio >= 6, FLOOR)],
                [run.table(rows, "5 windows a row"), timers_of({"a batch": [run.course]}, warm_up(run.course))],
                run.compared,
                rows,
                keys,
            )
        if "long" in wanted:
            long(options, spark, space, rng, rows, keys)
        if "many" in wanted:
            folder = minutes(space / "many", rng, 20 if quick else 64, few, keys)
            run = race(spark, space, folder, LENGTHS, 3, "many", 3)
            write(
                options,
                "windows_many",
                "Ten windows at once",
                f"{', '.join(map(str, LENGTHS))} minutes, every minute; {len(run.course.seconds)} minutes of {few:,} "
                f"rows, {keys:,} keys; Spark has the first 3, one query per length, whose times are added",
                [Claim("at least 10 times the native way to get them", times(run.ratio), run.ratio >= 10)],
                [
                    run.table(few, f"{len(LENGTHS)} lengths in one query"),
                    timers_of({"a batch": [run.course]}, warm_up(run.course)),
                ],
                run.compared,
                few,
                keys,
            )
        if "overlap" in wanted:
            folder = minutes(space / "overlap", rng, 16 if quick else 66, few, keys)
            overlap(options, spark, space, folder, few, keys)


def long(
    options: Any, spark: SparkSession, space: Path, rng: np.random.Generator, rows: int, keys: int
) -> None:  # fmt: skip
    """An hour every minute. Which of Spark's stores is the better one is found out on a tenth of the rows."""
    few = rows // 10
    trial = minutes(space / "trial", rng, 3, few, keys)
    stores = {
        store: theirs(spark, trial, space / f"trial-{store.replace(' ', '-')}", 60, store, 3)[0].median()
        for store in STORES
    }
    print(f"long: a tenth of the rows: {stores}", flush=True)
    best = min(stores, key=stores.__getitem__)
    folder = minutes(space / "long", rng, 20 if options.quick else 72, rows, keys)
    run = race(spark, space, folder, [60], SPARKS, "long", 2, [best])
    each = ", ".join(f"{taken:.1f}" for taken in run.twins[best][0].seconds)
    told = ", ".join(f"{store} {millis(taken)}" for store, taken in stores.items())
    write(
        options,
        "windows_long",
        "Windows of 60 minutes every minute",
        f"{len(run.course.seconds)} minutes of {rows:,} rows, {keys:,} keys; Spark has the first {SPARKS} "
        f"({each} s; Java has {HEAP}), with the store that is better on a tenth of the rows (a minute: {told})",
        [Claim("at least 40 times Spark's better store", times(run.ratio), run.ratio >= 40, FLOOR)],
        [run.table(rows, "60 windows a row"), timers_of({"a batch": [run.course]}, warm_up(run.course))],
        run.compared,
        rows,
        keys,
    )


def overlap(options: Any, spark: SparkSession, space: Path, folder: Path, rows: int, keys: int) -> None:
    """What a batch costs as the number of windows over a row grows, with and without windows made of windows."""
    sides = {"shared": True, "from slices": False}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for length in OVERLAPS:
        for side, share in sides.items():
            course, _ = ours(spark, folder, space / f"overlap-{length}-{share}", [length], share=share)
            taken[side].append(course.median(warm=len(course.seconds) * 9 // 10))
            print(f"{length} windows a row, {side}: {millis(taken[side][-1])}", flush=True)
    growth = {side: values[-1] / values[0] for side, values in taken.items()}
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for side, values in taken.items():
        axes.plot(OVERLAPS, [value * 1e3 for value in values], marker="o", label=side)
    axes.plot(OVERLAPS, [taken["shared"][0] * 1e3 * each for each in OVERLAPS], ls=":", color="grey",
              label="as if each window were computed by itself")  # fmt: skip
    axes.set(xlabel="windows over every row", ylabel="a batch, ms", ylim=(0, 3 * max(map(max, taken.values())) * 1e3))
    axes.legend()
    table = Table(
        ("windows over a row", *sides),
        [(str(length), *(millis(taken[side][at]) for side in sides)) for at, length in enumerate(OVERLAPS)],
    )
    write(options, "windows_overlap", "Cost against the number of overlapping windows",
          f"windows of 1 to 60 minutes every minute over the same rows, {rows:,} a minute, {keys:,} keys; the last "
          "tenth of the minutes counts",
          [Claim("near flat from 1 to 60: at most 2 times", times(growth["shared"]), growth["shared"] <= 2)],
          [table], 0, rows, keys, picture=figure)  # fmt: skip


def write(
    options: Any, name: str, title: str, setup: str, claims: list[Claim], tables: list[Table], compared: int,
    rows: int, keys: int, picture: Figure | None = None,
) -> None:  # fmt: skip
    checks = f" {compared:,} results of windows that both sides closed are equal." if compared else ""
    report = Report(
        name=name,
        title=title,
        setup=f"Count and sum per key and window; {setup}, Zipf {SKEW}; local[{CORES}], {SLOTS} slots or shuffle "
        f"partitions. Spark writes to its noop sink in append mode; headgate writes its results to files, commits them "
        f"and reads them back on the driver. A batch is a minute of the stream, timed by Spark (triggerExecution) on "
        f"both sides; medians after warm-up ({WARM_UP} small batches of each side, then the first two of each query), "
        f"headgate's over the second half of its minutes.{checks}",
        claims=claims,
        tables=tables,
        parameters={"rows": rows, "keys": keys},
        seed=options.seed,
        claimed_by="the target",
        picture=picture,
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
