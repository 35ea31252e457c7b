"""Phases II and III, compiled: take candidates from full slots, fit them into the least loaded ones."""

from __future__ import annotations

import math

import numpy as np

from headgate.arrays import F64, I8, I32, I64, Bool, compiled
from headgate.planners.plan import Reason

_CLASSES = 64
"""Cost classes (powers of two) that tell quickly whether a slot has enough light keys to exchange."""

_FILL_REACH = 2.0
"""A slot that only gives so that others fill up gives no key of more than this many times what it has to spare: a heavy
key would leave a hole, and be followed by others."""

_OVERLOAD, _EXCHANGE, _FILL = int(Reason.OVERLOAD), int(Reason.EXCHANGE), int(Reason.FILL)


@compiled
def by_slot(order: I64, place: I32, slots: int) -> tuple[I64, I64]:
    """Records of each slot, in the given order: a counting sort by slot."""
    starts = np.zeros(slots + 1, dtype=np.int64)
    for slot in place:
        starts[slot + 1] += 1
    for slot in range(slots):
        starts[slot + 1] += starts[slot]
    at = starts[:-1].copy()
    sorted_records = np.empty(len(order), dtype=np.int64)
    for record in order:
        sorted_records[at[place[record]]] = record
        at[place[record]] += 1
    return sorted_records, starts


@compiled
def _class_of(cost: float) -> int:
    """The power of two a cost lies in, counted so that 2^-32 .. 2^31 are told apart."""
    return min(max(math.frexp(cost)[1] + _CLASSES // 2, 0), _CLASSES - 1)


@compiled
def _sift_up(heap: I64, at: int, cost: F64) -> None:
    while at > 0:
        parent = (at - 1) // 2
        a, b = heap[at], heap[parent]
        if cost[a] > cost[b] or (cost[a] == cost[b] and a < b):
            heap[at], heap[parent] = b, a
            at = parent
        else:
            break


@compiled
def _sift_down(heap: I64, size: int, cost: F64) -> None:
    at = 0
    while True:
        best = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size:
                a, b = heap[child], heap[best]
                if cost[a] > cost[b] or (cost[a] == cost[b] and a < b):
                    best = child
        if best == at:
            break
        heap[at], heap[best] = heap[best], heap[at]
        at = best


@compiled
def _exchange(
    slot: int,
    cost_of_key: float,
    need: float,
    cost: F64,
    stay: I64,
    by_slot: I64,
    starts: I64,
    held: Bool,
    taken: I64,
    taken_quantity: I64,
    slack: float,
) -> int:
    """Adjust: choose an exchangeable set of the slot, by psi, that frees `need`; how many records it spans, 0 for none.

    Only keys originally in the slot and lighter than the key that comes (conditions i and ii)."""
    found, freed = 0, 0.0
    for at in range(starts[slot], starts[slot + 1]):
        record = by_slot[at]
        c = cost[record]
        if stay[record] == 0 or c <= 0 or c >= cost_of_key - slack or held[record]:
            continue
        quantity = min(stay[record], int(np.ceil((need - freed - slack) / c)))
        quantity = max(quantity, 1)
        taken[found] = record
        taken_quantity[found] = quantity
        found += 1
        freed += quantity * c
        if freed >= need - slack:
            return found
    return 0


@compiled
def fit(
    cost: F64,
    stay: I64,
    by_slot: I64,
    starts: I64,
    held: Bool,
    limit: F64,
    shed: F64,
    load: F64,
    capacity: F64,
    is_open: Bool,
    slack: float,
) -> tuple[I64, I32, I64, I8]:
    """Phases II and III. Changes ``stay``, ``load`` and ``limit``; returns the placements (record, slot, quantity,
    reason). ``held`` records stay where they are."""
    slots = len(load)
    # Capacity for growth: every record is taken at most once from its slot, and placed in a few portions.
    heap = np.empty(len(cost) + 1, dtype=np.int64)
    size = 0
    pending = np.zeros(len(cost), dtype=np.int64)
    why = np.zeros(len(cost), dtype=np.int8)
    light = np.zeros((slots, _CLASSES))
    for slot in range(slots):
        for at in range(starts[slot], starts[slot + 1]):
            record = by_slot[at]
            if cost[record] > 0:
                light[slot, _class_of(cost[record])] += cost[record] * stay[record]
    for slot in range(slots):
        if load[slot] <= shed[slot] + slack and is_open[slot]:
            continue
        filling = is_open[slot] and load[slot] <= limit[slot] + slack
        for at in range(starts[slot], starts[slot + 1]):
            record = by_slot[at]
            c = cost[record]
            quantity = stay[record]
            if is_open[slot]:
                if load[slot] <= shed[slot] + slack:
                    break
                if c <= 0 or held[record]:
                    continue
                if filling and c > _FILL_REACH * (load[slot] - shed[slot]):
                    continue
                quantity = min(quantity, max(1, int(np.ceil((load[slot] - shed[slot] - slack) / c))))
            if quantity <= 0:
                continue
            stay[record] -= quantity
            load[slot] -= quantity * c
            if c > 0:
                light[slot, _class_of(c)] -= quantity * c
            pending[record] = quantity
            why[record] = _FILL if filling else _OVERLOAD
            heap[size] = record
            _sift_up(heap, size, cost)
            size += 1
    out_size = 2 * len(cost) + 64
    out_record = np.empty(out_size, dtype=np.int64)
    out_slot = np.empty(out_size, dtype=np.int32)
    out_quantity = np.empty(out_size, dtype=np.int64)
    out_reason = np.empty(out_size, dtype=np.int8)
    out = 0
    tried = np.zeros(slots, dtype=np.bool_)
    taken = np.empty(len(cost), dtype=np.int64)
    taken_quantity = np.empty(len(cost), dtype=np.int64)
    while size > 0:
        record = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, cost)
        c = cost[record]
        while pending[record] > 0:
            tried[:] = False
            chosen, first, quantity, exchanged = -1, -1, np.int64(1), 0
            while True:
                best, second = -1, -1
                for slot in range(slots):
                    if not is_open[slot] or tried[slot]:
                        continue
                    level = load[slot] / capacity[slot]
                    if best < 0 or level < load[best] / capacity[best] - slack * 1e-3:
                        second = best
                        best = slot
                    elif second < 0 or level < load[second] / capacity[second]:
                        second = slot
                if best < 0:
                    break
                if first < 0:
                    first = best
                    if c <= 0:
                        quantity = pending[record]
                    elif second >= 0 and pending[record] > 1:
                        # Keys alike are dealt out as one by one would be: until the slot is past the next lowest.
                        ahead = (load[second] / capacity[second] - load[best] / capacity[best]) * capacity[best]
                        quantity = min(pending[record], np.int64(ahead / c) + 1)
                    else:
                        quantity = pending[record]
                if load[best] + c <= limit[best] + slack:
                    if c > 0:
                        quantity = max(np.int64(1), min(quantity, np.int64((limit[best] + slack - load[best]) / c)))
                    if best != first:
                        quantity = np.int64(1)
                    chosen = best
                    break
                need = load[best] + c - limit[best]
                enough = 0.0
                for number in range(_class_of(c) + 1):
                    enough += light[best, number]
                if enough >= need - slack:
                    exchanged = _exchange(
                        best, c, need, cost, stay, by_slot, starts, held, taken, taken_quantity, slack
                    )
                    if exchanged > 0:
                        quantity = np.int64(1)
                        chosen = best
                        break
                tried[best] = True
            if chosen < 0:
                chosen = first
                quantity = max(np.int64(1), min(quantity, pending[record]))
                if c > limit[chosen] + slack:
                    # Too heavy for any slot: it gets one for itself, and what was there looks for another.
                    quantity = np.int64(1)
                    limit[chosen] = c
                    for at in range(starts[chosen], starts[chosen + 1]):
                        other = by_slot[at]
                        if stay[other] > 0 and cost[other] > 0 and not held[other]:
                            taken[exchanged] = other
                            taken_quantity[exchanged] = stay[other]
                            exchanged += 1
            for index in range(exchanged):
                other = taken[index]
                stay[other] -= taken_quantity[index]
                load[chosen] -= taken_quantity[index] * cost[other]
                light[chosen, _class_of(cost[other])] -= taken_quantity[index] * cost[other]
                if pending[other] == 0:
                    heap[size] = other
                    _sift_up(heap, size, cost)
                    size += 1
                    why[other] = _EXCHANGE
                pending[other] += taken_quantity[index]
            pending[record] -= quantity
            load[chosen] += quantity * c
            if out == out_size:
                out_record = np.concatenate((out_record, np.empty(out_size, dtype=np.int64)))
                out_slot = np.concatenate((out_slot, np.empty(out_size, dtype=np.int32)))
                out_quantity = np.concatenate((out_quantity, np.empty(out_size, dtype=np.int64)))
                out_reason = np.concatenate((out_reason, np.empty(out_size, dtype=np.int8)))
                out_size *= 2
            out_record[out] = record
            out_slot[out] = chosen
            out_quantity[out] = quantity
            out_reason[out] = why[record]
            out += 1
    return out_record[:out].copy(), out_slot[:out].copy(), out_quantity[:out].copy(), out_reason[:out].copy()


@compiled
def hand_out(record: I64, slot: I32, quantity: I64, why: I8, keys: I64, starts: I64, target: I32, reason: I8) -> None:
    """Give the keys of each record their slots, in the order they are listed: the portions of a record are alike."""
    at = starts[:-1].copy()
    for entry in range(len(record)):
        first = at[record[entry]]
        for index in range(first, first + quantity[entry]):
            target[keys[index]] = slot[entry]
            reason[keys[index]] = why[entry]
        at[record[entry]] = first + quantity[entry]
