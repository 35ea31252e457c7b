from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan_without_spark.py"


def test_plan_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fullest slot: 1.18 -> 1.0")
    assert len(lines) == 5
    assert "because slot" in lines[2]
