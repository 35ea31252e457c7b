"""Fusion: which operators become one component. Enorm 4.4.1, algorithm 1.

Problem         least traffic between components, every operator in exactly one, all operators of a component
                partitioned alike
Inputs          operators with partition attributes; edges, with measured rates for score COMM
Guarantee       a partition of the operators; within a component an attribute that all share and that survives the way
                through it; components that can run one after another; the same input gives the same components
Time, space     COMM O(E log E + merges * E), PA O(merges * E * A) for E edges and A attributes
First appeared  Madsen et al., enorm, section 4.4.1; the baseline in 7.6
Deviations      components must not wait for each other in a circle; operators that run in one place may be one
                component; attributes that an operator rewrites do not count (``PAPER`` has none of the first two)
Backfires       a component is spread by the attributes left, maybe few and skewed: a global one has one partition

Score COMM is an edge's rate, as in algorithm 1. Score PA, for jobs nobody has run, is the commonness of the attributes
two components share: each counts as many times as there are components that have it.

Card: docs/algorithms/fusion.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from headgate.arrays import I64
from headgate.errors import JobError, listing
from headgate.topology.components import Layout, attributes_of
from headgate.topology.graph import Edge, Topology
from headgate.topology.operators import ALL, carried, intersect, named, told
from headgate.topology.partition import Partition
from headgate.topology.verdicts import Verdict, Why


class Score(Enum):
    """What makes two operators worth fusing."""

    COMM = "comm"
    """The rate of tuples between them: least communication."""
    PA = "pa"
    """How common the attributes they share are: fewest components."""
    BASELINE = "baseline"
    """Section 7.6: operator by operator, the largest common set first; an operator brings its component along."""
    BASELINE_SINGLE = "baseline, single operators"
    """The same, but only operators that are not fused yet are taken: the other way to read section 7.6."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be one component.

    ``acyclic``: components never wait for each other in a circle. The paper's run asynchronously and may; ours run one
    after another within a micro-batch. ``one_place``: operators that all run in one place may be one component,
    although they have no attribute in common.
    """

    acyclic: bool = True
    one_place: bool = True


PAPER = Rules(acyclic=False, one_place=False)
"""The two conditions of 4.4.1 and no others."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """The components, and for every edge why it is inside one or not."""

    layout: Layout
    score: Score
    verdicts: tuple[Verdict, ...]
    manual: tuple[frozenset[str], ...] = field(default=(), repr=False)

    @property
    def shuffles_saved(self) -> int:
        """How many streams need no shuffle any more, against every operator on its own."""
        return Layout.apart(self.layout.topology).shuffles - self.layout.shuffles

    def verdict(self, one: str, other: str) -> Verdict:
        """On any two operators, whether or not something flows between them."""
        for verdict in self.verdicts:
            if {verdict.source, verdict.target} == {one, other}:
                return verdict
        if self.layout.component(one) is not self.layout.component(other):
            return Verdict(one, other, False, Why.NO_EDGE, "nothing flows between them directly")
        if any({one, other} <= group for group in self.manual):
            return Verdict(one, other, True, Why.MANUAL, "as asked for")
        return Verdict(one, other, True, Why.THROUGH, "both are fused with operators between them")

    def explain(self) -> str:
        """Components, shuffles, and a line for every edge."""
        layout = self.layout
        unfused = Layout.apart(layout.topology).shuffles
        lines = [
            f"job {layout.topology.name!r}: {_count(len(layout.home), 'operator')} in "
            f"{_count(len(layout.components), 'component')} (score {self.score.value}), "
            f"{_count(layout.shuffles, 'shuffle')} instead of {unfused}"
        ]
        lines += [f"component {at}: {one.label} ({one.described})" for at, one in enumerate(layout.components, 1)]
        return "\n".join([*lines, *map(str, self.verdicts)])


def fuse(
    topology: Topology,
    *,
    score: Score | None = None,
    together: Iterable[Collection[str]] = (),
    apart: Iterable[tuple[str, str]] = (),
    rules: Rules | None = None,
    seed: int = 0,
) -> Fusion:
    """Fuse the operators of a job into components.

    ``score`` is COMM where every edge has a rate and PA otherwise, unless given; ``seed`` is the baseline's.
    ``together`` lists operators that must be one component, ``apart`` pairs that must not; what is left is decided by
    the score.
    Raises ``JobError`` for unknown names, for groups that cannot be one component or contradict each other, and for
    COMM without rates.
    """
    score = score or (Score.COMM if topology.measured else Score.PA)
    rules = rules or Rules()
    groups = [frozenset(group) for group in together]
    pairs = [(one, other) for one, other in apart]
    partition = Partition(topology, acyclic=rules.acyclic, one_place=rules.one_place)
    for name in (name for part in (*groups, *pairs) for name in part):
        if name not in topology.index:
            raise JobError.unknown_operator("fusion by hand", name, list(topology.index))
    for one, other in pairs:
        if one == other:
            raise JobError.not_fusable([one], "it cannot stay apart from itself: name two operators")
        partition.keep_apart(topology.index[one], topology.index[other])
    manual = _by_hand(topology, partition, groups)
    edges = _edges(topology)
    if score is Score.COMM:
        taken = _by_rate(topology, partition, edges)
    elif score is Score.PA:
        taken = _by_commonness(topology, partition, edges)
    else:
        taken = _by_intersection(topology, partition, seed, single=score is Score.BASELINE_SINGLE)
    layout = Layout.of(topology, ([topology.operators[at].name for at in one] for one in partition.groups()))
    verdicts = tuple(_verdict(topology, partition, layout, edge, taken, manual, score) for edge in topology.edges)
    return Fusion(layout, score, verdicts, tuple(manual))


def baseline(topology: Topology, *, seed: int = 0, rules: Rules | None = None) -> Fusion:
    """The baseline of enorm 7.6, which the scores are measured against."""
    return fuse(topology, score=Score.BASELINE, rules=rules, seed=seed)


def _edges(topology: Topology) -> list[tuple[int, int, Edge]]:
    """In the order of algorithm 1: operator by operator, and each one's downstream operators."""
    index = topology.index
    return sorted(((index[e.source], index[e.target], e) for e in topology.edges), key=lambda edge: edge[0])


def _by_hand(topology: Topology, partition: Partition, groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    for group in groups:
        members = sorted(group, key=topology.order.index)
        if len(members) < 2:
            raise JobError.not_fusable(
                members, "a group by hand needs two operators or more: add some, or leave it out"
            )
        common = attributes_of(topology, [topology.operator(name) for name in members])
        alone = [name for name in members if topology.operator(name).attributes == frozenset()]
        if common == frozenset() and len(alone) < len(members):
            raise JobError.not_fusable(members, f"{_obstacle(topology, members)}: leave one of them out")
    # First all of them, then the tests: two groups may share operators, and one alone may close a circle.
    numbers = [[topology.index[name] for name in group] for group in groups]
    for own in numbers:
        for other in own[1:]:
            partition.merge_unchecked(own[0], other)
    for group, own in zip(groups, numbers, strict=True):
        merged = [topology.operators[at].name for at in partition.members(own[0])]
        torn = partition.torn(own[0])
        if torn is not None:
            names = " and ".join(repr(topology.operators[at].name) for at in torn)
            raise JobError.not_fusable(merged, f"{names} are to stay apart: drop one of the two wishes")
        if not partition.sound(own[0]):
            raise JobError.not_fusable(
                merged, "the groups overlap, and together they have no column in common: take them apart"
            )
        if partition.acyclic and partition.circles():
            raise JobError.not_fusable(
                sorted(group, key=topology.order.index),
                "rows would leave the component and come back through an operator that is not in it: add that "
                "operator, or leave one out",
            )
    return [frozenset(topology.operators[at].name for at in partition.members(own[0])) for own in numbers]


def _by_rate(topology: Topology, partition: Partition, edges: list[tuple[int, int, Edge]]) -> set[tuple[int, int]]:
    """Algorithm 1. An edge that cannot be fused never can be later, but for circles, which other merges may undo."""
    for _, _, edge in edges:
        if edge.rate is None:
            raise JobError.edge(
                edge.source, edge.target, "must have a measured rate for the score COMM: run the job, or use score PA"
            )
    pending = [(s, t) for s, t, e in sorted(edges, key=lambda edge: -(edge[2].rate or 0.0)) if e.rate]
    taken = set()
    waiting: list[tuple[int, int]] = []
    while pending:
        source, target = pending.pop(0)
        if partition.same(source, target) or not partition.compatible(source, target):
            continue
        if partition.circular(source, target):
            waiting.append((source, target))
            continue
        partition.merge(source, target)
        taken.add((source, target))
        pending, waiting = waiting + pending, []
    return taken


def _by_commonness(
    topology: Topology, partition: Partition, edges: list[tuple[int, int, Edge]]
) -> set[tuple[int, int]]:
    """Algorithm 1 with the alternative score, all edges at once."""
    source = np.array([s for s, _, _ in edges], dtype=np.int64)
    target = np.array([t for _, t, _ in edges], dtype=np.int64)
    taken: set[tuple[int, int]] = set()
    has = np.array([partition.bits(at) for at in range(len(topology.operators))], dtype=np.bool_)
    root = np.array([partition.root(at) for at in range(len(topology.operators))], dtype=np.int64)
    while len(edges):
        roots = np.unique(root)
        commonness = has[roots].sum(axis=0)
        scores: I64 = (has[root[source]] & has[root[target]]) @ commonness
        scores[root[source] == root[target]] = 0
        at = _best(partition, source, target, scores)
        if at is None:
            break
        one, other = root[source[at]], root[target[at]]
        taken.add((int(source[at]), int(target[at])))
        partition.merge(int(source[at]), int(target[at]))
        merged = partition.root(int(source[at]))
        root[(root == one) | (root == other)] = merged
        has[merged] = partition.bits(merged)
    return taken


def _best(partition: Partition, source: I64, target: I64, scores: I64) -> int | None:
    """The first edge with the best score that may be fused."""
    worth = np.flatnonzero(scores > 0)
    for at in worth[np.argsort(-scores[worth], kind="stable")].tolist():
        one, other = int(source[at]), int(target[at])
        if partition.compatible(one, other) and not partition.circular(one, other):
            return int(at)
    return None


def _by_intersection(topology: Topology, partition: Partition, seed: int, *, single: bool) -> set[tuple[int, int]]:
    """The baseline: grow a component downstream from the first operator, then from random ones that are not fused.

    The paper does not say what becomes of an operator downstream that is fused already: it brings its component along,
    or, ``single``, it is passed over. Only the first agrees with figure 14, where COMM has most components.
    """
    random = np.random.default_rng(seed)
    out: dict[int, list[int]] = {}
    for source, target, _ in _edges(topology):
        out.setdefault(source, []).append(target)
    taken = set()
    free = {at for at in range(len(topology.operators)) if len(partition.members(at)) == 1}
    first = True
    while free:
        at = min(free) if first else sorted(free)[int(random.integers(len(free)))]
        first = False
        free.remove(at)
        while (best := _largest(partition, at, out, single=single)) is not None:
            partition.merge(*best)
            taken.add(best)
            free.difference_update(partition.members(at))
    return taken


def _largest(partition: Partition, at: int, out: dict[int, list[int]], *, single: bool) -> tuple[int, int] | None:
    """The edge out of a component to the one that has most attributes in common with it."""
    best, most = None, 0
    for member in partition.members(at):
        for target in out.get(member, ()):
            if single and len(partition.members(target)) > 1:
                continue
            if partition.same(member, target) or not partition.compatible(member, target):
                continue
            size = max(partition.overlap(member, target), 1)
            if size > most and not partition.circular(member, target):
                best, most = (member, target), size
    return best


def _verdict(
    topology: Topology,
    partition: Partition,
    layout: Layout,
    edge: Edge,
    taken: set[tuple[int, int]],
    manual: Sequence[frozenset[str]],
    score: Score,
) -> Verdict:
    source, target = topology.operator(edge.source), topology.operator(edge.target)
    at, to = topology.index[edge.source], topology.index[edge.target]

    def said(fused: bool, why: Why, text: str) -> Verdict:
        return Verdict(edge.source, edge.target, fused, why, text, edge.rate)

    shared = intersect(source.attributes, target.attributes)
    if layout.inside(edge):
        if any({edge.source, edge.target} <= group for group in manual):
            return said(True, Why.MANUAL, "as asked for")
        where = layout.component(edge.source)
        by = "both run in one place" if where.attributes == frozenset() else f"both run by {named(where.attributes)}"
        if (at, to) not in taken:
            return said(True, Why.THROUGH, f"{by}, brought together by other edges")
        flows = "" if edge.rate is None else f", {edge.rate:g} tuples stay"
        return said(True, Why.SCORE, by + flows)
    if partition.kept_apart(at, to):
        return said(False, Why.MANUAL, "they, or operators fused with them, are to stay apart")
    if shared == frozenset():
        lone = [one.name for one in (source, target) if one.attributes == frozenset()]
        text = f"{told(lone)} runs in one place" if lone else _obstacle(topology, [edge.source, edge.target])
        return said(False, Why.NOTHING_COMMON, text)
    if carried(shared, [source]) == frozenset():
        return said(False, Why.LOST, f"{edge.source} does not pass {named(shared)} on unchanged")
    left, right = layout.component(edge.source), layout.component(edge.target)
    if not partition.compatible(at, to):
        text = (
            f"both can run by {named(shared)}, but {left.label} runs by {named(left.attributes)} and {right.label} by "
            f"{named(right.attributes)}"
        )
        return said(False, Why.NARROWED, text)
    if score is Score.COMM and not edge.rate:
        return said(False, Why.IDLE, "nothing was seen to flow between them")
    between = partition.between(at, to)
    if between:
        names = listing([topology.operators[one].name for one in between])
        return said(False, Why.CYCLE, f"rows also go from one to the other through {names}, which is not with them")
    return said(False, Why.PASSED_OVER, "the baseline did not take it when it came by, and does not come back")


def _obstacle(topology: Topology, names: Sequence[str]) -> str:
    """Why operators have no attribute in common."""
    common = intersect(*(topology.operator(name).attributes for name in names))
    if common is not ALL and common:
        return f"{named(common)} is in all of them, but does not pass through unchanged"
    keyed = [f"{name} by {named(topology.operator(name).attributes)}" for name in names]
    return f"no column in common: {listing(keyed)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
