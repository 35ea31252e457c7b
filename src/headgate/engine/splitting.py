"""A compute and its consolidate in one task, or apart: decided while the job runs. Enorm 5.1.

    combined   one component, rigid: nothing is sent between them, key groups move with their state
    split      two components, the compute flexible: partials are sent, its key groups can move without state

Both are the same operators with the same state, so a change is made between two batches: the operators get other
components, and where they are put together key groups move as always. Once per period, which is as long as the longest
window, what was measured goes into the cost model (``headgate.windows.costs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.control import Entry
from headgate.engine.orders import SlotReport
from headgate.engine.program import Pair, Program
from headgate.operators import Consolidate
from headgate.windows import NO_WATERMARK
from headgate.windows.costs import Running, Usage, decide_running

SEND_SECONDS = 3e-7
"""CPU of sending a partial row to another task and reading it there, where nothing was sent yet that could be measured:
a row of four columns, seen on one machine; it only has to be right within a factor of a few."""


@dataclass(slots=True)
class _Measured:
    """What one pair did since its period began."""

    began: int = NO_WATERMARK
    rows: int = 0
    seconds: float = 0.0
    sent: int = 0
    receive_seconds: float = 0.0
    moved: int = 0
    pause_seconds: float = 0.0


@dataclass(slots=True)
class Splitting:
    """Follows the pairs of a job, and says when one should run otherwise. ``max_pause_seconds`` a period is what moves
    of a combined one may cost. ``verdicts``: by operator what was last found, also where nothing changed."""

    max_pause_seconds: float
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _pairs: dict[Pair, _Measured] = field(default_factory=dict)

    def observe(
        self, program: Program, reports: Sequence[SlotReport], moved_groups: Iterable[int], watermark: int | None
    ) -> list[tuple[Pair, Running, Entry]]:
        """A batch is over: the pairs that should run otherwise from now on, and what to say of it.

        ``moved_groups``: how many key groups of each operator moved with the batch.
        """
        moved, wishes = list(moved_groups), []
        for pair in program.pairs:
            if not pair.auto:
                continue
            measured = self._pairs.setdefault(pair, _Measured())
            split = program.components[pair.compute] != program.components[pair.consolidate]
            for report in reports:
                if report.operator == pair.compute:
                    measured.rows += report.tuples
                    measured.seconds += report.seconds.get("receive", 0.0) + report.seconds.get("write state", 0.0)
                    measured.sent += report.sent.get(pair.consolidate, 0)
                    measured.pause_seconds = max(measured.pause_seconds, report.seconds.get("move", 0.0))
                elif report.operator == pair.consolidate and split:
                    measured.receive_seconds += report.seconds.get("receive", 0.0)
            measured.moved += moved[pair.compute]
            wish = self._judged(program, pair, measured, split, watermark)
            if wish is not None:
                wishes.append((pair, *wish))
        return wishes

    def _judged(
        self, program: Program, pair: Pair, measured: _Measured, split: bool, watermark: int | None
    ) -> tuple[Running, Entry] | None:
        operator = program.steps[pair.consolidate].operator
        assert isinstance(operator, Consolidate)
        if watermark is None:
            return None
        if measured.began == NO_WATERMARK:
            measured.began = watermark
        period = operator.slicing.longest
        if watermark < measured.began + period or not measured.rows:
            return None
        groups, slices = program.groups, period / operator.slicing.width
        row_send = SEND_SECONDS
        if measured.sent and measured.receive_seconds:
            row_send = measured.receive_seconds / measured.sent
        usage = Usage(
            rows=measured.rows,
            row_seconds=measured.seconds / measured.rows,
            windows_per_row=operator.slicing.windows_per_row,
            slices=slices,
            key_groups=groups,
            moved_groups=measured.moved,
            group_seconds=measured.sent / (slices * groups) * row_send,
            pause_seconds=measured.pause_seconds / measured.moved if measured.moved else 0.0,
        )
        self._pairs[pair] = _Measured(began=watermark)
        now = Running.SPLIT if split else Running.COMBINED
        choice = decide_running(usage, now, max_pause_seconds=self.max_pause_seconds, shares=True)
        details = {"costs": dict(choice.costs), "now": choice.taken.value, "rows": measured.rows}
        self.verdicts[operator.name] = {**details, "reason": choice.reason}
        if choice.taken is now:
            return None
        assert isinstance(choice.taken, Running)
        return choice.taken, Entry(0, "fused", choice.reason, operator.name, details=details)
