"""One operator, one slot, one batch: from the rows that arrived to results, new state and a report.

    rows ──group by key──┐
    timers due ──────────┼─> keys ──look up state──> operator ──> results
    keys that move in ───┘                              │
                                                        v
         new rows + tombstones + keys moved in ──> one new run (older small runs folded in)

The same code runs for the split keys on the driver, with ``slot = SHARED``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headgate.arrays import F64, I32, I64, Bool, among, by_place
from headgate.engine.arrivals import Arrived
from headgate.engine.orders import Orders, SlotReport, nothing
from headgate.engine.payload import HASH, encode
from headgate.engine.program import Step
from headgate.engine.staterows import (
    SYSTEM,
    drop,
    hashes_of,
    key_part,
    live,
    row_bytes,
    state_part,
    state_schema,
    summed,
    tombstones,
)
from headgate.engine.staterows import timer as timer_of
from headgate.operators import NO_TIMER, KeyedInput, KeyedOperator, KeyedOutput, check_one_key, group_rows, keys_at
from headgate.operators.rows import key_values
from headgate.routing import SHARED, Places, Relocation
from headgate.state import NEVER, Checkpoint, Ref, RunWriter, Timer, due, lookup, merge, write_delta
from headgate.stats.loads import HEAVY_KEYS, OperatorLoad

COLD_SECONDS = 1e-9
"""What a key is taken to cost at least in the first batch of a run: something, so that it counts."""

ROWS_PER_CALL = 1 << 18
"""Rows that an operator that does not combine gets at once: bounds what a function over Arrow tables holds."""


@dataclass(slots=True)
class _Keys:
    """The keys of a slot that a batch touches, ascending by (place, hash), with what is known of them.

    ``stored``: a row of the key was there (in ``state``); ``present``: and it has not expired.
    """

    place: I32
    hash: I64
    counts: I64
    keys: pa.Table
    state: pa.Table
    stored: Bool
    present: Bool
    fired_event: Bool
    fired_processing: Bool


@dataclass(slots=True)
class OperatorBatch:
    """The work of one slot for one operator in one batch."""

    orders: Orders
    number: int
    slot: int
    clock: Callable[[], float] = time.perf_counter
    step: Step = field(init=False)
    operator: KeyedOperator = field(init=False)
    places: Places = field(init=False)
    schema: pa.Schema = field(init=False)
    refs: tuple[Ref, ...] = field(init=False)
    relocation: Relocation = field(init=False)
    seconds: dict[str, float] = field(default_factory=dict)
    _mark: float = field(init=False)

    def __post_init__(self) -> None:
        self.step = self.orders.load().steps[self.number]
        self.operator = self.step.operator
        self.places = self.orders.places(self.number)
        self.schema = state_schema(self.operator)
        self.refs = self.orders.refs(self.number, self.slot)
        self.relocation = self.orders.relocation(self.number)
        self._mark = self.clock()

    def _lap(self, phase: str) -> None:
        now = self.clock()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._mark
        self._mark = now

    def run(self, arrived: Arrived | None) -> tuple[pa.Table, SlotReport]:
        """Results and report. Raises what the user's function raises, naming the key."""
        combined = self.step.combine_early or self.slot == SHARED
        expected = self.operator.partial_schema if combined else self.operator.input_schema
        given = arrived if arrived is not None else Arrived(expected.empty_table(), nothing())
        tuples = len(given)
        service = self.orders.service(self.number)
        if service and self.slot != SHARED:
            time.sleep(service * tuples)
        given, partials, split_hash, split_tuples = self._split_off(given, combined)
        self._lap("receive")
        moved_in, copied, refs = self._moved_in()
        self._lap("move")
        key_tuples: tuple[I64, I64] | None = None
        if self.operator.combines and not combined and len(given):
            given = given.each()
            grouping = group_rows(given.hashes)
            key_tuples = grouping.hashes, np.diff(grouping.starts)
            given = Arrived(*self.operator.early(given.rows.combine_chunks(), given.hashes))
        touched, ordered, expired = self._touched(given, refs, moved_in)
        self._lap("read state")
        results, output, cost = self._process(touched, ordered)
        self._lap("process")
        refs, written, place, rows_delta, bytes_delta = self._write(touched, output, moved_in, expired, refs)
        self._lap("write state")
        counts = touched.counts
        if key_tuples is not None:
            counts = key_tuples[1][np.searchsorted(key_tuples[0], touched.hash)] if len(touched.hash) else counts
        load = None
        if self.orders.statistics and self.slot != SHARED:
            load = self._load(touched, output, counts, cost, (split_hash, split_tuples))
        return results, SlotReport(
            operator=self.number,
            slot=self.slot,
            refs=refs,
            written=written,
            place=place,
            rows_delta=rows_delta,
            bytes_delta=bytes_delta,
            load=load,
            tuples=tuples,
            keys=len(touched.hash),
            seconds=self.seconds,
            fired=int((touched.fired_event | touched.fired_processing).sum()),
            expired=len(expired[0]) + int((self._lapsed(moved_in) & ~among(hashes_of(moved_in), touched.hash)).sum()),
            copied_bytes=copied,
            partials=partials,
        )

    def _split_off(self, given: Arrived, combined: bool) -> tuple[Arrived, bytes | None, I64, I64]:
        """Rows of split keys become partial rows for the driver; the others stay."""
        shared = self.places.shared
        is_split = among(given.hashes, shared) if self.slot != SHARED else np.zeros(0, dtype=np.bool_)
        if not is_split.any():
            return given, None, nothing(), nothing()
        given = given.each()
        is_split = among(given.hashes, shared)
        part, part_hashes = given.rows.filter(pa.array(is_split)), given.hashes[is_split]
        split_hash, split_tuples = np.unique(part_hashes, return_counts=True)
        make = self.operator.combine if combined else self.operator.early
        part, part_hashes = make(part, part_hashes)
        payload = encode(part.append_column(HASH, pa.array(part_hashes))).to_pybytes()
        left = Arrived(given.rows.filter(pa.array(~is_split)), given.hashes[~is_split])
        return left, payload, split_hash, split_tuples.astype(np.int64)

    def _moved_in(self) -> tuple[pa.Table, int, tuple[Ref, ...]]:
        """The rows of keys that change place to one of ours, as they were; and, where migration is by copying, the run
        that holds the key groups we gained."""
        moving = self.relocation
        mine = np.flatnonzero(moving.target == self.slot)
        tables = []
        for source in np.unique(moving.source[mine]):
            rows = mine[moving.source[mine] == source]
            rows = rows[by_place(moving.source_place[rows], moving.hash[rows])]
            refs = self.orders.refs_before(self.number, int(source))
            found = lookup(self.orders.files, refs, self.schema, moving.source_place[rows], moving.hash[rows])
            tables.append(found.table.filter(pa.array(found.present)))
        table = pa.concat_tables(tables).combine_chunks() if tables else self.schema.empty_table()
        if len(mine):
            self.orders.crash.reach("in the middle of a move", self.orders.batch)
        copied, refs = 0, self.refs
        if self.orders.migration == "copy" and self.slot != SHARED:
            copied, refs = self._copied()
        return table, copied, refs

    def _copied(self) -> tuple[int, tuple[Ref, ...]]:
        """The key groups we gained, rewritten as a run of our own at once: the papers' way, kept as a baseline."""
        before = {ref.run.name: ref.places for ref in self.orders.refs_before(self.number, self.slot)}
        gained, kept = [], []
        for ref in self.refs:
            had = before.get(ref.run.name)
            new = ref.places if had is None else ref.places.minus(had)
            if new:
                gained.append(Ref(ref.run, new))
            if had is not None and (stays := had.intersect(ref.places)):
                kept.append(Ref(ref.run, stays))
        if not gained:
            return 0, self.refs
        name = Checkpoint.run_name(self.number, self.orders.batch, self.slot)
        with RunWriter(self.orders.files, name, self.schema, gained[-1].run.batch, self.places.count) as writer:
            merge(self.orders.files, gained, writer, drop_dead=False, now=None)
            info = writer.finish()
        refs = sorted([*kept, Ref(info, info.places)], key=lambda ref: ref.run.batch)
        return info.bytes, tuple(refs)

    def _touched(
        self, given: Arrived, refs: tuple[Ref, ...], moved_in: pa.Table
    ) -> tuple[_Keys, pa.Table, tuple[I32, I64]]:
        """All keys to be processed with their state, the rows in their order, and the keys whose state has expired."""
        named, hashes = given.named(self.operator.key_names), given.hashes
        grouping = group_rows(hashes, lambda at: self.places.of(self.step.placing(keys_at(at, named), hashes[at])))
        if given.runs is not None and grouping.position is not None:
            return self._touched(given.each(), refs, moved_in)
        if len(hashes):
            check_one_key(named, grouping)
        rows, starts = given.arranged(grouping)
        keys = keys_at(grouping.first, named)
        place = grouping.place if grouping.place is not None else np.empty(0, dtype=np.int32)
        count = len(grouping)
        found = lookup(self.orders.files, refs, self.schema, place, grouping.hashes, keys=keys)
        state, present = _overlaid(found.table, np.array(found.present), grouping.hashes, moved_in)
        touched = _Keys(
            place, grouping.hashes, np.diff(starts), keys, state, present, present.copy(),
            np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_),
        )  # fmt: skip
        expired = self._expire(touched, refs)
        if self.step.timers:
            touched = self._with_timers(touched, refs, moved_in, expired[1])
        return touched, rows, expired

    def _expire(self, touched: _Keys, refs: tuple[Ref, ...]) -> tuple[I32, I64]:
        """Keys whose state has expired and that have no rows; those that have are new again."""
        orders = self.orders
        if self.step.ttl_micros is None:
            return np.empty(0, dtype=np.int32), nothing()
        touched.present[touched.stored & (timer_of(touched.state, "expires", NEVER) <= orders.now)] = False
        place, hashes = self._due(refs, "expires", orders.last_now, orders.now)
        rest = ~among(hashes, touched.hash)
        return place[rest], hashes[rest]

    def _due(self, refs: tuple[Ref, ...], kind: Timer, after: int, upto: int) -> tuple[I32, I64]:
        """What is due of the keys that were here and stay; those that change place have a row at the old one still."""
        orders = self.orders
        place, hashes = due(orders.files, refs, self.schema, kind, after=after, upto=upto, fresh_from=orders.batch - 1)
        stays = ~among(hashes, self.relocation.hash)
        return place[stays], hashes[stays]

    def _lapsed(self, moved_in: pa.Table) -> Bool:
        """Which of the keys that move in have expired on the way."""
        if self.step.ttl_micros is None:
            return np.zeros(moved_in.num_rows, dtype=np.bool_)
        return np.asarray(timer_of(moved_in, "expires", NEVER) <= self.orders.now)

    def _with_timers(self, touched: _Keys, refs: tuple[Ref, ...], moved_in: pa.Table, expired: I64) -> _Keys:
        """Keys whose timers are due join those that have rows."""
        orders = self.orders
        spans: dict[Timer, tuple[int, int]] = {
            "event": (orders.last_watermark, orders.watermark),
            "processing": (orders.last_now, orders.now),
        }
        found = [self._due(refs, kind, after, upto) for kind, (after, upto) in spans.items()]
        if moved_in.num_rows:
            lasting = moved_in.filter(pa.array(~self._lapsed(moved_in)))
            for kind, (_, upto) in spans.items():
                fires = hashes_of(lasting)[timer_of(lasting, kind, NEVER) <= upto]
                found.append((self.places.of(fires), fires))
        place = np.concatenate([places for places, _ in found])
        hashes = np.concatenate([keys for _, keys in found])
        extra = ~among(hashes, touched.hash) & ~among(hashes, expired)
        extra_hash, first = np.unique(hashes[extra], return_index=True)
        extra_place = place[extra][first]
        order = by_place(extra_place, extra_hash)
        extra_place, extra_hash = extra_place[order], extra_hash[order]
        if len(extra_hash):
            there = lookup(orders.files, refs, self.schema, extra_place, extra_hash)
            more, present = _overlaid(there.table, np.array(there.present), extra_hash, moved_in)
            place = np.concatenate([touched.place, extra_place])
            hashes = np.concatenate([touched.hash, extra_hash])
            order = by_place(place, hashes)
            zeros = np.zeros(len(extra_hash), dtype=np.int64)
            index = pa.array(order)
            count = len(order)
            touched = _Keys(
                place[order],
                hashes[order],
                np.concatenate([touched.counts, zeros])[order],
                keys_at(order, touched.keys, key_part(more, self.operator)),
                pa.concat_tables([touched.state, more]).take(index),
                np.concatenate([touched.stored, present])[order],
                np.concatenate([touched.present, present])[order],
                np.zeros(count, dtype=np.bool_),
                np.zeros(count, dtype=np.bool_),
            )
        event, processing = (timer_of(touched.state, kind, NO_TIMER) for kind in spans)
        touched.fired_event = touched.present & (event != NO_TIMER) & (event <= orders.watermark)
        touched.fired_processing = touched.present & (processing != NO_TIMER) & (processing <= orders.now)
        return touched

    def _process(self, touched: _Keys, rows: pa.Table) -> tuple[pa.Table, KeyedOutput | None, F64 | None]:
        """The operator over all keys, a bounded number of rows at a time."""
        count = len(touched.hash)
        if not count:
            return self.operator.output_schema.empty_table(), None, None
        starts = np.concatenate([[0], np.cumsum(touched.counts)]).astype(np.int64)
        state = state_part(touched.state, self.operator)
        if not touched.present.all():
            state = _blank(state, touched.present)
        outputs = []
        first = 0
        while first < count:
            last = count
            if not self.operator.combines:
                last = max(first + 1, int(np.searchsorted(starts, starts[first] + ROWS_PER_CALL, side="right")) - 1)
            part = slice(first, last)
            event = np.where(
                touched.fired_event[part] | ~touched.present[part],
                NO_TIMER,
                timer_of(touched.state.slice(first, last - first), "event", NO_TIMER),
            )
            processing = np.where(
                touched.fired_processing[part] | ~touched.present[part],
                NO_TIMER,
                timer_of(touched.state.slice(first, last - first), "processing", NO_TIMER),
            )
            given = KeyedInput(
                rows=rows.slice(int(starts[first]), int(starts[last] - starts[first])).combine_chunks(),
                starts=starts[first : last + 1] - starts[first],
                hashes=touched.hash[part],
                keys=touched.keys.slice(first, last - first),
                state=state.slice(first, last - first),
                present=touched.present[part],
                event_timer=event,
                processing_timer=processing,
                fired_event=touched.fired_event[part],
                fired_processing=touched.fired_processing[part],
                now=self.orders.now,
                watermark=self.orders.watermark,
            )
            outputs.append(self.operator.process(given, self.clock))
            first = last
        output = outputs[0] if len(outputs) == 1 else _concatenated(outputs)
        return output.results, output, output.seconds

    def _write(
        self,
        touched: _Keys,
        output: KeyedOutput | None,
        moved_in: pa.Table,
        expired: tuple[I32, I64],
        refs: tuple[Ref, ...],
    ) -> tuple[tuple[Ref, ...], int, I32, I64, I64]:
        """Write the new run, and say by how much the state of each place has grown."""
        orders, moving = self.orders, self.relocation
        places: list[I32] = []
        tables: list[pa.Table] = []
        changes: list[tuple[I32, I64, I64]] = []
        if output is not None:
            keep = output.keep
            expires = None if self.step.ttl_micros is None else orders.now + self.step.ttl_micros
            rows = live(self.schema, touched.hash, touched.keys, output, expires)
            if not keep.all():
                rows = rows.filter(pa.array(keep))
            places.append(touched.place[keep])
            tables.append(rows)
            gone = ~keep & touched.stored
            if gone.any():
                places.append(touched.place[gone])
                tables.append(tombstones(self.schema, touched.hash[gone]))
            new_bytes = np.zeros(len(keep), dtype=np.int64)
            new_bytes[keep] = row_bytes(rows)
            in_overlay = among(touched.hash, hashes_of(moved_in))
            had = touched.stored & ~in_overlay
            old_bytes = np.where(had, row_bytes(touched.state), 0)
            changes.append((touched.place, keep.astype(np.int64) - had, new_bytes - old_bytes))
        if moved_in.num_rows:
            hashes = hashes_of(moved_in)
            idle = ~among(hashes, touched.hash) & ~self._lapsed(moved_in)
            at = np.searchsorted(moving.hash, hashes)
            sizes = row_bytes(moved_in)
            changes.append((moving.source_place[at], np.full(len(at), -1), -sizes))
            changes.append((moving.target_place[at][idle], np.ones(int(idle.sum()), np.int64), sizes[idle]))
            places.append(moving.target_place[at][idle])
            tables.append(moved_in.filter(pa.array(idle)))
        if len(expired[0]):
            places.append(expired[0])
            tables.append(tombstones(self.schema, expired[1]))
            ended = lookup(orders.files, refs, self.schema, *expired)
            changes.append((expired[0], np.full(len(expired[0]), -1), -row_bytes(ended.table)))
        leaving = np.flatnonzero(moving.cleaner == self.slot)
        if len(leaving):
            places.append(moving.source_place[leaving])
            tables.append(tombstones(self.schema, moving.hash[leaving]))
        place, table = _arranged(self.schema, places, tables)
        name = Checkpoint.run_name(self.number, orders.batch, self.slot)
        run, kept = write_delta(
            orders.files,
            name,
            self.schema,
            orders.batch,
            self.places.count,
            place,
            table,
            refs,
            later=orders.changes(self.number, self.slot),
            halfway=lambda: orders.crash.reach("during compaction", orders.batch),
        )
        refs = refs[:kept] if run is None else (*refs[:kept], Ref(run, run.places))
        return (refs, 0 if run is None else run.bytes, *summed(changes))

    def _load(
        self,
        touched: _Keys,
        output: KeyedOutput | None,
        tuples: I64,
        cost: F64 | None,
        split: tuple[I64, I64],
    ) -> OperatorLoad:
        """What the keys cost: measured where the operator measures, the rest of the busy time shared out by tuples."""
        busy = sum(self.seconds.values())
        sizes = np.zeros(len(touched.hash))
        if output is not None:
            sizes[output.keep] = row_bytes(drop(output.state, output.keep)) + SYSTEM
        hashes = np.concatenate([touched.hash, split[0]])
        counts = np.concatenate([tuples, split[1]])
        served = self.orders.service(self.number) * counts
        if cost is not None:
            served[: len(cost)] += cost
        # What was not measured key by key goes by tuples; in a cold batch it is mostly not the keys' doing.
        rest = max(0.0, busy - float(served.sum())) if not self.orders.cold else COLD_SECONDS * len(counts)
        costs = served + rest * counts / max(int(counts.sum()), 1)
        pinned, _ = self.orders.assignment.pins.of_operator(self.number)

        def label(rows: I64) -> list[object]:
            names = iter(key_values(keys_at(rows[rows < len(touched.hash)], touched.keys)))
            return [
                next(names) if row < len(touched.hash) else f"{int(hashes[row]) & (2**64 - 1):016x}"
                for row in rows.tolist()
            ]

        component = self.orders.component(self.number)
        if not component.pinnable:
            hashes = self.step.placing(touched.keys, touched.hash)  # what is placed by less than the key is never split
        return OperatorLoad.of_keys(
            component.number,
            self.slot,
            busy,
            hashes=hashes,
            tuples=counts,
            state_bytes=np.concatenate([sizes, np.zeros(len(split[0]))]),
            cost=costs,
            groups=self.places.groups,
            pinned=np.union1d(pinned, self.places.shared) if component.pinnable else None,
            limit=HEAVY_KEYS if component.pinnable else 0,
            label=label if component.pinnable else None,
        )


def _blank(state: pa.Table, present: Bool) -> pa.Table:
    """The state with nulls where a key is new (its row may hold an expired or forgotten state)."""
    index = pa.array(np.arange(len(present)), mask=~present)
    return state.take(index)


def _overlaid(table: pa.Table, present: Bool, hashes: I64, moved_in: pa.Table) -> tuple[pa.Table, Bool]:
    """The state rows, with those of keys that moved in put in their places."""
    if not moved_in.num_rows or not len(hashes):
        return table, present
    moved = hashes_of(moved_in)
    order = np.argsort(moved)
    at = np.minimum(np.searchsorted(moved[order], hashes), len(moved) - 1)
    is_moved = moved[order][at] == hashes
    if not is_moved.any():
        return table, present
    index = np.where(is_moved, len(hashes) + order[at], np.arange(len(hashes)))
    return pa.concat_tables([table, moved_in]).combine_chunks().take(pa.array(index)), present | is_moved


def _arranged(schema: pa.Schema, places: list[I32], tables: list[pa.Table]) -> tuple[I32, pa.Table]:
    """All rows to be written, ascending by (place, hash)."""
    if not tables:
        return np.empty(0, dtype=np.int32), schema.empty_table()
    place = np.concatenate(places).astype(np.int32)
    table = pa.concat_tables(tables).combine_chunks()
    hashes = hashes_of(table)
    if ((place[1:] > place[:-1]) | ((place[1:] == place[:-1]) & (hashes[1:] > hashes[:-1]))).all():
        return place, table
    order = by_place(place, hashes)
    return place[order], table.take(pa.array(order))


def _concatenated(outputs: list[KeyedOutput]) -> KeyedOutput:
    seconds = [output.seconds for output in outputs]
    return KeyedOutput(
        results=pa.concat_tables([output.results for output in outputs]),
        state=pa.concat_tables([output.state for output in outputs]),
        keep=np.concatenate([output.keep for output in outputs]),
        event_timer=np.concatenate([output.event_timer for output in outputs]),
        processing_timer=np.concatenate([output.processing_timer for output in outputs]),
        seconds=None if any(part is None for part in seconds) else np.concatenate(seconds),  # type: ignore[arg-type]
    )
