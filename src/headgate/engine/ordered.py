"""Ordered regions inside a job: a function over the rows of a batch, in order, on workers that are tasks of Spark.

    rows of an input ──collected, in order──> splitter ─┬─ TCP ──> worker (a barrier task) ─┬─> merger
         (Spark job)                          (driver)  └─ TCP ──> worker                  ─┘     │
                                                                                                  v
    the batch's Spark job <── one more input of the batch, in one partition <── results, in order ┘

A region runs before the Spark job of its batch, in a barrier job of its own: either all its workers run or none, and
they give their cores back before the slots need them. A worker is the Python process of its task; Spark keeps these
processes, so what a function has loaded (a model, a connection) is there in the next batch. Functions are pure and
Spark replays the same rows for the same batch, so a batch that is run again after a crash gets the same results, and
what reaches the sinks stays exactly once. What the balancer has learnt is kept from batch to batch.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.engine.program import Branch, FileFormat, Input, flow
from headgate.engine.reading import read_file
from headgate.engine.route import TAG
from headgate.errors import JobError, RegionError, UserFunctionError
from headgate.regions import tcp
from headgate.regions.balance import Balancer, Sample, View
from headgate.regions.blocking import BlockingRate
from headgate.regions.greeting import Role
from headgate.regions.processes import SECRET_BYTES, Process
from headgate.regions.region import Region
from headgate.regions.worker import serve

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE = 8_192
"""Results that are made Arrow rows together."""

LOOK_SECONDS = 0.2
"""How often somebody who waits for a worker looks whether its job still runs."""

GATE_BACKLOG = 4
"""Connections of one worker that may wait: its own, and one of a predecessor that Spark runs again."""

RESTARTS = 3
"""How often the job of the workers is started anew: where one of its tasks fails, Spark ends them all."""


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """An ordered region of a job.

    ``source`` is the number of the input whose rows it takes, after the steps of ``path``; ``target`` that of the input
    as which its results go on. ``given`` and ``made`` are the columns before and after.
    """

    name: str
    source: int
    path: tuple[Branch, ...]
    given: pa.Schema
    target: int
    made: pa.Schema
    function: Callable[[dict[str, Any]], Mapping[str, Any]]
    workers: int
    options: Mapping[str, Any] = field(default_factory=dict)


class Shipped:
    """A function on its way to the workers, pickled as PySpark pickles all other functions of a job; unpacked at the
    first call."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._function: Callable[[dict[str, Any]], Any] | None = None

    @classmethod
    def of(cls, function: Callable[[dict[str, Any]], Any]) -> Shipped:
        from pyspark import cloudpickle

        return cls(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]

    def __call__(self, row: dict[str, Any]) -> Any:
        if self._function is None:
            from pyspark import cloudpickle

            self._function = cloudpickle.loads(self._packed)
        return self._function(row)

    def __reduce__(self) -> tuple[type[Shipped], tuple[bytes]]:
        return Shipped, (self._packed,)


class Lasting:
    """A balancer for a region that comes again with every batch: what it learnt in one counts in the next.

    To the balancer inside, the batches are one region: time goes on where it stopped, and so do its counts.
    """

    def __init__(self, inside: Balancer) -> None:
        self._inside = inside
        self._before = self._last = Sample(0.0, np.zeros(0), np.zeros(0, dtype=np.bool_), 0)

    def start(self, connections: int) -> NDArray[np.int64]:
        if connections != len(self._last.blocked):
            self._last = Sample(0.0, np.zeros(connections), np.ones(connections, dtype=np.bool_), 0)
            weights = self._inside.start(connections)
        else:
            weights = self._inside.view().weights
        self._before = self._last
        return weights

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        self._last = sample.after(self._before)
        return self._inside.observe(self._last)

    def view(self) -> View:
        return self._inside.view()


class Regions:
    """Runs the regions of a job before each of its batches. One per query."""

    def __init__(self, spark: SparkSession, inputs: Sequence[Input], regions: Sequence[Ordered]) -> None:
        self._context = spark.sparkContext
        self._inputs, self._regions = tuple(inputs), tuple(regions)
        self._balancers = [Lasting(each.options.get("balance") or BlockingRate()) for each in regions]
        self.progress: list[dict[str, Any]] = []
        """What each region did in the last batch."""
        room = _room(self._context)
        for each in regions:
            if each.workers > room:
                raise JobError.region_room(each.name, each.workers, room)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The frame of a batch, with the results of its regions for the rows that only these use."""
        from pyspark.sql import functions as sf

        self.progress = []
        made: dict[int, pa.Table] = {}
        for each, balancer in zip(self._regions, self._balancers, strict=True):
            made[each.target] = self._made(frame, each, balancer, made.get(each.source))
        kinds = [spark_schema(given) for given in self._inputs]
        used = [number for number, given in enumerate(self._inputs) if given.branches]
        parts = [
            tagged(frame.sparkSession.createDataFrame(table).coalesce(1), number, kinds)
            for number, table in made.items()
            if number in used
        ]
        if sources := [number for number in used if number not in made]:
            parts.insert(0, frame.filter(sf.col(TAG).isin(sources)))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part)
        return whole

    def _made(self, frame: DataFrame, each: Ordered, balancer: Lasting, before: pa.Table | None) -> pa.Table:
        """The results of a region for the rows of a batch, or for those that the region ``before`` it made."""
        started = time.perf_counter()
        if before is not None:
            rows = pa.Table.from_batches(_through(each.path, before), each.given)
        else:
            rows = gathered(frame, self._inputs[each.source], each).toArrow().cast(each.given)
        begun = time.perf_counter()
        tables = [each.made.empty_table()]
        resent = 0
        if rows.num_rows:
            with _Crew(self._context, each) as crew:
                options = {**each.options, "balance": balancer}
                with Region(Shipped.of(each.function), crew.sites, **options) as region:
                    results = region.run(_dicts(rows))
                    tables += _tables(results, each)
                    resent = region.counters().resent
                    crew.close_gates()  # before the region: a worker whose connection ends looks whether it may return
        table = pa.concat_tables(tables)
        view = balancer.view()
        self.progress.append(
            {
                "name": each.name,
                "rows": table.num_rows,
                "seconds": {"collect": round(begun - started, 6), "run": round(time.perf_counter() - begun, 6)},
                "weights": view.weights.tolist(),
                "rates": [round(float(rate), 6) for rate in view.rates],
                "resent": resent,
            }
        )
        return table


def gathered(frame: DataFrame, given: Input, each: Ordered) -> DataFrame:
    """The rows that a region takes, in their order, from the tagged frame of a batch."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = frame.filter(sf.col(TAG) == each.source).select(sf.col(f"{TAG}{each.source}.*"))
    if not each.path and given.files is None:
        return rows
    path, form, schema = each.path, given.files, given.schema

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for table in _read(batch, form, schema):
                yield from _through(path, table)

    return rows.mapInArrow(walk, from_arrow_schema(each.given))


def _read(batch: pa.RecordBatch, form: FileFormat | None, schema: pa.Schema) -> Iterator[pa.Table]:
    table = pa.Table.from_batches([batch])
    if form is None:
        yield table.cast(schema)
        return
    for path in table.column("path").to_pylist():
        yield from read_file(path, form)


def _through(path: tuple[Branch, ...], table: pa.Table) -> list[pa.RecordBatch]:
    """The rows after the steps of a path, which ends in one leaf."""
    if not path:
        return list(table.to_batches())
    made: list[pa.RecordBatch] = []
    flow(path, table, lambda _, rows: made.extend(rows.to_batches()))
    return made


def _dicts(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def _tables(results: Iterable[Mapping[str, Any]], each: Ordered) -> Iterator[pa.Table]:
    """The results as Arrow rows. Raises ``UserFunctionError`` for one that is no row of the declared columns."""
    for first, rows in zip(count(0, ROWS_AT_ONCE), _batched(results, ROWS_AT_ONCE), strict=False):
        for position, row in enumerate(rows, first):
            if not isinstance(row, Mapping) or any(name not in row for name in each.made.names):
                got = f"with {', '.join(map(str, row))}" if isinstance(row, Mapping) else type(row).__name__
                raise UserFunctionError(
                    f"the function of {each.name!r} must return a dict with {', '.join(each.made.names)}, got a "
                    f"{'dict ' if isinstance(row, Mapping) else ''}{got} for row {position} of the batch"
                )
        try:
            yield pa.Table.from_pylist([dict(row) for row in rows], schema=each.made)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            columns = ", ".join(f"{column.name} {column.type}" for column in each.made)
            raise UserFunctionError(
                f"the function of {each.name!r} must give values that fit {columns}, and did not ({error})"
            ) from error


def _batched(results: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of so many; ``itertools.batched`` of Python 3.12."""
    left = iter(results)
    while rows := list(islice(left, size)):
        yield rows


def spark_schema(given: Input) -> Any:
    """The columns of an input as Spark sees them: for files, their names."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if given.files is not None:
        return from_arrow_schema(pa.schema([("path", pa.string()), ("length", pa.int64())]))
    return from_arrow_schema(given.schema)


def tagged(frame: DataFrame, number: int, kinds: Sequence[Any]) -> DataFrame:
    """The rows of one input as rows of the tagged union of all inputs, which have these types."""
    from pyspark.sql import functions as sf

    columns = [sf.lit(number).cast("int").alias(TAG)]
    for other, kind in enumerate(kinds):
        own = sf.struct(*(sf.col(f"`{name}`") for name in frame.columns)) if other == number else sf.lit(None)
        columns.append(own.cast(kind).alias(f"{TAG}{other}"))
    return frame.select(*columns)


def _room(context: SparkContext) -> int:
    """How many tasks this application can run at once."""
    java = context._jsc.sc()
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


@dataclass(slots=True)
class _Gate:
    """Where one worker of a region reports: a port of the driver, open as long as the region runs."""

    name: str
    listening: socket.socket
    secret: bytes
    lost: Callable[[], str | None]
    send_buffer: int | None
    persistent: bool = True

    def open(self, stopping: Callable[[], bool]) -> tuple[socket.socket, Process | None]:
        """The next connection of this worker. Raises ``RegionError`` where its job has ended."""
        while True:
            if stopping():
                raise RegionError("the region is closing")
            try:
                sock, _ = self.listening.accept()
                break
            except TimeoutError:
                said = self.lost()
                if said is not None:
                    raise RegionError(said) from None
        try:
            tcp.tune(sock)
            tcp.buffers(sock, send=self.send_buffer)
            tcp.greet(sock, Role.DRIVER, self.secret, stopping)
        except BaseException:
            sock.close()
            raise
        return sock, None


class _Crew:
    """The workers of a region for one batch: a barrier job with a task per worker."""

    def __init__(self, context: SparkContext, each: Ordered) -> None:
        self._context, self._region = context, each
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._failure: str | None = None
        self._ended = False
        self._group = f"headgate-region-{secrets.token_hex(4)}"
        self.sites: list[_Gate] = []

    def __enter__(self) -> _Crew:
        host = self._context.getConf().get("spark.driver.host", "127.0.0.1")
        bind = self._context.getConf().get("spark.driver.bindAddress", host)
        send = self._region.options.get("send_buffer")
        try:
            for number in range(self._region.workers):
                listening = socket.create_server((bind, 0), backlog=GATE_BACKLOG)
                listening.settimeout(LOOK_SECONDS)
                name = f"worker {number} of {self._region.name}"
                self.sites.append(_Gate(name, listening, self._secret, lambda: self._failure, send))
        except OSError as error:
            self.close_gates()
            raise RegionError(
                f"the region {self._region.name!r} must be able to listen on the driver's address {bind}, and cannot "
                f"({error}): set spark.driver.bindAddress to an address of this machine"
            ) from error
        work = worker_task(host, [site.listening.getsockname()[1] for site in self.sites], self._secret)

        def run() -> None:
            context = self._context
            context.setJobGroup(self._group, f"headgate: workers of {self._region.name}", interruptOnCancel=True)
            for _ in range(1 + RESTARTS):
                try:
                    context.parallelize(range(len(self.sites)), len(self.sites)).barrier().mapPartitions(work).collect()
                    self._failure = "its task on Spark has ended"
                    return
                except Exception as error:
                    self._failure = f"the job of the workers failed: {str(error).strip().splitlines()[0]}"
                if self._ended:
                    return

        self._thread = threading.Thread(target=run, name=self._group, daemon=True)
        self._thread.start()
        return self

    def close_gates(self) -> None:
        """Nobody may come any more; workers that lose their connection now end."""
        for site in self.sites:
            site.listening.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._ended = True
        self.close_gates()
        if error is not None:
            self._context.cancelJobGroup(self._group)
        self._thread.join()


def worker_task(host: str, ports: Sequence[int], secret: bytes) -> Callable[[Iterable[int]], Iterable[int]]:
    """What a barrier task does: serve the region as a worker until its gate is closed.

    Workers of one executor have the same gates in every batch.
    """

    def work(_: Iterable[int]) -> Iterable[int]:
        import os

        from pyspark import BarrierTaskContext

        context: Any = BarrierTaskContext.get()
        # Numbers that stay with the executors: Spark may hand out partitions otherwise in the next batch.
        everyone = sorted((info.address, number) for number, info in enumerate(context.getTaskInfos()))
        rank = [number for _, number in everyone].index(context.partitionId())
        served = 0
        while True:
            try:
                sock = tcp.connect(host, ports[rank], None, None, lambda: False)
            except OSError:
                break
            with sock:
                tcp.greet(sock, Role.WORKER, secret, lambda: False)
                serve(sock, os.getppid(), stays=True)
            served += 1
        return [served]

    return work
