from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.cli.panel import SPARKS
from headgate.cli.region_demo import Record, frame, line
from headgate.cli.show import Glyphs
from headgate.regions import Counters, Progress


def progress(at: float, weights: list[int], throughput: float = 1_500.0) -> Progress:
    count = len(weights)
    answered = np.array([round(at * weight) for weight in weights])
    none = np.zeros(count, dtype=np.int64)
    counters = Counters(np.zeros(count), answered, answered, 0, 0, int(answered.sum()), none)
    rates = np.zeros(count)
    rates[0] = 0.75
    return Progress(at, np.array(weights), rates, throughput, 1, np.ones(count, bool), (None,) * count, counters)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", "1"), "--workers must be at least 2, got 1"),
        (("--workers", "33"), "--workers must be at most 32, got 33"),
        (("--slowdown", "0.5"), "--slowdown must be from 1 to 1,000, got 0.5"),
        (("--slowdown", "nan"), "--slowdown must be a finite number"),
        (("--seconds", "0.5"), "--seconds must be from 1 to 3,600, got 0.5"),
    ],
)
def test_faults_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["region-demo", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_a_short_run_ends_with_the_comparison() -> None:
    result = CliRunner().invoke(app, ["region-demo", "--workers", "2", "--slowdown", "5", "--seconds", "3"])
    assert result.exit_code == 0, result.output
    assert "run 1 of 2: round-robin" in result.stdout
    assert "run 2 of 2: blocking rate" in result.stdout
    assert "items/s, one worker slow" in result.stdout
    assert "results, all in order" in result.stdout
    table = result.stdout[result.stdout.index("round-robin  blocking rate  ratio") :]
    assert max(map(len, table.splitlines())) <= 80


def record(*periods: Progress, unloaded_at: float = float("inf")) -> Record:
    made = Record("blocking rate", unloaded_at)
    made.periods += periods
    return made


@pytest.mark.parametrize("count", [3, 32])
@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int, count: int) -> None:
    periods = [progress(at / 4, [1000 // count] * count, 1e5 * at) for at in range(1, 60)]
    lines = frame("run 2 of 2: blocking rate", 24.0, record(*periods), width, Glyphs.rich(), SPARKS)
    assert max(each.cell_len for each in lines) <= width


def test_a_frame_tells_who_is_slow_and_when_the_load_has_gone() -> None:
    before, after = progress(1.0, [200, 400, 400]), progress(2.0, [5, 498, 497])
    shown = [each.plain for each in frame("run", 24.0, record(before, after), 80, Glyphs.plain(), SPARKS)]
    assert shown[1] == "2 of 24 s   worker 1 is slow   1,500 items/s"
    assert shown[3].endswith("/s  slow")
    assert "0.5 %  blocked  75 %" in shown[3]
    assert "worker 2" in shown[4]
    assert "49.8 %  blocked   0 %" in shown[4]
    gone = record(before, after, unloaded_at=1.0)
    shown = [each.plain for each in frame("run", 24.0, gone, 80, Glyphs.plain(), SPARKS)]
    assert shown[1] == "2 of 24 s   the load is gone   1,500 items/s"
    assert not shown[3].endswith("slow")


def test_nothing_is_drawn_before_the_first_period() -> None:
    assert [each.plain for each in frame("run", 24.0, record(), 80, Glyphs.rich(), SPARKS)] == ["run"]


def test_a_line_has_throughput_weights_and_rates() -> None:
    assert line(progress(1.5, [5, 995])) == "  1.5 s    1,500 items/s  weights % 0.5 99.5  blocked 0.75 0.00"


def test_throughput_is_that_of_the_end_of_each_phase() -> None:
    given: list[tuple[float, float]] = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 600), (7, 700), (8, 900)]
    made = record(*(progress(at, [100, 900], rate) for at, rate in given), unloaded_at=5.0)
    assert made.throughput(loaded=True) == 45
    assert made.throughput(loaded=False) == 900
    assert made.weight(loaded=True) == 10.0
    empty: Any = record()
    assert empty.throughput(loaded=True) == empty.weight(loaded=False) == 0.0
