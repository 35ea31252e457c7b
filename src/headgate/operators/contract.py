"""What the engine hands to an operator for one micro-batch of one slot, and what it gets back.

    rows of the batch --early--> partial rows --group by key--> KeyedInput --process--> KeyedOutput
                      (where they are read)                     (in the slot that owns the keys)

Everything is by column and by key: key ``i`` of ``n`` has the rows ``starts[i]`` to ``starts[i + 1]`` (exclusive), the
state row ``i``, the timers ``i``. A key is there because it has rows or because a timer of it is due, so it may have no
rows. Operators are pure: no clock but the one passed in, no files, no Spark.

Times are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate.arrays import F64, I64, Bool

NO_TIMER = -(2**63)
"""In a column of timers: none is set. The smallest 64-bit integer, which is no time that anybody sets."""

NO_WATERMARK = -(2**63)
"""The watermark before any event time was seen: every event time lies after it."""

Clock = Callable[[], float]
"""Seconds from some fixed point, for measuring what keys cost: ``time.perf_counter``, or a fake one in tests."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyedInput:
    """The keys of one slot that a micro-batch touches, with their rows, state and timers.

    ``rows`` has the operator's ``partial_schema`` and lies key after key; rows of a key keep the order they came in.
    ``keys`` has the operator's key columns and ``state`` its state columns, one row per key; where ``present`` is
    false the key is new and its state row is null. ``event_timer`` and ``processing_timer`` are what the state had
    (``NO_TIMER``: none), and ``fired_event`` and ``fired_processing`` say which of them are due now; a due timer is
    spent unless the operator returns a new one.
    """

    rows: pa.Table
    starts: I64
    hashes: I64
    keys: pa.Table
    state: pa.Table
    present: Bool
    event_timer: I64
    processing_timer: I64
    fired_event: Bool
    fired_processing: Bool
    now: int
    watermark: int

    def __len__(self) -> int:
        """How many keys."""
        return len(self.hashes)


@dataclass(frozen=True, slots=True, eq=False)
class KeyedOutput:
    """What an operator made of a ``KeyedInput``.

    ``results`` has the operator's ``output_schema``. All else has one entry per key, in the order of the input:
    ``state`` (the operator's ``state_schema``) and the timers are what is to be kept; where ``keep`` is false the key
    is forgotten, and its state and timers are not looked at. ``seconds`` is what each key cost, where it was measured.
    """

    results: pa.Table
    state: pa.Table
    keep: Bool
    event_timer: I64
    processing_timer: I64
    seconds: F64 | None = None


class KeyedOperator(Protocol):
    """A step with state per key.

    Operators are made once, pickled to every task, and used for many micro-batches: they hold no state themselves, and
    unpickling one is cheap. Schemas are those of Arrow; ``key_names`` name columns of ``input_schema``; where
    there are none, all rows are of one key.

    ``combines`` says that rows of a key may be reduced before they are shuffled, and that a key may be split over
    several slots whose partial rows are brought together later. For an operator that does not combine,
    ``partial_schema`` is ``input_schema``, and ``early`` and ``combine`` return what they were given.
    """

    @property
    def name(self) -> str: ...
    @property
    def input_schema(self) -> pa.Schema: ...
    @property
    def key_names(self) -> tuple[str, ...]: ...
    @property
    def state_schema(self) -> pa.Schema: ...
    @property
    def output_schema(self) -> pa.Schema: ...
    @property
    def combines(self) -> bool: ...
    @property
    def partial_schema(self) -> pa.Schema: ...

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Input rows and their key hashes -> partial rows, at most one per distinct key, and their key hashes.

        The key columns come first in a partial row.
        """

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partial rows from several places -> partial rows, at most one per distinct key."""

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """One micro-batch. Same input, same output (but for ``seconds``), so that a batch can be replayed.

        Without a clock nothing is measured.
        """
