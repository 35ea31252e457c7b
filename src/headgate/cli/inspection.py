"""What is in a checkpoint: versions, sizes per operator and slot, and the state of one key.

The names that ``to_json`` gives are a contract: scripts read them. New names may come, none goes or changes its unit.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64
from headgate.cli.stored import operators
from headgate.errors import CheckpointError, InputError, StateError
from headgate.operators import keys_at
from headgate.routing import SHARED, Places, row_hash
from headgate.state import FIRST_KEY, Checkpoint, Files, Manifest, Ref, lookup, open_run, timer_column
from headgate.state.rows import TIMERS


@dataclass(frozen=True, slots=True)
class Version:
    """The state after one batch. ``problem`` says why it cannot be read; the figures are 0 then.

    ``state_bytes`` is what the rows take, ``file_bytes`` what the runs take that this version refers to.
    """

    batch: int
    time: str | None = None
    rows: int = 0
    state_bytes: int = 0
    file_bytes: int = 0
    runs: int = 0
    slots: int = 0
    pins: int = 0
    split_keys: int = 0
    assignment: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one slot has of one operator; slot ``SHARED`` (-1) stands for the keys that are split over all slots."""

    operator: str
    slot: int
    rows: int
    state_bytes: int
    groups: tuple[int, ...]
    pins: int
    runs: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of one key, and where it is."""

    operator: str
    key: Mapping[str, Any]
    state: Mapping[str, Any]
    hash: str
    slot: int
    group: int
    where: str
    version: int
    times: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def versions(checkpoint: Checkpoint) -> list[Version]:
    """Every version that is kept, oldest first. One that vanishes meanwhile is left out, a damaged one says so."""
    found = []
    for batch in checkpoint.versions():
        try:
            found.append(_version(checkpoint.manifest(batch)))
        except CheckpointError:
            continue
        except StateError as error:
            if checkpoint.files.exists(f"manifests/{batch}.json"):
                found.append(Version(batch, problem=str(error)))
    return found


def _version(manifest: Manifest) -> Version:
    runs = manifest.layout.runs()
    return Version(
        batch=manifest.batch,
        time=instant(manifest.now),
        rows=sum(int(count.rows.sum()) for count in manifest.counts),
        state_bytes=sum(int(count.bytes.sum()) for count in manifest.counts),
        file_bytes=sum(run.bytes for run in runs.values()),
        runs=len(runs),
        slots=manifest.assignment.slots,
        pins=len(manifest.assignment.pins),
        split_keys=sum(len(keys) for keys in manifest.shared),
        assignment=manifest.assignment.version,
    )


def manifest_of(checkpoint: Checkpoint, version: int | None) -> Manifest:
    """One version, or the last. ``InputError`` where there is none, ``StateError`` for a damaged one."""
    have = checkpoint.versions()
    if not have:
        raise InputError(f"{checkpoint.files.root} has no version yet: no batch has been committed")
    if version is None:
        return checkpoint.manifest(have[-1])
    if version not in have:
        raise InputError(f"there is no version {version} in {checkpoint.files.root}: it has {span_text(have)}")
    return checkpoint.manifest(version)


def shares(checkpoint: Checkpoint, manifest: Manifest) -> list[Share]:
    """What each slot has of each operator in a version."""
    found = []
    assignment = manifest.assignment
    for number, operator in enumerate(operators(checkpoint)):
        places = _places(manifest, number)
        owners = places.owners()
        _, pinned = assignment.pins.of_operator(number)
        for slot in [*range(assignment.slots), SHARED]:
            refs = manifest.layout.refs(number, slot)
            if slot == SHARED and not (refs or len(places.shared)):
                continue
            mine = np.flatnonzero(owners == slot)
            rows, size = _sized(manifest, number, mine.astype(np.int32))
            found.append(
                Share(
                    operator["name"],
                    slot,
                    rows,
                    size,
                    tuple(mine[mine < places.groups].tolist()),
                    len(places.shared) if slot == SHARED else int(np.count_nonzero(pinned == slot)),
                    len(refs),
                    slot in assignment.draining,
                )
            )
    return found


def _places(manifest: Manifest, number: int) -> Places:
    empty = np.empty(0, dtype=np.int64)
    return Places(manifest.assignment, number, manifest.shared[number] if number < len(manifest.shared) else empty)


def _sized(manifest: Manifest, number: int, places: I32) -> tuple[int, int]:
    if number >= len(manifest.counts):
        return 0, 0
    count = manifest.counts[number]
    inside = places[places < len(count.rows)]
    return int(count.rows[inside].sum()), int(count.bytes[inside].sum())


def state_of(checkpoint: Checkpoint, manifest: Manifest, text: str, operator: str | None = None) -> list[KeyState]:
    """The state of a key in one operator, or in each that has it.

    ``text`` is the value; with several key columns a JSON array or values with commas between them, with none ``[]``
    or an empty text. Raises ``InputError`` for an operator that does not exist, a text that cannot be such a key, and a
    key without state.
    """
    known = operators(checkpoint)
    names = [each["name"] for each in known]
    if operator is not None and operator not in names:
        raise InputError(f"there is no operator {operator!r} in this job: it has {', '.join(names) or 'none'}")
    chosen = [number for number, name in enumerate(names) if operator in (None, name)]
    found: list[KeyState] = []
    faults: list[InputError] = []
    for number in chosen:
        try:
            state = _state_in(checkpoint, manifest, number, known[number], text)
        except InputError as error:
            faults.append(error)
            continue
        if state is not None:
            found.append(state)
    if found:
        return found
    if faults and len(faults) == len(chosen):
        raise faults[0]
    where = f"operator {operator!r}" if operator is not None else f"any operator ({', '.join(names)})"
    raise InputError(f"the key {text} has no state in {where} in version {manifest.batch}: check the spelling")


def _state_in(
    checkpoint: Checkpoint, manifest: Manifest, number: int, operator: Mapping[str, Any], text: str
) -> KeyState | None:
    files = checkpoint.files
    refs = [ref for slot_refs in manifest.layout.of_operator(number).values() for ref in slot_refs]
    values = parsed_key(text, len(operator["keys"]), operator["name"])
    if not refs:
        return None
    schema = open_run(files, refs[0].run).schema
    fields = [schema.field(FIRST_KEY + at) for at in range(len(values))]
    keys = pa.table(
        [_typed(value, field) for value, field in zip(values, fields, strict=True)], schema=pa.schema(fields)
    )
    keys = keys_at(np.zeros(1, dtype=np.int64), keys)
    hashes = row_hash(keys)
    placing = row_hash(keys.select(operator.get("placed by", keys.column_names)))
    places = _places(manifest, number)
    place = places.of(placing)
    slot = int(places.owners()[place[0]])
    if any(ref.run.pieces for ref in refs):
        return _partials_of(files, refs, manifest, operator, keys, int(place[0]), hashes, slot)
    result = lookup(files, manifest.layout.refs(number, slot), schema, place, hashes, keys=keys)
    if not result.present[0]:
        return None
    row = [column[0].as_py() for column in result.table.columns]
    first_state = FIRST_KEY + len(fields)
    times = {kind: row[timer_column(kind)] for kind in TIMERS if row[timer_column(kind)] is not None}
    group = int(_unpinned(manifest, number).of(placing)[0])
    where = f"key group {group}"
    if place[0] == places.shared_place:
        where = "split over all slots"
    elif place[0] > places.shared_place:
        where = f"pinned, its key group is {group}"
    return KeyState(
        operator=operator["name"],
        key=dict(zip((column.name for column in fields), row[FIRST_KEY:first_state], strict=True)),
        state=dict(zip(schema.names[first_state:], row[first_state:], strict=True)),
        hash=f"{int(hashes[0]) & (2**64 - 1):016x}",
        slot=slot,
        group=group,
        where=where,
        version=manifest.batch,
        times={kind: str(instant(at)) for kind, at in times.items()},
    )


def _partials_of(
    files: Files,
    refs: Sequence[Ref],
    manifest: Manifest,
    operator: Mapping[str, Any],
    keys: pa.Table,
    place: int,
    hashes: I64,
    slot: int,
) -> KeyState | None:
    """The partials of a key of a windowed operator, as they lie in runs: some slices are there several times, and what
    was left behind by a move is with another slot."""
    first_state = FIRST_KEY + keys.num_columns + 2
    partials = []
    for ref in refs:
        run = open_run(files, ref.run)
        if place >= run.places or not ref.places.mask(run.places)[place]:
            continue
        rows = run.table(int(run.offsets[place]), int(run.offsets[place + 1]))
        for at, name in enumerate(keys.column_names):
            rows = rows.filter(pc.equal(rows.column(FIRST_KEY + at), keys.column(name)[0]))
        for row in rows.to_pylist():
            values = list(row.values())
            hop, start = values[first_state - 2 : first_state]
            piece = "slice" if hop == -1 else f"window {hop if hop >= 0 else -2 - hop}"
            names = list(row)[first_state:]
            partials.append({piece: str(instant(start)), **dict(zip(names, values[first_state:], strict=True))})
    if not partials:
        return None
    return KeyState(
        operator=operator["name"],
        key={name: keys.column(name)[0].as_py() for name in keys.column_names},
        state={"partials": partials},
        hash=f"{int(hashes[0]) & (2**64 - 1):016x}",
        slot=slot,
        group=place,
        where=f"key group {place}",
        version=manifest.batch,
        times={},
    )


def _unpinned(manifest: Manifest, number: int) -> Places:
    """The places as they would be if no key were pinned or split."""
    from headgate.routing import Pins

    bare = manifest.assignment.next(pins=Pins.none())
    return Places(bare, number, np.empty(0, dtype=np.int64))


def parsed_key(text: str, columns: int, operator: str) -> list[Any]:
    """The values of a key: a JSON array of as many values as there are key columns, or values with commas between
    them; a key of one column is the text as it is."""
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        if isinstance(values, list) and len(values) == columns:
            return values
    if columns == 1:
        return [text]
    parts: list[Any] = next(csv.reader([text], skipinitialspace=True), [])
    if len(parts) != columns:
        give = f"{columns} values with commas between them, or a JSON array" if columns else "[], its only key"
        raise InputError(
            f"the key of operator {operator!r} has {columns} columns, and {text!r} has {len(parts)}: give {give}"
        )
    return parts


def _typed(value: Any, column: pa.Field) -> pa.Array:
    """One value as a column of the key's type. ``InputError`` where it cannot be one."""
    try:
        if not isinstance(value, str):
            return pa.array([value], column.type)
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return pa.array([value.encode()], column.type)
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            moment = datetime.fromisoformat(value)
            return pa.array([moment if moment.tzinfo else moment.replace(tzinfo=UTC)], column.type)
        return pa.array([value]).cast(column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(
            f"the key column {column.name!r} is of type {column.type}, and {value!r} is none: write it as {column.type}"
        ) from None


def instant(micros: int | None) -> str | None:
    """A time as text in UTC, to the second; None for none and for times beyond the calendar."""
    if micros is None:
        return None
    try:
        return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{micros} us"


def span_text(numbers: Sequence[int]) -> str:
    """``0-3, 7, 9-10``: ascending numbers, neighbours together."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if start is not None and previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(parts)
