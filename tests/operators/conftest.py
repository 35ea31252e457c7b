"""A one-process stand-in for the engine: it keeps the state in a dict and hands operators one batch after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.operators import NO_TIMER, NO_WATERMARK, KeyedInput, KeyedOperator, KeyedOutput, check_one_key, group_rows
from headgate.routing import key_hash


class Driver:
    """Runs an operator over batches; ``state`` is what is kept, by key."""

    def __init__(self, operator: KeyedOperator) -> None:
        self.operator = operator
        self.rows: dict[int, tuple[dict[str, Any], dict[str, Any], int, int]] = {}
        self.last: KeyedOutput | None = None

    @property
    def state(self) -> dict[Any, dict[str, Any]]:
        found = {}
        for key, state, _, _ in self.rows.values():
            values = tuple(key.values())
            found[values[0] if len(values) == 1 else values] = state
        return found

    def batch(
        self,
        rows: pa.Table,
        *,
        cuts: Sequence[int] = (),
        now: int = 0,
        watermark: int = NO_WATERMARK,
        clock: Any = None,
    ) -> list[dict[str, Any]]:
        """One micro-batch whose rows are cut into chunks; returns the results."""
        names = list(self.operator.key_names)
        bounds = [0, *sorted(cuts), len(rows)]
        early = []
        for start, stop in pairwise(bounds):
            chunk = rows.slice(start, stop - start)
            early.append(self.operator.early(chunk, key_hash(*chunk.select(names).columns)))
        partials = pa.concat_tables([table for table, _ in early])
        assert partials.schema.equals(self.operator.partial_schema)
        return self._process(partials, np.concatenate([hashes for _, hashes in early]), now, watermark, clock)

    def _process(self, rows: pa.Table, hashes: Any, now: int, watermark: int, clock: Any) -> list[dict[str, Any]]:
        names = list(self.operator.key_names)
        seen = set(hashes.tolist())
        idle = [
            known
            for known, (_, _, event, processing) in self.rows.items()
            if known not in seen and (NO_TIMER < event <= watermark or NO_TIMER < processing <= now)
        ]
        grouping = group_rows(hashes)
        check_one_key(rows.select(names), grouping)
        schema = self.operator.state_schema
        every = [*grouping.hashes.tolist(), *idle]
        states = [self.rows[known][1] if known in self.rows else dict.fromkeys(schema.names) for known in every]
        keys = rows.select(names).take(grouping.first)
        keys = pa.concat_tables([keys, pa.Table.from_pylist([self.rows[known][0] for known in idle], keys.schema)])
        event, processing = (
            np.array([self.rows[known][at] if known in self.rows else NO_TIMER for known in every], np.int64)
            for at in (2, 3)
        )
        given = KeyedInput(
            grouping.arranged(rows),
            np.concatenate([grouping.starts, np.full(len(idle), len(rows), np.int64)]),
            np.array(every, np.int64),
            keys,
            pa.Table.from_pylist(states, schema),
            np.array([known in self.rows for known in every], np.bool_),
            event,
            processing,
            (event > NO_TIMER) & (event <= watermark),
            (processing > NO_TIMER) & (processing <= now),
            now,
            watermark,
        )
        out = self.last = self.operator.process(given, clock)
        assert out.results.schema.equals(self.operator.output_schema)
        assert out.state.schema.equals(schema)
        assert len(out.state) == len(out.keep) == len(out.event_timer) == len(out.processing_timer) == len(every)
        new = zip(every, keys.to_pylist(), out.state.to_pylist(), out.keep, strict=True)
        for at, (known, key, state, keep) in enumerate(new):
            if keep:
                self.rows[known] = (key, state, int(out.event_timer[at]), int(out.processing_timer[at]))
            else:
                self.rows.pop(known, None)
        results: list[dict[str, Any]] = out.results.to_pylist()
        return results


@pytest.fixture(scope="session")
def driver() -> type[Driver]:
    return Driver
