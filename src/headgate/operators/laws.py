"""What must hold for an aggregate whose rows are split, combined early and merged in any order; tried on sample rows.

With a, b and c the states of three groups of rows:

    split          the rows of a and b in one update   =   merge(a, b)
    commutative    merge(a, b)                         =   merge(b, a)
    associative    merge(merge(a, b), c)               =   merge(a, merge(b, c))
    neutral        merge(zero, a)                      =   a

Results are compared, not states: a list in another order will do where finish sorts it. A sample proves nothing, but
what people get wrong (a mean of means, a last that is the last to arrive, a zero that counts) breaks on the first one.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.errors import listing
from headgate.operators.columns import type_name
from headgate.operators.folds import CallError, UnfitError, ValueUnfitError

if TYPE_CHECKING:
    from headgate.operators.custom import CustomFold

Sample: TypeAlias = "pa.Table | Sequence[Mapping[str, object]] | None"
"""Rows to try an aggregate on; None for rows made up from the types of the columns."""

TOLERANCE = 1e-9
"""How far results in floats may be apart, relative to the greater: some thousand roundings of a double."""

MIN_ROWS = 3
"""One for each of a, b and c."""

MADE_ROWS = 10
"""Rows of a made-up sample: enough for groups of several rows, few enough to be read in a message."""

CUTS = ((1 / 3, 2 / 3), (0.1, 0.5), (0.5, 0.9), (0.2, 0.3))
"""Where the rows are cut into a, b and c: groups of about the same size, and of very different ones."""

State: TypeAlias = "list[pa.Array]"


def check_laws(
    fold: CustomFold, names: Sequence[str], kinds: Sequence[pa.DataType], sample: Sample, tolerance: float
) -> None:
    """Check the laws on a sample. Raises ``UnfitError`` with the law that broke, both results and the rows."""
    rows = _made(names, kinds) if sample is None else _given(sample, names, kinds)
    what = "made-up sample rows" if sample is None else "sample rows"
    hint = "; where such rows cannot occur, pass sample= with rows that can" if sample is None else ""
    _Trial(fold, rows, f"{what} {{rows}}", hint, tolerance).run()


class _Trial:
    def __init__(self, fold: CustomFold, rows: pa.Table, what: str, hint: str, tolerance: float) -> None:
        self.fold = fold
        self.rows = rows
        self.what = what
        self.hint = hint
        self.tolerance = tolerance

    def run(self) -> None:
        count = len(self.rows)
        try:
            for low, high in CUTS:
                first = min(max(1, round(low * count)), count - 2)
                second = min(max(first + 1, round(high * count)), count - 1)
                self._check(first, second)
        except CallError as error:
            raise UnfitError(
                f"must work on the {self._shown(self.rows)}, and raised {type(error.error).__name__}: {error.error}: "
                f"mend the function{self.hint}"
            ) from error.error
        except ValueUnfitError as error:
            raise UnfitError(f"does not work on the {self._shown(self.rows)}: {error}{self.hint}") from None

    def _check(self, first: int, second: int) -> None:
        groups = self.rows.slice(0, first), self.rows.slice(first, second - first), self.rows.slice(second)
        a, b, c = (self._updated(group) for group in groups)
        merge = self.fold.merge_two
        both = self._updated(self.rows.slice(0, second))
        zero = self._updated(self.rows.slice(0, 0))
        self._same("the update of all rows", both, "merge(a, b)", merge(a, b), "agrees with update", groups[:2])
        self._same("merge(a, b)", merge(a, b), "merge(b, a)", merge(b, a), "is commutative", groups[:2])
        left, right = merge(merge(a, b), c), merge(a, merge(b, c))
        self._same("merge(merge(a, b), c)", left, "merge(a, merge(b, c))", right, "is associative", groups)
        self._same("merge(zero, a)", merge(zero, a), "a", a, "changes nothing when one state is zero", groups[:1])

    def _updated(self, rows: pa.Table) -> State:
        columns = [column.combine_chunks() for column in rows.columns]
        return self.fold.reduce(columns, np.zeros(len(rows), dtype=np.int32), 1, None)

    def _same(
        self, one: str, state: State, other: str, other_state: State, law: str, groups: Sequence[pa.Table]
    ) -> None:
        got, wanted = (self.fold.finish(each).to_pylist()[0] for each in (state, other_state))
        if not same(got, wanted, self.tolerance):
            shown = ", ".join(f"{name} of the {self._shown(group)}" for name, group in zip("abc", groups, strict=False))
            raise UnfitError(
                f"must have a merge that {law}, but {one} gives {got!r} and {other} gives {wanted!r}, with {shown}: "
                f"results would depend on how rows are split; change the functions{self.hint}"
            )

    def _shown(self, rows: pa.Table) -> str:
        values = [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in rows.to_pylist()]
        return self.what.format(rows=repr(values))


def same(one: object, other: object, tolerance: float) -> bool:
    """Whether two results are the same, floats to within the tolerance; NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair, tolerance) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name], tolerance) for name in one)
    return one == other


def _given(sample: Any, names: Sequence[str], kinds: Sequence[pa.DataType]) -> pa.Table:
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    try:
        table = sample if isinstance(sample, pa.Table) else pa.Table.from_pylist(list(sample))
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise UnfitError(f"needs a sample with the columns {listing(names)}, missing: {listing(missing)}")
        rows = table.select(list(names)).cast(schema)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnfitError):
            raise
        raise UnfitError(f"needs a sample that is a table or a list of dicts of the input's types ({error})") from None
    if len(rows) < MIN_ROWS:
        raise UnfitError(f"needs a sample of at least {MIN_ROWS} rows, to split it in three, got {len(rows)}")
    return rows


def _made(names: Sequence[str], kinds: Sequence[pa.DataType]) -> pa.Table:
    columns = []
    for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        values = _values(kind)
        if values is None:
            raise UnfitError(
                f"needs sample= with at least {MIN_ROWS} rows to be tried on: no values can be made up for column "
                f"{name!r} of type {type_name(kind)}"
            )
        # Turned by another amount for every column, so that they do not ascend and descend together.
        columns.append(pa.array(values[3 * at % MADE_ROWS :] + values[: 3 * at % MADE_ROWS], kind))
    return pa.Table.from_arrays(columns, names=list(names))


_WHOLE = [3, 1, 4, 1, 5, 9, 2, 6, 0, 7]
_SIGNED = [3, -1, 4, 1, -5, 9, 2, 6, 0, -7]


def _values(kind: pa.DataType) -> list[Any] | None:
    """Made-up values of a type in no order, one of them twice; None for a type that there are none for."""
    if pa.types.is_boolean(kind):
        return [number % 2 == 0 for number in _WHOLE]
    if pa.types.is_integer(kind):
        return list(_WHOLE if pa.types.is_unsigned_integer(kind) else _SIGNED)
    if pa.types.is_floating(kind):
        return [number + 0.25 for number in _SIGNED]
    if pa.types.is_decimal(kind):
        step = decimal.Decimal(1).scaleb(-kind.scale)
        return [number * step for number in _SIGNED]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["abcdefghij"[number] * (number % 3 + 1) for number in _WHOLE]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [bytes([number]) * (number % 3 + 1) for number in _WHOLE]
    if pa.types.is_date(kind):
        return [dt.date(2024, 2, 20) + dt.timedelta(days=number) for number in _WHOLE]
    if pa.types.is_timestamp(kind):
        zone = dt.UTC if kind.tz else None
        return [dt.datetime(2024, 2, 29, 12, 0, 7 * number, tzinfo=zone) for number in _WHOLE]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _values(kind.value_type)
        return None if inner is None else [inner[number : number + number % 3] for number in _WHOLE]
    return None
