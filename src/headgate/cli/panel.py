"""A running query on a screen: a bar per slot, the figures of the last batch, and what was decided and why.

Everything here is a pure function of progress reports (``Query.progress``) and journal entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from headgate.cli.show import Glyphs, plain, size_of
from headgate.control import Entry
from headgate.planners.plan import THETA_MAX

SPARKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKS = "_.-=+*%#"

WIDEST_BAR = 60
"""Longer bars show no more."""

MOST_BARS = 40
"""Slots that get a bar; beyond that the busiest do, and the others are summed up."""

MOVES_TOLD = 3
"""Moves of one plan that are named among the last lines of the journal: enough to see why, and the plan stays on the
screen."""

RECENT = 30
"""Batches that the rate and the course of the skew are taken from."""

Progress = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How to draw: characters across, how many bars, what stands for a full bar (seconds; None: the busiest slot)."""

    width: int = 80
    bars: int = MOST_BARS
    longest: float | None = None
    theta: float = THETA_MAX
    ascii_only: bool = False

    @property
    def glyphs(self) -> Glyphs:
        return Glyphs.plain() if self.ascii_only else Glyphs.rich()


def frame(
    title: str, status: str, recent: Sequence[Progress], entries: Sequence[Entry], view: View, *, lines: int = 6
) -> list[Text]:
    """The whole screen, line by line; no line is longer than the view is wide."""
    shown = [Text(fitted(title, view.width), style="bold"), Text(fitted(status, view.width))]
    if not recent:
        return [*shown, Text("no batch yet")]
    shown += figures(recent, view)
    shown.append(Text(""))
    shown += bars(recent[-1], view)
    if len(recent) > 1:
        skews = [float(each["skew"]) for each in recent[-RECENT:]]
        sparks = ASCII_SPARKS if view.ascii_only else SPARKS
        line = f"{spark(skews, max(skews), sparks)}  skew of the last {len(skews)} batches, highest {max(skews):.2f}"
        shown += [Text(""), Text(fitted(line, view.width), style="cyan")]
    told = digest(entries, lines)
    if told:
        shown += [Text(""), *(Text(fitted(line, view.width), style="dim") for line in told)]
    return shown


def figures(recent: Sequence[Progress], view: View) -> list[Text]:
    """The figures of the last batch, in as many lines as they need."""
    last = recent[-1]
    seconds = float(last["seconds"]["total"])
    parts = [
        f"batch {last['batch']}",
        f"{last['rows']:,} rows in {seconds:.2f} s",
        f"{rate(recent):,.0f} rows/s",
        f"skew {last['skew']:.2f}",
        f"theta {last['theta_max']:.2f}",
        f"state {last['state_rows']:,} rows, {size_of(last['state_bytes'])}",
        f"moves {last['moves']:,} (of the last {len(recent)} batches {sum(int(each['moves']) for each in recent):,})",
        f"{last['table_size']:,} pins",
    ]
    for name, what in (("split_keys", "split keys"), ("late_rows", "late rows"), ("rejected_rows", "rejected rows")):
        if last.get(name):
            parts.append(f"{last[name]:,} {what}")
    if last.get("watermark"):
        parts.append(f"watermark {str(last['watermark'])[:19]}")
    return [Text(line) for line in joined(parts, view.width)]


def rate(recent: Sequence[Progress]) -> float:
    """Rows per second of the time in which batches ran."""
    last = recent[-RECENT:]
    seconds = sum(float(each["seconds"]["total"]) for each in last)
    return sum(int(each["rows"]) for each in last) / seconds if seconds > 0 else 0.0


def joined(parts: Sequence[str], width: int) -> list[str]:
    """Parts side by side, three spaces apart, broken between parts only."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def bars(progress: Progress, view: View) -> list[Text]:
    """A bar per slot: how long it was busy, and how many rows it got. Red is beyond theta above the mean."""
    seconds = [float(value) for value in progress["slot_seconds"]]
    rows = [int(value) for value in progress["slot_rows"]]
    if not seconds:
        return []
    mean = sum(seconds) / len(seconds)
    longest = max(view.longest or 0.0, *seconds, 1e-9)
    texts = [f"{value:.2f} s  {count:>8,} rows" for value, count in zip(seconds, rows, strict=True)]
    width = min(WIDEST_BAR, max(6, view.width - 6 - max(map(len, texts)) - 2))
    order = list(range(len(seconds)))
    left_out: list[int] = []
    if len(order) > view.bars:
        busiest = sorted(order, key=lambda slot: -seconds[slot])
        order, left_out = busiest[: view.bars], busiest[view.bars :]
    shown = []
    for slot in order:
        off = seconds[slot] / mean - 1 if mean > 0 else 0.0
        style = "red" if off > view.theta else "cyan" if off < -view.theta else "green"
        line = Text(f"{slot:>4}  ")
        line.append(f"{view.glyphs.bar(seconds[slot] / longest, width):<{width}}", style)
        line.append(f"  {texts[slot]}")
        shown.append(line)
    if left_out:
        low, high = (each([seconds[slot] for slot in left_out]) for each in (min, max))
        shown.append(Text(f"      {len(left_out)} less busy slots: {low:.2f} to {high:.2f} s", style="dim"))
    return shown


def batch_line(progress: Progress) -> str:
    """One batch in one line, for output that is no terminal."""
    seconds = float(progress["seconds"]["total"])
    speed = f" ({progress['rows'] / seconds:,.0f} rows/s)" if seconds > 0 else ""
    parts = [
        f"batch {progress['batch']}: {progress['rows']:,} rows in {seconds:.2f} s{speed}",
        f"skew {progress['skew']:.2f}",
        f"theta {progress['theta_max']:.2f}",
        f"{progress['moves']:,} moves",
        f"state {progress['state_rows']:,} rows, {size_of(progress['state_bytes'])}",
    ]
    return ", ".join(parts)


def digest(entries: Sequence[Entry], count: int) -> list[str]:
    """The last lines of the journal: of each plan a few moves, the others counted."""
    lines: list[str] = []
    told, left = 0, 0

    def close(batch: int) -> None:
        nonlocal told, left
        if left:
            lines.append(f"batch {batch}: and {left:,} more moves and refusals")
        told, left = 0, 0

    for at, entry in enumerate(entries):
        before = entries[at - 1] if at else None
        if before is not None and (entry.kind not in ("move", "refused") or entry.batch != before.batch):
            close(before.batch)
        if entry.kind in ("move", "refused"):
            told += 1
            if told > MOVES_TOLD:
                left += 1
                continue
        lines.append(brief(entry))
    if entries:
        close(entries[-1].batch)
    return lines[-count:] if count > 0 else []


def brief(entry: Entry) -> str:
    """One entry in a line that is shorter than the journal's own: plans by their figures."""
    details = entry.details
    if entry.kind == "plan" and {"moved_keys", "moved_groups", "theta_before", "theta_after"} <= details.keys():
        moved = size_of(float(str(details.get("moved_bytes", 0))))
        return (
            f"batch {entry.batch}: {details.get('planner', 'plan')} moves {details['moved_keys']} keys, "
            f"{details['moved_groups']} groups ({moved}): theta {float(str(details['theta_before'])):.2f} to "
            f"{float(str(details['theta_after'])):.2f}"
        )
    return plain(entry.describe(), 1_000)


def fitted(text: str, width: int) -> str:
    """The text on one line, cut where it does not fit."""
    return plain(text, max(width, 20))


def spark(values: Sequence[float], highest: float, sparks: str = SPARKS) -> str:
    """One character per value: the lowest for 1 (level), the highest for ``highest``."""
    span = max(highest - 1, 1e-9)
    steps = [round((value - 1) / span * (len(sparks) - 1)) for value in values]
    return "".join(sparks[min(max(step, 0), len(sparks) - 1)] for step in steps)


def age_of(progress: Progress, now: float) -> float:
    """Seconds since the batch began."""
    return max(0.0, now - datetime.fromisoformat(str(progress["timestamp"])).timestamp())
