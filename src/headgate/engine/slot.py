"""A slot's part of a batch: the rows and state of its keys in, results, new state and a report out.

Runs in Spark's Python workers, one call per slot and depth. A slot reads only what batch N-1 committed and writes only
files with names of their own, so a task may be tried again, or twice at once, and nothing is lost or doubled.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headgate.arrays import F64
from headgate.engine.arrivals import Arrived
from headgate.engine.keyed import OperatorBatch
from headgate.engine.orders import Orders, OutputReport
from headgate.engine.outbox import Outbox
from headgate.engine.payload import REPORT, Parcel, Sender, exchange_row, received, rows_of
from headgate.engine.program import Step, ToOperator, ToOutput, flow
from headgate.engine.route import send, with_keys
from headgate.engine.windowed import WindowBatch
from headgate.errors import UserFunctionError
from headgate.operators import WindowedAggregation

PARTS = 1 << 20
"""Senders of one stage have numbers of their own: slots count from here, times the depth; routing tasks from 0."""


@dataclass(slots=True)
class SlotTask:
    """One slot at one depth of a batch."""

    orders: Orders
    slot: int
    depth: int
    clock: Callable[[], float] = time.perf_counter
    _loads: dict[int, F64] = field(default_factory=dict)
    _local: dict[int, list[Arrived]] = field(default_factory=dict)
    _sent: dict[int, int] = field(default_factory=dict)
    _early: dict[int, tuple[int, float]] = field(default_factory=dict)
    _rejected: int = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Exchange rows for deeper operators, what only passes through, and the reports of this slot."""
        parcels = received(batches)
        program = self.orders.load()
        here = {number for number, step in enumerate(program.steps) if step.depth == self.depth}
        sender = Sender(part=self.depth * PARTS + self.slot)
        outbox = Outbox(self.orders.files, self.orders.batch, self.slot)
        for parcel in parcels:
            if parcel.operator not in here:
                yield exchange_row(self.slot, parcel)
        for number in sorted(here):
            yield from self._operator(number, parcels, sender, outbox)
        started = self.clock()
        written = outbox.finish()
        yield self._report(sender, OutputReport(self.slot, written, self.clock() - started, self._rejected))

    def _operator(self, number: int, parcels: list[Parcel], sender: Sender, outbox: Outbox) -> Iterator[pa.RecordBatch]:
        orders, program = self.orders, self.orders.load()
        step = program.steps[number]
        self.orders.crash.reach("during tasks", orders.batch)
        arrived = self._arrived(number, parcels)
        self._sent, self._early = {}, {}
        try:
            kind = WindowBatch if isinstance(step.operator, WindowedAggregation) else OperatorBatch
            results, report = kind(orders, number, self.slot, self.clock).run(arrived)
        except UserFunctionError as error:
            raise error.on_slot(self.slot) from error
        ready: list[pa.RecordBatch] = []

        def deliver(leaf: ToOperator | ToOutput, rows: pa.Table) -> None:
            if isinstance(leaf, ToOutput):
                outbox.add(leaf.output, rows)
                return
            target = program.steps[leaf.operator]
            rows, rejected = with_keys(rows, target, step.operator.name, program.bad_keys, outbox)
            self._rejected += rejected
            given = Arrived.hashed(rows.select(target.operator.input_schema.names), target.operator.key_names)
            self._sent[leaf.operator] = self._sent.get(leaf.operator, 0) + len(given)
            given = self._added_up(leaf.operator, target, given)
            if step.component is not None and step.component == target.component:
                self._hand_over(step, leaf.operator, target, given)
                return
            given = given.each()
            ready.extend(send(orders, sender, leaf.operator, target, given.rows, given.hashes, self._loads))

        flow(step.branches, results, deliver)
        yield from ready
        yield self._report(sender, replace(report, sent=self._sent, early=self._early))

    def _added_up(self, number: int, target: Step, given: Arrived) -> Arrived:
        """Rows for an operator, as it gets them, and note taken of how long that took."""
        began, count = self.clock(), len(given)
        if target.combine_early:
            given = given.each()
            given = Arrived(*self.orders.early(number, given.rows, given.hashes))
        before = self._early.get(number, (0, 0.0))
        self._early[number] = before[0] + count, before[1] + self.clock() - began
        return given

    def _arrived(self, number: int, parcels: list[Parcel]) -> Arrived | None:
        """The rows for an operator: what was sent, then what operators of its component made in this task."""
        sent = rows_of(parcels, number)
        local = self._local.pop(number, [])
        return Arrived.together(local if sent is None else [sent, *local])

    def _hand_over(self, source: Step, number: int, target: Step, given: Arrived) -> None:
        """Rows for an operator of the same component: they stay in this task.

        Raises ``UserFunctionError`` where a row belongs elsewhere, because what its component is placed by was changed
        on the way.
        """
        columns = target.placed_by or target.operator.key_names
        named = given.named(columns)
        slots = self.orders.assignment.route(target.placing(named, given.hashes), number)
        astray = np.flatnonzero(slots != self.slot)
        if len(astray):
            row = named.slice(int(astray[0]), 1).to_pylist()[0]
            raise UserFunctionError.strayed(source.operator.name, target.operator.name, columns, row)
        self._local.setdefault(number, []).append(given)

    def _report(self, sender: Sender, report: object) -> pa.RecordBatch:
        return sender.row(self.slot, REPORT, pa.py_buffer(pickle.dumps(report, protocol=5)))
