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

from collections.abc import Iterator, Sequence
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

    @staticmethod
    def joined(parts: Sequence[Compact], rows: Sequence[I64]) -> Compact:
        """The records of many slots as one: ``rows[i]`` are the rows, in the whole, of the keys of ``parts[i]``."""
        columns = {
            name: np.concatenate([getattr(part.records, name) for part in parts])
            for name in ("cost", "state_bytes", "count", "current", "home")
        }
        keys = np.concatenate([mine[part.keys] for part, mine in zip(parts, rows, strict=True)])
        starts = np.concatenate([[0], np.cumsum(columns["count"])])
        return Compact(Records(**columns), keys, starts)

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
        *(costs.steps, costs.unit, costs.below),
        *(states.steps, states.unit, states.below),
    )
    keys, starts = _keys_by(record_of, len(first))
    records = Records(
        cost=costs.steps[cost_at],
        state_bytes=states.steps[state_at],
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
    per_unit = (1 + _EXACT) / scale.unit
    out[order] = scale.steps[_choose(values[order], per_unit, float(degree), scale.steps, scale.below)]
    return out


def _check(degree: int) -> None:
    if degree < 1 or degree & (degree - 1):
        raise LimitsError.parameter("the compact form", "degree", "a power of two (1, 2, 4, ...)", degree)


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """The representatives, ascending with 0 first: powers of two of the unit, then multiples of R of it.

    ``steps`` ends with infinity, so that the last representative has a next one nobody chooses; ``below[i]`` is the
    number of the representative at or below i units, for i < R.
    """

    steps: F64
    unit: float
    below: I64

    @property
    def values(self) -> F64:
        return self.steps[:-1]

    @classmethod
    def of(cls, values: F64, degree: int) -> Scale:
        top = float(values.max(initial=0.0))
        if top == 0:
            return cls(np.array([0.0, np.inf]), 1.0, np.zeros(degree + 1, dtype=np.int64))
        unit = max(float(values.min(initial=top, where=values > 0)), top / UNITS_MAX)
        linear = int(top / unit / degree * (1 + _EXACT))
        exponents = int(np.log2(degree)) if linear else int(np.log2(top / unit * (1 + _EXACT))) + 1
        powers = 2.0 ** np.arange(exponents)
        steps = unit * np.concatenate([[0.0], powers, degree * np.arange(1.0, linear + 1), [np.inf]])
        below = np.searchsorted(np.concatenate([[0.0], powers]), np.arange(degree + 1.0), side="right") - 1
        return cls(steps, unit, below)


@compiled
def _chosen(value: float, per_unit: float, degree: float, steps: F64, below: I64, deviation: float) -> int:
    """The representative at or below the value or the next above it: whichever leaves the smaller deviation, the lower
    one if equal. Free of branches as far as it goes: this runs once or twice per key."""
    x = value * per_unit
    at = below[int(x)] if x < degree else below[-1] + int(x / degree)
    at = min(at, len(steps) - 2)
    lower = abs(deviation + value - steps[at])
    upper = abs(deviation + value - steps[at + 1])
    return int(at + (upper < lower * (1 - _EXACT)))


@compiled
def _choose(values: F64, per_unit: float, degree: float, steps: F64, below: I64) -> I64:
    chosen = np.empty(len(values), dtype=np.int64)
    deviation = 0.0
    for row in range(len(values)):
        chosen[row] = _chosen(values[row], per_unit, degree, steps, below, deviation)
        deviation += values[row] - steps[chosen[row]]
    return chosen


@compiled
def _spread(pair: int | np.int64, code: int | np.int64, mask: int) -> np.int64:
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(pair) * np.uint64(0xD1B54A32D192ED03)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(16)) & mask


@compiled
def _grouped(
    cost: F64,
    state: F64,
    current: I32,
    home: I32,
    slots: int,
    degree: float,
    cost_steps: F64,
    cost_unit: float,
    cost_below: I64,
    state_steps: F64,
    state_unit: float,
    state_below: I64,
) -> tuple[I64, I64, I64, I64]:
    """The record of each key, numbered in order of appearance; of each record its first key and both representatives.

    One pass: keys are discretised as they are listed, not in falling order. The deviation of a slot then ends within
    half a step of R, which is nothing against the sum of thousands of keys, and no sort is needed.
    """
    size = 1024
    table = np.full(size, -1, dtype=np.int64)
    pairs = np.empty(1024, dtype=np.int64)  # current and home, which with many slots and values exceed one word
    codes = np.empty(1024, dtype=np.int64)  # the representatives of cost and state
    first = np.empty(1024, dtype=np.int64)
    used = 0
    record_of = np.empty(len(cost), dtype=np.int64)
    cost_off, state_off = np.zeros(slots), np.zeros(slots)
    states = len(state_steps)
    per_cost, per_state = (1 + _EXACT) / cost_unit, (1 + _EXACT) / state_unit
    for row in range(len(cost)):
        d, c, s = current[row], cost[row], state[row]
        i = _chosen(c, per_cost, degree, cost_steps, cost_below, cost_off[d])
        cost_off[d] += c - cost_steps[i]
        j = _chosen(s, per_state, degree, state_steps, state_below, state_off[d])
        state_off[d] += s - state_steps[j]
        pair, code = np.int64(d) * slots + home[row], np.int64(i) * states + j
        at = _spread(pair, code, size - 1)
        while table[at] >= 0 and (codes[table[at]] != code or pairs[table[at]] != pair):
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            if used == len(codes):
                pairs = np.concatenate((pairs, np.empty(used, dtype=np.int64)))
                codes = np.concatenate((codes, np.empty(used, dtype=np.int64)))
                first = np.concatenate((first, np.empty(used, dtype=np.int64)))
            pairs[used] = pair
            codes[used] = code
            first[used] = row
            table[at] = used
            record_of[row] = used
            used += 1
            if 2 * used > size:
                size *= 4
                table = np.full(size, -1, dtype=np.int64)
                for record in range(used):
                    at = _spread(pairs[record], codes[record], size - 1)
                    while table[at] >= 0:
                        at = (at + 1) & (size - 1)
                    table[at] = record
        else:
            record_of[row] = table[at]
    kept = codes[:used]
    return record_of, first[:used].copy(), kept // states, kept % states


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
