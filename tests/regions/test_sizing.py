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


@pytest.mark.parametrize(
    ("costs", "ahead"),
    [
        ({0: 1e-8}, 64),
        ({0: 1e-7}, 20),
        ({0: 1e-4}, 4),
        ({0: 0.5}, 2),
        ({0: 1e-4, 1: 1e-2}, 40),
    ],
    ids=[
        "no more than so many",
        "many where the largest frame is done in no time",
        "four frames of the target",
        "two where each takes long",
        "many small frames for who is fast beside a slow worker",
    ],
)
def test_frames_a_worker_has_at_once(costs: dict[int, float], ahead: int) -> None:
    sizing = settled(costs)
    assert sizing.ahead(0) == ahead
    assert all(sizing.ahead(connection) == 2 for connection in costs if costs[connection] > 0.005)
    assert sizing.ahead(99) == 4  # nothing is known of it yet


@pytest.mark.parametrize(
    ("cost", "size", "most_tuples", "at_hand"),
    [(1e-6, 10, 10_000, 20_000), (0.5, 10, 10_000, 64), (0.5, 10**6, 10_000, 4), (0.5, 10, 10, 40)],
    ids=["four frames", "dear tuples, one a frame", "large ones", "where only small frames are allowed"],
)
def test_tuples_to_read_before_they_are_needed(cost: float, size: int, most_tuples: int, at_hand: int) -> None:
    sizing = Sizing(most_tuples, 10**6)
    assert sizing.at_hand == 4
    for _ in range(20):
        sizing.sent(sizing.tuples, size * sizing.tuples)
        sizing.answered(0, sizing.tuples, cost * sizing.tuples)
    assert sizing.at_hand == at_hand


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
