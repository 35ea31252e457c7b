"""Mixed_BF: Mixed with every possible number of entries sent home.

Problem         that of Mixed
Inputs          that of Mixed
Guarantee       among all n in 0..N_A the trial with the least migrated state that holds balance and table
Time, space     N_A + 1 runs of LLFD
First appeared  Fang et al., mixed-routing, section III-C
Deviations      those of Mixed, on keys only; ``tries`` bounds the search by spacing n evenly
Backfires       thousands of times slower than Mixed for little less state: it is the yardstick
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headgate.errors import LimitsError
from headgate.planners.base import ROUNDING, Decision, Planner
from headgate.planners.items import Items
from headgate.planners.minmig import BETA, check_beta
from headgate.planners.mixed import Trials
from headgate.planners.phases import Ground, Trial, better_of, settle
from headgate.planners.plan import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedBF(Planner):
    """Tries every n. ``tries``: at most this many, evenly spaced, both ends included; None: all of them."""

    name: ClassVar[str] = "mixed-bf"
    controls_table: ClassVar[bool] = True
    beta: float = BETA
    tries: int | None = None

    def __post_init__(self) -> None:
        check_beta(self.name, self.beta)
        if self.tries is not None and self.tries < 1:
            raise LimitsError.parameter(self.name, "tries", "at least 1, or None for all", self.tries)

    def decide(self, items: Items, limits: Limits) -> Decision:
        trials = Trials(Ground.of(items), self.beta)
        count = trials.entries + 1 if self.tries is None else min(self.tries, trials.entries + 1)
        backs = np.unique(np.linspace(0, trials.entries, count).astype(np.int64))
        best = min((trials.run(int(back), limits.theta_max) for back in backs), key=lambda trial: _merit(trial, limits))
        decision = settle(items, None, lambda _: (best, len(backs)), limits.theta_max)
        return better_of(items, decision, limits.theta_max, limits.table_max)


def _merit(trial: Trial, limits: Limits) -> tuple[float, float, float]:
    """Smaller is better: the table's overuse, then the balance's, then the state moved."""
    over = 0 if limits.table_max is None else max(0, trial.table_size - limits.table_max)
    return float(over), max(0.0, trial.theta - limits.theta_max - ROUNDING), trial.migrated_state
