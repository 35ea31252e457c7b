"""Join the ads that users were shown with their clicks: which ads were clicked within ten minutes, and which were not.

Two streams, each up to four minutes out of order. A left join gives an ad with every click that follows it in time, and
an ad without one once the watermark says that no click can come any more.

    ads of a user       A---10 minutes--->|        B---10 minutes--->|
    clicks                     x     x                                   y
    results               A x, A x           ^ watermark: B, without a click; y came too late for it

Run it: python examples/joined_streams.py
"""

import os
import random
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg

REACH = timedelta(minutes=10)
SLACK = timedelta(minutes=5)
START = datetime(2026, 1, 1, tzinfo=UTC)
FILES = 4

Event = tuple[str, datetime, int]
"""User, time, and the number of the ad or of the click."""


def make_events(seed: int, count: int, hours: int = 4, users: int = 25) -> list[Event]:
    """Events in the order in which they arrive: up to four minutes late."""
    dice = random.Random(seed)
    arrived = []
    for number in range(count):
        at = START + timedelta(minutes=dice.uniform(0, 60 * hours))
        arrived.append((at + timedelta(minutes=dice.uniform(0, 4)), f"user-{dice.randrange(users)}", at, number))
    return [(user, at, number) for _, user, at, number in sorted(arrived)]


def write_events(events: list[Event], folder: Path, user: str, number: str) -> None:
    """The events as files. Spark takes files in the order of their times, so these are set."""
    folder.mkdir()
    size = -(-len(events) // FILES)
    for file in range(FILES):
        users, times, numbers = zip(*events[file * size : (file + 1) * size], strict=True)
        columns = {user: users, "at": pa.array(times, pa.timestamp("us", "UTC")), number: numbers}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
        os.utime(folder / f"{file}.parquet", (1_700_000_000 + file,) * 2)


def expected(ads: list[Event], clicks: list[Event], watermark: datetime) -> set[tuple[int, int | None]]:
    """Ads and their clicks, by looking at every pair; ads that may still be clicked are left out."""
    found: set[tuple[int, int | None]] = set()
    for user, at, ad in ads:
        followed = {(ad, click) for who, when, click in clicks if who == user and at <= when <= at + REACH}
        found |= followed
        if not followed and at + REACH < watermark:
            found.add((ad, None))
    return found


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ads, clicks = make_events(1, 900), make_events(2, 400)
        write_events(ads, Path(folder, "ads"), "user", "ad")
        write_events(clicks, Path(folder, "clicks"), "clicker", "click")

        job = hg.Job("clicks", event_time="at", slack=SLACK)
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        shown = job.source(reader.schema("user string, at timestamp, ad long").parquet(f"{folder}/ads"), "ads")
        clicked = job.source(
            reader.schema("clicker string, at timestamp, click long").parquet(f"{folder}/clicks"), "clicks"
        )
        results = hg.sinks.memory()
        # The columns: user, at, ad, at_right (the time of the click), click.
        shown.key_by("user").join(clicked.key_by("clicker"), after=REACH, how="left").write_to(results)
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=3, trigger="available now")
        query.await_termination()

        progress = query.recent_progress
        assert sum(one["late_rows"] for one in progress) == 0
        watermark = datetime.fromisoformat(progress[-1]["watermark"])
        found = Counter((row["ad"], row["click"]) for row in results.to_pylist())
        wanted = expected(ads, clicks, watermark)
        assert set(found) == wanted, set(found) ^ wanted
        assert max(found.values()) == 1, "a pair was emitted twice"

        pairs = [click for _, click in found if click is not None]
        print(f"{len(ads)} ads and {len(clicks)} clicks in {len(progress)} batches: {len(pairs)} pairs")
        print(f"{len(found) - len(pairs)} ads without a click so far, at watermark {watermark:%H:%M}")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("joined streams").getOrCreate())
