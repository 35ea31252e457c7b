"""Components: operators that hand rows to each other within a task, placed and moved together."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.cli import inspection
from headgate.engine import keyed
from headgate.engine.program import Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.engine.query import Query
from headgate.errors import UserFunctionError
from headgate.operators import Aggregation, Vectorised, WindowedAggregation
from headgate.routing import Together, key_hash
from headgate.windows import Slicing, window

SCHEMA = pa.schema([("u", pa.string()), ("p", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])
USERS = ["ann", "bob", "cid", "dan", "eve"]


def _visits() -> Aggregation:
    return Aggregation("visits", SCHEMA, ("u", "p"), {"n": hg.count(), "v": hg.sum("v"), "at": hg.max("at")})


def _by_user() -> Aggregation:
    return Aggregation("users", _visits().output_schema, ("u",), {"pages": hg.count(), "most": hg.max("n")})


def _windows() -> WindowedAggregation:
    windows = Slicing.of(window(dt.timedelta(microseconds=20), every=dt.timedelta(microseconds=10)))
    return WindowedAggregation("windows", _visits().output_schema, ("u",), {"n": hg.sum("n")}, windows, "at")


def _program(fused: bool, *, early: bool = True, columns: tuple[str, ...] = ("u",)) -> Program:
    """Visits by user and page, then two operators by user: one component, or three."""
    together: dict[str, Any] = {"component": 0} if fused else {}
    first = {**together, "placed_by": columns} if fused else {}
    deep = 1 if fused else 2
    visits, users, windows = _visits(), _by_user(), _windows()
    return Program(
        name="fused",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(
            Step(visits, 1, (ToOutput("visits"), ToOperator(1), ToOperator(2)), combine_early=early, **first),
            Step(users, deep, (ToOutput("users"),), combine_early=early, **together),
            Step(windows, deep, (ToOutput("windows"),), combine_early=True, **together),
        ),
        outputs={"visits": visits.output_schema, "users": users.output_schema, "windows": windows.output_schema},
        groups=8,
        event_time="at",
    )


def _rows(drawn: list[tuple[str, int, int]], now: int) -> list[dict[str, Any]]:
    return [{"u": user, "p": page, "v": 1, "at": now + ahead} for user, page, ahead in drawn]


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, 3), st.integers(0, 9)), max_size=9),
        st.sampled_from(["", "", "move", "resize", "restart"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.slow
@settings(max_examples=25)
@given(turns=TURNS, early=st.booleans(), seed=st.integers(0, 99))
def test_a_component_gives_what_its_operators_give_one_by_one(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, early: bool, seed: int
) -> None:
    apart = engine.Bench(tmp_path_factory.mktemp("apart"), _program(False, early=early))
    fused = engine.Bench(tmp_path_factory.mktemp("fused"), _program(True, early=early))
    fused.driver.run_tasks = engine.scrambled(seed)
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        rows = _rows(drawn, 10 * number)
        fused.disturb(event, slot, seed + number)
        flush = number == len(turns)
        half = len(rows) // 2
        assert fused.batch(rows[:half], rows[half:], flush=flush) == apart.batch(rows[:half], rows[half:], flush=flush)
        for operator in (0, 1):
            assert fused.state(operator) == apart.state(operator)
    assert all(told["edges"].keys() <= {"visits"} for told in fused.told)


def test_rows_for_the_same_component_are_never_shuffled(engine: Any, tmp_path: Path) -> None:
    program = _program(True)
    assert program.depth == 1
    assert program.together == Together(((0, 1, 2),))
    assert program.component_names == ["visits + users + windows"]
    bench = engine.Bench(tmp_path, program)
    bench.batch(_rows([("ann", 1, 0), ("ann", 2, 0), ("bob", 1, 0)], 0))
    assert bench.told[-1]["edges"] == {"visits": {"users": 3, "windows": 3}}
    loads = bench.script.observed[-1][1]
    assert {load.operator for load in loads} == {0}, "one component, so one load to plan with"
    assert all(len(load.heavy_hash) == 0 for load in loads), "placed by a part of the key: nothing to pin"
    _, _, sizes = bench.script.observed[-1]
    assert len(sizes) == 1
    assert sizes[0].sum() == sum(counts.bytes.sum() for counts in bench.last.counts)


def test_a_plan_moves_all_operators_of_a_component(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _program(True))
    bench.batch(_rows([(user, 1, 0) for user in USERS], 0))
    bench.script.place = lambda assignment: control.moved(assignment, 2, groups=range(8))
    bench.batch(_rows([(user, 1, 0) for user in USERS], 10))
    bench.batch(_rows([(user, 1, 0) for user in USERS], 20))
    assert bench.last.assignment.operators == 3
    assert set(bench.last.assignment.groups.tolist()) == {2}
    assert bench.state(1)["ann"] == {"pages.count": 3, "most.max": 3}


def test_operators_with_equal_keys_are_pinned_together(engine: Any, tmp_path: Path) -> None:
    visits = Aggregation("visits", SCHEMA, ("u",), {"n": hg.count()})
    sizes = Aggregation("sizes", visits.output_schema, ("u",), {"rounds": hg.count()})
    program = Program(
        name="pins",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(Step(visits, 1, (ToOperator(1),), component=0), Step(sizes, 1, (ToOutput("out"),), component=0)),
        outputs={"out": sizes.output_schema},
        groups=8,
    )
    bench = engine.Bench(tmp_path, program)
    rows = _rows([(user, 0, 0) for user in USERS], 0)
    bench.batch(rows)
    loads = bench.script.observed[-1][1]
    assert sum(len(load.heavy_hash) for load in loads) == 2 * len(USERS)
    hashes = key_hash(pa.array(["ann"]))
    bench.script.place = lambda assignment: control.moved(
        assignment, (int(assignment.route(hashes)[0]) + 1) % 3, keys=hashes
    )
    bench.batch(rows)
    before = bench.last.assignment.route(hashes, 1)
    bench.batch(rows)
    after = bench.last.assignment
    assert len(after.pins) == 2
    assert after.route(hashes, 0) == after.route(hashes, 1) != before
    for number in range(2):
        assert set(bench.state(number)) == set(USERS)
    assert {row["rounds"] for row in bench.results("out", 2)} == {3}


def test_fusing_a_job_that_ran_apart_puts_its_operators_together(engine: Any, tmp_path: Path) -> None:
    names = ("u",)
    first = Aggregation("first", SCHEMA, names, {"n": hg.count()})
    second = Aggregation("second", first.output_schema, names, {"m": hg.count()})

    def program(fused: bool) -> Program:
        together: dict[str, Any] = {"component": 0} if fused else {}
        return Program(
            name="late",
            inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
            steps=(
                Step(first, 1, (ToOperator(1),), **together),
                Step(second, 1 if fused else 2, (ToOutput("out"),), **together),
            ),
            outputs={"out": second.output_schema},
            groups=8,
        )

    bench = engine.Bench(tmp_path, program(False))
    rows = _rows([(user, 0, 0) for user in USERS], 0)
    bench.batch(rows)
    bench.change(lambda assignment: control.moved(assignment, 1, groups=range(8), operator=1))
    bench.batch(rows)
    bench.program, bench.identity = program(True), "fused now"
    bench.restart()
    assert {row["m"] for row in bench.batch(rows)["out"]} == {3}
    groups = bench.last.assignment.groups
    assert np.array_equal(groups[:8], groups[8:])
    assert any("put together" in entry["reason"] for entry in bench.driver.checkpoint.journal())
    bench.program, bench.identity = program(False), "and apart again"
    bench.restart()
    assert {row["m"] for row in bench.batch(rows)["out"]} == {4}


def test_a_function_that_changes_what_its_component_is_placed_by(engine: Any, tmp_path: Path) -> None:
    program = _program(True)

    def shout(rows: Any) -> pa.Table:
        return rows.set_column(0, "u", pc.utf8_upper(rows["u"]))

    branch = Mapped("shout", shout, "arrow", _visits().output_schema, (ToOperator(1),))
    program = replace(program, steps=(replace(program.steps[0], branches=(branch,)), *program.steps[1:]))
    bench = engine.Bench(tmp_path, program)
    told = r"^rows that 'visits' hands to 'users' must keep the value of u that they came with, .* \{'u': '[A-Z]+'\}"
    rows = _rows([(user, 1, 0) for user in USERS], 0)
    with pytest.raises(UserFunctionError, match=told):
        bench.batch(rows)
    bench.restart()
    with pytest.raises(UserFunctionError, match=told):
        bench.batch(rows)
    # As the error says: without keeps= the two are apart, also in the batch that was planned with them together.
    bench.program = replace(program.arranged(range(len(program.steps))), built=())
    bench.restart()
    assert {row["u"] for row in bench.batch(rows)["users"]} == {user.upper() for user in USERS}


def _where(rows: pa.Table) -> int:
    """Where the values of v lie in memory."""
    (chunk,) = rows["v"].chunks
    return int(chunk.buffers()[1].address + 8 * chunk.offset)


def test_rows_that_keep_their_order_are_not_copied_within_a_component(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of the second function sees what a call of the first one returned, in the same place."""
    monkeypatch.setattr(keyed, "ROWS_PER_CALL", 7)

    def first(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
        at = pa.array(np.full(batch.rows.num_rows, _where(batch.rows)))
        return batch.rows.select(["u", "v"]).append_column("where", at), pa.table({"n": batch.counts})

    def second(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
        there = pa.array(np.full(batch.rows.num_rows, _where(batch.rows)))
        moved = pc.not_equal(batch.rows["where"], there)
        return batch.rows.select(["u", "v"]).append_column("moved", moved), pa.table({"n": batch.counts})

    def chained(fused: bool) -> Program:
        between = pa.schema([("u", pa.string()), ("v", pa.int64()), ("where", pa.int64())])
        one, other = (
            Vectorised.of(function, name=name, input_schema=schema, key_names=("u",), state={"n": 0}, output=output)
            for function, name, schema, output in (
                (first, "first", SCHEMA, "u string, v long, where long"),
                (second, "second", between, "u string, v long, moved boolean"),
            )
        )
        together: dict[str, Any] = {"component": 0} if fused else {}
        return Program(
            name="chained",
            inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
            steps=(
                Step(one, 1, (ToOperator(1),), **together),
                Step(other, 1 if fused else 2, (ToOutput("out"),), **together),
            ),
            outputs={"out": other.output_schema},
            groups=8,
        )

    rows = [{"u": user, "p": 0, "v": 10 * number, "at": 0} for number, user in enumerate(USERS * 8)]
    made = {fused: engine.Bench(tmp_path / str(fused), chained(fused)).batch(rows)["out"] for fused in (True, False)}
    assert sorted((row["u"], row["v"]) for row in made[True]) == sorted((row["u"], row["v"]) for row in rows)
    assert not any(row["moved"] for row in made[True])
    assert all(row["moved"] for row in made[False])


def test_the_state_of_a_key_that_is_placed_by_less_and_of_windows(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = engine.Bench(tmp_path, _program(True))
    bench.batch(_rows([(user, 1, 0) for user in USERS], 0))
    bench.batch(_rows([(user, 1, 0) for user in USERS], 1))
    told = [
        {"name": "visits", "keys": ["u string", "p int64"], "placed by": ["u"]},
        {"name": "users", "keys": ["u string"]},
        {"name": "windows", "keys": ["u string"]},
    ]
    monkeypatch.setattr(inspection, "operators", lambda _: told)
    checkpoint = bench.driver.checkpoint
    (visits,) = inspection.state_of(checkpoint, bench.last, "ann,1", "visits")
    assert visits.state == {"n.count": 2, "v.sum": 2, "at.max": 1}
    (users,) = inspection.state_of(checkpoint, bench.last, "ann", "users")
    (windows,) = inspection.state_of(checkpoint, bench.last, "ann", "windows")
    assert {visits.slot, users.slot, windows.slot} == {visits.slot}
    assert visits.group == users.group == windows.group
    assert sum(part["n.sum"] for part in windows.state["partials"]) == 3, "one visit, then two"


def test_rates_are_rows_a_batch_over_the_last_batches(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _program(True))
    query = Query(hg.Job("fused"), bench.driver)
    assert query.rates() == {}
    bench.batch(_rows([("ann", 1, 0), ("ann", 2, 0), ("bob", 1, 0)], 0))
    bench.batch([])
    assert query.recent_progress[-1]["edges"] == {}, "the last batch alone would say that nothing flows"
    assert query.rates() == {"visits": {"users": 1.5, "windows": 1.5}}
    bench.batch(_rows([("ann", 1, 0)], 10))
    assert query.rates() == {"visits": {"users": pytest.approx(4 / 3), "windows": pytest.approx(4 / 3)}}
