"""The compact form: keys alike in everything that matters to a plan become one record.

    record = (d', d, d_h, v_c, v_S, #)      mixed-routing, section IV

``d`` is the slot the keys have, ``d_h`` the one their hash names, ``v_c`` and ``v_S`` stand for their cost and state,
``#`` counts them. ``d'``, the slot they get next, is what a planner decides; a planner may split a record.

Values are discretised half linearly, half exponentially (HLHE). With degree R = 2^r the representatives are

    ... 3R  2R  R   R/2  R/4 ... 2  1        in units of the smallest value
    linear part     exponential part

and each value takes the representative above or below it, whichever brings the deviation accumulated so far closer to
zero (ties: the lower). So sums over many keys stay nearly exact although single values are off. The deviation is kept
per slot, because it is the loads of slots that a plan is about, and each slot can make its records by itself.

Time O(K), space O(K) for the way back from records to keys; the records themselves number at most N^2 |v_c| |v_S|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headgate.arrays import F64, I32, I64, compiled, sums
from headgate.errors import LimitsError

DEGREE = 8
"""R of mixed-routing Fig. 11: an order of magnitude faster at less than 1 % error of the loads."""

UNITS_MAX = 2.0**22
"""The greatest value, in units, that is told apart: where the spread of the values is wider, the unit is coarser."""


_EXACT = 1e-12
"""Relative slack for values that should lie exactly on a representative and miss it by rounding."""


class Record(NamedTuple):
    """One record as the paper writes it, with ``d_next`` for d' (-1 before a plan) and ``d_home`` for d_h and
    ``number`` for #."""

    d_next: int
    d: int
    d_home: int
    v_cost: float
    v_state: float
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Keys by record: ``count`` keys each cost ``cost``, have ``state_bytes``, are in ``current`` and belong in
    ``home``. Keys as they are make records with a count of one."""

    cost: F64
    state_bytes: F64
    count: I64
    current: I32
    home: I32

    def __len__(self) -> int:
        return len(self.cost)

    def __iter__(self) -> Iterator[Record]:
        for row in range(len(self)):
            yield Record(
                -1,
                int(self.current[row]),
                int(self.home[row]),
                float(self.cost[row]),
                float(self.state_bytes[row]),
                int(self.count[row]),
            )


@dataclass(frozen=True, slots=True, eq=False)
class Compact:
    """Records and the way back: ``keys[starts[r]:starts[r + 1]]`` are the rows of the keys of record r."""

    records: Records
    keys: I64
    starts: I64

    def load_error(self, cost: F64, current: I32, slots: int) -> float:
        """The greatest error of a slot's load when it is added up from the records, as a share of the true load."""
        true = sums(current, cost, slots)
        estimated = sums(self.records.current, self.records.cost * self.records.count, slots)
        known = true > 0
        return float((np.abs(estimated - true)[known] / true[known]).max()) if known.any() else 0.0


def compact(cost: F64, state_bytes: F64, current: I32, home: I32, slots: int, degree: int = DEGREE) -> Compact:
    """Group keys into records. ``degree`` is R, a power of two; 1 is the finest."""
    _check(degree)
    costs, states = Scale.of(cost, degree), Scale.of(state_bytes, degree)
    record_of, first, cost_at, state_at = _grouped(
        cost,
        state_bytes,
        current,
        home,
        slots,
        float(degree),
        *(costs.values, costs.unit, costs.exponents),
        *(states.values, states.unit, states.exponents),
    )
    keys, starts = _keys_by(record_of, len(first))
    records = Records(
        cost=costs.values[cost_at],
        state_bytes=states.values[state_at],
        count=np.diff(starts),
        current=current[first],
        home=home[first],
    )
    return Compact(records, keys, starts)


def discretise(values: F64, degree: int = DEGREE) -> F64:
    """The representative of each value: HLHE, then the greedy choice that keeps the accumulated deviation near zero.

    Values are taken in falling order, as in the paper, and the deviation is that of all of them.
    """
    _check(degree)
    scale = Scale.of(values, degree)
    order = np.argsort(-values, kind="stable")
    out = np.empty(len(values))
    out[order] = scale.values[_choose(values[order], scale.values, scale.unit, float(degree), scale.exponents)]
    return out


def _check(degree: int) -> None:
    if degree < 1 or degree & (degree - 1):
        raise LimitsError.parameter("the compact form", "degree", "a power of two (1, 2, 4, ...)", degree)


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """The representatives, ascending with 0 first: ``exponents`` powers of two of the unit, then multiples of R."""

    values: F64
    unit: float
    exponents: int

    @classmethod
    def of(cls, values: F64, degree: int) -> Scale:
        positive = values[values > 0]
        if not len(positive):
            return cls(np.zeros(1), 1.0, 0)
        top = float(positive.max())
        unit = max(float(positive.min()), top / UNITS_MAX)
        linear = int(top / unit / degree * (1 + _EXACT))
        exponents = int(np.log2(degree)) if linear else int(np.log2(top / unit * (1 + _EXACT))) + 1
        multiples = degree * np.arange(1.0, linear + 1)
        return cls(unit * np.concatenate([[0.0], 2.0 ** np.arange(exponents), multiples]), unit, exponents)


@compiled
def _at_or_below(x: float, degree: float, exponents: int, last: int) -> int:
    """The number of the representative at or below x units: 1 + log2 in the exponential part, x / R beyond it."""
    if x < 1:
        return 0
    if x >= degree:
        return min(exponents + int(x / degree), last)
    at, power = 1, 2.0
    while power <= x and at < exponents:
        power *= 2
        at += 1
    return at


@compiled
def _nearer(value: float, at: int, values: F64, deviation: float) -> int:
    """This representative or the next above: whichever leaves the smaller deviation, the lower one if equal."""
    if at + 1 < len(values):
        lower = abs(deviation + value - values[at])
        upper = abs(deviation + value - values[at + 1])
        if upper < lower * (1 - _EXACT):
            return at + 1
    return at


@compiled
def _choose(values: F64, representatives: F64, unit: float, degree: float, exponents: int) -> I64:
    chosen = np.empty(len(values), dtype=np.int64)
    deviation = 0.0
    for row in range(len(values)):
        x = values[row] / unit * (1 + _EXACT)
        at = _at_or_below(x, degree, exponents, len(representatives) - 1)
        chosen[row] = _nearer(values[row], at, representatives, deviation)
        deviation += values[row] - representatives[chosen[row]]
    return chosen


@compiled
def _spread(code: int, mask: int) -> np.int64:
    return np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask


@compiled
def _grouped(
    cost: F64,
    state: F64,
    current: I32,
    home: I32,
    slots: int,
    degree: float,
    cost_values: F64,
    cost_unit: float,
    cost_exponents: int,
    state_values: F64,
    state_unit: float,
    state_exponents: int,
) -> tuple[I64, I64, I64, I64]:
    """The record of each key, numbered in order of appearance; of each record its first key and both representatives.

    One pass: keys are discretised as they are listed, not in falling order. The deviation of a slot then ends within
    half a step of R, which is nothing against the sum of thousands of keys, and no sort is needed.
    """
    size = 1024
    table = np.full(size, -1, dtype=np.int64)
    codes = np.empty(1024, dtype=np.int64)
    first = np.empty(1024, dtype=np.int64)
    used = 0
    record_of = np.empty(len(cost), dtype=np.int64)
    cost_off, state_off = np.zeros(slots), np.zeros(slots)
    costs, states = len(cost_values), len(state_values)
    per_cost, per_state = (1 + _EXACT) / cost_unit, (1 + _EXACT) / state_unit
    for row in range(len(cost)):
        d, c, s = current[row], cost[row], state[row]
        i = _nearer(c, _at_or_below(c * per_cost, degree, cost_exponents, costs - 1), cost_values, cost_off[d])
        cost_off[d] += c - cost_values[i]
        j = _nearer(s, _at_or_below(s * per_state, degree, state_exponents, states - 1), state_values, state_off[d])
        state_off[d] += s - state_values[j]
        code = ((np.int64(d) * slots + home[row]) * costs + i) * states + j
        at = _spread(code, size - 1)
        while table[at] >= 0 and codes[table[at]] != code:
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            if used == len(codes):
                codes = np.concatenate((codes, np.empty(used, dtype=np.int64)))
                first = np.concatenate((first, np.empty(used, dtype=np.int64)))
            codes[used] = code
            first[used] = row
            table[at] = used
            record_of[row] = used
            used += 1
            if 2 * used > size:
                size *= 4
                table = np.full(size, -1, dtype=np.int64)
                for record in range(used):
                    at = _spread(codes[record], size - 1)
                    while table[at] >= 0:
                        at = (at + 1) & (size - 1)
                    table[at] = record
        else:
            record_of[row] = table[at]
    kept = codes[:used]
    return record_of, first[:used].copy(), kept // states % costs, kept % states


@compiled
def _keys_by(record_of: I64, records: int) -> tuple[I64, I64]:
    starts = np.zeros(records + 1, dtype=np.int64)
    for record in record_of:
        starts[record + 1] += 1
    for record in range(records):
        starts[record + 1] += starts[record]
    at = starts[:-1].copy()
    keys = np.empty(len(record_of), dtype=np.int64)
    for row in range(len(record_of)):
        keys[at[record_of[row]]] = row
        at[record_of[row]] += 1
    return keys, starts
