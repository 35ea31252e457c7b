"""State rows as they lie in a run: system columns, key columns, state columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I32, I64, Bool, sums
from headgate.operators import NO_TIMER, KeyedOperator, KeyedOutput
from headgate.state import FIRST_KEY, Timer, row_schema, timer_column

SYSTEM = 34
"""Bytes of a row besides key and state: hash, three times, and their marks."""


def state_schema(operator: KeyedOperator) -> pa.Schema:
    """The columns of an operator's runs."""
    keys = pa.schema([operator.input_schema.field(name) for name in operator.key_names])
    return row_schema(keys, operator.state_schema)


def live(schema: pa.Schema, hashes: I64, keys: pa.Table, output: KeyedOutput, expires: int | None) -> pa.Table:
    """The rows of keys that are kept, one per key of the output."""
    count = len(hashes)
    end = pa.nulls(count, pa.int64()) if expires is None else pa.array(np.full(count, expires, dtype=np.int64))
    columns = [
        pa.array(hashes),
        pa.array(np.ones(count, dtype=np.bool_)),
        _times(output.event_timer),
        _times(output.processing_timer),
        end,
        *keys.columns,
        *output.state.columns,
    ]
    return pa.table(columns, schema=schema).combine_chunks()


def tombstones(schema: pa.Schema, hashes: I64) -> pa.Table:
    """Rows that say: this key has no state any more."""
    count = len(hashes)
    system = [pa.array(hashes), pa.array(np.zeros(count, dtype=np.bool_))]
    rest = [pa.nulls(count, field.type) for field in list(schema)[2:]]
    return pa.table([*system, *rest], schema=schema)


def hashes_of(rows: pa.Table) -> I64:
    """The key hashes of state rows."""
    values: I64 = rows.column(0).combine_chunks().to_numpy() if rows.num_rows else np.empty(0, dtype=np.int64)
    return values


def key_part(rows: pa.Table, operator: KeyedOperator) -> pa.Table:
    """The key columns of state rows."""
    return rows.select(range(FIRST_KEY, FIRST_KEY + len(operator.key_names)))


def state_part(rows: pa.Table, operator: KeyedOperator) -> pa.Table:
    """The state columns of state rows."""
    return rows.select(range(FIRST_KEY + len(operator.key_names), rows.num_columns))


def timer(rows: pa.Table, kind: Timer, missing: int) -> I64:
    """A column of times, ``missing`` where there is none."""
    column = rows.column(timer_column(kind))
    if column.null_count == rows.num_rows:
        return np.full(rows.num_rows, missing, dtype=np.int64)
    values: I64 = np.asarray(pc.fill_null(column, missing), dtype=np.int64)
    return values


def drop(table: pa.Table, keep: Bool) -> pa.Table:
    """The rows that are kept."""
    return table if keep.all() else table.filter(pa.array(keep))


def row_bytes(table: pa.Table) -> I64:
    """About how many bytes each row takes: fixed widths, and the lengths of texts and lists."""
    fixed = 0
    size = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            size += pc.fill_null(pc.binary_length(column), 0).to_numpy()
            fixed += 4
        elif pa.types.is_list(kind):
            width = getattr(kind.value_type, "bit_width", 64) // 8 if pa.types.is_primitive(kind.value_type) else 16
            size += pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64) * width
            fixed += 4
        else:
            fixed += max(1, getattr(kind, "bit_width", 64) // 8) if pa.types.is_primitive(kind) else 16
    return size + fixed


def summed(changes: list[tuple[I32, I64, I64]]) -> tuple[I32, I64, I64]:
    """Changes of the rows and bytes of places, each place once: (places, rows, bytes)."""
    if not changes:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    place = np.concatenate([change[0] for change in changes])
    touched, index = np.unique(place, return_inverse=True)
    rows, size = (
        sums(index, np.concatenate([change[column] for change in changes]), len(touched)).astype(np.int64)
        for column in (1, 2)
    )
    return touched.astype(np.int32), rows, size


def _times(values: I64) -> pa.Array:
    return pa.array(values, mask=values == NO_TIMER)
