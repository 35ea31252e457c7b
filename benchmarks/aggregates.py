"""What each aggregate costs: rows per second against Polars and against DataSketches in a loop over keys.

    python benchmarks/aggregates.py [--rows 2000000] [--keys 20000]     about two minutes

Rows are reduced in eight chunks and the partial rows merged, as in a micro-batch; Polars goes over all rows at once, on
as many threads as it likes. Exact results must be equal, approximate ones within their bounds.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import headgate as hg
from headgate.operators import Aggregate, Aggregation
from headgate.routing import key_hash

CHUNKS = 8
RUNS = 3
SEED = 7
LOOPED_KEYS = 2000
"""Keys that DataSketches is timed on: a loop in Python over all of them would take minutes."""

VALUES = 5000
"""Distinct values of the column that is counted: with as many counters the most frequent ones are exact."""

CASES: dict[str, tuple[Aggregate, Any]] = {
    "count": (hg.count(), pl.len()),
    "sum": (hg.sum("v"), pl.col("v").sum()),
    "variance": (hg.variance("v"), pl.col("v").var()),
    "first": (hg.first("s", by="at"), pl.col("s").sort_by("at").first()),
    "last": (hg.last("i", by="at"), pl.col("i").sort_by("at").last()),
    "distinct longs": (hg.distinct("i"), pl.col("i").n_unique()),
    "distinct strings": (hg.distinct("s"), pl.col("s").n_unique()),
    "approx_distinct": (hg.approx_distinct("i"), pl.col("i").approx_n_unique()),
    "quantile": (hg.quantile("v", 0.5), pl.col("v").quantile(0.5, "lower")),
    "top_k": (hg.top_k("i", 3, counters=VALUES), pl.col("i").value_counts(sort=True).head(3)),
    "top_k by": (hg.top_k("i", 3, by="v"), pl.col("i").top_k_by("v", 3)),
    "collect 10": (hg.collect("i", by="at", limit=10), pl.col("i").sort_by("at").head(10)),
    "own, one key at a time": (
        hg.aggregate(
            "v",
            state={"total": 0.0},
            update=lambda state, v: {"total": state["total"] + float(v.to_numpy().sum())},
            merge=lambda one, other: {"total": one["total"] + other["total"]},
        ),
        pl.col("v").sum(),
    ),
    "own, all keys at once": (
        hg.aggregate(
            "v",
            state="total double",
            update=lambda codes, keys, v: {"total": np.bincount(codes, v.to_numpy(), keys)},
            merge=lambda codes, keys, total: {"total": np.bincount(codes, total.to_numpy(), keys)},
            vectorised=True,
        ),
        pl.col("v").sum(),
    ),
}


def data(rows: int, keys: int) -> pa.Table:
    random = np.random.default_rng(SEED)
    weights = 1.0 / np.arange(1, keys + 1) ** 0.85
    cumulated = np.cumsum(weights) / weights.sum()
    numbers = random.integers(0, VALUES, rows)
    return pa.table(
        {
            "k": np.minimum(np.searchsorted(cumulated, random.random(rows)), keys - 1),
            "v": random.normal(100.0, 15.0, rows),
            "i": numbers,
            "s": pa.array([f"item-{each}" for each in range(VALUES)]).take(pa.array(numbers)),
            "at": random.permutation(rows),
        }
    )


def ours(operator: Aggregation, chunks: list[tuple[pa.Table, Any]]) -> tuple[float, float, pa.Table]:
    """Seconds to reduce and to merge and finish, and the results."""
    start = time.perf_counter()
    parts = [operator.early(rows, hashes) for rows, hashes in chunks]
    reduced = time.perf_counter()
    together = pa.concat_tables([rows for rows, _ in parts])
    merged, _ = operator.combine(together, np.concatenate([hashes for _, hashes in parts]))
    results = operator.finished(merged)
    return reduced - start, time.perf_counter() - reduced, results


def best(run: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    return min((run() for _ in range(RUNS)), key=lambda each: sum(part for part in each if isinstance(part, float)))


def check_bounds(name: str, own: pa.Table, frame: pl.DataFrame) -> None:
    """Distinct values: the error of all keys together. Quantiles: exact for few rows, else 99 % of ranks in bound."""
    found = pl.DataFrame({"k": own["k"].to_numpy(), "x": own["x"].to_numpy()})
    if name == "approx_distinct":
        exact = frame.group_by("k").agg(pl.col("i").n_unique().alias("n")).join(found, on="k")
        off = (exact["x"] / exact["n"] - 1).to_numpy()
        assert np.sqrt(np.mean(off**2)) < 1.04 / 64
        return
    below = (pl.col("v") < pl.col("x")).mean().alias("below")
    up_to = (pl.col("v") <= pl.col("x")).mean().alias("up_to")
    ranks = frame.join(found, on="k").group_by("k").agg(pl.len().alias("n"), below, up_to)
    off = np.maximum(0, np.maximum(ranks["below"].to_numpy() - 0.5, 0.5 - ranks["up_to"].to_numpy()))
    assert not off[ranks["n"].to_numpy() <= 200].any()
    assert np.quantile(off, 0.99) < 0.0135


def check(name: str, own: pa.Table, theirs: pl.DataFrame) -> None:
    got = dict(zip(own["k"].to_pylist(), own["x"].to_pylist(), strict=True))
    expected = dict(zip(theirs["k"].to_list(), theirs["x"].to_list(), strict=True))
    assert got.keys() == expected.keys()
    for key, value in got.items():
        other = expected[key]
        if name in ("sum", "variance") or name.startswith("own"):
            assert (value is None and other is None) or math.isclose(value, other, rel_tol=1e-9), (name, key)
        elif name == "top_k by":
            assert [each["value"] for each in value] == list(other), (name, key)
        elif name == "top_k":
            assert [each["count"] for each in value] == [each["count"] for each in other], (name, key)
        elif name not in ("approx_distinct", "quantile"):
            assert value == other, (name, key, value, other)


def looped(table: pa.Table, kind: str) -> float:
    """Rows per second of DataSketches, a key at a time: a sketch per chunk, in bytes, and their union."""
    import datasketches

    keys, codes = np.unique(np.asarray(table["k"]), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(keys) + 1))
    column = np.asarray(table["i" if kind == "approx_distinct" else "v"])[order]
    done = 0
    start = time.perf_counter()
    for key in range(0, len(keys), max(1, len(keys) // LOOPED_KEYS)):
        values = column[starts[key] : starts[key + 1]]
        done += len(values)
        parts = [part for part in np.array_split(values, CHUNKS) if len(part)]
        if kind == "approx_distinct":
            union = datasketches.hll_union(12)
            for part in parts:
                sketch = datasketches.hll_sketch(12, datasketches.HLL_8)
                for value in part.tolist():
                    sketch.update(value)
                union.update(datasketches.hll_sketch.deserialize(sketch.serialize_compact()))
            union.get_result().get_estimate()
        else:
            whole = datasketches.kll_doubles_sketch(200)
            for part in parts:
                summary = datasketches.kll_doubles_sketch(200)
                summary.update(part)
                whole.merge(datasketches.kll_doubles_sketch.deserialize(summary.serialize()))
            whole.get_quantile(0.5)
    return done / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    options = parser.parse_args()
    table = data(options.rows, options.keys)
    frame = pl.DataFrame(pl.from_arrow(table))
    bounds = np.linspace(0, len(table), CHUNKS + 1).astype(int)
    chunks = [table.slice(start, stop - start) for start, stop in pairwise(bounds.tolist())]
    hashed = [(chunk, key_hash(chunk["k"])) for chunk in chunks]
    print(f"{options.rows:,} rows, {options.keys:,} keys (Zipf 0.85), {CHUNKS} chunks, best of {RUNS}")
    print(f"{'aggregate':24}{'M rows/s':>10}{'k keys/s merged':>17}{'Polars M rows/s':>17}{'ours : Polars':>15}")
    for name, (aggregate, expression) in CASES.items():
        operator = Aggregation("op", table.schema, ("k",), {"x": aggregate})
        ours(operator, [(rows.slice(0, 100), hashes[:100]) for rows, hashes in hashed])  # compile

        def polars() -> tuple[float, pl.DataFrame]:
            start = time.perf_counter()
            grouped = frame.group_by("k").agg(expression.alias("x"))
            return time.perf_counter() - start, grouped

        reduced, merged, results = best(lambda: ours(operator, hashed))
        seconds, grouped = best(polars)
        check(name, results, grouped)
        if name in ("approx_distinct", "quantile"):
            check_bounds(name, results, frame)
        partial_rows = sum(len(operator.early(rows, hashes)[0]) for rows, hashes in hashed[:1]) * CHUNKS
        speed, other = options.rows / (reduced + merged) / 1e6, options.rows / seconds / 1e6
        print(f"{name:24}{speed:10.1f}{partial_rows / merged / 1e3:17,.0f}{other:17.1f}{speed / other:15.2f}")
        if name in ("approx_distinct", "quantile"):
            loop = looped(table, name) / 1e6
            print(f"{'  DataSketches, by key':24}{loop:10.1f}{'':17}{'ours : DataSketches':>24}{speed / loop:8.1f}")


if __name__ == "__main__":
    main()
