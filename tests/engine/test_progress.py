"""What the progress of a batch says of jobs whose components run one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate import control
from headgate.engine.program import Input, Program, Step, ToOperator, ToOutput
from headgate.operators import Aggregation, count, sum_
from headgate.routing import Assignment

SCHEMA = pa.schema([("word", pa.string()), ("v", pa.int64())])
WORDS = [{"word": f"w{number}", "v": number} for number in range(12)]


def _in_turn() -> Program:
    """Words are counted, and what comes out is added up again: two stages, as many rows in each."""
    counted = Aggregation("counted", SCHEMA, ("word",), {"n": count()})
    added = Aggregation("added", counted.output_schema, ("word",), {"total": sum_("n")})
    return Program(
        name="twice",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(Step(counted, 1, (ToOperator(1),)), Step(added, 2, (ToOutput("out"),))),
        outputs={"out": added.output_schema},
        groups=8,
        event_time=None,
    )


def _opposite(assignment: Assignment) -> Assignment:
    """The first operator in slot 0, the second in slot 1."""
    for operator in (0, 1):
        assignment = control.moved(assignment, operator, operator=operator, groups=range(8))
    return assignment


def test_stages_that_are_uneven_the_opposite_way_are_not_level(engine: Any, tmp_path: Path) -> None:
    """
    slot      0    1
    stage 1   12   0     the batch waits for 12 rows,
    stage 2    0   12    and then for 12 more: 24, where 12 would do
    """
    bench = engine.Bench(tmp_path, _in_turn(), slots=2)
    bench.change(_opposite)
    bench.batch(WORDS)
    told = bench.told[-1]
    assert told["slot_rows"] == [12, 12]
    assert told["row_skew"] == 2.0
    assert len(told["stage_seconds"]) == 2
    one, two = told["stage_seconds"]
    assert told["slot_seconds"] == pytest.approx([one[0] + two[0], one[1] + two[1]], abs=2e-6)
    waited, mean = max(one) + max(two), (sum(one) + sum(two)) / 2
    assert told["skew"] == pytest.approx(waited / mean, rel=0.01)
    assert told["theta_max"] == pytest.approx(waited / mean - 1, abs=0.01)


def test_slots_that_drain_are_not_judged(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _in_turn(), slots=3)
    bench.change(_opposite, lambda assignment: assignment.drain(2))
    bench.batch(WORDS)
    assert bench.told[-1]["slot_rows"] == [12, 12, 0]
    assert bench.told[-1]["row_skew"] == 2.0, "of the two slots that are open"
