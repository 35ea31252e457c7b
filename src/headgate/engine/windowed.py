"""Windows of one operator in one slot for one batch: partials added, windows closed, pieces kept or dropped.

    partials of the batch ───────────────┬──────────────────────────> new runs (runs of the same pieces folded in)
    runs with pieces of closing windows ─┴─> merge, shortest window first ─> results
                                                     └──> pieces that longer windows are made of ──> runs of their own

The state is partials by key and piece. What a batch brings is only added, and never looked up; the runs that hold a
piece are read once, when a window that needs it closes. A window that closes is put together in the way that merges
fewest keys (``windows.consolidation``): from slices, and from windows inside it that were made before.

Key groups move as those of other operators do, by manifest. Single keys are not pinned: rows are added up before the
shuffle, so a hot key costs its slot no more than another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headgate.arrays import I32, I64, among, by_place
from headgate.engine.arrivals import Arrived
from headgate.engine.orders import Orders, SlotReport, nothing
from headgate.engine.payload import HASH
from headgate.engine.program import Step
from headgate.engine.staterows import state_schema, summed
from headgate.operators import NO_WATERMARK, Compute, WindowedAggregation, direct, grouped_by_piece
from headgate.routing import Handovers, Places, group_of
from headgate.state import FIRST_KEY, GROWTH, MAX_REFS, Bitmap, Checkpoint, Ref, RunInfo, RunWriter, open_run
from headgate.stats.loads import OperatorLoad
from headgate.windows import SLICE, Piece, Slicing

Partials = tuple[pa.Table, I64]
"""Partial rows, and the hashes of their keys."""

ALONE = 8192
"""Rows from which on a piece has a run of its own, so that nothing else is read with it; smaller ones share a run."""


@dataclass(slots=True)
class WindowBatch:
    """The work of one slot for one windowed operator in one batch."""

    orders: Orders
    number: int
    slot: int
    clock: Callable[[], float] = time.perf_counter
    step: Step = field(init=False)
    operator: WindowedAggregation = field(init=False)
    places: Places = field(init=False)
    schema: pa.Schema = field(init=False)
    refs: tuple[Ref, ...] = field(init=False)
    handed: Handovers | None = field(init=False)
    seconds: dict[str, float] = field(default_factory=dict)
    _shelves: dict[str, _Shelf] = field(default_factory=dict)
    _wanted: dict[Piece, int] = field(default_factory=dict)
    _holding: dict[Piece, list[Ref]] | None = None
    _keys_merged: int = 0
    _mark: float = field(init=False)

    def __post_init__(self) -> None:
        self.step = self.orders.load().steps[self.number]
        assert isinstance(self.step.operator, WindowedAggregation)
        self.operator = self.step.operator
        self.places = self.orders.places(self.number)
        self.schema = state_schema(self.operator.inner)
        ended = [one.group for one in self.orders.ended if (one.operator, one.slot) == (self.number, self.slot)]
        refs = self.orders.refs(self.number, self.slot)
        if ended:
            gone = Bitmap.of(ended)
            refs = tuple(Ref(ref.run, left) for ref in refs if (left := ref.places.minus(gone)))
        self.refs = refs
        self.handed = self.orders.handed(self.number)
        self._mark = self.clock()

    def _lap(self, phase: str) -> None:
        now = self.clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._mark
        self._mark = now

    def run(self, arrived: Arrived | None) -> tuple[pa.Table, SlotReport]:
        """Results and report."""
        copied = self._copied() if self.orders.migration == "copy" else 0
        self._lap("move")
        empty = Arrived(self.operator.partial_schema.empty_table(), nothing())
        given = (arrived if arrived is not None else empty).each()
        rows, hashes, tuples = given.rows, given.hashes, len(given)
        if service := self.orders.service(self.number):
            time.sleep(service * tuples)
        load_hashes = self.step.placing(rows, hashes)
        if tuples:
            rows, hashes = self.operator.combine(rows.combine_chunks(), hashes)
        self._lap("receive")
        # Results of other windows come in the batch that closes them, and count for windows that close in it too.
        before = self.orders.last_watermark
        pieces = _by_piece(rows, hashes, self.operator)
        fresh = {piece: own for piece, own in pieces.items() if self._needed_until(piece) > before}
        fresh |= self._amended(fresh)
        made: dict[Piece, Partials] = {}
        if isinstance(self.operator, Compute):
            results = self._ended(fresh)
        else:
            results, made = self._close(fresh)
        behind = {piece: own for piece, own in pieces.items() if piece not in fresh}
        results = pa.concat_tables([results, *self._behind(behind)])
        self._lap("process")
        lasting = {piece: own for piece, own in fresh.items() if self._needed(piece)}
        refs, written, changed = self._write({**lasting, **made})
        self._lap("write state")
        return results, SlotReport(
            operator=self.number,
            slot=self.slot,
            refs=refs,
            written=written,
            place=changed[0],
            rows_delta=changed[1],
            bytes_delta=changed[2],
            load=self._load(load_hashes) if self.orders.statistics else None,
            tuples=tuples,
            keys=len(hashes),
            seconds=self.seconds,
            fired=len(results),
            copied_bytes=copied,
            merged=self._keys_merged,
        )

    def _copied(self) -> int:
        """Write what the places we gained hold as a run of our own, first of all: the papers' way. Its bytes."""
        before = {ref.run.name: ref.places for ref in self.orders.refs_before(self.number, self.slot)}
        gained = [
            Ref(ref.run, new) for ref in self.refs if (new := ref.places.minus(before.get(ref.run.name, Bitmap())))
        ]
        if not gained:
            return 0
        kept = [
            Ref(ref.run, had) for ref in self.refs if (had := ref.places.intersect(before.get(ref.run.name, Bitmap())))
        ]
        parts = [
            part
            for ref in gained
            for part in _Shelf.of_ref(self.orders, ref, self.schema, self.operator).pieces.values()
        ]
        if not parts:
            self.refs = tuple(kept)
            return 0
        self.orders.crash.reach("in the middle of a move", self.orders.batch)
        run = self._run(parts)
        self.refs = (*kept, Ref(run, run.places))
        return run.bytes

    def _amended(self, fresh: dict[Piece, Partials]) -> dict[Piece, Partials]:
        """What has come for slices that are over, as partials of the windows that were made of these and kept: so a
        longer window has it, whichever of the two it is made of. Results of other operators may be of any time."""
        over = [piece for piece in fresh if piece.hop == SLICE and piece.end <= self.orders.last_watermark]
        if not over:
            return {}
        kept = {piece for ref in self.refs for piece, _ in self._pieces(ref.run) if piece.hop >= 0}
        amended: dict[Piece, Partials] = {}
        for window in sorted(kept):
            parts = [fresh[piece] for piece in over if window.start <= piece.start and piece.end <= window.end]
            if parts:
                merged, hashes = self._merged(parts)
                amended[window] = self.operator.placed(merged, window), hashes
        return amended

    def _behind(self, pieces: dict[Piece, Partials]) -> Iterable[pa.Table]:
        """What has come for pieces that are over, where a consolidate is next: that knows which windows are open."""
        names = self.operator.outer.partial_schema.names
        for piece in sorted(pieces):
            goes_as = self.operator.passed_on(piece)
            if goes_as is not None:
                yield self.operator.placed(pieces[piece][0].select(names), goes_as)

    def _ended(self, fresh: dict[Piece, Partials]) -> pa.Table:
        """What a compute has of the slices that end now, and of the windows that it computed by themselves."""
        results = [self.operator.output_schema.empty_table()]
        for piece in sorted(self._known(fresh)):
            if self.orders.last_watermark < piece.end <= self.orders.watermark:
                merged = self._merged(self._partials(piece, fresh, {}))
                results.append(self.operator.results(self._own(*merged, piece), piece))
        return pa.concat_tables(results)

    def _close(self, fresh: dict[Piece, Partials]) -> tuple[pa.Table, dict[Piece, Partials]]:
        """The results of the windows that end now, and the pieces among them that are worth keeping."""
        orders, slicing, consolidation = self.orders, self.operator.slicing, self.operator.consolidation
        empty = self.operator.output_schema.empty_table()
        if orders.watermark == NO_WATERMARK:
            return empty, {}
        known = self._known(fresh)
        slices = sorted({piece.start for piece in known if piece.hop == SLICE})
        windows = consolidation.closing(slices, orders.last_watermark, orders.watermark)
        alone = {
            consolidation.window(direct(piece.hop), piece.start)
            for piece in known
            if piece.hop < SLICE and orders.last_watermark < piece.end <= orders.watermark
        }
        windows = (*windows, *sorted(alone.difference(windows)))
        again = self._reopened(fresh)
        made: dict[Piece, Partials] = {}
        kept: dict[Piece, Partials] = {}
        results = []
        for window in (*windows, *again):
            hop = slicing.hops[window.hop]
            if hop.helper and slicing.lateness:
                continue  # nothing would be made of it
            inputs = consolidation.step(window, known).inputs
            parts = [part for piece in inputs for part in self._partials(piece, fresh, made)]
            own = self._partials(Piece(window.start, window.end, direct(window.hop)), fresh, {})
            if window in again:  # only the keys that late rows have come for
                parts, own = ([_of_keys(part, again[window]) for part in those] for those in (parts, own))
            if not parts and not own:
                continue
            merged = self._merged(parts)
            if not hop.helper:
                whole = self._merged([*parts, *own]) if own else merged
                results.append(self.operator.results(self._own(*whole, window), window))
            if parts and self.operator.share and not slicing.lateness:  # late rows would make it wrong
                made[window], known[window] = merged, len(merged[1])
                # Windows that overlap would together take more room than their slices do.
                if hop.every >= hop.length and self._needed(window):
                    kept[window] = self.operator.placed(merged[0], window), merged[1]
        return pa.concat_tables(results) if results else empty, kept

    def _merged(self, parts: Sequence[Partials]) -> Partials:
        """Partials of several pieces as one row per key."""
        names = self.operator.outer.partial_schema.names
        if not parts:
            return self.operator.outer.partial_schema.empty_table(), nothing()
        table = pa.concat_tables([part.select(names) for part, _ in parts])
        self._keys_merged += table.num_rows
        return self.operator.merged(table, np.concatenate([own for _, own in parts]))

    def _own(self, merged: pa.Table, hashes: I64, window: Piece) -> pa.Table:
        """What is ours to emit of a window: of key groups that are handed over, another slot does the rest."""
        if self.handed is None:
            return merged
        group = group_of(self.step.placing(merged, hashes), self.places.groups)
        mine = self.handed.mine(group, self.slot, window.start)
        return merged if mine.all() else merged.filter(pa.array(mine))

    def _reopened(self, fresh: dict[Piece, Partials]) -> dict[Piece, I64]:
        """The windows that were emitted before and have got late rows now, and the keys of these, ascending."""
        slicing, before = self.operator.slicing, self.orders.last_watermark
        found: dict[Piece, I64] = {}
        if not slicing.lateness or before == NO_WATERMARK:
            return found
        for piece, (_, hashes) in fresh.items():
            if piece.hop < SLICE and piece.end <= before:
                window = self.operator.consolidation.window(direct(piece.hop), piece.start)
                found[window] = np.union1d(found.get(window, nothing()), hashes)
            if piece.hop != SLICE:
                continue
            for number, hop in enumerate(slicing.hops):
                if hop.helper:
                    continue
                for start in slicing.reopened(np.array([piece.start]), number, before):
                    window = self.operator.consolidation.window(number, int(start))
                    found[window] = np.union1d(found.get(window, nothing()), hashes)
        return found

    def _known(self, fresh: dict[Piece, Partials]) -> dict[Piece, float]:
        """The pieces that are there, and about how many keys each has."""
        known: dict[Piece, float] = {}
        for ref in self.refs:
            share = ref.rows / max(1, ref.run.rows)
            for piece, rows in self._pieces(ref.run):
                known[piece] = known.get(piece, 0.0) + rows * share
        for piece, (_, own) in fresh.items():
            known[piece] = known.get(piece, 0.0) + len(own)
        return known

    def _pieces(self, run: RunInfo) -> Iterable[tuple[Piece, int]]:
        for hop, start, rows in run.pieces:
            if _usable(self.operator.slicing, hop):
                yield Piece(start, start + self.operator.length(hop), hop), rows

    def _partials(self, piece: Piece, fresh: dict[Piece, Partials], made: dict[Piece, Partials]) -> list[Partials]:
        if piece in made:
            return [made[piece]]
        if self._holding is None:
            self._holding = {}
            for ref in self.refs:
                for one, _ in self._pieces(ref.run):
                    self._holding.setdefault(one, []).append(ref)
        found = [self._shelf(ref).of(piece) for ref in self._holding.get(piece, ())]
        return [*found, fresh[piece]] if piece in fresh else found

    def _shelf(self, ref: Ref) -> _Shelf:
        shelf = self._shelves.get(ref.run.name)
        if shelf is None:
            shelf = self._shelves[ref.run.name] = _Shelf.of_ref(self.orders, ref, self.schema, self.operator)
        return shelf

    def _needed(self, piece: Piece) -> bool:
        """Whether a window that has not closed yet will be made of it."""
        return self._needed_until(piece) > self.orders.watermark

    def _needed_until(self, piece: Piece) -> int:
        until = self._wanted.get(piece)
        if piece.hop < SLICE:
            return piece.end + self.operator.slicing.lateness
        if until is None:
            start, end = np.array([piece.start]), np.array([piece.end])
            until = self._wanted[piece] = int(self.operator.slicing.needed_until(start, end)[0])
        return until

    def _write(self, new: dict[Piece, Partials]) -> tuple[tuple[Ref, ...], int, tuple[I32, I64, I64]]:
        """Write what is new, with the runs that it is folded with; drop runs that nobody needs."""
        parts = {piece: [part] for piece, part in new.items()}
        refs = [ref for ref in self.refs if any(self._needed(piece) for piece, _ in self._pieces(ref.run))]
        folded = self._fold(refs, set(new), sum(len(hashes) for _, hashes in new.values()))
        for ref in folded:
            for piece, _ in self._pieces(ref.run):
                if self._needed(piece):
                    parts.setdefault(piece, []).append(self._shelf(ref).of(piece))
        rows = {piece: sum(len(hashes) for _, hashes in own) for piece, own in parts.items()}
        together = [part for piece, own in parts.items() if rows[piece] < ALONE for part in own]
        alone = [own for piece, own in parts.items() if rows[piece] >= ALONE]
        runs = [self._run(own) for own in (*alone, together) if any(len(hashes) for _, hashes in own)]
        kept = [*(ref for ref in refs if ref not in folded), *(Ref(run, run.places) for run in runs)]
        return tuple(kept), sum(run.bytes for run in runs), self._changes(kept)

    def _fold(self, refs: Sequence[Ref], own: set[Piece], rows: int) -> list[Ref]:
        """The runs to be written again with what is new: those that share a piece with it and are not much larger, so
        that of those left each has twice the rows of the next; and small ones where there are many. Large ones stay,
        however many moves have brought together: they are read when a window closes, and opening them is little beside
        that. Writing them again would be the copying that a move by reference saves."""
        taken: list[Ref] = []
        for ref in reversed(refs):
            shares = not own.isdisjoint(piece for piece, _ in self._pieces(ref.run))
            if shares and ref.rows <= 2 * GROWTH * rows:
                taken.append(ref)
                rows += ref.rows
        small = [ref for ref in refs if ref.rows < ALONE and ref not in taken]
        return taken + small if len(small) > MAX_REFS else taken

    def _run(self, parts: Sequence[Partials]) -> RunInfo:
        table = pa.concat_tables([part for part, _ in parts])
        hashes = np.concatenate([own for _, own in parts])
        if len(parts) > 1:
            table, hashes = self.operator.combine(table, hashes)
        identity = self.operator.identities(table, hashes)
        place = self.places.of(self.step.placing(table, hashes))
        order = by_place(place, identity)
        table = table.take(pa.array(order))
        count = len(order)
        nulls = pa.nulls(count, pa.int64())
        live = pa.array(np.ones(count, dtype=np.bool_))
        rows = pa.Table.from_arrays(
            [pa.chunked_array([identity[order]]), live, nulls, nulls, nulls, *table.columns], schema=self.schema
        )
        name = Checkpoint.run_name(self.number, self.orders.batch, self.slot)
        with RunWriter(self.orders.files, name, self.schema, self.orders.batch, self.places.count) as writer:
            writer.append(place[order], rows)
            info = writer.finish()
        grouping, pieces = grouped_by_piece(table)
        counts = np.diff(grouping.starts).tolist()
        listed = ((hop, start, rows) for (hop, start), rows in zip(pieces, counts, strict=True))
        return replace(info, pieces=tuple(sorted(listed)))

    def _changes(self, after: Sequence[Ref]) -> tuple[I32, I64, I64]:
        """By how much the state of each place has grown."""
        before = {(ref.run.name, ref.places): ref for ref in self.orders.refs(self.number, self.slot)}
        now = {(ref.run.name, ref.places): ref for ref in after}
        changes = [self._sizes(ref, -1) for key, ref in before.items() if key not in now]
        changes += [self._sizes(ref, 1) for key, ref in now.items() if key not in before]
        return summed(changes)

    def _sizes(self, ref: Ref, sign: int) -> tuple[I32, I64, I64]:
        run = open_run(self.orders.files, ref.run, self.schema)
        place = ref.places.indices()
        place = place[place < run.places]
        rows = np.diff(run.offsets)[place]
        return place.astype(np.int32), sign * rows, sign * rows * (ref.run.bytes // max(1, ref.run.rows))

    def _load(self, hashes: I64) -> OperatorLoad:
        """What key groups cost: the busy time, shared out by partials that arrived. No key is listed by itself."""
        keys, counts = np.unique(hashes, return_counts=True)
        return OperatorLoad.of_keys(
            self.orders.component(self.number).number,
            self.slot,
            sum(self.seconds.values()),
            hashes=keys,
            tuples=counts.astype(np.int64),
            state_bytes=np.zeros(len(keys)),
            groups=self.places.groups,
            limit=0,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Shelf:
    """The partials of one reference, by piece."""

    pieces: dict[Piece, Partials]
    empty: Partials

    @classmethod
    def of_ref(cls, orders: Orders, ref: Ref, schema: pa.Schema, operator: WindowedAggregation) -> _Shelf:
        run = open_run(orders.files, ref.run, schema)
        tables = [run.table(int(low), int(high)) for low, high in zip(*run.spans(ref.places), strict=True)]
        rows = pa.concat_tables(tables) if tables else schema.empty_table()
        table = rows.select(range(FIRST_KEY, rows.num_columns)).rename_columns(operator.partial_schema.names)
        identity = np.concatenate([np.asarray(chunk) for chunk in rows.column(0).chunks] or [nothing()])
        hashes = operator.key_hashes(table, identity) if len(identity) else nothing()
        empty = operator.partial_schema.empty_table(), nothing()
        if len(ref.run.pieces) == 1 and _usable(operator.slicing, ref.run.pieces[0][0]):
            ((hop, start, _),) = ref.run.pieces
            return cls({Piece(start, start + operator.length(hop), hop): (table, hashes)}, empty)
        return cls(_by_piece(table, hashes, operator), empty)

    def of(self, piece: Piece) -> Partials:
        return self.pieces.get(piece, self.empty)


def _of_keys(partials: Partials, keys: I64) -> Partials:
    """The partials of some keys, whose hashes ascend."""
    table, hashes = partials
    wanted = among(hashes, keys)
    return table.filter(pa.array(wanted)), hashes[wanted]


def _usable(slicing: Slicing, hop: int) -> bool:
    """Whether windows can be made of pieces of this hop: not of those that a helper left which is no more, nor, where
    late rows come in, of any that were made of slices. The slices are there as long as a window needs them."""
    return hop < 0 or (hop < len(slicing.hops) and not slicing.lateness)


def _by_piece(table: pa.Table, hashes: I64, operator: WindowedAggregation) -> dict[Piece, Partials]:
    """Partials sorted out by their pieces."""
    if not len(hashes):
        return {}
    grouping, pieces = grouped_by_piece(table)
    slicing = operator.slicing
    if len(pieces) == 1 and _usable(slicing, pieces[0][0]):
        ((hop, start),) = pieces
        return {Piece(start, start + operator.length(hop), hop): (table, hashes)}
    table = grouping.arranged(table.append_column(HASH, pa.array(hashes)))
    table, hashes = table.drop_columns([HASH]), table.column(HASH).to_numpy()
    edges = grouping.starts.tolist()
    sorted_out = {
        Piece(start, start + operator.length(hop), hop): (table.slice(low, high - low), hashes[low:high])
        for (hop, start), low, high in zip(pieces, edges[:-1], edges[1:], strict=True)
        if _usable(slicing, hop)
    }
    return dict(sorted(sorted_out.items(), key=lambda item: (item[0].hop, item[0].start)))
