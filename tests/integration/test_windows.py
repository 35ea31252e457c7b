"""Windows through the public API on a local Spark: all kinds in one job, moves, a restart in between, and results
equal to a batch computation of the same rows."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.windows import CountWindows, Sessions

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Feed = Callable[..., Path]
Row = tuple[str, int, int]
"""Key, value, second."""

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
WAIT_SECONDS = 300.0
SLACK = 20
GAP = 15
KEYS = [f"key {number}" for number in range(9)]


def _drawn(files: int) -> list[list[Row]]:
    """Rows of a minute per file, out of order by less than the slack; keys come in bursts, so that they have pauses."""
    chance = random.Random(3)
    made = []
    for number in range(files):
        busy = chance.sample(KEYS, 5)
        rows = [(chance.choice(busy), chance.randrange(100), 60 * number + second) for second in range(0, 60, 1)]
        rows.sort(key=lambda row: row[2] + chance.uniform(0, SLACK - 2))
        made.append(rows)
    return made


def _table(rows: Iterable[Row]) -> pa.Table:
    keys, values, seconds = zip(*rows, strict=True)
    at = pa.array([NOON + second * SECOND for second in seconds], pa.timestamp("us", tz="UTC"))
    return pa.table({"k": pa.array(keys), "v": pa.array(values, pa.int64()), "at": at})


def _hops(rows: list[Row], length: int, every: int) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, value, at in rows:
        start = at // every * every
        while start + length > at:
            found[key, start].append(value)
            start -= every
    return [(key, start, start + length, len(own), sum(own)) for (key, start), own in found.items()]


def _sessions(rows: list[Row]) -> list[tuple[Any, ...]]:
    found: dict[str, list[list[Row]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[2]):
        sessions = found[row[0]]
        if sessions and row[2] <= sessions[-1][-1][2] + GAP:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    every = [session for sessions in found.values() for session in sessions]
    return [(one[0][0], one[0][2], one[-1][2] + GAP, len(one), sum(row[1] for row in one)) for one in every]


def _counts(rows: list[Row], size: int, every: int) -> list[tuple[Any, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, value, _ in rows:
        found[key].append(value)
    return [
        (key, start, start + size, size, sum(own[start : start + size]))
        for key, own in found.items()
        for start in range(0, len(own) - size + 1, every)
    ]


def _plain(sink: Any) -> list[tuple[Any, ...]]:
    """Results with times as seconds after noon."""
    return sorted(
        tuple((value - NOON) // SECOND if isinstance(value, dt.datetime) else value for value in row.values())
        for row in sink.to_pylist()
    )


def test_windows_of_every_kind_equal_a_batch_computation(spark: Any, feed: Feed, tmp_path: Path) -> None:
    #   files    0   1   2 | 3   4   5   end   end        a minute of rows each, and two rows an hour later
    #   moves      ^   ^   |   ^   ^                      key groups of windows, keys of sessions and counts, slots
    #                      restart
    drawn = _drawn(6)
    # The first hour carries the watermark along, the second is what the watermark of the last batch comes from.
    ends: list[Row] = [("end", 0, 3600), ("end", 0, 7200)]
    names = ("tumbling", "hopping", "several", "session", "same session", "count", "same count")
    sinks = {name: hg.sinks.memory() for name in names}

    def start() -> hg.Query:
        frame = spark.readStream.schema("k string, v long, at timestamp").option("maxFilesPerTrigger", 1)
        job = hg.Job("windows", event_time="at", slack=SLACK, groups=32)
        keyed = job.source(frame.parquet(str(folder)), "rows").key_by("k")
        windows = (
            keyed.window("30 seconds"),
            keyed.window("60 seconds", every="10 seconds"),
            keyed.window("20 seconds", "1 minute", every="20 seconds"),
            keyed.session(GAP),
            keyed.window(Sessions(GAP)),
            keyed.count_window(10, every=4),
            keyed.window(CountWindows(10, 4)),
        )
        for name, window in zip(names, windows, strict=True):
            window.aggregate(n=hg.count(), total=hg.sum("v"), name=name).write_to(sinks[name], name=name)
        return job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None)

    def go_on(query: hg.Query, *tables: Any) -> None:
        for table, change in tables:
            change()
            feed(table)
            query.process_all_available()
        query.stop()

    def spread_out() -> None:
        query.set_slots(3)
        query.move(groups=range(0, 32, 3), to=0, operator="hopping")

    folder = feed()
    query = start()
    with pytest.raises(hg.JobError):
        query.move(["key 1"], to=1, operator="hopping")
    go_on(
        query,
        (_table(drawn[0]), lambda: None),
        (_table(drawn[1]), lambda: query.move(KEYS[:4], to=1, operator="session")),
        (_table(drawn[2]), spread_out),
    )
    assert query.exception is None
    again = start()
    go_on(
        again,
        (_table(drawn[3]), lambda: again.move(KEYS[2:7], to=0, operator="count")),
        (_table(drawn[4]), lambda: again.move(KEYS[2:7], to=0, operator="session")),
        (_table(drawn[5]), lambda: again.set_slots(2)),
        (_table(ends[:1]), lambda: None),
        (_table(ends[1:]), lambda: None),
    )
    assert again.exception is None
    assert all(progress["late_rows"] == 0 for progress in [*query.recent_progress, *again.recent_progress])
    rows = [row for file in drawn for row in file]
    assert _plain(sinks["tumbling"]) == sorted(_hops(rows, 30, 30))
    assert _plain(sinks["hopping"]) == sorted(_hops(rows, 60, 10))
    assert _plain(sinks["several"]) == sorted(_hops(rows, 20, 20) + _hops(rows, 60, 20))
    assert _plain(sinks["session"]) == _plain(sinks["same session"]) == sorted(_sessions(rows))
    assert _plain(sinks["count"]) == _plain(sinks["same count"]) == sorted(_counts(rows, 10, 4))
    assert len(_plain(sinks["session"])) > 20
    assert len(_plain(sinks["count"])) > 50


def test_totals_of_all_rows(spark: Any, feed: Feed, tmp_path: Path) -> None:
    """``key_by()`` without columns: one key, which moves by its group and by pinning, through a restart."""
    drawn = [_table(rows) for rows in _drawn(4)]
    names = ("windows", "halves", "running")
    sinks = {name: hg.sinks.memory() for name in names}

    def start() -> hg.Query:
        frame = spark.readStream.schema("k string, v long, at timestamp").option("maxFilesPerTrigger", 1)
        job = hg.Job("totals", event_time="at", slack=SLACK, groups=32)
        rows = job.source(frame.parquet(str(folder)), "rows").key_by()
        windows = rows.window("60 seconds", every="10 seconds")
        windows.aggregate(n=hg.count(), total=hg.sum("v"), name="windows").write_to(sinks["windows"])
        windows.aggregate(n=hg.count(), total=hg.sum("v"), split=True, name="halves").write_to(sinks["halves"])
        rows.aggregate(n=hg.count(), name="running").write_to(sinks["running"])
        return job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None)

    folder = feed()
    query = start()
    with pytest.raises(hg.JobError) as raised:
        query.move(["key 1"], to=1, operator="running")
    assert str(raised.value) == "a key of 'running' must be (), the only one of key_by(), got 'key 1'"
    for number, table in enumerate(drawn):
        if number == 2:
            query.stop()
            query = start()
        query.move(groups=range(32), to=number % 2, operator="windows")
        query.move([()], to=number % 2, operator="running")
        feed(table)
        query.process_all_available()
    feed(_table([("end", 0, 3600)]))
    query.process_all_available()
    feed(_table([("end", 0, 7200)]))
    query.process_all_available()
    query.stop()
    assert query.exception is None
    assert "1 key(s) moved to slot 1 by hand" in " ".join(entry.describe() for entry in query.journal())
    rows: list[Row] = [("all", value, at) for file in _drawn(4) for _, value, at in file]
    wanted = sorted(row[1:] for row in _hops(rows, 60, 10))
    assert _plain(sinks["windows"]) == _plain(sinks["halves"]) == wanted
    counts = sinks["running"].to_arrow()["n"].to_pylist()
    assert sorted(counts) == [60, 120, 180, 240, 241, 242]
