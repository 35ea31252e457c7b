"""Queries in lockstep: each runs a batch, and then waits until all others have run theirs.

What Spark and the machine take of a batch comes and goes in waves of minutes. Runs that follow one another meet other
waves; in lockstep, all meet the same, so that what two queries differ by is what they do differently.

    round      1            2            3
    batches    b a d c      a d c b      d b c a       one at a time, in an order that is drawn anew

A batch counts from the moment in which its query may go on, to that in which it has told of its progress and what it
plans next is planned: the end of Spark's trigger before, and all of this one but its end. Nothing that a query does is
left to the time in which others run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import headgate as hg

LOOK_SECONDS = 1.0
"""How often a query that does not come back is asked whether it still runs."""


class Gate:
    """A listener that stops its query after each batch, until it may go on."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.query: hg.Query | None = None
        self._went = time.perf_counter()
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._open = False

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """A batch is over."""
        if self.query is not None:
            wait(list(self.query._driver._planning))
        self.seconds.append(time.perf_counter() - self._went)
        self._stopped.release()
        if not self._open:
            self._go.acquire()
        self._went = time.perf_counter()

    def turn(self) -> None:
        """Let the query run one batch."""
        self._go.release()
        self.arrive()

    def arrive(self) -> None:
        """Wait until the query has run a batch. Raises what it failed with, if it did."""
        assert self.query is not None, "the query was not started"
        while not self._stopped.acquire(timeout=LOOK_SECONDS):
            if not self.query.is_active:
                self.query.await_termination()
                raise AssertionError(f"the query {self.query.name!r} ended after {len(self.seconds)} batches")

    def leave(self) -> None:
        """Let the query run to its end."""
        assert self.query is not None, "the query was not started"
        self._open = True
        self._go.release()
        self.query.await_termination()


@dataclass(frozen=True, slots=True, eq=False)
class Lockstep:
    """Queries that take turns."""

    rng: np.random.Generator
    gates: dict[str, Gate] = field(default_factory=dict)

    def join(self, name: str, start: Callable[[Gate], hg.Query]) -> None:
        """Start a query with a gate among its listeners, the last of them, and let it run its first batch."""
        gate = self.gates[name] = Gate()
        gate.query = start(gate)
        gate.arrive()

    def run(self, rounds: int, told: Callable[[int], None] = lambda number: None) -> None:
        """So many batches of every query. ``told`` hears of each round."""
        for number in range(rounds):
            for name in self.rng.permutation(list(self.gates)):
                self.gates[name].turn()
            told(number)
