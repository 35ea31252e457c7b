"""Consolidation: the paper's hour, choices by number of keys, and the optimum by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.windows import NO_WATERMARK, SLICE, Consolidation, Hop, Overlapping, Piece, Slicing, with_helpers
from headgate.windows.helpers import merges_per_slice

MINUTE = 60_000_000


def minutes(*lengths: int) -> Consolidation:
    """Tumbling windows of these lengths."""
    return Consolidation(Slicing(tuple(Hop(length, length) for length in lengths)))


def paper() -> Consolidation:
    """Figure 7: windows of 5, 10, 15 and 20 minutes from partials of one minute."""
    return Consolidation(Slicing((Hop(5, 5), Hop(10, 10), Hop(15, 15), Hop(20, 20)), slice_micros=1))


def test_the_papers_hour_takes_86_pieces_and_240_naively() -> None:
    assert paper().merges(0, 60) == 86
    assert paper().merges(0, 60, efficient=False) == 240


def test_slices_as_wide_as_the_divisor_need_no_pieces_for_the_shortest_windows() -> None:
    """The same windows with slices of 5: each 5 minute window is one slice, 12 pieces instead of 60."""
    kind = Overlapping(("5 min", "10 min", "15 min", "20 min"))
    consolidation = Consolidation(Slicing.of(kind))
    assert consolidation.slicing.width == 5 * MINUTE
    assert consolidation.merges(0, 60 * MINUTE) == 86 - 60 + 12


# 20 minutes from 10 + 10, or from 15 + 5 (enorm 6.1)
#        0     5     10    15    20
# 10     |-----------|-----------|
# 15     |-----------------|
# 5                        |-----|
@pytest.mark.parametrize(
    ("fifteen", "five", "inputs"),
    [
        pytest.param(120, 90, [(0, 10), (10, 20)], id="10 and 10 have fewer keys"),
        pytest.param(120, 70, [(0, 15), (15, 20)], id="15 and 5 have fewer keys"),
        pytest.param(130, 70, [(0, 10), (10, 20)], id="equal: the piece that starts later ends it"),
    ],
)
def test_the_way_with_fewest_keys_is_taken(fifteen: int, five: int, inputs: list[tuple[int, int]]) -> None:
    keys = {Piece(t, t + 1): 80.0 for t in range(20)}
    keys |= {Piece(0, 10, 1): 100.0, Piece(10, 20, 1): 100.0, Piece(0, 15, 2): fifteen, Piece(15, 20, 0): five}
    step = paper().step(Piece(0, 20, 3), keys)
    assert [(piece.start, piece.end) for piece in step.inputs] == inputs
    assert step.keys == sum(keys[piece] for piece in step.inputs)


def test_a_window_that_is_not_listed_is_not_used_and_a_slice_that_is_not_listed_is_empty() -> None:
    consolidation = minutes(1, 3, 6)
    keys = {Piece(0, 1): 5.0, Piece(2, 3): 1.0, Piece(3, 4): 2.0, Piece(4, 5): 3.0, Piece(3, 6, 1): 4.0}
    step = consolidation.step(Piece(0, 6, 2), keys)
    assert step.inputs == (Piece(0, 1), Piece(2, 3), Piece(3, 6, 1))
    assert step.keys == 10.0
    assert consolidation.step(Piece(6, 12, 2), keys).inputs == ()


def test_windows_are_made_after_those_they_can_be_made_of() -> None:
    consolidation = minutes(4, 2, 1)
    windows = consolidation.closing([0, 1, 2, 3], NO_WATERMARK, 4)
    assert [(piece.start, piece.end) for piece in windows] == [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (2, 4), (0, 4)]
    steps = consolidation.plan(windows, {Piece(t, t + 1): 10.0 for t in range(4)})
    assert [len(step.inputs) for step in steps] == [1, 1, 1, 1, 2, 2, 2]
    assert steps[-1].inputs == (Piece(0, 2, 1), Piece(2, 4, 1))


def test_a_plan_goes_by_the_keys_that_windows_usually_have() -> None:
    """1 + 3 and 2 + 2 both make 4; what a window of 3 has usually decides."""
    consolidation = Consolidation(Slicing((Hop(1, 1), Hop(2, 2), Hop(3, 4), Hop(4, 4))))
    keys = {Piece(t, t + 1): 10.0 for t in range(4)}
    windows = consolidation.closing(range(4), NO_WATERMARK, 4)
    for three, expected in ((10, [(0, 3), (3, 4)]), (14, [(0, 2), (2, 4)])):
        steps = consolidation.plan(windows, keys, expected={0: 10, 1: 11, 2: three})
        assert [(piece.start, piece.end) for piece in steps[-1].inputs] == expected


def test_equal_windows_of_two_hops_are_computed_once() -> None:
    consolidation = Consolidation(Slicing((Hop(4, 4), Hop(4, 2))))
    keys = {Piece(0, 2): 3.0, Piece(2, 4): 3.0}
    steps = consolidation.plan([Piece(0, 4, 0), Piece(0, 4, 1)], keys)
    assert [step.inputs for step in steps] == [(Piece(0, 2), Piece(2, 4)), (Piece(0, 4, 0),)]


hops = st.builds(Hop, st.integers(1, 12), st.integers(1, 6), st.integers(0, 5))
slicings = st.builds(Slicing, st.lists(hops, min_size=1, max_size=3).map(tuple))


def ways(start: int, end: int, pieces: list[Piece], width: int, keys: Mapping[Piece, float]) -> Iterator[float]:
    """The keys of every way to tile [start, end)."""
    if start == end:
        yield 0.0
        return
    if Piece(start, start + width) not in keys:
        yield from ways(start + width, end, pieces, width, keys)
    for piece in pieces:
        if piece.start == start and piece.end <= end and piece in keys:
            for rest in ways(piece.end, end, pieces, width, keys):
                yield keys[piece] + rest


@given(slicings, st.data())
def test_no_way_has_fewer_keys(slicing: Slicing, data: st.DataObject) -> None:
    consolidation = Consolidation(slicing)
    hop = data.draw(st.integers(0, len(slicing.hops) - 1))
    start = slicing.hops[hop].offset + data.draw(st.integers(-3, 3)) * slicing.hops[hop].every
    window = consolidation.window(hop, start)
    pieces = list(consolidation.pieces(window))
    listed = [piece for piece in pieces if data.draw(st.integers(0, 3))]
    keys = {piece: float(data.draw(st.integers(0, 9))) for piece in listed}
    step = consolidation.step(window, keys)
    assert step.keys == min(ways(window.start, window.end, pieces, slicing.width, keys))
    assert step.keys == sum(keys[piece] for piece in step.inputs)


@given(slicings, st.booleans(), st.integers(-30, 30), st.integers(1, 12))
def test_a_window_is_the_disjoint_union_of_its_inputs(slicing: Slicing, helped: bool, before: int, span: int) -> None:
    consolidation = Consolidation(with_helpers(slicing) if helped else slicing)
    now = before + span
    width = slicing.width
    low = before - 2 * slicing.longest
    first = low - (low - slicing.anchor) % width
    slices = {Piece(t, t + width): 7.0 for t in range(first, now, width)}
    windows = consolidation.windows(before, now)
    for step in consolidation.plan(windows, slices):
        covered = sorted(t for piece in step.inputs for t in range(piece.start, piece.end))
        assert covered == list(range(step.window.start, step.window.end))
        assert all(piece in slices or piece in windows for piece in step.inputs)
        assert step.window not in step.inputs


def test_helpers_make_a_window_of_60_slices_from_few() -> None:
    plain = Slicing((Hop(60, 1),))
    helped = with_helpers(plain)
    assert merges_per_slice(plain) == 60
    assert [hop.length for hop in helped.hops if hop.helper] == [2, 4, 8, 16, 32]
    assert merges_per_slice(helped) == 7.6875
    assert helped.windows_per_row == 60
    assert with_helpers(helped) == helped


@pytest.mark.parametrize(
    "hops",
    [
        pytest.param((Hop(10, 10),), id="tumbling: every slice is merged once"),
        pytest.param((Hop(4, 2),), id="two slices a window"),
        pytest.param((Hop(5, 5), Hop(10, 10), Hop(20, 20)), id="windows that nest are each other's helpers"),
    ],
)
def test_helpers_are_left_out_where_they_gain_little(hops: tuple[Hop, ...]) -> None:
    assert with_helpers(Slicing(hops)) == Slicing(hops)


# length 6, every 12, helpers of 4     0   4   8   12
# windows                              |-----|
# helpers                              |---|---|---|
#                                          no window covers [4, 8)
def test_helpers_that_no_window_covers_do_not_close() -> None:
    slicing = Slicing((Hop(6, 12), Hop(4, 4, helper=True)))
    consolidation = Consolidation(slicing)
    closed = consolidation.closing([0, 2, 4, 6, 8, 10], NO_WATERMARK, 12)
    assert closed == (Piece(0, 4, 1), Piece(0, 6, 0))
    assert consolidation.plan(closed, {Piece(t, t + 2): 1.0 for t in (0, 2, 4)})[-1].inputs == (
        Piece(0, 4, 1),
        Piece(4, 6, SLICE),
    )
