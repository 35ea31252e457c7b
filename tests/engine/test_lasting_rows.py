"""Rows that stand for a span of time, in windows that are whole and in windows of two halves."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.engine.program import FileFormat
from headgate.errors import JobError
from headgate.sources import FileSource
from headgate.windows import Spans, Tumbling

SCHEMA = pa.schema([("user", pa.string()), ("at", pa.int64()), ("left_at", pa.int64())])
TEN, TWENTY = (dt.timedelta(microseconds=each) for each in (10, 20))


def _visits(job: hg.Job) -> Any:
    return job.source(FileSource(None, FileFormat("parquet", SCHEMA))).key_by("user")  # type: ignore[arg-type]


def _counts(engine: Any, root: Path, job: hg.Job, rows: list[tuple[str, int, int | None]]) -> list[tuple[Any, ...]]:
    """User, start of the window in microseconds, rows; after a batch with these rows and the end of the input."""
    program = job.program()
    bench = engine.Bench(root, replace(program, inputs=tuple(replace(one, files=None) for one in program.inputs)))
    made = bench.batch([dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
    ended = bench.batch([], flush=True)
    found = [*made.get("out", []), *ended.get("out", [])]
    return sorted((row["user"], row["window_start"].microsecond, row["n"]) for row in found)


#          0         10        20        30        40
# ann           [5=======15)
# bob                 [10===20)                        ends where a slice does: its last microsecond is 19
# cid      [2======================27)
# dan           5                                      an instant
ROWS = [("ann", 5, 15), ("bob", 10, 20), ("cid", 2, 27), ("dan", 5, 5), ("eve", 5, 4), ("fay", 5, None)]
EXPECTED = {
    Spans.START: [("ann", 0, 1), ("bob", 0, 1), ("cid", 0, 1), ("dan", 0, 1)],
    Spans.END: [("ann", 0, 1), ("bob", 0, 1), ("cid", 20, 1), ("dan", 0, 1)],
    Spans.EACH: [("ann", 0, 1), ("bob", 0, 1), ("cid", 0, 1), ("cid", 20, 1), ("dan", 0, 1)],
    Spans.WITHIN: [("ann", 0, 1), ("bob", 0, 1), ("dan", 0, 1)],
}


@pytest.mark.parametrize("spans", EXPECTED, ids=lambda spans: spans.name)
@pytest.mark.parametrize("form", ["whole", "split", "halves"])
def test_a_row_that_lasts_counts_where_its_rule_says(engine: Any, tmp_path: Path, form: str, spans: Spans) -> None:
    job = hg.Job("visits", event_time="at", groups=8)
    if form == "halves":
        partials = _visits(job).compute(TEN, until="left_at", spans=spans, n=hg.count())
        windows = partials.consolidate(TWENTY)
    else:
        keyed = _visits(job).window(Tumbling(TWENTY, spans=spans))
        windows = keyed.aggregate(n=hg.count(), until="left_at", split=form == "split")
    windows.write_to(hg.sinks.memory(), name="out")
    assert _counts(engine, tmp_path, job, ROWS) == EXPECTED[spans]


@pytest.mark.parametrize("spans", [Spans.EACH, Spans.WITHIN], ids=lambda spans: spans.name)
def test_rules_that_put_a_row_in_no_single_slice_are_refused_where_slices_are_shared(spans: Spans) -> None:
    told = (
        "the rule for rows that last in a compute with several consolidates must be START or END, which put a row in "
        f"one slice, got '{spans.name}': give each a compute of its own"
    )
    partials = _visits(hg.Job("visits", event_time="at")).compute(TEN, until="left_at", spans=spans, n=hg.count())
    with pytest.raises(JobError) as refused:
        partials.consolidate_partially(TWENTY)
    assert str(refused.value) == told
    partials.consolidate(TWENTY)
    with pytest.raises(JobError) as refused:
        partials.consolidate(TEN)
    assert str(refused.value) == told


@pytest.mark.parametrize("spans", [Spans.EACH, Spans.END, Spans.WITHIN, Spans.START], ids=lambda spans: spans.name)
def test_rows_that_reach_into_windows_to_come_are_not_left_behind_by_a_smooth_move(
    engine: Any, tmp_path: Path, spans: Spans
) -> None:
    """The old slot would hold a part of windows that the new one is in charge of."""
    found = {}
    for moving in (False, True):
        job = hg.Job("visits", event_time="at", groups=8)
        windows = _visits(job).window(Tumbling(TEN, spans=spans)).aggregate(n=hg.count(), until="left_at", name="w")
        windows.write_to(hg.sinks.memory(), name="out")
        program = job.program()
        program = replace(program, inputs=tuple(replace(one, files=None) for one in program.inputs))
        bench = engine.Bench(tmp_path / str(moving), program, slots=2, options={"migration": "smooth"})
        made = []
        for turn in ([("ann", 5, 35)], [("ann", 8, 35)], [("ann", 41, 42)]):
            made += bench.batch([dict(zip(SCHEMA.names, row, strict=True)) for row in turn])["out"]
            if moving and bench.last.batch == 0:
                bench.change(lambda assignment: assignment.next(groups=1 - assignment.groups))
        made += bench.batch([], flush=True)["out"]
        found[moving] = {row["window_start"].microsecond: row["n"] for row in made}
    assert found[True] == found[False]
    ways = {entry["details"]["way"] for entry in bench.driver.checkpoint.journal() if entry["kind"] == "migration"}
    assert ways == ({"smooth"} if spans is Spans.START else {"manifest"})
