"""A checkpoint to look at: made by the driver with tasks in this process, so without Spark."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.control import Controller, Entry
from headgate.engine.driver import Driver, Options
from headgate.engine.program import Input, Program, Step, ToOperator, ToOutput
from headgate.engine.tasks import inline
from headgate.operators import Aggregation, count, sum_
from headgate.planners import PLANNERS
from headgate.routing import Assignment, Pins, key_hash
from headgate.state import Checkpoint, Files
from headgate.state.runs import forget_runs

SCHEMA = pa.schema([("word", pa.string()), ("place", pa.int32()), ("amount", pa.int64())])

START = 1_800_000_000.0
"""The clock of the driver: each batch is one second later."""


@dataclass
class Store:
    """A checkpoint that a driver fills batch by batch, with two operators: by word (or ``keys``), and by place and
    word."""

    root: Path
    slots: int = 3
    planner: str | None = None
    ttl_micros: int | None = None
    service_seconds: float = 0.0
    keys: tuple[str, ...] = ("word",)
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        steps = (
            Step(
                Aggregation("words", SCHEMA, self.keys, {"n": count(), "total": sum_("amount")}),
                1,
                (ToOutput("out"),),
                self.ttl_micros,
            ),
            Step(Aggregation("pairs", SCHEMA, ("place", "word"), {"n": count()}), 1, (ToOutput("out2"),)),
        )
        outputs = {"out": steps[0].operator.output_schema, "out2": steps[1].operator.output_schema}
        given = Input("input0", SCHEMA, (ToOperator(0), ToOperator(1)))
        program = Program("wordcount", (given,), steps, outputs, 64)
        checkpoint = Checkpoint(Files.at(self.root / "headgate"), clock=lambda: START)
        checkpoint.claim(self.identity(), run_id="run1", host=socket.gethostname(), pid=os.getpid())
        self.driver = Driver(
            run_tasks=inline,
            spark=None,
            program=program,
            pickled=pickle.dumps(program),
            program_id=str(self.root),
            checkpoint=checkpoint,
            controller=Controller(
                PLANNERS[self.planner]() if self.planner else None, names=["words", "pairs"], groups=64
            ),
            sinks={},
            options=Options(slots=self.slots, wait_for_plan_seconds=5.0, service_seconds=self.service_seconds),
            job_id="job1",
            clock=lambda: START + (self.driver.last.batch + 1 if self.driver.last else 0),
        )

    def identity(self) -> dict[str, object]:
        operators = [
            {"name": "words", "keys": [f"{key} string" for key in self.keys], "state": ["n int64", "total int64"]},
            {"name": "pairs", "keys": ["place int32", "word string"], "state": ["n int64"]},
        ]
        return {"job": "wordcount", "groups": 64, "operators": operators}

    @property
    def checkpoint(self) -> Checkpoint:
        return self.driver.checkpoint

    def batch(self, words: Sequence[str]) -> None:
        """Process these words; place is the length of the word, amount 10."""
        last = self.driver.last
        rows = pa.table(
            {"word": list(words), "place": [len(word) for word in words], "amount": [10] * len(words)}, schema=SCHEMA
        )
        self.driver.batch([rows], 0 if last is None else last.batch + 1)

    def pin(self, word: str, slot: int) -> None:
        """From the next batch on this word is pinned."""

        def change(assignment: Assignment, batch: int) -> tuple[Assignment, list[Entry]]:
            hashes = key_hash(pa.array([word]))
            pinned = assignment.next(pins=Pins.of(np.zeros(1), hashes, [slot]))
            return pinned, [Entry(batch, "hand", "moved by hand", "words", key=word, target=slot)]

        self.driver.change(change)

    def close(self) -> None:
        self.driver.close()
        self.checkpoint.release()


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Store]:
    forget_runs()

    def make(**options: object) -> Store:
        return Store(tmp_path / "ckpt", **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    """Three batches: "the" three times, "a" twice, then "the" is pinned to slot 2 and comes once more."""
    made = make_store()
    made.batch(["the", "a", "the"])
    made.batch(["the", "a", "fox"])
    made.pin("the", 2)
    made.batch(["the"])
    made.close()
    return made
