"""Random jobs of many operators, for fusion into components.

Problem         jobs with up to 150 operators whose partition attributes overlap by chance
Inputs          the number of operators, of partition attributes, and the tuples each operator sends
Guarantee       operators are listed level by level; every flow goes from a level to the next one; no operator sends
                more than ``tuples``; the same seed gives the same job
Time, space     O(operators * (attributes + width of a level))
First appeared  Madsen et al., enorm, section 7, "Large Job"
Deviations      the paper does not say by how much the size of the attribute sets changes from operator to operator:
                here by a whole number drawn evenly from [-3, 3], held within 1..all. What is left of X after the last
                operator of the next level is not sent, as the rule says
Backfires       the first operators of a level get most: E[Y] = X/4, so the fifth gets about a third of the first
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.errors import LimitsError

ATTRIBUTES = 30
"""enorm, section 7: partition attributes to choose from."""

SIZE_STEP = 3
"""How far the size of an attribute set may be from the operator's before; a tenth of the attributes."""

LEVELS_MIN = 3
"""enorm, section 7: the least length of the longest path."""

LEVELS_SHARE = 0.75
"""enorm, section 7: the greatest length of the longest path, as a share of the operators."""

TUPLES = 1000.0
"""X: what each operator sends. Only ratios matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOperator:
    """An operator: where it stands, counted from 0, and the attributes its input is partitioned by."""

    number: int
    level: int
    attributes: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Tuples from one operator to another, by number."""

    source: int
    target: int
    tuples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomJob:
    """Operators in levels, and what they send."""

    operators: tuple[JobOperator, ...]
    flows: tuple[Flow, ...]

    @property
    def levels(self) -> int:
        return self.operators[-1].level + 1


def random_job(operators: int, *, attributes: int = ATTRIBUTES, tuples: float = TUPLES, seed: int = 0) -> RandomJob:
    """A job of this many operators; at least 4, so that three levels fit into three quarters of them."""
    if operators * LEVELS_SHARE < LEVELS_MIN:
        raise LimitsError.parameter("random_job", "operators", "at least 4", operators)
    if attributes < 1:
        raise LimitsError.parameter("random_job", "attributes", "at least 1", attributes)
    random = np.random.default_rng(seed)
    levels = int(random.integers(LEVELS_MIN, int(LEVELS_SHARE * operators) + 1))
    listed = []
    size = max(1, attributes // 2)
    for number in range(operators):
        chosen = random.choice(attributes, size=size, replace=False)
        listed.append(
            JobOperator(number=number, level=number * levels // operators, attributes=frozenset(chosen.tolist()))
        )
        size = int(np.clip(size + random.integers(-SIZE_STEP, SIZE_STEP + 1), 1, attributes))
    flows = []
    for sender in listed:
        left = tuples
        for receiver in listed:
            if receiver.level == sender.level + 1:
                sent = float(random.uniform(0, left) * random.uniform(0, 1))
                left -= sent
                flows.append(Flow(source=sender.number, target=receiver.number, tuples=sent))
    return RandomJob(operators=tuple(listed), flows=tuple(flows))
