"""A crash before every single call that changes the disk, while a batch is written, committed and cleaned up after.

A crashed process does nothing more: from the crash on every change fails, also those of clean-up code. The next
process then finds either the version before or the whole new one, nothing damaged, and can do the batch again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.routing import Assignment
from headgate.state import BatchPlan, Checkpoint, Files, Layout, Manifest, lookup, write_delta
from headgate.state import files as module

Row = Callable[..., Any]


class CrashError(BaseException):
    """The process is gone."""


class Disk:
    """Counts the changes below a directory, and fails from the given one on. Others, as Numba's cache, do not count."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = str(root)
        self.left: float = float("inf")
        self.changes = 0
        for name in ("rename", "link", "unlink", "makedirs"):
            monkeypatch.setattr(os, name, self.guarded(getattr(os, name)))
        monkeypatch.setattr(module, "open", self.opened, raising=False)

    def guarded(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if str(path).startswith(self.root):
                self.step()
            return change(path, *args, **options)

        return call

    def opened(self, path: Any, mode: str, **options: Any) -> Any:
        if "w" not in mode:
            return open(path, mode, **options)
        self.step()
        return Writing(self, open(path, mode, **options))

    def step(self) -> None:
        if self.left <= 0:
            raise CrashError
        self.left -= 1
        self.changes += 1


class Writing:
    """A file whose writes count; the one that crashes leaves half of its bytes behind."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self.disk, self.file = disk, file

    def write(self, content: memoryview) -> int:
        try:
            self.disk.step()
        except CrashError:
            self.file.write(content[: len(content) // 2])
            raise
        return int(self.file.write(content))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def run_batch(bench: Any, row: Row, batch: int) -> None:
    """Batch n counts keys 0 to 3 up to n; key 9 is there in even batches only."""
    checkpoint = Checkpoint(bench.files, clock=lambda: 0.0)  # a slow machine gives no sign of life in between
    checkpoint.claim({"name": "x"}, run_id=f"run of {batch}", host="here", pid=os.getpid(), takeover=True)
    last = checkpoint.latest()
    if last is not None and last.batch == batch:
        return
    plan = checkpoint.plan(batch) or BatchPlan(batch, Assignment.hashed(1, 8), None, batch)
    checkpoint.write_plan(plan)
    layout = Layout() if last is None else last.layout
    rows = [row(key, key, count=batch) for key in range(4)] + [row(5, 9, count=batch, live=batch % 2 == 0)]
    place, table = bench.table(rows)
    written = write_delta(
        bench.files, checkpoint.run_name(0, batch, 0), bench.schema, batch, bench.places,
        place, table, layout.refs(0, 0), plan.now,
    )  # fmt: skip
    checkpoint.append_journal(batch, [{"batch": batch}])
    checkpoint.commit(Manifest("job", batch, plan.assignment, layout.with_run(0, 0, *written), now=plan.now))
    checkpoint.retain(1)
    checkpoint.write_progress(batch, {"batch": batch})
    checkpoint.release()


def counts(bench: Any, checkpoint: Checkpoint) -> list[int | None]:
    latest = checkpoint.latest()
    assert latest is not None
    asked = bench.keys([(0, 0), (3, 3), (5, 9)])
    found = lookup(bench.files, latest.layout.refs(0, 0), bench.schema, *asked)
    values: list[int | None] = found.table.column("count").to_pylist()
    return values


def state_of(batch: int) -> list[int | None]:
    return [batch, batch, batch if batch % 2 == 0 else None]


def test_a_crash_anywhere_loses_and_doubles_nothing(
    make_bench: Any, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    run_batch(make_bench(Files.at(tmp_path / "whole")), row, 0)
    once = disk.changes
    run_batch(make_bench(Files.at(tmp_path / "whole")), row, 1)
    changes = disk.changes - once
    assert changes > 15
    for crash in range(changes):
        bench = make_bench(Files.at(tmp_path / str(crash)))
        run_batch(bench, row, 0)
        disk.left = crash
        with pytest.raises(CrashError):
            run_batch(bench, row, 1)
        disk.left = float("inf")
        checkpoint = Checkpoint(bench.files)
        committed = checkpoint.versions()[-1]
        assert counts(bench, checkpoint) == state_of(committed)
        assert [finding for finding in checkpoint.verify() if finding.problem] == []
        for batch in (1, 2, 3):
            run_batch(bench, row, batch)
            assert counts(bench, checkpoint) == state_of(batch)
        assert checkpoint.versions() == [3]
        assert checkpoint.journal() == [{"batch": batch} for batch in range(4)]
        latest = checkpoint.latest()
        assert latest is not None
        left = [f"runs/0/{name}" for name in bench.files.list("runs/0")]
        assert left == sorted(latest.layout.runs()), "no orphan is left"
        hidden = {name for _, _, names in os.walk(bench.files.root) for name in names if name.endswith(".tmp")}
        assert hidden == set()
