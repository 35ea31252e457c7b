"""The files of the journal: one for each young batch, one for every ``VOLUME`` batches once they are old.

    journal/N.jsonl            what was decided before batch N
    journal/FIRST-LAST.jsonl   a volume: the same of batches FIRST to LAST, in their order

A query that runs for months thus has some thousand files here and not one for each of its batches. A volume is whole
before the files in it are deleted. After a crash in between both are there: what a volume covers is read from the
volume, and the files are deleted the next time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.errors import StateError
from headgate.state.files import Files

VOLUME = 1024
"""Batches of a volume."""

DIRECTORY = "journal"
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A file with the entries of batches ``first`` to ``last``, both included."""

    first: int
    last: int

    @classmethod
    def named(cls, name: str) -> JournalFile | None:
        """The file of this name; None for a name that no file of the journal has."""
        first, _, last = name.removesuffix(SUFFIX).partition("-")
        last = last or first
        if not (name.endswith(SUFFIX) and first.isdecimal() and last.isdecimal()):
            return None
        return cls(int(first), int(last))

    @property
    def name(self) -> str:
        """Where it lies in a checkpoint."""
        batches = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{DIRECTORY}/{batches}{SUFFIX}"


class JournalFiles:
    """The journal in a checkpoint: entries are plain JSON, what they say is not looked at."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def append(self, batch: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add entries to those of a batch. An entry that is there already, word for word, is not added again, so a
        replay leaves the journal as it was."""
        name = JournalFile(batch, batch).name
        content = self._files.read_bytes(name) if self._files.exists(name) else b""
        have = set(content.splitlines())
        new = [json.dumps(dict(entry), sort_keys=True).encode() for entry in entries]
        new = [line for line in dict.fromkeys(new) if line not in have]
        if new:
            self._files.write_bytes(name, content + b"".join(line + b"\n" for line in new))

    def listed(self) -> list[JournalFile]:
        """The files that make up the journal, oldest batches first."""
        return _uncovered(self._found())

    def entries(self) -> list[dict[str, Any]]:
        """Every entry, oldest first, also while the owner of the checkpoint goes on. ``StateError`` where a file is
        damaged."""
        while True:
            listed = self.listed()
            try:
                return [entry for file in listed for entry in self._read(file)]
            except StateError:
                if self.listed() == listed:
                    raise
                # Files have gone into a volume meanwhile.

    def last(self, count: int) -> list[dict[str, Any]]:
        """The last so many entries, oldest first. Files that cannot be read are left out."""
        entries: list[dict[str, Any]] = []
        for file in reversed(self.listed()):
            if len(entries) >= count:
                break
            with contextlib.suppress(StateError):
                entries = self._read(file) + entries
        return entries[max(0, len(entries) - count) :]

    def bind(self, before: int) -> None:
        """Put files of batches before this one into volumes, as far as the batches of a volume are all before it. No
        entry may be added to those any more."""
        found = self._found()
        listed = _uncovered(found)
        for file in set(found).difference(listed):  # left behind by a process that died here
            self._files.delete(file.name)
        volumes: dict[JournalFile, list[JournalFile]] = {}
        for file in listed:
            start = file.first - file.first % VOLUME
            volume = JournalFile(start, start + VOLUME - 1)
            if file.first == file.last and volume.last < before:
                volumes.setdefault(volume, []).append(file)
        for volume, files in volumes.items():
            self._files.write_bytes(volume.name, b"".join(_ended(self._files.read_bytes(file.name)) for file in files))
            for file in files:
                self._files.delete(file.name)

    def _read(self, file: JournalFile) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self._files.read_bytes(file.name).splitlines()]
        except ValueError as error:
            raise StateError.damaged(self._files.join(file.name), str(error)) from error

    def _found(self) -> list[JournalFile]:
        """All files, by their first batch; a volume before what it covers."""
        found = filter(None, map(JournalFile.named, self._files.list(DIRECTORY)))
        return sorted(found, key=lambda file: (file.first, -file.last))


def _uncovered(found: Iterable[JournalFile]) -> list[JournalFile]:
    """Those that no volume covers, volumes among them."""
    listed: list[JournalFile] = []
    for file in found:
        if not listed or file.last > listed[-1].last:
            listed.append(file)
    return listed


def _ended(content: bytes) -> bytes:
    """Content whose last line is ended, so that what follows begins a line."""
    return content if not content or content.endswith(b"\n") else content + b"\n"
