"""Synthetic clusters: key groups spread evenly over nodes, whose loads then drift apart.

Problem         planning problems of a size and an imbalance that can be dialled
Inputs          nodes, key groups, operators; ``varies`` in percent; the share of groups with one-to-one traffic
Guarantee       every node starts with the same number of groups, to within one; the same seed gives the same cluster
Time, space     O(groups), with traffic O(groups * groups per operator)
First appeared  Madsen et al., albic, sections 5.1 (load) and 5.3 (traffic, drift)
Deviations      where the paper is silent: the mean node load is 50 percentage points; a scaled set of groups is half
                of the node's groups or more; operators form a chain; every group sends at the same rate, which does
                not follow its load, so that a drifting load does not change the collocation that can be had; which
                groups are one-to-one is drawn operator by operator
Backfires       groups differ by little (5 %), so that a balanced plan always exists; real key groups are not so kind
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headgate.arrays import F64, I32, I64, sums
from headgate.errors import LimitsError
from headgate.routing.assignment import Assignment
from headgate.stats.snapshot import Snapshot, Traffic

NODE_LOAD = 50.0
"""Mean load of a node, in percentage points: halfway, so that loads can double before a node is full."""

GROUP_SPREAD = 0.05
"""albic 5.1: group loads are the mean adjusted by a random share in [-5 %, 5 %]."""

ADJUSTED_NODES = 0.2
"""albic 5.1 and 5.3: the share of the nodes whose load is adjusted."""

DRIFT_PERCENT = 2.0
"""albic 5.3: per iteration the load of the adjusted nodes changes by a percentage in [-2 %, 2 %]."""

RATE = 100.0
"""Traffic that every group sends to the next operator, per interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A planning problem: the loads of the groups, their traffic, and where they are."""

    snapshot: Snapshot
    assignment: Assignment
    one_to_one: float | None

    def placed(self, assignment: Assignment) -> Cluster:
        """The same cluster after a plan was applied."""
        return replace(self, assignment=assignment)


def cluster(
    nodes: int,
    groups: int,
    operators: int,
    *,
    varies: float = 0.0,
    one_to_one: float | None = None,
    seed: int = 0,
) -> Cluster:
    """A cluster as in albic 5.1; with ``one_to_one`` (percent of the groups) one with traffic, as in 5.3.

    Without traffic the groups are dealt to the nodes at random. With traffic they are placed with as little
    collocation as possible: node after node is filled with groups of operators that do not feed each other.
    """
    if nodes < 1 or operators < 1 or groups < 1 or groups % operators:
        raise LimitsError.parameter(
            "cluster", "groups", "a multiple of the operators, both and nodes at least 1", (nodes, groups, operators)
        )
    if not 0 <= varies <= 200:
        raise LimitsError.parameter("cluster", "varies", "between 0 and 200 percent", varies)
    if one_to_one is not None and not 0 <= one_to_one <= 100:
        raise LimitsError.parameter("cluster", "one_to_one", "between 0 and 100 percent", one_to_one)
    random = np.random.default_rng(seed)
    even = (np.arange(groups) * nodes // groups).astype(np.int32)
    places = random.permutation(even) if one_to_one is None else _apart(even, operators)
    mean = NODE_LOAD * nodes / groups
    load = mean * (1 + random.uniform(-GROUP_SPREAD, GROUP_SPREAD, groups))
    chosen = _some_nodes(random, nodes)
    for position, node in enumerate(chosen):
        share = 0.005 * varies * (1 if position < len(chosen) // 2 else -1)
        load = _scaled(random, load, np.flatnonzero(places == node), share)
    traffic = None if one_to_one is None else _chain(random, groups, operators, one_to_one)
    names = tuple(f"operator {number}" for number in range(operators))
    return Cluster(
        snapshot=Snapshot.of_groups(
            load, state_bytes=np.full(groups, mean), operators=names, traffic=traffic, capacity=np.ones(nodes)
        ),
        assignment=Assignment(places, nodes, operators=operators),
        one_to_one=one_to_one,
    )


def drift(before: Cluster, *, percent: float = DRIFT_PERCENT, seed: int = 0) -> Cluster:
    """The next iteration of albic 5.3: a fifth of the nodes, each adjusted by a random percentage up to ``percent``."""
    random = np.random.default_rng(seed)
    load = np.array(before.snapshot.group_cost())
    for node in _some_nodes(random, before.assignment.slots):
        share = random.uniform(-percent, percent) / 100
        load = _scaled(random, load, np.flatnonzero(before.assignment.groups == node), share)
    snapshot = replace(before.snapshot, rest_cost=load, interval=before.snapshot.interval + 1)
    return replace(before, snapshot=snapshot)


def _some_nodes(random: np.random.Generator, nodes: int) -> I64:
    return random.choice(nodes, size=round(ADJUSTED_NODES * nodes), replace=False)


def _scaled(random: np.random.Generator, load: F64, held: I64, share: float) -> F64:
    """Scale a random set of the node's groups so that the node's load changes by ``share`` of itself."""
    if not len(held) or share == 0:
        return load
    size = int(random.integers((len(held) + 1) // 2, len(held) + 1))
    order = random.permutation(held)
    change = share * load[held].sum()
    while size < len(held) and load[order[:size]].sum() + change < 0:
        size += 1
    scaled = load.copy()
    some = load[order[:size]].sum()
    scaled[order[:size]] *= max(0.0, 1 + change / some) if some > 0 else 1.0
    return scaled


def _apart(even: I32, operators: int) -> I32:
    """Operators 0, 2, 4, ... and then 1, 3, 5, ..., node after node: neighbours in the chain do not share a node."""
    size = len(even) // operators
    places = np.empty_like(even)
    for position, operator in enumerate([*range(0, operators, 2), *range(1, operators, 2)]):
        places[operator * size : (operator + 1) * size] = even[position * size : (position + 1) * size]
    return places


def _chain(random: np.random.Generator, groups: int, operators: int, one_to_one: float) -> Traffic:
    size = groups // operators
    paired = round(size * one_to_one / 100)
    sources, targets, rates = [], [], []
    for operator in range(operators - 1):
        senders = operator * size + random.permutation(size)
        receivers = (operator + 1) * size + random.permutation(size)
        sources += [senders[:paired], np.repeat(senders[paired:], size)]
        targets += [receivers[:paired], np.tile(receivers, size - paired)]
        rates += [np.full(paired, RATE), np.full((size - paired) * size, RATE / size)]
    none = np.empty(0)
    return Traffic.of(
        np.concatenate([none, *sources]), np.concatenate([none, *targets]), np.concatenate([none, *rates])
    )


def node_loads(state: Cluster) -> F64:
    """The load of every node, in percentage points."""
    return sums(state.assignment.groups, state.snapshot.group_cost(), state.assignment.slots)
