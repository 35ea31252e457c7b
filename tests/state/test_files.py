from __future__ import annotations

import errno
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.errors import StateError
from headgate.state import Files, unique_name
from headgate.state import files as module


@pytest.fixture(params=["a local directory", "a local directory, synced", "a remote store"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """One contract for every kind of root. The remote one is pyarrow's file system in memory."""
    if request.param == "a remote store":
        return Files.at(f"mock:///{tmp_path.name}/{id(request)}", cache=str(tmp_path / "cache"))
    return Files.at(tmp_path / "root", sync=request.param.endswith("synced"))


def test_what_is_written_is_read(files: Files) -> None:
    files.write_bytes("a/b/one", b"first")
    assert (files.read_bytes("a/b/one"), files.exists("a/b/one"), files.size("a/b/one")) == (b"first", True, 5)
    files.write_bytes("a/b/one", b"second!")
    files.write_bytes("a/b/empty", b"")
    assert (files.read_bytes("a/b/one"), files.read_bytes("a/b/empty")) == (b"second!", b"")
    assert files.list("a/b") == ["empty", "one"]
    assert files.list("a/c") == []
    files.delete("a/b/one")
    files.delete("a/b/one")
    assert not files.exists("a/b/one")


def test_a_new_file_does_not_replace_one(files: Files) -> None:
    assert files.write_new("plans/1", b"mine")
    assert not files.write_new("plans/1", b"yours")
    assert files.read_bytes("plans/1") == b"mine"
    assert files.stale("plans") == []


def test_a_file_appears_when_it_is_finished(files: Files) -> None:
    with files.create("runs/x") as writer:
        writer.write(b"12")
        if files.is_local:
            assert files.list("runs") == []
            assert len(files.stale("runs")) == 1
        writer.write(memoryview(b"34"))
        writer.finish()
    assert files.read_bytes("runs/x") == b"1234"
    assert files.stale("runs") == []


def test_a_file_that_is_not_finished_leaves_nothing(files: Files) -> None:
    with files.create("runs/x") as writer:
        writer.write(b"12")
    assert (files.list("runs"), files.stale("runs"), files.exists("runs/x")) == ([], [], False)


def test_parquet_can_be_written_to_an_output(files: Files) -> None:
    table = pa.table({"a": [1, 2, 3]})
    sink = files.open_output("outbox/x.parquet")
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
    sink.close()
    assert pq.read_table(pa.BufferReader(files.read_bytes("outbox/x.parquet"))).equals(table)


def test_files_travel_by_their_address(files: Files) -> None:
    files.write_bytes("x", b"1")
    other = pickle.loads(pickle.dumps(files))
    assert other == files
    assert other.read_bytes("x") == b"1"


def test_a_missing_file_is_named(files: Files) -> None:
    for ask in (files.read_bytes, files.size, files.local_path):
        with pytest.raises(StateError, match=r"needs the file .*runs/gone, and it is not there: restore it"):
            ask("runs/gone")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x"])
def test_a_name_cannot_leave_the_root(files: Files, name: str) -> None:
    with pytest.raises(StateError, match="must lie under its root"):
        files.read_bytes(name)


def test_a_local_path_is_the_file_itself_or_a_copy(files: Files) -> None:
    files.write_bytes("runs/x", b"content")
    path = files.local_path("runs/x")
    assert path.read_bytes() == b"content"
    assert (str(path) == files.join("runs/x")) == files.is_local
    if not files.is_local:
        files.delete("runs/x")
        assert files.local_path("runs/x") == path, "fetched once per host"
        files.forget_copy("runs/x")
        with pytest.raises(StateError, match="not there"):
            files.local_path("runs/x")


def test_the_cache_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 250)
    files = Files.at(f"mock:///{tmp_path.name}/lru", cache=str(tmp_path / "cache"))
    for name in "abc":
        files.write_bytes(name, bytes(100))
    first, second = files.local_path("a"), files.local_path("b")
    os.utime(second, (1, 1))
    third = files.local_path("c")
    assert [path.exists() for path in (first, second, third)] == [True, False, True]


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files.at(tmp_path)

    class Full:
        def __init__(self, path: str) -> None:
            Path(path).touch()

        def write(self, content: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(module, "open", lambda path, *_, **__: Full(path), raising=False)
    with pytest.raises(StateError, match=r"no space left to write .*/runs/x: free some space") as caught:
        files.write_bytes("runs/x", b"1")
    assert caught.value.file == str(tmp_path / "runs/x")
    assert os.listdir(tmp_path / "runs") == []


def test_another_fault_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a directory should be")
    with pytest.raises(StateError, match=r"failed on .*runs/x \(.*Not a directory.*\): mend the access"):
        Files.at(tmp_path).write_bytes("runs/x", b"1")


def test_paths_and_file_uris_are_the_same_root(tmp_path: Path) -> None:
    assert Files.at(f"file://{tmp_path}") == Files.at(str(tmp_path) + "/") == Files.at(tmp_path)


def test_no_two_attempts_share_a_name() -> None:
    names = {unique_name("runs/0/7-1", "run") for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"runs/0/7-1-[0-9a-f]{8}\.run", name) for name in names)
