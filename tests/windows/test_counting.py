"""Count windows against a naive count per key."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.windows import CountWindows, Slicing, closing_counts, row_numbers


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# key 0    0 1 2 3     key 0 had two rows, key 1 none
# key 1            0
def test_rows_are_numbered_per_key_from_where_it_left_off() -> None:
    numbers, now = row_numbers(array(0, 1, 0), array(2, 0, 7))
    assert numbers.tolist() == [2, 0, 3]
    assert now.tolist() == [4, 1, 7]
    numbers, now = row_numbers(array(), array(2))
    assert (numbers.tolist(), now.tolist()) == ([], [2])


# rows 4, every 2     0  1  2  3  4  5  6  7
# windows             |-----------|
#                           |-----------|
#                                 |-----------|
def test_windows_end_with_their_last_row() -> None:
    (hop,) = CountWindows(4, 2).hops
    key, first = closing_counts(array(0, 3, 4, 0), array(3, 4, 8, 0), hop)
    assert key.tolist() == [1, 2, 2]
    assert first.tolist() == [0, 2, 4]
    assert Slicing.of(CountWindows(4, 2)).width == 2


kinds = st.builds(CountWindows, st.integers(1, 6), st.integers(1, 6))


@given(kinds, st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=4))
def test_batches_close_the_windows_of_a_naive_count(kind: CountWindows, batches: list[list[int]]) -> None:
    (hop,) = kind.hops
    seen = np.zeros(4, np.int64)
    history: dict[int, list[int]] = {}
    closed = set()
    for number, batch in enumerate(batches):
        numbers, now = row_numbers(array(*batch), seen)
        for key, at in zip(batch, numbers.tolist(), strict=True):
            assert at == len(history.setdefault(key, []))
            history[key].append(number)
        for key, first in zip(*(part.tolist() for part in closing_counts(seen, now, hop)), strict=True):
            assert (key, first) not in closed
            assert history[key][first + hop.length - 1] == number
            closed.add((key, first))
        seen = now
    assert closed == {
        (key, first)
        for key, rows in history.items()
        for first in range(0, len(rows), hop.every)
        if first + hop.length <= len(rows)
    }
