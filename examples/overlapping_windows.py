"""Three windows over one stream of loans, all ending every ten minutes: the mean rate per area, and how many were asked
for. However many windows a loan is in, it is added up once.

Run it: python examples/overlapping_windows.py
"""

import datetime as dt
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg

START = dt.datetime(2026, 1, 5, 8, 0, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
AREAS = ("north", "east", "south", "west")
LENGTHS = (10, 30, 60)


def write_loans(folder: Path, minutes: int = 90, a_minute: int = 40) -> list[tuple[str, float, dt.datetime]]:
    """A file for every ten minutes of loans, which come in order but for a minute or two; returns all of them."""
    dice = random.Random(4)
    loans = []
    for first in range(0, minutes, 10):
        rows = [
            (dice.choice(AREAS), dice.randrange(200, 900) / 100, START + dice.uniform(first, first + 10) * MINUTE)
            for _ in range(10 * a_minute)
        ]
        loans += rows
        areas, rates, times = (list(column) for column in zip(*rows, strict=True))
        table = pa.table({"area": areas, "rate": rates, "at": pa.array(times, pa.timestamp("us", tz="UTC"))})
        pq.write_table(table, folder / f"{first:03d}.parquet")
    return loans


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "loans")
        source.mkdir()
        loans = write_loans(source)

        job = hg.Job("loans", event_time="at", slack="10 minutes")
        sink = hg.sinks.memory()
        job.source(hg.sources.files(spark, str(source), max_files_per_trigger=1)).key_by("area").window(
            *(f"{length} minutes" for length in LENGTHS), every="10 minutes"
        ).aggregate(rate=hg.mean("rate"), loans=hg.count()).write_to(sink)
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=2, trigger="available now")
        query.await_termination()

        results = sink.to_arrow().to_pylist()
        for row in results:
            inside = [
                rate
                for area, rate, at in loans
                if area == row["area"] and row["window_start"] <= at < row["window_end"]
            ]
            assert row["loans"] == len(inside), row
            assert abs(row["rate"] - sum(inside) / len(inside)) < 1e-9, row
        ends = sorted({row["window_end"] for row in results})
        print(f"{len(loans)} loans, {len(results)} results, {len(ends)} times at which windows ended")
        for length in LENGTHS:
            of_length = [row for row in results if row["window_end"] - row["window_start"] == length * MINUTE]
            last = max(of_length, key=lambda row: (row["window_end"], row["area"]))
            print(f"{length} minutes: {len(of_length)} results, the last {last['area']} {last['rate']:.2f} %")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("windows").getOrCreate())
