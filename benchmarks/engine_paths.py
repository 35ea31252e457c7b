"""Three ways to bring rows to the slots of their keys, a million rows a batch: which is fastest?

    python benchmarks/engine_paths.py [--rows 1000000] [--quick]

row shuffle       Spark computes the slot of each row and shuffles the rows (repartitionById); they reach Python once,
                  in the slot's task
rows, routed      the first Python stage computes the slots as headgate does, rows go back to the JVM and are shuffled
payload shuffle   the first Python stage computes the slots and packs the rows of each slot into Arrow payloads; Spark
                  shuffles those (headgate with any streaming DataFrame)
Arrow read        the same, the first stage reading the Parquet files itself (headgate with headgate.sources.files)

Only the way there is timed: a slot counts and adds up what arrives, without state. The pieces are headgate's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

import headgate as hg
from engine import arguments, millis, rows_of, run_spark, scratch, session, stream_of, times, write_batches
from headgate.engine.payload import EXCHANGE_SCHEMA, Sender, received
from headgate.engine.payload import rows_of as rows_in
from headgate.engine.program import FileFormat
from headgate.engine.reading import read_file
from headgate.engine.tasks import SETTINGS
from headgate.routing import Assignment, key_hash
from reporting import Claim, Report, Table

CORES = SLOTS = 2
FILES = 4
WARM = 1
COUNTED = "n long, total long"
ROWS, ROUTED, PAYLOAD, ARROW = "row shuffle", "rows, routed", "payload shuffle", "Arrow read"

Batches = Iterator[pa.RecordBatch]


def counted(batches: Batches) -> Batches:
    """A slot that gets rows."""
    n = total = 0
    for batch in batches:
        n += batch.num_rows
        total += pc.sum(batch.column("v")).as_py() or 0
    yield pa.record_batch({"n": [n], "total": [total]})


def unpacked(batches: Batches) -> Batches:
    """A slot that gets payloads."""
    arrived = rows_in(received(batches), 0)
    table = arrived.rows if arrived is not None else pa.table({"v": pa.array([], pa.int64())})
    yield pa.record_batch({"n": [table.num_rows], "total": [pc.sum(table["v"]).as_py() or 0]})


def packed(assignment: Assignment, form: FileFormat | None) -> Callable[[Batches], Batches]:
    """The first stage of headgate: rows, or the files that hold them, into payloads by slot."""

    def pack(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        sender = Sender(context.partitionId() if context is not None else 0)
        given = [pa.Table.from_batches([batch]) for batch in batches]
        if form is not None:
            given = [rows for names in given for path in names["path"].to_pylist() for rows in read_file(path, form)]
        if given:
            rows = pa.concat_tables(given).combine_chunks()
            hashes = key_hash(rows.column("k"))
            yield from sender.rows(0, rows, hashes, assignment.route(hashes), SLOTS)

    return pack


def routed(assignment: Assignment) -> Callable[[Batches], Batches]:
    """Rows with the slot that headgate gives them."""

    def route(batches: Batches) -> Batches:
        for batch in batches:
            slots = assignment.route(key_hash(batch.column("k")))
            yield batch.append_column("slot", pa.array(slots, pa.int32()))

    return route


def through(way: str, form: FileFormat) -> Callable[[DataFrame], DataFrame]:
    """What is done with the frame of a batch."""
    assignment = Assignment.hashed(SLOTS)
    to_slots = sf.col("slot")

    def rows(frame: DataFrame) -> DataFrame:
        slot = sf.pmod(sf.xxhash64("k"), sf.lit(SLOTS)).cast("int").alias("slot")
        return frame.select("k", "v", slot).repartitionById(SLOTS, to_slots).mapInArrow(counted, COUNTED)

    def rows_routed(frame: DataFrame) -> DataFrame:
        made = frame.mapInArrow(routed(assignment), "k long, v long, slot int")
        return made.repartitionById(SLOTS, to_slots).mapInArrow(counted, COUNTED)

    def payloads(frame: DataFrame) -> DataFrame:
        made = frame.mapInArrow(packed(assignment, form if way == ARROW else None), from_arrow_schema(EXCHANGE_SCHEMA))
        return made.repartitionById(SLOTS, to_slots).mapInArrow(unpacked, COUNTED)

    return {ROWS: rows, ROUTED: rows_routed}.get(way, payloads)


def query_of(
    spark: SparkSession, folder: Path, checkpoint: Path, way: str, wanted: list[tuple[int, int]]
) -> list[float]:
    """Seconds of each batch that counts; what arrived is checked batch by batch."""
    source = hg.sources.files(spark, str(folder), max_files_per_trigger=FILES)
    frame = source.frame if way == ARROW else stream_of(spark, folder, FILES)
    change = through(way, source.form)
    arrived: list[tuple[int, int]] = []

    def process(batch: DataFrame, _: int) -> None:
        for name, value in SETTINGS.items():
            batch.sparkSession.conf.set(name, value)
        sums = change(batch).collect()
        arrived.append((sum(row["n"] for row in sums), sum(row["total"] for row in sums)))

    course = run_spark(frame, checkpoint, sink=process)
    assert arrived == wanted, f"{way}: {arrived} instead of {wanted}"
    taken: list[float] = course.seconds[WARM:].tolist()
    return taken


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows per batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    rows, batches, rounds = options.rows, options.batches, options.rounds
    if options.quick:
        rows, batches, rounds = rows // 10, 2, 1
    rng = np.random.default_rng(options.seed)
    tables = [rows_of(rng.integers(0, options.keys, rows), rng) for _ in range(batches)]
    wanted = [(table.num_rows, int(table["v"].to_numpy().sum())) for table in tables]
    seconds: dict[str, list[list[float]]] = {way: [] for way in (ROWS, ROUTED, PAYLOAD, ARROW)}
    with scratch() as space, session(CORES, SLOTS) as spark:
        folder = write_batches(space / "in", tables, FILES)
        for turn in range(rounds + 1):
            for number, (way, taken) in enumerate(seconds.items()):
                taken.append(query_of(spark, folder, space / f"{turn}-{number}", way, wanted))
                print(f"{turn} {way}: {millis(median(taken[-1]))}", flush=True)
    turns = {way: [median(turn) for turn in taken[1:]] for way, taken in seconds.items()}
    against = {
        way: median(base / ours for base, ours in zip(turns[ROWS], each, strict=True)) for way, each in turns.items()
    }
    halves = median(ours / base for base, ours in zip(turns[PAYLOAD], turns[ARROW], strict=True))
    table = Table(
        ("way", "median batch", "rows/s", "against the row shuffle"),
        [
            (way, millis(median(each)), f"{rows / median(each):,.0f}", times(against[way]))
            for way, each in turns.items()
        ],
    )
    report = Report(
        name="engine_paths",
        title="Three ways to the slots",
        setup=f"{batches} batches of {rows:,} rows (two 64-bit columns) in {FILES} Parquet files each, local[{CORES}], "
        f"{SLOTS} slots. {rounds} turns of one query each, after one that does not count; the first batch of a "
        "query does not either. Timed by Spark (triggerExecution); ratios within a turn, their median. The number "
        "of rows and the sum that arrived are compared with NumPy's for every batch.",
        claims=[
            Claim("payloads are faster than rows", times(against[PAYLOAD]), against[PAYLOAD] > 1),
            Claim("reading with Arrow takes about half the time of rows from the JVM", f"{halves:.0%}", halves <= 0.6),
        ],
        tables=[table],
        parameters={"rows": rows, "keys": options.keys, "batches": batches, "rounds": rounds},
        seed=options.seed,
        claimed_by="expected",
    )
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
