"""What the experiments of enorm share: the simple job in its forms, runs that are steered, and checks of results.

    split      a compute (partials of a minute) and a consolidate (windows of them) as two components
    combined   the same operators as one component
    whole      one operator that does both, headgate's own form

Ways to move key groups, in the paper's words and in headgate's:

    instant      migration="instant" with a split job     disruptive   migration="copy"
    smooth       migration="smooth" with a whole one       by manifest  migration="manifest", headgate's own
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import Course, timed_stream, write_batches
from headgate.arrays import I64
from headgate.control import Entry
from headgate.sinks import Sink

CORES = 2
FILES = 2
MINUTE = 60_000_000
COMPUTE, WINDOWS = "compute", "windows"

Script = Mapping[int, Callable[[hg.Query], None]]
"""What to do at the boundary before a batch."""


def rows_between(keys: I64, start: float, end: float, rng: np.random.Generator) -> pa.Table:
    """Rows of these keys with event times from minute ``start`` to minute ``end``, ascending."""
    at = np.sort(rng.integers(int(start * MINUTE), int(end * MINUTE), len(keys)))
    columns = {"k": keys, "v": rng.integers(0, 100, len(keys)), "at": pa.array(at, pa.timestamp("us", tz="UTC"))}
    return pa.table(columns)


def written(folder: Path, tables: Sequence[pa.Table]) -> Path:
    """The batches as files, ``FILES`` a batch."""
    return write_batches(folder, tables, FILES)


def simple_job(
    spark: SparkSession,
    folder: Path,
    form: str,
    lengths: Sequence[int],
    sink: Sink,
    *,
    groups: int = 256,
) -> hg.Job:
    """enorm's simple job: partials of a minute, windows of so many minutes, one after the other."""
    job = hg.Job("simple", event_time="at", groups=groups)
    keyed = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=FILES)).key_by("k")
    spans = [f"{length} minutes" for length in lengths]
    if form == "whole":
        keyed.window(*spans).aggregate(name=WINDOWS, n=hg.count(), total=hg.sum("v")).write_to(sink)
        return job
    partials = keyed.compute("1 minute", name=COMPUTE, n=hg.count(), total=hg.sum("v"))
    partials.consolidate(*spans, name=WINDOWS).write_to(sink)
    if form == "split":
        job.keep_apart(COMPUTE, WINDOWS)
    return job


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """How a query went, and what its journal says."""

    course: Course
    journal: tuple[Entry, ...]

    def migrated(self, operator: str | None = None) -> list[Mapping[str, Any]]:
        """The details of the migrations that are over, in order."""
        return [
            entry.details for entry in self.journal if entry.kind == "migrated" and operator in (None, entry.operator)
        ]

    def added(self, batch: int, around: int = 1) -> float:
        """Seconds that a batch took beyond the mean of those around it."""
        seconds = self.course.seconds
        near = [at for at in range(batch - around, batch + around + 1) if at != batch]
        return float(seconds[batch] - seconds[near].mean())


class _Steering:
    """A listener that does what a script says, each time before the batch it names."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.query: hg.Query | None = None
        self.started = threading.Event()

    def __call__(self, progress: Mapping[str, Any]) -> None:
        self.started.wait(60)
        act = self.script.get(int(progress["batch"]) + 1)
        if act is not None:
            assert self.query is not None
            act(self.query)


def steered(job: hg.Job, spark: SparkSession, checkpoint: Path, script: Script | None = None, **options: Any) -> Run:
    """A job over all that there is, with interventions by hand between its batches."""
    query, told = started(job, spark, checkpoint, script, **options)
    course = timed_stream(spark, job, query, told)
    assert len(course.seconds) == len(course.progress), "a batch was not timed"
    return Run(course, tuple(query.journal()))


def started(
    job: hg.Job,
    spark: SparkSession,
    checkpoint: Path,
    script: Script | None = None,
    listeners: Sequence[Callable[[dict[str, Any]], None]] = (),
    **options: Any,
) -> tuple[hg.Query, list[dict[str, Any]]]:
    """A query that does what the script says, and the progress that it has told of so far; it goes on telling."""
    told: list[dict[str, Any]] = []
    steering = _Steering(script or {})
    options = {"trigger": "available now", "balance": None, **options}
    query = job.start(spark, checkpoint=str(checkpoint), listeners=[told.append, steering, *listeners], **options)
    steering.query = query
    steering.started.set()
    return query, told


def move_on(query: hg.Query, groups: Sequence[int], slots: int, operator: str) -> None:
    """Move key groups of an operator, each to the slot after the one that it is in."""
    names = [step.name for step in _operators(query)]
    assignment = query.assignment()
    size = assignment.groups_per_operator
    owners = assignment.groups[names.index(operator) * size :][np.asarray(groups)]
    for slot in range(slots):
        leaving = [group for group, owner in zip(groups, owners, strict=True) if owner == slot]
        if leaving:
            query.move(groups=leaving, to=(slot + 1) % slots, operator=operator)


def _operators(query: hg.Query) -> list[Any]:
    return [keyed.operator for keyed in query.job._steps]


def expected_windows(tables: Sequence[pa.Table], lengths: Sequence[int]) -> pa.Table:
    """What pyarrow makes of the windows that have closed before the last batch: k, start, end, n, total."""
    whole = pa.concat_tables(tables).combine_chunks()
    at = whole["at"].cast(pa.int64()).to_numpy()
    closed = tables[-2]["at"].cast(pa.int64()).to_numpy().max()
    made = []
    for length in lengths:
        start = at // (length * MINUTE) * (length * MINUTE)
        keep = start + length * MINUTE <= closed
        part = pa.table({"k": whole["k"].to_numpy()[keep], "start": start[keep], "v": whole["v"].to_numpy()[keep]})
        sums = part.group_by(["k", "start"]).aggregate([("v", "count"), ("v", "sum")])
        end = sums["start"].to_numpy() + length * MINUTE
        made.append(
            pa.table({"k": sums["k"], "start": sums["start"], "end": end, "n": sums["v_count"], "total": sums["v_sum"]})
        )
    return _sorted(pa.concat_tables(made))


def check_windows(results: pa.Table, wanted: pa.Table, what: str) -> None:
    """Raises ``AssertionError`` unless the results are those that pyarrow gets."""
    columns = {"k": "k", "window_start": "start", "window_end": "end", "n": "n", "total": "total"}
    got = _sorted(pa.table({new: results[old].cast(pa.int64()) for old, new in columns.items()}))
    assert got.num_rows == wanted.num_rows, f"{what}: {got.num_rows} results instead of {wanted.num_rows}"
    assert wanted.num_rows, f"{what}: no window has closed"
    for name in columns.values():
        ours, theirs = got[name].to_numpy(), wanted[name].to_numpy()
        assert (ours == theirs).all(), f"{what}: {int((ours != theirs).sum())} results have a wrong {name!r}"


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([("start", "ascending"), ("end", "ascending"), ("k", "ascending")])


def fresh(space: Path, *words: object) -> Path:
    """A checkpoint that nobody has used."""
    return space / "-".join(str(word).replace(" ", "-") for word in words)
