"""ALBIC: automatic load balancing with integrated collocation. The MILP, made to bring partners together.

Problem         the least load distance, and units that exchange much in the same slot, a few moves at a time
Inputs          c(k), the traffic between units, the limit on migration; maxLD, maxPL, stepPL and sF
Guarantee       the limit on migration is held; a plan that collocates leaves no slot farther off the mean than maxLD
                and no cap exceeded, otherwise the plan is the MILP's, with no thought of traffic; partners that are
                together stay together unless the set they form is too heavy to move as one. Where the load is within
                maxLD and nothing drains, no plan collocates less of the traffic of pairs that stand out, and none takes
                more from the traffic within slots than it gives to the balance: without a change in load or traffic,
                plans do not go back and forth
Time, space     O(E) for E pairs with traffic, METIS on the sets that are too heavy, then one solution of the MILP over
                units, 2 + maxPL / stepPL of them at the most; O(K + E)
First appeared  Madsen et al., albic, section 4.3.2, algorithm 2
Deviations      the paper's maxLD, maxPL and stepPL are percentage points of a node's full load; costs here have any
                unit and a slot has no 100 %, so they are percent of the mean slot load. The defaults are the paper's
                numbers, 10, 25 and 5, and so stricter than the paper's wherever nodes are not full: at its mean of 50
                points, 20, 50 and 10 here are what it has. A plan that would undo collocation for next to nothing is
                tried once more with no set cut, and not made if that does not help. A pair that the limit on migration
                cannot pay for is refused and the pair with the next most traffic takes its place, else one heavy pair
                could block all others. ``pairs`` collocates more than one pair a plan, the paper's is 1; those beyond
                the first may use half of the limit, the rest being for the balance. Nothing is brought together in a
                draining slot. Downstream groups with neither load nor state are not counted in avg(g_i)
Backfires       where everything talks to everything (full partitioning, evenly): no pair stands out and the traffic is
                measured for nothing, use MILP. One pair a plan is slow: 100 pairs take 100 intervals
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from headgate.arrays import F64, I32, I64, Bool, sums
from headgate.errors import LimitsError, SnapshotError, listing
from headgate.planners.allocation import Problem, Solution, solve
from headgate.planners.base import ROUNDING, Decision, Planner, reasons
from headgate.planners.items import Items, Resource
from headgate.planners.partitioning import Graph
from headgate.planners.plan import Grain, Limits, Reason
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance

MAX_LOAD_DISTANCE = 10.0
"""albic, algorithm 2: maxLD, there in percentage points of a node, here in percent of the mean slot load. "A reasonable
load distance without impacting the obtainable collocation"."""

MAX_PARTITION_LOAD = 25.0
"""albic, algorithm 2: the first maxPL; the unit as above."""

STEP = 5.0
"""albic, algorithm 2: stepPL, so that a plan is calculated five times at the most; the unit as above."""

SCORE_FACTOR = 1.5
"""albic, algorithm 2: sF. A pair counts when it exchanges this many times the sender's average."""

MORE_PAIRS_SHARE = 0.5
"""What pairs beyond the first may take of the limit on migration: the other half is left to level the load."""

WORTHWHILE = 0.01
"""What the load distance must fall by, as a share of the mean, for a plan to undo collocation where the load is not
within maxLD: a percent of the mean is what no one notices."""

FREE = -1
"""No slot is prescribed; as in ``Problem.pinned``."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Step 1: the pairs whose traffic stands out, and which of them share a slot (colGrps) or not (toBeColGrps)."""

    source: I64
    target: I64
    rate: F64
    together: Bool

    def kept_within(self, places: I32) -> float:
        """The traffic of those that share a slot at these places."""
        return float(self.rate[places[self.source] == places[self.target]].sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """Step 2: what moves as one. ``unit_of`` every item; ``is_set`` for those of several items, or cut from such."""

    unit_of: I64
    is_set: Bool
    price: F64
    current: I32

    def __len__(self) -> int:
        return len(self.is_set)


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """Step 3: the slot prescribed for each unit, and per pair brought together (mover, partner, slot)."""

    pinned: I32
    pairs: tuple[tuple[int, int, int], ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ALBIC(Planner):
    """Brings the pair with the most traffic together at each plan, and levels the load around it.

    ``max_load_distance``   maxLD, in percent of the mean slot load (the paper: percentage points of a node's full load)
    ``max_partition_load``  the first maxPL, in the same unit: what moves as one weighs no more
    ``step``                stepPL, in the same unit
    ``score_factor``        sF
    ``pairs``               how many pairs a plan brings together
    ``clock``               as in ``MILP``
    """

    name: ClassVar[str] = "albic"
    holds_migration: ClassVar[bool] = True
    guards_balance: ClassVar[bool] = False  # collocation may cost balance, up to ``max_load_distance``

    grain: Grain = "group"
    max_load_distance: float = MAX_LOAD_DISTANCE
    max_partition_load: float = MAX_PARTITION_LOAD
    step: float = STEP
    score_factor: float = SCORE_FACTOR
    pairs: int = 1
    clock: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        for name in ("max_load_distance", "max_partition_load", "score_factor"):
            if not getattr(self, name) >= 0:
                raise LimitsError.parameter("ALBIC", name, "zero or more", getattr(self, name))
        if not self.step > 0:
            raise LimitsError.parameter("ALBIC", "step", "above zero", self.step)
        if self.pairs < 1:
            raise LimitsError.parameter("ALBIC", "pairs", "at least 1", self.pairs)

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        """Also when the load is level but a pair is to be collocated."""
        # The bare super() of a class with slots=True would look in a class that no longer exists.
        if super(ALBIC, self).is_needed(items, before, assignment, limits):
            return True
        return not bool(standing_out(items, self.score_factor).together.all())

    def decide(self, items: Items, limits: Limits) -> Decision:
        pairs = standing_out(items, self.score_factor)
        problem = Problem.of(items, limits)
        attempt = _Attempt(self, items, problem, pairs)
        partition_load, seconds = self.max_partition_load, limits.time_limit_seconds
        wanted = self.pairs
        refused: tuple[str, ...] = ()
        cuts, has_kept_whole = True, False
        while partition_load > 0 and problem.budget != 0:
            seconds /= 2  # so that all attempts together, the last included, stay within the limit
            units = attempt.units(partition_load if cuts else None)
            joined = attempt.joined(units, wanted)
            refused = refused or joined.refused
            target = attempt.solved(units, joined, seconds).places[units.unit_of].astype(np.int32)
            is_level = self._is_level(items, problem, target)
            if is_level and not self._is_setback(items, problem, pairs, target):
                return attempt.decision(target, units, joined, partition_load)
            # What undoes collocation is tried once more with all sets whole, before they are cut smaller still.
            cuts = has_kept_whole or not is_level
            has_kept_whole |= not cuts
            if cuts:
                partition_load -= self.step
                wanted = max(1, wanted // 2)
        solution = solve(problem, seed=self.seed, time_limit_seconds=seconds, clock=self.clock)
        stays = self._is_setback(items, problem, pairs, solution.places)
        return Decision(
            items.current if stays else solution.places,
            reasons(items, Reason.LEVEL),
            warnings=refused,
            bound=solution.open_bound,
            details={"collocated_pairs": 0.0, "partitions": 0.0, "max_partition_load": 0.0},
        )

    def _is_level(self, items: Items, problem: Problem, target: I32) -> bool:
        distance = items.balance(target).load_distance
        return distance <= self.max_load_distance / 100 * items.mean and problem.excess(target) == 0

    def _is_setback(self, items: Items, problem: Problem, pairs: Pairs, target: I32) -> bool:
        """Whether these places undo collocation and the balance gains too little by it.

        Within maxLD the traffic of pairs that stand out may not fall; where it stays, the load distance (as a share of
        the mean) must gain more than the collocation loses. Each plan then is ahead of the last by one order, which is
        why they cannot go round in circles.
        """
        now, traffic = items.current, items.traffic
        assert traffic is not None
        if items.on_draining().any() or problem.excess(target) < problem.excess(now) or not items.mean > 0:
            return False
        gain = (items.balance(now).load_distance - items.balance(target).load_distance) / items.mean
        lost = (traffic.kept_within(now) - traffic.kept_within(target)) / max(traffic.total, np.finfo(float).tiny)
        if not self._is_level(items, problem, now):
            return lost > ROUNDING and gain < WORTHWHILE
        parted = pairs.kept_within(now) - pairs.kept_within(target)
        rounding = ROUNDING * float(pairs.rate.sum())
        if parted < -rounding:
            return lost > max(ROUNDING, gain)
        return parted > rounding or lost > gain - ROUNDING


def standing_out(items: Items, score_factor: float) -> Pairs:
    """The pairs with out(g_i, g_j) > avg(g_i) * sF, most traffic first.

    avg(g_i) is what g_i sends divided by the number of items of all operators that its operator sends to. Raises
    ``SnapshotError`` where no traffic was measured at the grain of the items.
    """
    traffic = items.traffic
    if traffic is None:
        raise SnapshotError.traffic_missing("ALBIC", items.grain)
    operators = int(items.operator.max()) + 1 if len(items) else 1
    members = np.bincount(items.operator, minlength=operators)
    feeds = np.zeros((operators, operators), dtype=np.bool_)
    feeds[items.operator[traffic.source], items.operator[traffic.target]] = True
    receivers = np.maximum(1, feeds @ members)
    average = sums(traffic.source, traffic.rate, len(items)) / receivers[items.operator]
    chosen = np.flatnonzero(
        (traffic.rate > average[traffic.source] * score_factor) & (traffic.source != traffic.target)
    )
    chosen = chosen[np.argsort(-traffic.rate[chosen], kind="stable")]
    source, target = traffic.source[chosen], traffic.target[chosen]
    return Pairs(source, target, traffic.rate[chosen], items.current[source] == items.current[target])


class _Attempt:
    """Steps 2 to 4 for one plan; the random numbers that break ties go on from attempt to attempt."""

    def __init__(self, planner: ALBIC, items: Items, problem: Problem, pairs: Pairs) -> None:
        self.planner = planner
        self.items = items
        self.problem = problem
        self.pairs = pairs
        self.random = np.random.default_rng(planner.seed)
        self.graph: Graph | None = None

    def units(self, partition_load: float | None) -> _Units:
        """Step 2: sets of partners that share a slot, cut where they exceed what a unit may weigh or cost to move; None
        cuts nothing."""
        items, pairs, size = self.items, self.pairs, len(self.items)
        source, target = pairs.source[pairs.together], pairs.target[pairs.together]
        links = sparse.csr_array((np.ones(len(source)), (source, target)), shape=(size, size))
        count, set_of = connected_components(links, directed=False)
        members = np.bincount(set_of, minlength=count)
        unit_of = np.array(set_of, dtype=np.int64)
        is_set = list(members > 1)
        if partition_load is not None:
            most = partition_load / 100 * items.mean
            for number in np.flatnonzero(members > 1):
                inside = np.flatnonzero(set_of == number)
                for part in self._cut(inside, most)[1:]:
                    unit_of[part] = len(is_set)
                    is_set.append(True)
        current = np.empty(len(is_set), dtype=np.int32)
        current[unit_of] = items.current
        return _Units(
            unit_of, np.array(is_set, dtype=np.bool_), sums(unit_of, self.problem.price, len(is_set)), current
        )

    def _cut(self, members: I64, most: float) -> list[I64]:
        """Parts whose load is ``most`` and whose price is the budget at the most, as far as single items allow it."""
        problem = self.problem
        load, price = float(problem.cost[members].sum()), float(problem.price[members].sum())
        heavy = load / most if most > 0 else 0.0
        dear = price / problem.budget if problem.budget else 0.0
        parts = int(np.ceil(min(max(heavy, dear) * (1 - 1e-9), len(members))))
        if parts <= 1 or len(members) == 1:
            return [members]
        by_price = dear > heavy or (dear == heavy and bool(self.random.integers(2)))
        weight = (problem.price if by_price else problem.cost)[members]
        if self.graph is None:
            assert self.items.traffic is not None
            self.graph = Graph(len(self.items), self.items.traffic)
        part_of = self.graph.split(members, weight, parts, self.planner.seed)
        pieces = [members[part_of == part] for part in np.unique(part_of)]
        if len(pieces) == 1:
            pieces = [members[: len(members) // 2], members[len(members) // 2 :]]
        return [part for piece in pieces for part in self._cut(piece, most)]

    def joined(self, units: _Units, wanted: int) -> _Joined:
        """Step 3: prescribe a slot for the pairs with the most traffic, ties broken at random."""
        items, pairs, problem = self.items, self.pairs, self.problem
        apart = np.flatnonzero(~pairs.together)
        order = apart[np.lexsort((self.random.random(len(apart)), -pairs.rate[apart]))]
        pinned = np.full(len(units), FREE, dtype=np.int32)
        loads = items.slot_costs(items.current) / items.capacity
        cost = sums(units.unit_of, items.cost, len(units))
        budget = np.inf if problem.budget is None else problem.budget
        spent = 0.0
        made: list[tuple[int, int, int]] = []
        refused: list[str] = []
        for row in order:
            if len(made) == wanted:
                break
            first, second = int(pairs.source[row]), int(pairs.target[row])
            one, two = int(units.unit_of[first]), int(units.unit_of[second])
            slot = self._meeting(units, one, two, pinned, loads)
            if slot == FREE:
                continue
            movers = [unit for unit in (one, two) if pinned[unit] == FREE and units.current[unit] != slot]
            price = float(units.price[movers].sum())
            if spent + price > (budget * MORE_PAIRS_SHARE if made else budget):
                if not made:
                    refused.append(
                        f"{self._name(first)} and {self._name(second)} (moving {price:g} of {budget:g} allowed)"
                    )
                continue
            spent += price
            for unit in movers:
                loads[units.current[unit]] -= cost[unit] / items.capacity[units.current[unit]]
                loads[slot] += cost[unit] / items.capacity[slot]
            pinned[[one, two]] = slot
            made.append((first, second, slot))
        texts = (f"not collocated, the limit on migration is too low: {listing(refused)}",) if refused else ()
        return _Joined(pinned, tuple(made), texts)

    def _meeting(self, units: _Units, one: int, two: int, pinned: I32, loads: F64) -> int:
        """The slot where two units meet, ``FREE`` where they cannot.

        Case 1, neither belongs to a set, and case 3, both do: the less loaded slot of the two. Case 2: the slot of the
        one that does. A unit that another pair has been promised stays where it was promised to be.
        """
        slots = [int(pinned[unit]) if pinned[unit] != FREE else int(units.current[unit]) for unit in (one, two)]
        fixed = [pinned[unit] != FREE for unit in (one, two)]
        if slots[0] == slots[1] or all(fixed):
            return FREE
        if any(fixed):
            slot = slots[0] if fixed[0] else slots[1]
        elif units.is_set[one] != units.is_set[two]:
            slot = slots[0] if units.is_set[one] else slots[1]
        elif loads[slots[0]] == loads[slots[1]]:
            slot = slots[int(self.random.integers(2))]
        else:
            slot = slots[0] if loads[slots[0]] < loads[slots[1]] else slots[1]
        return slot if self.items.is_open[slot] else FREE

    def solved(self, units: _Units, joined: _Joined, seconds: float) -> Solution:
        """Step 4: the MILP over units, some of which have their slot prescribed."""
        problem, count = self.problem, len(units)

        def total(values: F64) -> F64:
            return sums(units.unit_of, values, count)

        resources = {
            name: Resource(total(resource.used), resource.fixed, resource.cap)
            for name, resource in problem.resources.items()
        }
        coarse = replace(
            problem,
            cost=total(problem.cost),
            price=units.price,
            state=total(problem.state),
            current=units.current,
            pinned=joined.pinned,
            resources=resources,
        )
        return solve(coarse, seed=self.planner.seed, time_limit_seconds=seconds, clock=self.planner.clock)

    def decision(self, target: I32, units: _Units, joined: _Joined, partition_load: float) -> Decision:
        items = self.items
        notes: dict[int, str] = {}
        for first, second, slot in joined.pairs:
            for mover, partner in ((first, second), (second, first)):
                company = np.flatnonzero(units.unit_of == units.unit_of[mover])
                for item in company[target[company] != items.current[company]]:
                    joins = f"{self._name(partner)} in slot {slot}, with which it exchanges the most traffic"
                    text = (
                        f"joins {joins}"
                        if item == mover
                        else f"comes along with {self._name(mover)}, which joins {joins}"
                    )
                    notes.setdefault(int(item), text)
        reason = reasons(items, Reason.LEVEL)
        reason[list(notes)] = Reason.COLLOCATE
        together = target[self.pairs.source] == target[self.pairs.target]
        return Decision(
            target,
            reason,
            notes,
            warnings=joined.refused,
            details={
                "collocated_pairs": float(len(joined.pairs)),
                "pairs_left": float((~together).sum()),
                "partitions": float(units.is_set.sum()),
                "max_partition_load": partition_load,
            },
        )

    def _name(self, item: int) -> str:
        row = int(self.items.rows[item])
        return f"key group {row}" if self.items.grain == "group" else f"the key in row {row}"
