"""Arrow columns from the Python values that a per-key function returned or left as state.

Arrow takes some values for others without a word: 1.5 for the integer 1, 7 for a timestamp seven microseconds after
1970, a datetime for its date. Here they are errors that name the column and the key.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import InputError
from headgate.operators.columns import type_name

SHOWN_CHARACTERS = 80
"""How much of a value a message shows: enough to know it again, in a line that can still be read."""


def table_of(
    operator: str, what: str, schema: pa.Schema, columns: Sequence[list[Any]], key_of: Callable[[int], object]
) -> pa.Table:
    """A table of the values, column by column; ``key_of`` gives the key that a row is from, for messages.

    Raises ``InputError`` for the first value of a column that is not of its type.
    """
    arrays = []
    for column, values in zip(schema, columns, strict=True):
        array = array_of(column.type, values)
        if array is None:
            row = next(row for row, value in enumerate(values) if array_of(column.type, [value]) is None)
            reason = f"{what} column {column.name!r} must be {type_name(column.type)}, got {shown(values[row])}"
            raise misfit(operator, reason, key_of(row))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def misfit(operator: str, reason: str, key: object) -> InputError:
    """What a function returned, or left as state, does not have the declared columns."""
    return InputError(f"operator {operator!r}, key {key!r}: {reason}: change the function, or declare other columns")


def shown(value: object) -> str:
    """A value and its type, cut short."""
    text = repr(value)
    return f"{text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + '...'} ({type(value).__name__})"


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array | None:
    """The values as an array of a type, None if one of them is of another."""
    try:
        return pa.array(values, kind) if _is_faithful(kind, values) else None
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _is_faithful(kind: pa.DataType, values: Iterable[Any]) -> bool:
    """Whether Arrow, if it takes these values for the type, takes them for what they are.

    Looks at the set of their Python types, which costs little, and into lists, structs and maps.
    """
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return True
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        filled = [value for value in values if value is not None]
        if any(issubclass(each, str | bytes | Mapping) for each in set(map(type, filled))):
            return False
        return _is_faithful(kind.value_type, chain.from_iterable(filled))
    if pa.types.is_struct(kind):
        rows = [value for value in values if isinstance(value, Mapping)]
        return all(_is_faithful(field.type, [row.get(field.name) for row in rows]) for field in kind)
    if pa.types.is_map(kind):
        pairs = [pair for value in values if value is not None for pair in _pairs(value)]
        return _is_faithful(kind.key_type, [pair[0] for pair in pairs]) and _is_faithful(
            kind.item_type, [pair[1] for pair in pairs]
        )
    return all(_is_own(kind, each) for each in set(map(type, values)) if each is not type(None))


def _pairs(value: Any) -> Iterable[Any]:
    return value.items() if isinstance(value, Mapping) else value


def _is_own(kind: pa.DataType, given: type) -> bool:
    """Whether values of a Python type belong in a column, for the types where Arrow is lax."""
    if pa.types.is_integer(kind):
        return not issubclass(given, float | decimal.Decimal | np.floating | np.bool_)
    if pa.types.is_timestamp(kind):
        return issubclass(given, dt.datetime | np.datetime64)
    if pa.types.is_date(kind):
        return issubclass(given, dt.date) and not issubclass(given, dt.datetime)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return not issubclass(given, bytes)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return not issubclass(given, str)
    return True
