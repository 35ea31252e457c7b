"""Slices that windows share, one computation per window, and the change from one to the other while a job runs."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.engine.orders import RouteReport, SlotReport, nothing
from headgate.engine.program import Input, Program, Step, ToOperator, ToOutput
from headgate.engine.sharing import SharingWatch
from headgate.errors import InputError
from headgate.operators import Aggregation, WindowedAggregation
from headgate.windows import Slicing, Spans, place_in_windows, window, with_helpers

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64()), ("until", pa.int64())])
AGGREGATES = {"n": hg.count(), "total": hg.sum("v")}
KEYS = ["ann", "bob", "cid", "dan"]


def _program(
    *lengths: int,
    every: int,
    per_window: bool = False,
    decides: bool = False,
    lateness: int = 0,
    share: bool = True,
    **how: Any,
) -> Program:
    micros = [dt.timedelta(microseconds=length) for length in lengths]
    kind = window(*micros, every=dt.timedelta(microseconds=every), lateness=dt.timedelta(microseconds=lateness))
    slicing = with_helpers(Slicing.of(kind)) if share else Slicing.of(kind)
    operator = WindowedAggregation("windows", SCHEMA, ("k",), AGGREGATES, slicing, "at", share, **how)
    step = Step(
        operator, 1, (ToOutput("out"),), combine_early=True, lateness_micros=lateness, per_window=per_window,
        decides_sharing=decides,
    )  # fmt: skip
    return Program(
        name="windows",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(step,),
        outputs={"out": operator.output_schema},
        groups=8,
        event_time="at",
    )


def _rows(drawn: list[tuple[str, int, int]], now: int) -> list[dict[str, Any]]:
    return [
        {"k": key, "v": at, "at": now + ahead, "until": now + ahead + length}
        for at, (key, ahead, length) in enumerate(drawn)
    ]


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-6, 12), st.integers(0, 30)), max_size=7),
        st.sampled_from(["", "", "change", "change", "move", "restart"]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=12,
)
SIZES = st.sampled_from([((10,), 10), ((20,), 10), ((30, 10), 10), ((64,), 4), ((5,), 10)])


@settings(max_examples=25)
@given(turns=TURNS, sizes=SIZES, seed=st.integers(0, 99), lateness=st.sampled_from([0, 0, 12]), way=st.booleans())
def test_windows_are_the_same_in_either_way_and_when_it_changes(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    turns: Any,
    sizes: tuple[tuple[int, ...], int],
    seed: int,
    lateness: int,
    way: bool,
) -> None:
    lengths, every = sizes
    shared = _program(*lengths, every=every, lateness=lateness)
    still = engine.Bench(tmp_path_factory.mktemp("still"), shared)
    program = _program(*lengths, every=every, lateness=lateness, per_window=way)
    changing = engine.Bench(tmp_path_factory.mktemp("changing"), program)
    changing.driver.run_tasks = engine.scrambled(seed)
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        changing.disturb(event, slot, seed + number)
        if event == "change":
            changing.driver.per_window = changing.driver.per_window.symmetric_difference({0})
        rows, flush = _rows(drawn, 9 * number), number == len(turns)
        half = len(rows) // 2
        assert changing.batch(rows[:half], rows[half:], flush=flush) == still.batch(
            rows[:half], rows[half:], flush=flush
        )


@pytest.mark.parametrize("rule", [Spans.START, Spans.END, Spans.EACH, Spans.WITHIN])
def test_rows_that_span_several_windows_go_by_the_rule(engine: Any, tmp_path: Path, rule: Spans) -> None:
    program = _program(20, every=10, until="until", spans=rule)
    bench = engine.Bench(tmp_path, program)
    spans = [("ann", 0, 5), ("ann", 3, 15), ("ann", 8, 30), ("bob", 5, 0), ("bob", 12, 8)]
    out = bench.batch(_rows(spans, 0))["out"] + bench.batch([], flush=True)["out"]
    operator = program.steps[0].operator
    assert isinstance(operator, WindowedAggregation)
    counted: dict[tuple[str, int], int] = {}
    for key, at, length in spans:
        for number, hop in enumerate(operator.slicing.hops):
            if not hop.helper:
                first, last = (pa.array([value]).to_numpy() for value in (at, at + length))
                for start in place_in_windows(operator.slicing, number, first, last, rule)[1].tolist():
                    counted[key, start] = counted.get((key, start), 0) + 1
    origin = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    found = {(row["k"], (row["window_start"] - origin) // dt.timedelta(microseconds=1)): row["n"] for row in out}
    assert found == counted


def test_rows_that_end_before_they_start_are_in_no_window(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _program(10, every=10, until="until", spans=Spans.EACH))
    bench.batch([{"k": "ann", "v": 1, "at": 5, "until": 4}, {"k": "bob", "v": 1, "at": 5, "until": None}])
    assert bench.batch([], flush=True)["out"] == []


def test_shares_of_rows_are_not_for_the_engine() -> None:
    with pytest.raises(InputError, match="got the rule SHARE: take START, END, EACH or WITHIN"):
        _program(10, every=10, until="until", spans=Spans.SHARE)


def _observed(watch: SharingWatch, program: Program, alone: frozenset[int], at: int, **told: Any) -> Any:
    route = RouteReport(0, {}, {}, 0, 0, 0.0, (), {0: (told["rows"], told["seconds"])})
    slot = SlotReport(
        0, 0, (), 0, nothing().astype("int32"), nothing(), nothing(), None, 0, 0,
        {"process": told["merge_seconds"]}, merged=told["merged"],
    )  # fmt: skip
    return watch.observe(program, [route], [slot], alone, at)


def test_the_cost_model_changes_the_way_and_back() -> None:
    program = _program(20, every=10, decides=True)
    watch, alone = SharingWatch(), frozenset[int]()
    # A row takes a microsecond; each is in two windows. Merging takes as long as three rows per row: too much.
    alone, told = _observed(watch, program, alone, 0, rows=1000, seconds=1e-3, merged=3000, merge_seconds=3e-3)
    assert (alone, told) == (frozenset(), []), "a period has to be over"
    alone, told = _observed(watch, program, alone, 20, rows=1000, seconds=1e-3, merged=3000, merge_seconds=3e-3)
    assert alone == frozenset({0})
    assert "most keys have few rows in a slice" in told[0].reason
    assert (told[0].kind, told[0].details["now"]) == ("shared", "per window")
    assert told[0].details["costs"] == pytest.approx({"shared": 8e-3, "per window": 4e-3})
    # Rows have become slow: twice the row costs more than once and the merges.
    alone, told = _observed(watch, program, alone, 45, rows=1000, seconds=20e-3, merged=0, merge_seconds=0.0)
    assert alone == frozenset()
    assert "takes less than every row 2 times" in told[0].reason
    # Merges have become so much slower that computing windows one by one would save a little, but too little.
    alone, told = _observed(watch, program, alone, 65, rows=1000, seconds=1e-3, merged=1000, merge_seconds=1.05e-3)
    assert (alone, told) == (frozenset(), [])
    verdict = watch.verdicts["windows"]
    assert verdict["now"] == "shared"
    assert verdict["costs"] == pytest.approx({"shared": 2.05e-3, "per window": 2e-3})
    assert verdict["reason"] == "per window would save 2% of 0.00205 s: not worth the change"


def test_windows_that_were_computed_one_by_one_still_are_when_the_query_is_started_again(
    engine: Any, tmp_path: Path
) -> None:
    bench = engine.Bench(tmp_path, _program(20, every=10, decides=True))
    bench.batch(_rows([("ann", 0, 0)], 0))
    bench.driver.per_window = frozenset({0})
    bench.batch(_rows([("ann", 1, 0)], 0))
    bench.restart()
    assert bench.driver.per_window == frozenset({0})
    bench.batch(_rows([("ann", 2, 0)], 0))
    told = [entry["reason"] for entry in bench.driver.checkpoint.journal()]
    assert told == ["computed per window, as was decided before the query was started again"]
    bench.program, bench.identity = _program(20, every=10), "shared now"
    bench.restart()
    assert bench.driver.per_window == frozenset(), "a job that says how wins"


@pytest.mark.parametrize("components", [(0, 0), (0, 1)])
def test_windows_behind_another_operator_are_judged_by_the_rows_it_sends(
    engine: Any, tmp_path: Path, components: tuple[int, int]
) -> None:
    alone = _program(20, every=10, decides=True)
    running = Aggregation("running", SCHEMA, ("k",), {"v": hg.count(), "at": hg.max("at")})
    windows = WindowedAggregation(
        "windows", running.output_schema, ("k",), {"n": hg.count()}, Slicing.of(window(dt.timedelta(microseconds=20))),
        "at",
    )  # fmt: skip
    steps = (
        Step(running, 1, (ToOperator(1),)),
        Step(windows, 2, (ToOutput("out"),), combine_early=True, decides_sharing=True),
    )
    program = replace(alone, steps=steps, outputs={"out": windows.output_schema}).arranged(components)
    bench = engine.Bench(tmp_path, program)
    for number in range(4):
        assert bench.batch(_rows([(key, 0, 0) for key in KEYS], 10 * number))
    # The watermark comes a batch later: it is 0, 10, 20 in batches 1 to 3, which end the first period.
    verdict = bench.told[-1]["verdicts"]["windows"]
    assert verdict["rows"] == 16
    assert verdict["now"] in ("shared", "per window")
    assert all(seconds > 0 for seconds in verdict["costs"].values()), "both ways were measured"


SHARED: dict[str, Any] = {}
ALONE = {"share": False}
APART = {"share": False, "per_window": True}


@settings(max_examples=15)
@given(
    turns=TURNS,
    ways=st.lists(st.sampled_from([SHARED, ALONE, APART]), min_size=14, max_size=14),
    migration=st.sampled_from(["auto", "copy"]),
)
def test_how_windows_share_may_change_between_two_starts_in_the_middle_of_windows(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, ways: list[dict[str, Any]], migration: str
) -> None:
    # Windows of 64 every 4 have helpers of 8, 16 and 32, and all are open when the next start knows them no more.
    still = engine.Bench(tmp_path_factory.mktemp("still"), _program(64, every=4, share=False))
    bench = engine.Bench(tmp_path_factory.mktemp("changing"), _program(64, every=4), options={"migration": migration})
    assert len(bench.program.steps[0].operator.slicing.hops) > 1
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        rows = _rows(drawn, 9 * number)
        bench.program, bench.identity = _program(64, every=4, **ways[number]), f"program {number} {ways[number]}"
        bench.restart()
        bench.disturb(event if event == "move" else "", slot, number)
        flush = number == len(turns)
        assert bench.batch(rows, flush=flush) == still.batch(rows, flush=flush)


def _in_halves(engine: Any, root: Path, share: Any, migration: str, length: int, every: int) -> Any:
    """Windows made by a compute and a consolidate that run apart."""
    job = hg.Job("windows", event_time="at", groups=8)
    long, hop = (dt.timedelta(microseconds=each) for each in (length, every))
    windows = engine.source(job, SCHEMA).key_by("k").window(long, every=hop)
    windows.aggregate(split=True, share=share, name="windows", **AGGREGATES).write_to(hg.sinks.memory(), name="out")
    return engine.of_job(root, job, {"migration": migration})


@settings(max_examples=20)
@given(
    turns=TURNS,
    ways=st.lists(st.sampled_from([True, False, "auto", "per window"]), min_size=14, max_size=14),
    migration=st.sampled_from(["auto", "instant", "smooth", "copy"]),
)
def test_how_halves_share_may_change_between_two_starts_in_the_middle_of_windows(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, ways: list[Any], migration: str
) -> None:
    still = engine.Bench(tmp_path_factory.mktemp("still"), _program(64, every=4, share=False))
    root = tmp_path_factory.mktemp("changing")
    programs = {way: _in_halves(engine, root / str(way), way, migration, 64, 4).program for way in set(ways)}
    bench = _in_halves(engine, root / "all of them", ways[0], migration, 64, 4)
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        rows, way = _rows(drawn, 9 * number), ways[number]
        bench.program, bench.identity = programs[way], f"halves {number} {way}"
        bench.restart()
        bench.disturb(event if event == "move" else "", slot, number)
        flush = number == len(turns)
        assert bench.batch(rows, flush=flush) == still.batch(rows, flush=flush)


# windows of 30 every 10   |-----------------------------|
# slices of 10             |---------|---------|---------|---------|
#                          0         10        20        30
# rows                      xx         z        zz       z         zz
# the old slot's           [---------)                              slices, which would be over at 20
#                          [-----------------------------)          and windows, which are over at 30
def test_an_old_slot_finishes_the_windows_that_an_earlier_run_computed_by_themselves(
    engine: Any, tmp_path: Path
) -> None:
    """A smooth move of a compute that now shares slices: what it holds is not of slices, and lasts longer."""
    shared = _in_halves(engine, tmp_path / "other", True, "smooth", 30, 10).program
    bench = _in_halves(engine, tmp_path, "per window", "smooth", 30, 10)
    bench.batch(_rows([(key, 1, 0) for key in KEYS], 0))
    bench.disturb("move", 0, 0)
    bench.disturb("move", 1, 0)
    bench.batch(_rows([(key, 2, 0) for key in KEYS], 0))
    assert {one.since for one in bench.last.handovers} == {10}
    bench.program, bench.identity = shared, "shared now"
    bench.restart()
    for now in (12, 21, 22, 31, 41, 42):
        bench.batch(_rows([("zoe", now, 0)], 0))
    bench.batch([])
    assert not bench.last.handovers
    batches = [row for number in range(bench.next) for row in bench.results("out", number) if row["k"] != "zoe"]
    assert sorted((row["k"], row["window_start"].microsecond, row["n"]) for row in batches) == sorted(
        (key, start, 2) for key in KEYS for start in (0, 999_990, 999_980)
    )


def test_a_checkpoint_takes_windows_that_share_otherwise() -> None:
    operators = [_program(64, every=4, **how).steps[0].operator for how in (SHARED, ALONE, APART)]
    assert len({operator.windows for operator in operators if isinstance(operator, WindowedAggregation)}) == 1


def test_late_rows_are_in_windows_that_were_partly_made_before_lateness_was_asked_for(
    engine: Any, tmp_path: Path
) -> None:
    bench = engine.Bench(tmp_path, _program(64, every=4))
    bench.batch(_rows([("ann", 0, 0)], 0))
    bench.batch(_rows([("ann", 0, 0)], 33))  # the watermark of the next batch closes helpers up to 32
    bench.batch(_rows([("ann", 0, 0)], 34))
    bench.program, bench.identity = _program(64, every=4, lateness=40), "late"
    bench.restart()
    bench.batch([{"k": "ann", "v": 0, "at": 1, "until": 1}])
    out = bench.batch([], flush=True)["out"]
    assert {row["n"] for row in out if row["window_start"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)} == {4}
