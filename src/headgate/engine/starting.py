"""Starting a job: options are checked, the checkpoint is claimed, and a query takes over from there."""

from __future__ import annotations

import math
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, get_args

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.control import Controller, Policy
from headgate.durations import Duration, micros_of
from headgate.engine.driver import Driver, Options
from headgate.engine.options import check_whole
from headgate.engine.ordered import Regions, spark_schema, tagged
from headgate.engine.program import Program
from headgate.engine.query import Listener, Query, planner_of
from headgate.engine.tasks import SparkTasks
from headgate.errors import JobError
from headgate.planners import Limits, Planner
from headgate.state import Checkpoint, Files, Migration
from headgate.testing import CrashPoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.engine.job import Job

MIN_LOAD_SECONDS = 0.2
"""Slots that are busy for less than this in a batch are not levelled: the fixed cost of a batch is some times that, and
what a tenth of a second of work costs is mostly noise (seen: two even slots were taken for uneven by a third)."""


def start(
    job: Job,
    spark: SparkSession,
    *,
    checkpoint: str,
    slots: int | None = None,
    balance: Planner | str | None = "mixed",
    limits: Limits | None = None,
    policy: Policy | None = None,
    trigger: str | None = None,
    migration: Migration = "auto",
    statistics: bool = True,
    keep_versions: int = 10,
    listeners: Iterable[Listener | Callable[[dict[str, Any]], None]] = (),
    metrics_port: int | None = None,
    heartbeat: bool = False,
    takeover: bool = False,
    cache: str | None = None,
    sync: bool = False,
    wait_for_plan: Duration = 0,
    max_pause: Duration | None = None,
    service_time: Duration | Mapping[str, Duration] = 0,
) -> Query:
    """Run a job.

    ``checkpoint``      a directory, local or any URI that Arrow opens; the same one to go on after a stop or a crash
    ``slots``           how many slots; None: as before, or Spark's default parallelism
    ``balance``         the planner that levels the load, or its name; None: plain hashing, nothing moves
    ``limits``          what a plan may do; ``policy`` when one is made, and what it must gain
    ``trigger``         None: as fast as it goes; "10 seconds": at this pace; "available now": what there is, then stop
    ``migration``       how key groups take their state along: "auto" (the cheapest allowed way), "manifest" (by
                        reference), "instant" (not at all, where windows are split), "smooth" (windows that have begun
                        stay where they are) or "copy" (rewritten while the batch waits, the papers' way)
    ``statistics``      False: measure nothing per key; then nothing can be balanced
    ``keep_versions``   versions of the state that stay readable
    ``metrics_port``    serve Prometheus metrics on this port of the loopback address
    ``heartbeat``       run batches also when no rows arrive, so that timers fire on time
    ``takeover``        start although another run seems to own the checkpoint
    ``cache``           where a host keeps its copies of runs, if the checkpoint is not on a local disk
    ``sync``            flush commits to the disk (fsync), to survive a power cut and not only a crash
    ``wait_for_plan``   how long a batch may wait for a plan that is being made; 0: planning never delays data
    ``max_pause``       what moves of windows with split="auto" may cost per period before they are taken apart
    ``service_time``    emulation: every row takes this long in its slot; or operator -> how long its rows take

    Raises ``JobError`` for a job or an option that cannot work, ``CheckpointError`` for a checkpoint that belongs to
    another job or is in use.
    """
    program = job.program()
    if slots is not None:
        check_whole("slots", slots)
    if migration not in get_args(Migration):
        raise JobError.option("migration", f"one of {', '.join(map(repr, get_args(Migration)))}", migration)
    check_whole("keep_versions", keep_versions, least=2)
    service_seconds = _service_seconds(service_time, [step.operator.name for step in program.steps])
    planner = planner_of(balance)
    if planner is not None and not statistics:
        raise JobError.option("statistics", "on for a job that is to be balanced", statistics)
    processing = _trigger(trigger)
    frame, streams = _frame(job, spark, program, heartbeat)
    if "://" not in checkpoint:
        checkpoint = os.path.abspath(checkpoint)  # Spark would take it from where its own process stands
    policy = policy or Policy(min_load=MIN_LOAD_SECONDS)
    if limits is not None:
        policy = replace(policy, limits=limits)
    store = Checkpoint(Files.at(f"{checkpoint}/headgate", cache=cache, sync=sync))
    run_id = uuid.uuid4().hex
    query: Query | None = None
    job_id = store.claim(job.identity(), run_id=run_id, host=socket.gethostname(), pid=os.getpid(), takeover=takeover)
    try:
        pickled: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        controller = Controller(
            planner,
            policy,
            names=program.component_names or [""],
            groups=program.groups,
            combines=program.splitting or [False],
            stages=program.depths or [0],
        )
        driver = Driver(
            run_tasks=SparkTasks(),
            spark=spark,
            program=program,
            pickled=pickled,
            program_id=run_id,
            checkpoint=store,
            controller=controller,
            sinks=job.sinks(),
            options=Options(
                slots=slots or spark.sparkContext.defaultParallelism,
                slack_micros=job.slack_micros,
                migration=migration,
                statistics=statistics,
                service_seconds=service_seconds,
                keep_versions=keep_versions,
                wait_for_plan_seconds=micros_of(wait_for_plan, "wait_for_plan") / 1e6,
                max_pause_seconds=math.inf if max_pause is None else micros_of(max_pause, "max_pause") / 1e6,
            ),
            job_id=job_id[:8],
            crash=CrashPoints.from_environment(),
            regions=Regions(spark, program.inputs, regions) if (regions := job.regions()) else None,
        )
        query = Query(job, driver)
        if slots is not None:
            # Does nothing unless the last commit, or the plan of a batch that failed, has another number.
            query.set_slots(slots)
        for listener in listeners:
            query.add_listener(listener)
        if metrics_port is not None:
            from headgate.metrics import PrometheusListener

            metrics = PrometheusListener(metrics_port, job=job.name)
            query.add_listener(metrics)
            query._at_end.append(metrics.close)
        query._begin(frame, streams, f"{checkpoint}/spark", processing)
    except BaseException:
        if query is not None:
            query._close()
        store.release()
        raise
    return query


def _service_seconds(given: Duration | Mapping[str, Duration], operators: Sequence[str]) -> float | dict[str, float]:
    """``service_time`` in seconds. Raises ``JobError`` for an operator that the job does not have."""
    if not isinstance(given, Mapping):
        return micros_of(given, "service_time") / 1e6
    for name in given:
        if name not in operators:
            raise JobError.unknown_operator("service_time", name, operators)
    return {name: micros_of(time, f"service_time of {name!r}") / 1e6 for name, time in given.items()}


def _trigger(trigger: str | None) -> dict[str, Any]:
    if trigger is None:
        return {}
    if not isinstance(trigger, str):
        raise JobError.option("trigger", '"available now" or a duration such as "10 seconds"', trigger)
    if trigger.lower().replace("_", " ") in ("available now", "availablenow", "once"):
        return {"availableNow": True}
    micros_of(trigger, "trigger")
    return {"processingTime": trigger}


def _frame(job: Job, spark: SparkSession, program: Program, heartbeat: bool) -> tuple[DataFrame, bool]:
    """All inputs as one DataFrame: the only one as it is, several as a tagged union."""
    given = [node for node in job._inputs if node.frame is not None]  # the others are results of regions
    frames = [node.frame for node in given if node.frame is not None]
    streaming = [frame.isStreaming for frame in frames]
    if any(streaming) and not all(streaming):
        names = [node.name for node in given]
        raise JobError.mixed_sources(names[streaming.index(True)], names[streaming.index(False)])
    if not frames:
        raise JobError.empty(job.name)
    if len(program.inputs) == 1:
        union = frames[0]
    else:
        kinds = [spark_schema(given) for given in program.inputs]
        parts = [tagged(node.frame, at, kinds) for at, node in enumerate(job._inputs) if node.frame is not None]
        union = reduce(DataFrame.unionByName, parts)
    if heartbeat and streaming[0]:
        # A source that moves on by itself, so that Spark runs batches, and of which no row is let through.
        beat = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
        nulls = (sf.lit(None).cast(column.dataType).alias(column.name) for column in union.schema)
        union = union.unionByName(beat.filter("value < 0").select(*nulls))
    return union, streaming[0]
