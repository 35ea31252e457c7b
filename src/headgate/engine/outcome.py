"""What a batch came to: the manifest that commits it, and the watermark that the next one begins with."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.engine.orders import Orders, Report, RouteReport, SlotReport, Written
from headgate.engine.program import Program, ToOperator, leaves
from headgate.state import BatchPlan, Counts, Layout, Manifest


def manifest_of(
    job_id: str, program: Program, plan: BatchPlan, orders: Orders, reports: Sequence[Report], last: Manifest | None
) -> Manifest:
    """The state after a batch: that of the last one, with what the tasks report."""
    owners = dict(orders.layout.owners)
    counts = [
        Counts.sized(last.counts[number] if last is not None else None, orders.places(number).count)
        for number in range(len(program.steps))
    ]
    written: list[Written] = []
    event_times = dict(last.event_times) if last is not None else {}
    for report in reports:
        if isinstance(report, SlotReport):
            owners[report.operator, report.slot] = report.refs
            counts[report.operator] = counts[report.operator].changed(
                report.place, report.rows_delta, report.bytes_delta
            )
            continue
        written += report.written
        if isinstance(report, RouteReport):
            for number, at in report.event_times.items():
                event_times[number] = max(at, event_times.get(number, at))
    outputs: dict[str, tuple[str, ...]] = {}
    for one in sorted(written, key=lambda one: one.file):
        outputs[one.output] = (*outputs.get(one.output, ()), one.file)
    return Manifest(
        job=job_id,
        batch=plan.batch,
        assignment=plan.assignment,
        layout=Layout({owner: refs for owner, refs in sorted(owners.items()) if refs}),
        shared=plan.shared,
        counts=tuple(counts),
        event_times=event_times,
        watermark=plan.watermark,
        now=plan.now,
        outputs=outputs,
        handovers=plan.handovers,
    )


def watermark_after(last: Manifest | None, program: Program, slack_micros: int) -> int | None:
    """The greatest event time that every input has reached, less the slack; it never goes back."""
    if last is None or program.event_time is None:
        return None
    inputs = _timed_inputs(program, program.event_time)
    timed = [number for number in inputs if number in last.event_times]
    if len(timed) < len(inputs) or not timed:
        return last.watermark
    reached = min(last.event_times[number] for number in timed) - slack_micros
    return reached if last.watermark is None else max(reached, last.watermark)


def _timed_inputs(program: Program, event_time: str) -> list[int]:
    """The inputs whose rows come with an event time to some operator."""
    return [
        number
        for number, given in enumerate(program.inputs)
        if any(
            isinstance(leaf, ToOperator) and event_time in program.steps[leaf.operator].operator.input_schema.names
            for leaf in leaves(given.branches)
        )
    ]
