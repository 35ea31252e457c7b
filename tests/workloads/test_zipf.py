from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.arrays import F64, I32, I64, sums
from headgate.errors import LimitsError
from headgate.workloads.zipf import ZipfStream, apportion, zipf_shares


def spread(keys: int, slots: int) -> I32:
    return (np.arange(keys) % slots).astype(np.int32)


def loads(counts: I64, slot_of_key: I32, slots: int) -> F64:
    return sums(slot_of_key, counts, slots)


def test_shares_follow_the_power_law_and_add_up() -> None:
    shares = zipf_shares(1000, 1.5)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] / shares[9] == pytest.approx(10**1.5)


def test_exponent_zero_is_the_even_distribution() -> None:
    assert np.allclose(zipf_shares(8, 0), 1 / 8)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(0, 10_000))
def test_apportioned_counts_add_up_and_stay_within_one(raw: list[float], total: int) -> None:
    weights = np.array(raw) + 1e-6
    shares = weights / weights.sum()
    counts = apportion(shares, total)
    assert counts.sum() == total
    assert (np.abs(counts - shares * total) <= 1 + 1e-6).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 8), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 5))
def test_some_slot_changes_by_the_fluctuation_rate(slots: int, rate: float, seed: int) -> None:
    keys = 2000
    stream = ZipfStream(keys=keys, fluctuation=rate, seed=seed)
    places = spread(keys, slots)
    before = loads(stream.next(places, slots), places, slots)
    for _ in range(3):
        counts = stream.next(places, slots)
        after = loads(counts, places, slots)
        assert counts.sum() == 10 * keys
        # A slot can have no more than as many of the heaviest keys as it has keys.
        at_most = np.sort(counts)[-(keys // slots) :].sum() / before.min() - 1
        assert (np.abs(after - before) / before).max() >= min(rate, at_most) - 1e-9
        before = after


def test_only_who_has_which_count_changes() -> None:
    places = spread(5000, 10)
    stream = ZipfStream(keys=5000, fluctuation=1.0)
    first, second = stream.next(places, 10), stream.next(places, 10)
    assert (first != second).any()
    assert np.array_equal(np.sort(first), np.sort(second))


def test_no_fluctuation_repeats_the_interval() -> None:
    stream = ZipfStream(keys=500, fluctuation=0)
    places = spread(500, 4)
    assert np.array_equal(stream.next(places, 4), stream.next(places, 4))


def test_one_slot_has_nothing_to_swap_with() -> None:
    stream = ZipfStream(keys=500, fluctuation=1.0)
    places = spread(500, 1)
    assert np.array_equal(stream.next(places, 1), stream.next(places, 1))


def test_even_frequencies_leave_nothing_to_change() -> None:
    stream = ZipfStream(keys=400, z=0, fluctuation=1.0)
    places = spread(400, 4)
    assert np.array_equal(stream.next(places, 4), stream.next(places, 4))


def test_out_of_reach_takes_the_greatest_change_there_is() -> None:
    # Two slots of 50 keys: at best one has the 50 heaviest.
    stream = ZipfStream(keys=100, fluctuation=2.0)
    places = spread(100, 2)
    stream.next(places, 2)
    counts = stream.next(places, 2)
    assert loads(counts, places, 2).max() == np.sort(counts)[50:].sum()


def test_the_seed_decides_everything() -> None:
    places = spread(1000, 5)
    one, same, other = (ZipfStream(keys=1000, seed=seed) for seed in (1, 1, 2))
    for _ in range(3):
        counts = one.next(places, 5)
        assert np.array_equal(counts, same.next(places, 5))
        assert not np.array_equal(counts, other.next(places, 5))


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        pytest.param({"keys": 0}, "keys must be at least 1, got 0", id="no keys"),
        pytest.param({"keys": 5, "z": -1}, "z must be zero or more, got -1", id="rising frequencies"),
        pytest.param({"keys": 5, "fluctuation": -0.1}, "fluctuation must be zero or more, got -0.1", id="negative f"),
        pytest.param({"keys": 5, "tuples": -1}, "tuples must be zero or more, got -1", id="negative tuples"),
    ],
)
def test_parameters_that_make_no_stream_are_refused(parameters: dict[str, float], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        ZipfStream(**parameters)  # type: ignore[arg-type]


def test_slots_of_other_keys_are_refused() -> None:
    with pytest.raises(LimitsError, match=r"slot_of_key must be one slot for 10 keys, got \(9,\)"):
        ZipfStream(keys=10).next(spread(9, 2), 2)
