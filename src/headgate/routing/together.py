"""Operators that lie together: those of one component have every key group and every pinned key in the same slot.

    assignment of a job      operator 0    operator 1    operator 2      what tasks, manifests and the store go by
                             groups, pins  the same      groups, pins
    planned                  component 0 (operators 0 and 1)   component 1 (operator 2)      what planners see

So nothing but planning knows of components, and a component that is taken apart, or put together, is a matter of one
boundary between two batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.arrays import I32, I64
from headgate.routing.assignment import Assignment, Pins


@dataclass(frozen=True, slots=True)
class Together:
    """For each component the numbers of its operators, ascending; every operator is in one."""

    components: tuple[tuple[int, ...], ...]

    @classmethod
    def apart(cls, operators: int) -> Together:
        """Every operator by itself."""
        return cls(tuple((number,) for number in range(operators)))

    @property
    def trivial(self) -> bool:
        return all(len(members) == 1 for members in self.components)

    def component(self, operator: int) -> int:
        """The component an operator is in."""
        return next(number for number, members in enumerate(self.components) if operator in members)

    def planned(self, assignment: Assignment) -> Assignment:
        """The assignment by component, of the same version: that of the first operator of each."""
        if self.trivial:
            return assignment
        return self._rebuilt(assignment, [(members[0], (at,)) for at, members in enumerate(self.components)])

    def spread(self, planned: Assignment) -> Assignment:
        """The assignment by operator: all of a component alike."""
        return planned if self.trivial else self._rebuilt(planned, list(enumerate(self.components)))

    def levelled(self, assignment: Assignment, pinnable: Sequence[bool]) -> Assignment:
        """The assignment with the operators of each component where its first one is, and without pins in components
        that are not ``pinnable``: itself where nothing has to change, else the next version."""
        planned = self.planned(assignment)
        pins = planned.pins
        keep = np.asarray(pinnable, dtype=np.bool_)[pins.operator]
        kept = replace(planned, pins=Pins.of(pins.operator[keep], pins.hash[keep], pins.slot[keep]))
        alike = self.spread(kept)
        return assignment if alike == assignment else replace(alike, version=assignment.version + 1)

    def by_component(self, hashes: Sequence[I64]) -> tuple[I64, ...]:
        """What each component has of something per operator that only operators by themselves have: split keys."""
        return tuple(hashes[members[0]] for members in self.components)

    def by_operator(self, hashes: Sequence[I64]) -> tuple[I64, ...]:
        """The other way round: nothing for operators that are with others."""
        kept = [np.empty(0, dtype=np.int64) for members in self.components for _ in members]
        for at, members in enumerate(self.components):
            if len(members) == 1:
                kept[members[0]] = hashes[at]
        return tuple(kept)

    def _rebuilt(self, given: Assignment, taken: Sequence[tuple[int, tuple[int, ...]]]) -> Assignment:
        """Entries ``source`` of an assignment, each put at all its targets."""
        size = given.groups_per_operator
        count = sum(len(targets) for _, targets in taken)
        groups: I32 = np.empty(size * count, dtype=np.int32)
        pins: list[tuple[int, I64, I32]] = []
        for source, targets in taken:
            hashes, slots = given.pins.of_operator(source)
            for target in targets:
                groups[target * size : (target + 1) * size] = given.groups[source * size : (source + 1) * size]
                pins.append((target, hashes, slots))
        table = Pins.of(
            np.concatenate([np.full(len(hashes), target) for target, hashes, _ in pins]),
            np.concatenate([hashes for _, hashes, _ in pins]),
            np.concatenate([slots for _, _, slots in pins]),
        )
        return replace(given, groups=groups, pins=table, operators=count)
