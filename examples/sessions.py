"""Cut the clicks of every user into sessions: a session ends after 30 minutes without a click.

Clicks arrive up to four minutes out of order. The state of a user is a dataclass; a timer in event time wakes the
function when a session is over, whether or not the user ever comes back.

    clicks of a user   x  x x       x                 x x
                       └─────────────┘< 30 minutes >   └──...   still open
                        first session             ^ timer: the watermark is here, so no click can join it any more

Run it: python examples/sessions.py
"""

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg

GAP = timedelta(minutes=30)
START = datetime(2026, 1, 1, tzinfo=UTC)

Click = tuple[str, datetime]
Session = tuple[str, datetime, datetime, int]


@dataclass
class Open:
    """The clicks of a user that are in no finished session yet."""

    clicks: list[datetime] = field(default_factory=list)


def cut(clicks: list[datetime]) -> list[list[datetime]]:
    """Clicks in sessions, the oldest first."""
    found: list[list[datetime]] = []
    for click in sorted(clicks):
        if found and click - found[-1][-1] < GAP:
            found[-1].append(click)
        else:
            found.append([click])
    return found


def on_user(user: str, rows: hg.Rows, state: Open, context: hg.Context) -> Iterator[Session]:
    """Called for a user with clicks in the batch, and for one whose timer is due (who may have none)."""
    sessions = cut(state.clicks + rows["at"])
    while sessions and context.watermark is not None and sessions[0][-1] + GAP <= context.watermark:
        over = sessions.pop(0)
        yield user, over[0], over[-1], len(over)
    if not sessions:
        context.forget()
        return
    state.clicks = [click for session in sessions for click in session]
    context.set_timer(sessions[0][-1] + GAP)


def make_clicks(users: int = 20, hours: int = 6) -> list[Click]:
    """Clicks in the order in which they arrive: up to four minutes late."""
    dice = random.Random(7)
    arrived = []
    for user in range(users):
        at = START + timedelta(minutes=dice.uniform(0, 60))
        while at < START + timedelta(hours=hours):
            arrived.append((at + timedelta(minutes=dice.uniform(0, 4)), f"user-{user}", at))
            at += timedelta(minutes=dice.choice((1, 2, 5, 10, 45)))
    return [(user, at) for _, user, at in sorted(arrived)]


def write_clicks(clicks: list[Click], folder: Path, files: int = 4) -> None:
    """The clicks as files. Spark takes files in the order of their times, so these are set."""
    size = -(-len(clicks) // files)
    for number in range(files):
        users, times = zip(*clicks[number * size : (number + 1) * size], strict=True)
        table = pa.table({"user": users, "at": pa.array(times, pa.timestamp("us", "UTC"))})
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder, "clicks")
        incoming.mkdir()
        clicks = make_clicks()
        write_clicks(clicks, incoming)

        job = hg.Job("sessions", event_time="at", slack="5 minutes")
        source = hg.sources.files(spark, str(incoming), schema="user string, at timestamp", max_files_per_trigger=1)
        results = hg.sinks.memory()
        sessions = (
            job.source(source)
            .key_by("user")
            .process(on_user, state=Open, output="user string, first timestamp, last timestamp, clicks long")
        )
        sessions.write_to(results)
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=3, trigger="available now")
        query.await_termination()

        progress = query.recent_progress
        assert sum(one["late_rows"] for one in progress) == 0
        watermark = datetime.fromisoformat(progress[-1]["watermark"])
        expected, still_open = set(), 0
        for user in {user for user, _ in clicks}:
            for session in cut([at for other, at in clicks if other == user]):
                if session[-1] + GAP <= watermark:
                    expected.add((user, session[0], session[-1], len(session)))
                else:
                    still_open += 1
        found = [tuple(row.values()) for row in results.to_pylist()]
        assert set(found) == expected, set(found) ^ expected
        assert len(found) == len(expected), "a session was emitted twice"

        print(f"{len(clicks)} clicks in {len(progress)} batches: {len(found)} sessions, {still_open} still open")
        print(f"watermark {watermark:%H:%M}, {sum(one['timers_fired'] for one in progress)} timers fired")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("sessions").getOrCreate())
