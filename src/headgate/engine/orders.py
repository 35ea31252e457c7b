"""What the driver tells the tasks of one micro-batch, and what they report back."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from headgate.arrays import I32, I64
from headgate.engine.program import Program
from headgate.operators import WindowedAggregation
from headgate.routing import Assignment, Handover, Handovers, Places, Relocation
from headgate.state import Files, Layout, Migration, Owner, PackedRefs, Ref
from headgate.stats.loads import OperatorLoad
from headgate.testing import CrashPoints


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything a task of batch N needs. The same orders give the same results and the same state, so a batch can be
    replayed after a crash at any point.

    ``layout`` is that of batch N-1 with places already given to their owners of batch N; ``sources`` what slots that
    get or lose places by that had in N-1, to read keys that change place. Timers fire that lie after the last batch's
    ``watermark`` and ``now`` and up to this one's. ``cold``: the first batch of a run, in which slots also start
    workers and load code, so that how long a slot was busy says little about its keys. ``handovers`` are the key groups
    that two slots have a part of; of those that have ``ended`` the old slot forgets its part. ``per_window``: operators
    whose windows are computed one by one, and not made of slices.
    """

    program: bytes
    program_id: str
    files: Files
    batch: int
    now: int
    watermark: int
    last_now: int
    last_watermark: int
    assignment: Assignment
    before: Assignment
    shared: tuple[I64, ...]
    shared_before: tuple[I64, ...]
    layout: Layout
    sources: Mapping[Owner, tuple[Ref, ...]] = field(default_factory=dict)
    migration: Migration = "auto"
    handovers: tuple[Handover, ...] = ()
    ended: tuple[Handover, ...] = ()
    per_window: frozenset[int] = frozenset()
    service_seconds: tuple[float, ...] = ()
    statistics: bool = True
    cold: bool = False
    crash: CrashPoints = field(default_factory=CrashPoints)

    def service(self, operator: int) -> float:
        """Seconds that a row takes in its slot by sleeping."""
        return self.service_seconds[operator] if self.service_seconds else 0.0

    def load(self) -> Program:
        """The program, unpickled once per process."""
        return _program(self.program_id, self.program)

    def places(self, operator: int) -> Places:
        return Places(self.assignment, operator, self.shared[operator])

    def relocation(self, operator: int) -> Relocation:
        return Relocation.between(Places(self.before, operator, self.shared_before[operator]), self.places(operator))

    def early(self, operator: int, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Rows for an operator, as it gets them: added up where it wants that."""
        step = self.load().steps[operator]
        if not step.combine_early:
            return rows, hashes
        rows = rows.combine_chunks()
        if operator in self.per_window and isinstance(step.operator, WindowedAggregation):
            return step.operator.early_in(rows, hashes, per_window=True)
        return step.operator.early(rows, hashes)

    def handed(self, operator: int) -> Handovers | None:
        """The key groups of an operator that two slots have a part of."""
        return Handovers.of(self.handovers, operator, self.assignment.groups_per_operator) if self.handovers else None

    def component(self, operator: int) -> Component:
        """The component an operator is in."""
        return _components(self.program_id, self.program)[operator]

    def refs(self, operator: int, slot: int) -> tuple[Ref, ...]:
        return self.layout.refs(operator, slot)

    def refs_before(self, operator: int, slot: int) -> tuple[Ref, ...]:
        """What a slot had in batch N-1."""
        had = self.sources.get((operator, slot))
        return self.refs(operator, slot) if had is None else had

    def changes(self, operator: int, slot: int) -> bool:
        """Whether a slot gets or loses places of an operator in this batch."""
        return (operator, slot) in self.sources

    def packed(self) -> bytes:
        """The orders as they travel: packed once for all tasks of a batch, whatever stage they are of."""
        travelling = replace(self, layout=self.layout.packed(), sources=PackedRefs.of(self.sources))
        return pickle.dumps(travelling, protocol=5)


@lru_cache(maxsize=1)
def unpacked(packed: bytes) -> Orders:
    """What ``Orders.packed`` gave. A worker that has tasks of several stages of a batch unpacks it once."""
    orders = pickle.loads(packed)
    assert isinstance(orders, Orders)
    return orders


@dataclass(frozen=True, slots=True)
class Component:
    """The number of a component, and whether its keys can be placed one by one."""

    number: int
    pinnable: bool


@lru_cache(maxsize=8)
def _components(program_id: str, pickled: bytes) -> tuple[Component, ...]:
    program = _program(program_id, pickled)
    together = program.together
    return tuple(
        Component(together.component(number), program.pinnable(number)) for number in range(len(program.steps))
    )


@lru_cache(maxsize=8)
def _program(_: str, pickled: bytes) -> Program:
    from pyspark import cloudpickle

    program = cloudpickle.loads(pickled)
    assert isinstance(program, Program)
    return program


@dataclass(frozen=True, slots=True)
class Written:
    """A file of results that a task wrote for an output."""

    output: str
    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class RouteReport:
    """What a routing task did. ``event_times``: the greatest event time seen, by input. ``early``: rows that were added
    up for an operator before they were sent, and the seconds that took."""

    part: int
    rows: Mapping[str, int]
    event_times: Mapping[int, int]
    late: int
    rejected: int
    seconds: float
    written: tuple[Written, ...]
    early: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def nothing() -> I64:
    """No hashes."""
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SlotReport:
    """What a slot task did for one operator.

    ``refs`` is what the slot reads from now on. ``place``, ``rows_delta`` and ``bytes_delta`` say how the state grew or
    shrank. ``partials`` are an Arrow IPC stream of what this slot computed for split keys. ``sent``: rows for other
    operators, by their number; ``early`` those that were added up for one before they were sent or handed over, and the
    seconds that took. ``merged``: keys of pieces that windows were made of.
    """

    operator: int
    slot: int
    refs: tuple[Ref, ...]
    written: int
    place: I32
    rows_delta: I64
    bytes_delta: I64
    load: OperatorLoad | None
    tuples: int
    keys: int
    seconds: Mapping[str, float]
    fired: int = 0
    expired: int = 0
    copied_bytes: int = 0
    partials: bytes | None = None
    sent: Mapping[int, int] = field(default_factory=dict)
    early: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    merged: int = 0


@dataclass(frozen=True, slots=True)
class OutputReport:
    """The files of results a slot task wrote, and how many rows had no key for the next operator."""

    slot: int
    written: tuple[Written, ...]
    seconds: float
    rejected: int = 0


Report = RouteReport | SlotReport | OutputReport
