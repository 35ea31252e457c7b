"""The whole store against a dictionary: random batches of writes, deletions, timers and expiry, while places change
owner and slots come and go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.routing.places import SHARED
from headgate.state import Files, Layout, Ref, due, lookup, moved, scan, unique_name, write_delta

Row = Callable[..., Any]
Key = tuple[int, int]

GROUPS = 5
HASHES = st.integers(-4, 4)
TIMES = st.one_of(st.none(), st.integers(0, 60))
SIZES = st.sampled_from([(1, 1, 2), (3, 2, 4), (1000, 1000, 16)])
"""Rows per chunk of a merge, rows per block, most references: from tiny to ample."""


class Model:
    """What the store must hold, and the store. One batch is one call of ``batch``."""

    def __init__(self, bench: Any, row: Row) -> None:
        self.bench, self.row = bench, row
        self.rows: dict[Key, Any] = {}
        self.layout = Layout()
        self.number = 0
        self.now = self.last = 0

    def owner(self, groups: list[int], slots: int) -> list[int]:
        return [*(group % slots for group in groups), SHARED, *range(slots)]

    def batch(self, data: st.DataObject) -> None:
        """Move places, find what is due, write, and compare everything."""
        slots = data.draw(st.integers(1, 3), label="slots")
        groups = data.draw(st.lists(st.integers(0, 2), min_size=GROUPS, max_size=GROUPS), label="groups")
        owner = self.owner(groups, slots)
        self.last, self.now = self.now, self.now + data.draw(st.integers(0, 15), label="time passes")
        self.layout = moved(self.layout, 0, np.array(owner, dtype=np.int32))
        self.rows = {key: row for key, row in self.rows.items() if key[0] < len(owner)}
        keys = st.tuples(st.integers(0, len(owner) - 1), HASHES)
        changes: dict[Key, Any] = {}
        for key in self.due("event", owner):
            changes[key] = self.row(*key, count=-1, event=data.draw(TIMES), expires=self.rows[key].expires)
        for key in self.due("expires", owner):
            changes[key] = self.row(*key, live=False)
        for key, kind in data.draw(st.dictionaries(keys, st.sampled_from(["write", "delete"]), max_size=8)).items():
            changes[key] = (
                self.row(*key, live=False)
                if kind == "delete"
                else self.row(*key, count=self.number, event=data.draw(TIMES), expires=data.draw(TIMES))
            )
        for slot in {*owner}:
            mine = [row for key, row in changes.items() if owner[key[0]] == slot]
            place, table = self.bench.table(mine)
            refs = self.layout.refs(0, slot)
            attempts = data.draw(st.integers(1, 2), label="attempts")
            for _ in range(attempts):  # an attempt that failed leaves a file that nobody names
                written = write_delta(
                    self.bench.files, unique_name(f"runs/0/{self.number}-{slot}", "run"), self.bench.schema,
                    self.number, len(owner), place, table, refs, self.now,
                )  # fmt: skip
            self.layout = self.layout.with_run(0, slot, *written)
        self.rows.update(changes)
        self.rows = {key: row for key, row in self.rows.items() if row.live}
        self.number += 1
        self.compare(owner)

    def due(self, kind: Any, owner: list[int]) -> list[Key]:
        found: list[Key] = []
        for slot in {*owner}:
            place, hashes = due(
                self.bench.files, self.layout.refs(0, slot), self.bench.schema, kind,
                after=self.last, upto=self.now, fresh_from=self.number - 1,
            )  # fmt: skip
            found += zip(place.tolist(), hashes.tolist(), strict=True)
        column = {"event": "event", "expires": "expires"}[kind]
        times = {key: getattr(row, column) for key, row in self.rows.items()}
        assert sorted(found) == sorted(key for key, time in times.items() if time is not None and time <= self.now)
        return sorted(found)

    def compare(self, owner: list[int]) -> None:
        claimed: set[tuple[str, int]] = set()
        for _, slot, ref in self.layout:
            bits = {(ref.run.name, int(place)) for place in ref.places.indices()}
            assert not bits & claimed, "a place of a run belongs to one slot"
            assert all(owner[place] == slot for _, place in bits)
            claimed |= bits
        asked = [(place, key) for place in range(len(owner)) for key in range(-5, 6)]
        everything: dict[Key, Any] = {}
        for slot in {*owner}:
            refs = self.layout.refs(0, slot)
            mine = [key for key in asked if owner[key[0]] == slot]
            found = lookup(self.bench.files, refs, self.bench.schema, *self.bench.keys(mine), now=self.now)
            wanted = [self.visible(key) for key in sorted(mine)]
            assert found.present.tolist() == [row is not None for row in wanted]
            assert found.table.column("count").to_pylist() == [None if row is None else row.count for row in wanted]
            assert found.table.column(2).to_pylist() == [None if row is None else row.event for row in wanted]
            everything |= self.scanned(refs)
        assert everything == {key: row.count for key, row in self.rows.items() if self.visible(key) is not None}

    def visible(self, key: Key) -> Any:
        row = self.rows.get(key)
        return None if row is None or (row.expires is not None and row.expires <= self.now) else row

    def scanned(self, refs: tuple[Ref, ...]) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for place, table in scan(self.bench.files, refs, self.bench.schema, now=self.now):
            pairs = list(zip(place.tolist(), table.column(0).to_pylist(), strict=True))
            assert pairs == sorted(set(pairs))
            assert not set(pairs) & found.keys()
            found |= dict(zip(pairs, table.column("count").to_pylist(), strict=True))
        return found


@settings(max_examples=80)
@given(data=st.data(), sizes=SIZES, batches=st.integers(1, 12))
def test_the_store_is_a_dictionary(
    make_bench: Any, row: Row, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sizes: Any, batches: int
) -> None:
    model = Model(make_bench(Files.at(tmp_path_factory.mktemp("model"))), row)
    merging, writing = sys.modules["headgate.state.merge"], sys.modules["headgate.state.writer"]
    with (
        patch.object(merging, "CHUNK_ROWS", sizes[0]),
        patch.object(writing, "BLOCK_ROWS", sizes[1]),
        patch.object(merging, "MAX_REFS", sizes[2]),
    ):
        for _ in range(batches):
            model.batch(data)
