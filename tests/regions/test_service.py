"""How long connections were busy, and with how much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.regions.balance import Sample, Service
from headgate.regions.service import Stopwatch


def test_a_frame_that_waits_behind_another_is_timed_from_when_that_is_answered() -> None:
    watch = Stopwatch(2)
    watch.sent(0, 1.0)
    watch.sent(0, 1.5)
    watch.answered(0, 10, 0.5, 3.0, more=True)
    watch.answered(0, 10, 0.5, 7.0, more=False)
    told = watch.read(9.0, 10)
    assert told.answered.tolist() == [20, 0]
    assert told.served.tolist() == [6.0, 0.0]
    assert told.worked.tolist() == [1.0, 0.0], "by the worker's own clock"
    assert told.current.tolist() == [0.0, 0.0]


def test_idle_time_does_not_count() -> None:
    watch = Stopwatch(1)
    for at in (0.0, 10.0, 20.0):
        watch.sent(0, at)
        watch.answered(0, 1, 0.5, at + 1.0, more=False)
    assert watch.read(30.0, 1).served.tolist() == [3.0]


def test_what_a_connection_is_at_now_is_told_apart() -> None:
    watch = Stopwatch(1)
    watch.sent(0, 2.0)
    assert watch.read(2.5, 4).current.tolist() == [0.5]
    assert watch.read(2.5, 4).frame == 4
    watch.answered(0, 4, 0.5, 3.0, more=True)
    assert watch.read(3.25, 4).current.tolist() == [0.25]


def test_what_is_lost_is_not_counted() -> None:
    watch = Stopwatch(1)
    watch.sent(0, 0.0)
    watch.lost(0)
    assert watch.read(5.0, 1).current.tolist() == [0.0]
    watch.sent(0, 6.0)
    watch.answered(0, 1, 0.5, 8.0, more=False)
    assert watch.read(9.0, 1).served.tolist() == [2.0]


def test_what_was_handed_out_does_not_change() -> None:
    watch = Stopwatch(1)
    watch.sent(0, 0.0)
    told = watch.read(1.0, 1)
    watch.answered(0, 1, 0.5, 2.0, more=False)
    assert (told.answered.tolist(), told.served.tolist()) == ([0], [0.0])


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=30))
def test_a_worker_that_takes_its_frames_in_order_is_measured_exactly(frames: list[tuple[float, float]]) -> None:
    """Each frame is sent some time after the one before, and takes some time once it is the oldest."""
    watch, events = Stopwatch(1), []
    sent = free = 0.0
    for pause, takes in frames:
        sent += pause
        free = max(sent, free) + takes
        events += [(sent, 0), (free, 1)]
    out = 0
    for at, answer in sorted(events):
        if answer:
            out -= 1
            watch.answered(0, 1, 0.5, at, more=out > 0)
        else:
            out += 1
            watch.sent(0, at)
    told = watch.read(free, 1)
    assert told.answered.tolist() == [len(frames)]
    assert told.served[0] == pytest.approx(sum(takes for _, takes in frames))


# The clock of one region on that of several, and back.


def _sample(at: float, answered: int | None) -> Sample:
    service = None
    if answered is not None:
        service = Service(
            np.array([answered, 0]),
            np.array([answered / 2, 0.0]),
            np.array([answered / 4, 0.0]),
            np.array([0.25, 0.0]),
            8,
        )
    return Sample(at, np.array([at / 10, 0.0]), np.ones(2, bool), answered, service)


def test_samples_go_on_after_others_and_back() -> None:
    before, sample = _sample(10.0, 100), _sample(2.0, 30)
    whole = sample.after(before)
    assert (whole.at, whole.sent, whole.blocked.tolist()) == (12.0, 130, [1.2, 0.0])
    assert whole.service is not None
    assert whole.service.answered.tolist() == [130, 0]
    assert whole.service.served.tolist() == [65.0, 0.0]
    assert whole.service.worked.tolist() == [32.5, 0.0]
    assert whole.service.current.tolist() == [0.25, 0.0], "of now, not since the beginning"
    assert whole.service.frame == 8
    back = whole.since(before)
    assert (back.at, back.sent) == (2.0, 30)
    assert back.service is not None
    assert back.service.answered.tolist() == [30, 0]


def test_what_is_not_counted_stays_so() -> None:
    bare = _sample(2.0, None).after(_sample(10.0, 100))
    assert (bare.sent, bare.service) == (None, None)
    first = _sample(2.0, 30).after(_sample(10.0, None))
    assert first.service is not None
    assert (first.sent, first.service.answered.tolist()) == (30, [30, 0])
