"""Looking up keys: the newest version of each among the references of a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, Bool
from headgate.errors import KeyCollisionError
from headgate.state.files import Files
from headgate.state.refs import Ref
from headgate.state.rows import EXPIRES, FIRST_KEY, LIVE, TIMERS, Timer, alive, times
from headgate.state.runs import Run, open_run


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """One row per key asked for: ``table`` with all columns of a run (all null where absent), ``present`` where a row
    was found that is neither a tombstone nor expired."""

    table: pa.Table
    present: Bool


def lookup(
    files: Files,
    refs: Sequence[Ref],
    schema: pa.Schema,
    place: I32,
    hashes: I64,
    *,
    keys: pa.Table | None = None,
    now: int | None = None,
) -> Found:
    """The state of these keys, which come in ascending order of (place, hash).

    ``keys`` are their key columns: a row that was found for another key is a ``KeyCollisionError``, which names both.
    ``now`` makes rows with ``expires <= now`` absent; it must be the same for a batch and its replay, and never go
    back from batch to batch, since a merge may have dropped what was expired.
    """
    source, row, runs = _locate(files, refs, schema, place, hashes)
    taken: list[pa.Table] = []
    index = np.full(len(hashes), -1, dtype=np.int64)
    total = 0
    for number, run in runs.items():
        at = np.flatnonzero(source == number)
        rows = run.take(row[at])
        kept = alive(rows, now)
        index[at] = np.where(kept, np.arange(total, total + len(at)), -1)
        taken.append(rows)
        total += len(at)
    present = index >= 0
    if not taken:
        return Found(_nulls(schema, len(hashes)), present)
    table = pa.concat_tables(taken)
    if not (len(taken) == 1 and total == len(hashes) and present.all()):
        table = table.combine_chunks().take(pa.array(index, mask=~present))
    if keys is not None:
        _check_keys(table, keys, hashes, present)
    return Found(table, present)


def due(
    files: Files,
    refs: Sequence[Ref],
    schema: pa.Schema,
    kind: Timer,
    *,
    after: int | None,
    upto: int,
    fresh_from: int = 0,
    now: int | None = None,
) -> tuple[I32, I64]:
    """The live keys whose timer of a kind, or expiry, is due (``<= upto``): places and hashes, ascending, each once.

    A timer at or before ``after`` is taken to have fired, and so to have been replaced, unless its run is of batch
    ``fresh_from`` or later: such a run may hold a timer that was set in the past. Timers of older versions of a key
    do not count. With ``now``, neither do keys that are expired.
    """
    places: list[I32] = []
    hashes: list[I64] = []
    for ref in refs:
        span = ref.run.timers.get(kind)
        lower = None if ref.run.batch >= fresh_from else after
        if span is None or span[0] > upto or (lower is not None and span[1] <= lower):
            continue
        run = open_run(files, ref.run, schema)
        rows = run.due(kind, lower, upto)
        place = run.place_of(rows)
        ours = ref.places.contains(place)
        places.append(place[ours])
        hashes.append(run.hashes[rows[ours]])
    if not places:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    place, key = _ascending(np.concatenate(places), np.concatenate(hashes))
    source, row, runs = _locate(files, refs, schema, place, key)
    fires = np.zeros(len(key), dtype=np.bool_)
    for number, run in runs.items():
        at = np.flatnonzero(source == number)
        columns = run.take(row[at], [LIVE, EXPIRES, TIMERS[kind]])
        live = np.asarray(columns.column(0), dtype=np.bool_)
        if now is not None:
            live &= times(columns.column(1)) > now
        fires[at] = live & (times(columns.column(2)) <= upto)
    return place[fires], key[fires]


def _locate(
    files: Files, refs: Sequence[Ref], schema: pa.Schema, place: I32, hashes: I64
) -> tuple[I32, I64, dict[int, Run]]:
    """The newest version of each key: the number of its reference (-1: none) and its row there; and the runs used."""
    source = np.full(len(hashes), -1, dtype=np.int32)
    row = np.full(len(hashes), -1, dtype=np.int64)
    runs: dict[int, Run] = {}
    missing = np.arange(len(hashes))
    for number in range(len(refs) - 1, -1, -1):
        ref = refs[number]
        queries = missing[ref.places.contains(place[missing])]
        if not len(queries):
            continue
        run = open_run(files, ref.run, schema)
        found = run.find(place[queries], hashes[queries])
        hits = found >= 0
        if hits.any():
            runs[number] = run
            source[queries[hits]] = number
            row[queries[hits]] = found[hits]
            missing = np.flatnonzero(source < 0)
    return source, row, runs


def _ascending(place: I32, hashes: I64) -> tuple[I32, I64]:
    """Sorted by (place, hash), each pair once."""
    order = np.lexsort((hashes, place))
    place, hashes = place[order], hashes[order]
    first = np.ones(len(place), dtype=np.bool_)
    first[1:] = (place[1:] != place[:-1]) | (hashes[1:] != hashes[:-1])
    return place[first], hashes[first]


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def _check_keys(table: pa.Table, keys: pa.Table, hashes: I64, present: Bool) -> None:
    """``KeyCollisionError`` for the first row found whose key columns are not those that were asked for."""
    same = np.ones(len(hashes), dtype=np.bool_)
    for at in range(keys.num_columns):
        have, want = table.column(FIRST_KEY + at), keys.column(at)
        if want.type != have.type:
            want = want.cast(have.type)
        equal = pc.fill_null(pc.equal(have, want), False)
        if have.null_count or want.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(have), pc.is_null(want)))
        same &= np.asarray(equal, dtype=np.bool_)
    wrong = np.flatnonzero(present & ~same)
    if len(wrong):
        row = int(wrong[0])
        have_key = tuple(table.column(FIRST_KEY + at)[row].as_py() for at in range(keys.num_columns))
        want_key = tuple(keys.column(at)[row].as_py() for at in range(keys.num_columns))
        raise KeyCollisionError.two_keys(have_key, want_key, int(hashes[row]))
