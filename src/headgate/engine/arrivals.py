"""Rows that have arrived at an operator, with the hashes of their keys.

Rows from other slots come in any order, with a hash each. Within a component they mostly come key by key, as the
operator before had them: then there is one hash for each run of rows of a key, and what is asked of every key, which
slot it belongs to or where its state lies, is asked once a run and not once a row.

    rows     a a a a b b b b b c c
    runs     0       4         9
    hashes   h(a)    h(b)      h(c)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.arrays import I64
from headgate.operators import Grouping, key_runs, keys_at
from headgate.routing import row_hash


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows that come key by key: the first row of each run, and its key."""

    starts: I64
    keys: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """Rows for an operator. ``hashes`` has one for each row, or, where there are runs, one for each run."""

    rows: pa.Table
    hashes: I64
    runs: Runs | None = None

    @classmethod
    def hashed(cls, rows: pa.Table, keys: Sequence[str]) -> Arrived:
        """Rows of which nothing is known but the columns of their keys, none of them null."""
        named = rows.select(list(keys))
        starts = key_runs(named)
        if starts is None:
            return cls(rows, row_hash(named))
        named = keys_at(starts, named).combine_chunks()
        return cls(rows, row_hash(named), Runs(starts, named))

    @classmethod
    def together(cls, parts: Sequence[Arrived]) -> Arrived | None:
        """Rows that have arrived in several ways, in this order; None where there are none."""
        if len(parts) < 2:
            return parts[0] if parts else None
        parts = [part.each() for part in parts]
        rows = pa.concat_tables([part.rows for part in parts])
        return cls(rows, np.concatenate([part.hashes for part in parts]))

    def __len__(self) -> int:
        """How many rows."""
        return int(self.rows.num_rows)

    def each(self) -> Arrived:
        """The same with a hash for each row."""
        if self.runs is None:
            return self
        return Arrived(self.rows, np.repeat(self.hashes, np.diff(self.runs.starts, append=len(self))))

    def named(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of the key, a row for each hash."""
        if self.runs is not None:
            return self.runs.keys.select(list(columns))
        keys = self.rows.select(list(columns))
        return keys.combine_chunks() if keys.num_rows else keys

    def arranged(self, grouping: Grouping) -> tuple[pa.Table, I64]:
        """The rows in the order of their keys, which were grouped by the hashes; where those of each key start."""
        if self.runs is None:
            return grouping.arranged(self.rows), grouping.starts
        assert grouping.position is None, "rows of a key lie apart: they have to be grouped one by one"
        return self.rows, np.append(self.runs.starts, len(self))[grouping.starts]
