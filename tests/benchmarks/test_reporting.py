"""What a result file says: claims are judged, explanations appear only where a claim fails."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "reporting.py"


@pytest.fixture(scope="module")
def reporting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reporting", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reporting"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([1, 2, 3], True, id="every step rises"),
        pytest.param([1, 2, 1.95, 3], True, id="a step back within the slack"),
        pytest.param([1, 2, 1.5, 3], False, id="a step back beyond the slack"),
        pytest.param([1, 3, 2.9, 2.8, 2.7, 2.6], False, id="small steps back that add up"),
        pytest.param([2, 2, 2], False, id="level is not rising"),
    ],
)
def test_rises_and_falls_mirror_each_other(reporting: ModuleType, values: list[float], expected: bool) -> None:
    assert reporting.rises(values) is expected
    assert reporting.falls([1 / value for value in values]) is expected


def test_about_means_within_a_quarter(reporting: ModuleType) -> None:
    assert reporting.about(3.0, 4.0)
    assert not reporting.about(2.9, 4.0)


def test_a_timing_is_the_median_and_leaves_out_the_first_call(reporting: ModuleType) -> None:
    calls: list[int] = []
    clock = iter([0.0, 1.0, 10.0, 15.0, 20.0, 22.0])  # three calls of 1, 5 and 2 seconds
    timing = reporting.timed(lambda: calls.append(1), repeats=3, clock=lambda: next(clock))
    assert len(calls) == 4
    assert timing.median == 2.0


def test_an_explanation_is_printed_only_where_the_claim_fails(reporting: ModuleType, tmp_path: Path) -> None:
    report = reporting.Report(
        name="example",
        title="An example",
        setup="Nothing was done.",
        claims=[
            reporting.Claim("one is less than two", "1 < 2", 1 < 2, "never shown"),
            reporting.Claim("two is less than one", "2 > 1", 2 < 1, "two is more"),
        ],
        tables=[reporting.Table(("planner", "ms"), [("Mixed", 1.25), ("MinTable", "12.5")])],
        parameters={"K": 10},
        seed=7,
    )
    text = report.write(tmp_path).read_text(encoding="utf-8")
    assert "| one is less than two | 1 < 2 | yes |" in text
    assert "| two is less than one | 2 > 1 | **no** |" in text
    assert "two is more" in text
    assert "never shown" not in text
    assert "|---|---:|\n| Mixed | 1.25 |\n| MinTable | 12.5 |" in text
    assert "seed 7; K 10" in text
