from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headgate.cli import app, showcase
from headgate.cli.comparison import RunRecord
from headgate.cli.demo import Screen, _check, busy_note
from headgate.cli.words import WordStream
from headgate.control import Entry
from headgate.errors import HeadgateError

PROGRESS: dict[str, Any] = {
    "batch": 0,
    "rows": 10,
    "seconds": {"total": 0.5},
    "slot_seconds": [0.2, 0.1],
    "slot_rows": [6, 4],
    "skew": 1.33,
    "theta_max": 0.33,
    "state_rows": 4,
    "state_bytes": 100,
    "moves": 0,
    "table_size": 0,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slots", "1"), "--slots must be at least 2, got 1"),
        (("--batches", "1"), "--batches must be at least 2, got 1"),
        (("--rows", "0"), "--rows must be at least 1, got 0"),
        (("--shift-every", "0"), "--shift-every must be at least 1, got 0"),
        (("--zipf", "nan"), "--zipf must be a finite number"),
        (("--service-time", "-1"), "--service-time must be a finite number"),
        (("--planner", "best"), "there is no planner best"),
        (("--planner", "mixed,milp"), "--planner must be one planner, got 'mixed,milp'"),
    ],
)
def test_faults_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert "openjdk-17-jre-headless" in result.stderr
    assert "headgate race" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showcase, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'headgate[spark]'" in result.stderr


def test_a_busy_machine_is_noted() -> None:
    assert busy_note(1.5, 2) is None
    assert "(load 20.0 on 2 cores)" in str(busy_note(20.0, 2))


def test_wrong_counts_end_the_program() -> None:
    stream = WordStream(words=3, rows=6, batches=2, z=0.0, every=2)
    right = RunRecord("hashed", "plain hashing", (), (), stream.totals())
    _check(stream, right)
    wrong = RunRecord("levelled", "mixed", (), (), {**stream.totals(), "baba": 5})
    with pytest.raises(HeadgateError, match="with mixed are wrong for 1 words, 'baba': 5 instead of 4"):
        _check(stream, right, wrong)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("Java gateway\nlong trace"), "the demonstration failed: RuntimeError: Java gateway; what Spark"),
        (HeadgateError("query 'words' failed in batch 1"), "the demonstration failed: query 'words' failed in batch 1"),
    ],
)
def test_a_failure_names_the_log(error: Exception, said: str) -> None:
    text = str(showcase.explained(error, Path("work/spark.log")))
    assert text.startswith(said)
    assert text.endswith("is in work/spark.log")


def test_plain_lines_tell_each_batch_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Console(highlight=False, width=80), 2, live=False)
    with screen.showing("run 1 of 2: plain hashing") as watch:
        watch([PROGRESS], [Entry(0, "balanced", "theta 0.01 <= 0.08")])
        watch([PROGRESS], [])
        watch([PROGRESS, {**PROGRESS, "batch": 1}], [])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines] == ["run 1 of", "batch 0:", "  batch ", "batch 1:"]


def test_the_live_screen_keeps_its_scale(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(highlight=False, width=80, height=40, force_terminal=True)
    screen = Screen(console, 2, live=True)
    with screen.showing("run 1 of 2: plain hashing") as watch:
        watch([], [])
        watch([PROGRESS, {**PROGRESS, "slot_seconds": [0.8, 0.4]}], [])
    assert screen._longest == 0.8
    assert "2 of 2 batches" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_the_demonstration(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("headgate")
    small = ["--slots", "2", "--rows", "200", "--words", "50", "--batches", "4", "--shift-every", "2"]
    done = subprocess.run(
        [program, "demo", *small, "--service-time", "0.5", "--out", "shown", "--keep"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "Both runs counted all 800 words right: 50 counts compared, all equal." in done.stdout
    for run in ("run 1 of 2: plain hashing", "run 2 of 2: mixed", "throughput, rows/s", "batch 0 is warm-up"):
        assert run in done.stdout
    assert sum(line.startswith("batch 3: 200 rows") for line in done.stdout.splitlines()) == 2
    assert (tmp_path / "shown" / "words.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "shown" / "words.html").read_text()
    kept = next(tmp_path.glob("headgate-demo-*"))
    for name in ("hashed", "levelled"):
        verified = CliRunner().invoke(app, ["state", str(kept / name), "--verify"])
        assert verified.exit_code == 0, verified.output
    state = CliRunner().invoke(app, ["state", str(kept / "levelled"), "--key", "baba"])
    expected = WordStream(words=50, rows=200, batches=4, z=1.0, every=2, seed=0).totals()["baba"]
    assert state.stdout.splitlines()[-1] == f"  count  {expected}"
