"""Variance and standard deviation, in floats that stay accurate far from zero.

The state is the count, the mean and the sum of squared deviations from it. Rows are gone over twice (first the mean,
then the deviations from it, with a correction for what rounding left of their sum); states are pooled the same way,
all of a key at once:

    n = Σ n_i      mean = Σ n_i mean_i / n      squares = Σ (squares_i + n_i (mean_i - mean)²)

Sums over states are taken in ascending order of what is added up, so the order in which states arrive does not matter.
Chan, Golub and LeVeque, Algorithms for computing the sample variance (1983), have the pooling and the correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa

from headgate.arrays import F64, I32, I64, Bool, compiled
from headgate.operators.folds import Aggregate, Fold, Where, by_key, fitted, kept
from headgate.operators.reductions import floats, integers


@dataclass(frozen=True, slots=True)
class Variance(Aggregate):
    """The variance of a column: of a sample (n - 1) or of all there is (n)."""

    verb = "variance"

    _: KW_ONLY
    sample: bool

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Moments(_numbers(kinds), self.sample, root=False)


@dataclass(frozen=True, slots=True)
class Stddev(Variance):
    """The standard deviation of a column."""

    verb = "stddev"

    def fold(self, kinds: Sequence[pa.DataType]) -> Fold:
        return _Moments(_numbers(kinds), self.sample, root=True)


def variance(column: str, *, sample: bool = True, where: Where = None) -> Variance:
    """The variance of a column of numbers, as a double. Nulls are skipped.

    Of a sample, as ``var_samp`` in SQL, null for fewer than two values; with ``sample=False`` of the whole, as
    ``var_pop``, null for none. Decimals and integers are taken as doubles.
    """
    return Variance(column, where=where, sample=sample)


def stddev(column: str, *, sample: bool = True, where: Where = None) -> Stddev:
    """The standard deviation: the root of ``variance``."""
    return Stddev(column, where=where, sample=sample)


@dataclass(frozen=True, slots=True)
class _Moments(Fold):
    kind: pa.DataType
    sample: bool
    root: bool

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return pa.field("count", pa.int64()), pa.field("mean", pa.float64()), pa.field("squares", pa.float64())

    @property
    def result(self) -> pa.DataType:
        return pa.float64()

    def reduce(self, columns: Sequence[pa.Array], codes: I32, keys: int, where: Bool | None) -> list[pa.Array]:
        columns, codes = kept(columns, codes, where)
        return [pa.array(each) for each in _deviations(floats(fitted(columns[0], pa.float64())), codes, keys)]

    def merge(self, states: Sequence[pa.Array], codes: I32, keys: int) -> list[pa.Array]:
        (counts, means, squares), codes = kept(states, codes, None)
        starts, order = by_key(codes, keys)
        return [pa.array(each) for each in _pooled(integers(counts), floats(means), floats(squares), starts, order)]

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        counts, squares = (np.asarray(each.fill_null(0)) for each in (states[0], states[2]))
        divisor = counts - int(self.sample)
        found = squares / np.maximum(divisor, 1)
        return pa.array(np.sqrt(found) if self.root else found, mask=divisor < 1, from_pandas=False)


def _numbers(kinds: Sequence[pa.DataType]) -> pa.DataType:
    kind = kinds[0]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return kind
    raise TypeError("numbers")


@compiled
def _deviations(values: F64, codes: I32, keys: int) -> tuple[I64, F64, F64]:
    counts = np.zeros(keys, dtype=np.int64)
    means = np.zeros(keys, dtype=np.float64)
    for row in range(len(codes)):
        counts[codes[row]] += 1
        means[codes[row]] += values[row]
    for key in range(keys):
        if counts[key]:
            means[key] /= counts[key]
    left = np.zeros(keys, dtype=np.float64)
    squares = np.zeros(keys, dtype=np.float64)
    for row in range(len(codes)):
        deviation = values[row] - means[codes[row]]
        left[codes[row]] += deviation
        squares[codes[row]] += deviation * deviation
    for key in range(keys):
        if counts[key]:
            # What deviations add up to is what the mean lacks; it is 0 but for rounding.
            off = left[key] / counts[key]
            means[key] += off
            squares[key] -= left[key] * off
            if squares[key] < 0.0:  # by rounding; NaN is not less, and stays
                squares[key] = 0.0
    return counts, means, squares


@compiled
def _in_order(terms: F64) -> float:
    """The sum in ascending order; two numbers have the same sum either way."""
    if len(terms) > 2:
        terms.sort()
    total = 0.0
    for term in terms:
        total += term
    return total


@compiled
def _pooled(counts: I64, means: F64, squares: F64, starts: I64, order: I64) -> tuple[I64, F64, F64]:
    keys = len(starts) - 1
    all_counts = np.zeros(keys, dtype=np.int64)
    all_means = np.zeros(keys, dtype=np.float64)
    all_squares = np.zeros(keys, dtype=np.float64)
    for key in range(keys):
        count = 0
        size = 0
        row = 0
        for at in range(starts[key], starts[key + 1]):
            if counts[order[at]] > 0:
                row = order[at]
                count += counts[row]
                size += 1
        all_counts[key] = count
        if size == 1:
            all_means[key] = means[row]
            all_squares[key] = squares[row]
        if size < 2:
            continue
        terms = np.empty(size, dtype=np.float64)
        for step in range(3):
            filled = 0
            for at in range(starts[key], starts[key + 1]):
                row = order[at]
                if counts[row] > 0:
                    off = means[row] - all_means[key]
                    if step == 2:
                        terms[filled] = squares[row] + counts[row] * off * off
                    else:
                        # The mean, then what rounding has made it lack.
                        terms[filled] = off * (counts[row] / count)
                    filled += 1
            total = _in_order(terms)
            if step == 2:
                all_squares[key] = total
            else:
                all_means[key] += total
    return all_counts, all_means, all_squares
