"""Running count and sum per key: headgate against Spark's own streaming aggregation.

    python benchmarks/engine_aggregate.py [--rows 1000000] [--batches 8] [--keys 100000] [--quick]

Parquet files in, updated keys out, two cores, two slots or shuffle partitions. headgate reads the files itself
(headgate.sources.files) and also takes rows from Spark's Parquet source, which come through the JVM. The twin is a
groupBy with Spark's default state store and with RocksDB. The sides take turns, batch counts and files being equal.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import (
    NATIVE_STATE,
    STORES,
    Course,
    arguments,
    expected,
    latest,
    millis,
    native,
    rows_of,
    run_headgate,
    run_spark,
    same,
    scratch,
    session,
    state_of,
    stream_of,
    timers_of,
    times,
    write_batches,
)
from reporting import Claim, Report, Table

CORES = SLOTS = 2
FILES = 4
"""Files per batch: two for each core."""

SIDES = ("files", "rows", *STORES)


def headgate_side(spark: SparkSession, folder: Path, checkpoint: Path, wanted: pa.Table, *, files: bool) -> Course:
    """headgate over all batches, its results checked; they are read back on the driver, which counts."""
    job = hg.Job("files" if files else "rows")
    memory = hg.sinks.memory()
    given = (
        hg.sources.files(spark, str(folder), max_files_per_trigger=FILES) if files else stream_of(spark, folder, FILES)
    )
    job.source(given).key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(memory)
    course = run_headgate(job, spark, checkpoint, slots=SLOTS)
    same(latest(memory.to_arrow()), wanted, f"headgate, {job.name}")
    return course


def spark_side(spark: SparkSession, folder: Path, checkpoint: Path, wanted: pa.Table, store: str) -> Course:
    """Spark's aggregation over all batches, its state checked."""
    course = run_spark(native(stream_of(spark, folder, FILES)), checkpoint, store=STORES[store])
    same(state_of(spark, checkpoint, NATIVE_STATE), wanted, f"Spark, {store}")
    return course


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per batch")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="queries of each side; the first warms up")
    options = parser.parse_args()
    rows, batches, rounds = options.rows, options.batches, options.rounds
    if options.quick:
        rows, batches, rounds = rows // 5, 4, 2
    rng = np.random.default_rng(options.seed)
    tables = [rows_of(rng.integers(0, options.keys, rows), rng) for _ in range(batches)]
    wanted = expected(tables)
    runs: dict[str, list[Course]] = {side: [] for side in SIDES}
    with scratch() as space, session(CORES, SLOTS) as spark:
        folder = write_batches(space / "in", tables, FILES)
        for turn in range(rounds):
            for side in SIDES:
                checkpoint = space / f"{turn}-{side.replace(' ', '-')}"
                if side in STORES:
                    course = spark_side(spark, folder, checkpoint, wanted, side)
                else:
                    course = headgate_side(spark, folder, checkpoint, wanted, files=side == "files")
                runs[side].append(course)
                print(f"{turn} {side}: {rows / course.median():,.0f} rows/s", flush=True)
    counted = {side: courses[1:] for side, courses in runs.items()}
    # A query's first batch has an empty state and, with it, its own start: the median leaves it out by itself.
    seconds = {side: median(np.concatenate([c.seconds for c in courses]).tolist()) for side, courses in counted.items()}
    whole = {side: median(float(c.seconds.sum()) for c in courses) for side, courses in counted.items()}
    best = min(seconds[store] for store in STORES)
    files, through = best / seconds["files"], best / seconds["rows"]
    table = Table(
        ("side", "median batch", "rows/s", f"all {batches} batches", "against the better store"),
        [
            (
                f"headgate, {side}" if side not in STORES else f"Spark, {side}",
                millis(seconds[side]),
                f"{rows / seconds[side]:,.0f}",
                f"{whole[side]:.2f} s",
                times(best / seconds[side]),
            )
            for side in SIDES
        ],
    )
    phases = timers_of({side: counted[side] for side in ("files", "rows")})
    report = Report(
        name="engine_aggregate",
        title="Running count and sum: headgate against Spark's streaming aggregation",
        setup=f"{batches} batches of {rows:,} rows in {FILES} Parquet files each, {options.keys:,} keys drawn evenly, "
        f"local[{CORES}], {SLOTS} slots or shuffle partitions, update mode. Spark writes to its noop sink; "
        "headgate writes its results to files, commits them, and reads them back on the driver. A batch is timed by "
        f"Spark (triggerExecution) on both sides; medians over all batches of {rounds - 1} queries each, the sides "
        "taking turns, after one query each that does not count. Counts and sums of all keys are compared with "
        "pyarrow's.",
        claims=[
            Claim("from Parquet at least 2 times Spark's better store", times(files), files >= 2),
            Claim("from rows of the JVM at least on a par", times(through), through >= 1),
        ],
        tables=[table, phases],
        parameters={"rows": rows, "batches": batches, "keys": options.keys, "rounds": rounds},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
