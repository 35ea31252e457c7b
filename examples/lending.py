r"""A lending company: interest against income and approvals per area, and both for all areas, over overlapping windows.

    op1 rate of a loan --> op2 per area, rate against income --> op4 all areas
                      \--> op3 per area, approvals           --> op5 all areas

The job of enorm, figures 1 to 4: every operator has windows of 10 minutes, 30 minutes, 1 hour, 6 hours and 24 hours.
``fusion="auto"`` makes one component of what can be partitioned by area. The windows of op2 and op3 are made in two
halves, a compute and a consolidate: in the morning they are taken apart, so that key groups of the first half move
without their state, and in the afternoon they are put together again. No window is lost or doubled by it.

op4 and op5 are for all areas: ``key_by()`` without columns, one key in one place.

Run it: python examples/lending.py
"""

import datetime as dt
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg

START = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)
HOURS = 28
AREAS = tuple(f"area {number}" for number in range(12))
LENGTHS = ("10 minutes", "30 minutes", "1 hour", "6 hours", "24 hours")
SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("area", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("approval", pa.bool_()),
        ("amount", pa.float64()),
        ("back", pa.float64()),
        ("years", pa.float64()),
        ("income", pa.float64()),
    ]
)


def write_requests(folder: Path, first: int, dice: random.Random) -> list[dict[str, Any]]:
    """A file with two hours of requests."""
    rows = []
    for _ in range(150):
        amount, years = dice.randrange(1, 40) * 500.0, dice.choice([1.0, 2.0, 3.0, 5.0])
        rows.append(
            {
                "user": dice.randrange(10_000),
                "area": dice.choice(AREAS),
                "at": START + dice.uniform(first, first + 2) * HOUR,
                "approval": dice.random() < 0.7,
                "amount": amount,
                "back": amount * (1 + dice.uniform(0.02, 0.09) * years),
                "years": years,
                "income": dice.randrange(20, 120) * 1_000.0,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{first:03d}.parquet")
    return rows


def op1(rows: pa.Table) -> pa.Table:
    """The interest rate of each request."""
    gain = pc.subtract(pc.divide(rows["back"], rows["amount"]), 1.0)
    return pa.table(
        {
            "area": rows["area"],
            "at": rows["at"],
            "rate": pc.divide(gain, rows["years"]),
            "income": rows["income"],
            "approved": pc.cast(rows["approval"], pa.int64()),
        }
    )


def at_start(rows: pa.Table) -> pa.Table:
    """Windows of ten minutes as rows at their start."""
    rows = rows.filter(pc.equal(pc.subtract(rows["window_end"], rows["window_start"]), pa.scalar(10 * MINUTE)))
    return rows.append_column("at", rows["window_start"])


def lending(job: hg.Job, requests: hg.Stream) -> dict[str, Any]:
    """Puts the job together; the sinks by operator."""
    sinks = {name: hg.sinks.memory() for name in ("op2", "op3", "op4", "op5")}
    loans = requests.map(op1, keeps=["area"], name="op1")
    by_area = loans.key_by("area").window(*LENGTHS)
    op2 = by_area.aggregate(rates=hg.sum("rate"), incomes=hg.sum("income"), n=hg.count(), split="auto", name="op2")
    op3 = by_area.aggregate(approved=hg.sum("approved"), n=hg.count(), split="auto", name="op3")
    op4 = op2.map(at_start).key_by().window(*LENGTHS)
    op5 = op3.map(at_start).key_by().window(*LENGTHS)
    op2.write_to(sinks["op2"])
    op3.write_to(sinks["op3"])
    op4.aggregate(rates=hg.sum("rates"), n=hg.sum("n"), name="op4").write_to(sinks["op4"])
    op5.aggregate(approved=hg.sum("approved"), n=hg.sum("n"), name="op5").write_to(sinks["op5"])
    return sinks


def check(rows: list[dict[str, Any]], results: list[dict[str, Any]], area: str | None) -> None:
    """Each result against the requests in its window."""
    for row in results:
        inside = [
            one
            for one in rows
            if row["window_start"] <= one["at"] < row["window_end"] and (area is None or one["area"] == row[area])
        ]
        assert row["n"] == len(inside), row
        if "approved" in row:
            assert row["approved"] == sum(one["approval"] for one in inside), row
        else:
            wanted = sum((one["back"] / one["amount"] - 1) / one["years"] for one in inside)
            assert abs(row["rates"] - wanted) < 1e-9 * max(1.0, wanted), row


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "requests")
        source.mkdir()
        dice = random.Random(7)
        rows = write_requests(source, 0, dice)
        job = hg.Job("lending", event_time="at", slack="10 minutes", fusion="auto")
        sinks = lending(job, job.source(hg.sources.files(spark, str(source))))
        print(job.explain())
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=2, migration="instant")
        for first in range(2, HOURS, 2):
            query.process_all_available()
            if first == 8:
                query.split("op2")
                query.split("op3")
            if first == 12:
                groups = [group for group in range(1024) if query.assignment().groups[group] == 0][:256]
                query.move(groups=groups, to=1, operator="op2.compute")
                print(query.explain())
            if first == 16:
                query.combine("op2")
                query.combine("op3")
            rows += write_requests(source, first, dice)
        query.process_all_available()
        query.stop()

        for name, area in (("op2", "area"), ("op3", "area"), ("op4", None), ("op5", None)):
            results = sinks[name].to_arrow().to_pylist()
            check(rows, results, area)
            print(f"{name}: {len(results)} windows, all right")
        for entry in query.journal():
            if entry.kind == "fused" or (entry.kind == "migrated" and entry.details["way"] == "instant"):
                print(entry.describe())


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("lending").getOrCreate())
