"""Frames are large for cheap tuples and single for dear ones."""

from __future__ import annotations

import pytest

from headgate.regions.sizing import SLOWEST, TARGET, Sizing


def settled(costs: dict[int, float], size: int = 10, most_bytes: int = 10**6) -> Sizing:
    """After many frames from connections whose tuples cost this many seconds."""
    sizing = Sizing(10_000, most_bytes)
    for _ in range(40):
        for connection, cost in costs.items():
            sizing.sent(sizing.tuples, size * sizing.tuples)
            sizing.answered(connection, sizing.tuples, cost * sizing.tuples)
    return sizing


@pytest.mark.parametrize(
    ("costs", "tuples"),
    [
        ({0: 1e-7, 1: 1e-7}, 10_000),
        ({0: 1e-4, 1: 1e-4}, 50),
        ({0: 0.004, 1: 0.004}, 1),
        ({0: 2.0, 1: 2.0}, 1),
        ({0: 1e-4, 1: 1e-2}, 5),
    ],
    ids=[
        "cheap tuples fill the frame",
        "a frame is the target's worth of work",
        "tuples of milliseconds travel alone",
        "tuples of seconds travel alone",
        "a slow worker makes the frames of all small",
    ],
)
def test_the_size_of_a_frame(costs: dict[int, float], tuples: int) -> None:
    assert settled(costs).tuples == pytest.approx(tuples, abs=1)
    assert TARGET * 10 == SLOWEST


def test_large_tuples_limit_a_frame_by_its_bytes() -> None:
    assert settled({0: 1e-7}, size=10_000, most_bytes=100_000).tuples == 10


def test_a_frame_is_at_most_four_times_the_last() -> None:
    sizing = Sizing(1_000, 10**6)
    sizes = []
    for _ in range(5):
        sizing.answered(0, sizing.tuples, 1e-7)
        sizes.append(sizing.tuples)
    assert sizes == [4, 16, 64, 256, 1_000]


def test_a_lost_processor_changes_nothing() -> None:
    sizing = settled({0: 1e-6})
    sizing.answered(0, sizing.tuples, 0.5)
    assert sizing.tuples == 5_000


def test_a_slow_worker_that_is_gone_is_forgotten() -> None:
    sizing = settled({0: 1e-6, 1: 1e-2})
    assert sizing.tuples == 5
    sizing.lost(1)
    for _ in range(12):
        sizing.answered(0, sizing.tuples, 1e-6 * sizing.tuples)
    assert sizing.tuples == 5_000
