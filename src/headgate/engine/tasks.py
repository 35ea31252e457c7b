"""The tasks of a batch on Spark: one job, a stage that routes, a stage of slots per depth.

``inline`` runs the same tasks in this process, without Spark: for tests, and to step through a job with a debugger.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.engine.orders import Orders, Report, unpacked
from headgate.engine.payload import EXCHANGE_SCHEMA, REPORT
from headgate.engine.workers import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SETTINGS = {
    # One job per batch: adaptive execution would run its stages as jobs of their own.
    "spark.sql.adaptive.enabled": "false",
    # Rows cross to Python in batches of this size; the default of 10,000 costs a turn per 10,000 rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
}
"""Set on the session of the query's batches: a copy of the user's, or, for a static source, the user's own, which gets
its settings back afterwards."""

INDETERMINATE = "shuffle map stage with indeterminate output was failed and retried"
"""What Spark says when an executor is lost with rows that others have used, and the second making of them differs."""

ATTEMPTS = 4
"""How often a batch is tried when Spark says so, as often as Spark tries a task. Reports hold times and names of files,
so they always differ; and since no attempt changes what another sees, the batch can simply run again."""


class SparkTasks:
    """Runs the tasks of each batch as one Spark job."""

    def __init__(self) -> None:
        self._configured: object = None

    def __call__(self, frame: DataFrame, orders: Orders) -> list[Report]:
        """The reports of all tasks. Raises what Spark makes of a task's failure."""
        from pyspark.sql import functions as sf
        from pyspark.sql.pandas.types import from_arrow_schema

        exchange = from_arrow_schema(EXCHANGE_SCHEMA)
        session = frame.sparkSession
        if self._configured is not session:
            for name, value in SETTINGS.items():
                session.conf.set(name, value)
            self._configured = session
        program = orders.load()
        session.sparkContext.setJobDescription(f"headgate {program.name}: batch {orders.batch}")
        packed = orders.packed()
        for attempt in range(1, ATTEMPTS + 1):
            stage = frame.mapInArrow(route_function(packed), exchange)
            for depth in range(1, program.depth + 1):
                stage = stage.repartitionById(orders.assignment.slots, sf.col("slot"))
                stage = stage.mapInArrow(slot_function(packed, depth), exchange)
            try:
                rows = stage.collect()
                break
            except Exception as error:
                if attempt == ATTEMPTS or INDETERMINATE not in str(error):
                    raise
        return [pickle.loads(row.payload) for row in rows if row.operator == REPORT]


def inline(frame: Sequence[pa.RecordBatch | pa.Table], orders: Orders) -> list[Report]:
    """The same tasks in this process: each element of ``frame`` is a partition of the batch."""
    from headgate.engine.route import Router
    from headgate.engine.slot import SlotTask

    orders = unpacked(orders.packed())  # what does not travel well is found here too
    slots = orders.assignment.slots
    sent: list[pa.RecordBatch] = []
    for part, rows in enumerate(frame):
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        sent += Router(orders, part).run(iter(batches))
    for depth in range(1, orders.load().depth + 1):
        passed: list[pa.RecordBatch] = []
        for slot in range(slots):
            mine = [row for row in sent if row.column(0)[0].as_py() == slot]
            passed += SlotTask(orders, slot, depth).run(iter(mine))
        sent = passed
    return [pickle.loads(row.column(4)[0].as_buffer()) for row in sent if row.column(1)[0].as_py() == REPORT]


def route_function(orders: bytes) -> Task:
    """The first stage: one call per partition of the batch. ``orders`` are packed."""

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.engine.route import Router

        yield from Router(unpacked(orders), _partition()).run(batches)
        settle()

    return route


def slot_function(orders: bytes, depth: int) -> Task:
    """A stage of slots: one call per slot, its number being that of the partition. ``orders`` are packed."""

    def slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.engine.slot import SlotTask

        yield from SlotTask(unpacked(orders), _partition(), depth).run(batches)
        settle()

    return slot


def _partition() -> int:
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    assert context is not None, "runs in a Spark task"
    return int(context.partitionId())
