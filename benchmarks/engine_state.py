"""Much state, few keys touched: what a batch costs with 10M keys of state against 100,000.

    python benchmarks/engine_state.py [--keys 10000000] [--quick]

Running count and sum per key. The state is built in a few large batches; then come batches that touch 10,000 keys each,
drawn evenly from all that there are. The two queries take turns. What is written follows the keys touched, save when
small runs are folded together; the mean over batches has those in it, the median has not.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import (
    Course,
    Memory,
    arguments,
    expected,
    latest,
    millis,
    rows_of,
    run_headgate,
    same,
    scratch,
    session,
    times,
    write_batches,
)
from headgate.sinks import Sink
from headgate.sinks.results import Results
from reporting import Claim, Report, Table

CORES = SLOTS = 2
TOUCHED = 10_000
SMALL = 100_000
BUILD = 1_000_000
"""Keys of a batch that builds the state up."""

PER_ROUND, WARM = 16, 2
MEMORY_LIMIT = 1 << 30
"""What a Python worker may hold of its own. The state of 10M keys is several times that in a Python dict."""


def round_of(spark: SparkSession, folder: Path, checkpoint: Path, sink: Sink) -> Course:
    job = hg.Job("state")
    source = hg.sources.files(spark, str(folder), max_files_per_trigger=1)
    job.source(source).key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(sink)
    return run_headgate(job, spark, checkpoint, slots=SLOTS, balance=None)


class Discard:
    """A sink that takes nothing: the results of the building-up are not looked at."""

    def deliver(self, results: Results) -> None:
        """Nothing."""


def check(results: pa.Table, tables: list[pa.Table], keys: int, side: str) -> None:
    """Each key had value 1 once while the state was built; what was touched since must be on top of that."""
    built = pa.table({"k": np.arange(keys), "v": np.ones(keys, dtype=np.int64)})
    touched = np.unique(np.concatenate([table["k"].to_numpy() for table in tables]))
    same(latest(results), expected([built.take(pa.array(touched)), *tables]), side)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000, help="keys of the large state")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    large, rounds, per_round = options.keys, options.rounds, PER_ROUND
    if options.quick:
        large, rounds, per_round = large // 10, 1, 5
    rng = np.random.default_rng(options.seed)
    sizes = {"small": SMALL, "large": large}
    tables: dict[str, list[pa.Table]] = {side: [] for side in sizes}
    runs: dict[str, list[Course]] = {side: [] for side in sizes}
    memory: dict[str, int] = {}
    state: dict[str, tuple[int, int]] = {}
    sinks = {side: hg.sinks.memory() for side in sizes}
    built: dict[str, Course] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        for side, keys in sizes.items():
            order = rng.permutation(keys)
            whole = pa.table({"k": order, "v": np.ones(keys, dtype=np.int64)})
            pieces = [whole.slice(at, BUILD) for at in range(0, keys, BUILD)]
            folder = write_batches(space / side, pieces)
            with Memory() as watched:
                built[side] = round_of(spark, folder, space / f"{side}-state", Discard())
            memory[f"{side}, building"] = watched.most
            print(f"{side}: {keys:,} keys built in {built[side].seconds.sum():.1f} s", flush=True)
        for turn in range(rounds):
            for side, keys in sizes.items():
                more = [rows_of(rng.choice(keys, TOUCHED, replace=False, shuffle=False), rng) for _ in range(per_round)]
                first = len(built[side].seconds) + len(tables[side])
                tables[side] += more
                folder = write_batches(space / side, more, first=first)
                with Memory() as watched:
                    course = round_of(spark, folder, space / f"{side}-state", sinks[side])
                memory[side] = max(memory.get(side, 0), watched.most)
                runs[side].append(course)
                state[side] = course.progress[-1]["state_rows"], course.progress[-1]["state_bytes"]
                print(f"{turn} {side}: {millis(course.median(WARM))}", flush=True)
        for side, keys in sizes.items():
            check(sinks[side].to_arrow(), tables[side], keys, side)
            assert state[side][0] == keys, f"{side}: {state[side][0]} keys of state instead of {keys}"
    seconds = {side: np.concatenate([course.seconds[WARM:] for course in runs[side]]) for side in sizes}
    progress = {side: [each for course in runs[side] for each in course.progress[WARM:]] for side in sizes}
    ratio = median(
        big.median(WARM) / small.median(WARM) for small, big in zip(runs["small"], runs["large"], strict=True)
    )
    mean = float(seconds["large"].mean() / seconds["small"].mean())
    held = max(memory["large"], memory["large, building"])
    assert held, "no Python worker was seen: its memory is not known"
    table = Table(
        ("state", "bytes", "median batch", "mean batch", "worst batch", "slowest slot", "written a batch"),
        [
            (
                f"{state[side][0]:,} keys",
                f"{state[side][1] / 1e6:,.0f} MB",
                millis(float(np.median(seconds[side]))),
                millis(float(seconds[side].mean())),
                millis(float(seconds[side].max())),
                millis(median(max(each["slot_seconds"]) for each in progress[side])),
                f"{fmean(each['written_bytes'] for each in progress[side]) / 1e6:.2f} MB",
            )
            for side in sizes
        ],
    )
    held_table = Table(
        ("the largest Python worker, memory of its own (RssAnon)", "MB"),
        [(side, f"{most / 1e6:,.0f}") for side, most in sorted(memory.items())],
    )
    report = Report(
        name="engine_state",
        title="Much state, few keys touched",
        setup=f"Running count and sum, {TOUCHED:,} keys a batch, drawn from {large:,} and from {SMALL:,} keys of "
        f"state; local[{CORES}], {SLOTS} slots, Parquet files read by the tasks. The state is built in batches of "
        f"{BUILD:,} keys. {rounds} rounds of {per_round} batches in which the two take turns; the first {WARM} "
        "of a round, when a query has just started, do not count. The ratio is that of medians within a round, its "
        "median over rounds. Counts and sums of all keys touched are compared with pyarrow's, and the number of "
        "keys.",
        claims=[
            Claim(
                f"{large // SMALL} times the state costs at most 2 times the batch",
                f"{times(ratio)} (means, with folding: {times(mean)})",
                ratio <= 2,
            ),
            Claim(
                f"the memory of a slot task is bounded: at most {MEMORY_LIMIT >> 20} MiB a worker",
                f"{held / (1 << 20):,.0f} MiB",
                held <= MEMORY_LIMIT,
            ),
        ],
        tables=[table, held_table],
        parameters={"keys": large, "small": SMALL, "touched": TOUCHED, "rounds": rounds},
        seed=options.seed,
        claimed_by="the target",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
