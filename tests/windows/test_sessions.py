"""Sessions: timelines by hand, then a naive model that looks at one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.windows import NO_WATERMARK, Merged, merge_sessions, session_closed

GAP = 5


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def merged(rows: list[tuple[int, int]], opened: list[tuple[int, int, int]]) -> Merged:
    key, time = (array(*column) for column in zip(*rows, strict=True)) if rows else (array(), array())
    columns = [array(*column) for column in zip(*opened, strict=True)] if opened else [array()] * 3
    return merge_sessions(key, time, *columns, gap=GAP)


def listed(result: Merged) -> list[tuple[int, int, int]]:
    return list(zip(result.key.tolist(), result.start.tolist(), result.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("rows", "opened", "sessions"),
    [
        # gap 5      0    5    10   15
        #            x         x          [0, 5) and [10, 15)
        pytest.param([(0, 0), (0, 10)], [], [(0, 0, 5), (0, 10, 15)], id="further apart than the gap"),
        #            x    x               [0, 10)
        pytest.param([(0, 0), (0, 5)], [], [(0, 0, 10)], id="exactly the gap apart is one session"),
        #            x     x              [0, 5) and [6, 11)
        pytest.param([(0, 0), (0, 6)], [], [(0, 0, 5), (0, 6, 11)], id="one more is two"),
        #            [----------)         open
        #               x                 inside: nothing changes
        pytest.param([(0, 3)], [(0, 0, 12)], [(0, 0, 12)], id="a row inside an open session"),
        #            [----)   [----)      open
        #                 x               reaches both
        pytest.param([(0, 5)], [(0, 0, 5), (0, 9, 14)], [(0, 0, 14)], id="a row between two sessions makes them one"),
        #      x     [----)               a row before
        pytest.param([(0, -4)], [(0, 0, 5)], [(0, -4, 5)], id="a late row moves the start"),
        pytest.param([(1, 0), (0, 1)], [], [(0, 1, 6), (1, 0, 5)], id="keys do not meet"),
        pytest.param([], [(3, 0, 5)], [(3, 0, 5)], id="no rows"),
        pytest.param([], [], [], id="nothing at all"),
        pytest.param([(0, 20)], [(0, 0, 30), (1, 0, 5)], [(0, 0, 30), (1, 0, 5)], id="the end stays the greatest"),
    ],
)
def test_sessions(
    rows: list[tuple[int, int]], opened: list[tuple[int, int, int]], sessions: list[tuple[int, int, int]]
) -> None:
    assert listed(merged(rows, opened)) == sessions


def test_what_went_where() -> None:
    result = merged([(0, 20), (0, 1), (1, 0)], [(0, 3, 9), (0, -10, -2)])
    assert listed(result) == [(0, -10, -2), (0, 1, 9), (0, 20, 25), (1, 0, 5)]
    assert result.of_row.tolist() == [2, 1, 3]
    assert result.of_open.tolist() == [1, 0]
    assert result.fresh.tolist() == [False, False, True, True]
    assert len(result) == 4


def test_a_session_ends_when_no_row_can_join_it() -> None:
    ends = array(9, 10, 11)
    assert session_closed(ends, 10).tolist() == [True, False, False]
    assert session_closed(ends, 12, lateness=2).tolist() == [True, False, False]
    assert session_closed(ends, NO_WATERMARK, lateness=2).tolist() == [False] * 3


def naive(rows: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    sessions: list[tuple[int, int, int]] = []
    for key in sorted({key for key, _ in rows}):
        for t in sorted(t for k, t in rows if k == key):
            if sessions and sessions[-1][0] == key and t <= sessions[-1][2]:
                sessions[-1] = (key, sessions[-1][1], t + GAP)
            else:
                sessions.append((key, t, t + GAP))
    return sessions


row_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(-40, 40)), max_size=25)


@given(row_lists)
def test_sessions_equal_a_naive_model(rows: list[tuple[int, int]]) -> None:
    result = merged(rows, [])
    assert listed(result) == naive(rows)
    for (key, t), at in zip(rows, result.of_row.tolist(), strict=True):
        assert result.key[at] == key
        assert result.start[at] <= t <= result.end[at] - GAP


@given(row_lists, st.integers(1, 4))
def test_batches_make_the_same_sessions_as_all_at_once(rows: list[tuple[int, int]], batches: int) -> None:
    opened: list[tuple[int, int, int]] = []
    for batch in range(batches):
        opened = listed(merged(rows[batch::batches], opened))
    assert opened == naive(rows)


@given(row_lists, st.integers(1, 4))
def test_closing_loses_nothing_when_rows_come_within_the_watermark(rows: list[tuple[int, int]], batches: int) -> None:
    """Rows in order of time, sessions taken away as soon as they are closed: the same sessions."""
    ordered = sorted(rows, key=lambda row: row[1])
    size = -(-len(ordered) // batches) if ordered else 1
    opened: list[tuple[int, int, int]] = []
    emitted: list[tuple[int, int, int]] = []
    for at in range(0, len(ordered), size):
        result = merged(ordered[at : at + size], opened)
        rest = ordered[at + size :]
        closed = session_closed(result.end, rest[0][1] if rest else 10**6).tolist()
        emitted += [one for one, gone in zip(listed(result), closed, strict=True) if gone]
        opened = [one for one, gone in zip(listed(result), closed, strict=True) if not gone]
    assert sorted(emitted) == naive(rows)
