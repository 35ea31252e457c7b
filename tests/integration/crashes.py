"""A job to be killed: run as a program on a folder until it ends, however often that takes.

    python crashes.py FOLDER        reads FOLDER/in, writes FOLDER/out and the checkpoint FOLDER/ck

Keys move and slots come and go in two batches of three; in the third, slots merge what that left them. What the job
gives depends only on which rows come in which batch; ``model`` says it in plain Python, and ``outcome`` reads it from
the folder.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg
from headgate.state import Checkpoint, Files, open_run, scan

KEYS = 40
ROWS = 60
STEP = 1_000
"""Microseconds of event time per input file."""
SLACK = 500
GAP = 1_200
"""A session of a key ends when it has had no row for so long."""
NEXT_SLOTS = {2: 4, 4: 3, 3: 2}
"""The number of slots of the next batch, by that of the last."""
GROUPS = 64
MOVED = list(range(0, KEYS, 4))
"""Keys that go to another slot in every batch but the calm ones."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TOTALS, SESSIONS, PLAIN = "totals", "sessions", "plain"

Row = dict[str, Any]


def make_input(folder: Path, files: int, seed: int = 0) -> list[pa.Table]:
    """Small files with a few hot keys; some rows are late."""
    chance = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    tables = []
    for number in range(files):
        keys = [min(int(chance.expovariate(0.1)), KEYS - 1) for _ in range(ROWS)]
        at = [number * STEP + chance.randrange(-2 * STEP, STEP) for _ in range(ROWS)]
        values = [chance.randrange(1000) for _ in range(ROWS)]
        table = pa.table({"k": pa.array(keys), "v": pa.array(values), "at": pa.array(at)})
        path = folder / "in" / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in the order of their times
        tables.append(table)
    return tables


def sessions(key: int, rows: Any, state: Row, context: hg.Context) -> list[Row]:
    """Running figures of a session, a row for each row; and one when it ends."""
    made = []
    if context.fired == "event":
        made.append({"k": key, "what": "ended", "n": state["n"], "total": state["total"]})
        state["n"] = state["total"] = 0
    for value in rows["v"]:
        state["n"] += 1
        state["total"] += value
        made.append({"k": key, "what": "row", "n": state["n"], "total": state["total"]})
    if len(rows):
        context.set_timer(EPOCH + dt.timedelta(microseconds=max(rows["at"]) + GAP))
    else:
        context.forget()
    return made


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left: per output the sorted rows with the batch they came in, per operator the sorted state."""

    outputs: dict[str, list[tuple[Any, ...]]]
    state: dict[str, list[tuple[Any, ...]]]


def model(batches: Sequence[Sequence[pa.Table]]) -> Outcome:
    """The job in plain Python, one process, no files."""
    totals: dict[int, tuple[int, int]] = {}
    open_sessions: dict[int, tuple[int, int, int]] = {}
    made: dict[str, list[tuple[Any, ...]]] = {TOTALS: [], SESSIONS: [], PLAIN: []}
    greatest: int | None = None
    for number, tables in enumerate(batches):
        rows = [row for table in tables for row in table.to_pylist()]
        made[PLAIN] += [(number, row["k"], row["v"], row["at"]) for row in rows]
        watermark = None if greatest is None else greatest - SLACK
        greatest = max([row["at"] for row in rows] + ([] if greatest is None else [greatest]))
        by_key: dict[int, list[Row]] = {}
        for row in rows:
            if watermark is None or row["at"] >= watermark:
                by_key.setdefault(row["k"], []).append(row)
        for key, own in by_key.items():
            n, total = totals.get(key, (0, 0))
            totals[key] = n + len(own), total + sum(row["v"] for row in own)
            made[TOTALS].append((number, key, *totals[key]))
        ended = {key for key, (_, _, end) in open_sessions.items() if watermark is not None and end <= watermark}
        for key in ended:
            n, total, _ = open_sessions.pop(key)
            made[SESSIONS].append((number, key, "ended", n, total))
        for key, own in by_key.items():
            n, total, _ = open_sessions.get(key, (0, 0, 0))
            for row in own:
                n, total = n + 1, total + row["v"]
                made[SESSIONS].append((number, key, "row", n, total))
            open_sessions[key] = n, total, max(row["at"] for row in own) + GAP
    state: dict[str, list[tuple[Any, ...]]] = {
        TOTALS: sorted((key, *values) for key, values in totals.items()),
        SESSIONS: sorted((key, *values) for key, values in open_sessions.items()),
    }
    return Outcome({name: sorted(rows) for name, rows in made.items()}, state)


def boundaries(folder: Path, tables: Sequence[pa.Table]) -> list[list[pa.Table]]:
    """Which files each batch had, as Spark's own checkpoint says.

    That is one file each, save where Spark was killed after it had taken note of a file and before it had written down
    that a batch would have it: then it puts the next file with it.
    """
    offsets = folder / "ck" / "spark" / "offsets"
    ends = [json.loads(path.read_text().splitlines()[2])["logOffset"] for path in numbered(offsets)]
    starts = [-1, *ends[:-1]]
    return [list(tables[start + 1 : end + 1]) for start, end in zip(starts, ends, strict=True)]


def numbered(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def outcome(folder: Path) -> Outcome:
    """What a job left, read from its sinks and from its last manifest."""
    outputs = {}
    for name in (TOTALS, SESSIONS, PLAIN):
        rows: list[tuple[Any, ...]] = []
        for path in (folder / "out" / name).glob("*.parquet"):
            batch = int(path.name.split("-")[1])
            rows += [(batch, *row.values()) for row in pq.read_table(path).to_pylist()]
        outputs[name] = sorted(rows)
    store = Checkpoint(Files.at(folder / "ck" / "headgate"))
    assert [finding for finding in store.verify() if finding.problem] == []
    manifest = store.latest()
    assert manifest is not None
    state: dict[str, list[tuple[Any, ...]]] = {}
    for number, name in enumerate((TOTALS, SESSIONS)):
        rows = []
        for (operator, _), refs in manifest.layout.owners.items():
            if operator == number:
                for _, table in scan(store.files, refs, open_run(store.files, refs[0].run).schema):
                    plain = table.select([*table.column_names[5:], *table.column_names[2:4]])
                    rows += [tuple(row.values()) for row in plain.to_pylist()]
        # Neither operator sets a timer in processing time, and only sessions set one in event time.
        assert {row[-1] for row in rows} <= {None}
        state[name] = sorted(row[: len(row) - (1 if name == SESSIONS else 2)] for row in rows)
        assert int(manifest.counts[number].rows.sum()) == len(rows), "the manifest counts the rows there are"
    return Outcome(outputs, state)


def is_calm(batch: int) -> bool:
    """Whether nothing moves in a batch."""
    return batch % 3 == 0


def steer(query: hg.Query) -> None:
    """Ask for what the next batch is to change: keys and groups go on to the next slot, and slots come and go."""
    last = query._driver.last
    if is_calm(0 if last is None else last.batch + 1):
        return
    now = query.assignment()
    to = (int(now.route(hg.key_hash(pa.array(MOVED[:1])), 1)[0]) + 1) % now.slots
    for operator in (TOTALS, SESSIONS):
        query.move(MOVED, to=to, operator=operator)
    query.move(groups=range(to, GROUPS, 7), to=to, operator=SESSIONS)
    query.set_slots(NEXT_SLOTS[now.slots])


def main(folder: Path, migration: Any) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.schema("k long, v long, at long").option("maxFilesPerTrigger", 1)
    job = hg.Job("crashes", event_time="at", slack=f"{SLACK} microseconds", groups=GROUPS)
    stream = job.source(rows.parquet(str(folder / "in")))
    totals = stream.key_by("k").aggregate(n=hg.count(), total=hg.sum("v"), name=TOTALS)
    ended = stream.key_by("k").process(
        sessions, state={"n": 0, "total": 0}, output="k long, what string, n long, total long", name=SESSIONS
    )
    for name, results in ((TOTALS, totals), (SESSIONS, ended), (PLAIN, stream)):
        results.write_to(hg.sinks.parquet(str(folder / "out" / name)), name=name)
    query = job.start(
        spark, checkpoint=str(folder / "ck"), trigger="available now", migration=migration, keep_versions=3,
        slots=None if (folder / "ck" / "headgate" / "manifests").exists() else 2,
    )  # fmt: skip
    steer(query)
    query.add_listener(lambda progress: steer(query))
    print("started", flush=True)
    query.await_termination()
    print("ended", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "manifest")
