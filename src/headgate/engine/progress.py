"""What a batch did, as a dict for people and their tools: like Spark's ``lastProgress``. Operations describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.control import Entry
from headgate.engine.migrating import Migrations
from headgate.engine.orders import Orders, Report, RouteReport, SlotReport
from headgate.engine.program import Program
from headgate.routing import SHARED, Assignment
from headgate.state import BatchPlan, Manifest
from headgate.stats import Balance, balance_of, in_turn

END_OF_INPUT = 253_402_300_799_999_999
"""The watermark once a static source has been read: the last instant of the year 9999, the latest a datetime can be."""

FIRST_INSTANT = -62_135_596_800_000_000
"""The beginning of the year 1, the earliest a datetime can be."""


def progress_of(
    program: Program,
    orders: Orders,
    plan: BatchPlan,
    manifest: Manifest,
    reports: Sequence[Report],
    phases: Mapping[str, float],
    migrations: Migrations,
    regions: list[dict[str, Any]],
    verdicts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The progress of a batch, from what was decided, committed and reported. ``phases`` are the driver's own times,
    ``verdicts`` what the cost models last found."""
    slots = plan.assignment.slots
    stages = max(program.depth, 1)
    seconds, rows = np.zeros((stages, slots)), np.zeros((stages, slots), dtype=np.int64)
    routed = [report for report in reports if isinstance(report, RouteReport)]
    slotted = [report for report in reports if isinstance(report, SlotReport)]
    for report in slotted:
        if report.slot != SHARED:
            stage = program.steps[report.operator].depth - 1
            seconds[stage, report.slot] += sum(report.seconds.values())
            rows[stage, report.slot] += report.tuples
    level, row_level = _level(seconds, plan.assignment), _level(rows, plan.assignment)
    moving = [orders.relocation(number) for number in range(len(program.steps))]
    moved_keys = sum(int(np.count_nonzero(keys.source != keys.target)) for keys in moving)
    moved_groups = int(np.count_nonzero(orders.before.groups != plan.assignment.groups))
    return {
        "job": program.name,
        "batch": plan.batch,
        "timestamp": datetime.fromtimestamp(plan.now / 1e6, UTC).isoformat(),
        "rows": sum(sum(report.rows.values()) for report in routed),
        "inputs": _added(report.rows for report in routed),
        "seconds": {name: round(value, 6) for name, value in phases.items()},
        "route_seconds": sum(report.seconds for report in routed),
        "slots": slots,
        "slot_seconds": [round(float(value), 6) for value in seconds.sum(axis=0)],
        "stage_seconds": [[round(float(value), 6) for value in stage] for stage in seconds],
        "slot_rows": rows.sum(axis=0).tolist(),
        "skew": level.max_over_mean,
        "row_skew": row_level.max_over_mean,
        "theta_max": level.theta_max,
        "state_rows": sum(int(count.rows.sum()) for count in manifest.counts),
        "state_bytes": sum(int(count.bytes.sum()) for count in manifest.counts),
        "moves": moved_keys + moved_groups,
        "moved_keys": moved_keys,
        "moved_groups": moved_groups,
        "decisions": [_said(entry) for entry in plan.decisions if entry.get("kind") not in ("move", "refused")],
        "assignment_version": plan.assignment.version,
        "table_size": len(plan.assignment.pins),
        "split_keys": sum(len(keys) for keys in plan.shared),
        "late_rows": sum(report.late for report in routed),
        "rejected_rows": sum(report.rejected for report in reports if not isinstance(report, SlotReport)),
        "timers_fired": sum(report.fired for report in slotted),
        "expired_keys": sum(report.expired for report in slotted),
        "written_bytes": sum(report.written for report in slotted),
        "copied_bytes": sum(report.copied_bytes for report in slotted),
        "left_behind_rows": sum(migrations.left_behind(manifest).values()),
        "migrations": len(migrations.underway),
        "results": {name: len(names) for name, names in manifest.outputs.items()},
        "edges": _edges(program, slotted),
        "regions": regions,
        "verdicts": dict(verdicts),
        "watermark": _instant(plan.watermark),
        "watermark_micros": None if plan.watermark == END_OF_INPUT else plan.watermark,
    }


def _level(loads: NDArray[Any], assignment: Assignment) -> Balance:
    """How level slots are, from a row of loads for each stage."""
    every = np.ones(assignment.slots)
    return in_turn([balance_of(stage, every, assignment.open_slots) for stage in loads])


def rates_of(recent: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Rows a batch from one keyed operator to another, by their names, over these progress reports. Windows send rows
    only when they close, so one report says little."""
    edges: dict[str, dict[str, float]] = {}
    for progress in recent:
        for source, targets in progress["edges"].items():
            for target, rows in targets.items():
                below = edges.setdefault(source, {})
                below[target] = below.get(target, 0.0) + rows / len(recent)
    return edges


def _edges(program: Program, reports: Iterable[SlotReport]) -> dict[str, dict[str, int]]:
    """Rows from one keyed operator to another, by their names."""
    names = [step.operator.name for step in program.steps]
    edges: dict[str, dict[str, int]] = {}
    for report in reports:
        for target, rows in report.sent.items():
            below = edges.setdefault(names[report.operator], {})
            below[names[target]] = below.get(names[target], 0) + rows
    return edges


def _instant(micros: int | None) -> str | None:
    """A time as text; None for none, and where no datetime can say it: before the year 1, at the end of the input."""
    if micros is None or not FIRST_INSTANT <= micros < END_OF_INPUT:
        return None
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat()


def _said(entry: Mapping[str, Any]) -> str:
    return Entry.from_json(entry).describe()


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total
