"""Running aggregates per key: count, sum, mean, min, max.

An aggregate is made of **parts**, numbers that can be reduced in any grouping of the rows and merged later:

    rows --reduce--> partial row --merge with others, and with the state--> state --finish--> result

    count   n                       sum     s
    mean    s, n  (finish: s / n)   min     m           max     m

So rows are reduced where they are read, only partial rows travel, and a hot key can be split over slots. Nulls as in
SQL: they are skipped, a sum, mean, min or max of nothing is null, a count of nothing is 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from headgate.arrays import I32, I64, Bool
from headgate.errors import InputError, listing
from headgate.operators.columns import MAX_DIGITS, check_names, type_name
from headgate.operators.contract import Clock, KeyedInput, KeyedOutput
from headgate.operators.grouping import distinct, distinct_keys
from headgate.operators.reductions import Reduction, TooLargeError, mean_of, merge_rows, reduce_rows
from headgate.operators.rows import key_values, spent

MEAN_DIGITS = 4
"""How many digits a mean of decimals has more than its column, before and after the point together, as in Spark."""


@dataclass(frozen=True, slots=True)
class Part:
    """One number of an aggregate: how rows make it, how two of it make one, and its type.

    The column is cast to ``type`` before it is reduced, unless it is counted.
    """

    suffix: str
    first: Reduction
    merge: Reduction
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """What is computed per key: of ``column``, over the rows where ``where`` is true (null is not true).

    ``where`` is the name of a boolean column or an Arrow expression, ``pc.field("amount") > 100``.
    """

    verb: ClassVar[str]

    column: str | None
    _: KW_ONLY
    where: str | pc.Expression | None = None

    @abstractmethod
    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        """The parts for a column of this type; raises ``TypeError`` with what types will do."""

    @abstractmethod
    def result(self, kind: pa.DataType | None) -> pa.DataType:
        """The type of the result."""

    def finish(self, parts: Sequence[pa.Array], kind: pa.DataType | None) -> pa.Array:
        """The result, from the merged parts: the only part, unless there is more to do."""
        return parts[0]


@dataclass(frozen=True, slots=True)
class Count(Aggregate):
    """How many rows, or how many of them have a value in a column."""

    verb = "count"

    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        return (Part("count", "count", "sum", pa.int64()),)

    def result(self, kind: pa.DataType | None) -> pa.DataType:
        return pa.int64()

    def finish(self, parts: Sequence[pa.Array], kind: pa.DataType | None) -> pa.Array:
        return pc.fill_null(parts[0], 0)


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum: int64 of integers, float64 of floats, decimal(38, s) of decimals."""

    verb = "sum"

    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        return (Part("sum", "sum", "sum", self.result(kind)),)

    def result(self, kind: pa.DataType | None) -> pa.DataType:
        return _sum_type(kind)


@dataclass(frozen=True, slots=True)
class Mean(Aggregate):
    """The mean: float64 of integers and floats; of decimal(p, s), decimal(p + 4, s + 4) rounded half up."""

    verb = "mean"

    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        total = _sum_type(kind)
        if pa.types.is_integer(total):
            total = pa.float64()  # as Spark does: a mean cannot overflow
        return Part("sum", "sum", "sum", total), Part("count", "count", "sum", pa.int64())

    def result(self, kind: pa.DataType | None) -> pa.DataType:
        if kind is None or not pa.types.is_decimal(kind):
            return pa.float64()
        return pa.decimal128(min(kind.precision + MEAN_DIGITS, MAX_DIGITS), min(kind.scale + MEAN_DIGITS, MAX_DIGITS))

    def finish(self, parts: Sequence[pa.Array], kind: pa.DataType | None) -> pa.Array:
        return mean_of(parts[0], parts[1], self.result(kind))


@dataclass(frozen=True, slots=True)
class Min(Aggregate):
    """The least value, of the column's type."""

    verb = "min"

    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        return (Part("min", "min", "min", self.result(kind)),)

    def result(self, kind: pa.DataType | None) -> pa.DataType:
        return _ordered(kind)


@dataclass(frozen=True, slots=True)
class Max(Aggregate):
    """The greatest value, of the column's type."""

    verb = "max"

    def parts(self, kind: pa.DataType | None) -> tuple[Part, ...]:
        return (Part("max", "max", "max", self.result(kind)),)

    def result(self, kind: pa.DataType | None) -> pa.DataType:
        return _ordered(kind)


def count(column: str | None = None, *, where: str | pc.Expression | None = None) -> Count:
    """Count rows, or the rows that have a value in ``column``."""
    return Count(column, where=where)


def sum_(column: str, *, where: str | pc.Expression | None = None) -> Sum:
    """Add up a column. A sum of integers that leaves 64 bits is an error, not a wrong number."""
    return Sum(column, where=where)


def mean(column: str, *, where: str | pc.Expression | None = None) -> Mean:
    """The mean of a column's values."""
    return Mean(column, where=where)


def min_(column: str, *, where: str | pc.Expression | None = None) -> Min:
    """The least value of a column: numbers, strings, bytes, dates, timestamps, booleans. NaN counts as greatest."""
    return Min(column, where=where)


def max_(column: str, *, where: str | pc.Expression | None = None) -> Max:
    """The greatest value of a column: numbers, strings, bytes, dates, timestamps, booleans. NaN counts as greatest."""
    return Max(column, where=where)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """A keyed operator that keeps aggregates per key, and emits those of every key that a batch has rows of.

    A result has the key columns and one column per aggregate. ``process`` takes the partial rows that ``early`` or
    ``combine`` made, any number of them per key, in any order and any split of the rows: integers, decimals, least and
    greatest come out the same to the last bit; sums and means of floats do too for the same partial rows, and to within
    rounding for another split.
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
        outputs = [pa.field(column.output, column.aggregate.result(column.kind)) for column in columns]
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
        parts = []
        for column in self._columns:
            where = inputs.where(column.aggregate.where)
            for part in column.parts:
                values = None if column.aggregate.column is None else inputs.column(column.aggregate.column)
                if part.first != "count" and values is not None and values.type != part.type:
                    values = self._cast(values, column, part)
                try:
                    parts.append(reduce_rows(part.first, values, codes, len(first), where))
                except TooLargeError as error:
                    raise self._too_large(column, part.type, error.key, keys) from None
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
        merged = []
        for column in self._columns:
            for part, own in zip(column.parts, column.fields, strict=True):
                values = _combined(partials[own.name])
                try:
                    merged.append(merge_rows(part.merge, values, codes, len(keys)))
                except TooLargeError as error:
                    raise self._too_large(column, part.type, error.key, keys) from None
        return merged

    def _results(self, keys: pa.Table, parts: Sequence[pa.Array], touched: Bool) -> pa.Table:
        finished = []
        at = 0
        for column in self._columns:
            own = parts[at : at + len(column.parts)]
            at += len(column.parts)
            try:
                finished.append(column.aggregate.finish(own, column.kind))
            except TooLargeError as error:
                raise self._too_large(column, column.aggregate.result(column.kind), error.key, keys) from None
        arrays = [_combined(keys[name]) for name in self.key_names]
        results = pa.Table.from_arrays([*arrays, *finished], schema=self.output_schema)
        return results if touched.all() else results.filter(pa.array(touched))

    def _partials(self, keys: pa.Table, parts: Sequence[pa.Array]) -> pa.Table:
        return pa.Table.from_arrays(
            [*(_combined(column) for column in keys.columns), *parts], self.partial_schema.names
        )

    def _cast(self, values: pa.Array, column: _Column, part: Part) -> pa.Array:
        try:
            # Beyond 2^53 an integer is rounded to a float, as in Spark: no reason to fail.
            return values.cast(part.type, safe=not pa.types.is_floating(part.type))
        except pa.ArrowInvalid as error:
            raise InputError(
                f"operator {self.name!r}: column {column.aggregate.column!r} must fit {type_name(part.type)} to be "
                f"used by {column.output!r}, and does not ({error}): cast it first"
            ) from None

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
    """An aggregate with what the input schema says about it; the names of its parts have a dot, as no clash has."""

    output: str
    aggregate: Aggregate
    kind: pa.DataType | None
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, operator: str, schema: pa.Schema, output: str, aggregate: Aggregate) -> _Column:
        if not isinstance(aggregate, Aggregate):
            raise InputError(
                f"operator {operator!r}: {output!r} must be an aggregate such as count() or sum('amount'), got "
                f"{aggregate!r}"
            )
        where = aggregate.where if isinstance(aggregate.where, str) else None
        for column in (aggregate.column, where):
            if column is not None and column not in schema.names:
                raise InputError(
                    f"operator {operator!r}: {output!r} uses the column {column!r}, which the input does not have: it "
                    f"has {listing(schema.names)}"
                )
        if where is not None and not pa.types.is_boolean(schema.field(where).type):
            raise InputError(
                f"operator {operator!r}: the where of {output!r} must be a boolean column, {where!r} is "
                f"{type_name(schema.field(where).type)}: name a boolean column, or pass an expression"
            )
        kind = None if aggregate.column is None else schema.field(aggregate.column).type
        try:
            return cls(output, aggregate, kind, aggregate.parts(kind))
        except TypeError as error:
            got = "no column" if kind is None else type_name(kind)
            raise InputError(
                f"operator {operator!r}: the {aggregate.verb} {output!r} needs a column of {error}, got {got}: cast it "
                "first"
            ) from None

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(f"{self.output}.{part.suffix}", part.type) for part in self.parts]


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
        if isinstance(condition, str):
            values = self.column(condition)
        else:
            source = acero.Declaration("table_source", acero.TableSourceNodeOptions(self._rows))
            project = acero.Declaration("project", acero.ProjectNodeOptions([condition], ["where"]), [source])
            values = _combined(project.to_table(use_threads=False)["where"])
        return np.asarray(pc.fill_null(values, False))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _sum_type(kind: pa.DataType | None) -> pa.DataType:
    if kind is not None:
        if pa.types.is_integer(kind):
            return pa.int64()
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal(kind):
            return pa.decimal128(MAX_DIGITS, kind.scale)
    raise TypeError("numbers")


def _ordered(kind: pa.DataType | None) -> pa.DataType:
    if kind is None or pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        raise TypeError("values that have an order")
    return kind
