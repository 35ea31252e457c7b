"""Components that change while a job runs: what lies around a pair of halves, and moves at the same boundary."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.control import Entry
from headgate.engine.program import Input, Pair, Program, Step, ToOperator, ToOutput, depths
from headgate.errors import JobError
from headgate.operators import Aggregation, Compute, Consolidate
from headgate.windows import Slicing, Tumbling

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
KEYS = "abcdefgh"
FIRST, SUMS, WINDOWS = 0, Pair(1, 2), Pair(3, 4)


def _micros(count: int) -> dt.timedelta:
    return dt.timedelta(microseconds=count)


def _halves(name: str, schema: pa.Schema, width: int, aggregates: dict[str, Any], time: str) -> list[Any]:
    compute = Compute(f"{name}.compute", schema, ("k",), aggregates, Slicing.of(Tumbling(_micros(width))), time)
    slicing = Slicing(Tumbling(_micros(2 * width)).hops, 0, slice_micros=width)
    return [compute, Consolidate(name, schema, ("k",), aggregates, slicing, time)]


def _chain(fused: bool) -> Program:
    """A running aggregate, windows of its results, and windows of those: five operators with the same key."""
    first = Aggregation("first", SCHEMA, ("k",), {"v": hg.count(), "at": hg.max("at")})
    sums = _halves("sums", first.output_schema, 10, {"n": hg.count(), "at": hg.max("at")}, "at")
    windows = _halves("windows", sums[1].output_schema, 40, {"m": hg.sum("n")}, "at")
    operators = [first, *sums, *windows]
    steps = [
        Step(
            operator, 1 if fused else 1 + number, (ToOperator(number + 1),) if number < 4 else (ToOutput("out"),),
            combine_early=True, component=0 if fused else number,
        )
        for number, operator in enumerate(operators)
    ]  # fmt: skip
    return Program(
        name="chain", inputs=(Input("in", SCHEMA, (ToOperator(0),)),), steps=tuple(steps),
        outputs={"out": operators[-1].output_schema}, groups=8, event_time="at", pairs=(SUMS, WINDOWS),
    )  # fmt: skip


def test_what_feeds_a_compute_and_what_it_feeds_no_longer_share_a_component() -> None:
    whole = _chain(fused=True)
    assert whole.taken_apart(SUMS) == (0, 1, 2, 2, 2)
    assert whole.taken_apart(WINDOWS) == (0, 0, 0, 1, 2)
    both = whole.arranged(whole.taken_apart(SUMS)).taken_apart(WINDOWS)
    assert both == (0, 1, 2, 3, 4)
    apart = whole.arranged(both)
    assert apart.depth == 5
    assert apart.put_together(SUMS) == (0, 1, 1, 2, 3), "the other pair stays apart, and so does what the job had fused"
    assert apart.arranged(apart.put_together(SUMS)).put_together(WINDOWS) == (0, 0, 0, 0, 0), "as it was built"


def test_components_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(JobError, match=r"^components must not wait for each other, .*\(0, 1\), \(1, 0\): keep apart"):
        depths([0, 1, 0], [(0, 1), (1, 2)])


def _rows(drawn: list[tuple[str, int]], now: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": 1, "at": now + ahead} for key, ahead in drawn]


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), max_size=8),
        st.sampled_from(["", "", "move", "resize", "restart"]),
        st.integers(0, 2),
        st.sampled_from([None, None, (SUMS, True), (SUMS, False), (WINDOWS, True), (WINDOWS, False)]),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=25)
@given(turns=TURNS, seed=st.integers(0, 99))
def test_chains_of_halves_lose_nothing_however_they_are_taken_apart(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, seed: int
) -> None:
    still = engine.Bench(tmp_path_factory.mktemp("still"), _chain(fused=False), slots=1)
    moving = engine.Bench(tmp_path_factory.mktemp("moving"), _chain(fused=True))
    moving.driver.run_tasks = engine.scrambled(seed)
    for number, (drawn, event, slot, change) in enumerate([*turns, ([], "", 0, None)]):
        moving.disturb(event, slot, seed + number)
        if change is not None:
            pair, apart = change
            way = Program.taken_apart if apart else Program.put_together
            moving.driver.arrange(lambda program, way=way, pair=pair: (way(program, pair), Entry(0, "fused", "now")))
        rows, flush = _rows(drawn, 10 * number), number == len(turns)
        assert moving.batch(rows, flush=flush) == still.batch(rows, flush=flush)


@pytest.mark.parametrize("combined_first", [False, True])
def test_a_move_and_a_change_of_components_at_one_boundary(engine: Any, tmp_path: Path, combined_first: bool) -> None:
    """Whatever was wished for first: the operators of a component are in the same slots when the batch runs."""
    program = _chain(fused=True)
    apart = program.arranged(program.taken_apart(SUMS))
    bench = engine.Bench(tmp_path, apart)
    every = [(key, 0) for key in KEYS]
    bench.batch(_rows(every, 0))
    bench.batch(_rows(every, 15))

    def moved(assignment: Any) -> Any:
        together = apart.together
        component = together.component(SUMS.consolidate)
        return together.spread(control.moved(together.planned(assignment), 1, groups=range(8), operator=component))

    if not combined_first:
        bench.change(moved)
    bench.driver.arrange(lambda program: (program.put_together(SUMS), Entry(0, "fused", "now")))
    if combined_first:
        bench.change(moved)
    made = [row for at in range(25, 200, 20) for row in bench.batch(_rows(every, at))["out"]]
    assert {row["k"] for row in made} == set(KEYS)
    groups = bench.last.assignment.groups.reshape(5, 8)
    assert (groups == groups[0]).all()
