"""Rows of state: the columns that every row of a run begins with.

    ================  ======  ====================================================================
    column            type    what
    ================  ======  ====================================================================
    hash              int64   the key hash
    live              bool    false: a tombstone, the key was forgotten
    event_timer       int64   microseconds UTC, null where none is set
    processing_timer  int64   microseconds UTC, null where none is set
    expires           int64   microseconds UTC, null where the row lives on; gone once this is <= now
    key columns ...
    state columns ...
    ================  ======  ====================================================================

A key or state column may have the name of one of these, so the store never asks by name: it goes by position.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I64, Bool

HASH, LIVE, EVENT_TIMER, PROCESSING_TIMER, EXPIRES = range(5)
FIRST_KEY = 5
"""The position of the first key column; the state columns follow the last one."""

SYSTEM = (
    pa.field("hash", pa.int64()),
    pa.field("live", pa.bool_()),
    pa.field("event_timer", pa.int64()),
    pa.field("processing_timer", pa.int64()),
    pa.field("expires", pa.int64()),
)

NEVER = 2**63 - 1
"""Stands for a time that does not come, where a column of numbers cannot be null."""

Timer = Literal["event", "processing", "expires"]
"""What makes a key due at a time of its own: a timer of either kind, or the end of its life."""

TIMERS: dict[Timer, int] = {"event": EVENT_TIMER, "processing": PROCESSING_TIMER, "expires": EXPIRES}


def timer_column(kind: Timer) -> int:
    """The position of the column that holds these times."""
    return TIMERS[kind]


def row_schema(keys: pa.Schema, state: pa.Schema) -> pa.Schema:
    """The columns of a run for these key and state columns. Metadata and 'not null' are left out."""
    return pa.schema([*SYSTEM, *(pa.field(field.name, field.type) for field in (*keys, *state))])


def times(column: pa.ChunkedArray | pa.Array) -> I64:
    """A column of times as numbers; ``NEVER`` where it is null."""
    return np.asarray(pc.fill_null(column, NEVER), dtype=np.int64)


def alive(table: pa.Table, now: int | None) -> Bool:
    """Which rows are neither tombstones nor, where ``now`` is given, expired (``expires <= now``)."""
    live = np.asarray(table.column(LIVE), dtype=np.bool_)
    expires = table.column(EXPIRES)
    if now is None or expires.null_count == len(expires):
        return live
    return live & (times(expires) > now)
