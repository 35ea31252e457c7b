"""What the benchmarks of the engine share: sessions, input files, queries that are timed, twins, and checks.

A batch is timed as Spark does it for both sides: ``triggerExecution`` of the streaming query's progress, from the
listing of new files to the commit of the batch, so what headgate does outside its own timers counts too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import headgate as hg
from headgate.arrays import F64, I64
from reporting import RESULTS, Table

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DEFAULT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORES = {"default store": DEFAULT, "RocksDB": ROCKS}
"""Spark's own state stores."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"

SCHEMA = "k long, v long"
"""The rows of all benchmarks: a key and a value."""

WARM = 2
"""Batches at the start of a query that do not count: the JVM and Numba compile, Python workers start, stores open."""

PHASES = ("plan", "tasks", "commit", "sinks", "after", "total")
"""headgate's own timers of a batch."""

SAMPLE_SECONDS = 0.05
"""How often the memory of the Python workers is looked at."""


@contextmanager
def session(cores: int, shuffle: int, **settings: str) -> Iterator[SparkSession]:
    """A local Spark session that ends with the block. ``shuffle``: partitions of Spark's own stateful operators."""
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("headgate benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(shuffle))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.python.unix.domain.socket.enabled", "true")  # as docs/operations.md says
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for input files and checkpoints, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def arguments(description: str | None, *, seed: int = 0) -> argparse.ArgumentParser:
    """The options that every benchmark of the engine has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--quick", action="store_true", help="a small version, to try it out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser


def rows_of(keys: I64, rng: np.random.Generator) -> pa.Table:
    """Rows with these keys and values 0 to 99."""
    return pa.table({"k": keys, "v": rng.integers(0, 100, len(keys))})


def write_batches(
    folder: Path, batches: Sequence[pa.Table], files: int = 1, first: int = 0, *, plain: bool = False
) -> Path:
    """Each batch as this many Parquet files. Their times of modification, which Spark sorts by, ascend.

    ``plain``: neither compressed nor with dictionaries, so that reading them is little work.
    """
    how = {"compression": "none", "use_dictionary": False} if plain else {}
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(batches, first):
        cuts = np.linspace(0, table.num_rows, files + 1).astype(int)
        for part in range(files):
            path = folder / f"{number:04d}-{part}.parquet"
            pq.write_table(table.slice(cuts[part], cuts[part + 1] - cuts[part]), path, **how)
            at = 1_700_000_000 + number * files + part
            os.utime(path, (at, at))
    return folder


def stream_of(spark: SparkSession, folder: Path, files: int = 1) -> DataFrame:
    """Spark's own Parquet source over the files of ``write_batches``: a batch of rows per trigger."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(folder))


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """How the batches of a query went, in order; ``progress`` is headgate's own, where it was headgate, and then
    ``cpu_seconds`` what the whole query took of the processors."""

    seconds: F64
    progress: tuple[dict[str, Any], ...] = ()
    cpu_seconds: float = 0.0

    def median(self, warm: int = WARM) -> float:
        """Seconds of a batch after warm-up: half took longer."""
        return float(statistics.median(self.seconds[warm:].tolist()))

    def phase(self, name: str, warm: int = WARM) -> float:
        """The median of one of headgate's own timers."""
        return statistics.median(float(each["seconds"][name]) for each in self.progress[warm:])


def _timed(stream: StreamingQuery) -> F64:
    """Seconds of each batch that had rows. Spark's own stateful queries have one without at the end, for windows that
    the last rows closed."""
    done = [each for each in stream.recentProgress if "addBatch" in each.durationMs and each.numInputRows]
    return np.array([each.durationMs["triggerExecution"] / 1e3 for each in done])


def run_spark(
    frame: DataFrame,
    checkpoint: Path,
    *,
    store: str = DEFAULT,
    sink: Callable[[DataFrame, int], None] | None = None,
    mode: str = "update",
) -> Course:
    """A streaming query of Spark's own over all that there is; results go to the noop sink."""
    frame.sparkSession.conf.set(PROVIDER, store)
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer = writer.format("noop") if sink is None else writer.foreachBatch(sink)
    stream = writer.trigger(availableNow=True).start()
    stream.awaitTermination()
    return Course(_timed(stream))


def run_headgate(job: hg.Job, spark: SparkSession, checkpoint: Path, **options: Any) -> Course:
    """A job of headgate over all that there is."""
    told: list[dict[str, Any]] = []
    options.setdefault("trigger", "available now")
    before = cpu_seconds()
    query = job.start(spark, checkpoint=str(checkpoint), listeners=[told.append], **options)
    return replace(timed_stream(spark, job, query, told), cpu_seconds=cpu_seconds() - before)


def timed_stream(spark: SparkSession, job: hg.Job, query: hg.Query, told: list[dict[str, Any]]) -> Course:
    """Wait for a query that was just started; ``told`` is what its listener gathers."""
    stream = next(each for each in spark.streams.active if (each.name or "").startswith(f"headgate-{job.name}-"))
    query.await_termination()
    return Course(_timed(stream), tuple(told))


def timers_of(sides: Mapping[str, Sequence[Course]], warm: int = WARM) -> Table:
    """Where headgate's batches spent their time: a row for each side, medians over its queries."""
    rows = []
    for side, courses in sides.items():
        slots = [max(each["slot_seconds"]) for course in courses for each in course.progress[warm:]]
        phases = [statistics.median(course.phase(name, warm) for course in courses) for name in PHASES]
        total = statistics.median(float(taken) for course in courses for taken in course.seconds[warm:])
        rows.append((side, *map(millis, (*phases, statistics.median(slots), total - phases[-1]))))
    return Table(("headgate's own timers, medians", *PHASES, "slowest slot", "outside headgate"), rows)


def native(frame: DataFrame) -> DataFrame:
    """Spark's own running count and sum per key."""
    return frame.groupBy("k").agg(sf.count("*").alias("n"), sf.sum("v").alias("total"))


def expected(batches: Sequence[pa.Table]) -> pa.Table:
    """Count and sum per key of all rows, by pyarrow: k, n, total, ascending by k."""
    together = pa.concat_tables(batches).combine_chunks()
    made = together.group_by("k").aggregate([("v", "count"), ("v", "sum")]).sort_by("k")
    return pa.table({"k": made["k"], "n": made["v_count"], "total": made["v_sum"]})


def same(got: pa.Table, wanted: pa.Table, what: str) -> None:
    """Raises ``AssertionError`` unless the tables hold the same rows."""
    got = got.select(wanted.column_names).sort_by(wanted.column_names[0])
    for name in wanted.column_names:
        ours, theirs = (table[name].combine_chunks().to_numpy() for table in (got, wanted))
        assert len(ours) == len(theirs), f"{what}: {len(ours)} keys instead of {len(theirs)}"
        assert (ours == theirs).all(), f"{what}: {int((ours != theirs).sum())} keys have a wrong {name!r}"


def latest(results: pa.Table, key: str = "k") -> pa.Table:
    """Of all results, in the order of their batches, the last one of each key."""
    numbered = results.append_column("at", pa.array(np.arange(results.num_rows)))
    last = numbered.group_by(key).aggregate([("at", "max")])["at_max"]
    return results.take(last)


def state_of(spark: SparkSession, checkpoint: Path, columns: Mapping[str, str], **options: str) -> pa.Table:
    """What Spark's state store holds after a query: ``columns`` are names and the expressions that give them."""
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    reader = spark.read.format("statestore")
    for name, value in options.items():
        reader = reader.option(name, value)
    frame = reader.load(str(checkpoint)).selectExpr(*(f"{text} as {name}" for name, text in columns.items()))
    return frame.toArrow()


NATIVE_STATE = {"k": "key.k", "n": "value.count", "total": "value.sum"}
"""Where the state of ``native`` has its columns."""


def _family() -> dict[int, list[str]]:
    """This process and all that descend from it: the fields of their stat behind the name, by process id."""
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
    found = {}
    for number in stats:
        above: int | None = number
        while above and above != os.getpid():
            above = int(stats[above][1]) if above in stats else None
        if above == os.getpid():
            found[number] = stats[number]
    return found


def workers() -> list[int]:
    """The Python workers of this process's Spark: what descends from pyspark's daemon."""
    return [number for number in _family() if b"pyspark.daemon" in _command(number)]


def cpu_seconds() -> float:
    """What this process, Java and all Python workers have used of the processors so far, children that ended too."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(int(stat[field]) for field in (11, 12, 13, 14)) for stat in _family().values()) / ticks


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


def _own_bytes(number: int) -> int:
    """Memory that is the process's own: not mapped files, which the system takes back when it needs the room."""
    try:
        text = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


class Memory:
    """Watches the Python workers in a thread: the most that one of them held, in bytes."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        listed, at = workers(), time.monotonic()
        while not self._end.wait(SAMPLE_SECONDS):
            if time.monotonic() - at > 1:
                listed, at = workers(), time.monotonic()
            self.most = max([self.most, *(_own_bytes(number) for number in listed)])


def times(ratio: float) -> str:
    """A ratio as text."""
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:.0f} times"


def millis(seconds: float) -> str:
    """Seconds as text."""
    return f"{seconds * 1e3:,.0f} ms"
