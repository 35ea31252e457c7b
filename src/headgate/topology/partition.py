"""Operators in components while they are being fused: sets of bits, so that every test is a few machine words.

Operator i is bit i. Attributes are bits of another kind; ``ALL`` is every bit there could be, -1. A component is named
by one of its operators, its root.
"""

from __future__ import annotations

from headgate.topology.graph import Topology
from headgate.topology.operators import ALL

EVERYTHING = -1


class Partition:
    """Components that only ever grow. Mutable; lives for one fusion."""

    def __init__(self, topology: Topology, *, acyclic: bool, one_place: bool) -> None:
        count = len(topology.operators)
        self.acyclic = acyclic
        self._one_place = one_place
        operators = topology.operators
        names = sorted({a for one in operators if one.attributes is not ALL for a in one.attributes})
        # What an operator rewrites or drops matters for these names only.
        self._width = len(names)
        self._mask = [
            EVERYTHING
            if one.attributes is ALL
            else sum(1 << at for at, name in enumerate(names) if name in one.attributes)
            for one in operators
        ]
        self._carry = [~sum(1 << at for at, name in enumerate(names) if not one.carries(name)) for one in operators]
        self._lossless = all(carry == EVERYTHING for carry in self._carry)
        self._lone = [one.attributes == frozenset() for one in operators]
        self._root = list(range(count))
        self._members = [1 << at for at in range(count)]
        self._apart = [0] * count
        self._wishes: list[tuple[int, int]] = []
        self._feeds = [0] * count
        for edge in topology.edges:
            self._feeds[topology.index[edge.source]] |= 1 << topology.index[edge.target]
        self._succ = list(self._feeds)
        self._reach = [0] * count
        self._above = [0] * count
        if acyclic:
            for name in reversed(topology.order):
                at = topology.index[name]
                for to in _bits(self._feeds[at]):
                    self._reach[at] |= 1 << to | self._reach[to]
            for at in range(count):
                for to in _bits(self._reach[at]):
                    self._above[to] |= 1 << at

    def root(self, at: int) -> int:
        return self._root[at]

    def members(self, at: int) -> list[int]:
        """The operators of the component that an operator is in, ascending."""
        return list(_bits(self._members[self._root[at]]))

    def groups(self) -> list[list[int]]:
        return [list(_bits(self._members[root])) for root in sorted(set(self._root))]

    def same(self, one: int, other: int) -> bool:
        return self._root[one] == self._root[other]

    def keep_apart(self, one: int, other: int) -> None:
        """Never let these two into one component."""
        self._wishes.append((one, other))
        self._apart[self._root[one]] |= 1 << other
        self._apart[self._root[other]] |= 1 << one

    def kept_apart(self, one: int, other: int) -> bool:
        one, other = self._root[one], self._root[other]
        return bool(self._apart[one] & self._members[other])

    def compatible(self, one: int, other: int) -> bool:
        """Whether the components may be one, circles aside."""
        one, other = self._root[one], self._root[other]
        if self._apart[one] & self._members[other]:
            return False
        if self._lone[one] and self._lone[other]:
            return self._one_place
        return self._common(one, other) != 0

    def overlap(self, one: int, other: int) -> int:
        """How many attributes two components have in common; one more than there are where both take any."""
        common = self._common(self._root[one], self._root[other])
        return self._width + 1 if common == EVERYTHING else common.bit_count()

    def bits(self, at: int) -> list[bool]:
        """The attributes of a component as flags, and two more: takes any; runs in one place."""
        root = self._root[at]
        mask = self._mask[root]
        flags = [bool(mask >> bit & 1) for bit in range(self._width)]
        return [*flags, mask < 0, self._lone[root]]

    def circular(self, one: int, other: int) -> bool:
        """Whether there is a way from one component to the other through a third."""
        return self.acyclic and bool(self._between(self._root[one], self._root[other]))

    def between(self, one: int, other: int) -> list[int]:
        """Roots of components that rows pass through from one component straight into, before they get to the other."""
        return list(_bits(self._between(self._root[one], self._root[other]))) if self.acyclic else []

    def merge(self, one: int, other: int) -> None:
        """Make two components one. They must be compatible and not circular."""
        one, other = sorted((self._root[one], self._root[other]))
        if one == other:
            return
        pair = 1 << one | 1 << other
        self._join(one, other)
        if not self.acyclic:
            return
        self._succ[one] = (self._succ[one] | self._succ[other]) & ~pair
        self._reach[one] = (self._reach[one] | self._reach[other]) & ~pair
        self._above[one] = (self._above[one] | self._above[other]) & ~pair
        for at in _bits(self._above[one]):
            self._reach[at] = (self._reach[at] | self._reach[one] | 1 << one) & ~(1 << other)
            if self._succ[at] & pair:
                self._succ[at] = (self._succ[at] | 1 << one) & ~(1 << other)
        for at in _bits(self._reach[one]):
            self._above[at] = (self._above[at] | self._above[one] | 1 << one) & ~(1 << other)

    def merge_unchecked(self, one: int, other: int) -> None:
        """Make two components one, and everything reachable anew: for groups that are tested once all are merged."""
        one, other = sorted((self._root[one], self._root[other]))
        if one == other:
            return
        self._join(one, other)
        if self.acyclic:
            self._close()

    def torn(self, at: int) -> tuple[int, int] | None:
        """Two operators of a component that are to stay apart, if there are."""
        members = self._members[self._root[at]]
        return next((pair for pair in self._wishes if members >> pair[0] & 1 and members >> pair[1] & 1), None)

    def sound(self, at: int) -> bool:
        """Whether a component has an attribute, or all its operators run in one place."""
        root = self._root[at]
        return self._lone[root] or self._mask[root] != 0

    def circles(self) -> bool:
        """Whether any component can be reached from itself."""
        return any(self._reach[root] >> root & 1 for root in set(self._root))

    def _between(self, one: int, other: int) -> int:
        return self._succ[one] & self._above[other] | self._succ[other] & self._above[one]

    def _common(self, one: int, other: int) -> int:
        return self._mask[one] & self._mask[other] & self._survives(one, other)

    def _survives(self, one: int, other: int) -> int:
        """Attributes that operators of each component pass on to operators of the other."""
        if self._lossless:
            return EVERYTHING
        survives = EVERYTHING
        for source, target in ((one, other), (other, one)):
            for at in _bits(self._members[source]):
                if self._feeds[at] & self._members[target]:
                    survives &= self._carry[at]
        return survives

    def _join(self, one: int, other: int) -> None:
        self._mask[one] = self._common(one, other)
        self._lone[one] = self._lone[one] and self._lone[other]
        self._members[one] |= self._members[other]
        self._apart[one] |= self._apart[other]
        for at in _bits(self._members[other]):
            self._root[at] = one

    def _close(self) -> None:
        roots = sorted(set(self._root))
        for root in roots:
            fed = 0
            for at in _bits(self._members[root]):
                for to in _bits(self._feeds[at]):
                    fed |= 1 << self._root[to]
            self._succ[root] = self._reach[root] = fed & ~(1 << root)
        for through in roots:
            for root in roots:
                if self._reach[root] >> through & 1:
                    self._reach[root] |= self._reach[through]
        for root in roots:
            self._above[root] = sum(1 << at for at in roots if self._reach[at] >> root & 1)


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
