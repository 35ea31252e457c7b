"""Which keyed operators of a job run in one slot task: the job as a topology, fused, and what tasks need to know of it.

    extent        what may be one component
    "same keys"   operators whose keys are the same columns: as many places as before, and a shuffle less
    "auto"        all that have a column of their keys in common (enorm, algorithm 1): fewest shuffles, but a component
                  is placed by the common columns only, and its keys cannot be pinned one by one
    "off"         what was fused by hand, and nothing else

A component can pin keys one by one only if all its operators can: none has windows of time, and all name their key
columns in the same order. "same keys" is the default because a component that is placed by fewer columns spreads worse:
fusing (country, user) with country leaves as many places as there are countries, and the largest of them in one slot.

Rows stay where they are only if the columns that a component is placed by reach the next operator unchanged. Aggregates
pass their key on. Of a Python function nobody knows, unless ``keeps=`` says so; what it says is checked on every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Literal

from headgate.engine.program import ToOperator, ToOutput
from headgate.errors import JobError
from headgate.operators import (
    Compute,
    Consolidate,
    CountAggregation,
    KeyedOperator,
    PerKey,
    SessionAggregation,
    Vectorised,
    WindowedAggregation,
)
from headgate.topology import ALL, Edge, Fusion, Kind, Layout, Operator, Topology, fuse

if TYPE_CHECKING:
    from headgate.engine.stream import KeyedNode, Node

Extent = Literal["same keys", "auto", "off"]
"""How much is fused without being asked for."""

EXTENTS: tuple[Extent, ...] = ("same keys", "auto", "off")

Rates = Mapping[str, Mapping[str, float]]
"""Rows from one keyed operator to another, by their names: as ``query.rates()`` gives them."""


@dataclass(frozen=True, slots=True)
class Fused:
    """For each keyed operator its component and the columns it is placed by (none: its key); and why."""

    component: tuple[int, ...] = ()
    placed_by: tuple[tuple[str, ...], ...] = ()
    fusion: Fusion | None = None
    reasons: tuple[str, ...] = ()
    """Of each stream from one keyed operator to another: whether both are in one task, and why."""


def fused(
    name: str,
    steps: list[KeyedNode],
    extent: Extent,
    together: Iterable[tuple[str, ...]] = (),
    apart: Iterable[tuple[str, str]] = (),
    rates: Rates | None = None,
    inputs: Iterable[Node] = (),
) -> Fused:
    """The components of a job. Raises ``JobError`` for a wish that cannot be met."""
    if not steps:
        return Fused()
    # Operators behind one map of an input are the paper's to fuse as well. It saves us no shuffle, for what they get is
    # added up before it; so they are left alone unless all is asked for.
    topology = topology_of(name, steps, rates, inputs if extent == "auto" and rates is None else ())
    wishes = [_with_maps(frozenset(group), steps) for group in together]
    kept = set(apart)
    for one, other in combinations(steps, 2):
        names = (one.operator.name, other.operator.name)
        wished = any(set(names) <= group for group in wishes)
        if not _may(one, other) or (not wished and not _free(one, other, extent)):
            kept.add(names)
    fusion = fuse(topology, together=wishes, apart=sorted(kept))
    component, placed_by = [], []
    homes: dict[int, int] = {}  # components are numbered by their first keyed operator; those of maps alone are none
    for keyed in steps:
        own = fusion.layout.component(keyed.operator.name)
        first = next(one for one in steps if one.operator.name in own)
        columns = tuple(column for column in first.keys if own.attributes is ALL or column in own.attributes)
        component.append(homes.setdefault(fusion.layout.home[keyed.operator.name], len(homes)))
        placed_by.append(() if columns == keyed.keys else columns)
    return Fused(tuple(component), tuple(placed_by), fusion, tuple(_reasons(steps, fusion, extent)))


def rearranged(own: Fused, steps: list[KeyedNode], component: Sequence[int]) -> Fused:
    """The same job with other components: those it runs with, where they were changed while it ran."""
    if own.fusion is None or tuple(component) == own.component:
        return own
    groups: dict[object, list[str]] = {}
    home: dict[int, int] = {}
    for keyed, now in zip(steps, component, strict=True):
        name = keyed.operator.name
        groups.setdefault(now, []).append(name)
        home.setdefault(own.fusion.layout.home[name], now)
    known = {keyed.operator.name for keyed in steps}
    for name, before in own.fusion.layout.home.items():
        if name not in known:  # a map stays with the first keyed operator that it was with
            groups.setdefault(home.get(before, name), []).append(name)
    layout = Layout.of(own.fusion.layout.topology, groups.values())
    reasons = []
    edges = ((source, target) for source, keyed in enumerate(steps) for _, target in _paths(keyed.node))
    for (source, target), reason in zip(edges, own.reasons, strict=True):
        was, now = (each[source] == each[target] for each in (own.component, component))
        names = f"{steps[source].operator.name} -> {steps[target].operator.name}"
        told = "in one task since the query put them together" if now else "not in one task: the query took them apart"
        reasons.append(reason if was == now else f"{names}: {told}")
    return replace(own, component=tuple(component), fusion=replace(own.fusion, layout=layout), reasons=tuple(reasons))


def _with_maps(wish: frozenset[str], steps: list[KeyedNode]) -> frozenset[str]:
    """The operators somebody wants in one component, and the maps and filters between them."""
    between = [
        _label(node)
        for keyed in steps
        if keyed.operator.name in wish
        for nodes, target in _paths(keyed.node)
        if steps[target].operator.name in wish
        for node in nodes
    ]
    return wish.union(between)


def _reasons(steps: list[KeyedNode], fusion: Fusion, extent: Extent) -> Iterator[str]:
    for source in steps:
        for between, number in _paths(source.node):
            target = steps[number]
            names = source.operator.name, target.operator.name
            verdicts = [fusion.verdict(*edge) for edge in pairwise((names[0], *map(_label, between), names[1]))]
            if all(verdict.fused for verdict in verdicts):
                yield f"{' -> '.join(names)}: in one task"
                continue
            common = [column for column in source.keys if column in target.keys]
            alone = [one.operator.name for one in (source, target) if not one.keys]
            if len(alone) == 1:
                why = f"{alone[0]} runs in one place"
            elif alone and between:
                why = f"both run in one place, but {between[0].name!r} is between them"
            elif not common and not alone:
                why = "no key column in common"
            elif source.splits or target.splits:
                why = "hot keys are split over slots, which no other operator could follow"
            elif not _may(source, target):
                why = f"{', '.join(common)} has another type in each"
            elif not _free(source, target, extent) and extent == "same keys":
                why = f'keys differ; fuse() or fusion="auto" would run both in one task, placed by {", ".join(common)}'
            elif extent == "off" and not any({*names} <= group for group in fusion.manual):
                why = "fusion is off"
            else:
                why = next(verdict.text for verdict in verdicts if not verdict.fused)
                lost = [node for node in between if node.kind == "map" and not {*common} <= {*node.keeps}]
                if isinstance(source.operator, PerKey | Vectorised) and not {*common} <= {*source.node.keeps}:
                    lost.insert(0, source.node)
                if lost:
                    why = f"{lost[0].name!r} may change {', '.join(common)}: say keeps= if it does not"
            yield f"{' -> '.join(names)}: not in one task: {why}"


def _may(one: KeyedNode, other: KeyedNode) -> bool:
    """Whether two operators can be one component at all: no split keys, and equal types of what they share."""
    if one.splits or other.splits:
        return False
    schemas = one.operator.input_schema, other.operator.input_schema
    common = set(one.keys) & set(other.keys)
    return all(schemas[0].field(column).type == schemas[1].field(column).type for column in common)


def _free(one: KeyedNode, other: KeyedNode, extent: Extent) -> bool:
    """Whether two operators may be fused without being asked for."""
    return extent == "auto" or (extent == "same keys" and set(one.keys) == set(other.keys))


def topology_of(name: str, steps: list[KeyedNode], rates: Rates | None = None, inputs: Iterable[Node] = ()) -> Topology:
    """The keyed operators of a job and the maps and filters between them, and between ``inputs`` and them. With
    ``rates`` every edge has one; a stream that is not listed had no rows."""
    operators = [_operator(keyed) for keyed in steps]
    carried: dict[tuple[str, str], float] = {}
    for source in inputs:
        for between, target in _paths(source):
            operators += [_between(node) for node in between if all(one.name != _label(node) for one in operators)]
            for edge in pairwise((*map(_label, between), steps[target].operator.name)):
                carried[edge] = 0.0
    measured = rates is not None
    known = [keyed.operator.name for keyed in steps]
    for told in (one for source, targets in (rates or {}).items() for one in (source, *targets)):
        if told not in known:
            raise JobError.unknown_operator("rates", told, known)
    for keyed in steps:
        for between, target in _paths(keyed.node):
            names = [keyed.operator.name, *(_label(node) for node in between), steps[target].operator.name]
            operators += [_between(node) for node in between if all(one.name != _label(node) for one in operators)]
            rate = (rates or {}).get(names[0], {}).get(names[-1], 0.0)
            for edge in pairwise(names):
                carried[edge] = carried.get(edge, 0.0) + rate
    edges = [Edge(source, target, rate if measured else None) for (source, target), rate in carried.items()]
    return Topology(name, tuple(operators), tuple(edges))


def _paths(node: Node) -> Iterator[tuple[tuple[Node, ...], int]]:
    """The ways from a node to keyed operators: the nodes between, and the operator's number."""
    for branch in node.branches:
        if isinstance(branch, ToOperator):
            yield (), branch.operator
        elif not isinstance(branch, ToOutput):
            for between, target in _paths(branch):
                yield (branch, *between), target


def _operator(keyed: KeyedNode) -> Operator:
    kept = keyed.node.keeps if isinstance(keyed.operator, PerKey | Vectorised) else keyed.keys
    return Operator(
        keyed.operator.name,
        kind_of(keyed.operator),
        frozenset(keyed.keys),
        outputs=frozenset(kept),
        window_micros=longest_window(keyed.operator, alone=keyed.per_window or keyed.decides_sharing),
    )


def kind_of(operator: KeyedOperator) -> Kind:
    """What a keyed operator is in the paper's terms, or ours."""
    if isinstance(operator, Compute):
        return Kind.COMPUTE
    if isinstance(operator, Consolidate):
        return Kind.CONSOLIDATE
    whole = isinstance(operator, SessionAggregation | CountAggregation) or operator.combines
    return Kind.AGGREGATE if whole else Kind.KEYED


def longest_window(operator: KeyedOperator, *, alone: bool = False) -> int | None:
    """The longest window of time that state is kept for, in microseconds; None where state has no end. ``alone``:
    windows may be computed by themselves, which is a matter of a compute too."""
    if not isinstance(operator, WindowedAggregation):
        return None
    return operator.alone.longest if alone else operator.slicing.longest


def _between(node: Node) -> Operator:
    return Operator(_label(node), Kind.MAP, ALL, outputs=None if node.kind == "filter" else frozenset(node.keeps))


def _label(node: Node) -> str:
    """A name that no operator has: maps may have equal ones."""
    return f"{node.kind} {node.name} #{node.number}"
