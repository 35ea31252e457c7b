"""What the tests of the engine share: a query without Spark, whose driver can be crashed and started again."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from headgate import control
from headgate.arrays import I64
from headgate.control import Entry, Verdict
from headgate.engine.driver import Driver, Options, rearranged
from headgate.engine.job import Job
from headgate.engine.orders import Orders, Report
from headgate.engine.payload import REPORT
from headgate.engine.program import FileFormat, Input, Program, Step, ToOperator, ToOutput
from headgate.engine.route import TAG, Router
from headgate.engine.slot import SlotTask
from headgate.engine.staterows import key_part, state_part, state_schema
from headgate.engine.tasks import inline
from headgate.routing import Assignment, Places, key_hash
from headgate.sinks import memory
from headgate.sinks.builtin import MemorySink
from headgate.sources import FileSource
from headgate.state import Checkpoint, Files, Manifest, scan
from headgate.state.runs import forget_runs
from headgate.testing import CRASH_POINTS, CrashPoints

_numbers = count()

Rows = Sequence[Mapping[str, Any]]
Change = Callable[[Assignment], Assignment]

STEP_OPTIONS = ("ttl_micros", "timers", "combine_early", "splits", "lateness_micros", "component", "placed_by")


class Crashed(Exception):  # noqa: N818
    """Raised where a real driver would be killed."""


@dataclass(frozen=True)
class Crash(CrashPoints):
    """Dies at a named point of a batch, the ``turn``-th time it is reached. Pickled or not, there is one count."""

    point: str = ""
    turn: int = 0
    seen: list[str] = field(default_factory=list)

    def reach(self, name: str, batch: int) -> None:
        if name == self.point:
            self.seen.append(name)
            if len(self.seen) == self.turn + 1:
                raise Crashed(f"{name} of batch {batch}")


@dataclass
class Script:
    """Stands for the controller: says what the test wants, and remembers what it was told."""

    split: tuple[I64, ...] | None = None
    place: Change | None = None
    made_for: int | None = None
    observed: list[tuple[int, Sequence[Any], Sequence[Any]]] = field(default_factory=list)
    taken: list[Verdict] = field(default_factory=list)
    told_stale: list[Verdict] = field(default_factory=list)
    arrangements: list[tuple[str, ...]] = field(default_factory=list)

    def observe(self, batch: int, loads: Sequence[Any], state_bytes: Sequence[Any] = ()) -> None:
        self.observed.append((batch, loads, state_bytes))

    def due(self) -> bool:
        return self.split is not None or self.place is not None

    def decide(self, assignment: Assignment, *, split: Sequence[I64] = ()) -> Verdict:
        """What was asked for, once."""
        wanted, place = self.split, self.place
        self.split = self.place = None
        after = None if place is None else place(assignment)
        version = assignment.version if self.made_for is None else self.made_for
        entry = Entry(len(self.observed), "plan", "the test wants it", details={"moved_keys": 1})
        return Verdict(len(self.observed), version, (entry,), assignment=after, split=wanted)

    def rearranged(self, names: Sequence[str], combines: Sequence[bool], stages: Sequence[int]) -> None:
        self.arrangements.append(tuple(names))

    def applied(self, verdict: Verdict) -> None:
        self.taken.append(verdict)

    def stale(self, verdict: Verdict, version: int) -> Entry:
        self.told_stale.append(verdict)
        return Entry(verdict.batch, "stale", f"made for {verdict.made_for}, {version} is in use")


@dataclass
class Bench:
    """A query on one checkpoint. ``driver`` is the one that runs now; ``restart`` makes another."""

    root: Path
    program: Program
    slots: int = 3
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 1000.0
    sinks: dict[str, MemorySink] = field(init=False)
    script: Script = field(default_factory=Script)
    driver: Driver = field(init=False)
    identity: str = field(default_factory=lambda: f"program {next(_numbers)}")
    told: list[dict[str, Any]] = field(default_factory=list)
    warm: bool = True
    """Whether the first batch of a driver is looked at by the controller; no worker has to start here."""

    def __post_init__(self) -> None:
        self.sinks = {output: memory() for output in self.program.outputs}
        self.restart()

    def restart(self, **changed: Any) -> Driver:
        """A new driver on the same checkpoint, as after a crash or a stop; nothing in memory is left but the sinks."""
        forget_runs()
        self.options |= changed
        checkpoint = Checkpoint(Files.at(self.root))
        run = f"run {next(_numbers)}"
        job = checkpoint.claim({"job": self.program.name}, run_id=run, host="here", pid=os.getpid(), takeover=True)
        self.driver = Driver(
            run_tasks=inline,
            spark=None,
            program=self.program,
            pickled=cloudpickle.dumps(self.program),  # type: ignore[no-untyped-call]
            program_id=self.identity,
            checkpoint=checkpoint,
            controller=self.script,  # type: ignore[arg-type]
            sinks={output: (sink,) for output, sink in self.sinks.items()},
            options=Options(slots=self.slots, wait_for_plan_seconds=30.0, **self.options),
            job_id=job[:8],
            clock=lambda: self.seconds,
            on_progress=self.told.append,
        )
        self.driver._warm = self.warm
        return self.driver

    def option(self, **changed: Any) -> None:
        """Other options for the driver that runs."""
        self.options |= changed
        self.driver.options = replace(self.driver.options, **changed)

    def change(self, *changes: Change) -> None:
        """Change the assignment at the next boundary."""
        for change in changes:
            self.driver.change(partial(_unexplained, change))

    def disturb(self, event: str, slot: int, seed: int, keys: Sequence[str] = ()) -> None:
        """What must not change any result: a restart now, or moves, pins, another number of slots or another way to
        compute at the next boundary; or a crash in the next batch, which ``survived`` runs. Any other event is none."""
        if event == "restart":
            self.restart()
            self.driver.run_tasks = scrambled(seed)
        elif event == "move":
            self.change(partial(self._moved, to=slot, groups=range(slot, 8, 2)))
        elif event == "move last":
            self.change(partial(self._moved, to=slot, groups=range(slot, 8, 2), last=True))
        elif event == "pin" and keys:
            self.change(partial(self._moved, to=slot, keys=key_hash(pa.array([keys[slot], keys[slot + 1]])).tolist()))
        elif event == "resize":
            self.change(lambda assignment: control.resized(assignment, 1 + slot))
        elif event == "rearrange":
            self._rearrange(sharing=slot % 2 == 0)
        elif event == "crash":
            self.driver.crash = Crash(point=CRASH_POINTS[seed % len(CRASH_POINTS)])

    def _rearrange(self, *, sharing: bool) -> None:
        """What is left to the engine goes the other way: how windows are computed, or whether halves are apart."""
        driver = self.driver
        if sharing:
            left = {number for number, step in enumerate(driver.program.steps) if step.decides_sharing}
            driver.per_window = driver.per_window.symmetric_difference(left)
            return
        for pair in (pair for pair in driver.program.pairs if pair.auto):
            way = Program.put_together if driver.program.apart(pair) else Program.taken_apart
            driver.arrange(rearranged(pair, way, Entry(0, "fused", "the test wants it")))

    def survived(self, frame: Sequence[pa.Table], number: int, seed: int, **options: Any) -> None:
        """Run a batch; if the driver crashes in it, another one runs it again."""
        try:
            self.run(frame, number, **options)
        except Crashed:
            self.restart()
            self.driver.run_tasks = scrambled(seed)
            self.run(frame, number, **options)
        self.driver.crash = CrashPoints()

    def _moved(self, assignment: Assignment, *, to: int, last: bool = False, **what: Any) -> Assignment:
        """Groups or keys of the first component, or of the last one, elsewhere."""
        together = self.driver.together
        operator = len(together.components) - 1 if last else 0
        planned = control.moved(together.planned(assignment), to % assignment.slots, operator=operator, **what)
        return together.spread(planned)

    def frame(self, *parts: Rows, schema: pa.Schema | None = None) -> list[pa.Table]:
        """Partitions of a batch of the first input."""
        schema = schema or self.program.inputs[0].schema
        return [pa.Table.from_pylist([dict(row) for row in part], schema=schema) for part in parts]

    def tagged(self, *inputs: Rows, parts: int = 2) -> list[pa.Table]:
        """A batch of several inputs as Spark hands it over: rows of all in every partition, told apart by a tag."""
        made = []
        for part in range(parts):
            mine = [rows[part::parts] for rows in inputs]
            tags = [number for number, rows in enumerate(mine) for _ in rows]
            columns: dict[str, Any] = {TAG: pa.array(tags, pa.int32())}
            for number, given in enumerate(self.program.inputs):
                values = [dict(row) if other == number else None for other, rows in enumerate(mine) for row in rows]
                columns[f"{TAG}{number}"] = pa.array(values, pa.struct(list(given.schema)))
            made.append(pa.table(columns))
        return made

    def batch(self, *parts: Rows, number: int | None = None, **options: Any) -> dict[str, list[dict[str, Any]]]:
        """Run the next batch (or that one), and give what every output got for it."""
        number = self.next if number is None else number
        self.run(self.frame(*parts), number, **options)
        return {output: self.results(output, number) for output in self.sinks}

    def run(self, frame: Sequence[pa.Table], number: int, **options: Any) -> None:
        """Run a batch, and wait until the controller has looked at it."""
        self.driver.batch(frame, number, **options)
        wait(self.driver._planning)

    @property
    def next(self) -> int:
        return 0 if self.driver.last is None else self.driver.last.batch + 1

    @property
    def last(self) -> Manifest:
        assert self.driver.last is not None
        return self.driver.last

    def results(self, output: str, number: int) -> list[dict[str, Any]]:
        """The rows that a sink has of one batch, in an order of their own."""
        table = self.sinks[output]._batches.get(number)
        return [] if table is None else in_order(table.to_pylist())

    def state(self, operator: int = 0) -> dict[Any, dict[str, Any]]:
        """Key -> state of an operator as the last manifest has it; a key must lie once, and with its owner."""
        step = self.program.steps[operator]
        schema = state_schema(step.operator)
        places = Places(self.last.assignment, operator, self.last.shared[operator])
        owners = places.owners()
        found: dict[Any, dict[str, Any]] = {}
        for slot, refs in self.last.layout.of_operator(operator).items():
            for place, table in scan(self.driver.checkpoint.files, refs, schema):
                assert (owners[place] == slot).all(), "a slot reads only what it owns"
                hashes = step.placing(key_part(table, step.operator), table.column(0).to_numpy())
                assert (places.of(hashes) == place).all(), "a key lies in its place"
                keys = key_part(table, step.operator).to_pylist()
                states = state_part(table, step.operator).to_pylist()
                for key, state in zip(keys, states, strict=True):
                    name = next(iter(key.values())) if len(key) == 1 else tuple(key.values())
                    assert name not in found, "a key lies in one place"
                    found[name] = state
        return found

    def counted(self, operator: int = 0) -> dict[int, int]:
        """Place -> rows, as the last manifest counts them; places without any are left out."""
        rows = self.last.counts[operator].rows
        assert (self.last.counts[operator].bytes >= 0).all()
        return {place: int(rows[place]) for place in range(len(rows)) if rows[place]}


def _unexplained(change: Change, assignment: Assignment, _: int) -> tuple[Assignment, list[Entry]]:
    return change(assignment), []


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows sorted by what they say."""
    return sorted(rows, key=repr)


def _routed(orders: Orders, part: int, rows: pa.Table) -> Iterable[pa.RecordBatch]:
    return Router(orders, part).run(iter(rows.to_batches()))


def _slotted(orders: Orders, slot: int, depth: int, rows: list[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return SlotTask(orders, slot, depth).run(iter(rows))


def scrambled(seed: int) -> Callable[[Sequence[pa.Table], Orders], list[Report]]:
    """Tasks that run in any order and see their payloads in any order; some run twice, and the first attempt counts or
    the second. As Spark may do it."""
    chance = random.Random(seed)

    def attempts(run: Callable[[], Iterable[pa.RecordBatch]]) -> list[pa.RecordBatch]:
        made = [list(run()) for _ in range(chance.choice([1, 1, 2]))]
        return chance.choice(made)

    def run(frame: Sequence[pa.Table], orders: Orders) -> list[Report]:
        sent: list[pa.RecordBatch] = []
        for part in chance.sample(range(len(frame)), len(frame)):
            sent += attempts(partial(_routed, orders, part, frame[part]))
        slots = orders.assignment.slots
        for depth in range(1, orders.load().depth + 1):
            passed: list[pa.RecordBatch] = []
            for slot in chance.sample(range(slots), slots):
                mine = [row for row in sent if row.column(0)[0].as_py() == slot]
                chance.shuffle(mine)
                passed += attempts(partial(_slotted, orders, slot, depth, mine))
            sent = passed
        chance.shuffle(sent)
        return [pickle.loads(row.column(4)[0].as_buffer()) for row in sent if row.column(1)[0].as_py() == REPORT]

    return run


def one_operator(
    operator: Any, *, schema: pa.Schema, outputs: Mapping[str, pa.Schema] | None = None, **how: Any
) -> Program:
    """A program of one input and one keyed operator whose results go to the output "out"."""
    of_step = {name: how.pop(name) for name in STEP_OPTIONS if name in how}
    return Program(
        name=how.pop("name", "job"),
        inputs=(Input("in", schema, (ToOperator(0),)),),
        steps=(Step(operator, 1, (ToOutput("out"),), **of_step),),
        outputs={"out": operator.output_schema, **(outputs or {})},
        groups=how.pop("groups", 8),
        **how,
    )


def source(job: Job, schema: pa.Schema, name: str = "in") -> Any:
    """A stream of a job that no Spark is needed for."""
    return job.source(FileSource(None, FileFormat("parquet", schema)), name)  # type: ignore[arg-type]


def of_job(root: Path, job: Job, options: Mapping[str, Any] | None = None, **how: Any) -> Bench:
    """A query of the job as it was put together, with rows that come from memory."""
    program = job.program()
    program = replace(program, inputs=tuple(replace(one, files=None) for one in program.inputs))
    return Bench(root, program, options={"slack_micros": job.slack_micros, **(options or {})}, **how)


@pytest.fixture(autouse=True)
def _no_open_runs() -> None:
    forget_runs()


@pytest.fixture(scope="session")
def engine() -> Any:
    """The helpers of this file, by name: tests cannot import a conftest."""
    return SimpleNamespace(
        Bench=Bench, Crash=Crash, Crashed=Crashed, Script=Script, in_order=in_order, scrambled=scrambled,
        of_job=of_job, one_operator=one_operator, source=source,
    )  # fmt: skip
