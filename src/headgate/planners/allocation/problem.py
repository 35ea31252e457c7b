"""What the solver is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from headgate.arrays import F64, I32, I64, Bool, sums
from headgate.errors import LimitsError
from headgate.planners.base import ROUNDING
from headgate.planners.items import Items, Resource
from headgate.planners.plan import Limits

FREE = -1
"""In ``Problem.pinned``: the solver decides where the item goes."""


class Score(NamedTuple):
    """How good places are; the smaller the better, the first number that differs decides.

    ``excess``    how far resource caps are exceeded, as a share of the caps, over all slots and resources
    ``distance``  the model's d: the farthest that an open slot is off the mean, or a draining one above it
    ``stranded``  items left on draining slots
    ``spread``    (d - d_u) + (d - d_l): the farthest above plus the farthest below the mean
    ``spent``     what the moves take from the budget
    ``carried``   the state they carry
    """

    excess: float
    distance: float
    stranded: int
    spread: float
    spent: float
    carried: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Items to place on slots. Raises ``LimitsError`` where the pins alone cost more than the budget.

    ``cost``        the load an item brings, at least 0
    ``price``       what moving it takes from the budget, at least 0: 1 where moves are counted (the number of groups in
                    an item that stands for several), or its state
    ``state``       the bytes it carries; decides only between plans that are equal in everything else
    ``current``     the slot it is on
    ``pinned``      the slot it must be on, ``FREE`` where the solver decides. A pinned item that is elsewhere is moved
                    there first, and paid for
    ``fixed_cost``  per slot, the cost that cannot move
    ``capacity``    per slot; a slot's load is its cost divided by this
    ``is_open``     per slot; False: draining, it may only lose items (save those pinned to it)
    ``budget``      what the moves may take together; None: no limit
    ``resources``   name -> what each item uses, what is fixed, and the cap of each slot
    """

    cost: F64
    price: F64
    state: F64
    current: I32
    fixed_cost: F64
    capacity: F64
    is_open: Bool
    budget: float | None = None
    pinned: I32 | None = None
    resources: Mapping[str, Resource] = field(default_factory=dict)

    def __post_init__(self) -> None:
        forced = self.pin_price
        if self.budget is not None and forced > self.budget * (1 + ROUNDING) + ROUNDING:
            raise LimitsError.parameter(
                "allocation", "budget", f"at least {forced:g}, the price of moving the pinned items", self.budget
            )

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def slots(self) -> int:
        return len(self.capacity)

    @property
    def mean(self) -> float:
        """The load every open slot would have if the cost were spread perfectly."""
        return float((self.cost.sum() + self.fixed_cost.sum()) / self.capacity[self.is_open].sum())

    @property
    def pin_price(self) -> float:
        """What the pinned items that are elsewhere take from the budget."""
        if self.pinned is None:
            return 0.0
        return float(self.price[(self.pinned != FREE) & (self.pinned != self.current)].sum())

    @property
    def start(self) -> I32:
        """The current places, with pinned items where they must be."""
        if self.pinned is None:
            return self.current
        return np.where(self.pinned == FREE, self.current, self.pinned).astype(np.int32)

    def loads(self, places: I32) -> F64:
        return (sums(places, self.cost, self.slots) + self.fixed_cost) / self.capacity

    def spent(self, places: I32) -> float:
        return float(self.price[places != self.current].sum())

    def score(self, places: I32) -> Score:
        """How good these places are, whether or not they hold the budget."""
        off = self.loads(places) - self.mean
        over, under = max(0.0, float(off.max())), max(0.0, float(-off[self.is_open].min()))
        moved = places != self.current
        return Score(
            self.excess(places),
            max(over, under),
            int(np.count_nonzero(~self.is_open[places])),
            over + under,
            float(self.price[moved].sum()),
            float(self.state[moved].sum()),
        )

    def excess(self, places: I32) -> float:
        """How far resource caps are exceeded, as a share of the cap, added up."""
        total = 0.0
        for resource in self.resources.values():
            used = sums(places, resource.used, self.slots) + resource.fixed
            over = np.maximum(0.0, used - resource.cap)
            over[over <= ROUNDING * np.abs(used)] = 0.0
            total += float((over / np.maximum(resource.cap, ROUNDING)).sum())
        return total

    def is_better(self, left: Score, right: Score) -> bool:
        """Whether the left score is better by more than rounding."""
        # Each field in its own unit: a share of the caps, a load, a number of items, a load.
        rounding = ROUNDING * self.mean
        slacks = (ROUNDING, rounding, 0.0, rounding)
        for mine, other, slack in zip(left[:4], right[:4], slacks, strict=True):
            if abs(mine - other) > slack:
                return mine < other
        return (left.spent, left.carried) < (right.spent, right.carried)

    def admits(self, places: I32) -> bool:
        """Whether these places hold the budget and the pins, and send nothing to a draining slot."""
        free = np.ones(len(self), dtype=np.bool_) if self.pinned is None else self.pinned == FREE
        if not np.array_equal(places[~free], self.start[~free]):
            return False
        moved = free & (places != self.current)
        held = self.budget is None or self.spent(places) <= self.budget
        return bool(held and self.is_open[places[moved]].all())

    def folded(self) -> tuple[Problem, I64]:
        """The same problem without pins: pinned items become part of the fixed cost, their price is paid. And which
        items are left."""
        if self.pinned is None:
            return self, np.arange(len(self))
        free = np.flatnonzero(self.pinned == FREE)
        held = np.flatnonzero(self.pinned != FREE)
        where = self.pinned[held]
        resources = {
            name: Resource(
                used=resource.used[free],
                fixed=resource.fixed + sums(where, resource.used[held], self.slots),
                cap=resource.cap,
            )
            for name, resource in self.resources.items()
        }
        return replace(
            self,
            cost=self.cost[free],
            price=self.price[free],
            state=self.state[free],
            current=self.current[free],
            fixed_cost=self.fixed_cost + sums(where, self.cost[held], self.slots),
            budget=None if self.budget is None else max(0.0, self.budget - self.pin_price),
            pinned=None,
            resources=resources,
        ), free

    def normalised(self) -> tuple[Problem, int]:
        """The same problem with a mean between 1/2 and 1, and the power of two that takes its loads back.

        So that squares of loads neither overflow nor vanish. A power of two, because that rounds nothing: costs that
        add up exactly still do. The mean must be above 0.
        """
        exponent = int(np.frexp(self.mean)[1])
        cost, fixed_cost = (np.ldexp(values, -exponent) for values in (self.cost, self.fixed_cost))
        return replace(self, cost=cost, fixed_cost=fixed_cost), exponent

    @classmethod
    def of(cls, items: Items, limits: Limits) -> Problem:
        """The items of a snapshot under the limits on migration and the caps."""
        by_count = limits.max_migrations is not None
        budget = limits.max_migrations if by_count else limits.max_migration_cost
        return cls(
            cost=items.cost,
            price=np.ones(len(items)) if by_count else items.state_bytes,
            state=items.state_bytes,
            current=items.current,
            fixed_cost=items.fixed_cost,
            capacity=items.capacity,
            is_open=items.is_open,
            budget=None if budget is None else float(budget),
            resources=items.resources,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Places for every item, and how good any other could be. Where there is no budget, "any other" are those that
    leave nothing on draining slots.

    ``score``       of these places
    ``bound``       no places within the budget have a smaller ``score.distance``
    ``open_bound``  no places within the budget have a smaller load distance over the open slots alone; the same as
                    ``bound`` where nothing drains
    ``is_proven``   the distance is the least there is, up to the tolerance of the exact solver
    ``is_forced``   an item left a draining slot at the expense of the distance, so that the slot gets empty in the end
    ``steps``       proposals that the local search tried
    """

    places: I32
    score: Score
    bound: float
    open_bound: float
    is_proven: bool = False
    is_forced: bool = False
    steps: int = 0
