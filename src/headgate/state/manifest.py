"""Manifests and plans: what a batch left behind, and what was decided before it ran.

``BatchPlan`` N is written before batch N runs, so that a replay decides nothing anew. ``Manifest`` N is written after
it, and commits it: what no manifest names does not exist. Both are one line of JSON with sorted keys, and a second
line with the checksum of the first. Equal content gives equal bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from headgate.arrays import I32, I64, frozen_i64
from headgate.errors import StateError
from headgate.routing.assignment import Assignment, Pins
from headgate.routing.handover import Handover
from headgate.state.refs import Layout

Result = TypeVar("Result")

FORMAT = 1
"""The format of manifests and plans that is written, and the newest that is read."""

Way = Literal["instant", "smooth", "manifest", "copy"]
"""How key groups take their state along: ``headgate.engine.migrating``."""

Migration = Literal["auto", "manifest", "copy", "smooth", "instant"]
"""What was asked for: how key groups that move get their state to the new slot (``headgate.engine.migrating``)."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Rows and bytes of state per place of one operator."""

    rows: I64
    bytes: I64

    @classmethod
    def sized(cls, counts: Counts | None, places: int) -> Counts:
        """The same counts for this many places: none in new ones, and those of places that are no more dropped."""
        rows, size = np.zeros(places, dtype=np.int64), np.zeros(places, dtype=np.int64)
        if counts is not None:
            rows[: len(counts.rows)] = counts.rows[:places]
            size[: len(counts.bytes)] = counts.bytes[:places]
        return cls(frozen_i64(rows), frozen_i64(size))

    def changed(self, place: I32, rows: I64, size: I64) -> Counts:
        """The counts after these changes; a place may occur often, and one that is no more does not count."""
        here = place < len(self.rows)
        new_rows, new_bytes = self.rows.copy(), self.bytes.copy()
        np.add.at(new_rows, place[here], rows[here])
        np.add.at(new_bytes, place[here], size[here])
        return Counts(frozen_i64(new_rows), frozen_i64(new_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The state of a job after batch ``batch``, all of it. Equal content compares equal.

    ``shared`` holds per operator the hashes of split keys, ascending; ``event_times`` per source the greatest event
    time seen; ``outputs`` per output the files of this batch's results; ``progress`` the migrations that are not over,
    and lines that the journal gets when the batch is delivered. Times are microseconds UTC.
    """

    job: str
    batch: int
    assignment: Assignment
    layout: Layout = field(default_factory=Layout)
    shared: tuple[I64, ...] = ()
    counts: tuple[Counts, ...] = ()
    event_times: Mapping[int, int] = field(default_factory=dict)
    watermark: int | None = None
    now: int = 0
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    handovers: tuple[Handover, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def to_bytes(self) -> bytes:
        return _sealed(
            {
                "kind": "manifest",
                "format": self.format,
                "job": self.job,
                "batch": self.batch,
                "assignment": assignment_to_json(self.assignment),
                "layout": self.layout.to_json(),
                "shared": [_packed(hashes) for hashes in self.shared],
                "counts": [{"rows": _packed(count.rows), "bytes": _packed(count.bytes)} for count in self.counts],
                "event_times": {str(source): time for source, time in self.event_times.items()},
                "watermark": self.watermark,
                "now": self.now,
                "outputs": {name: list(names) for name, names in self.outputs.items()},
                "handovers": _listed(self.handovers),
                "progress": dict(self.progress),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, file: str) -> Manifest:
        """What ``to_bytes`` gave. ``StateError``, naming the file, for a damaged one or a newer format."""
        return _opened(content, file, "manifest", cls._from_json)

    @classmethod
    def _from_json(cls, fields: Mapping[str, Any]) -> Manifest:
        return cls(
            job=fields["job"],
            batch=fields["batch"],
            assignment=assignment_from_json(fields["assignment"]),
            layout=Layout.from_json(fields["layout"]),
            shared=tuple(_hashes(text) for text in fields["shared"]),
            counts=tuple(Counts(_hashes(count["rows"]), _hashes(count["bytes"])) for count in fields["counts"]),
            event_times={int(source): time for source, time in fields["event_times"].items()},
            watermark=fields["watermark"],
            now=fields["now"],
            outputs={name: tuple(names) for name, names in fields["outputs"].items()},
            handovers=_handovers(fields),
            progress=fields["progress"],
            format=fields["format"],
        )


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """What is decided before a batch runs. Equal content compares equal.

    ``now`` is the processing time of the batch and of every replay of it; ``decisions`` are entries for the journal.
    ``ways`` says how key groups of an operator move that do, ``handovers`` are those that two slots have a part of,
    ``components`` the number of each operator's component, ``coming`` the ones that are to be once nothing is handed
    over any more, ``per_window`` the operators whose windows are computed one by one, and ``wishes`` what the job
    wanted where either may be changed while it runs.
    """

    batch: int
    assignment: Assignment
    watermark: int | None
    now: int
    shared: tuple[I64, ...] = ()
    migration: Migration = "auto"
    handovers: tuple[Handover, ...] = ()
    components: tuple[int, ...] = ()
    per_window: tuple[int, ...] = ()
    decisions: Sequence[Mapping[str, Any]] = ()
    ways: Mapping[int, Way] = field(default_factory=dict)
    format: int = FORMAT
    wishes: Mapping[str, str] = field(default_factory=dict)
    coming: tuple[int, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchPlan) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def to_bytes(self) -> bytes:
        return _sealed(
            {
                "kind": "plan",
                "format": self.format,
                "batch": self.batch,
                "assignment": assignment_to_json(self.assignment),
                "watermark": self.watermark,
                "now": self.now,
                "shared": [_packed(hashes) for hashes in self.shared],
                "migration": self.migration,
                "ways": {str(operator): way for operator, way in self.ways.items()},
                "handovers": _listed(self.handovers),
                "components": list(self.components),
                "coming": list(self.coming),
                "per_window": list(self.per_window),
                "wishes": dict(self.wishes),
                "decisions": [dict(decision) for decision in self.decisions],
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, file: str) -> BatchPlan:
        """What ``to_bytes`` gave. ``StateError``, naming the file, for a damaged one or a newer format."""
        return _opened(content, file, "plan", cls._from_json)

    @classmethod
    def _from_json(cls, fields: Mapping[str, Any]) -> BatchPlan:
        return cls(
            batch=fields["batch"],
            assignment=assignment_from_json(fields["assignment"]),
            watermark=fields["watermark"],
            now=fields["now"],
            shared=tuple(_hashes(text) for text in fields["shared"]),
            migration=fields["migration"],
            ways={int(operator): way for operator, way in fields.get("ways", {}).items()},
            handovers=_handovers(fields),
            components=tuple(fields.get("components", ())),
            coming=tuple(fields.get("coming", ())),
            per_window=tuple(fields.get("per_window", ())),
            wishes=fields.get("wishes", {}),
            decisions=tuple(fields["decisions"]),
            format=fields["format"],
        )


def _listed(handovers: Sequence[Handover]) -> list[list[int]]:
    return [[one.operator, one.group, one.slot, one.since] for one in handovers]


def _handovers(fields: Mapping[str, Any]) -> tuple[Handover, ...]:
    """What ``_listed`` gave; none in files of a version that did not know them."""
    return tuple(Handover(*numbers) for numbers in fields.get("handovers", ()))


def assignment_to_json(assignment: Assignment) -> dict[str, Any]:
    """Everything an assignment is, as JSON; ``assignment_from_json`` makes an equal one of it."""
    pins = assignment.pins
    return {
        "version": assignment.version,
        "slots": assignment.slots,
        "operators": assignment.operators,
        "draining": sorted(assignment.draining),
        "groups": _packed(assignment.groups),
        "pins": {"operator": _packed(pins.operator), "hash": _packed(pins.hash), "slot": _packed(pins.slot)},
    }


def assignment_from_json(fields: Mapping[str, Any]) -> Assignment:
    """The assignment that ``assignment_to_json`` was given."""
    pins = fields["pins"]
    return Assignment(
        groups=_unpacked(fields["groups"], np.int32),
        slots=fields["slots"],
        pins=Pins.of(
            _unpacked(pins["operator"], np.int32), _unpacked(pins["hash"], np.int64), _unpacked(pins["slot"], np.int32)
        ),
        draining=frozenset(fields["draining"]),
        operators=fields["operators"],
        version=fields["version"],
    )


ZLIB_LEVEL = 1
"""Manifests are written once per batch and read once per start, so the fastest level."""


def _packed(array: NDArray[Any]) -> str:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), ZLIB_LEVEL)).decode("ascii") if len(array) else ""


def _unpacked(text: str, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    raw = zlib.decompress(base64.b64decode(text, validate=True)) if text else b""
    return np.frombuffer(raw, dtype=np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _hashes(text: str) -> I64:
    return frozen_i64(_unpacked(text, np.int64))


def _sealed(fields: Mapping[str, Any]) -> bytes:
    line = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return line + b"\n" + xxhash.xxh3_64_hexdigest(line).encode() + b"\n"


def _opened(content: bytes, file: str, kind: str, build: Callable[[Mapping[str, Any]], Result]) -> Result:
    line, _, seal = content.partition(b"\n")
    if xxhash.xxh3_64_hexdigest(line).encode() + b"\n" != seal:
        raise StateError.damaged(file, "its content does not fit its checksum")
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("kind") != kind:
        raise StateError.foreign(file, f"a {kind} of headgate")
    if fields["format"] > FORMAT:
        raise StateError.newer(file, fields["format"], FORMAT)
    try:
        return build(fields)
    except (KeyError, ValueError, TypeError, zlib.error) as error:
        raise StateError.damaged(file, f"{type(error).__name__}: {error}") from error
