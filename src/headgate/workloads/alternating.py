"""A stream that is level for five minutes and badly skewed for ten, over and over.

    z      0.2      1.5            0.2      1.5            0.2
           |--------|--------------|--------|--------------|----
    min    0        5              15       20             30

Problem         whether a balancer notices that the distribution changed, and stops moving keys once it has settled
Inputs          4,096 keys, two exponents and how long each holds, tuples per second, the length of an interval
Guarantee       the counts of an interval add up to tuples_per_second * interval_seconds; interval i is a function of
                the parameters and i alone
Time, space     O(K) an interval
First appeared  Zacheilas et al., cep-dlb, section 4, "Application Description"
Deviations      none known; the rate is what the paper's engines kept up with, and which key is how frequent is random
Backfires       an interval that spans a change of exponent has the exponent of its beginning
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.arrays import I64
from headgate.errors import LimitsError
from headgate.workloads.zipf import zipf_shares

KEYS = 4096
"""cep-dlb, section 4: the number of keys of the first-story detection."""

LEVEL_EXPONENT, SKEWED_EXPONENT = 0.2, 1.5
"""cep-dlb, section 4: "a rather balanced system" and "a highly skewed key distribution"."""

LEVEL_SECONDS, SKEWED_SECONDS = 300.0, 600.0
"""cep-dlb, section 4: five minutes, then ten."""

TUPLES_PER_SECOND = 1200
"""cep-dlb, section 4: about what the balanced system processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternatingStream:
    """The stream as a function of the interval's number: ``counts(i)`` samples each key's tuples of interval i."""

    keys: int = KEYS
    level_exponent: float = LEVEL_EXPONENT
    skewed_exponent: float = SKEWED_EXPONENT
    level_seconds: float = LEVEL_SECONDS
    skewed_seconds: float = SKEWED_SECONDS
    interval_seconds: float = 60.0
    tuples_per_second: float = TUPLES_PER_SECOND
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("level_seconds", "skewed_seconds", "interval_seconds"):
            if not 0 < getattr(self, name) < np.inf:
                raise LimitsError.parameter("AlternatingStream", name, "above zero", getattr(self, name))

    def exponent(self, interval: int) -> float:
        """The exponent that holds when interval ``interval`` (counted from 0) begins."""
        into = (interval * self.interval_seconds) % (self.level_seconds + self.skewed_seconds)
        return self.level_exponent if into < self.level_seconds else self.skewed_exponent

    def counts(self, interval: int) -> I64:
        """The tuples of each key in one interval: a sample, as the paper draws keys one by one."""
        total = round(self.tuples_per_second * self.interval_seconds)
        ranked = np.random.default_rng([self.seed, interval]).multinomial(
            total, zipf_shares(self.keys, self.exponent(interval))
        )
        # The same keys stay the frequent ones throughout; only how frequent they are changes.
        return ranked[np.random.default_rng(self.seed).permutation(self.keys)]
