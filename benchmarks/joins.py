"""Joins within a time bound: headgate against Spark's own stream-stream join.

    python benchmarks/joins.py [--rows 200000] [--keys 100000] [--only {inner,left}] [--quick]

Two streams, a minute of each per batch, joined by key within 30 seconds before or after, two cores, two slots or
shuffle partitions. The twin is Spark's join of two streams with watermarks in append mode, with its default state store
and with RocksDB. Both sides read the same Parquet files. All pairs are compared, and all left rows without a partner up
to two minutes before the end, when both sides must have given them.

    inner     the pairs
    left      the pairs, and the left rows without a partner
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import headgate as hg
from engine import STORES, Course, arguments, millis, run_headgate, run_spark, scratch, session, times, write_batches
from headgate.arrays import I64
from headgate.operators import How
from reporting import Claim, Report, Table

CORES = SLOTS = 2
FILES = 4
MINUTE = 60_000_000
WITHIN_SECONDS = 30
MINUTES = 8
CHECKED = 4
"""Minutes whose results are compared: Spark's are collected for it."""

PARTS: tuple[How, ...] = ("inner", "left")
LEFT, RIGHT = "k long, at timestamp, v long", "j long, at timestamp, w long"


def minutes(folder: Path, rng: np.random.Generator, count: int, rows: int, keys: int) -> tuple[Path, Path]:
    """Two folders of Parquet files with a minute of rows per batch, keys drawn evenly."""
    for number in range(count):
        for side, (key, value) in {"left": ("k", "v"), "right": ("j", "w")}.items():
            at = np.sort(number * MINUTE + rng.integers(0, MINUTE, rows))
            table = pa.table(
                {
                    key: rng.integers(0, keys, rows),
                    "at": pa.array(at, pa.timestamp("us", tz="UTC")),
                    value: rng.integers(0, 2**40, rows),
                }
            )
            write_batches(folder / side, [table], FILES, first=number)
    return folder / "left", folder / "right"


def first_minutes(folders: tuple[Path, Path], count: int) -> tuple[Path, Path]:
    """The first minutes of both streams, in folders of their own."""
    made = []
    for folder in folders:
        some = folder.parent / f"{folder.name}-first-{count}"
        if not some.exists():
            some.mkdir()
            for path in sorted(folder.glob("*.parquet"))[: count * FILES]:
                (some / path.name).hardlink_to(path)
        made.append(some)
    return made[0], made[1]


def _nowhere(rows: DataFrame, batch: int) -> None:
    """What Spark's noop sink is: results are made, and not looked at."""


def ours(
    spark: SparkSession, folders: tuple[Path, Path], checkpoint: Path, how: How, *, keep: bool = False
) -> tuple[Course, pa.Table | None]:
    """headgate over all minutes; with its results, in a run whose times do not count, if asked."""
    job = hg.Job("join", event_time="at")
    left, right = (
        job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=FILES), folder.name) for folder in folders
    )
    sink = hg.sinks.memory()
    left.key_by("k").join(right.key_by("j"), within=WITHIN_SECONDS, how=how).write_to(sink if keep else _nowhere)
    course = run_headgate(job, spark, checkpoint, slots=SLOTS)
    return course, sink.to_arrow() if keep else None


def theirs(
    spark: SparkSession, folders: tuple[Path, Path], checkpoint: Path, how: How, store: str, *, keep: bool = False
) -> tuple[Course, pa.Table | None]:
    """Spark's stream-stream join over all minutes; with its results, in a run whose times do not count, if asked."""
    left, right = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", FILES)
        .parquet(str(folder))
        .withWatermark("at", "0 seconds")
        for folder, schema in zip(folders, (LEFT, RIGHT), strict=True)
    )
    right = right.withColumnRenamed("at", "at_right")
    bound = sf.expr(f"interval {WITHIN_SECONDS} seconds")
    near = (sf.col("at_right") >= sf.col("at") - bound) & (sf.col("at_right") <= sf.col("at") + bound)
    made = left.join(right, (sf.col("k") == sf.col("j")) & near, "inner" if how == "inner" else "leftOuter")
    kept: list[pa.Table] = []

    def take(rows: Any, _: int) -> None:
        kept.append(rows.select("k", "at", "v", "at_right", "w").toArrow())

    course = run_spark(made, checkpoint, store=STORES[store], sink=take if keep else None, mode="append")
    return course, pa.concat_tables(kept) if keep else None


def compare(got: pa.Table, wanted: pa.Table, sure: int) -> int:
    """Check that both have the same rows, of left rows without a partner those before ``sure``; returns how many."""

    def bag(table: pa.Table) -> list[I64]:
        paired = pc.is_valid(table["w"])
        early = pc.less(table["at"].cast(pa.int64()), sure)
        table = table.filter(pc.or_(paired, early))
        columns = [
            np.asarray(pc.fill_null(table[name].cast(pa.int64()), -1)) for name in ("k", "at", "v", "at_right", "w")
        ]
        order = np.lexsort(columns)
        return [column[order] for column in columns]

    mine, other = bag(got), bag(wanted)
    assert len(mine[0]) == len(other[0]), f"{len(mine[0])} results instead of {len(other[0])}"
    assert all((one == two).all() for one, two in zip(mine, other, strict=True)), "results differ"
    return len(mine[0])


def race(options: Any, spark: SparkSession, space: Path, folders: tuple[Path, Path], how: How, rows: int) -> None:
    course, _ = ours(spark, folders, space / f"{how}-ours", how)
    taken = course.median()
    print(f"{how}: headgate {millis(taken)}", flush=True)
    twins = {}
    for store in STORES:
        at = space / f"{how}-{store.replace(' ', '-')}"
        twins[store] = theirs(spark, folders, at, how, store)[0].median()
        print(f"{how}: Spark, {store}: {millis(twins[store])}", flush=True)
    few = first_minutes(folders, CHECKED)
    _, mine = ours(spark, few, space / f"{how}-ours-check", how, keep=True)
    _, wanted = theirs(spark, few, space / f"{how}-check", how, "default store", keep=True)
    assert mine is not None
    assert wanted is not None
    compared = compare(mine, wanted, (CHECKED - 2) * MINUTE)
    best = min(twins.values())
    report = Report(
        name=f"joins_{how}-quick" if options.quick else f"joins_{how}",
        title=f"Two streams joined within {WITHIN_SECONDS} seconds, {how}",
        setup=f"{MINUTES} minutes of {rows:,} rows in either stream, {options.keys:,} keys drawn evenly; "
        f"local[{CORES}], {SLOTS} slots or shuffle partitions. A batch is a minute of both streams, timed by Spark "
        "(triggerExecution) on both sides; medians after warm-up. Spark writes to its noop sink in append mode; "
        "headgate writes its results to files and commits them, and nobody reads them. "
        f"{compared:,} results of the first {CHECKED} minutes are equal.",
        claims=[Claim("no slower than Spark's better store", times(best / taken), best >= taken)],
        tables=[
            Table(
                ("side", "a minute of the streams", "rows/s", "against the better store"),
                [
                    ("headgate", millis(taken), f"{2 * rows / taken:,.0f}", times(best / taken)),
                    *(
                        (f"Spark, {store}", millis(each), f"{2 * rows / each:,.0f}", times(best / each))
                        for store, each in twins.items()
                    ),
                ],
            )
        ],
        parameters={"rows": rows, "keys": options.keys},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows per minute in each stream")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.keys = options.rows // 10, options.keys // 10
    rng = np.random.default_rng(options.seed)
    wanted: tuple[How, ...] = (options.only,) if options.only else PARTS
    with scratch() as space, session(CORES, SLOTS, spark__sql__session__timeZone="UTC") as spark:
        warm = minutes(space / "warm", rng, 3, 1000, 100)
        ours(spark, warm, space / "warm-up", "left")  # compiles
        folders = minutes(space / "rows", rng, MINUTES, options.rows, options.keys)
        for how in wanted:
            race(options, spark, space, folders, how, options.rows)


if __name__ == "__main__":
    main()
