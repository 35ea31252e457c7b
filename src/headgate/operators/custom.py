"""Aggregates of a user's own: zero, update, merge and finish, one key at a time or all keys at once.

    hg.aggregate(
        "amount",
        state={"product": 1.0},
        update=lambda state, amount: {"product": state["product"] * math.prod(amount.to_pylist())},
        merge=lambda one, other: {"product": one["product"] * other["product"]},
    )

Functions are tried out on sample rows when the job is built (``laws``), because a merge that is not associative gives
results that depend on how rows were split over tasks, which nobody notices.
"""

from __future__ import annotations

import copy
import pickle
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from headgate.arrays import I32, Bool
from headgate.errors import InputError, listing
from headgate.operators.columns import Declaration, StateColumns, type_name, type_of
from headgate.operators.folds import Aggregate, CallError, Fold, UnfitError, ValueUnfitError, Where, by_key
from headgate.operators.laws import TOLERANCE, Sample, check_laws
from headgate.operators.values import array_of, shown

THERE = "there"
"""The state column that is true: null in it is a key that has no state yet."""

PICKLE_PROTOCOL = 5
"""The newest protocol that every supported Python reads."""


@dataclass(frozen=True, slots=True)
class Custom(Aggregate):
    """An aggregate made of a user's functions."""

    verb = "aggregate"

    _: KW_ONLY
    names: tuple[str, ...]
    state: StateColumns
    update: Callable[..., Any]
    combine: Callable[..., Any]
    last: Callable[..., Any] | None
    kind: pa.DataType
    vectorised: bool
    sample: Sample
    tolerance: float

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def fold(self, kinds: Sequence[pa.DataType]) -> CustomFold:
        return (ManyKeys if self.vectorised else OneKey)(self.state, self.update, self.combine, self.last, self.kind)

    def check(self, fold: Fold, kinds: Sequence[pa.DataType]) -> None:
        check_laws(cast(CustomFold, fold), self.names, kinds, self.sample, self.tolerance)


def aggregate(
    *columns: str,
    state: Declaration,
    update: Callable[..., Any],
    merge: Callable[..., Any],
    finish: Callable[..., Any] | None = None,
    result: str | pa.DataType | None = None,
    zero: Mapping[str, object] | Callable[[], object] | None = None,
    vectorised: bool = False,
    sample: Sample = None,
    tolerance: float = TOLERANCE,
    where: Where = None,
) -> Custom:
    """An aggregate of your own, of ``columns``.

    ``state`` declares its columns as for ``per_key``: DDL, a dict with defaults, a dataclass, ``Pickled``. A new key
    starts with the defaults, or with ``zero``: a dict with all columns, for ``Pickled`` a function that makes the
    object.

    - ``update(state, *columns)`` takes a state that has not been used yet and the columns of one key's rows, as Arrow
      arrays with nulls and all, and returns the new state, or None after changing it in place.
    - ``merge(one, other)`` returns the state of both, or None after changing ``one``. States come in an order that
      follows from what they hold, so the same partial rows give the same result.
    - ``finish(state)`` returns the result, of the type ``result``. Without it, the only state column is the result.

    With ``vectorised=True`` they work on all keys at once: ``update(codes, keys, *columns)`` and ``merge(codes, keys,
    *state columns)`` return a dict with an array of ``keys`` values for every state column, where ``codes`` has the
    number of each row's key, and a key may have no rows; ``finish(*state columns)`` returns an array. The order of rows
    must not matter to merge, floats included, or a replay differs in the last digits.

    When the job is built, the functions are run on ``sample``, a table or dicts with at least three rows, or on rows
    made up from the types of the columns, without nulls. Results must be the same, to within ``tolerance`` for floats,
    however the rows are split and their states merged: associative, commutative, and ``zero`` changes nothing. An
    ``InputError`` says which law broke on which rows.

    One key at a time is a loop in Python: some 15 microseconds for each key that a chunk of rows has, and 5 for each
    state that is merged, so about 70,000 keys and 200,000 states a second and core, whatever the number of rows. All
    keys at once costs what the functions cost.
    """
    _check_functions(columns, update, merge, finish, vectorised)
    declared = StateColumns.of(state)
    if vectorised and (declared.kind != "dict" or zero is not None):
        raise InputError(
            "aggregate: with vectorised=True the state must be declared by columns and zero be left out: update is "
            "called with keys that have no rows, and gives theirs"
        )
    declared = _with_zero(declared, zero)
    schema = declared.schema
    if THERE in schema.names:
        raise InputError(f"aggregate: a state column must not be named {THERE!r}, which says that there is a state")
    if (finish is None or result is None) and (len(schema) != 1 or declared.kind == "pickled"):
        raise InputError(
            f"aggregate: finish and result must be given unless the state is one column, which then is the result; it "
            f"has {listing(schema.names)}"
        )
    kind = type_of(result) if isinstance(result, str) else result
    return Custom(
        columns[0] if columns else None,
        where=where,
        names=columns,
        state=declared,
        update=update,
        combine=merge,
        last=finish,
        kind=schema.types[0] if kind is None else kind,
        vectorised=vectorised,
        sample=sample,
        tolerance=tolerance,
    )


@dataclass(frozen=True, slots=True)
class CustomFold(Fold):
    """A fold of a user's functions, which can merge two states in the order they are given in."""

    state: StateColumns
    update: Callable[..., Any]
    combine: Callable[..., Any]
    last: Callable[..., Any] | None
    kind: pa.DataType

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (*self.state.schema, pa.field(THERE, pa.bool_()))

    @property
    def result(self) -> pa.DataType:
        return self.kind

    @abstractmethod
    def merge_two(self, one: Sequence[pa.Array], other: Sequence[pa.Array]) -> list[pa.Array]:
        """One state of two, which are columns of one row each."""


@dataclass(frozen=True, slots=True)
class OneKey(CustomFold):
    """One call per key. States are in their declared form inside, in columns outside."""

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        if where is not None:
            columns, codes = [column.filter(pa.array(where)) for column in columns], codes[where]
        starts, order = by_key(codes, keys)
        rows = pa.array(order)
        arranged = [column.take(rows) for column in columns]
        bounds = starts.tolist()
        states = []
        for key in range(keys):
            at, count = bounds[key], bounds[key + 1] - bounds[key]
            state = self._zero()
            if count:
                slices = [column.slice(at, count) for column in arranged]
                state = self._called(key, self.update, state, *slices)
            states.append(state)
        return self._saved(states)

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        saved = self._rows(states)
        starts, order = by_key(codes, keys)
        bounds, rows = starts.tolist(), order.tolist()
        merged = []
        for key in range(keys):
            own = [saved[row] for row in rows[bounds[key] : bounds[key + 1]] if saved[row] is not None]
            # The order of arrival says nothing; that of what they hold is the same when a batch is replayed.
            own.sort(key=repr)
            state = self._restored(own[0]) if own else self._zero()
            for other in own[1:]:
                state = self._called(key, self.combine, state, self._restored(other))
            merged.append(state)
        return self._saved(merged)

    def merge_two(self, one: Sequence[pa.Array], other: Sequence[pa.Array]) -> list[pa.Array]:
        first, second = (self._restored(self._rows(each)[0]) for each in (one, other))
        return self._saved([self._called(0, self.combine, first, second)])

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        if self.last is None:
            return states[0]
        results = []
        for key, saved in enumerate(self._rows(states)):
            state = self._zero() if saved is None else self._restored(saved)
            try:
                results.append(self.last(state))
            except Exception as error:
                raise CallError(key, state, error) from error
        return _column("result", "finish", self.kind, results)

    def _called(self, key: int, function: Callable[..., Any], state: Any, *arguments: Any) -> Any:
        try:
            returned = function(state, *arguments)
        except Exception as error:
            first = [each[0].as_py() if isinstance(each, pa.Array) else each for each in (state, *arguments)]
            raise CallError(key, first, error) from error
        return state if returned is None else returned

    def _zero(self) -> Any:
        if self.state.kind == "dict":
            return dict(zip(self.state.schema.names, copy.deepcopy(self.state.initial), strict=True))
        assert self.state.make is not None
        return self.state.make()

    def _rows(self, states: Sequence[pa.Array]) -> list[tuple[Any, ...] | None]:
        """The saved states, None where there is none. Maps are dicts, as they were when they were saved."""
        columns = [column.to_pylist(maps_as_pydicts="strict") for column in states]
        return [row[:-1] if row[-1] else None for row in zip(*columns, strict=True)]

    def _restored(self, saved: tuple[Any, ...] | None) -> Any:
        assert saved is not None
        if self.state.kind == "dict":
            return dict(zip(self.state.schema.names, saved, strict=True))
        assert self.state.make is not None
        if self.state.kind == "pickled":
            return pickle.loads(saved[0])
        return self.state.make(**dict(zip(self.state.schema.names, saved, strict=True)))

    def _saved(self, states: list[Any]) -> list[pa.Array]:
        schema = self.state.schema
        there = pa.array(np.ones(len(states), dtype=np.bool_))
        if self.state.kind == "pickled":
            return [pa.array([pickle.dumps(state, PICKLE_PROTOCOL) for state in states], schema.types[0]), there]
        if self.state.kind == "dict":
            for key, state in enumerate(states):
                if not isinstance(state, Mapping) or state.keys() != set(schema.names):
                    raise ValueUnfitError(
                        key, f"the state must be a dict with the columns {listing(schema.names)}, got {shown(state)}"
                    )
            values = [[state[name] for state in states] for name in schema.names]
        else:
            make = self.state.make
            for key, state in enumerate(states):
                if not isinstance(state, cast(type, make)):
                    raise ValueUnfitError(key, f"the state must be a {cast(type, make).__name__}, got {shown(state)}")
            values = [[getattr(state, name) for state in states] for name in schema.names]
        return [
            *(_column("state", each.name, each.type, own) for each, own in zip(schema, values, strict=True)),
            there,
        ]


@dataclass(frozen=True, slots=True)
class ManyKeys(CustomFold):
    """One call for all keys. A dict of arrays goes out, arrays go in."""

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        if where is not None:
            columns, codes = [column.filter(pa.array(where)) for column in columns], codes[where]
        return self._states("update", _called(self.update, columns, codes, keys, *columns), keys)

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        there = states[-1]
        columns = list(states[:-1])
        if there.null_count:
            filled = there.is_valid()
            columns, codes = [column.filter(filled) for column in columns], codes[np.asarray(filled)]
        return self._states("merge", _called(self.combine, columns, codes, keys, *columns), keys)

    def merge_two(self, one: Sequence[pa.Array], other: Sequence[pa.Array]) -> list[pa.Array]:
        both = [pa.concat_arrays(each) for each in zip(one, other, strict=True)]
        return self.merge(both, np.zeros(2, dtype=np.int32), 1)

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        if self.last is None:
            return states[0]
        columns = list(states[:-1])
        return _fitting("finish", "the result", self.kind, _called(self.last, columns, *columns), len(states[0]))

    def _states(self, function: str, given: Any, keys: int) -> list[pa.Array]:
        schema = self.state.schema
        if not isinstance(given, Mapping) or given.keys() != set(schema.names):
            got = f"a dict with {listing(list(given))}" if isinstance(given, Mapping) else shown(given)
            raise UnfitError(
                f"must have its {function} return a dict with an array for each of {listing(schema.names)}, got {got}"
            )
        arrays = [
            _fitting(function, f"state column {each.name!r}", each.type, given[each.name], keys) for each in schema
        ]
        return [*arrays, pa.array(np.ones(keys, dtype=np.bool_))]


def _called(function: Callable[..., Any], columns: Sequence[pa.Array], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        row = [column.slice(0, 1).to_pylist() for column in columns]
        raise CallError(None, row, error) from error


def _fitting(function: str, what: str, kind: pa.DataType, given: Any, size: int) -> pa.Array:
    """What a vectorised function gave for a column, as an array of its type."""
    try:
        array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
        array = array.cast(kind) if isinstance(array, pa.Array) else pa.array(array, kind)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise UnfitError(
            f"must have its {function} give {what} as an array of {type_name(kind)}, got a {type(given).__name__} "
            f"({error})"
        ) from None
    if len(array) != size:
        raise UnfitError(f"must have its {function} give {what} one value per key, {size}, got {len(array)}")
    return array


def _column(what: str, name: str, kind: pa.DataType, values: list[Any]) -> pa.Array:
    array = array_of(kind, values)
    if array is None:
        key = next(key for key, value in enumerate(values) if array_of(kind, [value]) is None)
        raise ValueUnfitError(key, f"{what} column {name!r} must be {type_name(kind)}, got {shown(values[key])}")
    return array


def _with_zero(declared: StateColumns, zero: Mapping[str, object] | Callable[[], object] | None) -> StateColumns:
    if zero is None:
        return declared
    if declared.kind == "pickled" or (declared.kind == "dataclass" and callable(zero)):
        if not callable(zero):
            raise InputError(f"aggregate: zero of pickled state must be a function that makes it, got {shown(zero)}")
        return StateColumns(declared.schema, declared.initial, declared.kind, zero)
    names = declared.schema.names
    if declared.kind == "dataclass" or not isinstance(zero, Mapping) or zero.keys() != set(names):
        raise InputError(f"aggregate: zero must be a dict with the state columns {listing(names)}, got {shown(zero)}")
    return StateColumns(declared.schema, tuple(zero[name] for name in names), "dict")


def _check_functions(columns: tuple[str, ...], update: object, merge: object, finish: object, vectorised: bool) -> None:
    if not columns or not all(isinstance(name, str) for name in columns):
        raise InputError(f"aggregate: must name at least one column that update takes, got {columns!r}")
    for name, function in (("update", update), ("merge", merge), ("finish", finish)):
        if not callable(function) and not (name == "finish" and function is None):
            raise InputError(f"aggregate: {name} must be a function, got {shown(function)}")
