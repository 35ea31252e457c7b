"""Components: operators that run in one slot task, without a shuffle between them. Enorm 4.4.

PA(C) = the attributes that all operators of C have, and that survive on the way through it
C is stateless if all its operators are, flexible if all its operators are
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headgate.errors import JobError
from headgate.topology.graph import Edge, Topology
from headgate.topology.operators import Attributes, Operator, cardinality, carried, intersect, named


@dataclass(frozen=True, slots=True)
class Component:
    """Operators by name, in the job's order, and what the component is partitioned by."""

    operators: tuple[str, ...]
    attributes: Attributes
    stateful: bool
    flexible: bool
    window_micros: int | None
    """The longest window of its stateful operators; None where one of them has state without an end, or there is
    none."""

    def __contains__(self, name: str) -> bool:
        return name in self.operators

    @property
    def label(self) -> str:
        return " + ".join(self.operators)

    @property
    def described(self) -> str:
        """``flexible, stateful, by area``."""
        way = "flexible" if self.flexible else "rigid"
        state = "stateful" if self.stateful else "stateless"
        where = "in one place" if self.attributes == frozenset() else f"by {named(self.attributes)}"
        return f"{way}, {state}, {where}"

    def partitions(self, distinct: Mapping[str, int]) -> float:
        """PA^c(C): over how many slots it can be spread at most, from the distinct values of each column."""
        return cardinality(self.attributes, distinct)


@dataclass(frozen=True, slots=True)
class Layout:
    """A job cut into components: every operator in exactly one, listed by their first operator in the job's order."""

    topology: Topology
    components: tuple[Component, ...]
    home: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        home = {name: number for number, one in enumerate(self.components) for name in one.operators}
        listed = sum(len(one.operators) for one in self.components)
        if len(home) != listed or set(home) != set(self.topology.index):
            raise JobError.not_fusable(sorted(self.topology.index), "every operator must be in exactly one component")
        object.__setattr__(self, "home", home)

    @classmethod
    def of(cls, topology: Topology, groups: Iterable[Iterable[str]]) -> Layout:
        """The layout with these groups of names, in any order."""
        place = {name: at for at, name in enumerate(topology.order)}
        ordered = sorted((sorted(group, key=place.__getitem__) for group in groups), key=lambda group: place[group[0]])
        return cls(topology, tuple(component_of(topology, group) for group in ordered))

    @classmethod
    def apart(cls, topology: Topology) -> Layout:
        """Every operator a component of its own."""
        return cls.of(topology, ([name] for name in topology.index))

    def component(self, operator: str) -> Component:
        """The component that an operator is in."""
        self.topology.operator(operator)
        return self.components[self.home[operator]]

    def inside(self, edge: Edge) -> bool:
        """Whether an edge stays within a component."""
        return self.home[edge.source] == self.home[edge.target]

    @property
    def crossing(self) -> tuple[Edge, ...]:
        """The edges between components."""
        return tuple(edge for edge in self.topology.edges if not self.inside(edge))

    @property
    def communication(self) -> float:
        """Share of all tuples that cross between components, 0 to 1; edges without a rate count as 1 (figure 15)."""
        rates = [(1.0 if edge.rate is None else edge.rate, self.inside(edge)) for edge in self.topology.edges]
        total = sum(rate for rate, _ in rates)
        return sum(rate for rate, inside in rates if not inside) / total if total else 0.0

    @property
    def shuffles(self) -> int:
        """Streams that have to be shuffled: into each component one per edge from another, and one from its source.

        A component of maps alone takes its rows where they are.
        """
        fed = {edge.target for edge in self.topology.edges}
        keyed = [one.stateful or not one.flexible for one in self.components]
        sources = sum(
            by_key and any(name not in fed for name in one.operators)
            for one, by_key in zip(self.components, keyed, strict=True)
        )
        return sources + sum(keyed[self.home[edge.target]] for edge in self.crossing)

    def cycle(self) -> tuple[int, ...] | None:
        """Components that wait for each other, or None: then they can run one after another."""
        return _cycle(len(self.components), {(self.home[e.source], self.home[e.target]) for e in self.crossing})

    def moved(self, operator: str, target: int | None) -> Layout:
        """The layout with an operator in another component, or in one of its own (None)."""
        groups = [set(one.operators) - {operator} for one in self.components]
        if target is None:
            groups.append({operator})
        else:
            groups[target].add(operator)
        return Layout.of(self.topology, (group for group in groups if group))

    def with_rates(self, topology: Topology) -> Layout:
        """The same components over the same job, measured anew."""
        return replace(self, topology=topology)


def component_of(topology: Topology, names: Iterable[str]) -> Component:
    """The component of these operators, in the order given. Says nothing of whether it may be one."""
    members = [topology.operator(name) for name in names]
    stateful = [operator for operator in members if operator.stateful]
    windows = [operator.window_micros for operator in stateful]
    bounded = [window for window in windows if window is not None]
    return Component(
        tuple(operator.name for operator in members),
        attributes_of(topology, members),
        bool(stateful),
        all(operator.flexible for operator in members),
        max(bounded) if bounded and len(bounded) == len(windows) else None,
    )


def attributes_of(topology: Topology, members: Iterable[Operator]) -> Attributes:
    """PA(C): what all have in common and what every operator that feeds another one of them passes on."""
    listed = {operator.name: operator for operator in members}
    feeders = {edge.source for edge in topology.edges if edge.source in listed and edge.target in listed}
    common = intersect(*(operator.attributes for operator in listed.values()))
    return carried(common, (listed[name] for name in sorted(feeders)))


def _cycle(count: int, edges: set[tuple[int, int]]) -> tuple[int, ...] | None:
    out: list[list[int]] = [[] for _ in range(count)]
    for source, target in sorted(edges):
        out[source].append(target)
    state = [0] * count
    path: list[int] = []

    def visit(at: int) -> tuple[int, ...] | None:
        state[at] = 1
        path.append(at)
        for target in out[at]:
            if state[target] == 1:
                return tuple(path[path.index(target) :])
            if state[target] == 0 and (found := visit(target)):
                return found
        path.pop()
        state[at] = 2
        return None

    return next((found for at in range(count) if state[at] == 0 and (found := visit(at))), None)
