"""Ordered regions against ``multiprocessing.Pool.imap``: trivial work, two workers, a million items.

    python benchmarks/regions_throughput.py            some minutes
    python benchmarks/regions_throughput.py --quick    a tenth of the items

With trivial work nothing counts but how items get to the workers and back. Both sides have their processes up before
the clock starts; a region's first result is waited for, a pool has run a few items. Rounds are interleaved, and each
round compares the region with the best chunk size of that round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.regions import Region
from reporting import RESULTS, Claim, Report, Table

WORKERS = 2
CHUNKS = (1_000, 4_000, 16_000)
"""Chunk sizes of the pool. Below the first its own overhead shows; a million items are some sixty of the last."""

ROUNDS = 7


def increment(number: int) -> int:
    """The work on integers."""
    return number + 1


def swap(pair: tuple[str, str]) -> tuple[str, str]:
    """The work on tuples of strings."""
    return pair[1], pair[0]


def integers(count: int) -> Sequence[int]:
    """What is sent, made before the clock starts."""
    return range(count)


def pairs(count: int) -> Sequence[tuple[str, str]]:
    """Small tuples of strings."""
    return [(f"user{number % 1000}", f"item{number}") for number in range(count)]


Work = Callable[[Any], Any]


def pool_seconds(pool: Any, work: Work, items: Sequence[Any], expected: Sequence[Any], chunk: int) -> float:
    """Seconds of one pass through a pool that is up."""
    began = time.perf_counter()
    results = list(pool.imap(work, items, chunk))
    seconds = time.perf_counter() - began
    assert results == expected, "the pool's results are wrong"
    return seconds


def region_seconds(work: Work, items: Sequence[Any], expected: Sequence[Any], first: Any, **options: Any) -> float:
    """Seconds of one pass through a region, from when its workers have answered a first item."""
    began = 0.0

    def fed() -> Iterator[Any]:
        nonlocal began
        yield first
        while not done:
            time.sleep(0.001)
        began = time.perf_counter()
        yield from items

    done: list[Any] = []
    with Region(work, WORKERS, **options) as region:
        results = region.run(fed())
        done.append(next(results))
        got = list(islice(results, len(items)))  # its workers are let go afterwards, like the pool's
        seconds = time.perf_counter() - began
    assert got == expected, "the region's results are wrong"
    return seconds


def compare(name: str, work: Work, items: Sequence[Any], rounds: int) -> tuple[list[tuple[str, float]], list[float]]:
    """Median seconds of each way, and the region's throughput relative to the pool's best, per round."""
    expected = [work(item) for item in items]
    ways: dict[str, list[float]] = {}
    ratios = []
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        list(pool.imap(work, items[:10]))
        for number in range(rounds):
            taken = {
                f"Pool.imap, chunks of {chunk:,}": pool_seconds(pool, work, items, expected, chunk) for chunk in CHUNKS
            }
            best = min(taken.values())
            taken["region"] = region_seconds(work, items, expected, items[0])
            ratios.append(best / taken["region"])
            for way, seconds in taken.items():
                ways.setdefault(way, []).append(seconds)
            print(f"  {name}, round {number + 1}: region {ratios[-1]:.2f} of the pool's best", flush=True)
    return [(way, statistics.median(seconds)) for way, seconds in ways.items()], ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    count = 100_000 if options.quick else 1_000_000
    claims, tables = [], []
    for name, work, make in (("integers", increment, integers), ("tuples of strings", swap, pairs)):
        medians, ratios = compare(name, work, make(count), 3 if options.quick else ROUNDS)
        middle = statistics.median(ratios)
        claims.append(
            Claim(
                f"{name}: at least the throughput of Pool.imap with a good chunk size",
                f"{middle:.2f} of it (median of {len(ratios)} rounds, {min(ratios):.2f} to {max(ratios):.2f})",
                middle >= 1.0,
                "The best of three chunk sizes is taken anew in each round, so that luck counts for the pool.",
            )
        )
        rows = [(way, seconds, count / seconds / 1e6) for way, seconds in medians]
        tables.append(Table(("way", "median s", "million items/s"), rows, name.capitalize()))
    report = Report(
        name="regions_throughput-quick" if options.quick else "regions_throughput",
        title="Ordered regions: throughput with trivial work",
        setup=f"{count:,} items, {WORKERS} workers, against multiprocessing.Pool.imap. Both have their processes up "
        "when the clock starts, and both keep order; the region balances and bounds its memory besides.",
        claims=claims,
        claimed_by="target",
        tables=tables,
        parameters={"rounds": 3 if options.quick else ROUNDS},
        seed=0,
    )
    print(report.write(options.out))


if __name__ == "__main__":
    main()
