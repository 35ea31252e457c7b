"""Clusters: connections whose functions are alike learn together (section 5.3).

Problem         data come at a fixed rate, a connection or two per sample; with many connections each learns too little
Inputs          the functions of the connections that have blocked
Guarantee       deterministic; two connections in a cluster are no further apart than :data:`APART` (complete linkage),
                so that no member is given much more than it can bear
Time, space     O(N^2) for the distances, O(N^2) for the tree
First appeared  section 5.3; complete linkage after Sorensen (1948)
Deviations      the paper's delta is what it adds to force functions to rise, so that a function is at least delta where
                it blocks and R delta at R if it does nothing but rise. Ours need not rise strictly: values below delta
                count as delta, which keeps the logarithms finite
Backfires       workers that are alike by accident for a while share what one of them learns
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from headgate.arrays import F64, I64
from headgate.regions.balance import RESOLUTION

DELTA = 1e-6
"""The least drag that counts (the delta of section 5.3): a millionth of the time, less than a clock tells apart."""

ALPHA = np.log(RESOLUTION) / abs(np.log(RESOLUTION * DELTA))
"""Section 5.3: brings the logarithms of values onto the scale of those of weights. With our delta it is 1, so that a
factor counts the same wherever it is found."""

APART = np.log(1.5)
"""Members of a cluster differ by less than this: half as much again. Far less than the classes of section 6.6 (a
factor of 5), far more than what sampling makes of equal workers (some percent)."""


def distances(functions: F64) -> F64:
    """Section 5.3's distance between every two functions, a row per function.

    The knee is where the first rise, drawn back to zero, begins, and the value there is that of the first whole unit
    beyond: the value at the first weight that blocks depends on where between two weights the knee happens to be.
    """
    rows = np.arange(len(functions))
    blocking = functions > DELTA
    first = np.where(blocking.any(axis=1), blocking.argmax(axis=1), functions.shape[1] - 1)
    next_one = np.minimum(first + 1, functions.shape[1] - 1)
    rise = np.maximum(functions[rows, next_one] - functions[rows, next_one - 1], DELTA)
    knee = np.clip(first - functions[rows, first] / rise, 1 / RESOLUTION, RESOLUTION)
    marks = np.log(np.stack([knee, rise, np.maximum(functions[:, -1], DELTA)]))
    apart = np.abs(marks[:, :, None] - marks[:, None, :])
    apart[1:] *= ALPHA
    return np.asarray(apart.max(axis=0), dtype=np.float64)


def clusters(functions: F64, apart: float = APART) -> I64:
    """The number of each function's cluster, 0, 1, ... in the order in which clusters first occur."""
    count = len(functions)
    if count < 2:
        return np.zeros(count, dtype=np.int64)
    tree = linkage(distances(functions)[np.triu_indices(count, 1)], method="complete")
    found = fcluster(tree, apart, criterion="distance")
    _, first, number = np.unique(found, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return order[number].astype(np.int64)


def pooled(functions: F64, evidence: F64, members: I64) -> F64:
    """Each function replaced by its cluster's: the mean of its members, weighted with their evidence, never falling.

    Weights differ from value to value, so the mean of functions that rise may fall.
    """
    belongs = (members == np.arange(members.max(initial=-1) + 1)[:, None]).astype(np.float64)
    means = (belongs @ (functions * evidence)) / (belongs @ evidence)
    return np.maximum.accumulate(means[members], axis=1)
