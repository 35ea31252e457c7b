"""Joins in the engine: what comes out, batch by batch, is what a plain model says, whatever moves or is replayed."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.engine.program import FileFormat
from headgate.errors import JobError
from headgate.operators import IntervalJoin
from headgate.sources import FileSource

VIEWS = pa.schema([("user", pa.string()), ("page", pa.int64()), ("at", pa.int64())])
CLICKS = pa.schema([("who", pa.string()), ("at", pa.int64()), ("page", pa.int64()), ("tag", pa.string())])
KEYS = ["a", "b", "c", "d", "e"]
END_OF_INPUT = 253_402_300_799_999_999
MICRO = 1e-6

View = tuple[str, int, int | None]
"""Key, page, time in microseconds."""
Click = tuple[str, int | None, int, str]
"""Key, time in microseconds, page, tag."""


def _job(**options: Any) -> hg.Job:
    return hg.Job("job", event_time="at", groups=8, **options)


def _source(job: hg.Job, schema: pa.Schema, name: str) -> Any:
    return job.source(FileSource(None, FileFormat("parquet", schema)), name)  # type: ignore[arg-type]


def _both(job: hg.Job) -> tuple[Any, Any]:
    return _source(job, VIEWS, "views").key_by("user"), _source(job, CLICKS, "clicks").key_by("who")


def _bench(engine: Any, root: Path, job: hg.Job, *, slack: int = 0, **how: Any) -> Any:
    """The job as it was put together, with rows that come from memory."""
    return engine.of_job(root, job, {"slack_micros": slack}, **how)


def _named(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(schema.names, row, strict=True)) for row in rows]


def _frame(bench: Any, views: Sequence[View], clicks: Sequence[Click]) -> list[pa.Table]:
    frame: list[pa.Table] = bench.tagged(_named(VIEWS, views), _named(CLICKS, clicks))
    return frame


def _batch(bench: Any, views: Sequence[View] = (), clicks: Sequence[Click] = (), **options: Any) -> Any:
    number = bench.next
    bench.run(_frame(bench, views, clicks), number, **options)
    return _results(bench, number) if "output0" in bench.sinks else None


def _results(bench: Any, number: int, output: str = "output0") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in bench.results(output, number))


def test_views_and_clicks_of_two_sources_meet(engine: Any, tmp_path: Path) -> None:
    # within 10       0         10        20        30
    # views   a       1    2                                  batch 0; a click on 2 comes with batch 1
    # clicks  a            x         y                        x at 5 matches 1 and 2, y at 15 matches 2 only
    # watermark of batch 1: 5, of batch 2: 15 - no click can match view 1 any more, nor view 2 in batch 3
    job = _job()
    views, clicks = _both(job)
    joined = views.join(clicks, within=10 * MICRO, how="left")
    assert joined.columns == ["user", "page", "at", "at_right", "page_right", "tag"]
    joined.write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path, job)
    assert _batch(bench, [("a", 1, 0), ("a", 2, 5), ("b", 3, 5)], [("b", 30, 0, "far")]) == Counter()
    assert _batch(bench, [("a", 4, 40)], [("a", 5, 1, "x"), ("a", 15, 2, "y")]) == Counter(
        [("a", 1, 0, 5, 1, "x"), ("a", 2, 5, 5, 1, "x"), ("a", 2, 5, 15, 2, "y")]
    )
    assert _batch(bench) == Counter([("b", 3, 5, None, None, None)]), "watermark 30, the lesser of 40 and 30"
    assert bench.told[-1]["timers_fired"] >= 1
    assert set(bench.state()) == {"a", "b"}, "view 4 at 40, the click of b at 30"
    assert _batch(bench, flush=True) == Counter([("a", 4, 40, None, None, None)])
    assert bench.state() == {}
    assert not bench.counted()


def test_late_rows_of_either_side_go_the_way_of_the_job(engine: Any, tmp_path: Path) -> None:
    job = _job(late="side")
    views, clicks = _both(job)
    views.join(clicks, within=10 * MICRO, how="left").write_to(hg.sinks.memory())
    job.rejected().write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path, job)
    _batch(bench, [("a", 1, 20)], [("a", 20, 1, "x")])
    # At watermark 20 rows at 20 are taken, rows before it are late; rows without a time are not.
    made = _batch(bench, [("a", 2, 20), ("a", 3, 19), ("a", 4, None)], [("a", 19, 5, "y"), ("a", 20, 6, "z")])
    assert made == Counter(
        [("a", 1, 20, 20, 6, "z"), ("a", 2, 20, 20, 1, "x"), ("a", 2, 20, 20, 6, "z"), ("a", 4, None, None, None, None)]
    )
    assert bench.told[-1]["late_rows"] == 2
    away = {row["input"]: json.loads(row["row"]) for row in bench.results("rejected", 1)}
    assert {name: (row["user"], row["page"], row["at"]) for name, row in away.items()} == {
        "views": ("a", 3, 19),
        "clicks": ("a", 5, 19),
    }


def test_a_batch_may_be_processed_a_few_keys_at_a_time(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.engine.keyed.ROWS_PER_CALL", 3)
    job = _job()
    views, clicks = _both(job)
    views.join(clicks, within=10 * MICRO, how="left").write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path, job, slots=1)
    model = Model(10, 10, True, 0)
    for number in range(4):
        seen = [(key, page, 8 * number + page) for key in KEYS for page in range(number % 3)]
        done = [(key, 8 * number + 2 * page, page, key) for key in KEYS[1:] for page in range(2)]
        assert _batch(bench, seen, done) == model.batch(seen, done)
    assert _batch(bench, flush=True) == model.batch([], [], flush=True)
    assert bench.state() == {}


PAYLOADS: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), "x"),
    "decimal": (pa.decimal128(38, 2), decimal.Decimal("1.50")),
    "instant": (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    "list": (pa.list_(pa.string()), ["a", None]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]), {"a": 1, "b": [2]}),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "bool": (pa.bool_(), True),
    "date": (pa.date32(), dt.date(2026, 1, 1)),
    "float": (pa.float64(), 0.5),
    "bytes": (pa.binary(), b"\0x"),
    "null": (pa.null(), None),
}


def test_columns_of_every_type_are_kept_in_state(engine: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [("k", pa.string()), ("at", pa.int64()), *((name, kind) for name, (kind, _) in PAYLOADS.items())]
    )
    full = {name: value for name, (_, value) in PAYLOADS.items()}
    job = _job()
    stream = _source(job, schema, "rows")
    stream.key_by("k").join(stream.key_by("k"), after=50 * MICRO, how="left").write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path, job)
    empty = dict.fromkeys(PAYLOADS)
    rows = [{"k": key, "at": number, **(full if number % 2 else empty)} for number in range(6) for key in "ab"]
    for number in range(6):
        bench.batch([row for row in rows if row["at"] == number])
        if number == 3:
            bench.restart()
            bench.change(lambda assignment: control.resized(assignment, 2))
    bench.batch([], flush=True)
    made = [row for number in range(bench.next) for row in bench.results("output0", number)]
    wanted = [
        {**one, "at_right": two["at"], **{f"{name}_right": two[name] for name in PAYLOADS}}
        for one in rows
        for two in rows
        if one["k"] == two["k"] and one["at"] <= two["at"]
    ]
    assert engine.in_order(made) == engine.in_order(wanted)


def test_a_stream_joined_with_itself_has_every_row_as_its_own_partner(engine: Any, tmp_path: Path) -> None:
    job = _job()
    views = _source(job, VIEWS, "views")
    pairs = views.key_by("user").join(views.key_by("user"), after=5 * MICRO)
    assert pairs.columns == ["user", "page", "at", "page_right", "at_right"]
    pairs.write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path, job)
    assert bench.program.steps[0].operator.input_schema.names == ["user", "__side", "page", "at"], "columns are shared"
    # a    0    5    6      0 with 0 and 5, 5 with 5 and 6, 6 with 6
    bench.batch(_named(VIEWS, [("a", 1, 0), ("a", 2, 5)]), _named(VIEWS, [("b", 9, 0)]))
    bench.batch(_named(VIEWS, [("a", 3, 6)]))
    made = [sorted((row["page"], row["page_right"]) for row in bench.results("output0", each)) for each in (0, 1)]
    assert made == [[(1, 1), (1, 2), (2, 2), (9, 9)], [(2, 3), (3, 3)]]


@dataclass
class Model:
    """The same join in plain Python: all pairs of rows that were taken, made anew in every batch."""

    before: int
    after: int
    outer: bool
    slack: int
    lateness: int = 0
    watermark: int | None = None
    greatest: list[int | None] = field(default_factory=lambda: [None, None])
    views: list[View] = field(default_factory=list)
    clicks: list[Click] = field(default_factory=list)
    out: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)

    def batch(self, views: Sequence[View], clicks: Sequence[Click], *, flush: bool = False) -> Counter[tuple[Any, ...]]:
        if all(one is not None for one in self.greatest):
            reached = min(one for one in self.greatest if one is not None) - self.slack
            self.watermark = reached if self.watermark is None else max(reached, self.watermark)
        if flush:
            self.watermark = END_OF_INPUT
        bar = None if self.watermark is None else self.watermark - self.lateness
        self.views += [row for row in views if row[2] is None or bar is None or row[2] >= bar]
        self.clicks += [row for row in clicks if row[1] is None or bar is None or row[1] >= bar]
        for side, times in enumerate(([row[2] for row in views], [row[1] for row in clicks])):
            self.greatest[side] = max([one for one in (*times, self.greatest[side]) if one is not None], default=None)
        pairs: Counter[tuple[Any, ...]] = Counter()
        alone: Counter[tuple[Any, ...]] = Counter()
        for number, (user, page, at) in enumerate(self.views):
            found = [
                (user, page, at, time, other, tag)
                for who, time, other, tag in self.clicks
                if who == user and at is not None and time is not None and at - self.before <= time <= at + self.after
            ]
            pairs.update(found)
            ends = at is None or (self.watermark is not None and at + self.after + self.lateness < self.watermark)
            if self.outer and not found and ends and number not in self.ended:
                self.ended.add(number)
                alone[user, page, at, None, None, None] += 1
        new = pairs - self.out
        self.out = pairs
        return new + alone


AHEAD = st.one_of(st.none(), *[st.integers(-40, 40)] * 8)
TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3), AHEAD), max_size=7),
        st.lists(st.tuples(st.sampled_from(KEYS), AHEAD, st.integers(0, 3), st.sampled_from("xy")), max_size=7),
        st.sampled_from(["", "", "move", "resize", "restart", "pin", "crash"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    bounds=st.tuples(st.sampled_from([0, 6, 40]), st.sampled_from([0, 15, 90])),
    how=st.sampled_from(["inner", "left"]),
    lateness=st.sampled_from([0, 0, 12]),
    slack=st.sampled_from([0, 7, 40]),
    turns=TURNS,
    seed=st.integers(0, 99),
)
def test_any_two_streams_give_what_the_model_says(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, bounds: tuple[int, int], how: Any, lateness: int, slack: int,
    turns: Any, seed: int,
) -> None:  # fmt: skip
    before, after = bounds
    job = _job()
    views, clicks = _both(job)
    spans = {"before": before * MICRO, "after": after * MICRO, "lateness": lateness * MICRO}
    views.join(clicks, how=how, **spans).write_to(hg.sinks.memory())
    bench = _bench(engine, tmp_path_factory.mktemp("joins"), job, slack=slack)
    bench.driver.run_tasks = engine.scrambled(seed)
    model = Model(before, after, how == "left", slack, lateness)
    now = 0
    for number, (seen, clicked, event, slot) in enumerate([*turns, ([], [], "", 0)]):
        now += 9
        viewed = [(key, page, None if ahead is None else now + ahead) for key, page, ahead in seen]
        done = [(key, None if ahead is None else now + ahead, page, tag) for key, ahead, page, tag in clicked]
        flush = number == len(turns)
        bench.disturb(event, slot, seed + number, KEYS)
        wanted = model.batch(viewed, done, flush=flush)
        frame = _frame(bench, viewed, done)
        bench.survived(frame, number, seed + number, flush=flush)
        assert _results(bench, number) == wanted
    assert bench.state() == {}
    assert not bench.counted()


def _later(rows: pa.Table) -> pa.Table:
    """Joined rows with the time of the later of the two."""
    return pa.table({"user": rows["user"], "at": pc.max_element_wise(rows["at"], rows["at_right"])})


STREAMS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=5),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=5),
    ),
    max_size=8,
)


@settings(max_examples=25)
@given(turns=STREAMS, how=st.sampled_from(["inner", "left"]))
def test_windows_of_joined_rows_lose_none_if_they_wait_as_long_as_the_join_looks_ahead(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, how: Any
) -> None:
    """By the left time with lateness=after, and, for inner joins, by the later time without."""
    after, width = 15, 10
    job = _job()
    views, clicks = _both(job)
    joined = views.join(clicks, before=4 * MICRO, after=after * MICRO, how=how)
    joined.key_by("user").window(width * MICRO, lateness=after * MICRO).aggregate(n=hg.count()).write_to(
        hg.sinks.memory(), name="by left"
    )
    if how == "inner":
        joined.map(_later).key_by("user").window(width * MICRO).aggregate(n=hg.count()).write_to(
            hg.sinks.memory(), name="by later"
        )
    bench = _bench(engine, tmp_path_factory.mktemp("joins"), job)
    model = Model(4, after, how == "left", 0)
    wanted: dict[str, Counter[tuple[str, int]]] = {"by left": Counter(), "by later": Counter()}
    for number, (seen, clicked) in enumerate([*turns, ([], [])]):
        viewed = [(key, 0, 6 * number + ahead) for key, ahead in seen]
        done = [(key, 6 * number + ahead, 0, "") for key, ahead in clicked]
        flush = number == len(turns)
        for (user, _, at, time, *_), count in model.batch(viewed, done, flush=flush).items():
            wanted["by left"][user, at // width * width] += count
            if time is not None:
                wanted["by later"][user, max(at, time) // width * width] += count
        bench.run(_frame(bench, viewed, done), number, flush=flush)
    for output in bench.sinks:
        last: dict[tuple[str, int], int] = {}
        for number in range(bench.next):
            for row in (
                bench.sinks[output]._batches[number].to_pylist() if number in bench.sinks[output]._batches else ()
            ):
                key = row["user"], int(row["window_start"].timestamp() * 1e6)
                assert output == "by left" or key not in last, "without lateness a window comes out once"
                last[key] = row["n"]
        assert last == dict(wanted[output])


def test_a_join_of_joined_rows_needs_lateness_for_rows_that_come_out_behind_the_watermark(
    engine: Any, tmp_path: Path
) -> None:
    # views with no click in [t, t + 10] come out behind the watermark, and look for a click in [t - 30, t] then
    job = _job()
    views, clicks = _both(job)
    alone = views.join(clicks, after=10 * MICRO, how="left", name="first").filter(_unclicked).map(_as_view)
    for lateness in (0, 10):
        alone.key_by("user").join(
            clicks, before=30 * MICRO, lateness=lateness * MICRO, name=f"second {lateness}"
        ).write_to(hg.sinks.memory(), name=str(lateness))
    bench = _bench(engine, tmp_path, job)
    _batch(bench, [("a", 1, 25)], [("a", 0, 7, "old")])
    _batch(bench, [("b", 2, 35)], [("b", 35, 2, "")])
    _batch(bench, [("b", 2, 90)], [("b", 90, 2, "")])  # watermark 35: the view at 25 may still get a click
    assert bench.results("10", 2) == []
    _batch(bench)  # watermark 90: it comes out; its old click was kept up to 0 + 30 + lateness
    assert [(row["page"], row["tag"]) for row in bench.results("10", 3)] == [(1, "old")]
    assert bench.results("0", 3) == []


def test_joins_by_the_same_keys_run_in_one_task(engine: Any, tmp_path: Path) -> None:
    job = _job()
    views, clicks = _both(job)
    pairs = views.join(clicks, within=5 * MICRO, name="pairs")
    again = pairs.key_by("user").join(clicks, after=3 * MICRO, lateness=5 * MICRO, suffixes=("", "_2"), name="again")
    again.write_to(hg.sinks.memory())
    program = job.program()
    assert [(step.component, step.depth) for step in program.steps] == [(0, 1), (0, 1)]
    assert any(
        "└─ left side, in the same task, by user -> component 1: IntervalJoin 'again'" in line
        for line in job.explain().splitlines()
    )
    bench = _bench(engine, tmp_path, job)
    seen = [(key, number, 7 * number) for number in range(6) for key in KEYS]
    done = [
        (key, 7 * number + ahead, number, tag)
        for number in range(6)
        for key in KEYS
        for ahead, tag in ((1, "x"), (3, "y"))
    ]
    for number in range(6):
        mine = [row for row in seen if row[1] == number], [row for row in done if row[2] == number]
        bench.run(_frame(bench, *mine), number)
        if number == 2:
            bench.change(lambda assignment: control.resized(assignment, 2))
    bench.run(_frame(bench, [], []), 6, flush=True)
    made = Counter(
        (row["user"], row["at"], row["at_right"], row["at_2"])
        for number in range(7)
        for row in bench.results("output0", number)
    )
    assert made == Counter(
        (user, at, one, two)
        for user, _, at in seen
        for who, one, *_ in done
        for other, two, *_ in done
        if user == who == other and at - 5 <= one <= at + 5 and at <= two <= at + 3
    )


def _unclicked(rows: pa.Table) -> Any:
    return pc.is_null(rows["tag"])


def _as_view(rows: pa.Table) -> pa.Table:
    return rows.select(VIEWS.names)


def test_a_join_in_a_job() -> None:
    job = _job(bad_keys="drop")
    views, clicks = _both(job)
    views.join(clicks, before="1 minute", after="1 hour", how="left", lateness="10 s").write_to(hg.sinks.memory())
    pages = _source(job, VIEWS, "pages")
    pages.key_by("user", "page").join(pages.key_by("user", "page"), within=60, name="again").write_to(
        hg.sinks.memory(), name="again"
    )
    program = job.program()
    one, two = program.steps
    assert isinstance(one.operator, IntervalJoin)
    assert (one.operator.before_micros, one.operator.after_micros) == (60_000_000, 3_600_000_000)
    assert (one.timers, one.combine_early, one.lateness_micros) == (True, False, 10_000_000)
    assert (one.waits, one.depth) == (True, 1)
    assert one.operator.name == "join0"
    assert [operator["windows"] for operator in job.identity()["operators"]] == [
        "left join with right rows from 0:01:00 before to 1:00:00 after",
        "inner join with right rows up to 0:01:00 before or after",
    ]
    assert job.identity()["operators"][0]["state"][-1] == "right.tag list<item: string>"
    assert two.operator.state_schema.names == ["left.at", "right.at"]
    assert [given_input.files.lenient for given_input in program.inputs if given_input.files] == [
        {"user"},
        {"who"},
        {"user", "page"},
    ], "keys that do not fit become null, and are dropped"
    drawing = job.explain().splitlines()
    assert drawing[2:] == [
        "input 'views' (files read by the tasks): user string, page int64, at int64",
        "  └─ left side, shuffle by user -> component 1: IntervalJoin 'join0' (left join with right rows from 0:01:00 "
        "before to 1:00:00 after, rows up to 10 s late)",
        "        state: left.page list<item: int64>, left.at list<item: int64>, matched list<item: bool>, "
        "right.at list<item: int64>, right.page list<item: int64>, right.tag list<item: string>",
        "        └─ output 'output0' -> memory",
        "input 'clicks' (files read by the tasks): who string, at int64, page int64, tag string",
        "  └─ right side, shuffle by who -> component 1: IntervalJoin 'join0' (left join with right rows from 0:01:00 "
        "before to 1:00:00 after, rows up to 10 s late) (drawn above)",
        "input 'pages' (files read by the tasks): user string, page int64, at int64",
        "  ├─ left side, shuffle by user, page -> component 2: IntervalJoin 'again' (inner join with right rows up to "
        "0:01:00 before or after)",
        "  │     state: left.at list<item: int64>, right.at list<item: int64>",
        "  │     └─ output 'again' -> memory",
        "  └─ right side, shuffle by user, page -> component 2: IntervalJoin 'again' (inner join with right rows up to "
        "0:01:00 before or after) (drawn above)",
        "component 1: join0, rigid, stateful, by user; allowed moves: disruptive, by reference",
        "component 2: again, rigid, stateful, by page, user; allowed moves: disruptive, by reference",
    ]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "the bound of a join must be within=, or before= and after=, got"),
        ({"within": 1, "after": 2}, "the bound of a join must be within=, or before= and after=, got {'within': 1, "),
        ({"within": "soon"}, "within must be a duration such as \"10 minutes\", a timedelta or a number of seconds"),
        ({"within": 1, "how": "full"}, 'how must be "inner" or "left", got \'full\''),
        ({"after": 1, "lateness": -1}, "lateness must be a duration"),
    ],
    ids=["no bound", "two bounds", "no duration", "another join", "lateness"],
)  # fmt: skip
def test_bounds_that_are_refused(how: dict[str, Any], text: str) -> None:
    views, clicks = _both(_job())
    with pytest.raises(JobError) as refused:
        views.join(clicks, **how)
    assert str(refused.value).startswith(text)


def test_streams_that_cannot_be_joined() -> None:
    views, clicks = _both(_job())
    other = _both(hg.Job("other", event_time="at"))[1]
    with pytest.raises(JobError) as refused:
        views.join(other, within=1)
    assert str(refused.value) == (
        "both sides of a join must be streams of one job, and these are of two, 'job' and 'other': make them from "
        "sources of one Job object"
    )
    with pytest.raises(JobError) as refused:
        views.join(clicks.stream, within=1)
    assert str(refused.value) == ("the right side of a join must be a keyed stream, stream.key_by(...), got 'Stream'")
    untimed = _both(hg.Job("job"))
    with pytest.raises(JobError, match="join needs the time of each event, and the job has none"):
        untimed[0].join(untimed[1], within=1)
    with pytest.raises(JobError, match="'user' is string on the left and 'page' int64 on the right"):
        views.join(clicks.stream.key_by("page"), within=1)
