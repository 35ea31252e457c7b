"""The journal's files: nothing is lost or doubled when old ones are bound into volumes, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import StateError
from headgate.state import Files, journal
from headgate.state.journal import JournalFile, JournalFiles


@pytest.fixture(autouse=True)
def small_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "VOLUME", 4)


def filled(files: Files, batches: int) -> tuple[JournalFiles, list[dict[str, Any]]]:
    """A journal with two entries for every batch."""
    made = JournalFiles(files)
    entries = [{"batch": batch, "n": n} for batch in range(batches) for n in range(2)]
    for batch in range(batches):
        made.append(batch, entries[2 * batch : 2 * batch + 2])
    return made, entries


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("7.jsonl", JournalFile(7, 7)),
        ("0-1023.jsonl", JournalFile(0, 1023)),
        ("7.json", None),
        ("notes.jsonl", None),
        ("-7.jsonl", None),
    ],
)
def test_names(name: str, file: JournalFile | None) -> None:
    assert JournalFile.named(name) == file
    assert file is None or file.name == f"journal/{name}"


def test_old_batches_go_into_volumes(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    made, entries = filled(files, 11)
    made.bind(before=7)
    assert sorted(files.list("journal")) == ["0-3.jsonl", "10.jsonl", *(f"{batch}.jsonl" for batch in range(4, 10))]
    made.bind(before=8)
    assert sorted(files.list("journal")) == ["0-3.jsonl", "10.jsonl", "4-7.jsonl", "8.jsonl", "9.jsonl"]
    assert made.entries() == entries
    assert made.last(5) == entries[-5:]
    assert made.last(12) == entries[-12:]
    assert made.last(0) == []
    assert made.last(100) == entries


@given(
    told=st.lists(st.integers(0, 3), max_size=20),
    kept=st.integers(1, 6),
    volume=st.integers(2, 5),
    data=st.data(),
)
def test_whenever_it_is_bound_it_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, told: list[int], kept: int, volume: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "VOLUME", volume)
        files = Files.at(tmp_path_factory.mktemp("journal"))
        made, entries = JournalFiles(files), list[dict[str, Any]]()
        for batch, count in enumerate(told):
            new = [{"batch": batch, "n": n} for n in range(count)]
            made.append(batch, new)
            entries += new
            if data.draw(st.booleans()):
                made.bind(before=batch - kept)
                assert len(files.list("journal")) <= kept + volume + batch // volume + 1
            assert made.entries() == entries
            assert made.last(3) == entries[-3:]


def test_a_crash_while_a_volume_is_made_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Files.delete
    for survived in range(9):
        files = Files.at(tmp_path / str(survived))
        made, entries = filled(files, 9)
        left = iter(range(survived))

        def dying(self: Files, name: str, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            delete(self, name)

        monkeypatch.setattr(Files, "delete", dying)
        if survived < 8:
            with pytest.raises(KeyboardInterrupt):
                made.bind(before=8)
        else:
            made.bind(before=8)
        monkeypatch.setattr(Files, "delete", delete)
        assert made.entries() == entries
        assert made.last(18) == entries
        made.bind(before=8)
        assert files.list("journal") == ["0-3.jsonl", "4-7.jsonl", "8.jsonl"]
        assert made.entries() == entries


def test_it_can_be_read_while_a_volume_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, entries = filled(Files.at(tmp_path), 9)
    owner, read = JournalFiles(Files.at(tmp_path)), Files.read_bytes

    def overtaken(self: Files, name: str) -> bytes:
        monkeypatch.setattr(Files, "read_bytes", read)
        owner.bind(before=8)
        return read(self, name)

    monkeypatch.setattr(Files, "read_bytes", overtaken)
    assert made.entries() == entries


def test_damage_is_named_and_stays_in_its_volume(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    made, entries = filled(files, 9)
    files.write_bytes("journal/2.jsonl", b'{"batch": 2')
    made.bind(before=8)
    with pytest.raises(StateError, match=r"journal/0-3.jsonl is damaged"):
        made.entries()
    assert made.last(100) == entries[8:]
    assert files.read_bytes("journal/0-3.jsonl").splitlines()[5:] == [b'{"batch": 3, "n": 0}', b'{"batch": 3, "n": 1}']
