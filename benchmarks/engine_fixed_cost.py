"""What a batch costs when there is next to nothing in it: headgate against Spark's own stateful batch.

    python benchmarks/engine_fixed_cost.py [--rows 1000] [--rounds 6] [--quick]

Count and sum per key with 1,000 rows a batch. The sides take turns: in each round every query goes on from its
checkpoint over some more batches, of which the first do not count, because a query has just started.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
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
PER_ROUND, WARM = 12, 3
"""Batches of a query in a round, and those of them that do not count."""


def headgate_round(spark: SparkSession, folder: Path, space: Path, sink: hg.sinks.MemorySink, *, files: bool) -> Course:
    job = hg.Job("files" if files else "rows")
    given = hg.sources.files(spark, str(folder), max_files_per_trigger=1) if files else stream_of(spark, folder)
    job.source(given).key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(sink)
    return run_headgate(job, spark, space / job.name, slots=SLOTS)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000, help="rows per batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds, per_round = (2, WARM + 2) if options.quick else (options.rounds, PER_ROUND)
    rng = np.random.default_rng(options.seed)
    tables = [rows_of(rng.integers(0, options.keys, options.rows), rng) for _ in range(rounds * per_round)]
    wanted = expected(tables)
    sinks = {"rows": hg.sinks.memory(), "files": hg.sinks.memory()}
    runs: dict[str, list[Course]] = {side: [] for side in (*sinks, *STORES)}
    with scratch() as space, session(CORES, SLOTS) as spark:
        for turn in range(rounds):
            first = turn * per_round
            folder = write_batches(space / "in", tables[first : first + per_round], first=first)
            for side in runs:
                if side in STORES:
                    course = run_spark(
                        native(stream_of(spark, folder)), space / side.replace(" ", "-"), store=STORES[side]
                    )
                else:
                    course = headgate_round(spark, folder, space, sinks[side], files=side == "files")
                assert len(course.seconds) == per_round, f"{side}: {len(course.seconds)} batches"
                runs[side].append(course)
                print(f"{turn} {side}: {millis(course.median(WARM))}", flush=True)
        for side, sink in sinks.items():
            same(latest(sink.to_arrow()), wanted, f"headgate, {side}")
        for side in STORES:
            same(state_of(spark, space / side.replace(" ", "-"), NATIVE_STATE), wanted, f"Spark, {side}")
    counted = {side: np.concatenate([course.seconds[WARM:] for course in runs[side][1:]]) for side in runs}
    seconds = {side: median(each.tolist()) for side, each in counted.items()}
    # Turns lie side by side in time, so a ratio per turn leaves out what the machine does from turn to turn.
    ratio = {
        side: median(
            ours.median(WARM) / min(runs[store][turn].median(WARM) for store in STORES)
            for turn, ours in enumerate(runs[side])
            if turn
        )
        for side in sinks
    }
    names = {side: f"headgate, {side}" if side in sinks else f"Spark, {side}" for side in runs}
    table = Table(
        ("side", "median batch", "90th percentile", "against the better store"),
        [
            (
                names[side],
                millis(seconds[side]),
                millis(float(np.percentile(counted[side], 90))),
                times(ratio[side]) if side in sinks else "",
            )
            for side in runs
        ],
    )
    phases = timers_of({side: runs[side][1:] for side in sinks}, WARM)
    report = Report(
        name="engine_fixed_cost",
        title="The fixed cost of a batch: headgate against Spark's own stateful batch",
        setup=f"Count and sum per key, batches of {options.rows:,} rows in one Parquet file, {options.keys:,} keys, "
        f"local[{CORES}], {SLOTS} slots or shuffle partitions. {rounds} rounds in which each side goes on from "
        f"its checkpoint over {per_round} batches; the first round and the first {WARM} batches of each do not "
        "count. Timed by Spark (triggerExecution) on both sides. The ratio is that of medians within a round, its "
        "median over rounds. Final counts and sums are compared with pyarrow's.",
        claims=[
            Claim(
                "at most 1.5 times Spark's native batch, rows of the JVM", times(ratio["rows"]), ratio["rows"] <= 1.5
            ),
            Claim("the same, files read by the tasks", times(ratio["files"]), ratio["files"] <= 1.5),
        ],
        tables=[table, phases],
        parameters={"rows": options.rows, "keys": options.keys, "rounds": rounds},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
