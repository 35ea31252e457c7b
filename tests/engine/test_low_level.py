"""The low-level form of windows through a job: compute and consolidate, apart and together, in the configurations of
the paper's figure 5; ways to share, to count rows that last, and to move; how many keys a consolidate merges."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate import control
from headgate.engine import query, starting
from headgate.engine.drawing import drawn
from headgate.engine.orders import RouteReport, SlotReport
from headgate.engine.program import FileFormat
from headgate.errors import JobError
from headgate.operators import Aggregation, Compute, Consolidate, WindowedAggregation, direct
from headgate.sources import FileSource
from headgate.windows import SLICE, Hopping, Spans, Tumbling

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
    """The figure's second way, in an operator that is compute and consolidate in one."""
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


def _hops(bench: Any, operator: int) -> set[int]:
    """The hops of the pieces that an operator holds."""
    refs = [ref for slot in range(bench.slots) for ref in bench.last.layout.refs(operator, slot)]
    return {hop for ref in refs for hop, _, _ in ref.run.pieces}


def _in_halves(form: str, share: Any, **options: Any) -> Any:
    """A job with windows of 10 minutes every 5 in two halves, "sums.compute" and "sums", as either form says it."""
    stream = _source(**options)
    if form == "high level":
        windows = stream.key_by("k").window("10 minutes", every="5 minutes")
        made = windows.aggregate(split=True, share=share, name="sums", **TOTAL)
    else:
        partials = stream.key_by("k").compute("5 minutes", name="sums.compute", **TOTAL)
        made = partials.consolidate("10 minutes", every="5 minutes", share=share, name="sums")
        stream.job.keep_apart("sums.compute", "sums")
    made.write_to(hg.sinks.memory())
    return stream.job


@pytest.mark.parametrize("form", ["high level", "low level"])
@pytest.mark.parametrize("share", ["auto", "per window"])
def test_figure_5_1_or_a_compute_computes_every_window_by_itself(
    engine: Any, tmp_path: Path, form: str, share: Any
) -> None:
    job = _in_halves(form, share)
    compute, consolidate = job.program().steps
    assert isinstance(compute.operator, Compute)
    assert isinstance(consolidate.operator, Consolidate)
    assert (compute.per_window, compute.decides_sharing) == (share == "per window", share == "auto")
    assert (consolidate.per_window, consolidate.decides_sharing) == (False, False)
    assert [step.depth for step in job.program().steps] == [1, 2]
    bench = engine.of_job(tmp_path, job, {"migration": "instant"})
    merged = _metered(bench)
    bench.batch(HALF_HOUR[:3])
    assert _hops(bench, 0) == ({direct(0)} if share == "per window" else {SLICE})
    bench.batch(HALF_HOUR[3:])
    bench.batch([])
    assert _results(bench, 1) == [one for one in EVERY_FIVE if one[2] == 5], "the watermark is at 5:00"
    assert _results(bench, 2) == [one for one in EVERY_FIVE if 5 < one[2] <= 15], "and at 17:30"
    if share == "per window":
        assert _hops(bench, 1) == set(), "each window came whole, and nothing has to be kept"
        assert merged == [0, 2, 3], "each result once: [-5, 5) of both; [0, 10) of both, [5, 15) of ann"
    else:
        assert _hops(bench, 1) == {SLICE}, "slices that later windows have in common"
    bench.batch([], flush=True)
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == EVERY_FIVE


@pytest.mark.parametrize("form", ["high level", "low level"])
def test_figure_5_1_a_consolidate_merges_the_parts_of_a_window_that_an_instant_move_left(
    engine: Any, tmp_path: Path, form: str
) -> None:
    bench = engine.of_job(tmp_path, _in_halves(form, "per window"), {"migration": "instant"})
    for minute in (1, 2, 3):
        bench.batch(_rows(*((key, 10**minute, minute) for key in KEYS)))
        _moved(bench)
    assert bench.told[-1]["left_behind_rows"] > 0, "each key has a part of [-5, 5) and of [0, 10) in several slots"
    held = [{hop for ref in bench.last.layout.refs(0, slot) for hop, _, _ in ref.run.pieces} for slot in range(3)]
    assert held == [{direct(0)}] * 3
    bench.batch(_rows(("zoe", 0, 30)))
    bench.batch([])
    assert _results(bench, 4) == sorted((key, start, start + 10, 3, 1110) for key in KEYS for start in (-5, 0))
    assert bench.told[-1]["left_behind_rows"] == 0
    ways = {entry["details"]["way"] for entry in _journal(bench, "migration") if entry["operator"] == "sums.compute"}
    assert ways == {"instant"}
    assert len(_journal(bench, "migrated")) == len(_journal(bench, "migration")), "all of it is over"


def test_the_way_that_a_compute_takes_changes_in_the_middle_of_windows_and_is_said(engine: Any, tmp_path: Path) -> None:
    """First merging is made to look dear, then adding up: the journal says why the compute changed its way."""
    job = _in_halves("high level", "auto")
    bench = engine.of_job(tmp_path, job, {"migration": "instant"})
    run_tasks, slow = bench.driver.run_tasks, {"merge": 1.0, "row": 0.1}

    def run(frame: Any, orders: Any) -> Any:
        """As it is, but for how long it took."""
        return [_paced(report, **slow) for report in run_tasks(frame, orders)]

    bench.driver.run_tasks = run
    ways = []
    for number in range(12):
        if number == 6:
            slow["row"] = 10.0
        bench.batch(_rows(*((key, 1, 5 * number) for key in KEYS)))
        ways.append(sorted(bench.driver.per_window))
        _moved(bench)
    bench.batch([], flush=True)
    told = _journal(bench, "shared")
    assert [entry["operator"] for entry in told] == ["sums.compute"] * 2
    assert "keys of slices to merge take longer than every row 2 times" in told[0]["reason"]
    assert "keys of slices takes less than every row 2 times" in told[1]["reason"]
    assert [entry["details"]["now"] for entry in told] == ["per window", "shared"]
    assert {"shared", "per window"} == told[0]["details"]["costs"].keys()
    assert ([0] in ways[:6], ways[-1]) == (True, [])
    assert {"sums.compute", "sums"} >= bench.told[-1]["verdicts"].keys() >= {"sums.compute"}
    made = [one for number in range(bench.next) for one in _results(bench, number)]
    assert sorted(made) == sorted(
        (key, start, start + 10, n, n)
        for key in KEYS
        for start, n in [(-5, 1), *((5 * number, 2) for number in range(11)), (55, 1)]
    )


# minutes           0         5         10        15        20
# rows of ann         1         6         11        16        21     with each comes her first time again: minute 1
# 20, every 10      ------------------->|                            closes with the fourth, which counts
#                   |-------------------------------------->|        open when the fifth comes; its first slice is not
@pytest.mark.parametrize("share", [True, False, "auto", "per window"])
@pytest.mark.parametrize("split", [True, "auto"])
@pytest.mark.parametrize("nullable", [True, False])
def test_halves_count_results_of_another_step_that_are_behind_in_windows_that_are_open(
    engine: Any, tmp_path: Path, share: Any, split: Any, nullable: bool
) -> None:
    stream = _source(SCHEMA.set(0, SCHEMA.field("k").with_nullable(nullable)))
    first = stream.key_by("k").aggregate(name="first", at=hg.min("at"), v=hg.count())
    windows = first.key_by("k").window("20 minutes", every="10 minutes")
    windows.aggregate(share=share, split=split, **TOTAL).write_to(hg.sinks.memory(), "halves")
    windows.aggregate(share=share, **TOTAL).write_to(hg.sinks.memory(), "whole")
    bench = engine.of_job(tmp_path, stream.job)
    for minute in (1, 6, 11, 16, 21):
        bench.batch(_rows(("ann", 1, minute)))
    bench.batch([], flush=True)
    made = {
        name: sorted(one for number in range(bench.next) for one in _results(bench, number, name))
        for name in ("whole", "halves")
    }
    assert made["whole"] == [("ann", -10, 10, 4, 10), ("ann", 0, 20, 5, 15)]
    assert made["halves"] == made["whole"]


def test_so_do_consolidates_of_consolidates(engine: Any, tmp_path: Path) -> None:
    stream = _source()
    first = stream.key_by("k").aggregate(name="first", at=hg.min("at"), v=hg.count()).key_by("k")
    first.window("40 minutes").aggregate(**TOTAL).write_to(hg.sinks.memory(), "whole")
    partials = first.compute("10 minutes", **TOTAL).consolidate_partially("20 minutes")
    partials.consolidate("40 minutes").write_to(hg.sinks.memory(), "thirds")
    bench = engine.of_job(tmp_path, stream.job)
    for minute in range(1, 36, 5):
        bench.batch(_rows(("ann", 1, minute)))
    bench.batch([], flush=True)
    for name in ("whole", "thirds"):
        made = [one for number in range(bench.next) for one in _results(bench, number, name)]
        assert made == [("ann", 0, 40, 7, 28)], name


def test_an_instant_move_is_over_when_rows_that_last_are_gone_too(engine: Any, tmp_path: Path) -> None:
    stream = _source(LASTING)
    windows = stream.key_by("k").window("10 minutes", every="5 minutes", spans=Spans.EACH)
    windows.aggregate(name="windows", until="until", split=True, **TOTAL).write_to(hg.sinks.memory())
    bench = engine.of_job(tmp_path, stream.job, {"migration": "instant"})

    def rows(minute: float) -> list[dict[str, Any]]:
        return [{**row, "until": _minute(minute + 60)} for row in _rows(*((key, 1, minute) for key in KEYS))]

    bench.batch(rows(1))
    _moved(bench)
    over = []
    for minute in (2, 20, 70, 110, 111):  # the watermark is that of the batch before
        bench.batch(rows(minute))
        over.append((len(_journal(bench, "migrated")), bench.told[-1]["left_behind_rows"] > 0))
    assert over == [(0, True), (0, True), (0, True), (0, True), (1, False)]


def _paced(report: Any, merge: float, row: float) -> Any:
    """A report with so many seconds for every merge of the consolidate, and for every row of the compute."""
    if isinstance(report, SlotReport) and report.operator == 1:
        return replace(report, seconds={**report.seconds, "process": merge * report.merged})
    if isinstance(report, RouteReport):
        return replace(report, early={number: (rows, row * rows) for number, (rows, _) in report.early.items()})
    return report


def test_halves_say_how_windows_are_computed() -> None:
    alone, auto = _in_halves("high level", "per window"), _in_halves("high level", "auto")
    ten = "windows of 0:10:00 every 0:05:00"
    assert f"Compute 'sums.compute' (partials of {ten}, combined before" in alone.explain()
    assert f"Consolidate 'sums' ({ten}, each computed by itself, split=True" in alone.explain()
    may = 'which may change: share="auto"'
    assert f"Compute 'sums.compute' (partials of slices of 0:05:00, {may}" in auto.explain()
    assert f"Consolidate 'sums' ({ten}, slices of 0:05:00, split=True" in auto.explain()
    assert f"Compute 'sums.compute' (partials of {ten}, {may}" in drawn(auto, per_window=frozenset({0}))
    assert f"Consolidate 'sums' ({ten}, each computed by itself" in drawn(auto, per_window=frozenset({0}))
    for job in (alone, auto):
        assert "component 1: sums.compute, flexible, stateful, by k; allowed moves: instant," in job.explain()


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
    monkeypatch.setattr(starting, "_frame", lambda *_: (None, False))
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
