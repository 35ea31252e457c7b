"""A keyed Python function: headgate's two styles against Spark's two.

    python benchmarks/engine_keyed.py [--rows 1000000] [--keys 100000] [--quick]

All count and add up the values of each key, keep both as state and give a row per key and batch: headgate per key
(process) and vectorised (process_arrow), Spark's applyInPandasWithState and transformWithStateInPandas. headgate takes
rows from Spark's Parquet source, as its twins do, and also reads the files itself (headgate.sources.files). Spark takes
a minute or two for a batch of a million rows with 100,000 keys, so its queries have a small batch to warm up and one
that counts; headgate's go on for some more, in which all keys have state already.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headgate as hg
from engine import (
    DEFAULT,
    ROCKS,
    Course,
    arguments,
    expected,
    latest,
    millis,
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
FILES_PER_BATCH = CORES
WARM_SHARE = 20
"""The first batch, which does not count, has this part of the rows."""

RESULT = "k long, n long, total long"
STATE = "n long, total long"
PER_KEY, VECTORISED = "headgate, per key", "headgate, vectorised"
FILES = ", own files"
"""Ends the name of a side that reads the files itself."""

OURS = tuple(style + source for style in (PER_KEY, VECTORISED) for source in ("", FILES))
APPLY, TRANSFORM = "Spark, applyInPandasWithState", "Spark, transformWithStateInPandas"


def on_key(key: int, rows: hg.Rows, state: dict[str, int]) -> dict[str, int]:
    """headgate's style per key."""
    state["n"] += len(rows)
    state["total"] += sum(rows["v"])
    return {"k": key, "n": state["n"], "total": state["total"]}


def on_batch(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
    """headgate's vectorised style."""
    values = batch.rows["v"].to_numpy()
    state = pa.table(
        {
            "n": pc.add(batch.state["n"], pa.array(batch.counts)),
            "total": pc.add(batch.state["total"], pa.array(np.add.reduceat(values, batch.starts[:-1]))),
        }
    )
    return pa.table({"k": batch.keys["k"], "n": state["n"], "total": state["total"]}), state


def in_pandas(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Spark's older style."""
    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n += len(frame)
        total += int(frame["v"].sum())
    state.update((n, total))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})


class Counter(StatefulProcessor):
    """Spark's newer style."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once per partition."""
        self.sums = handle.getValueState("sums", STATE)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Called for each key of a batch."""
        n, total = self.sums.get() or (0, 0)
        for frame in rows:
            n += len(frame)
            total += int(frame["v"].sum())
        self.sums.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        """Nothing to close."""


def headgate_side(spark: SparkSession, folder: Path, checkpoint: Path, wanted: pa.Table, side: str) -> Course:
    job = hg.Job("keyed")
    memory = hg.sinks.memory()
    if side.endswith(FILES):
        source = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=FILES_PER_BATCH))
    else:
        source = job.source(stream_of(spark, folder, FILES_PER_BATCH))
    keyed = source.key_by("k")
    if side.startswith(PER_KEY):
        results = keyed.process(on_key, state={"n": 0, "total": 0}, output=RESULT)
    else:
        results = keyed.process_arrow(on_batch, state={"n": 0, "total": 0}, output=RESULT)
    results.write_to(memory)
    course = run_headgate(job, spark, checkpoint, slots=SLOTS)
    same(latest(memory.to_arrow()), wanted, side)
    return course


def spark_side(spark: SparkSession, folder: Path, checkpoint: Path, wanted: pa.Table, side: str) -> Course:
    grouped = stream_of(spark, folder, FILES_PER_BATCH).groupBy("k")
    frame: DataFrame
    if side == APPLY:
        frame = grouped.applyInPandasWithState(in_pandas, RESULT, STATE, "update", "NoTimeout")
        course = run_spark(frame, checkpoint, store=DEFAULT)
        columns = {"k": "key.k", "n": "value.groupState.n", "total": "value.groupState.total"}
        found = state_of(spark, checkpoint, columns)
    else:
        frame = grouped.transformWithStateInPandas(Counter(), RESULT, "Update", "None")
        course = run_spark(frame, checkpoint, store=ROCKS)  # this style has no other
        columns = {"k": "key.k", "n": "value.n", "total": "value.total"}
        found = state_of(spark, checkpoint, columns, stateVarName="sums")
    same(found, wanted, side)
    return course


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=6, help="batches of headgate that count")
    options = parser.parse_args()
    rows, keys, batches = options.rows, options.keys, options.batches
    if options.quick:
        rows, keys, batches = rows // 50, keys // 50, 3
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        parser.error("transformWithStateInPandas needs the package protobuf: pip install protobuf")
    rng = np.random.default_rng(options.seed)
    tables = [rows_of(rng.integers(0, keys, rows // WARM_SHARE), rng)]
    tables += [rows_of(rng.integers(0, keys, rows), rng) for _ in range(batches)]
    few, many = expected(tables[:2]), expected(tables)
    courses: dict[str, Course] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        short = write_batches(space / "short", tables[:2], FILES_PER_BATCH)
        long = write_batches(space / "long", tables, FILES_PER_BATCH)
        for side in OURS:
            headgate_side(spark, short, space / f"warm-{side}", few, side)
            courses[side] = headgate_side(spark, long, space / side, many, side)
            print(f"{side}: {courses[side].seconds.round(2).tolist()} s", flush=True)
        for side in (APPLY, TRANSFORM):
            courses[side] = spark_side(spark, short, space / side.replace(" ", "-"), few, side)
            print(f"{side}: {courses[side].seconds.round(2).tolist()} s", flush=True)
    seconds = {side: median(course.seconds[1:].tolist()) for side, course in courses.items()}
    better = min(seconds[APPLY], seconds[TRANSFORM])
    ratios = {side: better / taken for side, taken in seconds.items()}
    table = Table(
        ("side", "batch", "rows/s", "batches counted", "against Spark's better one", "its own first such batch"),
        [
            (
                side,
                millis(seconds[side]),
                f"{rows / seconds[side]:,.0f}",
                len(courses[side].seconds) - 1,
                times(ratios[side]),
                times(better / float(courses[side].seconds[1])),
            )
            for side in courses
        ],
    )
    phases = timers_of({side: [courses[side]] for side in OURS}, warm=1)
    report = Report(
        name="engine_keyed",
        title="A keyed Python function: headgate's two styles against Spark's two",
        setup=f"{rows:,} rows and {keys:,} keys per batch, drawn evenly, {FILES_PER_BATCH} Parquet files, "
        f"local[{CORES}], {SLOTS} slots or shuffle partitions. applyInPandasWithState has Spark's default store, "
        "transformWithStateInPandas needs RocksDB. Spark's queries have one batch that counts, after one of a "
        f"{WARM_SHARE}th of the rows; headgate's have {batches}, whose median counts, and one query before to "
        "compile. Spark's go to the noop sink; headgate's results are committed to files and read back. Final "
        "counts and sums of all keys (Spark's from its state store) are compared with pyarrow's.",
        claims=[
            Claim(
                f"{text} at least {least} times the better one, {source}",
                times(ratio),
                ratio >= least,
                f"A batch takes {millis(seconds[style])} with rows of the JVM and {millis(seconds[style + FILES])} "
                "with files that the tasks read: the difference is Spark turning rows into Arrow. What slots do is the "
                "smaller part.",
            )
            for style, text, least in ((PER_KEY, "per key", 20), (VECTORISED, "vectorised", 80))
            for ending, source in ((FILES, "files read by headgate"), ("", "rows from Spark's Parquet source"))
            for ratio in (ratios[style + ending],)
        ],
        tables=[table, phases],
        parameters={"rows": rows, "keys": keys, "batches": batches},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
