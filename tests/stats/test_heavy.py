from __future__ import annotations

import datasketches
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import LimitsError, SnapshotError
from headgate.stats.heavy import HeavyKeys

batches = st.lists(
    st.lists(st.tuples(st.integers(-15, 15), st.integers(0, 50)), max_size=30),
    max_size=6,
)


def truth_of(rows: list[tuple[int, int]]) -> dict[int, float]:
    truth: dict[int, float] = {}
    for key, weight in rows:
        truth[key] = truth.get(key, 0.0) + weight
    return truth


def assert_bounds(summary: HeavyKeys, rows: list[tuple[int, int]]) -> None:
    truth = truth_of(rows)
    assert summary.total == sum(truth.values())
    assert len(summary) <= summary.counters
    assert summary.error <= summary.total / (summary.counters + 1) + 1e-9
    for key in range(-15, 16):
        short = truth.get(key, 0.0) - float(summary.estimate_of([key])[0])
        assert -1e-9 <= short <= summary.error + 1e-9


def summed(counters: int, parts: list[list[tuple[int, int]]]) -> HeavyKeys:
    summary = HeavyKeys(counters)
    for part in parts:
        summary = summary.add([key for key, _ in part], [weight for _, weight in part])
    return summary


@settings(deadline=None)
@given(batches, st.integers(1, 12))
def test_estimates_fall_short_by_the_bound_at_most(parts: list[list[tuple[int, int]]], counters: int) -> None:
    assert_bounds(summed(counters, parts), [row for part in parts for row in part])


@settings(deadline=None)
@given(batches, batches, st.integers(1, 12))
def test_merging_keeps_the_bound(
    left: list[list[tuple[int, int]]], right: list[list[tuple[int, int]]], counters: int
) -> None:
    merged = summed(counters, left).merge(summed(counters, right))
    assert_bounds(merged, [row for part in left + right for row in part])


@settings(deadline=None)
@given(batches, st.integers(1, 12), st.floats(0.0, 1.0))
def test_above_separates_the_sure_from_the_possible(
    parts: list[list[tuple[int, int]]], counters: int, share: float
) -> None:
    summary = summed(counters, parts)
    truth = truth_of([row for part in parts for row in part])
    heavy = {key for key, weight in truth.items() if weight > share * summary.total + 1e-9}
    found = summary.above(share)
    slack = 1e-9 * max(1.0, summary.total)
    assert all(truth[key] >= share * summary.total - slack for key in found.guaranteed.tolist())
    assert set(found.guaranteed.tolist()) <= set(found.possible.tolist())
    if found.complete:
        assert heavy <= set(found.possible.tolist())


def test_few_keys_are_counted_exactly() -> None:
    summary = HeavyKeys(4).add([1, 2, 1, 3], [5, 1, 2, 4])
    assert summary.hash.tolist() == [1, 2, 3]
    assert summary.estimate.tolist() == [7, 1, 4]
    assert summary.error == 0


def test_the_smallest_are_cut_off_and_all_pay_for_it() -> None:
    # Weights 10, 6, 3, 1 in two counters: the third largest, 3, is taken off everyone.
    summary = HeavyKeys(2).add([1, 2, 3, 4], [10, 6, 3, 1])
    assert summary.hash.tolist() == [1, 2]
    assert summary.estimate.tolist() == [7, 3]
    assert summary.error == 3


def test_rows_without_weight_count_one_each() -> None:
    assert HeavyKeys(4).add([9, 9, 4]).estimate.tolist() == [1, 2]


def test_heavy_keys_are_listed_heaviest_first() -> None:
    found = HeavyKeys(8).add([1, 2, 3], [20, 70, 10]).above(0.15)
    assert found.guaranteed.tolist() == [2, 1]
    assert found.complete


def test_a_share_below_the_error_is_not_complete() -> None:
    summary = HeavyKeys(2).add(np.arange(100))
    assert summary.above(0.001).complete is False
    assert summary.above(0.5).complete is True


def test_adding_leaves_the_summary_as_it_was() -> None:
    before = HeavyKeys(2).add([1, 1, 2])
    before.add([3, 3, 3, 3])
    assert before.hash.tolist() == [1, 2]
    assert not before.estimate.flags.writeable


def test_agrees_with_datasketches_on_the_heavy_keys() -> None:
    weights = np.arange(1, 20_001, dtype=np.float64) ** -1.1
    drawn = np.random.default_rng(5).choice(20_000, size=60_000, p=weights / weights.sum())
    ours = HeavyKeys(768)
    for part in np.array_split(drawn, 7):
        ours = ours.add(part)
    theirs = datasketches.frequent_strings_sketch(10)  # 2^10 places, three quarters of which hold a counter: 768
    for key in drawn.tolist():
        theirs.update(str(key))
    share = 0.004
    rows = theirs.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, int(share * 60_000))
    surely = {int(name) for name, _, low, _ in rows if low > share * 60_000}
    possibly = {int(name) for name, *_ in rows}
    truth = set(np.flatnonzero(np.bincount(drawn) > share * 60_000).tolist())
    found = ours.above(share)
    assert set(found.guaranteed.tolist()) <= truth <= set(found.possible.tolist())
    assert surely <= truth <= possibly
    assert len(truth) > 10
    # Both promise about the same for the same memory; ours is cut once a batch and so keeps more of the promise.
    assert ours.error <= theirs.epsilon * 60_000


@pytest.mark.parametrize(
    ("hashes", "weights", "text"),
    [
        pytest.param([1, 2], [1.0], "expected 2 weights, got 1", id="too few weights"),
        pytest.param([1, 2], [1.0, -2.0], "a weight must be zero or more, got -2.0 for key 2", id="negative"),
        pytest.param(
            [1, 2], [1.0, np.nan], "a weight must be a finite number, got NaN .* for key 2", id="not a number"
        ),
    ],
)
def test_weights_are_checked(hashes: list[int], weights: list[float], text: str) -> None:
    with pytest.raises(SnapshotError, match=text):
        HeavyKeys().add(hashes, weights)


def test_summaries_of_other_sizes_do_not_merge() -> None:
    with pytest.raises(SnapshotError, match="the number of counters: one has 4, another 8"):
        HeavyKeys(4).merge(HeavyKeys(8))
    with pytest.raises(LimitsError, match="counters must be at least 1, got 0"):
        HeavyKeys(0)
