"""Runs: immutable files of state rows, sorted by place and key hash, each pair at most once.

    ┌──────────────────────────────────────────────────────────────────────────────────────────┐
    │ "hgrun" + format version                                                         8 bytes │
    │ Arrow schema                                                                             │
    │ block   an Arrow record batch, uncompressed, without the hashes                          │
    │         event timers: times ascending, then the row of each                              │
    │         processing timers, then times of expiry: the same                               │
    │ block ...                                                                                │
    │ hashes  one int64 per row                                                                │
    │ offsets one int64 per place and one more: rows of place p are offsets[p] .. offsets[p+1] │
    ├──────────────────────────────────────────────────────────────── what the checksum covers ┤
    │ footer  JSON: format, where the sections are, rows, schema fingerprint, checksum         │
    │ length of the footer (4 bytes), its own checksum (8 bytes), "hgrunend"                   │
    └──────────────────────────────────────────────────────────────────────────────────────────┘

Sections begin at multiples of 64 bytes, so a mapped file is used as it lies. The first 8 and the last 20 bytes stay as
they are in every later format, so that a reader can always tell a newer format from a damaged file.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from headgate.arrays import I32, I64, compiled
from headgate.errors import StateError
from headgate.state.bitmap import Bitmap
from headgate.state.files import Files
from headgate.state.rows import HASH, TIMERS, Timer

FORMAT = 1
"""The format that is written, and the newest that is read."""

MAGIC = b"hgrun\n"
END = b"hgrunend"
TRAILER = 4 + 8 + len(END)
ALIGNMENT = 64

OPEN_RUNS = 256
"""Runs a process keeps mapped. Each takes a file handle, and 1024 is the usual limit for those."""

Numbers = TypeVar("Numbers", bound=NDArray[Any])

SWEEP = 16
"""After so many newly opened runs, those whose file is deleted are let go, so that the disk gets its space back."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a manifest knows about a run, so that most questions need no file.

    ``name`` is relative to the root; ``checksum`` is the xxh3_64 of the content before the footer, in hex; ``places``
    are those that have rows; ``dead`` counts the tombstones; ``timers`` holds the first and the last time of
    each kind that some row has. ``pieces``, for the state of windows: which pieces its partials are of, as (hop, start,
    partials).
    """

    name: str
    batch: int
    rows: int
    bytes: int
    checksum: str
    places: Bitmap
    dead: int = 0
    timers: Mapping[Timer, tuple[int, int]] = field(default_factory=dict, hash=False)
    pieces: tuple[tuple[int, int, int], ...] = ()

    def __reduce__(self) -> tuple[type[RunInfo], tuple[Any, ...]]:
        return RunInfo, (
            self.name, self.batch, self.rows, self.bytes, self.checksum, self.places, self.dead, self.timers,
            self.pieces,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "batch": self.batch,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "places": self.places.to_text(),
            "dead": self.dead,
            "timers": dict(self.timers),
            "pieces": [list(piece) for piece in self.pieces],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RunInfo:
        """What ``to_json`` gave, after a trip through JSON. ``KeyError`` or ``ValueError`` for anything else."""
        return cls(
            name=fields["name"],
            batch=fields["batch"],
            rows=fields["rows"],
            bytes=fields["bytes"],
            checksum=fields["checksum"],
            places=Bitmap.from_text(fields["places"]),
            dead=fields["dead"],
            timers={kind: (first, last) for kind, (first, last) in fields["timers"].items()},
            pieces=tuple((hop, start, rows) for hop, start, rows in fields.get("pieces", ())),
        )


class Run:
    """An opened run, mapped into memory: nothing is copied until rows are taken. Made by ``open_run``.

    Opening verifies size and checksum, which reads the file once.
    """

    def __init__(self, path: str, name: str, info: RunInfo) -> None:
        self.info = info
        self._name = name
        self._path = path
        try:
            size = os.stat(path).st_size
            if size != info.bytes:
                raise StateError.truncated(name, info.bytes, size)
            self._buffer = pa.memory_map(path, "r").read_buffer()
        except FileNotFoundError as error:
            raise StateError.missing(name) from error
        footer, self._content_bytes = read_footer(self._buffer, name)
        if footer["checksum"] != info.checksum or footer["rows"] != info.rows:
            raise StateError.damaged(name, f"its checksum is {footer['checksum']}, the manifest says {info.checksum}")
        self.verify()  # before anything of it is made use of
        self.rows = int(footer["rows"])
        at, length = footer["schema"]
        self.schema: pa.Schema = pa.ipc.read_schema(self._buffer.slice(at, length))
        self._body = self.schema.remove(HASH)
        self.hashes = self._numbers(footer["hashes"], self.rows)
        self.offsets = self._numbers(footer["offsets"], footer["places"] + 1)
        self._hash_buffer = self._buffer.slice(footer["hashes"], 8 * self.rows)
        self._entries: list[list[int]] = footer["blocks"]
        self._starts = np.array([entry[0] for entry in self._entries] + [self.rows], dtype=np.int64)
        self._blocks: list[pa.RecordBatch | None] = [None] * len(self._entries)

    @property
    def places(self) -> int:
        """How many places there were when it was written; there may be more now, of which it has no rows."""
        return len(self.offsets) - 1

    @property
    def is_deleted(self) -> bool:
        """Whether the file is gone; what is mapped stays readable."""
        return not os.path.exists(self._path)

    def verify(self) -> None:
        """Read everything; ``StateError`` when the content is not what was written."""
        found = xxhash.xxh3_64_hexdigest(memoryview(self._buffer)[: self._content_bytes])
        if found != self.info.checksum:
            raise StateError.damaged(self._name, f"its content has checksum {found}, it must be {self.info.checksum}")

    def span(self, place: int) -> tuple[int, int]:
        """The rows of a place, first and one past the last; none for a place that came later."""
        if place >= self.places:
            return self.rows, self.rows
        return int(self.offsets[place]), int(self.offsets[place + 1])

    def spans(self, places: Bitmap) -> tuple[I64, I64]:
        """Where the rows of these places lie: starts and stops, ascending, as few as can be. Places without rows part
        nothing: a slot's own run is one span, however scattered its places are."""
        wanted = places.mask(self.places)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], wanted, [False]))))
        starts, stops = self.offsets[edges[::2]], self.offsets[edges[1::2]]
        filled = stops > starts
        starts, stops = starts[filled], stops[filled]
        apart = starts[1:] != stops[:-1]
        return starts[np.append(True, apart)[: len(starts)]], stops[np.append(apart, True)[: len(stops)]]

    def find(self, place: I32, hashes: I64) -> I64:
        """The row of each (place, hash), -1 where there is none. Fastest when they come in ascending order."""
        return _find(_fixed(place), _fixed(hashes), self.offsets, self.hashes)

    def place_of(self, rows: I64) -> I32:
        """The place of each row."""
        return (np.searchsorted(self.offsets, rows, side="right") - 1).astype(np.int32)

    def places_between(self, start: int, stop: int) -> I32:
        """The place of each row from start up to stop."""
        first, last = np.searchsorted(self.offsets, [start, stop - 1], side="right") - 1
        numbers = np.arange(first, last + 1, dtype=np.int32)
        edges = np.clip(self.offsets[first : last + 2], start, stop)
        return np.repeat(numbers, np.diff(edges))

    def take(self, rows: I64, columns: Sequence[int] | None = None) -> pa.Table:
        """Copies of these rows, which must ascend; all columns, or those at the given positions."""
        chosen = range(len(self.schema)) if columns is None else columns
        schema = self.schema if columns is None else pa.schema([self.schema.field(at) for at in chosen])
        parts: list[list[pa.Array]] = [[] for _ in chosen]
        bounds = np.searchsorted(rows, self._starts)
        for number in np.flatnonzero(np.diff(bounds)):
            inside = rows[bounds[number] : bounds[number + 1]]
            local = pa.array(inside - self._starts[number])
            block = self._block(int(number))
            for part, at in zip(parts, chosen, strict=True):
                part.append(pa.array(self.hashes[inside]) if at == HASH else block.column(at - 1).take(local))
        arrays = [pa.chunked_array(part, type=field.type) for part, field in zip(parts, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def table(self, start: int, stop: int) -> pa.Table:
        """The rows from start up to but without stop, as they lie in the file: nothing is copied."""
        if start >= stop:
            return self.schema.empty_table()
        first, last = np.searchsorted(self._starts, [start, stop - 1], side="right") - 1
        batches = []
        for number in range(int(first), int(last) + 1):
            base = int(self._starts[number])
            low = max(start, base) - base
            high = min(stop, int(self._starts[number + 1])) - base
            batches.append(self._block(number).slice(low, high - low))
        hashes = pa.Array.from_buffers(pa.int64(), stop - start, [None, self._hash_buffer], 0, start)
        body = pa.Table.from_batches(batches, schema=self._body)
        return pa.Table.from_arrays([pa.chunked_array([hashes]), *body.columns], schema=self.schema)

    def due(self, kind: Timer, after: int | None, upto: int) -> I64:
        """The rows whose timer lies in (after, upto], ascending; ``after=None`` has no lower bound."""
        span = self.info.timers.get(kind)
        if span is None or span[0] > upto or (after is not None and span[1] <= after):
            return np.zeros(0, dtype=np.int64)
        at = 4 + 2 * list(TIMERS).index(kind)
        found = []
        for entry in self._entries:
            position, count = entry[at : at + 2]
            if count:
                at_times = self._numbers(position, count)
                low = 0 if after is None else int(np.searchsorted(at_times, after, side="right"))
                high = int(np.searchsorted(at_times, upto, side="right"))
                rows_at = position + 8 * count + -(position + 8 * count) % ALIGNMENT
                found.append(self._numbers(rows_at, count)[low:high])
        return np.sort(np.concatenate(found))

    def _block(self, number: int) -> pa.RecordBatch:
        block = self._blocks[number]
        if block is None:
            at, length = self._entries[number][2:4]
            block = pa.ipc.read_record_batch(pa.ipc.read_message(self._buffer.slice(at, length)), self._body)
            self._blocks[number] = block
        return block

    def _numbers(self, position: int, count: int) -> I64:
        return np.frombuffer(self._buffer, dtype=np.int64, count=count, offset=position)


def read_footer(buffer: pa.Buffer, name: str) -> tuple[dict[str, Any], int]:
    """The footer of a run and where it begins. ``StateError`` for a damaged or foreign file or a newer format."""
    size = len(buffer)
    if size < TRAILER + len(MAGIC) + 2 or bytes(buffer.slice(size - len(END), len(END))) != END:
        raise StateError.foreign(name, "a run of headgate")
    trailer = bytes(buffer.slice(size - TRAILER, TRAILER))
    length = int.from_bytes(trailer[:4], "little")
    begin = size - TRAILER - length
    if begin < len(MAGIC) + 2:
        raise StateError.damaged(name, f"its footer cannot have {length} bytes")
    text = bytes(buffer.slice(begin, length))
    if xxhash.xxh3_64_digest(text) != trailer[4:12]:
        raise StateError.damaged(name, "its footer does not fit the footer's checksum")
    footer: dict[str, Any] = json.loads(text)
    if footer["format"] > FORMAT:
        raise StateError.newer(name, footer["format"], FORMAT)
    if bytes(buffer.slice(0, len(MAGIC) + 2)) != MAGIC + footer["format"].to_bytes(2, "little"):
        raise StateError.damaged(name, "it does not begin as a run does")
    return footer, begin


_cache: OrderedDict[tuple[str, str], Run] = OrderedDict()
_cache_lock = threading.Lock()
_opened = 0


def open_run(files: Files, info: RunInfo, schema: pa.Schema | None = None) -> Run:
    """The run, mapped; from then on each call in this process is a look into a table.

    The first time, size and checksum are verified, which reads the file once. A damaged copy of a remote file is
    fetched anew. ``StateError``, naming the file, when it is missing, truncated, damaged, not a run, of a newer format
    or, where ``schema`` is given, has other columns.
    """
    key = (files.root, info.name)
    with _cache_lock:
        run = _cache.get(key)
        if run is not None and run.info.checksum == info.checksum:
            _cache.move_to_end(key)
        else:
            run = None
    if run is None:
        run = _opened_anew(files, info)
        _remember(key, run)
    if schema is not None and not run.schema.equals(schema):
        raise StateError.schema(files.join(info.name), named(schema), named(run.schema))
    return run


def forget_runs() -> None:
    """Let go of every run this process has mapped."""
    with _cache_lock:
        _cache.clear()


def _opened_anew(files: Files, info: RunInfo) -> Run:
    name = files.join(info.name)
    try:
        return Run(str(files.local_path(info.name)), name, info)
    except StateError:
        if files.is_local:
            raise
        files.forget_copy(info.name)
        return Run(str(files.local_path(info.name)), name, info)


def _remember(key: tuple[str, str], run: Run) -> None:
    global _opened
    with _cache_lock:
        _cache[key] = run
        _cache.move_to_end(key)
        _opened += 1
        if _opened % SWEEP == 0:
            for gone in [other for other, held in _cache.items() if held.is_deleted]:
                del _cache[gone]
        while len(_cache) > OPEN_RUNS:
            _cache.popitem(last=False)


def fingerprint(schema: pa.Schema) -> str:
    """A short text that differs when names, types or order of the columns do."""
    return xxhash.xxh3_64_hexdigest(named(schema).encode())


def named(schema: pa.Schema) -> str:
    """The columns and their types, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _fixed(array: Numbers) -> Numbers:
    """A read-only view: compiled loops then see one kind of array, and are compiled once."""
    view = array.view()
    view.setflags(write=False)
    return view


PROBES = 6
"""Guesses by proportion before a search falls back to halving. Hashes are spread evenly, and then about
log2(log2(rows)) guesses find a key, five among ten million; halving bounds the search where they are not."""


@compiled
def _find(place: I32, wanted: I64, offsets: I64, hashes: I64) -> I64:
    rows = np.empty(len(wanted), dtype=np.int64)
    places = len(offsets) - 1
    for query in range(len(wanted)):
        rows[query] = -1
        if place[query] >= places:
            continue
        key = wanted[query]
        low, high = offsets[place[query]], offsets[place[query] + 1] - 1
        probes = 0
        while low <= high:
            first, last = hashes[low], hashes[high]
            if key < first or key > last:
                break
            if probes < PROBES:
                spread = np.float64(last) - np.float64(first)
                share = (np.float64(key) - np.float64(first)) / spread if spread > 0.0 else 0.0
                middle = low + np.int64(share * np.float64(high - low))
                middle = min(max(middle, low), high)
                probes += 1
            else:
                middle = low + (high - low) // 2
            found = hashes[middle]
            if found == key:
                rows[query] = middle
                break
            if found < key:
                low = middle + 1
            else:
                high = middle - 1
    return rows
