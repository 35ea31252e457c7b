from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app, stored
from headgate.cli.top import look


def test_one_frame(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, ["top", str(store.root), "--once"])
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[:2] == ["wordcount, 3 slots", "stopped: no process runs this query"]
    assert lines[2].startswith("batch 2   1 rows in ")
    assert [line[:5] for line in lines if line.endswith(" rows") and line[:4].strip().isdigit()] == [
        "   0 ", "   1 ", "   2 ",
    ]  # fmt: skip
    assert lines[-1] == "batch 2: hand: words: key 'the', to slot 2: moved by hand"
    assert max(map(len, lines)) <= 80


def test_without_a_terminal_a_line_per_batch_and_an_end(store: Any) -> None:
    result = CliRunner().invoke(app, ["top", str(store.root)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "wordcount: stopped: no process runs this query"
    assert [line.split(" in ")[0] for line in lines if line.startswith("batch")] == [
        "batch 0: 3 rows",
        "batch 1: 3 rows",
        "batch 2: 1 rows",
    ]


def test_who_runs_it(make_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_store()
    made.batch(["the"])
    runner = stored.runner(made.checkpoint)
    assert runner.running
    assert runner.text.startswith("running: process ")
    far = stored.runner(made.checkpoint, host="elsewhere", clock=lambda: 1_800_000_005.0)
    assert far.running
    assert far.text.endswith("last heard of 5 s ago")
    gone = stored.runner(made.checkpoint, host="elsewhere", clock=lambda: 1_800_001_000.0)
    assert not gone.running
    assert gone.text.startswith("perhaps stopped: process ")
    made.close()
    assert not stored.runner(made.checkpoint).running


def test_a_process_that_is_gone(make_store: Any) -> None:
    made = make_store()
    path = made.root / "headgate" / "owner.json"
    owner = json.loads(path.read_text())
    path.write_text(json.dumps({**owner, "started": "another boot:1"}))
    runner = stored.runner(made.checkpoint)
    assert not runner.running
    assert "is gone; start the job again to go on" in runner.text
    made.close()


def test_moves_are_seen(make_store: Any) -> None:
    made = make_store(planner="mixed", service_seconds=0.001)
    words = ["the"] * 30 + [f"w{number}" for number in range(30)]
    for _ in range(3):
        made.batch(words)
    made.close()
    seen = look(made.checkpoint)
    assert [each["batch"] for each in seen.recent] == [0, 1, 2]
    assert any(entry.kind in ("plan", "balanced", "skipped") for entry in seen.entries)


def test_a_damaged_line_of_the_journal_is_left_out(store: Any) -> None:
    (store.root / "headgate" / "journal" / "9.jsonl").write_text("{broken")
    assert [entry.kind for entry in stored.last_entries(store.checkpoint, 5)] == ["hand"]


@pytest.mark.parametrize("value", ["0", "nan", "-1"])
def test_the_pace_must_make_sense(store: Any, value: str) -> None:
    result = CliRunner().invoke(app, ["top", str(store.root), "--every", value])
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: --every must be ")


def _heed_interrupts() -> None:
    """Tests that run in the background of a script inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_follows_and_ends_with_an_interrupt(make_store: Any) -> None:
    made = make_store()
    made.batch(["the"])
    program = Path(sys.executable).with_name("headgate")
    command = [str(program), "top", str(made.root), "--every", "0.1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("wordcount: running: process ")
        assert process.stdout.readline().startswith("batch 0: 1 rows in ")
        made.batch(["the", "a"])
        assert process.stdout.readline().startswith("batch 1: 2 rows in ")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""
    made.close()
