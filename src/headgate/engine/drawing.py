"""A job drawn as text: what flows where, what each component keeps, and where a shuffle is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.engine.fusing import rearranged
from headgate.engine.migrating import ways_of
from headgate.engine.program import ToOperator, ToOutput
from headgate.engine.running import layout_of
from headgate.operators import (
    Compute,
    Consolidate,
    CountAggregation,
    IntervalJoin,
    SessionAggregation,
    Tagged,
    WindowedAggregation,
)
from headgate.topology import Score
from headgate.windows import Hop

if TYPE_CHECKING:
    from headgate.engine.fusing import Fused
    from headgate.engine.job import Job
    from headgate.engine.stream import KeyedNode, Node


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What is drawn: a job, its components, and the operators whose windows are computed one by one."""

    job: Job
    own: Fused
    per_window: frozenset[int]


def drawn(job: Job, components: Sequence[int] | None = None, per_window: frozenset[int] | None = None) -> str:
    """The whole job, input by input; an operator fed by several is drawn where it is first reached.

    As it was built, or as a query runs it: with the ``components`` of its operators, those of which windows are
    computed ``per_window``.
    """
    own = job.components()
    if components is not None:
        own = rearranged(own, job._steps, components)
    if per_window is None:
        per_window = frozenset(number for number, keyed in enumerate(job._steps) if keyed.per_window)
    drawing = _Drawing(job, own, per_window)
    depth = max(job._depths(own), default=0)
    shuffles = "1 shuffle" if depth == 1 else f"{depth} shuffles"
    lines = [f"job {job.name!r}: {job.groups} key groups, one Spark job with {shuffles} per micro-batch"]
    if job.event_time:
        slack = job.slack_micros / 1e6
        lines.append(
            f"event time {job.event_time!r}, slack {slack:g} s, late rows: {job.late}; bad keys: {job.bad_keys}"
        )
    else:
        lines.append(f"no event time; bad keys: {job.bad_keys}")
    drawn_steps: set[int] = set()
    for node in job._inputs:
        how = "files read by the tasks" if node.files is not None else "rows from Spark"
        if node.region is not None:
            how = f"in order from {node.region.source.name!r}, by {node.region.workers} workers"
        lines.append(f"input {node.name!r} ({how}): {_columns(node.schema)}")
        _draw(drawing, node, None, "  ", lines, drawn_steps)
    return "\n".join([*lines, *_components(job, own)])


def _components(job: Job, own: Fused) -> list[str]:
    """What each component is and how it may move, what fusion saves, and why the rest was not fused."""
    if own.fusion is None:
        return []
    layout = own.fusion.layout
    # How a component may move is known once it is known where its rows go.
    program = job.program().arranged(own.component) if job._outputs else None
    running = layout_of(program) if program is not None else None
    lines = []
    for number in sorted(set(own.component)):
        names = [keyed.operator.name for keyed, at in zip(job._steps, own.component, strict=True) if at == number]
        component = layout.component(names[0])
        moves = ""
        if program is not None and running is not None:
            ways = ways_of(program, running, running.component(names[0]))
            moves = "; allowed moves: " + ", ".join(way.migration.value for way in ways if way.allowed)
        lines.append(f"component {number + 1}: {' + '.join(names)}, {component.described}{moves}")
    if own.reasons:
        saved = own.fusion.shuffles_saved
        score = "COMM, by measured rates" if own.fusion.score is Score.COMM else "PA, without rates"
        streams = "1 shuffled stream" if saved == 1 else f"{saved or 'no'} shuffled streams"
        lines.append(f"fused by score {score}: {streams} less than one by one")
    return [*lines, *own.reasons]


def _draw(drawing: _Drawing, node: Node, operator: int | None, indent: str, lines: list[str], seen: set[int]) -> None:
    """What lies below a node of an operator (None: of an input)."""
    job, own = drawing.job, drawing.own
    for number, below_node in enumerate(node.branches):
        branch, side = _untagged(below_node)
        last = number == len(node.branches) - 1
        mark, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(branch, ToOutput):
            sinks = ", ".join(_sink(sink) for sink in job._outputs[branch.output][1])
            lines.append(f"{indent}{mark}output {branch.output!r} -> {sinks}")
        elif isinstance(branch, ToOperator):
            keyed = job._steps[branch.operator]
            component = own.component[branch.operator]
            if operator is not None and own.component[operator] == component:
                way, columns = "in the same task,", keyed.keys
            else:
                way, columns = "shuffle", own.placed_by[branch.operator] or keyed.keys
            if side is not None:
                names = dict(zip(keyed.keys, side.keys, strict=True))
                way, columns = f"{side.label}, {way}", tuple(names[column] for column in columns)
            where = f"by {', '.join(columns)}" if columns else "to one place"
            lines.append(f"{indent}{mark}{way} {where} -> {_component(drawing, branch.operator)}")
            if branch.operator in seen:
                lines[-1] += " (drawn above)"
                continue
            seen.add(branch.operator)
            lines.append(f"{indent}{below}   state: {_columns(keyed.operator.state_schema)}{_life(keyed)}")
            _draw(drawing, keyed.node, branch.operator, indent + below + "   ", lines, seen)
        else:
            lines.append(f"{indent}{mark}{branch.kind} {branch.name} ({branch.batch} batches)")
            _draw(drawing, branch, operator, indent + below, lines, seen)


def _untagged(branch: Node | ToOperator | ToOutput) -> tuple[Node | ToOperator | ToOutput, Tagged | None]:
    """A branch, or what lies below one that only tags the rows of a side of a join, and that side."""
    if isinstance(branch, ToOperator | ToOutput) or not isinstance(branch.function, Tagged):
        return branch, None
    return branch.branches[0], branch.function


def _component(drawing: _Drawing, number: int) -> str:
    keyed = drawing.job._steps[number]
    notes = []
    if isinstance(keyed.operator, WindowedAggregation):
        notes += _windows(drawing, number, keyed.operator)
    elif isinstance(keyed.operator, CountAggregation | IntervalJoin | SessionAggregation):
        notes.append(keyed.operator.windows)
    if keyed.combine_early:
        notes.append("combined before the shuffle")
    if keyed.lateness_micros:
        notes.append(f"rows up to {keyed.lateness_micros / 1e6:g} s late")
    if keyed.splits:
        notes.append("hot keys split over slots")
    kind = type(keyed.operator).__name__
    own = f"component {drawing.own.component[number] + 1}: {kind} {keyed.operator.name!r}"
    return f"{own} ({', '.join(notes)})" if notes else own


def _windows(drawing: _Drawing, number: int, windows: WindowedAggregation) -> list[str]:
    """Lengths, hops and slices of windows, and what they share; helpers, which nobody asked for, are left out."""
    slicing = windows.slicing
    width = _time(slicing.width)
    job, alone = drawing.job, number in drawing.per_window
    if isinstance(windows, Consolidate):
        alone = any(ToOperator(number) in job._steps[compute].node.branches for compute in drawing.per_window)
    wanted = " and ".join(_hop(hop) for hop in windows.alone.hops if not hop.helper)
    if isinstance(windows, Compute):
        notes = [f"partials of {wanted}" if alone else f"partials of slices of {width}"]
    elif alone:
        notes = [wanted, "each computed by itself"]
    else:
        notes = [wanted, f"slices of {width}" + ("" if windows.share else ", nothing kept between them and windows")]
    if job._steps[number].decides_sharing:
        notes.append('which may change: share="auto"')
    if isinstance(windows, Compute):
        return notes
    if windows.until is not None:
        notes.append(f"rows last until {windows.until!r}, in windows by the rule {windows.spans.name}")
    halves = [auto for (_, name), auto in job._split.items() if name == windows.name]
    return notes + ['split="auto"' if auto else "split=True" for auto in halves]


def _hop(hop: Hop) -> str:
    told = f"windows of {_time(hop.length)}"
    if hop.every != hop.length:
        told += f" every {_time(hop.every)}"
    return f"{told} from {_time(hop.offset)}" if hop.offset else told


def _time(micros: int) -> str:
    """``0:10:00``, ``1 day``, ``1 day, 6:00:00``."""
    return str(timedelta(microseconds=micros)).removesuffix(", 0:00:00")


def _life(keyed: KeyedNode) -> str:
    return "" if keyed.ttl_micros is None else f"; forgotten after {keyed.ttl_micros / 1e6:g} s without rows"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _sink(sink: object) -> str:
    path = getattr(sink, "path", None)
    name = type(sink).__name__.removesuffix("Sink").lower()
    if path is not None:
        return f"{name}({path})"
    function = getattr(sink, "function", None)
    return f"function {getattr(function, '__name__', '')}" if function is not None else name
