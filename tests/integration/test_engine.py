"""The public API from end to end, on one local Spark."""

from __future__ import annotations

import datetime as dt
import io
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import headgate as hg
from headgate.routing import Assignment, key_hash
from headgate.state import Checkpoint, Files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Row = dict[str, Any]
Feed = Callable[..., Path]

WAIT_SECONDS = 300.0
"""How long a test waits for something that ends in a second or two; only a fault makes it wait longer."""


def _rows(numbers: Iterable[int], keys: int = 7) -> pa.Table:
    """Rows whose key and value follow from their number."""
    listed = list(numbers)
    return pa.table({"k": pa.array([n % keys for n in listed]), "v": pa.array(listed)})


def _totals(*tables: pa.Table) -> dict[int, tuple[int, int]]:
    """Count and sum by key, in plain Python."""
    made: dict[int, tuple[int, int]] = {}
    for table in tables:
        for row in table.to_pylist():
            count, total = made.get(row["k"], (0, 0))
            made[row["k"]] = count + 1, total + row["v"]
    return made


def _last(rows: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """The last result of every key."""
    return {row["k"]: (row["n"], row["total"]) for row in rows}


def _stream(spark: Any, folder: Path, schema: str = "k long, v long") -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _running(key: int, rows: Any, state: Row) -> Row:
    state["n"] += len(rows)
    state["total"] += sum(rows["v"])
    return {"k": key, "n": state["n"], "total": state["total"]}


def _counting(frame: Any, name: str = "counting") -> tuple[hg.Job, Any]:
    """A job with count and sum by key, and the table that its results go to."""
    job, sink = hg.Job(name), hg.sinks.memory()
    job.source(frame).key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(sink)
    return job, sink


def _per_key(frame: Any, function: Callable[..., Any], state: Any, output: str, **options: Any) -> tuple[hg.Job, Any]:
    job, sink = hg.Job("per key", **options), hg.sinks.memory()
    job.source(frame).key_by("k").process(function, state=state, output=output, name="step").write_to(sink)
    return job, sink


@pytest.fixture(autouse=True)
def _functions_travel() -> None:
    """Spark's workers cannot import this file, so its functions travel by value."""
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def test_a_stream_gives_what_plain_python_gives_and_tells_about_it(spark: Any, feed: Feed, tmp_path: Path) -> None:
    tables = [_rows(range(at, at + 200), 50) for at in (0, 200, 400)]
    folder = feed(*tables)
    job, counts = _counting(_stream(spark, folder))
    functions = hg.sinks.memory("per_key_results")
    stream = job.source(_stream(spark, folder), "again")
    stream.key_by("k").process(_running, state={"n": 0, "total": 0}, output="k long, n long, total long").write_to(
        functions
    )
    told: list[Row] = []
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=3, trigger="available now", listeners=[told.append])
    assert query.await_termination(WAIT_SECONDS)
    assert not query.is_active
    assert query.exception is None
    assert _last(counts.to_pylist()) == _last(functions.to_pylist()) == _totals(*tables)
    assert [progress["batch"] for progress in told] == [0, 1, 2]
    assert told == query.recent_progress
    assert [progress["rows"] for progress in told] == [400] * 3
    last = query.progress()
    assert last is not None
    assert last["inputs"] == {"input0": 200, "again": 200}
    assert last["state_rows"] == 100
    assert (last["slots"], len(last["slot_seconds"]), sum(last["slot_rows"])) == (3, 3, 250)
    assert "component 2: PerKey '_running'" in query.explain()
    assert repr(query) == "<Query 'counting' ended, batch 2>"
    assert spark.table("per_key_results").count() == functions.to_arrow().num_rows


def test_a_static_frame_is_processed_once_and_every_event_timer_fires_at_its_end(spark: Any, tmp_path: Path) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    at = [start + dt.timedelta(minutes=n) for n in range(10)]
    table = pa.table({"k": [n % 2 for n in range(10)], "at": pa.array(at, pa.timestamp("us", tz="UTC"))})

    def session(key: int, rows: Any, state: Row, context: hg.Context) -> Row | None:
        state["n"] += len(rows)
        if context.fired == "event":
            context.forget()
            return {"k": key, "n": state["n"]}
        context.set_timer(max(rows["at"]) + dt.timedelta(hours=1))
        return None

    frame = spark.createDataFrame(table)
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    for again in range(2):
        job, sink = _per_key(frame, session, {"n": 0}, "k long, n long", event_time="at")
        query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2)
        assert query.await_termination(WAIT_SECONDS)
        results = sorted(sink.to_pylist(), key=lambda row: row["k"])
        assert results == [{"k": 0, "n": 5}, {"k": 1, "n": 5}], f"start {again}"
    assert spark.conf.get("spark.sql.adaptive.enabled") == adaptive
    latest = Checkpoint(Files.at(tmp_path / "ck" / "headgate")).latest()
    assert latest is not None
    assert latest.batch == 1
    assert sum(int(counts.rows.sum()) for counts in latest.counts) == 0


def test_several_sources_and_outputs_share_one_batch(spark: Any, feed: Feed, tmp_path: Path) -> None:
    orders = pa.table({"k": [1, 2, 1], "v": [10, 20, 30]})
    visits = pa.table({"who": ["1", "3", "3", "2"], "page": ["a", "b", "a", "a"]})
    left, right = feed(orders), feed(visits, into="visits")

    def as_orders(rows: pa.Table) -> pa.Table:
        return pa.table({"k": pc.cast(rows["who"], pa.int64()), "v": pa.array([0] * rows.num_rows, pa.int64())})

    for name, streaming in (("streams", True), ("static frames", False)):
        job = hg.Job("two sources")
        totals, pages, raw = hg.sinks.memory(), hg.sinks.memory(), hg.sinks.memory()
        if streaming:
            frames = _stream(spark, left), _stream(spark, right, "who string, page string")
        else:
            frames = spark.read.parquet(str(left)), spark.read.parquet(str(right))
        first, second = job.source(frames[0], "orders"), job.source(frames[1], "visits")
        both = first.union(second.map(as_orders))
        both.key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(totals)
        second.key_by("page").aggregate(n=hg.count(), name="pages").write_to(pages)
        first.write_to(raw)
        query = job.start(spark, checkpoint=str(tmp_path / name), slots=2, trigger="available now")
        assert query.await_termination(WAIT_SECONDS)
        assert _last(totals.to_pylist()) == {1: (3, 40), 2: (2, 20), 3: (2, 0)}, name
        assert {row["page"]: row["n"] for row in pages.to_pylist()} == {"a": 3, "b": 1}, name
        assert sorted(raw.to_arrow()["v"].to_pylist()) == [10, 20, 30], name


def test_spark_expressions_and_python_functions_before_the_key(spark: Any, feed: Feed, tmp_path: Path) -> None:
    from pyspark.sql import functions as sf

    def doubled(frame: Any) -> Any:
        return frame.assign(v=frame["v"] * 2)

    def big(rows: pa.Table) -> pa.ChunkedArray:
        return pc.greater(rows["v"], 20)

    job, sink = hg.Job("maps"), hg.sinks.memory()
    rows = job.source(_stream(spark, feed(_rows(range(30)))))
    rows = rows.filter("v % 2 = 0").map(sf.col("k"), (sf.col("v") + 1).alias("v"), sf.lit("x").alias("tag"))
    rows = rows.map(doubled, batch="pandas").filter(big)
    assert rows.columns == ["k", "v", "tag"]
    rows.key_by("k", "tag").aggregate(n=hg.count(), total=hg.sum("v")).write_to(sink)
    job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, trigger="available now").await_termination(WAIT_SECONDS)
    expected = _totals(pa.table({"k": [n % 7 for n in range(10, 30, 2)], "v": [2 * n + 2 for n in range(10, 30, 2)]}))
    assert _last(sink.to_pylist()) == expected
    with pytest.raises(hg.JobError, match="works on rows that are still in Spark"):
        rows.map("v + 1 AS v")


def test_files_read_by_the_tasks(spark: Any, tmp_path: Path) -> None:
    tables = [_rows(range(50)), _rows(range(50, 80))]
    for name in ("parquet", "csv", "json"):
        folder = tmp_path / name
        folder.mkdir()
        for number, table in enumerate(tables):
            path = folder / f"{number}.{name}"
            if name == "parquet":
                pq.write_table(table, path)
            elif name == "csv":
                pyarrow.csv.write_csv(table, path)
            else:
                path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        source = hg.sources.files(spark, str(folder), format=name, pattern=f"*.{name}", max_files_per_trigger=1)
        job, sink = _counting(source, name)
        query = job.start(spark, checkpoint=str(tmp_path / f"{name}-ck"), slots=2, trigger="available now")
        assert query.await_termination(WAIT_SECONDS)
        assert _last(sink.to_pylist()) == _totals(*tables), name
        assert [progress["rows"] for progress in query.recent_progress] in ([50, 30], [30, 50]), name
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "0.json").write_text('{"k": 1, "v": 2}\n{"k": "many"}\n')
    job, _ = _counting(hg.sources.files(spark, str(bad), format="json", schema="k long, v long", streaming=False))
    with pytest.raises(hg.QueryError, match=r"SourceError: .*/bad/0\.json cannot be read as json"):
        job.start(spark, checkpoint=str(tmp_path / "bad-ck"), slots=2).await_termination(WAIT_SECONDS)


def test_every_sink_gets_every_batch(spark: Any, feed: Feed, tmp_path: Path) -> None:
    tables = [_rows(range(20)), _rows(range(20, 30))]
    printed = io.StringIO()
    console = hg.sinks.ConsoleSink(rows=3, terminal=Console(file=printed, width=80))
    seen: dict[int, int] = {}

    def save(frame: Any, batch: int) -> None:
        seen[batch] = frame.count()
        frame.write.mode("overwrite").json(str(tmp_path / "json" / str(batch)))

    job, memory = _counting(_stream(spark, feed(*tables)))
    job_stream = job.source(_stream(spark, tmp_path / "in"), "plain")
    job_stream.write_to(hg.sinks.parquet(str(tmp_path / "rows"))).write_to(console).write_to(save)
    job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, trigger="available now").await_termination(WAIT_SECONDS)
    written = pq.read_table(tmp_path / "rows")
    assert sorted(written["v"].to_pylist()) == list(range(30))
    assert seen == {0: 20, 1: 10}
    assert spark.read.json(str(tmp_path / "json" / "1")).count() == 10
    assert _last(memory.to_pylist()) == _totals(*tables)
    assert "batch 0, output1: 20 rows" in printed.getvalue()
    assert "only the first 3 rows are shown" in printed.getvalue()


def test_a_sink_that_fails_gets_the_same_batch_again(spark: Any, feed: Feed, tmp_path: Path) -> None:
    broken = [True]
    got: list[tuple[int, list[int]]] = []

    def save(frame: Any, batch: int) -> None:
        if batch == 1 and broken:
            raise OSError("the database is away")
        got.append((batch, sorted(row["v"] for row in frame.collect())))

    def start() -> hg.Query:
        job = hg.Job("failing sink")
        job.source(_stream(spark, folder)).write_to(save)
        return job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, trigger="available now")

    folder = feed(_rows(range(3)), _rows(range(3, 5)), _rows(range(5, 6)))
    with pytest.raises(hg.SinkError, match=r"'output0' failed for batch 1 \(OSError: the database is away"):
        start().await_termination(WAIT_SECONDS)
    broken.clear()
    assert start().await_termination(WAIT_SECONDS)
    assert got == [(0, [0, 1, 2]), (1, [3, 4]), (2, [5])]


def test_slots_moves_and_planner_change_while_the_query_runs(spark: Any, feed: Feed, tmp_path: Path) -> None:
    tables = [_rows(range(at, at + 100), 40) for at in range(0, 600, 100)]
    folder = feed(tables[0])
    job, sink = _per_key(
        _stream(spark, folder), _running, {"n": 0, "total": 0}, "k long, n long, total long", groups=64
    )
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None)
    changes: list[Callable[[], None]] = [
        lambda: query.set_slots(5),
        lambda: query.move([3, 4], to=4),
        lambda: query.move(groups=[0, 1, 2], to=0),
        lambda: query.set_balance("llfd"),
        lambda: query.set_slots(1),
    ]
    slots = []
    for table, change in zip(tables[1:], changes, strict=True):
        query.process_all_available()
        change()
        feed(table)
        query.process_all_available()
        slots.append(query.assignment().slots)
    assert slots == [5, 5, 5, 5, 1]
    with pytest.raises(hg.AssignmentError, match="slots are numbered 0 to 0"):
        query.move([3], to=1)
    query.stop()
    assert not query.is_active
    with pytest.raises(hg.QueryError, match="has ended, so set_slots is not possible"):
        query.set_slots(2)
    assert _last(sink.to_pylist()) == _totals(*tables)
    entries = query.journal()
    assert [entry.kind for entry in entries if entry.kind in ("slots", "hand", "balance")] == [
        "slots", "hand", "hand", "balance", "slots",
    ]  # fmt: skip
    assert entries[0].describe().startswith("batch 1: slots: 2 slots become 5: ")
    by_hand = [entry for entry in entries if entry.kind == "hand"]
    assert by_hand[0].details == {"key": [3, 4]}
    assert by_hand[1].details == {"key group": [0, 1, 2]}
    # The journal outlives the query: anybody can read it from the checkpoint.
    kept = Checkpoint(Files.at(tmp_path / "ck" / "headgate")).journal()
    assert [hg.Entry.from_json(entry) for entry in kept] == entries


def test_a_function_that_raises_is_named_and_its_batch_runs_again_once_it_is_mended(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    tables = [_rows(range(21)), _rows(range(21, 42)), _rows(range(42, 63))]

    def fragile(key: int, rows: Any, state: Row) -> Row:
        if 31 in rows["v"]:
            raise ValueError("31 is not for me")
        return _running(key, rows, state)

    def start(function: Callable[..., Any]) -> tuple[hg.Query, Any]:
        job, sink = _per_key(_stream(spark, folder), function, {"n": 0, "total": 0}, "k long, n long, total long")
        return job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None, trigger="available now"), sink

    folder = feed(*tables)
    query, sink = start(fragile)
    slot = int(query.assignment().route(hg.key_hash(pa.array([3])), 0)[0])
    with pytest.raises(hg.QueryError) as failure:
        query.await_termination(WAIT_SECONDS)
    assert str(failure.value) == (
        "query 'per key' failed in batch 1: UserFunctionError: the function of operator 'step' raised ValueError: 31 "
        f"is not for me for key 3 on slot {slot} (its first row is {{'k': 3, 'v': 24}}): mend the function and start "
        "the job again, it goes on from its last commit; what was committed is safe: start the job again with the "
        "same checkpoint to go on from there"
    )
    assert query.exception is failure.value
    assert _last(sink.to_pylist()) == _totals(tables[0])
    query, sink = start(_running)
    query.await_termination(WAIT_SECONDS)
    assert [progress["batch"] for progress in query.recent_progress] == [1, 2]
    assert _last(sink.to_pylist()) == _totals(*tables)


def test_a_checkpoint_is_for_one_query_of_one_job(spark: Any, feed: Feed, tmp_path: Path) -> None:
    def started(state: Any, name: str = "step", checkpoint: str = "ck") -> hg.Query:
        job = hg.Job("mine")
        rows = job.source(_stream(spark, folder)).key_by("k")
        rows.process(lambda key, rows, state: None, state=state, output="k long", name=name).write_to(hg.sinks.memory())
        return job.start(spark, checkpoint=str(tmp_path / checkpoint), slots=2)

    folder = feed(_rows(range(3)))
    query = started({"n": 0})
    try:
        query.process_all_available()
        with pytest.raises(hg.CheckpointError, match=r"is in use by process \d+ on host .* \(it is running\)"):
            started({"n": 0})
    finally:
        query.stop()
    refused = {
        "another type of state": ({"n": 0.0}, "step", r"operators\[0\].state\[0\]: the checkpoint has 'n int64'"),
        "one more column": ({"n": 0, "m": 0}, "step", r"this job has \['n int64', 'm int64'\]"),
        "another operator": (
            {"n": 0},
            "other",
            r"operators\[0\].name: the checkpoint has 'step', this job has 'other'",
        ),
    }
    for what, (state, name, text) in refused.items():
        with pytest.raises(hg.CheckpointError, match=text):
            started(state, name)
        assert not Files.at(tmp_path / "ck" / "headgate").exists("owner.json"), what
    started({"n": 0}).stop()


def test_a_listener_may_stop_the_query(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(*(_rows(range(at, at + 100), 40) for at in range(0, 500, 100)))

    def start(listener: Callable[[dict[str, Any]], None]) -> tuple[hg.Query, Any]:
        job, sink = _per_key(
            _stream(spark, folder), _running, {"n": 0, "total": 0}, "k long, n long, total long", groups=64
        )
        query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None, listeners=[listener])
        running.append(query)
        started.set()
        return query, sink

    def enough(progress: dict[str, Any]) -> None:
        started.wait(WAIT_SECONDS)
        if progress["batch"] == 1:
            running[0].stop()

    running: list[hg.Query] = []
    started = threading.Event()
    query, first = start(enough)
    assert query.await_termination(WAIT_SECONDS)
    assert query.exception is None
    assert query.progress()["batch"] == 1, "the batch that was told of is the last"  # type: ignore[index]
    query, second = start(lambda progress: None)
    query.process_all_available()
    query.stop()
    tables = [_rows(range(at, at + 100), 40) for at in range(0, 500, 100)]
    assert _last([*first.to_pylist(), *second.to_pylist()]) == _totals(*tables)


def test_stop_and_start_again_with_other_numbers_of_slots(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(_rows(range(50), 20))
    tables = [_rows(range(50), 20)]
    results: list[Row] = []
    for slots, expected in ((2, 2), (4, 4), (None, 4), (1, 1)):
        job, sink = _counting(_stream(spark, folder))
        query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=slots, balance=None)
        query.process_all_available()
        query.stop()
        assert query.assignment().slots == expected
        query.stop()  # stopping twice does no harm
        results += sink.to_pylist()
        assert _last(results) == _totals(*tables)
        tables.append(_rows(range(50 * len(tables), 50 * len(tables) + 50), 20))
        feed(tables[-1])


def test_a_number_of_slots_given_to_a_restart_holds_although_the_batch_was_planned_before(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    def refuse(key: int, rows: Any, state: Row) -> Row:
        raise ValueError("not yet")

    folder = feed(_rows(range(50), 20), _rows(range(50, 100), 20))
    output = "k long, n long, total long"
    job, _ = _per_key(_stream(spark, folder), refuse, {"n": 0, "total": 0}, output)
    with pytest.raises(hg.QueryError, match="not yet"):
        job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None).await_termination(WAIT_SECONDS)
    job, sink = _per_key(_stream(spark, folder), _running, {"n": 0, "total": 0}, output)
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=3, balance=None, trigger="available now")
    assert query.await_termination(WAIT_SECONDS)
    assert query.assignment().slots == 3
    assert _last(sink.to_pylist()) == _totals(_rows(range(100), 20))


def test_a_pace_is_kept_and_timers_fire_without_rows(spark: Any, feed: Feed, tmp_path: Path) -> None:
    def later(key: int, rows: Any, state: Row, context: hg.Context) -> Row | None:
        state["n"] += len(rows)
        if context.fired == "processing":
            return {"k": key, "n": state["n"]}
        context.set_processing_timer(dt.timedelta(milliseconds=1))
        return None

    job, sink = _per_key(_stream(spark, feed(_rows(range(9), 3))), later, {"n": 0}, "k long, n long")
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, trigger="500 milliseconds", heartbeat=True)
    ends = time.monotonic() + WAIT_SECONDS
    while sink.to_arrow().num_rows < 3 and query.is_active and time.monotonic() < ends:
        time.sleep(0.05)
    query.stop()
    assert query.exception is None
    assert sorted(sink.to_pylist(), key=lambda row: row["k"]) == [{"k": k, "n": 3} for k in range(3)]
    assert sum(progress["rows"] for progress in query.recent_progress) == 9
    assert sum(progress["timers_fired"] for progress in query.recent_progress) == 3


def test_late_rows_and_null_keys_follow_the_rule_of_the_job(spark: Any, feed: Feed, tmp_path: Path) -> None:
    def table(*rows: tuple[int | None, int]) -> pa.Table:
        return pa.table(
            {"k": pa.array([k for k, _ in rows], pa.int64()), "at": pa.array([at for _, at in rows], pa.int64())}
        )

    folder = feed(table((1, 100), (2, 90)), table((1, 95), (2, 94), (None, 200)), table((1, 199)))

    def run(name: str, **rules: Any) -> tuple[hg.Query, Any, Any]:
        job = hg.Job("rules", event_time="at", slack="5 microseconds", **rules)
        counts, away = hg.sinks.memory(), hg.sinks.memory()
        job.source(_stream(spark, folder, "k long, at long")).key_by("k").aggregate(n=hg.count()).write_to(counts)
        job.rejected().write_to(away)
        return job.start(spark, checkpoint=str(tmp_path / name), slots=2, trigger="available now"), counts, away

    query, counts, away = run("side", late="side", bad_keys="side")
    query.await_termination(WAIT_SECONDS)
    assert {row["k"]: row["n"] for row in counts.to_pylist()} == {1: 3, 2: 1}
    rejected = [(row["batch"], row["reason"], json.loads(row["row"])) for row in away.to_pylist()]
    assert sorted(rejected, key=lambda row: row[1]) == [
        (1, "late for 'aggregate0'", {"k": 2, "at": 94}),
        (1, "null, or no int64, in key column 'k' of 'aggregate0'", {"k": None, "at": 200}),
    ]
    progress = query.recent_progress
    assert [one["late_rows"] for one in progress] == [0, 1, 0]
    assert [one["rejected_rows"] for one in progress] == [0, 1, 0]
    query, _, _ = run("fail", late="drop")
    with pytest.raises(
        hg.QueryError, match=r"RowError: 1 row\(s\) of 'input0' cannot be used \(null, or no int64, in key column 'k'"
    ):
        query.await_termination(WAIT_SECONDS)


def test_operators_in_a_chain_with_arrow_pickled_and_expiring_state(spark: Any, feed: Feed, tmp_path: Path) -> None:
    def sums(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
        import numpy as np

        values = batch.rows["v"].to_numpy()
        before = pc.fill_null(batch.state["total"], 0).to_numpy()
        total = before + np.add.reduceat(values, batch.starts[:-1])
        parity = pa.array(np.asarray(batch.keys["k"]) % 2)
        return pa.table({"parity": parity, "total": total}), pa.table({"total": total})

    def remember(key: int, rows: Any, state: Any) -> Row:
        state.setdefault("seen", set()).update(rows["total"])
        return {"parity": key, "seen": len(state["seen"])}

    tables = [_rows(range(at, at + 14)) for at in (0, 14, 28)]
    job, sink = hg.Job("chain"), hg.sinks.memory()
    first = job.source(_stream(spark, feed(*tables))).key_by("k")
    totals = first.process_arrow(sums, state="total long", output="parity long, total long", ttl="1 hour")
    totals.key_by("parity").process(remember, state=hg.Pickled, output="parity long, seen long").write_to(sink)
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=3, trigger="available now")
    assert query.await_termination(WAIT_SECONDS)
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    for count in range(1, 4):
        for key, (_, total) in _totals(*tables[:count]).items():
            seen[key % 2].add(total)
    assert {row["parity"]: row["seen"] for row in sink.to_pylist()} == {key: len(had) for key, had in seen.items()}


def test_hot_keys_are_split_and_groups_copied_without_a_change_in_the_results(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    tables = [_rows([*range(40), *[7] * 400], 40) for _ in range(4)]
    job, sink = hg.Job("split"), hg.sinks.memory()
    rows = job.source(_stream(spark, feed(*tables)))
    keyed = rows.key_by("k")
    keyed.aggregate(n=hg.count(), total=hg.sum("v"), combine_early=False, split=True).write_to(sink)
    query = job.start(
        spark, checkpoint=str(tmp_path / "ck"), slots=3, trigger="available now", migration="copy",
        wait_for_plan="10 seconds", service_time="100 microseconds",
    )  # fmt: skip
    query.set_slots(4)
    assert query.await_termination(WAIT_SECONDS)
    assert _last(sink.to_pylist()) == _totals(*tables)
    assert [entry.key for entry in query.journal() if entry.kind == "split"] == [7]
    assert query.recent_progress[-1]["split_keys"] == 1


def test_steps_that_run_one_after_another_are_levelled_each_by_itself(spark: Any, feed: Feed, tmp_path: Path) -> None:
    start = Assignment.hashed(2, 64, operators=2)
    numbers = np.arange(4000)
    by_slot = [[numbers[start.route(key_hash(numbers), step) == slot] for slot in range(2)] for step in range(2)]
    # Four of five rows are in slot 0 for the first step and in slot 1 for the second: in sum both slots have the same.
    pairs = [
        *zip(by_slot[0][0][:320], by_slot[1][1], strict=False),
        *zip(by_slot[0][1][:80], by_slot[1][0], strict=False),
    ]
    rows = pa.table({"k": pa.array([int(k) for k, _ in pairs]), "v": pa.array([int(v) for _, v in pairs])})
    job, sink = hg.Job("stages", groups=64), hg.sinks.memory()
    first = job.source(_stream(spark, feed(rows, rows, rows))).key_by("k")
    passed = first.aggregate(n=hg.count(), v=hg.max("v"), combine_early=False, name="first")
    passed.key_by("v").aggregate(times=hg.count(), n=hg.max("n"), combine_early=False, name="second").write_to(sink)
    query = job.start(
        spark, checkpoint=str(tmp_path / "ck"), slots=2, trigger="available now", wait_for_plan="10 seconds",
        service_time="2 milliseconds", balance=hg.planners.Flux(),
    )  # fmt: skip
    assert query.await_termination(WAIT_SECONDS)
    plan = next(entry for entry in query.journal() if entry.kind == "plan")
    assert plan.details["theta_before"] == pytest.approx(0.6, abs=0.1)
    for step, column in enumerate(("k", "v")):
        slots = query.assignment().route(key_hash(rows[column]), step)
        assert 0.4 < np.mean(slots == 0) < 0.6, f"step {step}"
    assert {row["v"]: (row["times"], row["n"]) for row in sink.to_pylist()} == {int(v): (3, 3) for _, v in pairs}


def test_metrics_are_served_on_the_loopback_address(spark: Any, feed: Feed, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job, _ = _counting(_stream(spark, feed(_rows(range(70)))))
    query = job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, metrics_port=port)
    query.process_all_available()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    query.stop()
    assert 'headgate_rows_total{job="counting"} 70.0' in text
    assert 'headgate_state_rows{job="counting"} 7.0' in text
    with socket.socket() as again:  # the port is free again once the query has ended
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))
