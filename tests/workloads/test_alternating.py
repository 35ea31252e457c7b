from __future__ import annotations

import numpy as np
import pytest

from headgate.errors import LimitsError
from headgate.workloads import AlternatingStream


def test_five_minutes_level_then_ten_skewed() -> None:
    stream = AlternatingStream()
    exponents = [stream.exponent(minute) for minute in range(32)]
    assert exponents == [0.2] * 5 + [1.5] * 10 + [0.2] * 5 + [1.5] * 10 + [0.2] * 2


def test_every_interval_has_its_tuples() -> None:
    stream = AlternatingStream(interval_seconds=10, tuples_per_second=500)
    assert [stream.counts(i).sum() for i in (0, 29, 30)] == [5000, 5000, 5000]


def test_hashing_over_five_engines_is_as_skewed_as_in_the_paper() -> None:
    # cep-dlb, section 4: about 3 % in the level phase, 77 to 80 % in the skewed one.
    def rsd(interval: int) -> float:
        load = np.bincount(np.arange(4096) % 5, AlternatingStream().counts(interval))
        return float(100 * load.std() / load.mean())

    assert rsd(0) < 3
    assert 70 < rsd(7) < 85


def test_an_interval_depends_on_its_number_and_the_seed_only() -> None:
    assert np.array_equal(AlternatingStream().counts(7), AlternatingStream().counts(7))
    assert not np.array_equal(AlternatingStream().counts(7), AlternatingStream(seed=1).counts(7))


def test_frequent_keys_stay_the_frequent_ones() -> None:
    stream = AlternatingStream()
    assert np.argmax(stream.counts(5)) == np.argmax(stream.counts(25))


def test_a_phase_without_length_is_refused() -> None:
    with pytest.raises(LimitsError, match="level_seconds must be above zero, got 0"):
        AlternatingStream(level_seconds=0)
