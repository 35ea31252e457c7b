"""Stages: operators that run at the same time are levelled together, those that run one after another each by itself.

Problem         a batch takes as long as the slowest slot of each stage, one stage after the other. Two operators that
                are uneven the opposite way are level in sum, and the batch takes twice as long as it could
Inputs          the stage of each operator; a snapshot and an assignment of all of them
Guarantee       a plan for a stage leaves the others as they are; limits on migration and on the table hold for all
                together
Time, space     a run of the planner for each stage, over its own keys and groups
First appeared  here. The papers' systems run all operators at once; Spark runs the stages of a batch in turn
Deviations      none
Backfires       planners that collocate, and caps on what a slot may use, look at all operators at once: there the load
                is summed up as in the papers

How level a batch of several stages is, ``stats.in_turn`` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.arrays import F64, I32, I64
from headgate.routing.assignment import Assignment, Pins
from headgate.stats.measures import Balance, capacities, collocation_factor, groups_of, in_turn, measure, measure_apart
from headgate.stats.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """The operators of one stage, ascending, and what there is of them alone."""

    operators: I64
    snapshot: Snapshot
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stages:
    """The number of each operator's stage."""

    numbers: tuple[int, ...]

    @classmethod
    def at_once(cls, operators: int) -> Stages:
        """All operators run at the same time."""
        return cls((0,) * operators)

    @property
    def single(self) -> bool:
        return len(set(self.numbers)) == 1

    def operators(self) -> list[I64]:
        """The operators of each stage, the first stage first."""
        numbers = np.asarray(self.numbers)
        return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]

    def measures(self, snapshot: Snapshot, assignment: Assignment) -> list[Balance]:
        """How level each stage is by itself."""
        return measure_apart(snapshot, assignment, self.operators())

    def best_load(self, snapshot: Snapshot, assignment: Assignment) -> float:
        """No placement has a lower highest load: of each stage the mean, or its hottest key on the strongest slot."""
        strongest = float(capacities(snapshot, assignment.slots)[assignment.open_slots].max())
        best = 0.0
        for members, balance in zip(self.operators(), self.measures(snapshot, assignment), strict=True):
            hottest = snapshot.cost[np.isin(snapshot.operator, members)].max(initial=0.0)
            best += max(balance.mean, float(hottest) / strongest)
        return best

    def hot_bars(self, snapshot: Snapshot, assignment: Assignment, share: float, theta_max: float) -> tuple[F64, F64]:
        """For each operator the mean load of an open slot in its stage, and the cost above which a key of it is hot.

        That is ``share`` of the mean of its stage. Where a stage is so short that a key of that cost could not carry
        the batch beyond ``theta_max`` it takes more: no more than ``share`` of what a slot has to do in all stages.
        """
        means, bars = np.zeros(len(self.numbers)), np.zeros(len(self.numbers))
        parts = self.measures(snapshot, assignment)
        least = min(share, theta_max) * sum(part.mean for part in parts)
        for members, part in zip(self.operators(), parts, strict=True):
            means[members] = part.mean
            bars[members] = max(share * part.mean, least)
        return means, bars

    def measure(self, snapshot: Snapshot, assignment: Assignment) -> Balance:
        """How level a batch is: what its stages are, one after another."""
        if self.single:
            return measure(snapshot, assignment)
        return in_turn(self.measures(snapshot, assignment), collocation_factor(snapshot, assignment))

    def each(self, snapshot: Snapshot, assignment: Assignment) -> Iterator[Stage]:
        """Every stage by itself, numbering its operators from 0. Traffic, which is between stages, is left out."""
        size = assignment.groups_per_operator
        for members in self.operators():
            renumbered = np.full(assignment.operators, -1, dtype=np.int32)
            renumbered[members] = np.arange(len(members), dtype=np.int32)
            rows = np.flatnonzero(np.isin(snapshot.operator, members))
            own = groups_of(members, size)
            operator: I32 = renumbered[snapshot.operator[rows]]
            part = replace(
                snapshot,
                hash=snapshot.hash[rows],
                operator=operator,
                group=operator * np.int32(size) + snapshot.group[rows] % np.int32(size),
                cost=snapshot.cost[rows],
                tuples=snapshot.tuples[rows],
                state_bytes=snapshot.state_bytes[rows],
                groups=len(own),
                labels=None if snapshot.labels is None else tuple(snapshot.labels[row] for row in rows),
                rest_cost=snapshot.rest_cost[own],
                rest_tuples=snapshot.rest_tuples[own],
                rest_state_bytes=snapshot.rest_state_bytes[own],
                resources={name: values[rows] for name, values in snapshot.resources.items()},
                key_traffic=None,
                group_traffic=None,
                operators=tuple(snapshot.operators[member] for member in members),
            )
            pins = assignment.pins
            held = np.isin(pins.operator, members)
            alone = replace(
                assignment,
                groups=assignment.groups[own],
                pins=Pins.of(renumbered[pins.operator[held]], pins.hash[held], pins.slot[held]),
                operators=len(members),
            )
            yield Stage(members, part, alone)


def joined(whole: Assignment, stages: Sequence[tuple[Stage, Assignment]]) -> Assignment:
    """The assignment of all operators, with what became of each stage: itself where nothing did."""
    if all(after is stage.assignment for stage, after in stages):
        return whole
    groups, size = np.array(whole.groups), whole.groups_per_operator
    for stage, after in stages:
        groups[groups_of(stage.operators, size)] = after.groups
    pins = [after.pins for _, after in stages]
    owners = [stage.operators[after.pins.operator] for stage, after in stages]
    return whole.next(
        groups=groups,
        pins=Pins.of(
            np.concatenate(owners),
            np.concatenate([each.hash for each in pins]),
            np.concatenate([each.slot for each in pins]),
        ),
    )
