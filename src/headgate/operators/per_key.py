"""The per-key style: one call of a Python function for every key of a batch.

    def on_key(key, rows, state):            # and, if it takes a fourth argument, context
        state["count"] += len(rows)
        return {"user": key, "count": state["count"]}

A batch's columns are converted to lists once, and a key's rows are slices of them, so the cost of a key is its call.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from operator import attrgetter, itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa

from headgate.arrays import I64, Bool
from headgate.errors import InputError, UserFunctionError, listing
from headgate.operators.columns import StateColumns
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.function import KeyedFunction
from headgate.operators.rows import Columns, Context, Moment, Rows, first_row, key_values, spent
from headgate.operators.values import misfit, shown, table_of

PICKLE_PROTOCOL = 5
"""The newest protocol that every supported Python reads."""

Values = tuple[object, ...]
"""One row, in the order of its columns."""


@dataclass(frozen=True, slots=True, eq=False)
class PerKey(KeyedFunction):
    """A keyed operator made of a function that is called once per key and batch.

    ``function(key, rows, state)``: the key's value (a tuple for several key columns, ``()`` for none), its ``Rows``,
    and its state, a dict or an instance of the declared dataclass, to be changed in place. It returns None, one row (a
    dict, or a tuple in the order of the output columns), or an iterable of rows; a generator will do. A fourth
    parameter is a ``Context``. Within a key the order of rows is kept; keys come in no promised order.

    The function must give the same for the same arguments, because a batch may be replayed. If it raises, the batch
    fails with ``UserFunctionError``; if what it returns or leaves in the state does not fit the declared columns, with
    ``InputError`` that names the column and the key.
    """

    takes_context: bool = field(init=False)

    def __post_init__(self) -> None:
        super(PerKey, self).__post_init__()  # slots=True makes another class, which bare super misses
        object.__setattr__(self, "takes_context", _takes_context(self.name, self.function))

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Call the function for every key. Without a clock, ``seconds`` is None."""
        starts = given.starts.tolist()
        keys = key_values(given.keys)
        rows = map(Rows, repeat(Columns(given.rows)), starts, islice(starts, 1, None))
        arguments: list[Iterable[Any]] = [keys, rows, _restored(self.state, given.state, given.present)]
        moment = None
        if self.takes_context:
            moment = Moment(given)
            arguments.append(map(Context, repeat(moment), range(len(given))))
        done = _Done()
        try:
            _call(self, zip(*arguments, strict=True), done, clock)
        except _MisfitError as error:
            raise misfit(self.name, str(error), keys[len(done.states)]) from None
        except Exception as error:
            at = len(done.states)
            row = first_row(given.rows, starts[at], starts[at + 1])
            raise UserFunctionError.in_key(self.name, keys[at], row, error) from error
        keep, event, processing = _outcomes(given, moment)
        return KeyedOutput(
            _results(self, done, keys),
            _states(self, done.states, keys),
            keep,
            event,
            processing,
            np.diff(np.array(done.ticks)) if clock is not None else None,
        )


class _MisfitError(Exception):
    """What a function returned, or left as state, does not have the declared columns."""


class _Done:
    """What the loop leaves behind: rows, where the rows of each key end, states, and the clock after each key."""

    __slots__ = ("ends", "rows", "states", "ticks")

    def __init__(self) -> None:
        self.rows: list[Values] = []
        self.ends: list[int] = []
        self.states: list[Any] = []
        self.ticks: list[float] = []


def _call(operator: PerKey, arguments: Iterable[tuple[Any, ...]], done: _Done, clock: Clock | None) -> None:
    """The loop over keys. A key is done when its state is in ``done.states``: their number says where it failed."""
    function = operator.function
    state_width = len(operator.state.schema) if operator.state.kind == "dict" else None
    save = _saver(operator.state)
    names = tuple(operator.output_schema.names)
    width = len(names)
    values_of = _picker(names)
    rows, states, ends, ticks = done.rows, done.states, done.ends, done.ticks
    if clock is not None:
        ticks.append(clock())
    for given in arguments:
        out = function(*given)
        if out is None:
            pass
        elif out.__class__ is dict and len(out) == width:
            try:
                rows.append(values_of(out))
            except KeyError:
                raise _MisfitError(_columns_differ(out, names)) from None
        elif out.__class__ is tuple and len(out) == width:
            rows.append(out)
        else:
            rows.extend(_rows_of(out, names, values_of))
        state = given[2]
        if state_width is not None and len(state) != state_width:
            raise _MisfitError(_state_differs(state, operator.state.schema.names))
        try:
            saved = save(state)
        except KeyError:
            if state_width is None:  # raised by the state's own code while it was pickled
                raise
            raise _MisfitError(_state_differs(state, operator.state.schema.names)) from None
        ends.append(len(rows))
        states.append(saved)
        if clock is not None:
            ticks.append(clock())


def _rows_of(out: Any, names: tuple[str, ...], values_of: Callable[[Any], Values]) -> list[Values]:
    """The rows of everything that is not one plain row that fits: many rows, or a misfit."""
    if isinstance(out, Mapping | tuple):
        return [_values(out, names, values_of)]
    if isinstance(out, str | bytes) or not isinstance(out, Iterable):
        raise _MisfitError(f"it must return None, a row (dict or tuple) or an iterable of rows, got {shown(out)}")
    return [_values(row, names, values_of) for row in out]


def _values(row: Any, names: tuple[str, ...], values_of: Callable[[Any], Values]) -> Values:
    if isinstance(row, tuple):
        if len(row) != len(names):
            raise _MisfitError(
                f"a row must have a value for each of the output columns {listing(names)}, got {len(row)} values "
                f"{shown(row)}"
            )
        return row
    if not isinstance(row, Mapping):
        raise _MisfitError(f"a row must be a dict or a tuple, got {shown(row)}")
    if len(row) != len(names) or any(name not in row for name in names):
        raise _MisfitError(_columns_differ(row, names))
    return values_of(row)


def _columns_differ(row: Mapping[str, object], names: Sequence[str]) -> str:
    missing = [name for name in names if name not in row]
    extra = [name for name in row if name not in names]
    return f"a row must have the output columns {listing(names)}; {_difference(missing, extra)}"


def _state_differs(state: Mapping[str, object], names: Sequence[str]) -> str:
    missing = [name for name in names if name not in state]
    extra = [name for name in state if name not in names]
    return f"the state must keep its columns {listing(names)}; {_difference(missing, extra)}"


def _difference(missing: Sequence[object], extra: Sequence[object]) -> str:
    parts = [f"{what}: {listing(names)}" for what, names in (("missing", missing), ("unknown", extra)) if names]
    return ", ".join(parts)


def _picker(names: tuple[str, ...]) -> Callable[[Any], Values]:
    """From a dict to its values in order, always a tuple."""
    if len(names) == 1:
        only = names[0]
        return lambda row: (row[only],)
    return cast("Callable[[Any], Values]", itemgetter(*names))


def _saver(state: StateColumns) -> Callable[[Any], Any]:
    """From a state to the values of its columns: a tuple, or the bare value where there is one column."""
    if state.kind == "pickled":
        return partial(pickle.dumps, protocol=PICKLE_PROTOCOL)
    return itemgetter(*state.schema.names) if state.kind == "dict" else attrgetter(*state.schema.names)


def _restored(state: StateColumns, table: pa.Table, present: Bool) -> Iterable[Any]:
    """The states, each made when its turn comes: what was saved, or what a new key starts with."""
    if present.any():
        columns = [column.to_pylist() for column in table.columns]
        saved: list[Any] = list(zip(*columns, strict=True))
    else:
        saved = [None] * len(present)
    if state.kind == "dict":
        for at in np.flatnonzero(~present).tolist():
            saved[at] = state.initial
        return map(dict, map(zip, repeat(tuple(state.schema.names)), saved))
    for at in np.flatnonzero(~present).tolist():
        saved[at] = None
    make = state.make
    assert make is not None
    if state.kind == "pickled":
        return (make() if row is None else pickle.loads(row[0]) for row in saved)
    if any(each.kw_only for each in dataclasses.fields(cast(Any, make))):
        names = tuple(state.schema.names)
        return (make() if row is None else make(**dict(zip(names, row, strict=True))) for row in saved)
    return (make() if row is None else make(*row) for row in saved)


def _outcomes(given: KeyedInput, moment: Moment | None) -> tuple[Bool, I64, I64]:
    """Which keys to keep, and their timers."""
    if moment is not None:
        return np.array(moment.keep, np.bool_), np.array(moment.event, np.int64), np.array(moment.processing, np.int64)
    event = spent(given.event_timer, given.fired_event)
    return np.ones(len(given), np.bool_), event, spent(given.processing_timer, given.fired_processing)


def _results(operator: PerKey, done: _Done, keys: Sequence[object]) -> pa.Table:
    def key_of(row: int) -> object:
        return keys[int(np.searchsorted(np.array(done.ends), row, side="right"))]

    columns = _transposed(done.rows, len(operator.output_schema))
    return table_of(operator.name, "output", operator.output_schema, columns, key_of)


def _states(operator: PerKey, states: list[Any], keys: Sequence[object]) -> pa.Table:
    schema = operator.state.schema
    columns = [states] if len(schema) == 1 else _transposed(states, len(schema))
    return table_of(operator.name, "state", schema, columns, lambda row: keys[row])


def _transposed(rows: list[Values], width: int) -> list[list[object]]:
    return [[row[at] for row in rows] for at in range(width)]


def _takes_context(name: str, function: Callable[..., Any]) -> bool:
    """Whether a function takes a fourth argument. Raises ``InputError`` when it cannot be called with three or four."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    for arguments in (4, 3):
        try:
            signature.bind(*range(arguments))
        except TypeError:
            continue
        return arguments == 4
    raise InputError(
        f"the function of operator {name!r} must take (key, rows, state) or (key, rows, state, context), but takes "
        f"{signature}: give it these parameters"
    )
