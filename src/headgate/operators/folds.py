"""What an aggregate is: the declaration that a user writes, and the fold that computes it for columns of some types.

    rows --reduce--> state columns, one row per key --merge with others--> state columns --finish--> result

A **fold** works on many keys at once: ``codes`` has the number of each row's key, ``keys`` is how many there are. What
``reduce`` makes of some rows can be merged with what it made of others, in any grouping and any order. ``merge`` must
give the same to the last bit for the same rows in any order, because partial rows arrive as the network brings them
and a batch may be replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.arrays import I32, I64, Bool, compiled
from headgate.operators.columns import type_name
from headgate.operators.reductions import Reduction, merge_rows, reduce_rows

Where: TypeAlias = "str | pc.Expression | None"
"""A condition: the name of a boolean column, or an Arrow expression. A row counts where it is true; null is not."""

FEW = 24
"""Up to so many values insertion sort beats NumPy's, which allocates."""


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """What is computed per key: of ``column``, over the rows where ``where`` is true (null is not true).

    ``where`` is the name of a boolean column or an Arrow expression, ``pc.field("amount") > 100``.
    """

    verb: ClassVar[str]

    column: str | None
    _: KW_ONLY
    where: Where = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is computed of, in the order in which the fold takes them."""
        return () if self.column is None else (self.column,)

    @abstractmethod
    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        """How it is computed for columns of these types.

        Raises ``TypeError`` with what the column must be of ("numbers"), or ``UnfitError`` with a whole sentence.
        """

    def check(self, fold: Fold, kinds: Sequence[pa.DataType]) -> None:  # noqa: B027 (most have nothing to check)
        """Try the fold out when the job is built. Raises ``UnfitError``."""


class Fold(ABC):
    """How an aggregate is computed: state columns from rows, one state from several, the result from a state."""

    __slots__ = ()

    @property
    @abstractmethod
    def fields(self) -> tuple[pa.Field, ...]:
        """The state columns. A null in any of them is the state of no rows."""

    @property
    @abstractmethod
    def result(self) -> pa.DataType:
        """The type of the result."""

    @abstractmethod
    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        """The states of ``keys`` keys, from the rows where ``where`` is true (all of them without it)."""

    @abstractmethod
    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        """The states of ``keys`` keys, from any number of states of each."""

    @abstractmethod
    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        """The results, one for each state."""


class UnfitError(ValueError):
    """A fold cannot be used with these columns, or not with these values: what must hold, what came, what to do."""


class CallError(Exception):
    """A user's function raised. ``key`` is the number of the key it was called for, None where it was for many."""

    def __init__(self, key: int | None, row: object, error: BaseException) -> None:
        super().__init__(key, row, error)
        self.key = key
        self.row = row
        self.error = error


class ValueUnfitError(Exception):
    """A user's function gave a value that does not fit its declaration. ``key`` is the number of its key."""

    def __init__(self, key: int, reason: str) -> None:
        super().__init__(reason)
        self.key = key


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
class Parts(Fold):
    """A fold whose state columns are numbers that are reduced and merged one by one. The result is the first part."""

    parts: tuple[Part, ...]

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(part.suffix, part.type) for part in self.parts)

    @property
    def result(self) -> pa.DataType:
        return self.parts[0].type

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        values = columns[0] if columns else None
        reduced = []
        for part in self.parts:
            given = values if part.first == "count" or values is None else fitted(values, part.type)
            reduced.append(reduce_rows(part.first, given, codes, keys, where))
        return reduced

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        return [merge_rows(part.merge, values, codes, keys) for part, values in zip(self.parts, states, strict=True)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        return states[0]


def fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as another type. Raises ``UnfitError`` where one of them does not fit it.

    Beyond 2^53 an integer is rounded to a float, as in Spark: no reason to fail.
    """
    if values.type == kind:
        return values
    try:
        return values.cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowInvalid as error:
        raise UnfitError(
            f"must have values that fit {type_name(kind)}, and one does not ({error}): cast the column first"
        ) from None


def valid_rows(columns: Sequence[pa.Array], where: Bool | None) -> Bool | None:
    """Which rows have a value in every column and meet the condition; None for all of them."""
    valid = where
    for column in columns:
        if column.null_count:
            filled: Bool = np.asarray(column.is_valid())
            valid = filled if valid is None else valid & filled
    return valid


def kept(columns: Sequence[pa.Array], codes: I32, where: Bool | None) -> tuple[list[pa.Array], I32]:
    """The rows that ``valid_rows`` says, and the numbers of their keys."""
    valid = valid_rows(columns, where)
    if valid is None or valid.all():
        return list(columns), codes
    mask = pa.array(valid)
    return [column.filter(mask) for column in columns], codes[valid]


@compiled
def by_key(codes: I32, keys: int) -> tuple[I64, I64]:
    """The rows of each key: those of key ``i`` are ``order[starts[i]:starts[i + 1]]``, in the order they came in."""
    starts = np.zeros(keys + 1, dtype=np.int64)
    for row in range(len(codes)):
        starts[codes[row] + 1] += 1
    for key in range(keys):
        starts[key + 1] += starts[key]
    at = starts[:-1].copy()
    order = np.empty(len(codes), dtype=np.int64)
    for row in range(len(codes)):
        code = codes[row]
        order[at[code]] = row
        at[code] += 1
    return starts, order


@compiled
def sort_few(values: NDArray[Any]) -> None:
    """Sort in place. Most keys have few rows, and then moving them one by one is fastest."""
    if len(values) > FEW:
        values.sort()
        return
    for at in range(1, len(values)):
        value = values[at]
        to = at
        while to > 0 and values[to - 1] > value:
            values[to] = values[to - 1]
            to -= 1
        values[to] = value
