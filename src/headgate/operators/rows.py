"""What a per-key function is handed: the rows of its key, and a context with time and timers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.errors import InputError, listing
from headgate.operators.contract import NO_TIMER, NO_WATERMARK, KeyedInput

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Times inside the engine are microseconds since this instant."""

_MICROSECOND = dt.timedelta(microseconds=1)


def to_datetime(at: int) -> dt.datetime:
    """Microseconds since 1970 as a datetime in UTC."""
    return EPOCH + dt.timedelta(microseconds=at)


def to_microseconds(at: dt.datetime) -> int:
    """A datetime as microseconds since 1970; one without a time zone is taken as UTC."""
    return ((at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)) - EPOCH) // _MICROSECOND


class Columns:
    """The columns of a whole batch in the forms that functions ask for, each made once and only when asked for."""

    __slots__ = ("arrays", "lists", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.lists: dict[str, list[Any]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}

    def list_of(self, name: str) -> list[Any]:
        found = self.lists.get(name)
        if found is None:
            found = self.lists[name] = self._column(name).to_pylist()
        return found

    def array_of(self, name: str) -> NDArray[Any]:
        found = self.arrays.get(name)
        if found is None:
            found = self._column(name).to_numpy()
            found.setflags(write=False)
            self.arrays[name] = found
        return found

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self.table.column_names:
            raise InputError(f"the rows have no column {name!r}: they have {listing(self.table.column_names)}")
        return self.table[name]


class Rows:
    """The rows of one key, in the order in which they came. Read-only; empty where only a timer fired.

    ``rows["v"]`` is a list of Python values, ``rows.numpy("v")`` a NumPy array (nulls become NaN), ``rows.arrow()`` an
    Arrow table; iterating gives a dict per row. Asking for a column costs what its values cost, not what the row does:
    columns that are not asked for are never converted.
    """

    __slots__ = ("_columns", "_start", "_stop")

    def __init__(self, columns: Columns, start: int, stop: int) -> None:
        self._columns = columns
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, name: str) -> list[Any]:
        values = self._columns.lists.get(name)
        if values is None:
            values = self._columns.list_of(name)
        return values[self._start : self._stop]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.names
        for values in zip(*(self[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns.table.column_names)

    def numpy(self, name: str) -> NDArray[Any]:
        """One column as a read-only array."""
        return self._columns.array_of(name)[self._start : self._stop]

    def arrow(self) -> pa.Table:
        """All columns as an Arrow table, without copying."""
        return self._columns.table.slice(self._start, self._stop - self._start)

    def __repr__(self) -> str:
        return f"Rows({len(self)} rows of {', '.join(self.names)})"


class Moment:
    """The time of a batch and, by key, what contexts show and change: timers (due ones spent), whether to keep it."""

    __slots__ = (
        "event",
        "fired_event",
        "fired_processing",
        "is_new",
        "keep",
        "now",
        "now_at",
        "processing",
        "watermark",
    )

    def __init__(self, given: KeyedInput) -> None:
        self.now = given.now
        self.now_at = to_datetime(given.now)
        self.watermark = None if given.watermark == NO_WATERMARK else to_datetime(given.watermark)
        self.is_new: list[bool] = (~given.present).tolist()
        self.fired_event: list[bool] = given.fired_event.tolist()
        self.fired_processing: list[bool] = given.fired_processing.tolist()
        self.event: list[int] = spent(given.event_timer, given.fired_event).tolist()
        self.processing: list[int] = spent(given.processing_timer, given.fired_processing).tolist()
        self.keep = [True] * len(given)


class Context:
    """Time and timers of the key at hand, for functions that take a fourth argument.

    A key has at most one timer of each kind; setting it again replaces it. A timer fires once, in the first batch whose
    watermark (event time) or time (processing time) has reached it, and is then spent; the function is called with
    whatever rows the key has in that batch, maybe none.
    """

    __slots__ = ("_at", "_moment")

    def __init__(self, moment: Moment, at: int) -> None:
        self._moment = moment
        self._at = at

    @property
    def is_new(self) -> bool:
        """Whether the key had no state before this batch."""
        return self._moment.is_new[self._at]

    @property
    def fired_event(self) -> bool:
        """Whether the timer in event time is due."""
        return self._moment.fired_event[self._at]

    @property
    def fired_processing(self) -> bool:
        """Whether the timer in processing time is due."""
        return self._moment.fired_processing[self._at]

    @property
    def now(self) -> dt.datetime:
        """The time of the batch, in UTC: the same for all its keys, and the same again when the batch is replayed."""
        return self._moment.now_at

    @property
    def watermark(self) -> dt.datetime | None:
        """No row with an event time up to this one is expected any more; None before any was seen."""
        return self._moment.watermark

    @property
    def fired(self) -> Literal["event", "processing"] | None:
        """Which timer is due now; "event" when both are (``fired_event`` and ``fired_processing`` tell them apart)."""
        if self.fired_event:
            return "event"
        return "processing" if self.fired_processing else None

    @property
    def timer(self) -> dt.datetime | None:
        """The timer in event time, None where none is set."""
        at = self._moment.event[self._at]
        return None if at == NO_TIMER else to_datetime(at)

    @property
    def processing_timer(self) -> dt.datetime | None:
        """The timer in processing time, None where none is set."""
        at = self._moment.processing[self._at]
        return None if at == NO_TIMER else to_datetime(at)

    def set_timer(self, at: dt.datetime) -> None:
        """Call again once the watermark has reached ``at``. A time without a zone is UTC."""
        if not isinstance(at, dt.datetime):
            raise _not_a_time("set_timer", "a datetime", at)
        self._moment.event[self._at] = to_microseconds(at)

    def set_processing_timer(self, at: dt.datetime | dt.timedelta) -> None:
        """Call again once the time of a batch has reached ``at``, or that much later than ``now``."""
        if isinstance(at, dt.timedelta):
            self._moment.processing[self._at] = self._moment.now + at // _MICROSECOND
        elif isinstance(at, dt.datetime):
            self._moment.processing[self._at] = to_microseconds(at)
        else:
            raise _not_a_time("set_processing_timer", "a datetime, or a timedelta from now", at)

    def clear_timer(self) -> None:
        self._moment.event[self._at] = NO_TIMER

    def clear_processing_timer(self) -> None:
        self._moment.processing[self._at] = NO_TIMER

    def forget(self) -> None:
        """Drop the key's state and timers after this call; the next row of the key finds it new."""
        self._moment.keep[self._at] = False


def _not_a_time(method: str, must: str, got: object) -> InputError:
    return InputError(f"{method} takes {must}, got {got!r} ({type(got).__name__})")


def first_row(table: pa.Table, start: int, stop: int) -> dict[str, Any] | None:
    """The first of some rows as a dict, for messages; None where there is none."""
    if start >= stop:
        return None
    row: dict[str, Any] = table.slice(start, 1).to_pylist()[0]
    return row


def key_values(keys: pa.Table) -> list[Any]:
    """The keys as Python values: bare for one key column, tuples for several, and for none."""
    columns = [column.to_pylist() for column in keys.columns]
    if not columns:
        return [()] * keys.num_rows
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def spent(timer: NDArray[np.int64], fired: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The timers that are left when the due ones have fired."""
    return np.where(fired, np.int64(NO_TIMER), timer)
