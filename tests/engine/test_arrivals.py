"""Rows that arrive at an operator key by key are those that arrive one by one, with less to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.engine.arrivals import Arrived
from headgate.operators import group_rows
from headgate.routing import key_hash
from headgate.sinks import memory


def _rows(*keys: str) -> pa.Table:
    return pa.table({"k": keys, "v": range(len(keys))})


def test_a_hash_for_each_run_or_for_each_row() -> None:
    together, apart = Arrived.hashed(_rows(*"a" * 20, *"b" * 12), ["k"]), Arrived.hashed(_rows("a", "b"), ["k"])
    assert together.runs is not None
    assert together.runs.starts.tolist() == [0, 20]
    assert together.named(["k"]).to_pylist() == [{"k": "a"}, {"k": "b"}]
    assert apart.runs is None
    assert apart.named(["k"]).to_pylist() == [{"k": "a"}, {"k": "b"}]
    assert (together.hashes == apart.hashes).all()
    assert len(together) == 32
    assert (together.each().hashes == np.repeat(apart.hashes, [20, 12])).all()


def test_parts_come_one_after_another() -> None:
    first, second = Arrived.hashed(_rows(*"a" * 20), ["k"]), Arrived.hashed(_rows("b", "c"), ["k"])
    both = Arrived.together([first, second])
    assert both is not None
    assert both.runs is None
    assert both.rows.column("k").to_pylist() == ["a"] * 20 + ["b", "c"]
    assert (both.hashes == key_hash(both.rows.column("k"))).all()
    assert Arrived.together([first]) is first
    assert Arrived.together([]) is None


def test_rows_of_keys_that_lie_apart_have_to_be_grouped_one_by_one() -> None:
    given = Arrived.hashed(_rows(*"a" * 20, *"b" * 20, *"a" * 20), ["k"])
    with pytest.raises(AssertionError, match="lie apart"):
        given.arranged(group_rows(given.hashes))
    grouping = group_rows(given.each().hashes)
    rows, starts = given.each().arranged(grouping)
    sizes = dict(zip(rows.column("k").take(pa.array(starts[:-1])).to_pylist(), np.diff(starts).tolist(), strict=True))
    assert sizes == {"a": 40, "b": 20}


@pytest.mark.parametrize("again", ["in order", "backwards", "key by key, twice"])
def test_an_operator_behind_another_has_all_rows_of_its_keys_however_they_come(
    engine: Any, tmp_path: Path, again: str
) -> None:
    """The first function gives its rows back as they came, the other way round, or each key's in two parts."""

    def echo(batch: hg.Batch) -> Any:
        rows = batch.rows
        if again == "backwards":
            rows = rows.take(pa.array(np.arange(len(rows))[::-1]))
        elif again == "key by key, twice":
            half = np.arange(len(rows)) % 2
            rows = pa.concat_tables([rows.filter(pa.array(half == part)) for part in (0, 1)])
        return rows, batch.state

    def count(batch: hg.Batch) -> Any:
        n = np.asarray(batch.state["n"]) + batch.counts
        total = np.asarray(batch.state["total"]) + np.add.reduceat(np.asarray(batch.rows["v"]), batch.starts[:-1])
        return pa.table({"k": batch.keys["k"], "n": n, "total": total}), pa.table({"n": n, "total": total})

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    job = hg.Job("chain", groups=8)
    rows = engine.source(job, schema).key_by("k")
    rows = rows.process_arrow(echo, state={"none": 0}, output="k long, v long", keeps=["k"], name="echo")
    sums = rows.key_by("k").process_arrow(count, state={"n": 0, "total": 0}, output="k long, n long, total long")
    sums.write_to(memory(), name="out")
    assert len(set(job.components().component)) == 1, "one component"
    bench = engine.of_job(tmp_path, job)
    rng = np.random.default_rng(3)
    seen: dict[int, list[int]] = {}
    for _ in range(3):
        drawn = [
            {"k": int(k), "v": int(v)} for k, v in zip(rng.integers(0, 6, 400), rng.integers(0, 9, 400), strict=True)
        ]
        made = bench.batch(drawn[:200], drawn[200:])["out"]
        for row in drawn:
            seen.setdefault(row["k"], []).append(row["v"])
        assert {row["k"]: (row["n"], row["total"]) for row in made} == {
            key: (len(values), sum(values)) for key, values in seen.items()
        }
