"""The compact form: HLHE, records, and the way back to the keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import sums
from headgate.errors import LimitsError
from headgate.stats.compact import Scale, compact, discretise


def test_ten_keys_of_the_paper_deviate_by_zero() -> None:
    cost = np.array([8.0, 6, 3, 2, 2, 1, 1, 1, 1, 1])
    assert Scale.of(cost, 4).values.tolist() == [0, 1, 2, 4, 8]
    assert (cost - discretise(cost, 4)).sum() == 0
    piecewise = np.select([cost <= 3, cost <= 6], [2.0, 5.0], 8.0)
    assert abs((cost - piecewise).sum()) == 3


def test_each_value_takes_a_neighbouring_representative() -> None:
    cost = np.array([8.0, 6, 3, 2, 2, 1, 1, 1, 1, 1])
    assert discretise(cost, 4).tolist() == [8, 4, 4, 2, 2, 2, 1, 1, 1, 1]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=300), st.sampled_from([1, 2, 8, 64]))
def test_the_deviation_stays_within_a_step(values: list[int], degree: int) -> None:
    cost = np.array(values, dtype=np.float64)
    shown = discretise(cost, degree)
    unit = cost.min()
    top = Scale.of(cost, degree).values[-1]
    # Each value moves by less than one step, save those past the last representative, which only go down to it.
    assert (np.abs(cost - shown) <= np.maximum(degree * unit, cost / 2) + 1e-9).all()
    beyond = (cost - top)[cost > top].sum()
    assert abs((cost - shown).sum()) <= max(degree * unit, cost.max() / 2) + beyond + 1e-9


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 8), st.sampled_from([1, 4, 32]))
def test_records_hold_every_key_once_and_only_their_like(seed: int, keys: int, slots: int, degree: int) -> None:
    random = np.random.default_rng(seed)
    cost, state = ((random.zipf(1.5, keys) % top).astype(np.float64) for top in (1000, 500))
    current, home = (random.integers(0, slots, keys).astype(np.int32) for _ in range(2))
    form = compact(cost, state, current, home, slots, degree)
    assert sorted(form.keys.tolist()) == list(range(keys))
    assert form.records.count.sum() == keys
    for row, record in enumerate(form.records):
        mine = form.keys[form.starts[row] : form.starts[row + 1]]
        assert len(mine) == record.number
        assert (current[mine] == record.d).all()
        assert (home[mine] == record.d_home).all()
        assert record.d_next == -1
    assert len({(r.d, r.d_home, r.v_cost, r.v_state) for r in form.records}) == len(form.records)


@pytest.mark.parametrize("degree", [1, 8, 64, 256])
def test_loads_from_records_are_within_one_percent(degree: int) -> None:
    random = np.random.default_rng(7)
    weights = 1 / np.arange(1, 100_001) ** 0.85
    cost = random.permutation(random.multinomial(1_000_000, weights / weights.sum()).astype(float))
    current = random.integers(0, 15, len(cost)).astype(np.int32)
    form = compact(cost, cost, current, current, 15, degree)
    assert form.load_error(cost, current, 15) < 0.01
    assert len(form.records) < len(cost) / (4 if degree == 1 else 20)


def test_costs_of_a_wide_spread_stay_few() -> None:
    form = compact(np.array([1e-9, 1.0, 1e9]), np.ones(3), np.zeros(3, np.int32), np.zeros(3, np.int32), 1, 8)
    assert form.records.cost.sum() == pytest.approx(1e9, rel=1e-3)


def test_a_degree_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(LimitsError, match=r"degree must be a power of two \(1, 2, 4, ...\), got 6"):
        discretise(np.ones(3), 6)


def test_many_slots_and_many_values_do_not_run_into_each_other() -> None:
    random = np.random.default_rng(2)
    cost, state = (np.exp(random.uniform(0, np.log(2**22), 20_000)) for _ in range(2))
    current, home = (random.integers(0, 3000, 20_000).astype(np.int32) for _ in range(2))
    form = compact(cost, state, current, home, 3000, 1)
    assert sums(form.records.current, form.records.cost * form.records.count, 3000).sum() == pytest.approx(cost.sum())
    assert (
        form.records.current[np.repeat(np.arange(len(form.records)), form.records.count)] == current[form.keys]
    ).all()
