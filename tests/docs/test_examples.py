"""Every program in examples/ runs and prints what it should; each checks its own results."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "word_count": ("9600 words in 3 batches, 10 distinct", "the: "),
    "sessions": (" clicks in 4 batches: ", "watermark "),
    "joined_streams": ("900 ads and 400 clicks in ", " pairs", " ads without a click so far, at watermark "),
    "running_statistics": ("6000 readings of ", "sensor 0: n "),
    "lending": ("component 1: op2.compute + op2 + op3, rigid, stateful, by area", "op5: 12 windows", "moved, instant"),
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
