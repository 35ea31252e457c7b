"""What gathering statistics costs: the same job with statistics on and off, nothing being balanced.

    python benchmarks/engine_statistics.py [--rows 1000000] [--quick]

Three jobs that count and add up per key: running aggregates, which combine rows early, a vectorised function, and a
function per key. On and off take turns, query by query, in an order that changes, over the same files.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import headgate as hg
from engine import (
    Course,
    arguments,
    expected,
    latest,
    millis,
    rows_of,
    run_headgate,
    same,
    scratch,
    session,
    write_batches,
)
from reporting import Claim, Report, Table

CORES = SLOTS = 2
KINDS = ("aggregate", "vectorised", "per key")
RESULT = "k long, n long, total long"
WARM = 1
"""Batches of a query that do not count; one query of each kind and side does not either."""

AT_MOST = 0.03


def on_key(key: int, rows: hg.Rows, state: dict[str, int]) -> dict[str, int]:
    """Per key."""
    state["n"] += len(rows)
    state["total"] += sum(rows["v"])
    return {"k": key, "n": state["n"], "total": state["total"]}


def on_batch(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
    """Vectorised."""
    sums = np.add.reduceat(batch.rows["v"].to_numpy(), batch.starts[:-1])
    state = pa.table(
        {
            "n": pc.add(batch.state["n"], pa.array(batch.counts)),
            "total": pc.add(batch.state["total"], pa.array(sums)),
        }
    )
    return pa.table({"k": batch.keys["k"], "n": state["n"], "total": state["total"]}), state


def query_of(spark: SparkSession, folder: Path, space: Path, wanted: pa.Table, kind: str, *, on: bool) -> Course:
    job = hg.Job("statistics")
    memory = hg.sinks.memory()
    keyed = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=2)).key_by("k")
    if kind == "aggregate":
        results = keyed.aggregate(n=hg.count(), total=hg.sum("v"))
    elif kind == "vectorised":
        results = keyed.process_arrow(on_batch, state={"n": 0, "total": 0}, output=RESULT)
    else:
        results = keyed.process(on_key, state={"n": 0, "total": 0}, output=RESULT)
    results.write_to(memory)
    course = run_headgate(job, spark, space, slots=SLOTS, balance=None, statistics=on)
    same(latest(memory.to_arrow()), wanted, f"{kind}, statistics {on}")
    return course


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    rows, batches, rounds = options.rows, options.batches, options.rounds
    if options.quick:
        rows, batches, rounds = rows // 20, 2, 1
    rng = np.random.default_rng(options.seed)
    tables = [rows_of(rng.integers(0, options.keys, rows), rng) for _ in range(batches)]
    wanted = expected(tables)
    runs: dict[tuple[str, bool], list[Course]] = {(kind, on): [] for kind in KINDS for on in (True, False)}
    with scratch() as space, session(CORES, SLOTS) as spark:
        folder = write_batches(space / "in", tables, files=2)
        for turn in range(rounds + 1):
            for kind in KINDS:
                for on in (True, False) if turn % 2 else (False, True):
                    checkpoint = space / f"{turn}-{kind.replace(' ', '-')}-{on}"
                    runs[kind, on].append(query_of(spark, folder, checkpoint, wanted, kind, on=on))
                taken = [millis(runs[kind, on][-1].median(WARM)) for on in (True, False)]
                print(f"{turn} {kind}: {taken[0]} on, {taken[1]} off", flush=True)
    claims, lines = [], []
    for kind in KINDS:
        with_, without = runs[kind, True][1:], runs[kind, False][1:]
        # Two queries of a turn lie side by side in time: what the machine does from turn to turn cancels out.
        pairs = [ours.median(WARM) / theirs.median(WARM) for ours, theirs in zip(with_, without, strict=True)]
        cost = median(pairs) - 1
        used = [ours.cpu_seconds / theirs.cpu_seconds for ours, theirs in zip(with_, without, strict=True)]
        cpu = median(used) - 1
        claims.append(Claim(f"{kind}: at most {AT_MOST:.0%} of throughput", f"{cost:+.1%}", cost <= AT_MOST))
        claims.append(Claim(f"{kind}: at most {AT_MOST:.0%} of processor time", f"{cpu:+.1%}", cpu <= AT_MOST))
        lines.append(
            (
                kind,
                millis(median(course.median(WARM) for course in with_)),
                millis(median(course.median(WARM) for course in without)),
                f"{cost:+.1%}",
                f"{min(pairs) - 1:+.1%} to {max(pairs) - 1:+.1%}",
                f"{np.std(pairs) / len(pairs) ** 0.5:.1%}",
                f"{cpu:+.1%}",
                f"{np.std(used) / len(used) ** 0.5:.1%}",
            )
        )
    report = Report(
        name="engine_statistics",
        title="The cost of statistics",
        setup=f"{batches} batches of {rows:,} rows, {options.keys:,} keys, local[{CORES}], {SLOTS} slots, Parquet "
        f"files read by the tasks, nothing balanced. {rounds} turns in which a query with statistics and one "
        "without run one after the other, after one of each that does not count; medians over the batches of a "
        f"query but the first {WARM}, the ratio of the two in each turn, and its median. Processor time is that of the "
        "driver, Java and all Python workers over the whole query. Counts and sums of all "
        "keys are compared with pyarrow's.",
        claims=claims,
        tables=[
            Table(
                ("job", "on", "off", "cost", "turns from, to", "standard error", "processor time", "standard error"),
                lines,
            )
        ],
        parameters={"rows": rows, "keys": options.keys, "batches": batches, "rounds": rounds},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
