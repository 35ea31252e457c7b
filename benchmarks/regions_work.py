"""What the workers of the region benchmarks do. Light: every worker process imports it.

A worker's speed follows from its number and from the position of the item, so that a load that leaves "at an eighth of
the experiment" leaves at the same item in every run, however long the run takes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

WORKER = "REGION_BENCHMARK_WORKER"
"""The environment variable that tells a worker process its number."""


@dataclass(frozen=True, slots=True)
class Work:
    """The function of a region: gives the item back, an item's cost later.

    ``cost``: seconds of service time of an item, spent asleep; or, where ``multiplies`` is not 0, that many integer
    multiplications. ``slowdowns``: what each worker takes relative to that. ``until``: items from this position on cost
    every worker the same.
    """

    cost: float
    slowdowns: tuple[float, ...]
    until: int | None = None
    multiplies: int = 0

    def __call__(self, item: int) -> int:
        """The item, after the time that this worker takes for it."""
        factor = self.slowdowns[_number()] if self.until is None or item < self.until else 1.0
        if self.multiplies:
            multiply(int(self.multiplies * factor))
        else:
            time.sleep(self.cost * factor)
        return item


def multiply(times: int) -> int:
    """So many integer multiplications, the work of the paper's experiments."""
    product = 1
    for factor in range(times):
        product = (product * (factor | 1)) & 0xFFFF_FFFF
    return product


_worker = -1


def _number() -> int:
    global _worker
    if _worker < 0:
        _worker = int(os.environ[WORKER])
    return _worker
