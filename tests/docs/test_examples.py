"""Every program in examples/ runs and prints what it should; each checks its own results."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headgate as hg
from headgate.engine.migrating import ways_of
from headgate.engine.program import FileFormat
from headgate.engine.running import layout_of
from headgate.operators import WindowedAggregation
from headgate.sources import FileSource

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "word_count": ("9600 words in 3 batches, 10 distinct", "the: "),
    "sessions": (" clicks in 4 batches: ", "watermark "),
    "joined_streams": ("900 ads and 400 clicks in ", " pairs", " ads without a click so far, at watermark "),
    "running_statistics": ("6000 readings of ", "sensor 0: n "),
    "lending": (
        "component 1: op2.compute + op2 + op3.compute + op3, rigid, stateful, by area; allowed moves: disruptive",
        "component 1: op2.compute, flexible, stateful, by area; allowed moves: instant, disruptive, smooth",
        "op5: 235 windows",
        "moved, instant",
    ),
    "overlapping_windows": ("3600 loans, ", "10 minutes: ", "60 minutes: "),
    "ordered_scores": ("600 scores in 3 batches, in order", "weights of the workers at the end: ["),
    "backfill": ("first start: 1 batch(es), ", "second start: 0 batch(es), "),
}
"""A part of what each program that needs Spark prints, in this order."""


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "plan_without_spark"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_runs(name: str, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _load(name).main(spark)
    printed = capsys.readouterr().out
    at = 0
    for part in PRINTED[name]:
        assert part in printed[at:], printed
        at = printed.index(part, at) + len(part)


def test_the_components_of_the_lending_job_are_those_of_the_paper() -> None:
    example = _load("lending")
    job = hg.Job("lending", event_time="at", slack="10 minutes", fusion="auto")
    example.lending(job, job.source(FileSource(None, FileFormat("parquet", example.SCHEMA)), "requests"))  # type: ignore[arg-type]
    program = job.program()
    names = [step.operator.name for step in program.steps]
    assert names == ["op2.compute", "op2", "op3.compute", "op3", "op4", "op5"]
    for step in program.steps[1:2] + program.steps[3:]:
        assert isinstance(step.operator, WindowedAggregation)
        hours = [hop.length / 3.6e9 for hop in step.operator.slicing.hops if not hop.helper]
        assert hours == pytest.approx([1 / 6, 1 / 2, 1, 6, 24])
        assert all(hop.every == hop.length for hop in step.operator.slicing.hops)

    # Figure 2, and figure 3, in which op2 and op3 are a compute and a consolidate each.
    own = job.components()
    assert own.component == (0, 0, 0, 0, 1, 2)
    assert own.fusion is not None
    layout = own.fusion.layout
    first, op4, op5 = (layout.component(name) for name in ("op2", "op4", "op5"))
    assert any(name.startswith("map op1 ") for name in first.operators)
    assert (first.attributes, first.flexible, first.stateful) == (frozenset({"area"}), False, True)
    assert op4.attributes == op5.attributes == frozenset()

    # Figure 4. The paper moves the consolidates to op4 and op5; ours stay where their state is, and the computes go.
    pairs = {names[pair.consolidate]: pair for pair in program.pairs}
    assert set(pairs) == {"op2", "op3"}
    assert all(pair.auto for pair in pairs.values())
    apart = program.arranged(program.taken_apart(pairs["op2"]))
    apart = apart.arranged(apart.taken_apart(pairs["op3"]))
    assert apart.component_names == ["op2.compute", "op2 + op3", "op3.compute", "op4", "op5"]
    layout = layout_of(apart)
    ways = {one: ways_of(apart, layout, layout.component(one)) for one in ("op2.compute", "op2", "op3.compute", "op4")}
    instant = {
        one for one, found in ways.items() if any(way.allowed and way.migration.value == "instant" for way in found)
    }
    assert instant == {"op2.compute", "op3.compute"}
    assert (program.depth, apart.depth) == (2, 3)

    # And back.
    combined = apart.arranged(apart.put_together(pairs["op2"]))
    combined = combined.arranged(combined.put_together(pairs["op3"]))
    assert combined.components == program.components


def _load(name: str) -> ModuleType:
    """The program as a module whose functions travel to Spark's workers by value, as those of a script do."""
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
