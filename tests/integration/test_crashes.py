"""The driver is killed, over and over, while keys move and slots change; what comes out is as if nothing had happened.

``make test`` kills it 8 times, ``make test-faults`` (``HEADGATE_FAULTS=full``) more than 60 times.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from headgate.testing import CRASH_POINTS, CRASH_VARIABLE

pytest.importorskip("pyspark", reason="PySpark is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("crashes.py")
FULL = os.environ.get("HEADGATE_FAULTS") == "full"
FULL_KILLS = 60
FULL_FILES = 14
PARTICULAR = {"during compaction": True, "in the middle of a move": False}
"""Points that are reached in calm batches only, or in the others only."""

PATIENCE = 600.0
"""Seconds after which a run is taken to hang."""


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crashes", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crashes"] = module
    spec.loader.exec_module(module)
    return module


crashes = _program()


@dataclass(slots=True)
class Victim:
    """Runs the job on one folder, again and again."""

    folder: Path
    migration: str = "manifest"
    kills: list[str] = field(default_factory=list)
    _groups: list[int] = field(default_factory=list)

    def run(self, *, at: str = "", after: float | None = None, whole: bool = False) -> bool:
        """Run until it ends, is killed at a point, or ``after`` so many seconds of work; whether it was killed.

        ``whole``: Java and all tasks go down with the driver, as when a machine dies; else they notice by themselves.
        """
        environment = {**os.environ, CRASH_VARIABLE: at}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.folder), self.migration],
                stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self._groups.append(process.pid)
        assert process.stdout is not None
        try:
            if after is not None:
                process.stdout.readline()
                time.sleep(after)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL) if whole else process.kill()
            code = process.wait(PATIENCE)
        finally:
            process.kill()
            process.stdout.close()
        if code == -signal.SIGKILL:
            self.kills.append(at or f"after {after:.2f} s{' with Java' if whole else ''}")
            return True
        said = (self.folder / "log").read_text()[-4000:]
        assert code == 0, f"the job failed after {self.kills}:\n{said}"
        return False

    @property
    def store(self) -> Path:
        return self.folder / "ck" / "headgate"

    def next_batch(self) -> int:
        """The batch that is to be committed next."""
        manifests = self.store / "manifests"
        done = [int(path.stem) for path in manifests.glob("[0-9]*.json")] if manifests.exists() else []
        return max(done, default=-1) + 1

    def clean_up(self) -> None:
        """End what may be left of killed runs: each had a process group of its own."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


@pytest.fixture
def victims() -> Iterator[list[Victim]]:
    made: list[Victim] = []
    yield made
    for victim in made:
        victim.clean_up()


def _check(victim: Victim, tables: list[pa.Table], calm: Victim | None) -> None:
    """The outcome is that of the model for the batches Spark made, and, where these are the same, that of a run that
    nobody disturbed, byte for byte."""
    batches = crashes.boundaries(victim.folder, tables)
    assert sum(len(files) for files in batches) == len(tables)
    got, expected = crashes.outcome(victim.folder), crashes.model(batches)
    told = f"after {victim.kills}"
    for name, rows in expected.outputs.items():
        assert got.outputs[name] == rows, f"output {name} {told}"
    for name, rows in expected.state.items():
        assert got.state[name] == rows, f"state of {name} {told}"
    if calm is not None and len(batches) == len(tables):
        assert _bytes(got) == _bytes(crashes.outcome(calm.folder)), told


def _bytes(outcome: object) -> bytes:
    """Everything as one Arrow stream per table, rows sorted."""
    sink = pa.BufferOutputStream()
    for part in (outcome.outputs, outcome.state):  # type: ignore[attr-defined]
        for rows in part.values():
            columns = list(zip(*rows, strict=True))
            table = pa.table([pa.array(column) for column in columns], [str(number) for number in range(len(columns))])
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return bytes(sink.getvalue())


def test_eight_kills_change_nothing(tmp_path: Path, victims: list[Victim]) -> None:
    if FULL:
        pytest.skip("the long version runs instead")
    calm, victim = Victim(tmp_path / "calm"), Victim(tmp_path / "killed")
    victims += [calm, victim]
    tables = crashes.make_input(calm.folder, 5)
    crashes.make_input(victim.folder, 5)
    points = (
        "after plan write@0",
        "in the middle of a move@1",
        "during tasks@1",
        "before manifest commit@2",
        "after manifest commit@2",
        "during compaction@3",
        "during sink write@3",
    )
    for point in points:
        assert victim.run(at=point), f"{point} was not reached"
    victim.run(after=0.2, whole=True)
    assert len(victim.kills) == len(points) + 1
    assert not victim.run()
    assert not calm.run()
    _check(calm, tables, None)
    _check(victim, tables, calm)


@pytest.mark.skipif(not FULL, reason="takes many minutes: make test-faults")
def test_many_kills_change_nothing(tmp_path: Path, victims: list[Victim]) -> None:
    chance = random.Random(20_26)
    calm = Victim(tmp_path / "calm")
    victims.append(calm)
    tables = crashes.make_input(calm.folder, FULL_FILES)
    assert not calm.run()
    _check(calm, tables, None)
    kills: list[str] = []
    trial = 0
    while len(kills) < FULL_KILLS:
        victim = Victim(tmp_path / f"trial{trial}", "copy" if trial % 3 == 2 else "manifest")
        victims.append(victim)
        crashes.make_input(victim.folder, FULL_FILES)
        # Every point in its turn, in this batch or the next; and every fourth time at any moment.
        for turn in itertools.count(5 * trial):
            point = CRASH_POINTS[turn % len(CRASH_POINTS)]
            batch = victim.next_batch() + chance.randrange(2)
            if "plan" in point and (victim.store / "plans" / f"{batch}.json").exists():
                batch += 1  # this one is planned already, and will not be again
            batch = max(batch, 1)
            while point in PARTICULAR and PARTICULAR[point] != crashes.is_calm(batch):
                batch += 1
            if batch >= FULL_FILES:
                break
            if turn % 4 == 3:  # four and the nine points have no common divisor, so each point gets its turn
                killed = victim.run(after=chance.uniform(0.0, 3.0), whole=chance.random() < 0.5)
            else:
                killed = victim.run(at=f"{point}@{batch}")
                # Whether a slot has something to merge depends on what its crashes left it with.
                always = point != "during compaction" and len(crashes.boundaries(victim.folder, tables)) == FULL_FILES
                assert killed or not always, f"not reached: {point}"
            if not killed:
                break
        victim.run()  # what is left; after a kill in the delivery of the last batch that is the delivery
        _check(victim, tables, calm)
        kills += victim.kills
        print(f"trial {trial}: {len(victim.kills)} kills, all well: {', '.join(victim.kills)}", flush=True)
        trial += 1
    for point in CRASH_POINTS:
        assert any(kill.startswith(f"{point}@") for kill in kills), f"never killed {point}"
