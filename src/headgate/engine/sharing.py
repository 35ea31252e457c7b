"""Slices that windows share, or one computation per window: decided while the job runs. Enorm 4.2, figure 5.1.

    shared       every row once, and every key of every slice again when a window closes
    per window   every row once per window it is in, and nothing to merge

What each costs is measured over a period as long as the longest window: rows and the time to add them up where they are
read or where an operator before makes them, keys merged and the time for it in the slots. Where windows are made in two
halves, these are rows of the compute and merges of its consolidate. While windows are computed one by one nothing is
merged but what moves left apart, so the merges per row are those of the last period in which slices were shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.control import Entry
from headgate.engine.orders import RouteReport, SlotReport
from headgate.engine.program import Program
from headgate.operators import Compute, WindowedAggregation
from headgate.windows import NO_WATERMARK
from headgate.windows.costs import HYSTERESIS, Choice, Sharing, decide_sharing


@dataclass(slots=True)
class _Measured:
    """One operator since its period began."""

    began: int = NO_WATERMARK
    rows: int = 0
    seconds: float = 0.0
    merged: int = 0
    merge_seconds: float = 0.0


@dataclass(slots=True)
class SharingWatch:
    """Follows the windows of a job that may be computed either way. ``merges_per_row`` and ``merge_seconds`` are what
    was last seen of an operator whose windows shared slices. ``verdicts``: by operator what was last found, also where
    nothing changed."""

    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _measured: dict[int, _Measured] = field(default_factory=dict)
    _merges: dict[int, tuple[float, float]] = field(default_factory=dict)

    def observe(
        self,
        program: Program,
        routed: Sequence[RouteReport],
        slotted: Iterable[SlotReport],
        per_window: frozenset[int],
        watermark: int | None,
    ) -> tuple[frozenset[int], list[Entry]]:
        """A batch is over: the operators that are computed per window from now on, and what to say where that
        changes."""
        entries: list[Entry] = []
        reports = list(slotted)
        senders: list[RouteReport | SlotReport] = [*routed, *reports]
        for number, step in enumerate(program.steps):
            if not step.decides_sharing:
                continue
            measured = self._measured.setdefault(number, _Measured())
            for sender in senders:
                rows, seconds = sender.early.get(number, (0, 0.0))
                measured.rows += rows
                measured.seconds += seconds
            merging = self._merging(program, number)
            for report in reports:
                if report.operator == merging:
                    measured.merged += report.merged
                    measured.merge_seconds += report.seconds.get("process", 0.0)
            windows = step.operator
            assert isinstance(windows, WindowedAggregation)
            if watermark is None or not measured.rows:
                continue
            if measured.began == NO_WATERMARK:
                measured.began = watermark
            if watermark < measured.began + windows.alone.longest:
                continue
            self._measured[number] = _Measured(began=watermark)
            choice = self._judged(number, windows, measured, number in per_window)
            if choice is None:
                continue
            details = {"costs": dict(choice.costs), "now": choice.taken.value, "rows": measured.rows}
            self.verdicts[windows.name] = {**details, "reason": choice.reason}
            if (choice.taken is Sharing.PER_WINDOW) != (number in per_window):
                per_window = per_window.symmetric_difference({number})
                entries.append(Entry(0, "shared", choice.reason, windows.name, details=details))
        return per_window, entries

    @staticmethod
    def _merging(program: Program, number: int) -> int:
        """The operator that makes windows of what this one adds up: a compute's consolidate, or itself."""
        if not isinstance(program.steps[number].operator, Compute):
            return number
        return next(target for source, target in program.edges if source == number)

    def _judged(self, number: int, windows: WindowedAggregation, measured: _Measured, alone: bool) -> Choice | None:
        """The way to go on with; None while nothing is known of what merging costs."""
        times = windows.alone.windows_per_row
        if not alone and measured.merged:
            self._merges[number] = measured.merged / measured.rows, measured.merge_seconds / measured.merged
        if number not in self._merges:
            return None
        merges_per_row, merge_seconds = self._merges[number]
        choice = decide_sharing(
            rows=measured.rows,
            row_seconds=measured.seconds / measured.rows / (times if alone else 1.0),
            windows_per_row=times,
            merged_keys=merges_per_row * measured.rows,
            merge_seconds=merge_seconds,
        )
        costs = dict(choice.costs)
        now, other = (Sharing.PER_WINDOW, Sharing.SHARED) if alone else (Sharing.SHARED, Sharing.PER_WINDOW)
        if choice.taken is other and costs[now.value] - costs[other.value] <= HYSTERESIS * costs[now.value]:
            saved = 1 - costs[other.value] / costs[now.value]
            reason = f"{other.value} would save {saved:.0%} of {costs[now.value]:.3g} s: not worth the change"
            return replace(choice, taken=now, reason=reason)
        return choice
