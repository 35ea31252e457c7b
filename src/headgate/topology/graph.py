"""The job as a directed graph without cycles, <O, E> of enorm 4.3, and what flows along each edge (figure 5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from headgate.errors import JobError
from headgate.topology.operators import Kind, Operator


class Flow(Enum):
    """What travels along an edge: the configurations of enorm, figure 5."""

    PARTIALS = "partials"
    """5.1, compute -> consolidate: partial windows, or whole ones where sharing does not pay."""
    EAGER = "eager"
    """5.2, compute -> anything else: results row by row; nothing is shared, and the compute moves with its state."""
    WINDOWS = "windows"
    """5.3, consolidate -> consolidate: whole windows, which the next one takes for partials."""
    ROWS = "rows"
    """5.4, the rest: rows as soon as they are there."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows from one operator to another, by name; ``rate`` in tuples a second, or any one unit. None: not measured."""

    source: str
    target: str
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The operators of a job and the edges between them.

    Operators without an edge into them are fed by a source. Raises ``JobError`` for names that are there twice or
    unknown, edges that are there twice, rates that are no finite number from zero, cycles, a consolidate fed by
    something that makes no partial windows, and columns that no feeder puts out.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()
    index: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)
    order: tuple[str, ...] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", tuple(self.operators))
        object.__setattr__(self, "edges", tuple(self.edges))
        index: dict[str, int] = {}
        for operator in self.operators:
            if operator.name in index:
                raise JobError.name_twice("operator", operator.name)
            index[operator.name] = len(index)
        object.__setattr__(self, "index", index)
        seen = set()
        for edge in self.edges:
            for name in (edge.source, edge.target):
                if name not in index:
                    raise JobError.unknown_operator("an edge", name, list(index))
            if (edge.source, edge.target) in seen:
                raise JobError.edge(edge.source, edge.target, "must be one edge, and is there twice: add the rates up")
            seen.add((edge.source, edge.target))
            if edge.rate is not None and not 0 <= edge.rate < math.inf:
                raise JobError.edge(
                    edge.source, edge.target, f"must have a finite rate from zero, got {edge.rate}: measure again"
                )
        object.__setattr__(self, "order", self._sorted())
        self._check_flows()

    def operator(self, name: str) -> Operator:
        """The operator of this name; raises ``JobError`` if there is none."""
        if name not in self.index:
            raise JobError.unknown_operator("a request", name, list(self.index))
        return self.operators[self.index[name]]

    def downstream(self, name: str) -> tuple[Edge, ...]:
        """The edges out of an operator, in the order they were given."""
        return tuple(edge for edge in self.edges if edge.source == name)

    def upstream(self, name: str) -> tuple[Edge, ...]:
        """The edges into an operator."""
        return tuple(edge for edge in self.edges if edge.target == name)

    def flow(self, edge: Edge) -> Flow:
        """What travels along an edge."""
        source, target = self.operator(edge.source).kind, self.operator(edge.target).kind
        if target is Kind.CONSOLIDATE:
            return Flow.PARTIALS if source is Kind.COMPUTE else Flow.WINDOWS
        return Flow.EAGER if source is Kind.COMPUTE else Flow.ROWS

    def makes_partials(self, name: str) -> bool:
        """Whether all that a compute sends is merged downstream, so that its windows can be shared and its key groups
        moved without state (figure 5.1 against 5.2)."""
        edges = self.downstream(name)
        return bool(edges) and all(self.flow(edge) is Flow.PARTIALS for edge in edges)

    def with_rates(self, rates: Iterable[tuple[str, str, float]]) -> Topology:
        """The same job with measured rates; edges that are not listed have none."""
        measured = {(source, target): rate for source, target, rate in rates}
        known = {(edge.source, edge.target) for edge in self.edges}
        for source, target in measured:
            if (source, target) not in known:
                raise JobError.edge(source, target, "was measured, and the job has no such edge: check the names")
        edges = tuple(replace(edge, rate=measured.get((edge.source, edge.target))) for edge in self.edges)
        return replace(self, edges=edges)

    @property
    def measured(self) -> bool:
        """Whether every edge has a rate."""
        return bool(self.edges) and all(edge.rate is not None for edge in self.edges)

    def _sorted(self) -> tuple[str, ...]:
        """Feeders before what they feed; among equals in the order given."""
        waiting = {operator.name: 0 for operator in self.operators}
        out: dict[str, list[str]] = {operator.name: [] for operator in self.operators}
        for edge in self.edges:
            waiting[edge.target] += 1
            out[edge.source].append(edge.target)
        ready = [name for name, count in waiting.items() if count == 0]
        order = []
        while ready:
            name = ready.pop(0)
            order.append(name)
            for target in out[name]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
        if len(order) < len(self.operators):
            raise JobError.cycle(self.name, _round_trip(out, {name for name, count in waiting.items() if count}))
        return tuple(order)

    def _check_flows(self) -> None:
        fed: dict[str, list[Operator]] = {}
        for edge in self.edges:
            fed.setdefault(edge.target, []).append(self.operator(edge.source))
        for operator in self.operators:
            feeders = fed.get(operator.name, [])
            if operator.kind is Kind.CONSOLIDATE:
                if not feeders:
                    raise JobError.not_partial(operator.name, "a source", "stream of rows")
                for feeder in feeders:
                    if feeder.kind not in (Kind.COMPUTE, Kind.CONSOLIDATE):
                        raise JobError.not_partial(operator.name, feeder.name, feeder.kind.value)
            for feeder in feeders:
                if operator.inputs is not None and feeder.outputs is not None:
                    for missing in sorted(operator.inputs - feeder.outputs):
                        raise JobError.unknown_column(operator.name, missing, sorted(feeder.outputs))


def _round_trip(out: dict[str, list[str]], left: set[str]) -> Sequence[str]:
    """One cycle among the operators that could not be ordered, from its first in the order given."""
    path: list[str] = [next(name for name in out if name in left)]
    # Every operator left has a feeder among those left: walk up the stream until one comes again.
    feeders = {target: name for name in out if name in left for target in out[name] if target in left}
    while feeders[path[-1]] not in path:
        path.append(feeders[path[-1]])
    loop = path[path.index(feeders[path[-1]]) :]
    loop.reverse()
    first = loop.index(min(loop, key=list(out).index))
    turned = loop[first:] + loop[:first]
    return [*turned, turned[0]]
