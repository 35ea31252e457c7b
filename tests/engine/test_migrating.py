"""Key groups on the move: instant, smooth, by manifest and by copying; a compute apart from its consolidate."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.control import Entry
from headgate.engine import migrating, windowed
from headgate.engine.orders import SlotReport
from headgate.engine.program import Input, Pair, Program, Step, ToOperator, ToOutput
from headgate.engine.query import Query
from headgate.engine.splitting import Splitting
from headgate.errors import JobError
from headgate.operators import Aggregation, Compute, Consolidate, WindowedAggregation
from headgate.routing import Assignment, Together
from headgate.windows import Slicing, window, with_helpers
from headgate.windows.costs import Running

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
KEYS = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
AGGREGATES = {"n": hg.count(), "total": hg.sum("v"), "most": hg.max("v")}


def _micros(value: int) -> dt.timedelta:
    return dt.timedelta(microseconds=value)


def _slicing(length: int, every: int, slice_micros: int | None = None) -> Slicing:
    return Slicing(window(_micros(length), every=_micros(every)).hops, slice_micros=slice_micros)


def _whole(length: int, every: int, **how: Any) -> Program:
    """One operator."""
    operator = WindowedAggregation(
        "windows", SCHEMA, ("k",), AGGREGATES, with_helpers(_slicing(length, every)), "at", **how
    )
    return Program(
        name="windows",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(Step(operator, 1, (ToOutput("out"),), combine_early=True),),
        outputs={"out": operator.output_schema},
        groups=8,
        event_time="at",
    )


def _halves(length: int, every: int, *, split: bool) -> Program:
    """A compute and its consolidate, apart or in one component."""
    slicing = _slicing(length, every)
    compute = Compute("compute", SCHEMA, ("k",), AGGREGATES, _slicing(slicing.width, slicing.width), "at")
    windows = Consolidate("windows", SCHEMA, ("k",), AGGREGATES, with_helpers(slicing), "at")
    component: dict[str, Any] = {} if split else {"component": 0}
    return Program(
        name="halves",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(
            Step(compute, 1, (ToOperator(1),), combine_early=True, **component),
            Step(windows, 2 if split else 1, (ToOutput("out"),), combine_early=True, **component),
        ),
        outputs={"out": windows.output_schema},
        groups=8,
        event_time="at",
    )


def _rows(drawn: list[tuple[str, int]], now: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": at, "at": now + ahead} for at, (key, ahead) in enumerate(drawn)]


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-4, 12)), max_size=8),
        st.sampled_from(["", "move", "move", "grow", "shrink", "restart"]),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=14,
)
SIZES = st.sampled_from([(10, 10), (20, 10), (30, 10), (40, 5), (5, 10)])
WAYS = st.sampled_from(
    [
        ("split", "auto"),
        ("split", "instant"),
        ("split", "instant"),
        ("split", "copy"),
        ("split", "smooth"),
        ("split", "manifest"),
        ("fused", "auto"),
        ("fused", "smooth"),
    ]
    + [("whole", way) for way in ("auto", "smooth", "smooth", "smooth", "copy")]
)


ALONE = st.sampled_from([2, windowed.ALONE])
"""Rows from which on a piece has a run of its own."""


@pytest.mark.slow
@settings(max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(turns=TURNS, sizes=SIZES, way=WAYS, seed=st.integers(0, 99), slack=st.sampled_from([0, 8]), alone=ALONE)
def test_windows_come_out_once_and_whole_however_their_keys_move(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    turns: Any,
    sizes: tuple[int, int],
    way: tuple[str, str],
    seed: int,
    slack: int,
    alone: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed, "ALONE", alone)
        form, migration = way
        program = _whole(*sizes) if form == "whole" else _halves(*sizes, split=form == "split")
        still = engine.Bench(tmp_path_factory.mktemp("still"), _whole(*sizes), slots=1, options={"slack_micros": slack})
        options = {"migration": migration, "slack_micros": slack}
        moving = engine.Bench(tmp_path_factory.mktemp("moving"), program, options=options)
        moving.driver.run_tasks = engine.scrambled(seed)
        for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0), ([], "", 0)]):
            moving.disturb(event, slot, seed + number)
            if event in ("grow", "shrink"):
                slots = 4 if event == "grow" else 2
                moving.change(lambda assignment, slots=slots: control.resized(assignment, slots))
            rows, flush = _rows(drawn, 9 * number), number >= len(turns)
            half = len(rows) // 2
            assert moving.batch(rows[:half], rows[half:], flush=flush) == still.batch(
                rows[:half], rows[half:], flush=flush
            )
        moving.run(moving.frame([]), moving.next, flush=True)
        assert not moving.driver.migrations.underway, "nothing is left behind for good"
        assert moving.told[-1]["left_behind_rows"] == 0
        assert sum(moving.counted(0).values()) == 0


def _moved_everything(bench: Any, operator: int = 0) -> None:
    together: Together = bench.driver.together

    def elsewhere(assignment: Assignment) -> Assignment:
        planned = together.planned(assignment)
        component = together.component(operator)
        for slot in range(3):
            size = planned.groups_per_operator
            mine = [group for group in range(8) if planned.groups[component * size + group] == (slot + 1) % 3]
            planned = control.moved(planned, slot, groups=mine[:1], operator=component)
        return together.spread(planned)

    bench.change(elsewhere)


def _journal(bench: Any, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in bench.driver.checkpoint.journal() if entry["kind"] == kind]


ALL = [(key, 0) for key in KEYS]


def test_an_instant_move_leaves_state_behind_until_its_slices_close(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _halves(20, 10, split=True), options={"migration": "instant"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 2))
    assert bench.told[-1]["moved_groups"] == 3
    assert bench.told[-1]["left_behind_rows"] > 0, "the temporary key expansion, for all to see"
    assert bench.told[-1]["copied_bytes"] == 0
    assert [entry["details"]["way"] for entry in _journal(bench, "migration")] == ["instant"]
    assert not _journal(bench, "migrated")
    bench.batch(_rows(ALL, 12))  # slices end when the watermark reaches them, a batch later
    out = bench.batch(_rows(ALL, 22))["out"]
    assert {(row["k"], row["n"]) for row in out} == {(key, 2) for key in KEYS}, "both parts of a slice are there"
    assert bench.told[-1]["left_behind_rows"] == 0
    bench.batch(_rows([], 22))
    (over,) = _journal(bench, "migrated")
    assert over["details"]["pause_seconds"] < 0.1
    assert over["details"]["copied_bytes"] == 0
    assert over["details"]["completion_batches"] == 3
    assert over["details"]["most_rows_left_behind"] > 0


def test_groups_that_move_again_and_again_leave_no_more_than_a_part_per_slot_key_and_open_slice(
    engine: Any, tmp_path: Path
) -> None:
    """Slices of 10, a row of every key every 2, and all groups one slot on before each batch:

    slice   |0        |10       |20       |30
    slot     0 1 2 0 1 2 0 1 2 0 1 2 0 1 2 0      where the groups are
    """
    program = _halves(20, 10, split=True)
    still = engine.Bench(tmp_path / "still", program, slots=1)
    bench = engine.Bench(tmp_path / "moving", program, options={"migration": "instant"})
    most, behind = 0, []
    for number in range(24):
        bench.change(partial(bench._moved, to=number % 3, groups=range(8)))
        at = 2 * number
        assert bench.batch(_rows(ALL, at)) == still.batch(_rows(ALL, at))
        # The watermark is that of the batch before: slices from there on are open.
        slices = (at - (0 if bench.last.watermark is None else bench.last.watermark) // 10 * 10) // 10 + 1
        behind.append(bench.told[-1]["left_behind_rows"])
        assert behind[-1] < 3 * len(KEYS) * slices
        assert bench.told[-1]["migrations"] <= 5 * slices, "those of closed slices are over, although others go on"
        most = max(most, behind[-1])
    assert most >= 2 * len(KEYS), "a part in each of the other slots: the key expansion is there"
    assert max(behind[12:]) <= max(behind[:12]), "and it does not grow"
    for at in (48, 62, 63):
        assert bench.batch(_rows(ALL, at)) == still.batch(_rows(ALL, at))
    assert bench.told[-1]["left_behind_rows"] == 0, "the slices that were open have closed"
    assert bench.told[-1]["migrations"] == 0
    over = _journal(bench, "migrated")
    assert sum(entry["details"]["groups"] for entry in over) == 8 * 23
    assert max(entry["details"]["most_rows_left_behind"] for entry in over) == most


def test_a_smooth_move_sends_rows_of_both_kinds_of_windows_to_both_slots(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _whole(20, 10), options={"migration": "smooth"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 10))
    handed = bench.last.handovers
    assert len(handed) == 3
    assert {one.since for one in handed} == {10}, "behind all rows so far"
    tuples = sum(bench.told[-1]["slot_rows"])
    assert tuples > len(KEYS), "windows [0, 20) and [10, 30) share the slice, and belong to different slots"
    _moved_everything(bench)
    bench.batch(_rows(ALL, 20))
    assert all("is still being handed over by slot" in entry["reason"] for entry in _journal(bench, "refused"))
    assert _journal(bench, "refused")
    bench.batch(_rows(ALL, 50))
    bench.batch(_rows(ALL, 51))
    bench.batch(_rows(ALL, 52))
    assert not [one for one in bench.last.handovers if one.since == 10]
    over = _journal(bench, "migrated")
    assert {entry["details"]["way"] for entry in over} == {"smooth"}


def test_fewer_slots_wait_for_what_is_handed_over_and_the_journal_says_so_once(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _whole(20, 10), options={"migration": "smooth"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 10))
    assert bench.last.handovers
    bench.change(lambda assignment: control.resized(assignment, 1))
    for at in (11, 12):
        bench.batch(_rows(ALL, at))
        assert bench.last.assignment.slots == 3
    told = [entry["reason"] for entry in _journal(bench, "slots")]
    assert told == ["slots go down to 1 when the windows that are handed over have closed"]
    for at in (50, 51, 52, 53):
        bench.batch(_rows(ALL, at))
    assert bench.last.assignment.slots == 1


def _ticking(bench: Any) -> None:
    """Every look at the clock takes a second: two a batch, for its plan and when its tasks are over."""

    def clock() -> float:
        bench.seconds += 1
        return float(bench.seconds)

    bench.driver.clock = clock


def test_a_move_that_ends_in_its_batch_takes_until_its_tasks_are_over(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _whole(20, 10), options={"migration": "copy"})
    _ticking(bench)
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 1))
    (over,) = _journal(bench, "migrated")  # the query may end here
    assert over["batch"] == 1
    assert over["details"]["completion_seconds"] == 1
    assert 1 > over["details"]["pause_seconds"] > 0
    assert "over after 1 batch (1.0 s)" in over["reason"]


@pytest.mark.parametrize(("form", "way", "batches"), [("split", "instant", 3), ("whole", "smooth", 5)])
def test_a_longer_move_takes_from_its_plan_to_the_tasks_that_let_go_of_the_last_slice(
    engine: Any, tmp_path: Path, form: str, way: str, batches: int
) -> None:
    program = _whole(20, 10) if form == "whole" else _halves(20, 10, split=True)
    bench = engine.Bench(tmp_path, program, options={"migration": way})
    _ticking(bench)
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    for at in (2, 12, 50, 51, 52):
        bench.batch(_rows(ALL, at))
        if at == 12:
            bench.restart()
            _ticking(bench)
    (over,) = _journal(bench, "migrated")
    assert over["details"]["way"] == way
    assert over["details"]["completion_batches"] == batches
    assert over["details"]["completion_seconds"] == 2 * batches - 1
    assert over["batch"] == batches


@pytest.mark.parametrize("point", ["after manifest commit", "during sink write", "after sink write"])
def test_the_end_of_a_move_is_told_once_whatever_happens_after_the_commit(
    engine: Any, tmp_path: Path, point: str
) -> None:
    bench = engine.Bench(tmp_path, _whole(20, 10), options={"migration": "copy"})
    _ticking(bench)
    bench.batch(_rows(ALL, 0))
    bench.batch(_rows(ALL, 30))
    _moved_everything(bench)
    bench.driver.crash = engine.Crash(point=point)
    with pytest.raises(engine.Crashed):
        bench.batch(_rows(ALL, 31))
    assert bench.last.batch == 2
    bench.restart()
    bench.batch(_rows(ALL, 31), number=2)
    (over,) = _journal(bench, "migrated")
    bench.restart()
    bench.batch(_rows(ALL, 31), number=2)
    bench.batch(_rows(ALL, 32))
    assert _journal(bench, "migrated") == [over]


def test_copying_windows_pauses_and_writes(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _whole(20, 10), options={"migration": "copy"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 1))
    bench.batch(_rows(ALL, 2))
    (over,) = _journal(bench, "migrated")
    assert over["details"]["way"] == "copy"
    assert over["details"]["copied_bytes"] > 0
    assert over["details"]["pause_seconds"] > 0
    assert over["details"]["completion_batches"] == 1


def test_a_rigid_component_moves_by_reference_and_says_why(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _halves(20, 10, split=False))
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 1))
    told = _journal(bench, "migration")
    assert {entry["details"]["way"] for entry in told} == {"manifest"}
    assert "not instant: rigid: windows needs all of a key in one place" in told[0]["reason"]


def _counting(**how: Any) -> Program:
    """A running aggregate: state without an end."""
    operator = Aggregation("running", SCHEMA, ("k",), {"n": hg.count()})
    return Program(
        name="running",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(Step(operator, 1, (ToOutput("out"),)),),
        outputs={"out": operator.output_schema},
        groups=8,
        event_time="at",
    )


def _eager() -> Program:
    """A compute whose partials also go to an output: nobody merges these."""
    halves = _halves(20, 10, split=True)
    compute = halves.steps[0]
    steps = (replace(compute, branches=(ToOperator(1), ToOutput("parts"))), halves.steps[1])
    return replace(halves, steps=steps, outputs={**halves.outputs, "parts": compute.operator.output_schema})


RIGID = "rigid: windows needs all of a key in one place"
OPERATOR = "its rows come from another operator, and may be of any time"
ONE_TASK = "the old slot could not hand results on within its component"
TWICE = "what comes late goes on to another consolidate, and both slots would send it"
BUFFERED = "what it has buffered lies in the store, and is not sent again"


def _windows_of_windows() -> Program:
    """Windows of what other windows emit, in a component of their own."""
    whole = _whole(20, 10)
    first = whole.steps[0]
    schema = first.operator.output_schema
    again = WindowedAggregation(
        "again", schema, ("k",), {"windows": hg.count()}, with_helpers(_slicing(40, 40)), "window_start"
    )
    steps = (replace(first, branches=(ToOperator(1),)), Step(again, 2, (ToOutput("out"),), combine_early=True))
    return replace(whole, steps=steps, outputs={"out": again.output_schema})


def _three_parts() -> Program:
    """A consolidate whose windows are the slices of another one."""
    compute = Compute("compute", SCHEMA, ("k",), AGGREGATES, _slicing(5, 5), "at")
    ten = Consolidate("ten", SCHEMA, ("k",), AGGREGATES, _slicing(10, 10, 5), "at", partial=True)
    long = Consolidate("long", SCHEMA, ("k",), AGGREGATES, _slicing(40, 20, 10), "at")
    steps = (
        Step(compute, 1, (ToOperator(1),), combine_early=True),
        Step(ten, 2, (ToOperator(2),), combine_early=True),
        Step(long, 3, (ToOutput("out"),), combine_early=True),
    )
    return replace(_halves(20, 10, split=True), steps=steps, outputs={"out": long.output_schema})


@pytest.mark.parametrize(
    ("program", "operator", "prices", "refused"),
    [
        pytest.param(_halves(20, 10, split=True), 0, "instant copy smooth manifest", {}, id="flexible, stateful"),
        pytest.param(
            _eager(), 0, "copy smooth manifest", {"instant": "no consolidate merges what compute sends"},
            id="flexible, stateful, and its partials go elsewhere too",
        ),
        pytest.param(
            _halves(20, 10, split=True), 1, "copy smooth manifest", {"instant": BUFFERED},
            id="rigid, stateless: a consolidate, whose buffer is in our store",
        ),
        pytest.param(
            _three_parts(), 1, "copy manifest", {"instant": BUFFERED, "smooth": TWICE},
            id="rigid, stateless: a consolidate for another one",
        ),
        pytest.param(
            _three_parts(), 2, "copy smooth manifest", {"instant": BUFFERED},
            id="rigid, stateless: a consolidate of another one",
        ),
        pytest.param(
            _halves(20, 10, split=False), 0, "copy manifest", {"instant": RIGID, "smooth": ONE_TASK},
            id="rigid, stateful: a compute with its consolidate",
        ),
        pytest.param(
            _windows_of_windows(), 1, "copy manifest",
            {"instant": "rigid: again needs all of a key in one place", "smooth": OPERATOR},
            id="rigid, stateful, windowed, behind another operator",
        ),
        pytest.param(_whole(20, 10), 0, "copy smooth manifest", {"instant": RIGID}, id="rigid, stateful, windowed"),
        pytest.param(
            _counting(), 0, "copy manifest",
            {
                "instant": "rigid: running needs all of a key in one place",
                "smooth": "the state of running does not end with a window",
            },
            id="rigid, stateful, state without an end",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wished", ["auto", "instant", "smooth", "copy", "manifest"])
def test_the_table_of_section_5_in_a_running_query(
    engine: Any, tmp_path: Path, program: Program, operator: int, prices: str, refused: dict[str, str], wished: str
) -> None:
    """Flexible and stateless, maps alone, is a stage without slots here: nothing of it is ever placed."""
    bench = engine.Bench(tmp_path / "moving", program, options={"migration": wished})
    still = engine.Bench(tmp_path / "still", program, slots=1)
    for at in (0, 7, 12, 25, 40, 70, 71, 72):
        if at == 12:
            _moved_everything(bench, operator)
        assert bench.batch(_rows(ALL, at)) == still.batch(_rows(ALL, at))
    told = [
        entry for entry in _journal(bench, "migration") if entry["operator"] == program.steps[operator].operator.name
    ]
    assert len(told) == 1
    details = told[0]["details"]
    assert set(details["prices"]) == set(prices.split())
    assert details["refused"] == refused
    taken = "manifest" if wished == "auto" or wished in refused else wished
    assert details["way"] == taken
    wanted = {"auto": "by reference: state changes owner in a store that all slots read; 0 s of CPU"}.get(
        wished, f"{wished} was asked for, and cannot be" if wished in refused else "asked for"
    )
    assert wanted in told[0]["reason"]
    assert all(f"{why}" in told[0]["reason"] for why in refused.values())
    over = [entry for entry in _journal(bench, "migrated") if entry["operator"] == told[0]["operator"]]
    assert [entry["details"]["way"] for entry in over] == [taken]


def test_a_store_that_is_far_away_makes_instant_moves_the_cheapest(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _halves(20, 10, split=True))
    bench.driver.migrations.remote = True
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 2))
    (told,) = _journal(bench, "migration")
    prices = {way: price["cpu_seconds"] for way, price in told["details"]["prices"].items()}
    assert prices["manifest"] == pytest.approx(told["details"]["state_bytes"] * migrating.FETCH_SECONDS)
    cheapest = min(prices, key=lambda way: prices[way])
    assert told["details"]["way"] == cheapest
    assert prices["instant"] < prices["manifest"]


def test_a_batch_that_runs_again_moves_its_groups_in_the_way_that_was_planned(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _halves(20, 10, split=True), options={"migration": "instant"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.driver.crash = engine.Crash(point="before manifest commit")
    with pytest.raises(engine.Crashed):
        bench.batch(_rows(ALL, 2))
    bench.restart(migration="manifest")
    bench.batch(_rows(ALL, 2))
    assert bench.told[-1]["left_behind_rows"] > 0
    assert [one.way for one in bench.driver.migrations.underway] == ["instant"]
    _moved_everything(bench)
    bench.batch(_rows(ALL, 3))
    assert bench.told[-1]["left_behind_rows"] == 0, "what moves by reference takes along what was left behind"
    assert [entry["details"]["way"] for entry in _journal(bench, "migrated")] == ["instant", "manifest"]


def test_consolidates_of_consolidates(engine: Any, tmp_path: Path) -> None:
    chain = engine.Bench(tmp_path / "chain", _three_parts())
    plain = engine.Bench(tmp_path / "plain", _whole(40, 20))
    for number in range(30):
        rows = _rows([(KEYS[number % 8], 0), (KEYS[number % 3], 1)], 3 * number)
        assert chain.batch(rows) == plain.batch(rows)
    assert chain.batch([], flush=True) == plain.batch([], flush=True)


def test_slices_and_windows_that_do_not_fit() -> None:
    with pytest.raises(JobError, match="lie side by side and wait for no late rows"):
        Compute("c", SCHEMA, ("k",), AGGREGATES, _slicing(20, 10), "at")
    with pytest.raises(JobError, match="windows that another consolidate merges must lie side by side"):
        Consolidate("c", SCHEMA, ("k",), AGGREGATES, _slicing(20, 10), "at", partial=True)
    late = Slicing(window(_micros(20), lateness=_micros(5)).hops, 5)
    with pytest.raises(JobError, match="the lateness of a consolidate must be zero"):
        Consolidate("c", SCHEMA, ("k",), AGGREGATES, late, "at")


def _pair(length: int, every: int, *, auto: bool = True) -> Program:
    return replace(_halves(length, every, split=False), pairs=(Pair(0, 1, auto),))


@settings(max_examples=20)
@given(turns=TURNS, sizes=SIZES, seed=st.integers(0, 99), when=st.lists(st.integers(0, 12), max_size=4))
def test_taking_apart_and_putting_together_loses_and_doubles_nothing(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    turns: Any,
    sizes: tuple[int, int],
    seed: int,
    when: list[int],
) -> None:
    still = engine.Bench(tmp_path_factory.mktemp("still"), _whole(*sizes), slots=1)
    moving = engine.Bench(tmp_path_factory.mktemp("moving"), _pair(*sizes, auto=False))
    moving.driver.run_tasks = engine.scrambled(seed)
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        moving.disturb(event, slot, seed + number)
        if number in when:
            apart = len(set(moving.driver.program.components)) == 2
            way = Program.put_together if apart else Program.taken_apart
            moving.driver.arrange(lambda program, way=way: (way(program, program.pairs[0]), Entry(0, "fused", "now")))
        rows, flush = _rows(drawn, 9 * number), number == len(turns)
        half = len(rows) // 2
        assert moving.batch(rows[:half], rows[half:], flush=flush) == still.batch(rows[:half], rows[half:], flush=flush)


def _by_hand(bench: Any, way: Any) -> None:
    bench.driver.arrange(lambda program: (way(program, program.pairs[0]), Entry(0, "fused", "by hand")))


@pytest.mark.parametrize("auto", [True, False])
def test_what_was_taken_apart_stays_apart_when_the_query_is_started_again(
    engine: Any, tmp_path: Path, auto: bool
) -> None:
    bench = engine.Bench(tmp_path, _pair(20, 10, auto=auto))
    bench.batch(_rows(ALL, 0))
    _by_hand(bench, Program.taken_apart)
    bench.batch(_rows(ALL, 3))
    placed = bench.last.assignment.groups.tolist()
    bench.restart()
    assert bench.driver.program.components == (0, 1)
    bench.batch(_rows(ALL, 6))
    assert bench.last.assignment.groups.tolist() == placed, "nothing moves"
    bench.batch(_rows(ALL, 9))
    again = [entry["reason"] for entry in _journal(bench, "fused") if "again" in entry["reason"]]
    assert again == ["taken apart, as was decided before the query was started again"]
    _by_hand(bench, Program.put_together)
    bench.batch(_rows(ALL, 12))
    bench.restart()
    assert bench.driver.program.components == (0, 0)


def test_what_a_job_newly_wants_is_more_than_what_was_done_by_hand(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _pair(20, 10, auto=False))
    _by_hand(bench, Program.taken_apart)
    bench.batch(_rows(ALL, 0))
    bench.program, bench.identity = _pair(20, 10, auto=True), "auto now"
    bench.restart()
    assert bench.driver.program.components == (0, 0), "the job says auto now, and starts as auto does"
    bench.program, bench.identity = _pair(20, 10, auto=False).arranged((0, 1)), "apart now"
    bench.batch(_rows(ALL, 3))
    bench.restart()
    assert bench.driver.program.components == (0, 1)


def test_a_decision_that_was_planned_before_a_crash_holds_after_it(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _pair(20, 10))
    bench.batch(_rows(ALL, 0))
    _by_hand(bench, Program.taken_apart)
    bench.driver.crash = engine.Crash(point="after plan write")
    with pytest.raises(engine.Crashed):
        bench.batch(_rows(ALL, 3))
    bench.restart()
    assert bench.driver.program.components == (0, 1)
    bench.batch(_rows(ALL, 3))
    bench.batch(_rows(ALL, 6))
    assert bench.driver.program.components == (0, 1)


def test_a_compute_is_not_put_together_with_what_waits_for_others_that_it_feeds(engine: Any, tmp_path: Path) -> None:
    halves = _pair(20, 10, auto=False)
    compute, windows = halves.steps
    between, other = (
        replace(windows, operator=Consolidate(name, SCHEMA, ("k",), AGGREGATES, _slicing(20, 10), "at"))
        for name in ("between", "other")
    )
    last = Aggregation("last", windows.operator.output_schema, ("k",), {"n": hg.count()})
    program = replace(
        halves,
        steps=(
            replace(compute, branches=(ToOperator(1), ToOperator(2))),
            replace(between, branches=(ToOperator(3),)),
            other,
            Step(last, 1, ()),
        ),
        pairs=(Pair(0, 1), Pair(0, 2)),
    ).arranged((0, 1, 2, 2))
    query = Query(hg.Job("circle"), engine.Bench(tmp_path, program).driver)
    with pytest.raises(JobError, match=r"^operator 'compute' cannot change its component: rows would leave the comp"):
        query.combine("other")
    query.combine("between")


def test_a_compute_that_others_of_its_component_feed_leaves_with_all_that_it_feeds(engine: Any, tmp_path: Path) -> None:
    halves = _pair(20, 10, auto=False)
    per_key = Aggregation("running", SCHEMA, ("k",), {"v": hg.count(), "at": hg.max("at")})
    compute = replace(halves.steps[0], branches=(ToOperator(2),), component=0)
    program = replace(
        halves,
        steps=(Step(per_key, 1, (ToOperator(1),), component=0), compute, replace(halves.steps[1], component=0)),
        pairs=(Pair(1, 2),),
    )
    assert program.taken_apart(program.pairs[0]) == (0, 1, 2)
    still = engine.Bench(tmp_path / "still", program, slots=1)
    bench = engine.Bench(tmp_path / "apart", program)
    _by_hand(bench, Program.taken_apart)
    for at in (0, 12, 30, 60):
        assert bench.batch(_rows(ALL, at)) == still.batch(_rows(ALL, at))
    assert bench.driver.program.depth == 3


def test_a_pair_whose_moves_pause_too_long_is_taken_apart(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _pair(20, 10), options={"migration": "copy", "max_pause_seconds": 1e-9})
    assert bench.driver.program.depth == 1
    for number in range(6):
        _moved_everything(bench)
        bench.batch(_rows(ALL, 10 * number))
    assert bench.driver.program.depth == 2
    told = [entry for entry in _journal(bench, "fused") if "details" in entry]
    assert "moves would pause it for" in told[0]["reason"]
    assert told[0]["details"]["now"] == "split"
    assert bench.script.arrangements == [("compute", "windows")]


class _Metered(Splitting):
    """Judges by what a row took on a clock of the test's own: what it took on this machine is another test's matter."""

    def observe(self, program: Program, reports: Sequence[SlotReport], *told: Any) -> Any:
        metered = [replace(report, seconds={"receive": 1e-6 * report.tuples}) for report in reports]
        return Splitting.observe(self, program, metered, *told)


def test_a_pair_that_does_not_move_is_put_together(engine: Any, tmp_path: Path) -> None:
    program = _pair(20, 10)
    bench = engine.Bench(tmp_path, program.arranged((0, 1)))
    bench.driver.splitting = _Metered(math.inf)
    for number in range(6):
        bench.batch(_rows(ALL * 20, 10 * number))
    assert bench.driver.program.depth == 1
    (told,) = [entry for entry in _journal(bench, "fused") if entry["reason"].startswith("combined costs")]
    assert told["details"]["costs"]["combined"] < told["details"]["costs"]["split"]
    verdict = bench.told[-1]["verdicts"]["windows"]
    assert (verdict["now"], set(verdict["costs"])) == ("combined", {"split", "combined"})
    assert verdict["reason"].startswith("combined costs")


def test_a_smooth_move_is_not_for_operators_that_hand_rows_on_in_their_task(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _halves(20, 10, split=False), options={"migration": "smooth"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    for at in (2, 12, 30, 60):
        bench.batch(_rows(ALL, at))
    assert {entry["details"]["way"] for entry in _journal(bench, "migration")} == {"manifest"}


def test_halves_are_put_together_when_nothing_is_handed_over_any_more(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _pair(20, 10, auto=False).arranged((0, 1)), options={"migration": "smooth"})
    bench.batch(_rows(ALL, 0))
    _moved_everything(bench)
    bench.batch(_rows(ALL, 2))
    assert bench.last.handovers
    bench.driver.arrange(lambda program: (program.put_together(program.pairs[0]), Entry(0, "fused", "now")))
    bench.batch(_rows(ALL, 3))
    assert bench.driver.program.depth == 2, "it waits"
    for at in (12, 30, 60, 61, 62):
        bench.batch(_rows(ALL, at))
    assert bench.driver.program.depth == 2, "now the consolidate is handed over"
    for at in (90, 120, 121):
        bench.batch(_rows(ALL, at))
    assert bench.driver.program.depth == 1
    groups = bench.last.assignment.groups
    assert (groups[:8] == groups[8:]).all()


def test_a_job_that_comes_back_more_fused_waits_for_what_is_handed_over(engine: Any, tmp_path: Path) -> None:
    whole = _whole(20, 10)
    schema = whole.steps[0].operator.output_schema
    running = Aggregation("running", schema, ("k",), {"windows": hg.count()})
    program = replace(
        whole,
        steps=(replace(whole.steps[0], branches=(ToOperator(1),)), Step(running, 2, (ToOutput("out"),))),
        outputs={"out": running.output_schema},
    )
    still = engine.Bench(tmp_path / "still", program, slots=1)
    bench = engine.Bench(tmp_path / "moving", program, options={"migration": "smooth"})
    times = (0, 2, 12, 30, 60, 90, 120)
    for number, at in enumerate(times):
        if number == 1:
            _moved_everything(bench)
        if number == 2:
            assert bench.last.handovers
            bench.program, bench.identity = program.arranged((0, 0)), "fused now"
            bench.restart()
            assert bench.driver.program.depth == 2, "apart as long as two slots have a part of a key group"
        assert bench.batch(_rows(ALL, at)) == still.batch(_rows(ALL, at))
    assert bench.driver.program.depth == 1
    assert any("nothing is handed over any more" in entry["reason"] for entry in _journal(bench, "fused"))


def test_every_pair_is_measured_in_every_batch() -> None:
    first = _pair(20, 10)
    steps = (*first.steps, *(replace(step, component=1) for step in first.steps))
    program = replace(first, steps=steps, pairs=(Pair(0, 1, True), Pair(2, 3, True)))
    watch = Splitting(max_pause_seconds=0.0)

    def reports(paused: float) -> list[SlotReport]:
        none = np.empty(0, dtype=np.int64)
        return [
            SlotReport(
                operator,
                0,
                (),
                0,
                none.astype(np.int32),
                none,
                none,
                None,
                10,
                10,
                {"receive": 1e-3, "move": paused},
                sent={operator + 1: 10},
            )
            for operator in (0, 2)
        ]

    assert watch.observe(program, reports(0.1), [1, 0, 1, 0], 0) == []
    wishes = watch.observe(program, reports(0.1), [1, 0, 1, 0], 20)
    assert [(pair.compute, running) for pair, running, _ in wishes] == [(0, Running.SPLIT), (2, Running.SPLIT)]


def test_a_group_goes_back_by_reference_when_its_handover_is_over(engine: Any, tmp_path: Path) -> None:
    """Found by the random schedule: the slot that had handed a group over got it back, with the state that the other
    slot had meanwhile, in the very batch in which it let go of its own part, and let go of both."""
    bench = engine.Bench(tmp_path, _whole(10, 10), slots=4, options={"migration": "smooth"})
    bench.change(lambda assignment: control.moved(assignment, 0, groups=range(8)))
    bench.batch(_rows(ALL, 0))
    bench.change(lambda assignment: control.moved(assignment, 3, groups=range(8)))
    bench.batch(_rows(ALL, 10))
    assert {one.slot for one in bench.last.handovers} == {0}
    bench.batch(_rows(ALL, 21))
    for at in (22, 23, 24, 25):
        bench.change(lambda assignment: control.resized(assignment, 2))  # slot 3 goes, and cannot hand over smoothly
        bench.batch(_rows(ALL, at))
    assert bench.last.assignment.slots == 2
    out = bench.batch([], flush=True)["out"]
    assert {(row["k"], row["n"]) for row in out} == {(key, 5) for key in KEYS}
