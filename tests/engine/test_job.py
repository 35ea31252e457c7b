"""Putting a job together: what is refused and with which words, what the program comes to, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.durations import micros_of
from headgate.engine.drawing import drawn
from headgate.engine.program import FileFormat, ToOperator, ToOutput, leaves
from headgate.errors import InputError, JobError, KeyTypeError
from headgate.sources import FileSource
from headgate.windows import Spans, Tumbling

SCHEMA = pa.schema([("word", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("f", pa.float64())])


def files(schema: pa.Schema = SCHEMA) -> FileSource:
    """A source that needs no Spark until the job starts."""
    return FileSource(None, FileFormat("parquet", schema))  # type: ignore[arg-type]


def words(key: str, rows: Any, state: Any) -> tuple[str, int]:
    state["n"] += len(rows)
    return key, state["n"]


def stream(**options: Any) -> Any:
    return hg.Job("job", **options).source(files(), "in")


def test_depths_leaves_and_the_columns_that_are_read() -> None:
    job = hg.Job("job", event_time="at", slack="2 seconds", groups=16)
    source = job.source(files(), "in")
    counts = source.key_by("word").process(words, state={"n": 0}, output="word string, n long", ttl="1 day")
    sizes = counts.key_by("n").aggregate(keys=hg.count(), name="sizes")
    sizes.write_to(hg.sinks.memory())
    counts.write_to(hg.sinks.memory(), name="counts").write_to(hg.sinks.memory())
    program = job.program()
    assert [step.depth for step in program.steps] == [1, 2]
    assert program.depth == 2
    assert [step.ttl_micros for step in program.steps] == [86_400_000_000, None]
    assert [step.combine_early for step in program.steps] == [False, True]
    assert list(leaves(program.inputs[0].branches)) == [ToOperator(0)]
    assert set(leaves(program.steps[0].branches)) == {ToOperator(1), ToOutput("counts")}
    assert list(program.outputs) == ["output0", "counts"]
    assert len(job.sinks()["counts"]) == 2
    assert job.slack_micros == 2_000_000
    assert job.identity() == {
        "job": "job",
        "groups": 16,
        "operators": [
            {"name": "words", "keys": ["word string"], "state": ["n int64"]},
            {"name": "sizes", "keys": ["n int64"], "state": ["keys.count int64"]},
        ],
    }


def test_an_aggregate_takes_along_only_what_it_uses() -> None:
    source = stream(event_time="at")
    source.key_by("word").aggregate(n=hg.sum("v")).write_to(hg.sinks.memory())
    program = source.job.program()
    assert program.steps[0].operator.input_schema.names == ["word", "at", "v"]
    assert program.inputs[0].files.columns == ("word", "at", "v")
    source = stream()
    source.key_by("word").aggregate(n=hg.count(where=pc.field("f") > 1)).write_to(hg.sinks.memory())
    assert source.job.program().steps[0].operator.input_schema.names == SCHEMA.names


def test_a_union_feeds_one_operator_from_every_stream() -> None:
    job = hg.Job("job")
    left, right = job.source(files(), "left"), job.source(files(), "right")
    left.union(right, right.filter(lambda rows: pc.greater(rows["v"], 0))).key_by("word").aggregate(
        n=hg.count()
    ).write_to(hg.sinks.memory())
    program = job.program()
    assert {given.name: list(leaves(given.branches)) for given in program.inputs} == {
        "left": [ToOperator(0)],
        "right": [ToOperator(0), ToOperator(0)],
    }


@pytest.mark.parametrize(
    ("build", "text"),
    [
        pytest.param(
            lambda: hg.Job("a/b"),
            "the name of a job must be a text without a slash, got 'a/b'",
            id="a slash in the name",
        ),
        pytest.param(
            lambda: hg.Job("job", late="ignore"),  # type: ignore[arg-type]
            'late must be "fail", "drop" or "side", got \'ignore\'',
            id="an unknown rule",
        ),
        pytest.param(
            lambda: hg.Job("job", groups=0), "groups must be a whole number, at least 1, got 0", id="no groups"
        ),
        pytest.param(
            lambda: hg.Job("job", groups="8"),  # type: ignore[arg-type]
            "groups must be a whole number, at least 1, got '8'",
            id="key groups in words",
        ),
        pytest.param(
            lambda: stream().key_by("word", "word"),
            "columns of key_by must be different ones, and 'word' is there twice, got ['word', 'word']",
            id="a key column twice",
        ),
        pytest.param(
            lambda: hg.Job("job", slack="soon"),
            "slack must be a duration such as \"10 minutes\", a timedelta or a number of seconds, got 'soon'",
            id="slack that is no duration",
        ),
        pytest.param(
            lambda: hg.Job("job").source([1, 2]),  # type: ignore[arg-type]
            "a source must be a Spark DataFrame or one of headgate.sources, got 'list'",
            id="a source of another kind",
        ),
        pytest.param(
            lambda: stream().job.program(),
            "job 'job' writes nothing: call write_to(sink) on a stream before you start it",
            id="no output",
        ),
        pytest.param(
            lambda: stream().map(lambda rows: rows.select([])).key_by(),
            "the rows of key_by must be rows with columns, got 'rows without any'",
            id="rows without columns",
        ),
        pytest.param(
            lambda: stream().key_by("wrod"),
            "'key_by' needs the column 'wrod', and its rows have word, at, v, f: check the name",
            id="a key column that is not there",
        ),
        pytest.param(
            lambda: stream().key_by("word").aggregate(n=hg.sum("w")),
            "'aggregate' needs the column 'w', and its rows have word, at, v, f: check the name",
            id="an aggregated column that is not there",
        ),
        pytest.param(
            lambda: stream().union(hg.Job("other").source(files())),
            "a union takes streams of one job with equal columns, got ['word', 'at', 'v', 'f'] and "
            "['word', 'at', 'v', 'f']: map one of them first",
            id="a union with another job",
        ),
        pytest.param(
            lambda: stream().union(stream().map(lambda rows: rows.select(["v"]))),
            "a union takes streams of one job with equal columns, got ['word', 'at', 'v', 'f'] and ['v']: map one "
            "of them first",
            id="a union of unequal columns",
        ),
        pytest.param(
            lambda: stream().map("upper(word)"),
            "a Spark expression (map) works on rows that are still in Spark, and these have been through a Python "
            "function: put it before the function, or do the same in a Python function",
            id="a Spark expression after Spark",
        ),
        pytest.param(
            lambda: stream().map(lambda rows: rows, batch="frames"),
            'batch must be "arrow", "pandas" or "polars", got \'frames\'',
            id="an unknown form of batches",
        ),
        pytest.param(
            lambda: (
                stream().write_to(hg.sinks.memory(), name="out").job.source(files(), "b").write_to(print, name="out")
            ),
            "every output of a job must have a name of its own, and 'out' is there twice: pass name= to one of them",
            id="two outputs of one name",
        ),
        pytest.param(
            lambda: twice(stream()),
            "every operator of a job must have a name of its own, and 'words' is there twice: pass name= to one of "
            "them",
            id="two operators of one name",
        ),
        pytest.param(
            lambda: split_feeds(stream()),
            "the keys of 'aggregate0' cannot be split over slots: its results feed another keyed operator; leave out "
            "split=True",
            id="split keys that feed another operator",
        ),
    ],
)
def test_what_a_job_may_not_be(build: Any, text: str) -> None:
    with pytest.raises(JobError) as raised:
        build()
    assert str(raised.value) == text


def twice(source: Any) -> Any:
    for _ in range(2):
        source.key_by("word").process(words, state={"n": 0}, output="word string, n long").write_to(hg.sinks.memory())
    return source.job.program()


def split_feeds(source: Any) -> Any:
    first = source.key_by("word").aggregate(n=hg.count(), split=True, combine_early=False)
    first.key_by("n").aggregate(m=hg.count()).write_to(hg.sinks.memory())
    return source.job.program()


def test_a_map_whose_columns_cannot_be_found_out() -> None:
    with pytest.raises(
        JobError, match=r"^the columns that 'first' returns could not be found out by calling it with no"
    ):
        stream().map(lambda rows: rows["v"][0], name="first")
    mapped = stream().map(lambda rows: rows["v"][0], name="first", schema="v long")
    assert mapped.columns == ["v"]


def test_a_float_is_no_key() -> None:
    with pytest.raises(KeyTypeError, match=r"^key column 'f' has type double, which has no stable hash"):
        stream().key_by("f")


def test_a_sink_must_be_one() -> None:
    with pytest.raises(
        InputError, match=r"^write_to needs a sink of headgate.sinks or a function f\(frame, batch\), got"
    ):
        stream().write_to(5)


def test_a_job_drawn() -> None:
    job = hg.Job("shop", event_time="at", slack="1 minute", late="side", groups=16)
    source = job.source(files(), "orders")
    big = source.filter(lambda rows: pc.greater(rows["v"], 9), name="big")
    counts = big.key_by("word").process(words, state={"n": 0}, output="word string, n long", ttl=60)
    counts.write_to(hg.sinks.parquet("out/words"), name="words")
    counts.key_by("n").aggregate(keys=hg.count(), name="sizes").write_to(hg.sinks.memory(), name="sizes")
    source.key_by("word").aggregate(
        n=hg.count(), name="hot", combine_early=False, split=True
    ).write_to(hg.sinks.memory(), name="hot")  # fmt: skip
    columns = "word string, at timestamp[us, tz=UTC], v int64, f double"
    assert job.explain().splitlines() == [
        "job 'shop': 16 key groups, one Spark job with 2 shuffles per micro-batch",
        "event time 'at', slack 60 s, late rows: side; bad keys: fail",
        f"input 'orders' (files read by the tasks): {columns}",
        "  ├─ filter big (arrow batches)",
        "  │  └─ shuffle by word -> component 1: PerKey 'words'",
        "  │        state: n int64; forgotten after 60 s without rows",
        "  │        ├─ output 'words' -> parquet(out/words)",
        "  │        └─ shuffle by n -> component 2: Aggregation 'sizes' (combined before the shuffle)",
        "  │              state: keys.count int64",
        "  │              └─ output 'sizes' -> memory",
        "  └─ shuffle by word -> component 3: Aggregation 'hot' (hot keys split over slots)",
        "        state: n.count int64",
        "        └─ output 'hot' -> memory",
        "component 1: words, rigid, stateful, by word; allowed moves: disruptive, by reference",
        "component 2: sizes, rigid, stateful, by n; allowed moves: disruptive, by reference",
        "component 3: hot, rigid, stateful, by word; allowed moves: disruptive, by reference",
        "fused by score PA, without rates: no shuffled streams less than one by one",
        "words -> sizes: not in one task: no key column in common",
    ]


def _windows_drawn(text: str) -> list[str]:
    """What explain says of operators and components, without branches and state."""
    return [line.partition("-> component ")[2] or line for line in text.splitlines() if "component " in line]


def test_windows_drawn() -> None:
    words = stream(event_time="at").key_by("word")
    job = words.stream.job
    several = words.window("1 hour", "10 minutes", every="1 minute", offset="30 seconds")
    for how in ({"share": False}, {"share": "auto"}, {"share": "per window"}, {}):
        several.aggregate(n=hg.count(), name=str(how.get("share", "shared")), **how).write_to(hg.sinks.memory())
    words.window("1 day", spans=Spans.END).aggregate(n=hg.count(), until="at", name="day").write_to(hg.sinks.memory())
    words.window("10 minutes").aggregate(n=hg.count(), split=True, name="apart").write_to(hg.sinks.memory())
    both = "windows of 1:00:00 every 0:01:00 from 0:00:30 and windows of 0:10:00 every 0:01:00 from 0:00:30"
    early = "combined before the shuffle"
    assert _windows_drawn(job.explain()) == [
        f"1: WindowedAggregation 'False' ({both}, slices of 0:01:00, nothing kept between them and windows, {early})",
        f"2: WindowedAggregation 'auto' ({both}, slices of 0:01:00, which may change: share=\"auto\", {early})",
        f"3: WindowedAggregation 'per window' ({both}, each computed by itself, {early})",
        f"4: WindowedAggregation 'shared' ({both}, slices of 0:01:00, {early})",
        "5: WindowedAggregation 'day' (windows of 1 day, slices of 1 day, rows last until 'at', in "
        f"windows by the rule END, {early})",
        f"6: Compute 'apart.compute' (partials of slices of 0:10:00, {early})",
        f"7: Consolidate 'apart' (windows of 0:10:00, slices of 0:10:00, split=True, {early})",
        *(
            f"component {number}: {name}, rigid, stateful, by word; allowed moves: disruptive, smooth, by reference"
            for number, name in enumerate(["False", "auto", "per window", "shared"], 1)
        ),
        "component 5: day, rigid, stateful, by word; allowed moves: disruptive, by reference",
        "component 6: apart.compute, flexible, stateful, by word; allowed moves: instant, disruptive, smooth, by "
        "reference",
        "component 7: apart, rigid, stateless, by word; allowed moves: disruptive, smooth, by reference",
    ]


def test_a_job_is_drawn_as_it_runs() -> None:
    words = stream(event_time="at").key_by("word")
    job = words.stream.job
    words.window("20 minutes", every="10 minutes").aggregate(n=hg.count(), split="auto", name="w").write_to(
        hg.sinks.memory()
    )
    words.window("1 hour").aggregate(n=hg.count(), share="auto", name="h").write_to(hg.sinks.memory())
    program = job.program()
    assert drawn(job, program.components, frozenset()) == job.explain()
    built = job.explain().splitlines()
    assert built[-1] == "w.compute -> w: in one task"
    assert "component 1: w.compute + w, rigid, stateful, by word; allowed moves: disruptive, by reference" in built
    now = drawn(job, program.taken_apart(program.pairs[0]), frozenset({2})).splitlines()
    assert now[0] == "job 'job': 1024 key groups, one Spark job with 2 shuffles per micro-batch"
    assert now[-1] == "w.compute -> w: not in one task: the query took them apart"
    assert (
        "component 1: w.compute, flexible, stateful, by word; allowed moves: instant, disruptive, smooth, by reference"
        in now
    )
    assert "component 2: w, rigid, stateless, by word; allowed moves: disruptive, smooth, by reference" in now
    assert any("(windows of 1:00:00, each computed by itself, which may change" in line for line in now)
    apart = job.program().arranged((0, 1, 2))
    assert apart.put_together(apart.pairs[0]) == program.components


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("10 minutes", 600_000_000),
        ("1 hour 30 min", 5_400_000_000),
        ("1.5s", 1_500_000),
        ("250 MS", 250_000),
        ("7 us", 7),
        ("2 weeks", 1_209_600_000_000),
        (3, 3_000_000),
        (0.25, 250_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
        (timedelta(days=36_500_000), 36_500_000 * 86_400_000_000),
    ],
)
def test_durations_as_people_write_them(value: Any, micros: int) -> None:
    assert micros_of(value, "ttl") == micros


@pytest.mark.parametrize("value", [1e30, 10**400, timedelta.max, "40000000 days"])
def test_durations_that_are_too_long_for_times(value: Any) -> None:
    with pytest.raises(JobError) as raised:
        micros_of(value, "ttl")
    assert str(raised.value) == f"ttl must be at most 100,000 years, got {value!r}"


@pytest.mark.parametrize(
    "value", ["", "  ", "minutes", "5 parsecs", "5", -1, True, None, "1 hour x", timedelta(-1), float("inf")]
)
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(JobError) as raised:
        micros_of(value, "ttl")
    assert str(raised.value) == (
        f'ttl must be a duration such as "10 minutes", a timedelta or a number of seconds, got {value!r}'
    )


def _chain(**how: Any) -> hg.Job:
    """Visits by word and number, then by word, behind a function that nobody can look into."""
    job = hg.Job("chain", groups=8, **how)
    visits = job.source(files(), "orders").key_by("word", "v").aggregate(n=hg.count(), name="visits")
    same = visits.filter(lambda rows: pc.greater(rows["n"], 1), name="often")
    same.key_by("v", "word").aggregate(most=hg.max("n"), name="again").write_to(hg.sinks.memory())
    mapped = visits.map(lambda rows: rows, keeps=["word"], name="kept")
    mapped.key_by("word").aggregate(pages=hg.count(), name="words").write_to(hg.sinks.memory())
    visits.map(lambda rows: rows, name="opaque").key_by("word").aggregate(
        n=hg.count(), name="lost").write_to(hg.sinks.memory())  # fmt: skip
    return job


def test_operators_with_the_same_keys_are_fused() -> None:
    job = _chain()
    own = job.components()
    assert own.component == (0, 0, 1, 2)
    assert own.placed_by == ((), ("word", "v"), (), ()), "columns in the order of the first one"
    assert [step.depth for step in job.program().steps] == [1, 1, 2, 2]
    assert own.reasons == (
        "visits -> again: in one task",
        'visits -> words: not in one task: keys differ; fuse() or fusion="auto" would run both in one task, placed by '
        "word",
        'visits -> lost: not in one task: keys differ; fuse() or fusion="auto" would run both in one task, placed by '
        "word",
    )
    told = job.explain().splitlines()
    assert "component 1: visits + again, rigid, stateful, by v, word; allowed moves: disruptive, by reference" in told
    assert "fused by score PA, without rates: 1 shuffled stream less than one by one" in told
    assert any("in the same task, by v, word -> component 1: Aggregation 'again'" in line for line in told)


def test_automatic_fusion_places_a_component_by_what_is_common() -> None:
    job = _chain(fusion="auto")
    own = job.components()
    assert own.component == (0, 0, 0, 1)
    assert own.placed_by == (("word",), ("word",), (), ())
    assert own.reasons[-1] == "visits -> lost: not in one task: 'opaque' may change word: say keeps= if it does not"
    assert job.identity()["operators"][0]["placed by"] == ["word"]
    program = job.program()
    assert not program.pinnable(0)
    assert program.pinnable(3)


def test_fusion_by_rate_takes_the_busiest_stream_first() -> None:
    job = hg.Job("rates", fusion="auto", rates={"pairs": {"left": 1, "right": 50}})
    pairs = job.source(files(), "orders").key_by("word", "v").aggregate(n=hg.count(), name="pairs")
    pairs.key_by("word").aggregate(n=hg.count(), name="left").write_to(hg.sinks.memory())
    pairs.key_by("v").aggregate(n=hg.count(), name="right").write_to(hg.sinks.memory())
    own = job.components()
    assert own.component == (0, 1, 0)
    assert own.placed_by == (("v",), (), ())
    assert "fused by score COMM, by measured rates: 1 shuffled stream less than one by one" in job.explain()


def test_fusion_by_hand() -> None:
    assert _chain(fusion="off").components().component == (0, 1, 2, 3)
    job = _chain(fusion="off")
    job.fuse("visits", "words")
    assert job.components().component == (0, 1, 0, 2)
    job = _chain()
    job.keep_apart("visits", "again")
    assert job.components().component == (0, 1, 2, 3)
    job = _chain()
    job.fuse("visits", "lost")
    with pytest.raises(JobError, match="visits"):
        job.components()
    with pytest.raises(JobError, match=r"^fusion must be one of 'same keys', 'auto', 'off', got 'all'"):
        hg.Job("x", fusion="all")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="at least two operators"):
        job.fuse("visits")
    with pytest.raises(JobError, match=r"'keeps of map' needs the column 'z'"):
        stream().map(lambda rows: rows, keeps=["z"])


def test_split_keys_keep_an_operator_by_itself() -> None:
    job = hg.Job("split")
    first = job.source(files(), "orders").key_by("word").aggregate(n=hg.count(), name="first")
    first.key_by("word").aggregate(n=hg.count(), name="second", combine_early=False, split=True).write_to(
        hg.sinks.memory()
    )
    own = job.components()
    assert own.component == (0, 1)
    assert "hot keys are split over slots" in own.reasons[0]


def test_rates_of_a_stream_without_rows_and_of_an_unknown_one() -> None:
    def job(rates: dict[str, dict[str, float]]) -> hg.Job:
        made = hg.Job("rates", fusion="auto", rates=rates)
        pairs = made.source(files(), "orders").key_by("word", "v").aggregate(n=hg.count(), name="pairs")
        pairs.key_by("word").aggregate(n=hg.count(), name="left").write_to(hg.sinks.memory())
        pairs.key_by("v").aggregate(n=hg.count(), name="right").write_to(hg.sinks.memory())
        return made

    assert job({"pairs": {"right": 50}}).components().component == (0, 1, 0), "nothing went to the left"
    with pytest.raises(JobError, match=r"^rates names the operator 'rihgt', and the job has pairs, left, right"):
        job({"pairs": {"rihgt": 50}}).components()
    unmeasured = job({}).components()
    assert unmeasured.component == (0, 0, 1), "without rates the first of equals"
    assert job({"pairs": {"left": 0.0}}).components() == unmeasured, "a query that has seen nothing says nothing"


def test_what_windows_cannot_be_is_refused_and_leaves_the_job_as_it_was() -> None:
    job = hg.Job("windows", event_time="at")
    words = job.source(files(), "orders").key_by("word")
    for windows, how in (
        (words.session("1 minute"), {"split": True}),
        (words.count_window(5), {"until": "at"}),
        (words.session("1 minute"), {"share": "per window"}),
        (words.window("1 minute", lateness="5 seconds"), {"split": True}),
        (words.window("1 minute", lateness="5 seconds"), {"split": True, "share": "auto"}),
        (words.window("1 minute"), {"split": True, "share": "never"}),
        (words.window("1 minute"), {"share": "never"}),
        (words.window("1 minute", spans=Spans.EACH), {}),
    ):
        with pytest.raises(JobError, match="must be"):
            windows.aggregate(n=hg.count(), **how)
        assert not job._steps


def test_spans_are_for_rows_that_have_an_end() -> None:
    words = stream(event_time="at").key_by("word")
    each = words.window("1 minute", spans=Spans.EACH)
    with pytest.raises(
        JobError, match=r"^spans must be left out where aggregate\(until=\.\.\.\) does not say what rows"
    ):
        each.aggregate(n=hg.count())
    with pytest.raises(JobError, match="spans must be left out where"):
        words.compute("1 minute", n=hg.count()).consolidate(Tumbling("1 minute", spans=Spans.END))
    with pytest.raises(JobError, match=r"^spans must be one of headgate.windows.Spans, got 'each'"):
        words.window("1 minute", spans="each")
    with pytest.raises(JobError, match=r"^every, offset, lateness and spans must be left out beside Tumbling"):
        words.window(Tumbling("1 minute"), spans=Spans.EACH)
    each.aggregate(n=hg.count(), until="at", name="lasting").write_to(hg.sinks.memory())
    (operator,) = [step.operator for step in words.stream.job.program().steps if step.operator.name == "lasting"]
    assert operator.spans is Spans.EACH


def test_a_service_time_is_for_an_operator_that_is_there(tmp_path: Path) -> None:
    job = hg.Job("times")
    job.source(files(), "orders").key_by("word").aggregate(n=hg.count(), name="words").write_to(hg.sinks.memory())
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(JobError, match=r"^service_time names the operator 'wrods', and the job has words: check"):
        job.start(None, checkpoint=str(checkpoint), service_time={"wrods": "1 ms"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^service_time of 'words' must be a duration"):
        job.start(None, checkpoint=str(checkpoint), service_time={"words": "soon"})  # type: ignore[arg-type]
    assert not checkpoint.exists(), "refused before anything is claimed"


def _rows_of(schema: pa.Schema, **options: Any) -> Any:
    job = hg.Job("rows", **options)
    return job, job.source(FileSource(None, FileFormat("parquet", schema)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.bool_()], ids=str)
def test_an_event_time_that_is_no_time_is_refused(kind: pa.DataType) -> None:
    job, rows = _rows_of(pa.schema([("k", pa.int64()), ("at", kind)]), event_time="at")
    rows.key_by("k").window("1 hour").aggregate(n=hg.count(), name="w").write_to(hg.sinks.memory())
    told = (
        rf"^the event time 'at' of 'w' must be a timestamp, a date or a whole number of microseconds .*, got '{kind}'$"
    )
    with pytest.raises(JobError, match=told):
        job.program()


def test_a_result_with_the_name_of_an_option_is_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("split", pa.int64()), ("at", pa.int64())])
    _, rows = _rows_of(schema, event_time="at")
    keyed = rows.key_by("k")
    builds: list[Callable[[], Any]] = [
        lambda: keyed.aggregate(split=hg.sum("split")),
        lambda: keyed.window("1 hour").aggregate(split=hg.sum("split")),
        lambda: keyed.compute("1 hour", name=hg.sum("split")),
    ]
    for refused in builds:
        with pytest.raises(JobError, match=r"^a result named '(split|name)' must be named otherwise, .* got 'sum'$"):
            refused()


def test_windows_of_too_many_slices_are_refused() -> None:
    _, rows = _rows_of(pa.schema([("k", pa.int64()), ("at", pa.int64())]), event_time="at")
    keyed = rows.key_by("k")
    told = r"^the slices that a window is made of must be at most 20,000, got 9600000: choose lengths, hops and offsets"
    with pytest.raises(JobError, match=told):
        keyed.window("1 day", every="333 milliseconds").aggregate(n=hg.count())
    keyed.window("1 day", every="1 minute").aggregate(n=hg.count())


def test_a_checkpoint_remembers_the_lateness_of_windows() -> None:
    _, rows = _rows_of(pa.schema([("k", pa.int64()), ("at", pa.int64())]), event_time="at")
    for lateness in ("0 seconds", "5 minutes"):
        rows.key_by("k").window("1 hour", lateness=lateness).aggregate(n=hg.count())
    assert [told.get("lateness") for told in rows.job.identity()["operators"]] == [None, "0:05:00"]
