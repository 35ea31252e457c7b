"""Changes of the assignment that no planner makes: another number of slots, moves by hand.

resized   new slots get their share and removed ones give up theirs; nothing else moves
moved     keys (by pinning them) and key groups go where somebody says
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from headgate.arrays import I32, Bool, frozen_i32
from headgate.errors import AssignmentError, SnapshotError
from headgate.routing.assignment import Assignment, Pins
from headgate.routing.groups import group_of, home_slots


def resized(assignment: Assignment, slots: int) -> Assignment:
    """The next version with this many slots; the same one where the number stays.

    More slots: groups go to the new slots and nowhere else, until each has its fair share of every operator's groups
    (rounded down or up). They come from draining slots first, then from the slot that has the most; of its groups one
    whose home is that new slot goes first. Pinned keys stay.

    Fewer slots: what the removed slots have goes, and nothing else. A group goes home unless its home has its fair
    share already, then to the slot that has the fewest. Pins to removed slots are dropped: those keys follow their
    group.

    So no fewer groups could move; and if the open slots had equal numbers of groups to within one, they have again.
    Slots that drain keep draining and are given nothing. Raises ``AssignmentError`` for less than one slot, or if all
    that remain are draining.
    """
    if slots < 1:
        raise AssignmentError.no_slot(slots)
    if slots == assignment.slots:
        return assignment
    draining = frozenset(slot for slot in assignment.draining if slot < slots)
    if len(draining) >= slots:
        raise AssignmentError.all_draining(slots)
    is_open = np.ones(slots, dtype=np.bool_)
    is_open[list(draining)] = False
    size = assignment.groups_per_operator
    homes = home_slots(size, slots, is_open.astype(float))
    groups = np.array(assignment.groups)
    for operator in range(assignment.operators):
        mine = groups[operator * size : (operator + 1) * size]
        if slots > assignment.slots:
            _fill(mine, homes, is_open, assignment.slots)
        else:
            _vacate(mine, homes, is_open)
    pins = assignment.pins
    keep = pins.slot < slots
    return replace(
        assignment,
        groups=frozen_i32(groups),
        pins=Pins.of(pins.operator[keep], pins.hash[keep], pins.slot[keep]),
        slots=slots,
        draining=draining,
        version=assignment.version + 1,
    )


def _fill(groups: I32, homes: I32, is_open: Bool, old_slots: int) -> None:
    """Give every slot from ``old_slots`` on as many groups as have their home there."""
    count = np.bincount(groups, minlength=len(is_open))
    share = np.bincount(homes, minlength=len(is_open))
    # More than any slot has: what drains goes first.
    urgent = np.where(is_open, 0, len(groups))
    for new in range(old_slots, len(is_open)):
        for _ in range(int(share[new])):
            source = int(np.argmax((count + urgent * (count > 0))[:old_slots]))
            held = np.flatnonzero(groups == source)
            at_home = held[homes[held] == new]
            groups[at_home[0] if len(at_home) else held[0]] = new
            count[source] -= 1


def _vacate(groups: I32, homes: I32, is_open: Bool) -> None:
    """Place anew what the slots past the last of ``is_open`` have."""
    slots = len(is_open)
    gone = np.flatnonzero(groups >= slots)
    count = np.bincount(groups[groups < slots], minlength=slots)
    fair = len(groups) // int(is_open.sum())
    homeless = []
    for group in gone:
        home = homes[group]
        if count[home] < fair:
            groups[group] = home
            count[home] += 1
        else:
            homeless.append(group)
    for group in homeless:
        fewest = int(np.argmin(np.where(is_open, count, len(groups) + 1)))
        groups[group] = fewest
        count[fewest] += 1


def repartitioned(assignment: Assignment, slots: Collection[int], *, operator: int = 0) -> Assignment:
    """The next version with the key groups of an operator in these slots and no others, evenly to within one.

    No fewer groups could move. Pins of the operator to other slots are dropped: those keys follow their group. Raises
    ``AssignmentError`` for an operator or a slot that does not exist, a slot that drains, or no slot at all.
    """
    if not 0 <= operator < assignment.operators:
        raise AssignmentError.unknown_operator(operator, assignment.operators)
    wanted = sorted(set(slots))
    if not wanted:
        raise AssignmentError.no_slot(0)
    for slot in wanted:
        if not 0 <= slot < assignment.slots:
            raise AssignmentError.unknown_slot("a repartition", slot, assignment.slots)
        if slot in assignment.draining:
            raise AssignmentError.drains(slot)
    size = assignment.groups_per_operator
    groups = np.array(assignment.groups)
    mine = groups[operator * size : (operator + 1) * size]
    have = np.bincount(mine, minlength=assignment.slots)
    share, over = divmod(size, len(wanted))
    # Who has most keeps one more where the groups do not divide evenly.
    order = sorted(wanted, key=lambda slot: (-have[slot], slot))
    quota = {slot: share + (at < over) for at, slot in enumerate(order)}
    homeless = [np.flatnonzero(mine == slot)[quota.get(slot, 0) :] for slot in range(assignment.slots)]
    free = [np.full(max(0, quota[slot] - have[slot]), slot) for slot in wanted]
    mine[np.concatenate(homeless)] = np.concatenate(free)
    pins = assignment.pins
    keep = (pins.operator != operator) | np.isin(pins.slot, wanted)
    return assignment.next(
        groups=frozen_i32(groups), pins=Pins.of(pins.operator[keep], pins.hash[keep], pins.slot[keep])
    )


def moved(
    assignment: Assignment, to: int, *, keys: Iterable[int] = (), groups: Iterable[int] = (), operator: int = 0
) -> Assignment:
    """The next version with these keys (by hash) and key groups (numbered within the operator) in slot ``to``.

    Keys are pinned; one whose group has the slot anyway only loses its pin. Pinned keys of a group that moves stay
    where they are pinned. Raises ``AssignmentError`` for a slot or operator that does not exist or a slot that drains,
    ``SnapshotError`` for a group that does not exist.
    """
    if not 0 <= operator < assignment.operators:
        raise AssignmentError.unknown_operator(operator, assignment.operators)
    if not 0 <= to < assignment.slots:
        raise AssignmentError.unknown_slot("a move by hand", to, assignment.slots)
    if to in assignment.draining:
        raise AssignmentError.drains(to)
    size = assignment.groups_per_operator
    numbers = np.unique(np.array(list(groups), dtype=np.int64))
    wrong = numbers[(numbers < 0) | (numbers >= size)]
    if len(wrong):
        raise SnapshotError.group_range(int(wrong[0]), size)
    placed = np.array(assignment.groups)
    placed[numbers + operator * size] = to
    hashes = np.unique(np.array(list(keys), dtype=np.int64))
    pins = assignment.pins
    keep = ~((pins.operator == operator) & np.isin(pins.hash, hashes))
    # A pin is needed where the key's group has another slot.
    away = hashes[placed[group_of(hashes, size) + operator * size] != to]
    return assignment.next(
        groups=frozen_i32(placed),
        pins=Pins.of(
            np.concatenate([pins.operator[keep], np.full(len(away), operator)]),
            np.concatenate([pins.hash[keep], away]),
            np.concatenate([pins.slot[keep], np.full(len(away), to)]),
        ),
    )
