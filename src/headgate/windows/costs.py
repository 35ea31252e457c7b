"""What it costs to share slices or not, and to run compute and consolidate apart or together. Enorm 5.1.1, 5.1.2.

All over one period p, the length of the longest window, in seconds of CPU:

    T_p   rows to process                  W     windows that a row is in
    E     CPU of the user's logic a row    PW_p  slices in p
    MK_p  key groups moved                 K_1   CPU of moving a key group with one copy of its state
    L     pause of moving a key group with its state

    split    T_p * E      +  PW_p * K_1 * key groups  +  MK_p * K_1          no pause
    combine  T_p * W * E  +  MK_p * K_1 * PW_p                               pause MK_p * L

A split component pays for sending every slice to the consolidate, and gets moves for nearly nothing. A combined one
pays for moves, and, as the paper has it, for every row once per window.

Card: docs/algorithms/split-combine.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from headgate.errors import JobError

HYSTERESIS = 0.1
"""A change must save this share of the present cost. Combining is not instant (5.1.2), and the paper gives no number:
ten percent is what two runs of one job differ by, and what 7.7 measures between split and combined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was measured over one period of a compute with its consolidate. Costs are in seconds of CPU."""

    rows: float
    """T_p."""
    row_seconds: float
    """E."""
    windows_per_row: float
    """W: ``Slicing.windows_per_row``."""
    slices: float
    """PW_p: the longest window over the width of a slice."""
    key_groups: int
    moved_groups: float = 0.0
    """MK_p."""
    group_seconds: float = 0.0
    """K_1: to serialise, send and read a key group with one copy of its state."""
    pause_seconds: float = 0.0
    """L."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise JobError.window(f"{name} of a cost model", "be a finite number from zero", value, "measure again")


class Running(Enum):
    """How a compute and its consolidate run."""

    SPLIT = "split"
    COMBINED = "combined"


class Sharing(Enum):
    """How overlapping windows are computed."""

    SHARED = "shared"
    PER_WINDOW = "per window"


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do, what each way would cost, and why."""

    taken: Running | Sharing
    costs: tuple[tuple[str, float], ...]
    reason: str


def split_cpu(usage: Usage) -> float:
    """CPU of a split component: T_p E + PW_p K_1 groups + MK_p K_1."""
    sent = usage.slices * usage.group_seconds * usage.key_groups
    return usage.rows * usage.row_seconds + sent + usage.moved_groups * usage.group_seconds


def combine_cpu(usage: Usage, *, shares: bool = False) -> float:
    """CPU of a combined component: T_p W E + MK_p K_1 PW_p.

    ``shares``: it keeps slices and merges them where it stands, as ours does, so a row is computed once: T_p E.
    """
    times = 1.0 if shares else usage.windows_per_row
    moves = usage.moved_groups * usage.group_seconds * usage.slices
    return usage.rows * times * usage.row_seconds + moves


def combine_latency(usage: Usage) -> float:
    """Seconds that moves pause a combined component: MK_p L. A split one is not paused."""
    return usage.moved_groups * usage.pause_seconds


def decide_running(
    usage: Usage,
    now: Running,
    *,
    max_pause_seconds: float = math.inf,
    shares: bool = False,
    hysteresis: float = HYSTERESIS,
) -> Choice:
    """Split or combine: the least CPU whose pause is within the bound (5.1.2), staying where the gain is small.

    Evaluate once per period. A pause beyond the bound splits at once, whatever it costs.
    """
    split, combine = split_cpu(usage), combine_cpu(usage, shares=shares)
    costs = ((Running.SPLIT.value, split), (Running.COMBINED.value, combine))
    pause = combine_latency(usage)
    if pause > max_pause_seconds:
        return Choice(
            Running.SPLIT,
            costs,
            f"moves would pause it for {pause:.3g} s a period, more than {max_pause_seconds:.3g} s",
        )
    cheaper = Running.SPLIT if split < combine else Running.COMBINED
    there, here = min(split, combine), split if now is Running.SPLIT else combine
    if cheaper is now:
        return Choice(
            now, costs, f"{now.value} costs {here:.3g} s of CPU a period, the other way {max(split, combine):.3g} s"
        )
    if here - there < hysteresis * here:
        return Choice(
            now, costs, f"{cheaper.value} would save {1 - there / here:.0%} of {here:.3g} s: not worth the change"
        )
    return Choice(cheaper, costs, f"{cheaper.value} costs {there:.3g} s of CPU a period instead of {here:.3g} s")


def shared_seconds(rows: float, row_seconds: float, merged_keys: float, merge_seconds: float) -> float:
    """CPU of shared slices: every row once, and every key of every piece that is merged (``Step.keys``)."""
    return rows * row_seconds + merged_keys * merge_seconds


def per_window_seconds(rows: float, row_seconds: float, windows_per_row: float) -> float:
    """CPU of one computation per window: every row once per window it is in."""
    return rows * windows_per_row * row_seconds


def decide_sharing(
    *, rows: float, row_seconds: float, windows_per_row: float, merged_keys: float, merge_seconds: float
) -> Choice:
    """Share slices, or compute each window from the rows: whichever takes less CPU over a period; sharing when equal.

    With r rows a key and slice and m pieces a window, sharing wins where ``W - 1 > m / r`` for merges that cost what
    rows do: it backfires where most keys have one row a slice.
    """
    shared = shared_seconds(rows, row_seconds, merged_keys, merge_seconds)
    alone = per_window_seconds(rows, row_seconds, windows_per_row)
    costs = ((Sharing.SHARED.value, shared), (Sharing.PER_WINDOW.value, alone))
    if shared <= alone:
        return Choice(
            Sharing.SHARED,
            costs,
            f"merging {merged_keys:,.0f} keys of slices takes less than every row {windows_per_row:g} times",
        )
    return Choice(
        Sharing.PER_WINDOW,
        costs,
        f"{merged_keys:,.0f} keys of slices to merge take longer than every row {windows_per_row:g} times: most keys "
        "have few rows in a slice",
    )
