"""The runs of the demonstration: one word count on local Spark, started again and again with other settings.

Nothing of Spark is loaded before ``Showcase.open``: the other commands need neither Spark nor Java.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.cli.comparison import RunRecord
from headgate.cli.runs import build, warm_up
from headgate.cli.words import WordStream
from headgate.control import Entry
from headgate.errors import HeadgateError, InputError
from headgate.planners import Planner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.engine.query import Query

WAIT_FOR_PLAN = "500 milliseconds"
"""How long a batch may wait for a plan: planning here takes some 20 ms, and batches follow each other at once, so that
without it every plan would come one batch later. What is waited counts in the batch time."""

POLL_SECONDS = 0.2
"""How often the screen is drawn anew."""

SCHEMA = "word string"


def need_spark() -> None:
    """``InputError`` where PySpark or Java is missing, with what to do about it."""
    if find_spec("pyspark") is None:
        raise InputError(
            "the demonstration runs on Spark, and pyspark is not installed: pip install 'headgate[spark]', or try "
            "headgate race, which needs no Spark"
        )
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and os.access(f"{home}/bin/java", os.X_OK))):
        raise InputError(
            "the demonstration runs on Spark, which needs Java 17 or newer, and there is none: install one (on Debian: "
            "apt-get install openjdk-17-jre-headless) or set JAVA_HOME, or try headgate race, which needs no Java"
        )


class Showcase:
    """A Spark session and a stream of words on disk. ``open``, then ``run`` as often as you like, then ``close``."""

    def __init__(self, stream: WordStream, *, slots: int, service_ms: float, planner: str, work: Path) -> None:
        self.stream = stream
        self.slots = slots
        self.service_ms = service_ms
        self.planner = planner
        self.work = work
        self.log = work / "spark.log"
        self._spark: SparkSession | None = None

    def open(self, told: Callable[[str], None] = lambda text: None) -> None:
        """Write the stream, start Spark, and let every worker load and compile what it needs."""
        need_spark()
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            os.environ.setdefault(name, sys.executable)
        told("starting Spark, compiling (the first time takes longer)")
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(self._started)
            # Compiled once here and kept on disk; otherwise each worker would compile the same for itself.
            self.stream.write(self.work / "words")
            warm_up([self._planner()])
            _rehearse(self.work / "rehearsal", self.slots)
            self._spark = starting.result()
        told(f"starting {self.slots} Python workers")
        warm = WordStream(words=200, rows=200 * self.slots, batches=2, z=0.0, every=2, seed=self.stream.seed)
        warm.write(self.work / "warm-words")
        self._query("warm-up", "warm-words", None, service_ms=0.0, told=lambda progress: None).await_termination()

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def checkpoint(self, name: str) -> Path:
        return self.work / name

    def run(
        self,
        name: str,
        title: str,
        *,
        balanced: bool,
        watch: Callable[[list[dict[str, Any]], list[Entry]], None] = lambda recent, entries: None,
    ) -> RunRecord:
        """Count the words of the stream; ``watch`` is called now and then with what happened so far.

        Raises what made the query fail.
        """
        recent: list[dict[str, Any]] = []
        planner = self._planner() if balanced else None
        query = self._query(name, "words", planner, service_ms=self.service_ms, told=recent.append)
        entries: list[Entry] = []
        seen = 0
        try:
            while not query.await_termination(POLL_SECONDS):
                if len(recent) > seen:
                    seen = len(recent)
                    entries = query.journal()
                watch(list(recent), entries)
        except KeyboardInterrupt:
            query.stop()
            raise
        entries = query.journal()
        watch(list(recent), entries)
        return RunRecord(name, title, tuple(recent), tuple(entries), self._counted)

    def _planner(self) -> Planner:
        return build(self.planner, parameters={"seed": self.stream.seed})

    def _started(self) -> SparkSession:
        from pyspark.sql import SparkSession

        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
            "spark.sql.shuffle.partitions": str(self.slots),
            "spark.sql.warehouse.dir": str(self.work / "warehouse"),
            "spark.local.dir": str(self.work / "local"),
        }
        builder = SparkSession.builder.master(f"local[{self.slots}]").appName("headgate demo")
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _stderr_to(self.log):
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session

    def _query(
        self,
        name: str,
        words: str,
        planner: Planner | None,
        *,
        service_ms: float,
        told: Callable[[dict[str, Any]], None],
    ) -> Query:
        from headgate import sinks, sources
        from headgate.engine.job import Job

        assert self._spark is not None, "open() comes first"
        job = Job("words")
        rows = job.source(
            sources.files(self._spark, str(self.work / words), schema=SCHEMA, max_files_per_trigger=1), "words"
        )
        self._results = sinks.memory()
        counts = rows.key_by("word").process(
            _counter(), state={"count": 0}, output="word string, count long", name="count"
        )
        counts.write_to(self._results)
        return job.start(
            self._spark,
            checkpoint=str(self.checkpoint(name)),
            slots=self.slots,
            balance=planner,
            trigger="available now",
            service_time=f"{round(1000 * service_ms)} microseconds",
            wait_for_plan=WAIT_FOR_PLAN,
            listeners=[told],
        )

    @property
    def _counted(self) -> dict[str, int]:
        """The last count of each word that the sink got; counts only grow."""
        table = self._results.to_arrow()
        if not table.num_rows:
            return {}
        last = table.group_by("word").aggregate([("count", "max")])
        return dict(zip(last["word"].to_pylist(), last["count_max"].to_pylist(), strict=True))


def _counter() -> Callable[..., Any]:
    """The keyed function. Made here, so that it travels to the workers as it is, and they need not load this module."""

    def count(word: str, rows: Any, state: dict[str, int]) -> dict[str, object]:
        state["count"] += len(rows)
        return {"word": word, "count": state["count"]}

    return count


def _rehearse(directory: Path, slots: int) -> None:
    """Two small batches with a move between them, in this process: compiles what the tasks will need."""
    from pyspark import cloudpickle

    from headgate import control
    from headgate.control import Controller
    from headgate.engine.driver import Driver, Options
    from headgate.engine.program import Input, Program, Step, ToOperator, ToOutput
    from headgate.engine.tasks import inline
    from headgate.operators import PerKey
    from headgate.routing import key_hash
    from headgate.state import Checkpoint, Files

    schema = pa.schema([("word", pa.string())])
    operator = PerKey.of(
        _counter(),
        name="count",
        input_schema=schema,
        key_names=("word",),
        state={"count": 0},
        output="word string, count long",
    )
    step = Step(operator, 1, (ToOutput("output0"),))
    program = Program(
        "rehearsal", (Input("words", schema, (ToOperator(0),)),), (step,), {"output0": operator.output_schema}, 64
    )
    checkpoint = Checkpoint(Files.at(directory))
    checkpoint.claim({"job": "rehearsal"}, run_id="rehearsal", host=socket.gethostname(), pid=os.getpid())
    driver = Driver(
        run_tasks=inline,
        spark=None,
        program=program,
        pickled=cloudpickle.dumps(program),  # type: ignore[no-untyped-call]
        program_id="rehearsal",
        checkpoint=checkpoint,
        controller=Controller(None, names=["count"], groups=64),
        sinks={},
        options=Options(slots=slots),
        job_id="rehearsal",
    )
    rows = pa.table({"word": [f"w{number % 40}" for number in range(400)]})
    hashes = key_hash(pa.array(["w1"]))
    for batch in range(3):
        driver.change(lambda assignment, _: (control.moved(assignment, 0, keys=hashes, groups=(1,)), []))
        driver.batch([rows], batch)
    driver.close()
    checkpoint.release()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What this process and those it starts meanwhile write to stderr goes to a file: Spark's notices do not belong on
    a screen that is drawn anew."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def explained(error: Exception, log: Path) -> HeadgateError:
    """The same fault in one line, with the place of Spark's own words."""
    said = str(error).strip() or type(error).__name__
    if not isinstance(error, HeadgateError):
        said = f"{type(error).__name__}: {said.splitlines()[0]}"
    return HeadgateError(f"the demonstration failed: {said}; what Spark said is in {log}")
