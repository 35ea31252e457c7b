"""Slices and windows: small timelines by hand, then all of it against definitions written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import JobError
from headgate.windows import NO_WATERMARK, Hop, Slicing, Spans, Stage, Tumbling, stages, watermark_of
from headgate.windows.slices import NEVER
from headgate.windows.spans import place_in_slices, place_in_windows, valid_spans

hop_strategy = st.builds(Hop, st.integers(1, 24), st.integers(1, 24), st.integers(0, 23))
slicings = st.builds(Slicing, st.lists(hop_strategy, min_size=1, max_size=3).map(tuple), st.integers(0, 10))
times = st.integers(-200, 200)


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def covering(hop: Hop, t: int) -> list[int]:
    """Starts of the windows that contain t, by the definition."""
    return [start for start in range(t - hop.length + 1, t + 1) if (start - hop.offset) % hop.every == 0]


@pytest.mark.parametrize(
    ("hops", "width", "anchor"),
    [
        pytest.param([Hop(10, 10)], 10, 0, id="tumbling: one slice a window"),
        pytest.param([Hop(30, 20)], 10, 0, id="hopping: the divisor of length and hop"),
        pytest.param([Hop(5, 5), Hop(10, 10), Hop(15, 15), Hop(20, 20)], 5, 0, id="enorm figure 7, made of 5 minutes"),
        pytest.param([Hop(60, 60, 15)], 60, 15, id="one offset only shifts the grid"),
        pytest.param([Hop(60, 60, 0), Hop(60, 60, 15)], 15, 0, id="two offsets make it finer"),
        pytest.param([Hop(7, 3)], 1, 0, id="no common divisor"),
    ],
)
def test_width_and_anchor(hops: list[Hop], width: int, anchor: int) -> None:
    slicing = Slicing(tuple(hops))
    assert (slicing.width, slicing.anchor) == (width, anchor)


# length 30, every 20      -20       0        20        40
# windows                   |-----------------|
#                                     |-----------------|
# slices of 10              |----|----|----|----|----|--
# times                     ^-20    ^-1  ^0       ^19
def test_a_time_before_1970_is_nothing_special() -> None:
    slicing = Slicing((Hop(30, 20),))
    assert slicing.slice_of(array(-20, -11, -10, -1, 0, 9, 19)).tolist() == [-20, -20, -10, -10, 0, 0, 10]
    position, starts = slicing.windows_of(array(-1, 0, 19), 0)
    assert position.tolist() == [0, 1, 1, 2]
    assert starts.tolist() == [-20, -20, 0, 0]


# every 10, length 20       0         10        20        30        40
# windows                   |---------A---------|
#                                     |---------B---------|
# slices with rows                    |xxxxxxxxx|
# watermark                                    19 20      29 30
@pytest.mark.parametrize(
    ("before", "now", "starts"),
    [
        pytest.param(NO_WATERMARK, 19, [], id="no window ends before its end"),
        pytest.param(19, 20, [0], id="a window ends when the watermark is its end"),
        pytest.param(20, 29, [], id="and only once"),
        pytest.param(NO_WATERMARK, 1000, [0, 10], id="windows without rows do not close"),
    ],
)
def test_what_closes(before: int, now: int, starts: list[int]) -> None:
    assert Slicing((Hop(20, 10),)).closing(array(10), 0, before, now).tolist() == starts


# every 10, length 20       0         10        20        30        40
# windows                   |---------A---------|
#                                     |---------B---------|
#                                               |---------C---------|
@pytest.mark.parametrize(
    ("hops", "lateness", "time", "until"),
    [
        pytest.param([Hop(20, 10)], 0, 10, 20, id="A has begun before 10, B has not"),
        pytest.param([Hop(20, 10)], 0, 11, 30, id="and B before 11"),
        pytest.param([Hop(20, 10)], 5, 20, 35, id="late rows are waited for"),
        pytest.param([Hop(5, 10)], 0, 8, 5, id="in a gap the last one is over already"),
        pytest.param([Hop(20, 10), Hop(10, 10)], 0, 20, 30, id="the longest of those that have begun"),
        pytest.param([Hop(20, 20), Hop(100, 10, helper=True)], 0, 20, 20, id="helpers are nobody's windows"),
        pytest.param([Hop(30, 20)], 0, -5, 10, id="before 1970"),
    ],
)
def test_when_all_windows_that_began_before_a_time_are_over(
    hops: list[Hop], lateness: int, time: int, until: int
) -> None:
    assert Slicing(tuple(hops), lateness).begun_until(time) == until


@given(slicing=slicings, time=times)
def test_no_window_that_has_begun_ends_later(slicing: Slicing, time: int) -> None:
    starts = [
        (start, start + hop.length)
        for hop in slicing.hops
        for start in range(time - 60, time)
        if (start - hop.offset) % hop.every == 0
    ]
    assert slicing.begun_until(time) == max(end for _, end in starts) + slicing.lateness


# lateness 5                0         10        20   25   30   35
# windows over slice 10     |---------A---------|....|
#                                     |---------B---------|....|
def test_late_rows_open_windows_again_until_the_lateness_is_over() -> None:
    slicing = Slicing((Hop(20, 10),), lateness=5)
    assert [slicing.reopened(array(10), 0, now).tolist() for now in (19, 20, 24, 25, 30, 35)] == [
        [], [0], [0], [], [10], []
    ]  # fmt: skip
    assert slicing.needed_until(array(10), array(20)).tolist() == [35]
    assert [slicing.droppable(array(10), now).tolist() for now in (34, 35)] == [[False], [True]]
    assert [slicing.late(array(10, 19, 20), now).tolist() for now in (34, 35)] == [[False] * 3, [True, True, False]]


# length 5, every 10        0    5    10   15
# windows                   |----|    |----|
# the slice at 5 is in no window
def test_rows_between_windows_are_dropped_from_the_start() -> None:
    slicing = Slicing((Hop(5, 10),))
    assert slicing.late(array(3, 5, 9, 10), NO_WATERMARK).tolist() == [False, True, True, False]
    assert slicing.needed_until(array(5), array(10)).tolist() == [NEVER]


def test_results_made_before_rows_came_are_stale() -> None:
    slicing = Slicing((Hop(10, 10), Hop(30, 30)))
    starts, ends = array(0, 10, 20, 0), array(10, 20, 30, 30)
    assert slicing.stale(starts, ends, array(10)).tolist() == [False, True, False, True]
    assert not slicing.stale(starts, ends, array()).any()


def test_the_watermark_and_the_stages_of_a_window() -> None:
    assert watermark_of(100, 30) == 70
    assert watermark_of(NO_WATERMARK, 30) == NO_WATERMARK
    assert stages(array(10, 20, 30), 20, lateness=5).tolist() == [Stage.GONE, Stage.EMITTED, Stage.OPEN]
    assert stages(array(10), NO_WATERMARK, lateness=5).tolist() == [Stage.OPEN]


def test_slices_come_from_kinds_of_windows() -> None:
    slicing = Slicing.of(Tumbling("10 s", lateness="3 s"))
    assert (slicing.width, slicing.lateness) == (10_000_000, 3_000_000)


@pytest.mark.parametrize(
    ("hops", "lateness", "text"),
    [
        pytest.param((), 0, "slices must be for at least one hop, got 0: check the window", id="no hop"),
        pytest.param(
            (Hop(1, 1),),
            -1,
            "the lateness of windows must be zero or more, got -1: check the window",
            id="lateness below zero",
        ),
    ],
)
def test_what_cannot_be_sliced(hops: tuple[Hop, ...], lateness: int, text: str) -> None:
    with pytest.raises(JobError) as raised:
        Slicing(hops, lateness)
    assert str(raised.value) == text


def test_slices_can_be_narrower_if_they_divide_the_widest() -> None:
    assert Slicing((Hop(20, 10),), slice_micros=5).width == 5
    with pytest.raises(JobError) as raised:
        Slicing((Hop(20, 10),), slice_micros=4)
    assert str(raised.value) == (
        "the width of slices must divide 10, the greatest that fits all windows, got 4: leave it out, or take a divisor"
    )


@given(slicings, st.lists(times, max_size=8))
def test_a_row_is_in_length_over_every_windows(slicing: Slicing, rows: list[int]) -> None:
    for number, hop in enumerate(slicing.hops):
        position, starts = slicing.windows_of(array(*rows), number)
        for at, t in enumerate(rows):
            found = starts[position == at].tolist()
            assert found == covering(hop, t)
            assert math.floor(hop.windows_per_row) <= len(found) <= math.ceil(hop.windows_per_row)
            if hop.length % hop.every == 0:
                assert len(found) == hop.length // hop.every


@given(slicings, st.lists(times, max_size=8))
def test_a_slice_lies_in_the_same_windows_as_its_rows(slicing: Slicing, rows: list[int]) -> None:
    slices = slicing.slice_of(array(*rows))
    assert ((slices <= array(*rows)) & (array(*rows) < slices + slicing.width)).all()
    for number in range(len(slicing.hops)):
        of_rows, of_slices = slicing.windows_of(array(*rows), number), slicing.windows_of(slices, number)
        assert [part.tolist() for part in of_rows] == [part.tolist() for part in of_slices]


@given(slicings, st.lists(st.integers(-10, 10), max_size=5, unique=True))
def test_a_window_is_the_disjoint_union_of_its_slices(slicing: Slicing, numbers: list[int]) -> None:
    for number, hop in enumerate(slicing.hops):
        windows = array(*(hop.offset + k * hop.every for k in numbers))
        position, slices = slicing.slices_of(windows, number)
        assert (slicing.slice_of(slices) == slices).all()
        for at, start in enumerate(windows.tolist()):
            covered = [t for s in slices[position == at].tolist() for t in range(s, s + slicing.width)]
            assert covered == list(range(start, start + hop.length))


@given(slicings, st.lists(times, max_size=6), st.lists(times, min_size=2, max_size=5).map(sorted))
def test_every_window_with_rows_closes_exactly_once(slicing: Slicing, rows: list[int], marks: list[int]) -> None:
    slices = slicing.slice_of(array(*rows))
    for number, hop in enumerate(slicing.hops):
        closed = [
            start
            for before, now in zip([NO_WATERMARK, *marks], marks, strict=False)
            for start in slicing.closing(slices, number, before, now).tolist()
        ]
        wanted = {start for t in rows for start in covering(hop, t) if start + hop.length <= marks[-1]}
        assert sorted(closed) == sorted(wanted)


@given(slicings, st.lists(times, max_size=6), times)
def test_a_row_is_late_when_all_its_windows_are_gone(slicing: Slicing, rows: list[int], watermark: int) -> None:
    expected = [
        all(
            start + hop.length + slicing.lateness <= watermark for hop in slicing.hops for start in covering(hop, t)
        )
        for t in rows
    ]  # fmt: skip
    assert slicing.late(array(*rows), watermark).tolist() == expected


# slices of 10       0         10        20        30
# a row                    [5=========15)
# another                            [14==================34)
@pytest.mark.parametrize(
    ("rule", "rows", "slices", "shares"),
    [
        pytest.param(Spans.START, [0, 1], [0, 10], [1, 1], id="start: where it starts"),
        pytest.param(Spans.END, [0, 1], [10, 30], [1, 1], id="end: where its last instant lies"),
        pytest.param(
            Spans.SHARE, [0, 0, 1, 1, 1], [0, 10, 10, 20, 30], [0.5, 0.5, 0.3, 0.5, 0.2], id="share: by overlap"
        ),
    ],
)
def test_spans_in_slices(rule: Spans, rows: list[int], slices: list[int], shares: list[float]) -> None:
    found = place_in_slices(Slicing((Hop(10, 10),)), array(5, 14), array(15, 34), rule)
    assert found[0].tolist() == rows
    assert found[1].tolist() == slices
    assert found[2].tolist() == pytest.approx(shares)


def test_each_and_within_cannot_be_shared() -> None:
    with pytest.raises(JobError) as raised:
        place_in_slices(Slicing((Hop(10, 10),)), array(5), array(15), Spans.EACH)
    assert str(raised.value) == (
        "the rule for rows that span several windows must be START, END or SHARE where windows share slices, got "
        "'EACH': have one computation per window, or take another rule"
    )


def test_a_span_ends_no_earlier_than_it_starts() -> None:
    assert valid_spans(array(1, 2, 3), array(2, 2, 2)).tolist() == [True, True, False]


@given(slicings, st.lists(st.tuples(times, st.integers(0, 30)), max_size=6), st.sampled_from(list(Spans)))
def test_spans_in_windows_by_the_definition(slicing: Slicing, rows: list[tuple[int, int]], rule: Spans) -> None:
    t1, t2 = array(*(t for t, _ in rows)), array(*(t + span for t, span in rows))
    for number, hop in enumerate(slicing.hops):
        position, starts, shares = place_in_windows(slicing, number, t1, t2, rule)
        for at, (t, span) in enumerate(rows):
            instants = range(t, t + max(span, 1))
            hits = {
                start: sum(start in covering(hop, i) for i in instants) for i in instants for start in covering(hop, i)
            }
            if rule in (Spans.START, Spans.END):
                hits = dict.fromkeys(covering(hop, instants[0 if rule is Spans.START else -1]), 0)
            if rule is Spans.WITHIN:
                hits = {start: hit for start, hit in hits.items() if hit == len(instants)}
            assert starts[position == at].tolist() == sorted(hits)
            share = [hits[start] / len(instants) if rule is Spans.SHARE else 1.0 for start in sorted(hits)]
            assert shares[position == at].tolist() == pytest.approx(share)


@given(slicings, st.lists(st.tuples(times, st.integers(0, 30)), max_size=6))
def test_shares_of_a_row_over_slices_are_those_over_windows(slicing: Slicing, rows: list[tuple[int, int]]) -> None:
    t1, t2 = array(*(t for t, _ in rows)), array(*(t + span for t, span in rows))
    row, slices, share = place_in_slices(slicing, t1, t2, Spans.SHARE)
    assert np.bincount(row, share, minlength=len(rows)).tolist() == pytest.approx([1.0] * len(rows))
    for number in range(len(slicing.hops)):
        by_slices: dict[tuple[int, int], float] = {}
        position, starts = slicing.windows_of(slices, number)
        for at, start in zip(position.tolist(), starts.tolist(), strict=True):
            by_slices[int(row[at]), start] = by_slices.get((int(row[at]), start), 0) + share[at]
        direct = place_in_windows(slicing, number, t1, t2, Spans.SHARE)
        told = {(r, s): x for r, s, x in zip(*(part.tolist() for part in direct), strict=True)}
        assert by_slices == pytest.approx(told)
