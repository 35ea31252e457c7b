"""Merging runs: the newest version of every key, in one pass and bounded memory; and when to do it.

Problem     every batch adds a run per slot, so lookups would have to look into ever more of them
Policy      tiered, as a binary counter adds: a new run of n rows takes in the newest references while the next older
            one has at most ``GROWTH`` times the rows taken in so far; then the references kept at least double in size
            from newer to older, so there are at most log2(rows / n) + 1 of them
Cost        a row is written again only into a run at least twice the size (``GROWTH`` = 1), so log2(rows / n) times
            over its life; a batch of n rows does not touch a much larger run, save every (rows / n)-th time
Limit       at most ``MAX_REFS`` references, whatever sizes moves bring together: at the limit the newest are merged
            down to half of it, so that even then a large one is written again at most every ``MAX_REFS`` / 2 batches
Moves       bring pieces of large runs between the sizes, and the next merge takes them in. It waits for a batch in
            which the slot gains nothing, up to twice the limit: a move itself then writes nothing but its batch's rows

**Dead rows** are tombstones and expired rows. Each hides older versions of its key, so it may go only where no older
reference of the slot has its place. It then goes for good: nothing that is left could bring the key back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headgate.arrays import I32, I64, Bool, compiled
from headgate.errors import StateError
from headgate.state.bitmap import Bitmap
from headgate.state.files import Files
from headgate.state.refs import Ref
from headgate.state.rows import HASH, alive
from headgate.state.runs import Run, RunInfo, open_run
from headgate.state.writer import RunWriter, disorder, fitted

CHUNK_ROWS = 262_144
"""Rows that a merge holds at a time: a block's worth, some tens of megabytes."""

CHUNK_BYTES = 64 * 2**20
"""And about so many bytes, where rows are wide."""

GROWTH = 1.0
"""How much larger than what was taken in so far the next older reference may be to be taken in too.

With 1, sizes double and a row is rewritten log2 times. Larger means fewer references to look into and more rewriting:
with 2, sizes triple (two thirds of the references) and a row is rewritten up to log1.5 times (1.7 times as often).
"""

MAX_REFS = 16
"""References per slot. Doubling sizes reach it at 30,000 times the rows of a batch; moves can reach it sooner."""


def fold(sizes: Sequence[int], new_rows: int, *, later: bool = False) -> int:
    """How many of the newest references to merge with a new run of ``new_rows`` rows; ``sizes`` go oldest first.

    ``later``: none, if that can wait.
    """
    taken, rows = 0, new_rows
    if later and len(sizes) + (rows > 0) <= 2 * MAX_REFS:
        return 0
    while taken < len(sizes) and sizes[-1 - taken] <= GROWTH * rows:
        rows += sizes[-1 - taken]
        taken += 1
    if len(sizes) - taken + (rows > 0) > MAX_REFS:
        taken = len(sizes) + 1 - MAX_REFS // 2
    return taken


def scan(
    files: Files,
    refs: Sequence[Ref],
    schema: pa.Schema,
    *,
    drop_dead: bool | Bitmap = True,
    now: int | None = None,
    places: Bitmap | None = None,
) -> Iterator[tuple[I32, pa.Table]]:
    """The newest version of every key, in order of (place, hash): places and rows, some ``CHUNK_ROWS`` at a time.

    ``drop_dead`` leaves out tombstones and, with ``now``, rows with ``expires <= now``: everywhere, or in those places
    only. ``places`` narrows it down to some.
    """
    sources = [_Source.of_ref(open_run(files, ref.run, schema), ref.places, places) for ref in refs]
    yield from _merged(sources, drop_dead, now)


def merge(
    files: Files,
    refs: Sequence[Ref],
    writer: RunWriter,
    *,
    drop_dead: bool | Bitmap,
    now: int | None,
) -> None:
    """Append the newest version of every key to a writer. ``drop_dead`` and ``now`` are as in ``scan``."""
    for place, table in scan(files, refs, writer.schema, drop_dead=drop_dead, now=now):
        writer.append(place, table)


def write_delta(
    files: Files,
    name: str,
    schema: pa.Schema,
    batch: int,
    places: int,
    rows_place: I32,
    rows_table: pa.Table,
    refs: Sequence[Ref],
    now: int | None = None,
    *,
    later: bool = False,
    halfway: Callable[[], None] = lambda: None,
) -> tuple[RunInfo | None, int]:
    """Make the changed rows of a slot, and the references that ``fold`` picks, one run.

    Returns the run and how many of ``refs``, from the oldest on, still count beside it. The run is None when nothing
    is left to write; the number then still holds, since what was merged may have come to nothing. Dead rows are
    dropped in the places that no reference that is kept has; but a changed row that has expired already is written,
    so that it is found by ``due`` in the next batch like any other. The rows come in strictly ascending order of
    (place, hash), else ``StateError``. Files that are not merged are not opened. ``later`` puts merging off where it
    can wait. ``halfway`` is called in the middle of writing a run that older ones are merged into.
    """
    rows_table = fitted(rows_table, schema, files.join(name))
    hashes = np.asarray(rows_table.column(HASH), dtype=np.int64)
    wrong = disorder(rows_place, hashes, -1, 0)
    if wrong >= 0:
        raise StateError.unordered(files.join(name), int(rows_place[wrong]), int(hashes[wrong]))
    kept = len(refs) - fold([ref.rows for ref in refs], len(rows_place), later=later)
    if kept == len(refs) and not len(rows_place):
        return None, kept
    older = Bitmap()
    for ref in refs[:kept]:
        older = older.union(ref.places)
    top = max([places, *(8 * len(ref.places.packed) for ref in refs)])
    sources = [_Source.of_ref(open_run(files, ref.run, schema), ref.places) for ref in refs[kept:]]
    if len(rows_place):
        sources.append(_Source.of_rows(rows_place, rows_table))
    fresh = sources[-1] if len(rows_place) else None
    chunks = _merged(sources, Bitmap.of_mask(~older.mask(top)), now, fresh)
    first = next(chunks, None)
    if first is None:
        return None, kept
    with RunWriter(files, name, schema, batch, places) as writer:
        writer.append(*first)
        if kept < len(refs):
            halfway()
        for place, table in chunks:
            writer.append(place, table)
        return writer.finish(), kept


class _Source:
    """The rows of one reference, or of a table, numbered through from 0, however they are scattered over a run."""

    def __init__(self, run: Run | None, place: I32, table: pa.Table | None, starts: I64, stops: I64) -> None:
        self._run, self._place, self._table = run, place, table
        self._starts, self._stops = starts, stops
        self._ends = np.cumsum(stops - starts)
        self.rows = int(self._ends[-1]) if len(starts) else 0
        size, rows = (run.info.bytes, run.rows) if run is not None else (table.nbytes if table else 0, self.rows)
        self.width = size // max(1, rows)  # about how many bytes a row has

    @classmethod
    def of_ref(cls, run: Run, places: Bitmap, narrowed: Bitmap | None = None) -> _Source:
        starts, stops = run.spans(places if narrowed is None else places.intersect(narrowed))
        return cls(run, np.zeros(0, dtype=np.int32), None, starts, stops)

    @classmethod
    def of_rows(cls, place: I32, table: pa.Table) -> _Source:
        return cls(None, place, table, np.zeros(1, dtype=np.int64), np.array([len(place)], dtype=np.int64))

    def keys(self, start: int, stop: int) -> tuple[I32, I64]:
        """Places and hashes of the rows from start up to stop."""
        if self._table is not None:
            own = np.asarray(self._table.column(HASH).slice(start, stop - start), dtype=np.int64)
            return self._place[start:stop], own
        run = self._run
        assert run is not None
        pieces = list(self._pieces(start, stop))
        hashes = [run.hashes[low:high] for low, high in pieces]
        places = [run.places_between(low, high) for low, high in pieces]
        return (places[0], hashes[0]) if len(pieces) == 1 else (np.concatenate(places), np.concatenate(hashes))

    def table(self, start: int, stop: int) -> list[pa.Table]:
        """The rows from start up to stop, not copied."""
        if self._table is not None:
            return [self._table.slice(start, stop - start)]
        assert self._run is not None
        return [self._run.table(low, high) for low, high in self._pieces(start, stop)]

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        number = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[number])
            shift = int(self._stops[number]) - end
            yield start + shift, min(stop, end) + shift
            start = end
            number += 1


def _merged(
    sources: Sequence[_Source], drop_dead: bool | Bitmap, now: int | None, fresh: _Source | None = None
) -> Iterator[tuple[I32, pa.Table]]:
    """Merge sources, the oldest first. Each turn opens a window on every source and merges as far as all windows
    reach; at least one window is used up, so there are at most (rows / window) turns. Rows of the source ``fresh`` do
    not expire yet."""
    sources = [source for source in sources if source.rows]
    newest = len(sources) - 1 if fresh is not None else -1
    heads = np.zeros(len(sources), dtype=np.int64)
    chunk = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max([1, *(source.width for source in sources)])))
    window = max(1, chunk // max(1, len(sources)))
    while any(heads[at] < source.rows for at, source in enumerate(sources)):
        active = [at for at, source in enumerate(sources) if heads[at] < source.rows]
        if len(active) == 1:
            at = active[0]
            start, stop = int(heads[at]), min(int(heads[at]) + chunk, sources[at].rows)
            heads[at] = stop
            place = sources[at].keys(start, stop)[0]
            table = pa.concat_tables(sources[at].table(start, stop))
            lasting: bool | Bool = sources[at] is fresh
        else:
            bounds = [(int(heads[at]), min(int(heads[at]) + window, sources[at].rows)) for at in active]
            keys = [sources[at].keys(*bound) for at, bound in zip(active, bounds, strict=True)]
            place = np.concatenate([places for places, _ in keys])
            hashes = np.concatenate([hashes for _, hashes in keys])
            starts = np.cumsum([0] + [stop - start for start, stop in bounds])
            whole = np.array([stop == sources[at].rows for at, (_, stop) in zip(active, bounds, strict=True)])
            picks, used = _pick(place, hashes, starts, whole)
            tables = []
            for number, at in enumerate(active):
                start = int(heads[at])
                tables += sources[at].table(start, start + int(used[number]))
                heads[at] += used[number]
            # Only what was used is put together: shift the picks by what was left over before them.
            left = np.concatenate(([0], np.cumsum(np.diff(starts) - used)[:-1]))
            origin = np.searchsorted(starts, picks, side="right") - 1
            place = place[picks]
            table = pa.concat_tables(tables).combine_chunks().take(pa.array(picks - left[origin]))
            lasting = origin == active.index(newest) if newest in active else False
        place, table = _without_dead(place, table, drop_dead, now, lasting)
        if len(place):
            yield place, table


def _without_dead(
    place: I32, table: pa.Table, drop_dead: bool | Bitmap, now: int | None, lasting: bool | Bool
) -> tuple[I32, pa.Table]:
    """The rows without dead ones where those may go; ``lasting`` ones do not expire."""
    if drop_dead is False or not len(place):
        return place, table
    stays = alive(table, now)
    if lasting is not False and now is not None:
        stays |= alive(table, None) & lasting
    if isinstance(drop_dead, Bitmap):
        stays |= ~drop_dead.contains(place)
    if stays.all():
        return place, table
    return place[stays], table.filter(pa.array(stays))


@compiled
def _pick(place: I32, hashes: I64, starts: I64, whole: Bool) -> tuple[I64, I64]:
    """Merge windows that lie one after another, the oldest first: which rows win, and how much of each was used.

    Stops when a window is used up behind which its source goes on, since the next key is not known then.
    """
    count = len(starts) - 1
    at = starts[:-1].copy()
    picks = np.empty(len(place), dtype=np.int64)
    size = 0
    while True:
        best = -1
        for source in range(count):
            if at[source] == starts[source + 1]:
                if not whole[source]:
                    return picks[:size].copy(), at - starts[:-1]
                continue
            if best < 0:
                best = source
                continue
            here, there = at[source], at[best]
            if place[here] < place[there] or (place[here] == place[there] and hashes[here] <= hashes[there]):
                best = source  # an equal key in a later source is newer
        if best < 0:
            return picks[:size].copy(), at - starts[:-1]
        winner = at[best]
        picks[size] = winner
        size += 1
        for source in range(count):
            row = at[source]
            if row < starts[source + 1] and place[row] == place[winner] and hashes[row] == hashes[winner]:
                at[source] += 1
