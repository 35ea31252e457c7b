"""Where the keys of a file live: under headgate's hash with pins, or under another system's hash.

Statistics with a ``slot`` column say where each key is. Rows that come from headgate's own hash agree with it save for
the pins; rows of another system agree by chance, one in N. The line is drawn half way, at (1 + 1/N) / 2:

    agreement    0 ......... 1/N ............... (1 + 1/N)/2 ............... 1
                             another hash        |                           headgate's hash, nothing pinned
    home         "slot"                          |  "hash"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from headgate.arrays import I32, I64
from headgate.cli.statistics import MOST_EXACT, NO_SLOT, Statistics, names_of
from headgate.errors import AssignmentError, InputError
from headgate.routing import Assignment, Pins, group_of
from headgate.stats import Snapshot, Traffic

SINGLE_ROWS = 5_000
"""Up to this many rows every key can be moved by itself: each is a key group of its own where the hash is another
system's, and planners of key groups plan keys. Beyond it an optimising planner would get too many variables."""

Home = Literal["hash", "slot"]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A snapshot, the assignment it was measured under, and whose hash that is."""

    snapshot: Snapshot
    assignment: Assignment
    home: Home


def place(
    statistics: Statistics,
    slots: int,
    *,
    groups: int,
    draining: Iterable[int] = (),
    capacity: Sequence[float] | None = None,
    traffic: Traffic | None = None,
) -> Placement:
    """Snapshot and assignment of the statistics. Raises ``InputError`` where slots, draining and capacity do not fit
    each other or the statistics."""
    if capacity is not None and len(capacity) != slots:
        raise AssignmentError.capacity_count(slots, len(capacity))
    _check_sums(statistics)
    tuples = statistics.cost if statistics.tuples is None else statistics.tuples
    snapshot = Snapshot.of_keys(
        statistics.keys,
        statistics.cost,
        state_bytes=statistics.state_bytes,
        tuples=np.rint(np.minimum(tuples, MOST_EXACT)),
        operator=statistics.operator,
        groups=groups,
        resources=statistics.resources,
        traffic=traffic,
        capacity=capacity,
    )
    if statistics.keys.null_count and snapshot.labels is not None:
        # A move without a key is a move of a group, so the null key needs a name.
        snapshot = replace(snapshot, labels=tuple(names_of(snapshot.labels)))
    hashed = Assignment.hashed(slots, groups, operators=len(snapshot.operators), draining=draining)
    if statistics.slot is None or not len(snapshot):
        return Placement(snapshot, hashed, "hash")
    given = statistics.slot != NO_SLOT
    wrong = np.flatnonzero(given & ((statistics.slot >= slots) | (statistics.slot < 0)))
    if len(wrong):
        row = int(wrong[0])
        raise AssignmentError.unknown_slot(f"key {snapshot.label(row)!r}", int(statistics.slot[row]), slots)
    home = hashed.groups[snapshot.group]
    current = np.where(given, statistics.slot, home)
    agreement = float(np.mean(current[given] == home[given])) if given.any() else 1.0
    if agreement >= (1 + 1 / slots) / 2:
        away = np.flatnonzero(current != home)
        pins = Pins.of(snapshot.operator[away], snapshot.hash[away], current[away])
        return Placement(snapshot, replace(hashed, pins=pins), "hash")
    return _as_given(snapshot, hashed, current, max(1, groups // slots))


def _check_sums(statistics: Statistics) -> None:
    """Every value is finite; raise ``InputError`` where their sum is not."""
    columns = {"cost": statistics.cost, "state_bytes": statistics.state_bytes, **statistics.resources}
    for name, values in columns.items():
        with np.errstate(over="ignore"):
            total = values.sum()
        if not np.isfinite(total):
            what = "costs" if name == "cost" else "values"
            raise InputError(
                f"the sum of {name} must be a finite number, and is not: the {what} are too large to add up: give "
                f"{name} in a larger unit"
            )


def _as_given(snapshot: Snapshot, hashed: Assignment, current: I64, classes: int) -> Placement:
    """The given places as the base: every key group has one current slot, and nothing is pinned."""
    slots, operators = hashed.slots, hashed.operators
    single = len(snapshot) <= SINGLE_ROWS
    number = _numbered(snapshot.operator) if single else current * classes + group_of(snapshot.hash, classes)
    size = int(number.max()) + 1 if single else slots * classes
    group = snapshot.operator.astype(np.int64) * size + number
    # Groups without a key (padding, so that all operators have equally many) stand where nothing has to leave.
    places = np.full(size * operators, int(np.argmax(hashed.open_slots)), dtype=np.int32)
    places[group] = current
    none = np.zeros(len(places))
    regrouped = replace(
        snapshot,
        group=group.astype(np.int32),
        groups=len(places),
        rest_cost=none,
        rest_tuples=none.astype(np.int64),
        rest_state_bytes=none,
    )
    assignment = Assignment(places, slots, draining=hashed.draining, operators=operators)
    return Placement(regrouped, assignment, "slot")


def _numbered(operator: I32) -> I64:
    """Each row's number within its operator: 0, 1, 2, ... in the order of the rows."""
    number = np.empty(len(operator), dtype=np.int64)
    for at in np.unique(operator):
        rows = np.flatnonzero(operator == at)
        number[rows] = np.arange(len(rows))
    return number
