"""Kinds of windows: what they say of themselves, and what they refuse."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headgate.errors import JobError
from headgate.windows import CountWindows, Hop, Hopping, Overlapping, Sessions, Spans, Tumbling, window

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("kind", "hops"),
    [
        pytest.param(Tumbling("10 minutes"), [Hop(10 * MINUTE, 10 * MINUTE)], id="tumbling hops by its length"),
        pytest.param(
            Tumbling("1 hour", offset="15 minutes"),
            [Hop(60 * MINUTE, 60 * MINUTE, 15 * MINUTE)],
            id="an offset shifts the start",
        ),
        pytest.param(
            Tumbling("1 hour", offset="75 minutes"),
            [Hop(60 * MINUTE, 60 * MINUTE, 15 * MINUTE)],
            id="an offset beyond the hop is taken modulo the hop",
        ),
        pytest.param(
            Hopping(timedelta(minutes=5), 60), [Hop(5 * MINUTE, MINUTE)], id="timedelta and seconds are durations too"
        ),
        pytest.param(Hopping("5 min", "10 min"), [Hop(5 * MINUTE, 10 * MINUTE)], id="a hop past the length has gaps"),
        pytest.param(
            Overlapping(("10 min", "30 min")),
            [Hop(10 * MINUTE, 10 * MINUTE), Hop(30 * MINUTE, 30 * MINUTE)],
            id="several lengths tumble each by its own",
        ),
        pytest.param(
            Overlapping(("10 min", "1 h"), "10 min"),
            [Hop(10 * MINUTE, 10 * MINUTE), Hop(60 * MINUTE, 10 * MINUTE)],
            id="several lengths hop together",
        ),
        pytest.param(CountWindows(3), [Hop(3, 3)], id="count windows follow one another"),
        pytest.param(CountWindows(4, 2), [Hop(4, 2)], id="count windows overlap"),
    ],
)
def test_hops(kind: Any, hops: list[Hop]) -> None:
    assert list(kind.hops) == hops


def test_the_same_window_in_other_words_is_equal() -> None:
    assert Tumbling("60 s") == Tumbling("1 minute") == Tumbling(timedelta(minutes=1))
    assert Overlapping(("60 s",)).lengths == (timedelta(minutes=1),)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        pytest.param(window("10 min"), Tumbling("10 min"), id="one length tumbles"),
        pytest.param(window("10 min", every="600 s"), Tumbling("10 min"), id="a hop of its own length tumbles"),
        pytest.param(window("1 h", every="10 min"), Hopping("1 h", "10 min"), id="a shorter hop hops"),
        pytest.param(
            window("10 min", "1 h", every="10 min", lateness="1 min", spans=Spans.END),
            Overlapping(("10 min", "1 h"), "10 min", lateness="1 min", spans=Spans.END),
            id="several lengths overlap",
        ),
    ],
)
def test_window_finds_the_kind(made: Any, kind: Any) -> None:
    assert made == kind


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda: Tumbling(0),
            'a window\'s length must be longer than zero, got 0: for example "10 minutes"',
            id="no length",
        ),
        pytest.param(
            lambda: Hopping("1 h", "0 s"),
            "every must be longer than zero, got '0 s': for example \"10 minutes\"",
            id="no hop",
        ),
        pytest.param(
            lambda: Tumbling("1 parsec"),
            'a window\'s length must be a duration such as "10 minutes", a timedelta or a number of seconds, '
            "got '1 parsec'",
            id="no duration",
        ),
        pytest.param(
            lambda: Tumbling("1 h", lateness=-1),
            'the lateness of windows must be a duration such as "10 minutes", a timedelta or a number of seconds, '
            "got -1",
            id="lateness below zero",
        ),
        pytest.param(
            lambda: window(), 'windows must have at least one length, got (): for example "10 minutes"', id="no window"
        ),
        pytest.param(
            lambda: window("1 h", "60 min"),
            "the lengths of windows must differ, got ['1:00:00', '1:00:00']: leave out the repeated one",
            id="a length twice",
        ),
        pytest.param(
            lambda: Sessions("0 s"),
            "the gap of sessions must be longer than zero, got '0 s': for example \"10 minutes\"",
            id="no gap",
        ),
        pytest.param(
            lambda: CountWindows(0),
            "rows of a count window must be a whole number from 1, got 0: check the window",
            id="no rows",
        ),
        pytest.param(
            lambda: CountWindows(2, 1.5),  # type: ignore[arg-type]
            "every of a count window must be a whole number from 1, got 1.5: check the window",
            id="half a row",
        ),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(JobError) as raised:
        make()
    assert str(raised.value) == text


def test_rules_under_which_slices_can_be_shared() -> None:
    assert [rule.name for rule in Spans if rule.sliceable] == ["START", "END", "SHARE"]
