"""State of several pieces per key in list columns: sessions that are open, slices of rows that are not full.

    state    start      n          pieces   owner   start   n
    key 0    [3, 40]    [2, 1]     ------>  0       3       2
    key 1    null       null       spread   0       40      1
    key 2    [7]        [5]        <------  2       7       5
                                   gathered

Everything between the two is by column, over the pieces of all keys at once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.arrays import I64
from headgate.errors import InputError
from headgate.operators.aggregates import Aggregation
from headgate.operators.windowed import WINDOW_END, WINDOW_START


def listed(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The columns that hold any number of these values per key."""
    return [pa.field(each.name, pa.list_(each.type)) for each in fields]


def spread(lists: pa.Table) -> tuple[I64, pa.Table]:
    """The pieces of all keys, key after key: the position of each one's key, and their values.

    The lists of a key are equally long in every column; null is none.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists.column(0)), 0))
    owner = np.repeat(np.arange(lists.num_rows, dtype=np.int64), lengths)
    columns = [pc.list_flatten(column) for column in lists.columns]
    return owner, pa.Table.from_arrays(columns, names=lists.column_names)


def gathered(pieces: pa.Table, owner: I64, keys: int) -> pa.Table:
    """The other way round: a row per key with the lists of its pieces. ``owner`` ascends; empty lists for no pieces."""
    ends = np.cumsum(np.bincount(owner, minlength=keys))
    bounds = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    columns = [pa.ListArray.from_arrays(bounds, column.combine_chunks()) for column in pieces.columns]
    return pa.Table.from_arrays(columns, schema=pa.schema(listed(pieces.schema)))


def merged_by(aggregation: Aggregation, partials: pa.Table, codes: I64) -> tuple[pa.Table, I64]:
    """Partial rows merged by code, in ascending order of the codes; and these.

    Rows of a code must be of one key; they are merged in the order in which they lie.
    """
    merged, found = aggregation.combine(partials, codes)
    if (found[1:] > found[:-1]).all():
        return merged, found
    order = np.argsort(found)
    return merged.take(pa.array(order)), found[order]


def with_window(results: pa.Table, keys: int, start: pa.Array, end: pa.Array) -> pa.Table:
    """Results with the bounds of their windows behind the key columns, of which there are so many."""
    return results.add_column(keys, WINDOW_END, end).add_column(keys, WINDOW_START, start)


def check_reserved(operator: str, keys: Iterable[str], aggregates: Iterable[str], *hidden: str) -> None:
    """Check that no key column or aggregate has a name that windows need. Raises ``InputError``."""
    taken = {*keys, *aggregates}
    for name in (WINDOW_START, WINDOW_END, *hidden):
        if name in taken:
            raise InputError(
                f"operator {operator!r} must have no key column or aggregate named {name!r}, which its windows use: "
                "rename it"
            )
