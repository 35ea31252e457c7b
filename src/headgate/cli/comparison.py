"""Two runs of the demonstration side by side: their figures, and what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from headgate.cli.show import size_of
from headgate.control import Entry

WARM_UP = 1
"""Batches at the beginning of each run that do not count: in the first one the workers load the query, and the engine
does not plan on what it measures there either."""

Row = tuple[str, str, str, str]
"""A line of the comparison: what, of the first run, of the second, second against first."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """What one run left behind: progress of every batch, the journal, and the count of each word at the end."""

    name: str
    title: str
    progress: tuple[Mapping[str, Any], ...]
    entries: tuple[Entry, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Mapping[str, Any], ...]:
        """The batches that count."""
        return self.progress[WARM_UP:] or self.progress

    @property
    def rows(self) -> int:
        return sum(int(each["rows"]) for each in self.measured)

    @property
    def seconds(self) -> float:
        """By the clock on the wall, from the beginning of the first batch that counts to the end of the last."""
        if not self.measured:
            return 0.0
        first, last = self.measured[0], self.measured[-1]
        began, ended = (datetime.fromisoformat(str(each["timestamp"])).timestamp() for each in (first, last))
        return max(ended - began + float(last["seconds"]["total"]), 1e-9)

    @property
    def throughput(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def batch_seconds(self) -> list[float]:
        return [float(each["seconds"]["total"]) for each in self.progress]

    @property
    def skews(self) -> list[float]:
        return [float(each["skew"]) for each in self.progress]

    @property
    def loads(self) -> list[list[float]]:
        """Busy seconds, batch by batch, slot by slot."""
        return [[float(value) for value in each["slot_seconds"]] for each in self.progress]

    @property
    def moves(self) -> int:
        return sum(int(each["moves"]) for each in self.measured)

    @property
    def moved_bytes(self) -> float:
        return sum(float(str(entry.details.get("moved_bytes", 0))) for entry in self.entries if entry.kind == "plan")

    @property
    def plans(self) -> int:
        return sum(1 for entry in self.entries if entry.kind == "plan")

    def of_measured(self, values: list[float]) -> list[float]:
        return values[WARM_UP:] or values


def comparison(first: RunRecord, second: RunRecord) -> list[Row]:
    """The table at the end. Batch ``WARM_UP`` - 1 and those before it do not count in either run."""
    rows: list[Row] = [
        (
            "throughput, rows/s",
            f"{first.throughput:,.0f}",
            f"{second.throughput:,.0f}",
            _ratio(second.throughput, first.throughput),
        )
    ]
    seconds = [run.of_measured(run.batch_seconds) for run in (first, second)]
    skews = [run.of_measured(run.skews) for run in (first, second)]
    for what, (one, two) in (
        ("median", [float(np.median(values)) for values in seconds]),
        ("slowest", [max(values) for values in seconds]),
    ):
        rows.append((f"batch time, {what}", f"{one:.2f} s", f"{two:.2f} s", _ratio(two, one)))
    for what, (one, two) in (
        ("mean", [float(np.mean(values)) for values in skews]),
        ("worst", [max(values) for values in skews]),
    ):
        rows.append((f"skew, {what}", f"{one:.2f}", f"{two:.2f}", ""))
    rows.append(("plans applied", str(first.plans), str(second.plans), ""))
    rows.append(("keys and key groups moved", f"{first.moves:,}", f"{second.moves:,}", ""))
    rows.append(("state moved", size_of(first.moved_bytes), size_of(second.moved_bytes), ""))
    last = [run.progress[-1] if run.progress else {} for run in (first, second)]
    held = [size_of(float(each.get("state_bytes", 0))) for each in last]
    rows.append(("state held at the end", held[0], held[1], ""))
    return rows


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}x" if base > 0 else ""


def finding(first: RunRecord, second: RunRecord) -> str:
    """What the two runs show, in a sentence that their figures bear out."""
    one, two = (float(np.mean(run.of_measured(run.skews))) for run in (first, second))
    gain = second.throughput / first.throughput if first.throughput else 1.0
    skew = f"the busiest slot had {one:.2f} times the mean load with {first.title}, {two:.2f} with {second.title}"
    if gain > 1 and two < one:
        return f"{gain:.2f} times the throughput: {skew}."
    if gain > 1:
        return f"{gain:.2f} times the throughput, but not by balance, since {skew}: times differ by chance."
    why = ""
    if two < one:
        why = (
            " The load is more level and yet the time is not shorter: the machine was busy with something else, or a "
            "row takes too little time in its slot beside the fixed cost of a batch."
        )
    return f"No gain in this run ({gain:.2f} times the throughput): {skew}.{why}"


def mistakes(run: RunRecord, expected: Mapping[str, int]) -> list[str]:
    """Words whose count is not what it must be; none where the run is right."""
    wrong = []
    for word in sorted(expected.keys() | run.counts.keys()):
        have, want = run.counts.get(word, 0), expected.get(word, 0)
        if have != want:
            wrong.append(f"{word!r}: {have} instead of {want}")
    return wrong
