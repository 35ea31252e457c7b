"""The first stage of a batch: rows are mapped, checked, hashed and sent to the slots that have their keys.

    input rows -> maps and filters -> late? bad key? -> key hash -> (partial rows per key) -> slot -> payloads

Runs in Spark's Python workers, one call per partition of the batch.
"""

from __future__ import annotations

import json
import math
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import F64, I32, I64, Bool, among, compiled
from headgate.engine.orders import Orders, RouteReport
from headgate.engine.outbox import Outbox
from headgate.engine.payload import REPORT, Sender
from headgate.engine.program import REJECTED, REJECTED_SCHEMA, Input, Program, Rule, Step, ToOperator, ToOutput, flow
from headgate.engine.reading import read_file
from headgate.errors import RowError
from headgate.operators import NO_WATERMARK, WindowedAggregation, instants, pieces_of
from headgate.routing import group_of, row_hash
from headgate.windows import SLICE

TAG = "__input"
"""Where a job has several inputs: the column that says of which one a row is."""

CHUNK_BYTES = 32 << 20
"""Rows are gathered up to this size before they are hashed, combined and sent: large enough that a chunk's fixed cost
is lost in it, small enough that a task's memory stays bounded."""


@dataclass(slots=True)
class _Pending:
    tables: list[pa.Table] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class Router:
    """One routing task."""

    orders: Orders
    part: int
    clock: Callable[[], float] = time.perf_counter
    program: Program = field(init=False)
    sender: Sender = field(init=False)
    outbox: Outbox = field(init=False)
    rows: dict[str, int] = field(default_factory=dict)
    event_times: dict[int, int] = field(default_factory=dict)
    late: int = 0
    rejected: int = 0
    early: dict[int, tuple[int, float]] = field(default_factory=dict)
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _loads: dict[int, F64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = self.orders.load()
        self.sender = Sender(self.part)
        self.outbox = Outbox(self.orders.files, self.orders.batch, self.part)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Exchange rows for everything in ``batches``, and a report at the end."""
        started = self.clock()
        ready: list[pa.RecordBatch] = []
        for number, table in self._tables(batches):
            given = self.program.inputs[number]
            self.rows[given.name] = self.rows.get(given.name, 0) + table.num_rows

            def deliver(
                leaf: ToOperator | ToOutput, rows: pa.Table, number: int = number, given: Input = given
            ) -> None:
                if isinstance(leaf, ToOutput):
                    self.outbox.add(leaf.output, rows)
                    return
                ready.extend(self._accept(leaf.operator, self._admit(number, given, leaf.operator, rows)))

            flow(given.branches, table, deliver)
            yield from ready
            ready.clear()
        for operator in list(self._pending):
            yield from self._flush(operator)
        report = RouteReport(
            part=self.part,
            rows=self.rows,
            event_times=self.event_times,
            late=self.late,
            rejected=self.rejected,
            seconds=self.clock() - started,
            written=self.outbox.finish(),
            early=self.early,
        )
        slot = self.part % self.orders.assignment.slots
        yield self.sender.row(slot, REPORT, pa.py_buffer(pickle.dumps(report, protocol=5)))

    def _tables(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each input, gathered into chunks."""
        inputs = self.program.inputs
        gathered = [_Pending() for _ in inputs]
        for batch in batches:
            for number, table in _untagged(batch, inputs):
                form = inputs[number].files
                if form is not None:
                    for path in table.column("path").to_pylist():
                        for rows in read_file(path, form):
                            yield number, rows
                    continue
                if table.schema.types != inputs[number].schema.types:
                    table = table.cast(inputs[number].schema)  # timestamps come in the time zone of the session
                pending = gathered[number]
                pending.tables.append(table)
                pending.bytes += table.nbytes
                if pending.bytes >= CHUNK_BYTES:
                    yield number, pa.concat_tables(pending.tables).combine_chunks()
                    gathered[number] = _Pending()
        for number, pending in enumerate(gathered):
            if pending.tables:
                yield number, pa.concat_tables(pending.tables).combine_chunks()

    def _admit(self, number: int, given: Input, operator: int, rows: pa.Table) -> pa.Table:
        """Without late rows and those with unusable keys; event times are noted."""
        program = self.program
        if program.event_time is not None and program.event_time in rows.column_names:
            times = instants(rows.column(program.event_time))
            greatest = pc.max(times).as_py()
            if greatest is not None:
                self.event_times[number] = max(self.event_times.get(number, NO_WATERMARK), greatest)
            if self.orders.watermark != NO_WATERMARK and pc.min(times).as_py() is not None:
                bar = self.orders.watermark - program.steps[operator].lateness_micros
                is_late = pc.fill_null(pc.less(times, bar), False)
                if pc.any(is_late).as_py():
                    reason = f"late for {program.steps[operator].operator.name!r}"
                    rows, late = turn_away(rows, is_late, given.name, reason, program.late, self.outbox)
                    self.late += late
        rows, rejected = with_keys(rows, program.steps[operator], given.name, program.bad_keys, self.outbox)
        self.rejected += rejected
        return rows

    def _accept(self, operator: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        pending = self._pending.setdefault(operator, _Pending())
        pending.tables.append(rows)
        pending.bytes += rows.nbytes
        if pending.bytes >= CHUNK_BYTES:
            yield from self._flush(operator)

    def _flush(self, operator: int) -> Iterator[pa.RecordBatch]:
        tables = self._pending.pop(operator).tables
        rows = pa.concat_tables(tables).combine_chunks()
        if not rows.num_rows:
            return
        step = self.program.steps[operator]
        rows = rows.select(step.operator.input_schema.names)
        hashes = row_hash(rows.select(list(step.operator.key_names)))
        began, count = self.clock(), len(hashes)
        rows, hashes = self.orders.early(operator, rows, hashes)
        before = self.early.get(operator, (0, 0.0))
        self.early[operator] = before[0] + count, before[1] + self.clock() - began
        yield from send(self.orders, self.sender, operator, step, rows, hashes, self._loads)


def send(
    orders: Orders,
    sender: Sender,
    operator: int,
    step: Step,
    rows: pa.Table,
    hashes: I64,
    loads: dict[int, F64],
) -> Iterator[pa.RecordBatch]:
    """Exchange rows that bring these rows, as ``Orders.early`` gave them, to the slots of their keys. ``loads``: what
    was sent where so far, by operator, which decides where rows of split keys go."""
    placing = step.placing(rows, hashes)
    slots = orders.assignment.route(placing, operator)
    handed = orders.handed(operator)
    if handed is not None and len(hashes):
        assert isinstance(step.operator, WindowedAggregation), "only windows are handed over"
        hops, starts = pieces_of(rows)
        first, last = step.operator.slicing.spanned(starts)
        one = hops != SLICE
        first, last = np.where(one, starts, first), np.where(one, starts, last)
        position, slots = handed.routed(group_of(placing, orders.assignment.groups_per_operator), slots, first, last)
        rows, hashes = rows.take(pa.array(position)), hashes[position]
    shared = orders.shared[operator]
    if len(shared):
        load = loads.setdefault(operator, np.zeros(orders.assignment.slots))
        spread(slots, among(hashes, shared), load)
    yield from sender.rows(operator, rows, hashes, slots, orders.assignment.slots)


def with_keys(rows: pa.Table, step: Step, source: str, rule: Rule, outbox: Outbox) -> tuple[pa.Table, int]:
    """The rows that have a key for this operator, and how many had none."""
    rejected = 0
    for name in step.operator.key_names:
        column = rows.column(name)
        if column.null_count:
            reason = f"null, or no {column.type}, in key column {name!r} of {step.operator.name!r}"
            rows, count = turn_away(rows, pc.is_null(column), source, reason, rule, outbox)
            rejected += count
    return rows, rejected


def turn_away(
    rows: pa.Table, mask: pa.ChunkedArray, source: str, reason: str, rule: Rule, outbox: Outbox
) -> tuple[pa.Table, int]:
    """The rows without the masked ones, and how many those were. Raises ``RowError`` where the rule is to fail."""
    away = rows.filter(mask)
    if rule == "fail":
        raise RowError.refused(source, reason, away.num_rows, away.slice(0, 1).to_pylist()[0])
    if rule == "side":
        texts = [json.dumps(_plain(row)) for row in away.to_pylist()]
        count = len(texts)
        columns = [[outbox.batch] * count, [source] * count, [reason] * count, texts]
        outbox.add(REJECTED, pa.table(columns, schema=REJECTED_SCHEMA))
    return rows.filter(pc.invert(mask)), away.num_rows


def _plain(value: Any) -> Any:
    """What JSON has for a value: times, dates and decimals as text, bytes in hexadecimal, no number as null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else (None if math.isnan(value) else str(value))
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int) else str(value)


def _untagged(batch: pa.RecordBatch, inputs: tuple[Input, ...]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each input in a batch of the tagged union; a job with one input has no tags."""
    if len(inputs) == 1:
        yield 0, pa.Table.from_batches([batch])
        return
    tags = batch.column(TAG)
    for number in pc.unique(tags).to_pylist():
        rows = batch.filter(pc.equal(tags, number)).column(f"{TAG}{number}")
        yield number, pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])


@compiled
def spread(slots: I32, shared: Bool, loads: F64) -> None:
    """Rows of split keys go to the slot that this sender has sent least to so far (the rule of W-Choices); the others
    stay with the slot of their key. Changes ``slots`` and ``loads`` in place."""
    for row in range(len(slots)):
        if shared[row]:
            slots[row] = np.argmin(loads)
        loads[slots[row]] += 1.0
