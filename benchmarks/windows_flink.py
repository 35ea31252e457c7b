"""Hopping windows: headgate against Flink SQL. Optional: Flink wants an environment of its own.

    python benchmarks/windows_flink.py --flink-python PATH [--rows 1000000] [--repeats 3] [--only {short,long}]

Count and sum per key and window over the same rows, keys drawn by Zipf 0.85, event time with watermarks on both sides,
headgate on local[2] with two slots, Flink in streaming mode with parallelism 2 and the HOP table function. Flink's
Python package has no Parquet: both sides read CSV, and headgate Parquet as well.

    short     5 minutes every minute
    long      60 minutes every minute, a tenth of the rows per minute

What is timed is a minute of the stream, after warm-up. headgate: a batch is a minute. Flink: from when the window that
ends with one minute comes out to when the one that ends with a later minute does, divided by the minutes between. So
the start of a job does not count, nor what Flink closes when its input ends. What Flink takes to read its input and do
nothing with it is measured too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import SparkSession

import headgate as hg
from engine import arguments, millis, run_headgate, scratch, session, times, write_batches
from headgate.arrays import F64
from headgate.sources.files import Format
from reporting import Claim, Report, Table
from windows_hopping import CORES, FILES, MINUTE, SKEW, SLOTS

FLINK = "2.3.0"
"""The version that this was written with."""

HOW = f"""\
This benchmark is optional: it compares with Flink, whose Python package wants other versions of what headgate depends
on, so it has to be in an environment of its own. Python 3.11 and Java 17 do:

    python3.11 -m venv /tmp/flink-env
    /tmp/flink-env/bin/pip install apache-flink=={FLINK}
    python benchmarks/windows_flink.py --flink-python /tmp/flink-env/bin/python
"""

SIDE = Path(__file__).parent / "flink_side.py"
REPEATS = 3
FORMATS: tuple[Format, ...] = ("csv", "parquet")
PARTS = {"short": 5, "long": 60}
"""Minutes of a window."""

MEMORY = "3g"
"""Of Flink's JVM, as Spark's driver has."""

COMMON = {
    "parallelism.default": str(SLOTS),
    "pipeline.object-reuse": "true",
    "pipeline.auto-watermark-interval": "50 ms",
    "taskmanager.memory.managed.size": "512m",
}
CHECKPOINTS = {"execution.checkpointing.interval": "5 s"}
VARIANTS: dict[str, dict[str, str]] = {
    "state on the heap, no checkpoints": {"state.backend.type": "hashmap"},
    "state on the heap, checkpoints every 5 s": {"state.backend.type": "hashmap", **CHECKPOINTS},
    "RocksDB, incremental checkpoints every 5 s": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        **CHECKPOINTS,
    },
}
LIGHTEST = next(iter(VARIANTS))
ROCKS = list(VARIANTS)[-1]
"""Not for long windows: Flink looks up every minute of a window for every key when it closes one, and each look-up into
RocksDB costs. A small version took 12 times as long as with state on the heap and as many checkpoints; the full one
would take hours by that measure."""

READING = "reading and nothing else"


@dataclass(frozen=True, slots=True)
class Input:
    """The same rows three times: for headgate four files a minute, for Flink one file for each of its two readers.

    Flink opens the files of a folder in an order of its own, and rows of an earlier file would be late.
    """

    parquet: Path
    csv: Path
    flink: Path
    minutes: int


def write_input(folder: Path, rng: np.random.Generator, count: int, rows: int, keys: int) -> Input:
    """Rows of so many minutes, ascending by time, which is in microseconds: neither side has to read dates."""
    share = 1 / np.arange(1, keys + 1) ** SKEW
    ranks: F64 = np.cumsum(share / share.sum())
    made = Input(folder / "parquet", folder / "csv", folder / "flink", count)
    for each in (made.csv, made.flink):
        each.mkdir(parents=True)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])
    plain = pyarrow.csv.WriteOptions(include_header=False)
    readers = [pyarrow.csv.CSVWriter(made.flink / f"{one}.csv", schema, write_options=plain) for one in range(SLOTS)]
    for number in range(count):
        at = np.sort(number * MINUTE + rng.integers(0, MINUTE, rows))
        columns = {"k": np.searchsorted(ranks, rng.random(rows)), "v": rng.integers(0, 100, rows), "at": at}
        table = pa.table(columns, schema=schema)
        write_batches(made.parquet, [table], FILES, first=number)
        cuts = np.linspace(0, rows, FILES + 1).astype(int)
        for part in range(FILES):
            path = made.csv / f"{number:04d}-{part}.csv"
            pyarrow.csv.write_csv(table.slice(cuts[part], cuts[part + 1] - cuts[part]), path)
            modified = 1_700_000_000 + number * FILES + part  # Spark takes files by their age
            os.utime(path, (modified, modified))
        for one, reader in enumerate(readers):
            reader.write_table(pa.table({name: column[one::SLOTS] for name, column in columns.items()}, schema=schema))
    for reader in readers:
        reader.close()
    return made


def ours(spark: SparkSession, folder: Path, form: Format, checkpoint: Path, length: int) -> tuple[F64, pa.Table]:
    """Seconds of headgate's batches, and the results."""
    job = hg.Job("windows", event_time="at")
    sink = hg.sinks.memory()
    rows = hg.sources.files(
        spark, str(folder), format=form, schema="k long, v long, at long", max_files_per_trigger=FILES
    )
    job.source(rows).key_by("k").window(f"{length} minutes", every="1 minute").aggregate(
        n=hg.count(), total=hg.sum("v")
    ).write_to(sink)
    return run_headgate(job, spark, checkpoint, slots=SLOTS).seconds, sink.to_arrow()


def has_flink(python: Path) -> bool:
    """Whether this Python is there and can import Flink's package."""
    try:
        return not subprocess.run([str(python), "-c", "import pyflink.table"], env=elsewhere(), check=False).returncode
    except OSError as error:
        print(error, file=sys.stderr)
        return False


def elsewhere() -> dict[str, str]:
    """The environment of a process of another Python: nothing in it that is meant for this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}


def flink(python: Path, plan: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run a plan in Flink: see flink_side.py. The first answer says which version it is."""
    with subprocess.Popen(
        [str(python), str(SIDE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=elsewhere() | {"JVM_ARGS": f"-Xmx{MEMORY}"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(plan))
        process.stdin.close()
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        sys.exit(f"Flink's side ended with {process.returncode}")


def first_counted(minutes: int, length: int) -> int:
    """The minute from which times count: when windows are full, but the last four at least."""
    return min(max(minutes // 2, length), minutes - 4)


def pace(answer: dict[str, Any], first: int, minutes: int) -> float:
    """Seconds that a minute of the stream took Flink, from this minute to the last one that a later row ended."""
    passed = {int(minute): float(at) for minute, at in answer["passed"].items()}
    return (passed[minutes - 1] - passed[first - 1]) / (minutes - first)


def compare(got: pa.Table, wanted: pa.Table) -> int:
    """Check that both sides have the same results; returns how many."""
    names = {"window_start": "window_start", "window_end": "window_end", "k": "k", "n": "n", "total": "total"}
    order = [(name, "ascending") for name in ("window_end", "k")]
    mine, theirs = (
        pa.table({name: table.column(name).cast(pa.int64()) for name in names}).sort_by(order)
        for table in (got, wanted)
    )
    assert mine.num_rows == theirs.num_rows, f"{mine.num_rows:,} results, Flink has {theirs.num_rows:,}"
    for name in names:
        wrong = int(np.count_nonzero(mine.column(name).to_numpy() != theirs.column(name).to_numpy()))
        assert not wrong, f"{wrong} results have another {name!r} than Flink's"
    return int(mine.num_rows)


def results_of(folder: Path) -> pa.Table:
    """What Flink wrote, times in microseconds as headgate's are."""
    micros = pa.timestamp("us")
    types = {"k": pa.int64(), "window_start": micros, "window_end": micros, "n": pa.int64(), "total": pa.int64()}
    reading = pyarrow.csv.ReadOptions(column_names=list(types))
    converting = pyarrow.csv.ConvertOptions(column_types=types)
    parts = [path for path in sorted(folder.rglob("part-*")) if path.stat().st_size]
    return pa.concat_tables(pyarrow.csv.read_csv(path, reading, convert_options=converting) for path in parts)


def race(options: Any, space: Path, name: str, count: int, rows: int, keys: int, repeats: int) -> None:
    length = PARTS[name]
    rng = np.random.default_rng(options.seed)
    given = write_input(space / name, rng, count, rows, keys)
    warm = write_input(space / f"{name}-warm", rng, 4, rows // 2, keys)
    first = first_counted(count, length)

    taken: dict[str, list[float]] = {}
    with session(CORES, SLOTS, spark__sql__session__timeZone="UTC") as spark:
        for form in FORMATS:
            ours(spark, getattr(warm, form), form, space / f"{name}-{form}-warm", length)  # compiles
            for again in range(repeats):
                seconds, got = ours(spark, getattr(given, form), form, space / f"{name}-{form}-{again}", length)
                assert len(seconds) == count, f"{len(seconds)} batches instead of {count}"
                taken.setdefault(form, []).append(float(np.mean(seconds[first:])))
                print(f"{name}: headgate, {form}: {millis(taken[form][-1])} a minute", flush=True)
    closed = pc.max(got.column("window_end").cast(pa.int64())).as_py() // MINUTE
    assert closed >= count - 2, f"headgate closed windows until minute {closed} of {count}"

    def one(run: str, what: str, settings: dict[str, str], source: Input) -> dict[str, Any]:
        kept = {"execution.checkpointing.dir": f"file://{space / 'flink-checkpoints'}"}
        return {"name": run, "what": what, "input": str(source.flink), "length": length, "until": closed,
                "settings": COMMON | kept | settings}  # fmt: skip

    variants = {side: settings for side, settings in VARIANTS.items() if name != "long" or side != ROCKS}
    plan = [one("", "windows", VARIANTS[LIGHTEST], warm)]
    for _ in range(repeats):
        plan += [one(variant, "windows", settings, given) for variant, settings in variants.items()]
        plan.append(one(READING, "reading", {}, given))
    plan.append(one("", "results", VARIANTS[LIGHTEST], given))
    plan = [run | {"output": str(space / f"{name}-flink-{number}")} for number, run in enumerate(plan)]
    answers = flink(options.flink_python, plan)
    version = next(answers)["flink"]
    whole: dict[str, list[float]] = {}
    compared = 0
    for answer, run in zip(answers, plan, strict=True):
        if run["what"] == "results":
            compared = compare(got, results_of(Path(answer["output"])))
        elif answer["name"]:
            taken.setdefault(answer["name"], []).append(pace(answer, first, count))
            whole.setdefault(answer["name"], []).append(answer["seconds"])
            print(f"{name}: Flink, {answer['name']}: {millis(taken[answer['name']][-1])} a minute, "
                  f"{answer['seconds']:.1f} s the whole job", flush=True)  # fmt: skip
    report(options, name, version, count, rows, keys, first, closed, repeats, compared,
           {side: statistics.median(values) for side, values in taken.items()},
           {side: statistics.median(values) for side, values in whole.items()})  # fmt: skip


def report(
    options: Any, name: str, version: str, count: int, rows: int, keys: int, first: int, closed: int, repeats: int,
    compared: int, taken: dict[str, float], whole: dict[str, float],
) -> None:  # fmt: skip
    length = PARTS[name]
    base = min(taken[side] for side in whole if side != READING)
    alone = base - taken[READING]

    def line(side: str, seconds: float, job: str) -> tuple[str, ...]:
        return side, millis(seconds), f"{rows / seconds:,.0f}", times(base / seconds), job

    lines = [line(f"headgate, {'CSV' if form == 'csv' else 'Parquet'}", taken[form], "") for form in FORMATS]
    lines += [line(f"Flink, CSV, {side}", taken[side], f"{seconds:.1f} s") for side, seconds in whole.items()]
    ratio = base / taken["csv"]
    columns = ("side", "a minute of the stream", "rows/s", "against the fastest Flink", "Flink's whole job")
    page = Report(
        name=f"windows_flink_{name}",
        title=f"Windows of {length} minutes every minute, against Flink",
        setup=f"Count and sum per key and window; {count} minutes of {rows:,} rows, {keys:,} keys, Zipf {SKEW}; event "
        f"time, with watermarks that wait for nothing (Flink's: a millisecond). headgate: local[{CORES}], {SLOTS} "
        "slots, a batch a minute, every batch committed, results written to files and read back by the driver. Flink "
        f"{version}: SQL in streaming mode, the HOP table function, parallelism {SLOTS}, objects reused, a JVM of "
        f"{MEMORY}; of the results it writes only those of eight keys, with the time. Both read the same rows from "
        f"CSV, four files a minute for headgate, one file per reader for Flink. Minutes {first + 1} to {count} count, "
        f"their mean, of which the median of {repeats}. {compared:,} results of the windows that end until minute "
        f"{closed}, all that headgate closed, are equal.",
        claims=[Claim("CSV: at least as fast as the fastest Flink", times(ratio), ratio >= 1)],
        tables=[Table(columns, lines)],
        notes=[
            "Without checkpoints Flink loses its state with its process; headgate commits its own with every batch.",
            f"Flink's windows without its reading, as the difference of the two: {millis(alone)}. headgate with "
            f"Parquet, reading included: {millis(taken['parquet'])}.",
            "Start-up does not count: headgate's session has run such a job before, and Flink's process too; Flink is "
            "timed from window to window within a job. Its whole job has the start, and the windows that it closes "
            "at the end of its input and headgate does not.",
        ],
        parameters={"rows": rows, "keys": keys, "minutes": count, "repeats": repeats},
        seed=options.seed,
        claimed_by="the target",
    )
    print(page.write(options.out))
    print(page.markdown())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--flink-python", type=Path, help="the Python of an environment with apache-flink")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per minute, where windows are short")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    if options.flink_python is None or not has_flink(options.flink_python):
        sys.exit(HOW)
    rows, keys, repeats = options.rows, options.keys, options.repeats
    if options.quick:
        rows, keys, repeats = rows // 20, keys // 20, 1
    sizes = {"short": (8, rows), "long": (20 if options.quick else 72, rows // 10)}
    with scratch() as space:
        for name, (count, size) in sizes.items():
            if options.only in (None, name):
                race(options, space, name, count, size, keys, repeats)


if __name__ == "__main__":
    main()
