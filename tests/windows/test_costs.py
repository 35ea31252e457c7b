"""The cost models: the formulas of enorm 5.1.1 on the settings of its section 7, and what is decided from them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headgate.errors import JobError
from headgate.windows import (
    Running,
    Sharing,
    Usage,
    combine_cpu,
    combine_latency,
    decide_running,
    decide_sharing,
    split_cpu,
)

SIMPLE = Usage(
    rows=18_000_000,
    row_seconds=1 / 40_000,
    windows_per_row=2,
    slices=10,
    key_groups=100,
    moved_groups=20,
    group_seconds=0.5,
    pause_seconds=0.25,
)
"""Enorm 7.1, the simple job: 18 million tuples, 40,000 a second, windows of 5 and 10 minutes from partials of one."""


def test_the_formulas() -> None:
    assert split_cpu(SIMPLE) == 450 + 10 * 0.5 * 100 + 20 * 0.5
    assert combine_cpu(SIMPLE) == 450 * 2 + 20 * 0.5 * 10
    assert combine_cpu(SIMPLE, shares=True) == 450 + 20 * 0.5 * 10
    assert combine_latency(SIMPLE) == 5.0


def test_the_papers_456_against_512_seconds() -> None:
    """7.7: one component that shares takes 456 s, two take 512 s: what sending 10 partials of 100 groups costs."""
    job = replace(SIMPLE, row_seconds=456 / 18_000_000, group_seconds=0.056, moved_groups=0)
    assert combine_cpu(job, shares=True) == pytest.approx(456)
    assert split_cpu(job) == pytest.approx(512)
    assert decide_running(job, Running.SPLIT, shares=True).taken is Running.COMBINED


@pytest.mark.parametrize(
    ("usage", "now", "bound", "taken", "reason"),
    [
        pytest.param(
            SIMPLE, Running.SPLIT, math.inf, Running.SPLIT, "split costs 960 s of CPU a period, the other way 1e+03 s",
            id="stays split while that is cheaper",
        ),
        pytest.param(
            replace(SIMPLE, windows_per_row=6), Running.COMBINED, math.inf, Running.SPLIT,
            "split costs 960 s of CPU a period instead of 2.8e+03 s",
            id="splits for six overlapping windows",
        ),
        pytest.param(
            SIMPLE, Running.COMBINED, math.inf, Running.COMBINED,
            "split would save 4% of 1e+03 s: not worth the change",
            id="a small gain is not worth the change",
        ),
        pytest.param(
            replace(SIMPLE, windows_per_row=1), Running.SPLIT, math.inf, Running.COMBINED,
            "combined costs 550 s of CPU a period instead of 960 s",
            id="combines when windows do not overlap",
        ),
        pytest.param(
            replace(SIMPLE, windows_per_row=1), Running.COMBINED, 4.0, Running.SPLIT,
            "moves would pause it for 5 s a period, more than 4 s",
            id="splits when moves pause it for too long",
        ),
        pytest.param(
            replace(SIMPLE, windows_per_row=1), Running.SPLIT, 5.0, Running.COMBINED,
            "combined costs 550 s of CPU a period instead of 960 s",
            id="a pause within the bound is fine",
        ),
    ],
)  # fmt: skip
def test_when_to_split_or_combine(usage: Usage, now: Running, bound: float, taken: Running, reason: str) -> None:
    choice = decide_running(usage, now, max_pause_seconds=bound)
    assert (choice.taken, choice.reason) == (taken, reason)
    assert dict(choice.costs) == {"split": split_cpu(usage), "combined": combine_cpu(usage)}


@pytest.mark.parametrize(
    ("merged", "windows", "taken"),
    [
        pytest.param(100_000 * 86, 4, Sharing.SHARED, id="enorm figure 7: 100,000 keys in 86 pieces"),
        pytest.param(100_000 * 240, 4, Sharing.SHARED, id="enorm figure 8: and in 240"),
        pytest.param(18_000_000, 2, Sharing.SHARED, id="equal cost shares"),
        pytest.param(18_000_001, 2, Sharing.PER_WINDOW, id="nearly every row is the only one of its key and slice"),
        pytest.param(1, 1, Sharing.PER_WINDOW, id="nothing overlaps, nothing to share"),
    ],
)
def test_when_to_share(merged: float, windows: float, taken: Sharing) -> None:
    choice = decide_sharing(
        rows=18_000_000, row_seconds=1e-6, windows_per_row=windows, merged_keys=merged, merge_seconds=1e-6
    )
    assert choice.taken is taken


def test_reasons_for_sharing() -> None:
    few = decide_sharing(rows=1e6, row_seconds=1e-6, windows_per_row=60, merged_keys=1e6, merge_seconds=1e-6)
    assert few.reason == "merging 1,000,000 keys of slices takes less than every row 60 times"
    many = decide_sharing(rows=1e6, row_seconds=1e-6, windows_per_row=60, merged_keys=6e7, merge_seconds=1e-6)
    assert many.reason == (
        "60,000,000 keys of slices to merge take longer than every row 60 times: most keys have few rows in a slice"
    )
    assert dict(many.costs) == pytest.approx({"shared": 61.0, "per window": 60.0})


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_a_cost_is_a_finite_number_from_zero(value: float) -> None:
    with pytest.raises(JobError) as raised:
        replace(SIMPLE, rows=value)
    assert str(raised.value) == f"rows of a cost model must be a finite number from zero, got {value}: measure again"
