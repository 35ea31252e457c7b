"""The vectorised style: one call of a function for all keys of a batch, with rows and state as Arrow tables.

def on_batch(batch):
    seen = pc.add(batch.state["count"], pa.array(batch.counts))
    state = pa.table({"count": seen})
    return batch.keys.append_column("count", seen), state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from headgate.arrays import I64, Bool
from headgate.errors import InputError, UserFunctionError, listing
from headgate.operators.columns import StateColumns, type_name
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.function import KeyedFunction
from headgate.operators.rows import first_row, key_values, spent


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The keys that a batch touches in one slot, by column: key ``i`` has the rows ``starts[i]`` to ``starts[i + 1]``.

    ``keys`` and ``state`` have one row per key; the state of a new key (``is_new``) has the declared initial values. A
    stream that is keyed by no columns has one key, and ``keys`` a row without columns. Timers are microseconds since
    1970 UTC, ``NO_TIMER`` where none is set. A key whose timer fired may have no rows.
    """

    rows: pa.Table
    starts: I64
    keys: pa.Table
    state: pa.Table
    is_new: Bool
    event_timer: I64
    processing_timer: I64
    fired_event: Bool
    fired_processing: Bool
    now: int
    watermark: int

    def __len__(self) -> int:
        """How many keys."""
        return len(self.starts) - 1

    @property
    def counts(self) -> I64:
        """How many rows each key has."""
        return np.diff(self.starts)

    @property
    def key_of_row(self) -> I64:
        """The number of each row's key, ascending: what to group by, or to look a key's state up with."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a vectorised function returns; a pair (results, state) stands for one without the rest.

    ``results`` and ``state`` are Arrow tables or whatever ``pyarrow.table`` makes one of: a mapping of columns, a
    pandas or polars frame. The state has one row per key, in the order of the batch; None leaves it as it is. Where
    ``forget`` is true the key's state and timers are dropped. Timers not given stay as they are, due ones spent.
    """

    results: object = None
    state: object = None
    forget: ArrayLike | None = None
    event_timer: ArrayLike | None = None
    processing_timer: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class SomeKey:
    """Stands for the key in the error of a function that was given many at once."""

    count: int
    first: object

    def __repr__(self) -> str:
        return f"one of {self.count}, the first of them {self.first!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Vectorised(KeyedFunction):
    """A keyed operator made of a function over all keys of a batch.

    The function must give the same for the same batch, because a batch may be replayed. How keys are spread over calls
    is up to the engine: results must not depend on which keys come together. If it raises, the batch fails with
    ``UserFunctionError``; if tables have other columns, types or lengths than declared, with ``InputError`` that names
    the column.
    """

    def __post_init__(self) -> None:
        super(Vectorised, self).__post_init__()  # slots=True makes another class, which bare super misses
        if self.state.kind == "pickled":
            raise InputError(
                f"operator {self.name!r} is vectorised, and its state must be typed columns, got Pickled: declare "
                "columns, or use a function per key"
            )

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Call the function once, or not at all when there are no keys. What single keys cost is not known."""
        event = spent(given.event_timer, given.fired_event)
        processing = spent(given.processing_timer, given.fired_processing)
        if not len(given):
            return KeyedOutput(
                self.output_schema.empty_table(),
                self.state_schema.empty_table(),
                np.empty(0, np.bool_),
                event,
                processing,
            )
        before = _with_initial(self.state, given.state, given.present)
        update = self._update(given, before)
        results = self.output_schema.empty_table()
        if update.results is not None:
            results = self._table("results", update.results, self.output_schema)
        state = before if update.state is None else self._table("state", update.state, self.state_schema)
        count = len(given)
        self._check_length("state", len(state), count)
        keep = np.ones(count, np.bool_)
        if update.forget is not None:
            keep = ~self._column("forget", update.forget, np.dtype(np.bool_), count)
        if update.event_timer is not None:
            event = self._column("event_timer", update.event_timer, np.dtype(np.int64), count)
        if update.processing_timer is not None:
            processing = self._column("processing_timer", update.processing_timer, np.dtype(np.int64), count)
        return KeyedOutput(results, state, keep, event, processing)

    def _update(self, given: KeyedInput, state: pa.Table) -> Update:
        batch = Batch(
            given.rows,
            given.starts,
            given.keys,
            state,
            ~given.present,
            given.event_timer,
            given.processing_timer,
            given.fired_event,
            given.fired_processing,
            given.now,
            given.watermark,
        )
        try:
            returned = self.function(batch)
        except Exception as error:
            key = key_values(given.keys.slice(0, 1))[0]
            named = key if len(given) == 1 else SomeKey(len(given), key)
            row = first_row(given.rows, 0, given.rows.num_rows)
            raise UserFunctionError.in_key(self.name, named, row, error) from error
        if isinstance(returned, Update):
            return returned
        if isinstance(returned, tuple) and len(returned) == 2:
            return Update(*returned)
        raise InputError(
            f"operator {self.name!r}: the function must return an Update or a pair (results, state), got a "
            f"{type(returned).__name__}"
        )

    def _table(self, what: str, given: Any, schema: pa.Schema) -> pa.Table:
        """Whatever the function gave as a table of the declared columns, in their order and of their types."""
        try:
            table = given if isinstance(given, pa.Table) else pa.table(given)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"operator {self.name!r}: the {what} must be an Arrow table or what pyarrow.table() makes one of, got "
                f"a {type(given).__name__} ({error})"
            ) from None
        missing = [name for name in schema.names if name not in table.column_names]
        extra = [name for name in table.column_names if name not in schema.names]
        if missing or extra or table.num_columns != len(schema):
            parts = [
                f"{label}: {listing(names)}" for label, names in (("missing", missing), ("unknown", extra)) if names
            ]
            raise InputError(
                f"operator {self.name!r}: the {what} must have the columns {listing(schema.names)}, each once; "
                f"{', '.join(parts) or 'some come twice'}: change the function, or declare other columns"
            )
        return pa.Table.from_arrays([self._cast(what, table[each.name], each) for each in schema], schema=schema)

    def _cast(self, what: str, column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
        if column.type == wanted.type:
            return column
        try:
            return column.cast(wanted.type)
        except (pa.ArrowException, TypeError) as error:
            raise InputError(
                f"operator {self.name!r}: column {wanted.name!r} of the {what} must be {type_name(wanted.type)}, got "
                f"{type_name(column.type)} ({str(error).rstrip('.')}): cast it in the function, or declare another type"
            ) from None

    def _column(self, what: str, given: ArrayLike, dtype: np.dtype[Any], count: int) -> Any:
        values = np.asarray(given)
        if values.dtype != dtype:
            raise InputError(
                f"operator {self.name!r}: {what} must be an array of {dtype.name}, got {values.dtype.name}: convert it "
                "in the function (times are microseconds since 1970 UTC)"
            )
        self._check_length(what, len(values) if values.ndim == 1 else 0, count)
        return values

    def _check_length(self, what: str, got: int, count: int) -> None:
        if got != count:
            raise InputError(
                f"operator {self.name!r}: {what} must have one row per key, in the order of the batch: expected "
                f"{count}, got {got}"
            )


def _with_initial(state: StateColumns, table: pa.Table, present: Bool) -> pa.Table:
    """The state, with the initial values where a key is new."""
    if present.all():
        return table
    here = pa.array(present)
    columns = [
        column if initial is None else pc.if_else(here, column, pa.scalar(initial, each.type))
        for column, initial, each in zip(table.columns, state.initial, state.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=state.schema)
