from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.arrays import F64, I32, I64, sums
from headgate.errors import AssignmentError, LimitsError, SnapshotError
from headgate.routing import key_hash
from headgate.routing.splitting import PKG, DChoices, Splitter, WChoices, slots_per_key

SLOTS = 20
ROWS = 100_000


def zipf_hashes(z: float, keys: int = 5000, rows: int = ROWS) -> I64:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    drawn = np.random.default_rng(1).choice(keys, size=rows, p=weights / weights.sum())
    return key_hash(drawn)


def max_over_mean(slots: I32, weight: F64 | None = None, count: int = SLOTS) -> float:
    load = sums(slots, np.ones(len(slots)) if weight is None else weight, count)
    return float(load.max() / load.mean())


@pytest.mark.parametrize("z", [1.2, 1.5, 2.0])
def test_more_choices_balance_better(z: float) -> None:
    hashes = zipf_hashes(z)
    hashed = max_over_mean(np.mod(hashes, SLOTS).astype(np.int32))
    two, some, every = (
        max_over_mean(splitter.sender().route(hashes))
        for splitter in (PKG(slots=SLOTS), DChoices(slots=SLOTS), WChoices(slots=SLOTS))
    )
    assert hashed > 3
    assert two < 0.6 * hashed  # two slots share what one had
    assert two > 1.5  # and the hottest key is still too hot for them
    assert some < 1.1  # d is computed for the expected number of different slots among d choices
    assert every < 1.01


def test_without_heavy_keys_two_choices_are_enough() -> None:
    hashes = zipf_hashes(0.5)
    assert max_over_mean(PKG(slots=SLOTS).sender().route(hashes)) < 1.01
    assert DChoices(slots=SLOTS).sender().choices == 2


def test_a_key_hotter_than_a_slot_is_spread_over_all() -> None:
    # Key 7 has half of the load: ten times the share of one of 20 slots.
    drawn = np.random.default_rng(0).integers(100, 5000, ROWS)
    drawn[::2] = 7
    hashes = key_hash(drawn)
    slots = WChoices(slots=SLOTS).sender().route(hashes)
    assert max_over_mean(slots) < 1.01
    assert len(np.unique(slots[::2])) == SLOTS


def test_d_choices_spread_less_than_w_choices() -> None:
    hashes = zipf_hashes(1.2)
    spread = [
        int(slots_per_key(hashes, splitter.sender().route(hashes))[1].sum())
        for splitter in (PKG(slots=SLOTS), DChoices(slots=SLOTS), WChoices(slots=SLOTS))
    ]
    assert spread[0] < spread[1] < spread[2]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 40), max_size=400), st.integers(1, 9), st.integers(0, 3))
def test_pkg_keeps_a_key_in_two_slots(drawn: list[int], slots: int, seed: int) -> None:
    hashes = key_hash(np.array(drawn, dtype=np.int64))
    routed = PKG(slots=slots, seed=seed).sender().route(hashes)
    _, spread = slots_per_key(hashes, routed)
    assert (spread <= 2).all()
    assert ((routed >= 0) & (routed < slots)).all()


def test_several_senders_agree_on_the_two_slots_and_balance_without_talking() -> None:
    hashes = zipf_hashes(0.8)
    splitter = PKG(slots=SLOTS)
    routed = np.empty(ROWS, dtype=np.int32)
    for number in range(5):
        routed[number::5] = splitter.sender().route(hashes[number::5])
    assert slots_per_key(hashes, routed)[1].max() == 2
    assert max_over_mean(routed) < 1.02


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([PKG(slots=5), DChoices(slots=5), WChoices(slots=5)]),
    st.lists(st.integers(0, 5000), max_size=4),
)
def test_batches_make_no_difference(splitter: Splitter, cuts: list[int]) -> None:
    hashes = zipf_hashes(1.5, keys=200, rows=5000)
    whole, pieces = splitter.sender(), splitter.sender()
    routed = whole.route(hashes)
    parts = np.concatenate([pieces.route(part) for part in np.split(hashes, sorted(cuts))])
    assert np.array_equal(routed, parts)
    assert np.array_equal(whole.loads, pieces.loads)


@pytest.mark.parametrize("make", [PKG, DChoices, WChoices])
def test_the_same_tuples_go_the_same_way(make: type[Splitter]) -> None:
    hashes = zipf_hashes(1.5, rows=20_000)
    first, again, other = (make(slots=7, seed=seed).sender().route(hashes) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_weights_are_what_is_balanced() -> None:
    hashes = zipf_hashes(0.5)
    weight = np.random.default_rng(3).exponential(5.0, ROWS)
    sender = PKG(slots=SLOTS).sender()
    routed = sender.route(hashes, weight)
    assert max_over_mean(routed, weight) < 1.01
    assert np.allclose(sender.loads, sums(routed, weight, SLOTS))


def test_a_heavy_weight_makes_a_key_heavy() -> None:
    # Key 3 is one tuple in a hundred, and two thirds of the weight.
    drawn = np.random.default_rng(0).integers(100, 5000, ROWS)
    drawn[::100] = 3
    weight = np.where(drawn == 3, 200.0, 1.0)
    assert max_over_mean(PKG(slots=SLOTS).sender().route(key_hash(drawn), weight), weight) > 6
    assert max_over_mean(WChoices(slots=SLOTS).sender().route(key_hash(drawn), weight), weight) < 1.05


def test_d_follows_the_heaviest_key() -> None:
    choices = []
    for z in (0.5, 1.0, 1.2, 1.5, 2.0):
        sender = DChoices(slots=50).sender()
        sender.route(zipf_hashes(z))
        choices.append(sender.choices)
    assert choices[0] == 2
    assert choices == sorted(choices)
    # z = 2: the heaviest key has 61 % of the load, and needs 31 of 50 slots at the least.
    assert choices[-1] >= 31


def test_few_tuples_make_nobody_heavy() -> None:
    sender = WChoices(slots=SLOTS).sender()
    routed = sender.route(key_hash(np.zeros(100, dtype=np.int64)))
    assert len(np.unique(routed)) <= 2


@pytest.mark.parametrize(
    ("hashes", "slots", "expected"),
    [
        pytest.param([], [], {}, id="nothing sent"),
        pytest.param([5, 5, 5], [1, 1, 1], {5: 1}, id="one slot"),
        pytest.param([5, 9, 5, 5, 9], [1, 1, 0, 1, 1], {5: 2, 9: 1}, id="one key split, one not"),
        pytest.param([-3, -3, 8], [2, 0, 0], {-3: 2, 8: 1}, id="negative hashes"),
    ],
)
def test_slots_per_key(hashes: list[int], slots: list[int], expected: dict[int, int]) -> None:
    keys, spread = slots_per_key(hashes, slots)
    assert dict(zip(keys.tolist(), spread.tolist(), strict=True)) == expected


def test_parameters_are_checked() -> None:
    with pytest.raises(AssignmentError, match="at least one slot, got 0"):
        PKG(slots=0)
    with pytest.raises(LimitsError, match="DChoices: theta must be above 0 and at most 1, got 0"):
        DChoices(slots=4, theta=0)
    with pytest.raises(SnapshotError, match=r"weight must be zero or more, got -1\.0 for key 5"):
        PKG(slots=4).sender().route(np.array([4, 5]), np.array([1.0, -1.0]))
    with pytest.raises(SnapshotError, match="expected 2 weight, got 1"):
        PKG(slots=4).sender().route(np.array([4, 5]), np.array([1.0]))
