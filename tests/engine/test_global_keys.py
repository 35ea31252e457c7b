"""Streams that are keyed by no columns: all rows are one key, and what comes out is what one query over all rows gives,
whatever moves, restarts or crashes in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.control import moved, resized
from headgate.engine.query import Query
from headgate.engine.running import migrated
from headgate.errors import JobError
from headgate.operators import keys_at
from headgate.routing import group_of, key_hash, row_hash

pl = pytest.importorskip("polars")
assert_frame_equal = pytest.importorskip("polars.testing").assert_frame_equal

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
GROUPS = 8
HOME = int(group_of(np.array([42]), GROUPS)[0])
"""The key group of the one key, whose hash is the seed of the key hash."""

STEP, AHEAD = 10, 15
SLACK = 2 * AHEAD - STEP
"""Microseconds between batches, how far rows lie from the time of theirs, and the slack that makes none late."""

OURS = {"n": hg.count(), "total": hg.sum("v"), "high": hg.max("v"), "last": hg.last("v", by="at")}
THEIRS = [
    pl.len().alias("n"),
    pl.when(pl.col("v").count() > 0).then(pl.col("v").sum()).alias("total"),
    pl.col("v").max().alias("high"),
    pl.col("v").drop_nulls().last().alias("last"),
]


def _micros(value: int) -> dt.timedelta:
    return dt.timedelta(microseconds=value)


def _windows(rows: Any, lengths: tuple[int, ...], every: int | None = None) -> Any:
    low, high = (rows["at"].min() or 0), (rows["at"].max() or 0)
    spans = [
        (start, start + length)
        for length in lengths
        for hop in (every or length,)
        for start in range((low - length) // hop * hop, high + 1, hop)
    ]
    windows = pl.DataFrame(spans, schema={"window_start": pl.Int64, "window_end": pl.Int64}, orient="row")
    return rows.join_where(windows, pl.col("at") >= pl.col("window_start"), pl.col("at") < pl.col("window_end"))


def _sessions(rows: Any, gap: int) -> Any:
    opens = (pl.col("at").diff() > gap).fill_null(True)
    numbered = rows.sort("at").with_columns(session=opens.cum_sum())
    first, last = (edge.over("session") for edge in (pl.col("at").min(), pl.col("at").max()))
    return numbered.with_columns(window_start=first, window_end=last + gap)


def _counts(rows: Any, size: int, every: int) -> Any:
    starts = pl.DataFrame({"window_start": range(0, len(rows) + 1, every)}, schema={"window_start": pl.Int64})
    windows = starts.with_columns(window_end=pl.col("window_start") + size)
    number = pl.col("number")
    within = rows.with_row_index("number").join_where(
        windows, number >= pl.col("window_start"), number < pl.col("window_end")
    )
    return within.filter(pl.len().over("window_start") == size)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "overlapping windows": (
        lambda rows: rows.window(_micros(40), every=_micros(10)).aggregate(**OURS),
        lambda rows: _windows(rows, (40,), 10),
    ),
    "windows of several lengths": (
        lambda rows: rows.window(_micros(10), _micros(30)).aggregate(**OURS),
        lambda rows: _windows(rows, (10, 30)),
    ),
    "one computation per window": (
        lambda rows: rows.window(_micros(40), every=_micros(10)).aggregate(share="per window", **OURS),
        lambda rows: _windows(rows, (40,), 10),
    ),
    "compute and consolidate": (
        lambda rows: rows.compute(_micros(5), **OURS).consolidate(_micros(20), every=_micros(10)),
        lambda rows: _windows(rows, (20,), 10),
    ),
    "halves in two tasks": (
        lambda rows: rows.window(_micros(20), every=_micros(10)).aggregate(split=True, **OURS),
        lambda rows: _windows(rows, (20,), 10),
    ),
    "halves in one task or two": (
        lambda rows: rows.window(_micros(20), every=_micros(10)).aggregate(split="auto", **OURS),
        lambda rows: _windows(rows, (20,), 10),
    ),
    "sessions": (lambda rows: rows.session(_micros(4)).aggregate(**OURS), lambda rows: _sessions(rows, 4)),
    "count windows": (lambda rows: rows.count_window(5, every=3).aggregate(**OURS), lambda rows: _counts(rows, 5, 3)),
}

ROW = st.tuples(st.sampled_from(["a", "b"]), st.none() | st.integers(-4, 4), st.integers(-AHEAD, AHEAD))
EVENTS = ["", "move home", "move home", "move", "move last", "resize", "restart", "crash", "rearrange"]
TURNS = st.lists(
    st.tuples(st.lists(ROW, max_size=10), st.sampled_from(EVENTS), st.integers(0, 3)), min_size=2, max_size=7
)
WAYS = st.sampled_from(["auto", "instant", "smooth", "copy", "manifest"])


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("asked", "query"), CASES.values(), ids=CASES.keys())
@settings(max_examples=15)
@given(turns=TURNS, way=WAYS, seed=st.integers(0, 99))
def test_windows_of_all_rows_are_those_of_one_query_over_all_rows(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, asked: Any, query: Any, slots: int, turns: Any, way: str,
    seed: int,
) -> None:  # fmt: skip
    job = hg.Job("job", event_time="at", slack=_micros(SLACK), groups=GROUPS)
    asked(engine.source(job, SCHEMA).key_by()).write_to(hg.sinks.memory(), name="out")
    bench = engine.of_job(tmp_path_factory.mktemp("all"), job, {"migration": way}, slots=slots)
    bench.driver.run_tasks = engine.scrambled(seed)
    seen: list[dict[str, Any]] = []
    for number, (drawn, event, slot) in enumerate([*turns, ((), "", 0)]):
        if event == "move home":
            bench.change(lambda at, slot=slot: bench._moved(at, to=slot, groups=[HOME], last=slot % 2 == 0))
        bench.disturb(event, slot, seed + number)
        rows = [{"k": k, "v": v, "at": STEP * (number - 3) + ahead} for k, v, ahead in drawn]
        seen += [*rows[::2], *rows[1::2]]
        bench.survived(bench.frame(rows[::2], rows[1::2]), number, seed + number, flush=number == len(turns))
    grouped = query(pl.from_arrow(pa.Table.from_pylist(seen, SCHEMA))).sort("at", "v")
    wanted = grouped.group_by("window_start", "window_end").agg(THEIRS)
    made = _emitted(bench)
    assert made.columns == ["window_start", "window_end", *OURS], "no key column"
    assert_frame_equal(made, wanted, check_row_order=False, check_dtypes=False, check_exact=True)


def _emitted(bench: Any) -> Any:
    batches = bench.sinks["out"]._batches
    table = pa.concat_tables([bench.program.outputs["out"].empty_table(), *(batches[at] for at in sorted(batches))])
    return pl.from_arrow(table).with_columns(pl.col(pl.Datetime("us", "UTC")).dt.epoch("us"))


def _totals(rows: Any, **how: Any) -> Any:
    return rows.aggregate(n=hg.count(), total=hg.sum("v"), **how)


def _per_key(rows: Any) -> Any:
    def add(key: object, given: Any, state: Any) -> Any:
        assert key == (), "a key without columns"
        state["n"] += len(given)
        state["total"] += sum(given["v"])
        return state["n"], state["total"]

    return rows.process(add, state={"n": 0, "total": 0}, output="n long, total long")


def _over_arrow(rows: Any) -> Any:
    def add(batch: hg.Batch) -> Any:
        assert (len(batch), batch.keys.num_columns) == (1, 0)
        made = pa.table(
            {
                "n": np.asarray(batch.state["n"]) + batch.counts,
                "total": np.asarray(batch.state["total"]) + sum(batch.rows["v"].to_pylist()),
            }
        )
        return batch.keys.append_column("n", made["n"]).append_column("total", made["total"]), made

    return rows.process_arrow(add, state={"n": 0, "total": 0}, output="n long, total long")


RUNNING: dict[str, Callable[[Any], Any]] = {
    "added up before the shuffle": _totals,
    "row by row": lambda rows: _totals(rows, combine_early=False),
    "row by row, and may be split": lambda rows: _totals(rows, combine_early=False, split=True),
    "a function per key": _per_key,
    "a function over Arrow tables": _over_arrow,
}


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("asked", RUNNING.values(), ids=RUNNING.keys())
def test_a_running_total_is_there_once_through_moves_pins_splits_and_restarts(
    engine: Any, tmp_path: Path, asked: Callable[[Any], Any], slots: int
) -> None:
    job = hg.Job("job", groups=GROUPS)
    asked(engine.source(job, SCHEMA).key_by()).write_to(hg.sinks.memory(), name="out")
    bench = engine.of_job(tmp_path, job, slots=slots)
    rng = np.random.default_rng(slots)
    seen: list[int] = []
    splits: bool = bench.program.steps[0].splits
    for number in range(9):
        to = number % slots
        if number in (1, 4):
            bench.change(lambda at, to=to: moved(at, to, groups=[HOME]))
        elif number in (2, 6):
            bench.change(lambda at, to=to: moved(at, to, keys=[42]))
        elif number == 3:
            bench.restart()
        elif number == 7:
            bench.change(lambda at: resized(at, slots + 1))
        elif number == 5 and splits:
            bench.script.split = (np.array([42]),)
            bench.batch([])
        values = rng.integers(-9, 9, 30).tolist()
        rows = [{"k": "x", "v": value, "at": 0} for value in values]
        seen += values
        made = bench.batch(rows[:20], rows[20:])
        assert made == {"out": [{"n": len(seen), "total": sum(seen)}]}, number
        assert [key for key, _ in bench.state().items()] == [()]
        assert sum(bench.counted().values()) == 1
    if splits:
        assert bench.last.shared[0].tolist() == [42], "its rows were spread over the slots, and are one total"


def test_a_task_sends_one_row_of_what_it_can_add_up(engine: Any, tmp_path: Path) -> None:
    job = hg.Job("job", groups=GROUPS)
    _totals(engine.source(job, SCHEMA).key_by()).write_to(hg.sinks.memory(), name="out")
    bench = engine.of_job(tmp_path, job)
    rows = [{"k": "x", "v": 1, "at": 0}] * 500
    assert bench.batch(rows, rows, rows)["out"] == [{"n": 1500, "total": 1500}]
    loads = [load for _, loads, _ in bench.script.observed for load in loads if len(load.group)]
    assert [(load.group.tolist(), load.tuples.tolist(), load.heavy_label) for load in loads] == [([HOME], [3], ((),))]


def test_rows_are_counted_where_nothing_else_is_asked_of_them(engine: Any, tmp_path: Path) -> None:
    for number, how in enumerate(({}, {"combine_early": False})):
        job = hg.Job("job", groups=GROUPS)
        engine.source(job, SCHEMA).key_by().aggregate(n=hg.count(), **how).write_to(hg.sinks.memory(), name="out")
        assert job._steps[0].operator.input_schema.names == ["v"], "the narrowest column stands for the row"
        bench = engine.of_job(tmp_path / str(number), job)
        rows = [{"k": "x", "v": None, "at": 0}] * 50
        assert bench.batch(rows, rows)["out"] == [{"n": 100}]
        assert bench.batch(rows)["out"] == [{"n": 150}]


def test_the_timer_of_the_one_key_fires_without_rows(engine: Any, tmp_path: Path) -> None:
    def on_all(key: object, rows: Any, state: Any, context: Any) -> Any:
        state["n"] += len(rows)
        if context.fired:
            yield key == (), state["n"]
        else:
            context.set_processing_timer(context.now + dt.timedelta(seconds=5))

    job = hg.Job("job", groups=GROUPS)
    rows = engine.source(job, SCHEMA).key_by()
    rows.process(on_all, state={"n": 0}, output="alone boolean, n long").write_to(hg.sinks.memory(), name="out")
    bench = engine.of_job(tmp_path, job)
    assert bench.batch([{"k": "x", "v": 1, "at": 0}] * 20)["out"] == []
    bench.seconds += 10
    bench.change(lambda at: moved(at, (int(at.groups[HOME]) + 1) % at.slots, groups=[HOME]))
    assert bench.batch([])["out"] == [{"alone": True, "n": 20}]


def _chain(engine: Any, *, between: bool = False, **how: Any) -> Any:
    job = hg.Job("job", groups=GROUPS, **how)
    first = engine.source(job, SCHEMA).key_by("k").aggregate(n=hg.count(), name="words")
    second = first.key_by().aggregate(most=hg.max("n"), name="total")
    if between:
        second = second.filter(lambda rows: pa.array([True] * rows.num_rows), name="all")
    second.key_by().aggregate(changes=hg.count(), name="changes").write_to(hg.sinks.memory(), name="out")
    return job


@pytest.mark.parametrize("extent", ["same keys", "auto"])
def test_what_runs_in_one_place_is_fused_with_its_like_and_with_nothing_else(
    engine: Any, tmp_path: Path, extent: str
) -> None:
    job = _chain(engine, fusion=extent)
    assert job.components().component == (0, 1, 1)
    told = job.explain()
    assert "shuffle to one place -> component 2: Aggregation 'total' (combined before the shuffle)" in told
    assert "in the same task, to one place -> component 2: Aggregation 'changes'" in told
    assert "component 2: total + changes, rigid, stateful, in one place" in told
    assert "words -> total: not in one task: total runs in one place" in told
    assert "total -> changes: in one task" in told
    bench = engine.of_job(tmp_path, job)
    rows = [{"k": key, "v": 1, "at": 0} for key in "aabbb"]
    assert bench.batch(rows)["out"] == [{"changes": 1}]
    bench.change(lambda at: bench._moved(at, to=2, groups=[HOME], last=True))
    assert bench.batch(rows)["out"] == [{"changes": 2}]
    assert bench.state(1) == {(): {"most.max": 6}}


def test_a_function_between_two_that_run_in_one_place_keeps_them_apart(engine: Any) -> None:
    job = _chain(engine, between=True, fusion="auto")
    assert job.components().component == (0, 1, 2)
    assert "total -> changes: not in one task: both run in one place, but 'all' is between them" in job.explain()


def test_the_halves_of_windows_of_all_rows_run_in_one_task(engine: Any) -> None:
    job = hg.Job("job", event_time="at")
    rows = engine.source(job, SCHEMA).key_by().window("1 hour", every="10 minutes")
    rows.aggregate(n=hg.count(), split="auto", name="all").write_to(hg.sinks.memory())
    assert job.components().component == (0, 0)
    assert [pair.auto for pair in job.program().pairs] == [True]


def test_an_operator_of_one_place_is_not_fused_by_hand_with_one_of_many(engine: Any) -> None:
    job = _chain(engine)
    job.fuse("words", "total")
    with pytest.raises(JobError) as raised:
        job.components()
    assert str(raised.value) == (
        "operators words, total cannot be one component: no column in common: words by k, total by none: leave one of "
        "them out"
    )


def test_an_operator_of_one_place_migrates_to_its_like_only(engine: Any) -> None:
    job = hg.Job("job", event_time="at")
    rows = engine.source(job, SCHEMA)
    for name, keyed in (("each", rows.key_by("k")), ("all", rows.key_by())):
        keyed.window("1 hour").aggregate(n=hg.count(), split=True, name=name).write_to(hg.sinks.memory())
    program = job.program()
    names = {step.operator.name: number for number, step in enumerate(program.steps)}
    assert program.components == (0, 1, 2, 3)
    assert migrated(program, names["all.compute"], names["all"])[0] == (0, 1, 2, 2)
    assert migrated(program, names["all"], names["all.compute"])[0] == (0, 1, 2, 2)
    for to, text in {
        "each": "it runs by none and the rigid each by k: leave it, or give it a component of its own",
        "each.compute": "it is placed by no column and 'each.compute' by k (string), and state stays in its key "
        "groups: fuse them in the job, and start it on a new checkpoint",
    }.items():
        with pytest.raises(JobError) as raised:
            migrated(program, names["all"], names[to])
        assert str(raised.value) == f"operator 'all' cannot change its component: {text}"


def test_a_join_needs_columns(engine: Any) -> None:
    job = hg.Job("job", event_time="at")
    left, right = engine.source(job, SCHEMA, "left"), engine.source(job, SCHEMA, "right")
    with pytest.raises(JobError) as raised:
        left.key_by().join(right.key_by(), within="1 minute")
    assert str(raised.value) == (
        "the join 'join0' must have key columns, since it pairs rows that have equal ones, got key_by() on both sides, "
        'which would pair every row with every other: name the columns, key_by("user") say'
    )
    with pytest.raises(JobError, match=r"must have equally many key columns, .*, got k and none: give key_by the same"):
        left.key_by("k").join(right.key_by(), within="1 minute")


def test_a_key_that_is_moved_must_have_the_columns_of_its_operator(engine: Any) -> None:
    job = hg.Job("job")
    rows = engine.source(job, SCHEMA)
    rows.key_by().aggregate(n=hg.count(), name="all").write_to(hg.sinks.memory())
    rows.key_by("k", "v").aggregate(n=hg.count(), name="each").write_to(hg.sinks.memory())
    query: Any = SimpleNamespace(_driver=SimpleNamespace(program=job.program()))
    assert Query._hashes(query, 0, [()]).tolist() == [42]
    assert Query._hashes(query, 1, [("a", 1)]).tolist() == key_hash(["a"], [1]).tolist()
    for number, key, text in (
        (0, "a", "a key of 'all' must be (), the only one of key_by(), got 'a'"),
        (1, "a", "a key of 'each' must be a value for each of k, v, got 'a'"),
        (1, ("a", None), "the 'v' of keys of 'each' must be long, not null, got [('a', None)]"),
        (1, ("a", "b"), "the 'v' of keys of 'each' must be long, not null, got [('a', 'b')]"),
        (1, (5, 1), "the 'k' of keys of 'each' must be string, not null, got [(5, 1)]"),
        (1, ("a", 2**64), f"the 'v' of keys of 'each' must be long, not null, got [('a', {2**64})]"),
    ):
        with pytest.raises(JobError) as raised:
            Query._hashes(query, number, [key])
        assert str(raised.value) == text


def test_a_checkpoint_says_that_there_are_no_key_columns(engine: Any) -> None:
    assert _chain(engine).identity()["operators"][1] == {"name": "total", "keys": [], "state": ["most.max int64"]}


def test_tables_of_keys_without_columns_keep_their_rows() -> None:
    none = pa.table({"v": [1, 2, 3]}).select([])
    assert row_hash(none).tolist() == [42, 42, 42]
    assert len(row_hash(none.slice(0, 0))) == 0
    assert keys_at(np.array([0, 2]), none).shape == (2, 0)
    assert keys_at(np.array([0]), none.slice(0, 0), none).shape == (1, 0)
    some = pa.table({"v": pa.array([1, 2, 3], pa.int64())})
    assert row_hash(some).tolist() == key_hash(some["v"]).tolist()
    below = pa.table({"v": pa.array([7], pa.int32())})
    assert keys_at(np.array([3, 0]), some, below).to_pydict() == {"v": [7, 1]}
