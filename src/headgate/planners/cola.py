"""COLA: cut the graph of everything into balanced pieces and place the pieces, from scratch.

Problem         little traffic between slots, at a load distance that is good enough
Inputs          c(k), the traffic between units; how far a slot may be off the mean, in percent of the mean
Guarantee       pieces are never placed apart; the load distance is within ``max_load_distance`` where some number of
                pieces allows it, else the least that was seen
Time, space     O(P (E + P N)) for P pieces at the end and E pairs with traffic; O(K + E)
First appeared  Khandekar et al., COLA (Middleware 2009), as told in albic, section 2.1
Deviations      the heaviest piece is cut in two at each step, and pieces are placed longest first. COLA is a static
                optimiser that does not know where anything is now; with ``relabel`` the slots of a finished placement
                swap names so that as much state as possible stays where it is, which makes the baseline stronger than
                the paper's. Resource caps are not looked at
Backfires       as a planner at run time: even with ``relabel`` most of the state moves at each plan. A limit on
                migration keeps the moves that level the load most, and tears the pieces apart. Use it for a first
                placement, and ALBIC after that
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from headgate.arrays import I32, I64, sums
from headgate.errors import LimitsError, SnapshotError
from headgate.planners.base import Decision, Planner, reasons
from headgate.planners.items import Items
from headgate.planners.packing import pack
from headgate.planners.partitioning import Graph
from headgate.planners.plan import Grain, Limits, Reason
from headgate.routing.assignment import Assignment
from headgate.stats.measures import Balance

MAX_LOAD_DISTANCE = 10.0
"""albic, algorithm 2: maxLD, which the paper's comparison holds COLA to as well. In percent of the mean slot load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class COLA(Planner):
    """Splits one piece that has everything until the pieces can be placed evenly."""

    name: ClassVar[str] = "cola"
    guards_balance: ClassVar[bool] = False  # collocation may cost balance, up to ``max_load_distance``

    grain: Grain = "group"
    max_load_distance: float = MAX_LOAD_DISTANCE
    relabel: bool = True

    def __post_init__(self) -> None:
        if not self.max_load_distance >= 0:
            raise LimitsError.parameter("COLA", "max_load_distance", "zero or more percent", self.max_load_distance)

    def is_needed(self, items: Items, before: Balance, assignment: Assignment, limits: Limits) -> bool:
        """Always: a static optimiser does not ask how things are."""
        return True

    def decide(self, items: Items, limits: Limits) -> Decision:
        traffic = items.traffic
        if traffic is None:
            raise SnapshotError.traffic_missing("COLA", items.grain)
        piece_of, place_of = self._placed(items, Graph(len(items), traffic))
        target = place_of[piece_of]
        if self.relabel:
            target = _renamed(items, target)
        size = np.bincount(piece_of)
        notes = {
            int(item): f"belongs to a piece of {int(size[piece_of[item]])} {items.grain}s, cut from the rest where "
            f"little is exchanged, that was placed in slot {int(target[item])}"
            for item in np.flatnonzero(target != items.current)
            if items.is_open[items.current[item]]
        }
        return Decision(target, reasons(items, Reason.COLLOCATE), notes, details={"pieces": float(len(size))})

    def _placed(self, items: Items, graph: Graph) -> tuple[I32, I32]:
        """The piece of every item and the slot of every piece."""
        allowed = self.max_load_distance / 100 * items.mean
        enough = int(items.is_open.sum())
        everything = np.arange(len(items))
        # The heaviest piece first; pieces of equal load in the order they were cut.
        pieces: list[tuple[float, int, I64]] = [(-float(items.cost.sum()), 0, everything)]
        whole: list[tuple[float, int, I64]] = []
        made, best, best_distance = 1, None, np.inf
        while True:
            if len(pieces) + len(whole) >= min(enough, len(items)) or not pieces:
                piece_of, loads = _numbered(items, [members for _, _, members in pieces + whole])
                place_of = pack(replace(items, cost=loads))
                distance = items.balance(place_of[piece_of]).load_distance
                if distance < best_distance:
                    best, best_distance = (piece_of, place_of), distance
                if best is not None and (distance <= allowed or not pieces):
                    return best
            load, number, members = heapq.heappop(pieces)
            if len(members) == 1:
                whole.append((load, number, members))
                continue
            half = graph.split(members, items.cost[members], 2, self.seed) == 0
            if half.all() or not half.any():
                half = np.arange(len(members)) < len(members) // 2
            for part in (members[half], members[~half]):
                heapq.heappush(pieces, (-float(items.cost[part].sum()), made, part))
                made += 1


def _numbered(items: Items, pieces: list[I64]) -> tuple[I32, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    piece_of = np.empty(len(items), dtype=np.int32)
    for number, members in enumerate(pieces):
        piece_of[members] = number
    return piece_of, sums(piece_of, items.cost, len(pieces))


def _renamed(items: Items, target: I32) -> I32:
    """The same placement with slots renamed so that the most state stays; only slots alike in capacity and in what is
    fixed to them can swap names."""
    slots = items.slots
    stays = np.zeros((slots, slots))
    np.add.at(stays, (target, items.current), items.state_bytes)
    alike = (items.capacity[:, None] == items.capacity) & (items.fixed_cost[:, None] == items.fixed_cost)
    alike &= items.is_open[:, None] == items.is_open
    # Each forbidden pair costs more than everything there is to gain; keeping all names is always allowed.
    forbidden = 1 + float(items.state_bytes.sum())
    _, name = linear_sum_assignment(np.where(alike, stays, -forbidden), maximize=True)
    return name.astype(np.int32)[target]
