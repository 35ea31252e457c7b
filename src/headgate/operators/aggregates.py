"""Aggregates per key: the operator that reduces rows where they are read, merges partial rows, and keeps the state.

    rows --reduce--> partial row --merge with others, and with the state--> state --finish--> result

So only partial rows travel, and a hot key can be split over slots. What is computed is the aggregates' own business
(``folds``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from headgate.arrays import I32, I64, Bool
from headgate.errors import InputError, UserFunctionError, listing
from headgate.operators.columns import check_names, type_name
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.folds import Aggregate, CallError, Fold, UnfitError, ValueUnfitError
from headgate.operators.grouping import distinct, distinct_keys
from headgate.operators.reductions import TooLargeError
from headgate.operators.rows import key_values, spent
from headgate.operators.values import misfit
from headgate.operators.vectorised import SomeKey

__all__ = ["Aggregate", "Aggregation"]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """A keyed operator that keeps aggregates per key, and emits those of every key that a batch has rows of.

    A result has the key columns and one column per aggregate. ``process`` takes the partial rows that ``early`` or
    ``combine`` made, any number of them per key, in any order. For the same partial rows every result is the same to
    the last bit, so a batch can be replayed. For another split of the rows it is, too, for all that is exact (counts,
    integers, decimals, least and greatest, first and last, distinct, collected) and for approx_distinct; what is added
    up in floats is the same to within rounding, quantiles and most frequent values to within their bounds.
    """

    name: str
    input_schema: pa.Schema
    key_names: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    state_schema: pa.Schema = field(init=False)
    output_schema: pa.Schema = field(init=False)
    partial_schema: pa.Schema = field(init=False)
    _columns: tuple[_Column, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise InputError(f"operator {self.name!r} must have at least one aggregate: for example n=count()")
        columns = tuple(
            _Column.of(self.name, self.input_schema, output, each) for output, each in self.aggregates.items()
        )
        state = pa.schema([each for column in columns for each in column.fields])
        check_names(self.name, self.input_schema, self.key_names, state)
        clash = [output for output in self.aggregates if output in self.key_names]
        if clash:
            raise InputError(
                f"operator {self.name!r} must give its aggregates names that its key columns do not have, clash: "
                f"{listing(clash)}: rename the aggregate"
            )
        keys = [self.input_schema.field(name) for name in self.key_names]
        outputs = [pa.field(column.output, column.fold.result) for column in columns]
        for attribute, value in (
            ("key_names", tuple(self.key_names)),
            ("aggregates", dict(self.aggregates)),
            ("_columns", columns),
            ("state_schema", state),
            ("output_schema", pa.schema([*keys, *outputs])),
            ("partial_schema", pa.schema([*keys, *state])),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def combines(self) -> bool:
        return True

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partial rows, one per distinct key of the rows, in the order in which keys first appear; and their hashes."""
        codes, first = distinct(hashes)
        keys = distinct_keys(rows.select(list(self.key_names)), codes, first)
        inputs = _Inputs(rows)
        parts: list[pa.Array] = []
        for column in self._columns:
            where = inputs.where(column.aggregate.where)
            values = [inputs.column(name) for name in column.aggregate.columns]
            with self._naming(column, keys):
                parts += column.fold.reduce(values, codes, len(first), where)
        return self._partials(keys, parts), hashes[first]

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """Partial rows, one per distinct key of the partial rows; and their hashes."""
        codes, first = distinct(hashes)
        keys = distinct_keys(partials.select(list(self.key_names)), codes, first)
        return self._partials(keys, self._merged(partials, codes, keys)), hashes[first]

    def process(self, given: KeyedInput, clock: Clock | None) -> KeyedOutput:
        """Merge partial rows with the state. Keys without rows keep their state and emit nothing."""
        count = len(given)
        own = np.arange(count, dtype=np.int32)
        rows = np.repeat(own, np.diff(given.starts))
        names = self.state_schema.names
        both = pa.concat_tables([given.state.select(names), given.rows.select(names)])
        parts = self._merged(both, np.concatenate([own, rows]), given.keys)
        touched = np.diff(given.starts) > 0
        return KeyedOutput(
            self._results(given.keys, parts, touched),
            pa.Table.from_arrays(parts, schema=self.state_schema),
            given.present | touched,
            spent(given.event_timer, given.fired_event),
            spent(given.processing_timer, given.fired_processing),
        )

    def finished(self, partials: pa.Table) -> pa.Table:
        """The results of partial rows, one for each."""
        keys = partials.select(list(self.key_names))
        parts = [_combined(partials[name]) for name in self.state_schema.names]
        return self._results(keys, parts, np.ones(partials.num_rows, dtype=np.bool_))

    def _merged(self, partials: pa.Table, codes: I32, keys: pa.Table) -> list[pa.Array]:
        merged: list[pa.Array] = []
        for column in self._columns:
            states = [_combined(partials[own.name]) for own in column.fields]
            with self._naming(column, keys):
                merged += column.fold.merge(states, codes, len(keys))
        return merged

    def _results(self, keys: pa.Table, parts: Sequence[pa.Array], touched: Bool) -> pa.Table:
        finished = []
        at = 0
        for column in self._columns:
            own = parts[at : at + len(column.fields)]
            at += len(column.fields)
            with self._naming(column, keys):
                finished.append(column.fold.finish(own))
        arrays = [_combined(keys[name]) for name in self.key_names]
        results = pa.Table.from_arrays([*arrays, *finished], schema=self.output_schema)
        return results if touched.all() else results.filter(pa.array(touched))

    def _partials(self, keys: pa.Table, parts: Sequence[pa.Array]) -> pa.Table:
        return pa.Table.from_arrays(
            [*(_combined(column) for column in keys.columns), *parts], self.partial_schema.names
        )

    @contextmanager
    def _naming(self, column: _Column, keys: pa.Table) -> Iterator[None]:
        """Errors of folds, which know numbers of keys, as errors that name the operator, the aggregate and the key."""
        try:
            yield
        except TooLargeError as error:
            raise self._too_large(column, error.kind, error.key, keys) from None
        except UnfitError as error:
            of = listing([repr(name) for name in column.aggregate.columns])
            what = f"the {column.aggregate.verb} {column.output!r} of column {of}"
            raise InputError(f"operator {self.name!r}: {what} {error}") from None
        except ValueUnfitError as error:
            key = key_values(keys.slice(error.key, 1))[0]
            raise misfit(self.name, f"{column.output!r}: {error}", key) from None
        except CallError as error:
            key = key_values(keys.slice(error.key or 0, 1))[0]
            named = SomeKey(len(keys), key) if error.key is None else key
            where = f"{self.name}.{column.output}"
            raise UserFunctionError.in_key(where, named, error.row, error.error) from error.error

    def _too_large(self, column: _Column, kind: pa.DataType, key: int | None, keys: pa.Table) -> InputError:
        of_key = "" if key is None else f" of key {key_values(keys.slice(key, 1))[0]!r}"
        instead = "decimal(38,0) or double" if pa.types.is_integer(kind) else "double"
        return InputError(
            f"operator {self.name!r}: the {column.aggregate.verb} {column.output!r} of column "
            f"{column.aggregate.column!r}{of_key} must fit {type_name(kind)}, and is beyond it: cast the column to "
            f"{instead} first"
        )


@dataclass(frozen=True, slots=True)
class _Column:
    """An aggregate with what the input schema says about it; the names of its state have a dot, as no clash has."""

    output: str
    aggregate: Aggregate
    fold: Fold
    fields: tuple[pa.Field, ...]

    @classmethod
    def of(cls, operator: str, schema: pa.Schema, output: str, aggregate: Aggregate) -> _Column:
        if not isinstance(aggregate, Aggregate):
            raise InputError(
                f"operator {operator!r}: {output!r} must be an aggregate such as count() or sum('amount'), got "
                f"{aggregate!r}"
            )
        where = aggregate.where if isinstance(aggregate.where, str) else None
        for column in (*aggregate.columns, where):
            if column is not None and column not in schema.names:
                raise InputError(
                    f"operator {operator!r}: {output!r} uses the column {column!r}, which the input does not have: it "
                    f"has {listing(schema.names)}"
                )
        if aggregate.where is not None:
            _check_condition(operator, schema, output, aggregate.where)
        kinds = [schema.field(name).type for name in aggregate.columns]
        try:
            fold = aggregate.fold(kinds)
            aggregate.check(fold, kinds)
        except TypeError as error:
            got = type_name(kinds[0]) if kinds else "no column"
            raise InputError(
                f"operator {operator!r}: the {aggregate.verb} {output!r} needs a column of {error}, got {got}: cast it "
                "first"
            ) from None
        except UnfitError as error:
            raise InputError(f"operator {operator!r}: the {aggregate.verb} {output!r} {error}") from None
        fields = tuple(pa.field(f"{output}.{each.name}", each.type) for each in fold.fields)
        return cls(output, aggregate, fold, fields)


def _check_condition(operator: str, schema: pa.Schema, output: str, condition: str | pc.Expression) -> None:
    """Raises ``InputError`` for a condition that these rows do not have, or that is not one."""
    must = f"operator {operator!r}: the where of {output!r} must be a boolean column"
    if isinstance(condition, str):
        kind = schema.field(condition).type
        if not pa.types.is_boolean(kind):
            raise InputError(
                f"{must}, {condition!r} is {type_name(kind)}: name a boolean column, or pass an expression"
            )
        return
    must += " or an expression of pyarrow.compute"
    if not isinstance(condition, pc.Expression):
        raise InputError(f"{must}, got {condition!r}: for example pc.field('amount') > 100")
    try:
        kind = _computed(schema.empty_table(), condition).type
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{must} that its rows have, got {condition}: {reason}") from error
    if not pa.types.is_boolean(kind):
        raise InputError(f"{must} that is true or false, {condition} is {type_name(kind)}: compare it with something")


def _computed(rows: pa.Table, expression: pc.Expression) -> pa.Array:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["where"]), [source])
    return _combined(project.to_table(use_threads=False)["where"])


class _Inputs:
    """Columns and conditions of some rows, each made once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = _combined(self._rows[name])
        return found

    def where(self, condition: str | pc.Expression | None) -> Bool | None:
        if condition is None:
            return None
        values = self.column(condition) if isinstance(condition, str) else _computed(self._rows, condition)
        return np.asarray(pc.fill_null(values, False))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
