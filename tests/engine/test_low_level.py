"""The low-level form of windows through a job: compute and consolidate, apart and together, in the configurations of
the paper's figure 5; ways to share, to count rows that last, and to move; how many keys a consolidate merges."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate import control
from headgate.engine import query
from headgate.engine.orders import SlotReport
from headgate.engine.program import FileFormat
from headgate.errors import JobError
from headgate.operators import Aggregation, Compute, Consolidate, WindowedAggregation
from headgate.sources import FileSource
from headgate.windows import Hopping, Spans, Tumbling

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
LASTING = SCHEMA.append(pa.field("until", pa.timestamp("us", "UTC")))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KEYS = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
TOTAL: dict[str, Any] = {"n": hg.count(), "total": hg.sum("v")}

Result = tuple[str, int, int, int, int]
"""Key, start and end of the window in minutes, count, sum."""


def _minute(minutes: float) -> dt.datetime:
    return EPOCH + dt.timedelta(minutes=minutes)


def _source(schema: pa.Schema = SCHEMA, **options: Any) -> Any:
    job = hg.Job("job", groups=8, **{"event_time": "at", **options})
    return job.source(FileSource(None, FileFormat("parquet", schema)), "in")  # type: ignore[arg-type]


def _rows(*rows: tuple[str, int, float]) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "at": _minute(at)} for key, value, at in rows]


def _results(bench: Any, number: int, output: str = "output0") -> list[Result]:
    minute = dt.timedelta(minutes=1)
    return sorted(
        (row["k"], (row["window_start"] - EPOCH) // minute, (row["window_end"] - EPOCH) // minute, row["n"],
         row["total"])
        for row in bench.results(output, number)
    )  # fmt: skip


def _journal(bench: Any, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in bench.driver.checkpoint.journal() if entry["kind"] == kind]


def _moved(bench: Any, component: int = 0) -> None:
    """Every key group of a component to the next slot, at the next boundary."""
    together = bench.driver.together

    def elsewhere(assignment: Any) -> Any:
        planned = together.planned(assignment)
        own = planned.groups[component * 8 : component * 8 + 8].tolist()
        for slot in range(assignment.slots):
            mine = [group for group in range(8) if (own[group] + 1) % assignment.slots == slot]
            planned = control.moved(planned, slot, groups=mine, operator=component)
        return together.spread(planned)

    bench.change(elsewhere)


# minutes           0         5         10        15        20
# rows              a1  b2    a3             a4        b5
# partials of 5     |---------|---------|---------|---------|
# windows of 10     |-------------------|-------------------|
# 10, every 5                 |-------------------|
HALF_HOUR = _rows(("ann", 1, 0), ("bob", 2, 2), ("ann", 3, 5), ("ann", 4, 12.5), ("bob", 5, 17.5))
BY_TEN = [("ann", 0, 10, 2, 4), ("ann", 10, 20, 1, 4), ("bob", 0, 10, 1, 2), ("bob", 10, 20, 1, 5)]
EVERY_FIVE = sorted(
    [
        *BY_TEN,
        ("ann", -5, 5, 1, 1), ("ann", 5, 15, 2, 7), ("bob", -5, 5, 1, 2), ("bob", 15, 25, 1, 5),
    ]
)  # fmt: skip


def _all_of_it(bench: Any, rows: Sequence[dict[str, Any]] = HALF_HOUR, output: str = "output0") -> list[Result]:
    """The results of one batch per row, with key groups of all components on the move, and of the end of the input."""
    for number, row in enumerate(rows):
        bench.batch([row])
        _moved(bench, number % len(bench.driver.together.components))
    bench.batch([], flush=True)
    return sorted(one for number in range(bench.next) for one in _results(bench, number, output))


def test_figure_5_1_a_consolidate_merges_the_partials_of_a_compute(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    partials = stream.key_by("k").compute("5 minutes", **TOTAL)
    assert partials.rows.columns == ["k", "__hop", "__start", "n.count", "total.sum"]
    windows = partials.consolidate("10 minutes", every="5 minutes").write_to(hg.sinks.memory())
    assert windows.columns == ["k", "window_start", "window_end", "n", "total"]
    compute, consolidate = stream.job.program().steps
    assert isinstance(compute.operator, Compute)
    assert isinstance(consolidate.operator, Consolidate)
    assert (compute.operator.name, consolidate.operator.name) == ("compute0", "consolidate1")
    assert (compute.component, consolidate.component) == (0, 0), "in one task, like all operators with the same keys"
    bench = engine.of_job(tmp_path, stream.job)
    assert _all_of_it(bench) == EVERY_FIVE
    assert {entry["details"]["way"] for entry in _journal(bench, "migration")} == {"manifest"}


def test_figure_5_1_a_compute_apart_from_its_consolidate_moves_without_its_state(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    partials = stream.key_by("k").compute("5 minutes", name="sums", **TOTAL)
    partials.consolidate("10 minutes", every="5 minutes", name="windows").write_to(hg.sinks.memory())
    stream.job.keep_apart("sums", "windows")
    bench = engine.of_job(tmp_path, stream.job, {"migration": "instant"})
    assert [step.depth for step in bench.program.steps] == [1, 2]
    assert _all_of_it(bench) == EVERY_FIVE
    ways = {(entry["operator"], entry["details"]["way"]) for entry in _journal(bench, "migration")}
    assert ways == {("sums", "instant"), ("windows", "manifest")}


def test_figure_5_1_one_compute_feeds_several_consolidates(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    partials = stream.key_by("k").compute("5 minutes", **TOTAL)
    partials.consolidate("10 minutes", name="ten").write_to(hg.sinks.memory(), "ten")
    partials.consolidate(Hopping("10 minutes", "5 minutes"), name="hop").write_to(hg.sinks.memory(), "hop")
    partials.consolidate("10 minutes", "20 minutes", share=False, name="two").write_to(hg.sinks.memory(), "two")
    stream.job.keep_apart("compute0", "two")
    bench = engine.of_job(tmp_path, stream.job)
    assert _all_of_it(bench, output="ten") == BY_TEN
    numbers = range(bench.next)
    assert sorted(one for number in numbers for one in _results(bench, number, "hop")) == EVERY_FIVE
    assert sorted(one for number in numbers for one in _results(bench, number, "two")) == sorted(
        [*BY_TEN, ("ann", 0, 20, 3, 8), ("bob", 0, 20, 2, 7)]
    )


@pytest.mark.parametrize("share", ["auto", "per window"])
def test_figure_5_1_or_every_window_is_computed_by_itself(engine: Any, tmp_path: Path, share: Any) -> None:
    """The figure's second way; in headgate an operator that is compute and consolidate in one has it."""
    stream = _source()
    windows = stream.key_by("k").window("10 minutes", every="5 minutes")
    windows.aggregate(share=share, **TOTAL).write_to(hg.sinks.memory())
    (step,) = stream.job.program().steps
    assert (step.per_window, step.decides_sharing) == (share == "per window", share == "auto")
    bench = engine.of_job(tmp_path, stream.job)
    bench.batch(HALF_HOUR)
    hops = {piece[0] for refs in bench.last.layout.owners.values() for ref in refs for piece in ref.run.pieces}
    assert (min(hops) < -1) == (share == "per window"), "partials of windows, or of slices"
    bench.batch([], flush=True)
    assert _results(bench, 1) == EVERY_FIVE


def test_figure_5_2_a_compute_before_a_compute_is_eager_and_moves_with_its_state(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    sums = stream.key_by("k").aggregate(name="sums", **TOTAL)
    assert isinstance(stream.job._steps[0].operator, Aggregation)

    def initial(rows: Any) -> pa.Table:
        return pa.table({"letter": pc.utf8_slice_codeunits(rows["k"], 0, 1), "total": rows["total"]})

    sums.write_to(hg.sinks.memory(), "sums")
    sums.map(initial).key_by("letter").aggregate(name="most", most=hg.max("total")).write_to(hg.sinks.memory(), "most")
    bench = engine.of_job(tmp_path, stream.job)
    assert bench.batch(_rows(("ann", 1, 0), ("abe", 2, 0))) == {
        "sums": [{"k": "abe", "n": 1, "total": 2}, {"k": "ann", "n": 1, "total": 1}],
        "most": [{"letter": "a", "most": 2}],
    }
    _moved(bench)
    assert bench.batch(_rows(("ann", 4, 0))) == {
        "sums": [{"k": "ann", "n": 2, "total": 5}],
        "most": [{"letter": "a", "most": 5}],
    }
    (told,) = [entry for entry in _journal(bench, "migration") if entry["operator"] == "sums"]
    assert told["details"]["way"] == "manifest"
    assert told["details"]["refused"]["instant"] == "rigid: sums needs all of a key in one place"


@pytest.mark.parametrize("fusion", ["same keys", "off"])
def test_figure_5_3_windows_of_a_consolidate_are_partials_of_the_next(engine: Any, tmp_path: Path, fusion: Any) -> None:
    stream = _source(fusion=fusion)
    partials = stream.key_by("k").compute("1 minute", offset="30 seconds", name="minutes", **TOTAL)
    tens = partials.consolidate_partially("5 minutes", offset="30 seconds", name="fives")
    tens.consolidate("10 minutes", every="5 minutes", offset="30 seconds", name="tens").write_to(hg.sinks.memory())
    bench = engine.of_job(tmp_path, stream.job)
    assert [step.depth for step in bench.program.steps] == ([1, 1, 1] if fusion == "same keys" else [1, 2, 3])
    late = [{**row, "at": row["at"] + dt.timedelta(seconds=30)} for row in HALF_HOUR]
    assert _all_of_it(bench, late) == EVERY_FIVE, "half a minute later, all of it"
    starts = {row["window_start"].second for number in range(bench.next) for row in bench.results("output0", number)}
    assert starts == {30}


def test_figure_5_4_rows_of_a_map_go_on_as_soon_as_they_are_there(engine: Any, tmp_path: Path) -> None:
    def doubled(rows: Any) -> pa.Table:
        return rows.set_column(1, "v", pc.multiply(rows["v"], 2))

    stream = _source()
    mapped = stream.map(doubled, keeps=["k", "at"])
    mapped.write_to(hg.sinks.memory(), "map")
    mapped.key_by("k").aggregate(name="sums", **TOTAL).write_to(hg.sinks.memory(), "compute")
    mapped.key_by("k").compute("5 minutes", **TOTAL).consolidate("5 minutes").write_to(hg.sinks.memory(), "windows")
    bench = engine.of_job(tmp_path, stream.job)
    out = bench.batch(_rows(("ann", 1, 0), ("ann", 2, 1)))
    assert [row["v"] for row in out["map"]] == [2, 4]
    assert out["compute"] == [{"k": "ann", "n": 2, "total": 6}]
    assert out["windows"] == [], "these wait for the watermark, rows did not"
    bench.batch([], flush=True)
    assert _results(bench, 1, "windows") == [("ann", 0, 5, 2, 6)]


@pytest.mark.parametrize("split", [True, "auto"])
def test_split_windows_are_a_compute_and_a_consolidate(engine: Any, tmp_path: Path, split: Any) -> None:
    stream = _source()
    windows = stream.key_by("k").window("10 minutes", every="5 minutes", offset="2 minutes")
    windows.aggregate(split=split, name="sums", **TOTAL).write_to(hg.sinks.memory())
    program = stream.job.program()
    assert [step.operator.name for step in program.steps] == ["sums.compute", "sums"]
    assert [step.depth for step in program.steps] == ([1, 2] if split is True else [1, 1])
    assert [(pair.compute, pair.consolidate, pair.auto) for pair in program.pairs] == [(0, 1, split == "auto")]
    bench = engine.of_job(tmp_path, stream.job)
    later = [{**row, "at": row["at"] + dt.timedelta(minutes=2)} for row in HALF_HOUR]
    assert _all_of_it(bench, later) == [(key, start + 2, end + 2, n, total) for key, start, end, n, total in EVERY_FIVE]


def test_halves_whose_moves_pause_too_long_are_taken_apart(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    windows = stream.key_by("k").window("10 minutes", every="5 minutes")
    windows.aggregate(split="auto", name="sums", **TOTAL).write_to(hg.sinks.memory())
    bench = engine.of_job(tmp_path, stream.job, {"migration": "copy", "max_pause_seconds": 1e-9})
    for number in range(8):
        bench.batch(_rows(*((key, 1, 5 * number) for key in KEYS)))
        _moved(bench)
    told = [entry for entry in _journal(bench, "fused") if "moves would pause it for" in entry["reason"]]
    assert told[0]["details"]["now"] == "split"
    bench.batch([], flush=True)
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == sorted(
        (key, start, start + 10, n, n)
        for key in KEYS
        for start, n in [(-5, 1), *((5 * number, 2) for number in range(7)), (35, 1)]
    )


@pytest.mark.parametrize(
    ("migration", "way", "reason"),
    [
        ("auto", "manifest", "by reference: state changes owner in a store that all slots read;"),
        ("manifest", "manifest", "by reference: asked for;"),
        ("instant", "manifest", "by reference: instant was asked for, and cannot be;"),
        ("smooth", "smooth", "smooth: asked for;"),
        ("copy", "copy", "disruptive: asked for;"),
    ],
)
def test_whole_windows_move_in_the_way_that_is_asked_for(
    engine: Any, tmp_path: Path, migration: str, way: str, reason: str
) -> None:
    stream = _source()
    stream.key_by("k").window("10 minutes").aggregate(name="sums", **TOTAL).write_to(hg.sinks.memory())
    bench = engine.of_job(tmp_path, stream.job, {"migration": migration})
    bench.batch(_rows(*((key, 1, 1) for key in KEYS)))
    _moved(bench)
    bench.batch(_rows(*((key, 2, 2) for key in KEYS)))
    (told,) = _journal(bench, "migration")
    assert told["details"]["way"] == way
    assert told["reason"].startswith(f"8 key groups to move, {reason}")
    assert (bench.told[-1]["copied_bytes"] > 0) == (way == "copy")
    assert (len(bench.last.handovers) > 0) == (way == "smooth")
    bench.batch(_rows(*((key, 4, 12) for key in KEYS)))
    bench.batch([], flush=True)
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == sorted([*((key, 0, 10, 2, 3) for key in KEYS), *((key, 10, 20, 1, 4) for key in KEYS)])


def test_options_of_a_start_reach_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _source(slack="2 seconds")
    stream.key_by("k").window("10 minutes").aggregate(split="auto", **TOTAL).write_to(hg.sinks.memory())
    monkeypatch.setattr(query, "_frame", lambda *_: (None, False))
    monkeypatch.setattr(query.Query, "_begin", lambda *_: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=5))
    running = stream.job.start(spark, checkpoint=str(tmp_path / "one"), migration="smooth", max_pause="50 ms")
    options = running._driver.options
    assert (options.migration, options.max_pause_seconds, options.slack_micros) == ("smooth", 0.05, 2_000_000)
    assert options.slots == 5
    assert running._driver.splitting.max_pause_seconds == 0.05
    endless = stream.job.start(spark, checkpoint=str(tmp_path / "two"))._driver.options
    assert (endless.migration, endless.max_pause_seconds) == ("auto", float("inf"))
    with pytest.raises(JobError) as refused:
        stream.job.start(spark, checkpoint=str(tmp_path / "three"), migration="teleport")
    assert str(refused.value) == (
        "migration must be one of 'auto', 'manifest', 'copy', 'smooth', 'instant', got 'teleport'"
    )
    with pytest.raises(JobError, match="max_pause must be"):
        stream.job.start(spark, checkpoint=str(tmp_path / "three"), max_pause="soon")


# windows of 10     |-------------------|-------------------|
# minutes           0         5         10        15        20
# first             [===]                                         1, in A whatever the rule
# second                      [=========)                         4, from 5 to 10: it ends with A
# third                             [=========)                   2, from 8 to 13
LASTS = [("ann", 1, 0, 2), ("ann", 4, 5, 10), ("ann", 2, 8, 13)]


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        (Spans.START, [("ann", 0, 10, 3, 7)]),
        (Spans.END, [("ann", 0, 10, 2, 5), ("ann", 10, 20, 1, 2)]),
        (Spans.EACH, [("ann", 0, 10, 3, 7), ("ann", 10, 20, 1, 2)]),
        (Spans.WITHIN, [("ann", 0, 10, 2, 5)]),
    ],
)
@pytest.mark.parametrize("share", [True, False, "auto", "per window"])
def test_rows_that_last_are_in_the_windows_that_the_rule_says(
    engine: Any, tmp_path: Path, spans: Spans, wanted: list[Result], share: Any
) -> None:
    stream = _source(LASTING)
    windows = stream.key_by("k").window(Tumbling("10 minutes", spans=spans))
    windows.aggregate(share=share, until="until", **TOTAL).write_to(hg.sinks.memory())
    (step,) = stream.job.program().steps
    assert isinstance(step.operator, WindowedAggregation)
    assert step.operator.input_schema.names == ["k", "v", "at", "until"]
    assert step.per_window == (share == "per window" or spans in (Spans.EACH, Spans.WITHIN))
    assert step.decides_sharing == (share == "auto" and spans in (Spans.START, Spans.END))
    bench = engine.of_job(tmp_path, stream.job)
    for key, value, first, last in LASTS:
        bench.batch([{"k": key, "v": value, "at": _minute(first), "until": _minute(last)}])
        _moved(bench)
    bench.batch([], flush=True)
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == wanted


def _metered(bench: Any, operator: int = 1) -> list[int]:
    """Of each batch to come, how many keys of pieces the slots say they merged for an operator."""
    run_tasks, merged = bench.driver.run_tasks, []

    def run(frame: Any, orders: Any) -> Any:
        reports = run_tasks(frame, orders)
        own = [one for one in reports if isinstance(one, SlotReport) and one.operator == operator]
        merged.append(sum(one.merged for one in own))
        return reports

    bench.driver.run_tasks = run
    return merged


HOUR = ("5 minutes", "10 minutes", "15 minutes", "20 minutes")


def _consolidated(engine: Any, root: Path, *, share: bool = True, apart: bool = False, slots: int = 3) -> Any:
    """Section 6.1: partials of a minute, windows of 5, 10, 15 and 20 minutes."""
    stream = _source()
    partials = stream.key_by("k").compute("1 minute", name="minutes", **TOTAL)
    partials.consolidate(*HOUR, share=share, name="windows").write_to(hg.sinks.memory())
    if apart:
        stream.job.keep_apart("minutes", "windows")
    operator = stream.job.program().steps[1].operator
    assert isinstance(operator, Consolidate)
    assert not any(hop.helper for hop in operator.slicing.hops), "the paper has none, and they would not pay here"
    return engine.of_job(root, stream.job, slots=slots)


@pytest.mark.parametrize("apart", [False, True], ids=["in one task", "apart"])
@pytest.mark.parametrize(("share", "merges"), [(True, 86), (False, 240)], ids=["shared", "naive"])
@pytest.mark.parametrize("at_once", [False, True], ids=["a batch a minute", "all at once"])
def test_the_papers_hour_takes_86_consolidations_and_240_naively(
    engine: Any, tmp_path: Path, share: bool, merges: int, apart: bool, at_once: bool
) -> None:
    bench = _consolidated(engine, tmp_path, share=share, apart=apart)
    merged = _metered(bench)
    hour = _rows(*(("ann", 1, minute) for minute in range(60)))
    for rows in [hour] if at_once else [[row] for row in hour]:
        bench.batch(rows)
        if not at_once and len(merged) % 7 == 0:
            _moved(bench)
    bench.batch([], flush=True)
    assert sum(merged) == merges
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == sorted(
        ("ann", start, start + length, length, length) for length in (5, 10, 15, 20) for start in range(0, 60, length)
    )


# minutes           0         5         10        15        20
# few change        abcd      abcd      abcd      efgh            10 + 10 has 4 + 8 keys, 15 + 5 has 4 + 4
# halves            abcd      abcd      efgh      efgh            10 + 10 has 4 + 4 keys, 15 + 5 has 8 + 4
@pytest.mark.parametrize(
    ("quarters", "twenty"),
    [
        pytest.param([KEYS[:4], KEYS[:4], KEYS[:4], KEYS[4:]], 4 + 4, id="15 and 5 have fewer keys"),
        pytest.param([KEYS[:4], KEYS[:4], KEYS[4:], KEYS[4:]], 4 + 4, id="10 and 10 have fewer keys"),
        pytest.param([KEYS[:4], KEYS[:4], KEYS[4:6], KEYS[6:]], 4 + 4, id="equal"),
        pytest.param([KEYS[:2], KEYS[2:4], KEYS[4:6], KEYS[6:]], 8, id="every way has all keys"),
    ],
)
def test_a_window_is_made_of_the_pieces_that_have_fewest_keys(
    engine: Any, tmp_path: Path, quarters: list[list[str]], twenty: int
) -> None:
    bench = _consolidated(engine, tmp_path, slots=1)
    merged = _metered(bench)
    for minute in range(20):
        bench.batch(_rows(*((key, 1, minute) for key in quarters[minute // 5])))
    bench.batch(_rows(("zoe", 1, 20)))
    bench.batch([])  # closes [15, 20), [10, 20) and [0, 20)
    first, second, third, fourth = map(set, quarters)
    slices, ten = 5 * len(fourth), len(third) + len(fourth)
    by_tens = len(first | second) + len(third | fourth)
    by_fifteen = len(first | second | third) + len(fourth)
    assert min(by_tens, by_fifteen) == twenty
    assert merged[-1] == slices + ten + twenty
    made = {one[0]: one[3] for one in _results(bench, 21) if one[1:3] == (0, 20)}
    assert made == {key: 5 * sum(key in quarter for quarter in quarters) for key in KEYS}
