"""Disks that are full or lose what was on them: the error says which file and what to do, and nothing is made worse."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.state import Checkpoint, Files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Feed = Callable[..., Path]

WAIT_SECONDS = 300.0
KEYS = 20_000
"""Enough for the state of a batch to be larger than what a nearly full disk has left."""
LEFT_BYTES = 256 << 10
"""What the full disk has left: enough for Spark's own notes, too little for the state."""


def _job(spark: Any, folder: Path, out: Path) -> hg.Job:
    job = hg.Job("disk")
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    totals = job.source(rows).key_by("k").aggregate(n=hg.count(), total=hg.sum("v"))
    totals.write_to(hg.sinks.parquet(str(out)))
    return job


def _run(spark: Any, folder: Path, checkpoint: Path, out: Path) -> None:
    query = _job(spark, folder, out).start(
        spark, checkpoint=str(checkpoint), slots=2, balance=None, trigger="available now"
    )
    assert query.await_termination(WAIT_SECONDS)


def _results(out: Path, batch: int) -> list[tuple[int, int, int]]:
    files = sorted(out.glob(f"part-{batch:012d}-*"))
    return sorted(tuple(row.values()) for path in files for row in pq.read_table(path).to_pylist())


def _table(keys: int, value: int) -> pa.Table:
    return pa.table({"k": pa.array(range(keys)), "v": pa.array([value] * keys)})


def _content(folder: Path) -> dict[str, str]:
    """Every file with the hash of what is in it, save the mark of who runs the checkpoint, and results that have long
    been delivered, which a start clears away."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "owner" not in path.name and not path.match("outbox/*/*.parquet")
    }


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"mounting a small disk is not permitted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_stops_the_query_and_room_lets_it_go_on(
    spark: Any, feed: Feed, tmp_path: Path, small_disk: Path
) -> None:
    folder = feed(_table(10, 1))
    checkpoint, out = small_disk / "ck", tmp_path / "out"
    _run(spark, folder, checkpoint, out)
    usage = shutil.disk_usage(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (usage.free - LEFT_BYTES))
    feed(_table(KEYS, 2))
    before = _content(checkpoint / "headgate")
    for _ in range(2):  # trying again without more room ends the same way
        with pytest.raises(hg.QueryError) as failure:
            _run(spark, folder, checkpoint, out)
        text = str(failure.value)
        assert text.startswith(f"query 'disk' failed in batch 1: StateError: no space left to write {checkpoint}/"), (
            text
        )
        assert "free some space and start the job again, it goes on from its last commit" in text
    after = _content(checkpoint / "headgate")
    assert {name: after.get(name) for name in before} == before
    assert {name.split("/")[0] for name in after.keys() - before.keys()} <= {"plans", "runs"}
    assert [name for name in after if name.endswith(".tmp")] == [], "half-written files take no room"
    filler.unlink()
    _run(spark, folder, checkpoint, out)
    assert _results(out, 1) == [(k, 2, 3) if k < 10 else (k, 1, 2) for k in range(KEYS)]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_cut, "{file} must have {size} bytes and has {half}: restore it from a backup"),
    "a bit flipped": (_flip, "{file} is damaged (its content has checksum"),
    "missing": (Path.unlink, "the state store needs the file {file}, and it is not there: restore it from a backup"),
}


def test_a_damaged_run_is_named_nothing_is_overwritten_and_a_restored_one_is_used(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    tables = [_table(50, 1), _table(20, 10)]
    folder = feed(*tables)
    good, out = tmp_path / "ck", tmp_path / "out"
    _run(spark, folder, good, out)
    feed(_table(50, 100))
    expected = [(k, 3, 111) if k < 20 else (k, 2, 101) for k in range(50)]
    for what, (damage, text) in DAMAGES.items():
        checkpoint = tmp_path / f"{what}".replace(" ", "-")
        shutil.copytree(good, checkpoint)
        store = Checkpoint(Files.at(checkpoint / "headgate"))
        manifest = store.latest()
        assert manifest is not None
        name = max(manifest.layout.runs(), key=lambda run: store.files.size(run))
        path = Path(store.files.join(name))
        size = path.stat().st_size
        damage(path)
        before = _content(checkpoint / "headgate")
        for _ in range(2):
            with pytest.raises(hg.QueryError) as failure:
                _run(spark, folder, checkpoint, out)
            wanted = text.format(file=path, size=size, half=size // 2)
            assert str(failure.value).startswith(f"query 'disk' failed in batch 2: StateError: {wanted}"), what
        after = _content(checkpoint / "headgate")
        assert {file: after.get(file) for file in before} == before, what
        assert {file.split("/")[0] for file in after.keys() - before.keys()} <= {"plans", "runs"}, what
        assert _results(out, 2) == [], what
        assert [finding.file for finding in store.verify() if finding.problem] == [name], what
        shutil.copy(good / "headgate" / name, path)
        _run(spark, folder, checkpoint, out)
        assert _results(out, 2) == expected, what
        for file in out.glob("part-000000000002-*"):
            file.unlink()


def test_a_damaged_manifest_is_named_and_left_as_it_is(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(_table(5, 1), _table(5, 1))
    checkpoint, out = tmp_path / "ck", tmp_path / "out"
    _run(spark, folder, checkpoint, out)
    path = checkpoint / "headgate" / "manifests" / "1.json"
    _flip(path)
    before = _content(checkpoint)
    with pytest.raises(hg.StateError) as failure:
        _run(spark, folder, checkpoint, out)
    assert str(failure.value) == (
        f"{path} is damaged (its content does not fit its checksum): restore it from a backup, or go back to a version "
        "of the checkpoint that does not use it"
    )
    assert _content(checkpoint) == before
    assert not (checkpoint / "headgate" / "owner.json").exists()
