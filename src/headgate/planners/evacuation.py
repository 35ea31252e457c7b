"""What has to leave draining slots besides the items, and what the limits on migration leave for the items.

At the grain of keys the items are the listed keys: the unlisted ones of a group leave with their group. At the grain of
groups the items are the groups: a key pinned to a draining slot loses its pin and follows its group. Both are moves
like any other. They are paid for first, the least state first; what cannot be paid for stays, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.arrays import F64, I32, I64
from headgate.planners.plan import Grain, Limits
from headgate.routing.assignment import Assignment
from headgate.stats.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Evacuation:
    """``keys`` are rows of pinned keys that lose their pin, ``groups`` numbers of key groups whose unlisted keys leave;
    ``kept_keys`` and ``kept_groups`` would, but the limits do not allow it. ``loose`` are keys pinned to the draining
    slot that their group has as well: they go with it. ``limits`` is what is left of them."""

    keys: I64
    groups: I64
    kept_keys: I64
    kept_groups: I64
    loose: I64
    limits: Limits

    @classmethod
    def of(cls, snapshot: Snapshot, assignment: Assignment, grain: Grain, limits: Limits, places: I32) -> Evacuation:
        none = np.empty(0, dtype=np.int64)
        is_open = assignment.open_slots
        if is_open.all():
            return cls(none, none, none, none, none, limits)
        if grain == "key":
            weighs = (snapshot.rest_cost > 0) | (snapshot.rest_state_bytes > 0)
            units = np.flatnonzero(weighs & ~is_open[assignment.groups])
            go, stay, left = _paid(units, snapshot.rest_state_bytes, limits)
            return cls(none, go, none, stay, none, left)
        home = assignment.groups[snapshot.group]
        stuck = assignment.pinned(snapshot.hash, snapshot.operator) & ~is_open[places]
        # A key whose group has a draining slot itself has nowhere to go before the group has.
        waits = stuck & (home != places) & ~is_open[home] & limits.bounds_migration
        units = np.flatnonzero(stuck & (home != places) & ~waits)
        go, stay, left = _paid(units, snapshot.state_bytes, limits)
        kept = np.concatenate([stay, np.flatnonzero(waits)])
        return cls(go, none, kept, none, np.flatnonzero(stuck & (home == places)), left)


def _paid(units: I64, state: F64, limits: Limits) -> tuple[I64, I64, Limits]:
    """Which units the limits pay for, the least state first, which they do not, and what is left of the limits."""
    units = units[np.argsort(state[units], kind="stable")]
    count = len(units)
    if limits.max_migrations is not None:
        count = min(count, int(limits.max_migrations))
        limits = replace(limits, max_migrations=limits.max_migrations - count)
    elif limits.max_migration_cost is not None:
        spent = np.cumsum(state[units])
        count = int(np.searchsorted(spent, limits.max_migration_cost, side="right"))
        left = limits.max_migration_cost - (float(spent[count - 1]) if count else 0.0)
        limits = replace(limits, max_migration_cost=left)
    return units[:count], units[count:], limits
