"""The benchmarks run: a quick figure in a process of its own writes a stamped table with claims, and a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PNG = b"\x89PNG"


@pytest.mark.slow
def test_a_quick_figure_writes_a_stamped_result_with_claims_and_a_picture(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "mixed_routing_figures.py"), "--figure", "19", "--quick"]
    done = subprocess.run(
        [*command, "--keys", "2000", "--out", str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "mixed_routing_fig19-quick.md").read_text(encoding="utf-8")
    assert text.startswith("# mixed-routing, figure 19")
    assert "| the paper says | here | holds here |" in text
    assert "seed 0" in text
    assert "K 2000" in text
    assert (tmp_path / "mixed_routing_fig19-quick.png").read_bytes().startswith(PNG)


OTHERS = {"flink_side.py"}
"""Run by the Python of another environment, which has what ours has not."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted(path for path in BENCHMARKS.glob("*.py") if path.name not in OTHERS), ids=lambda path: path.name
)
def test_every_benchmark_can_be_imported(path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import {path.stem}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
