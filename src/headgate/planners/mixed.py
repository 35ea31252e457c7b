"""Mixed: move little state, within a bounded routing table. The default planner.

Problem         least migrated state such that theta <= theta_max and the table holds at most table_max keys
Inputs          c(k), S(k, w), theta_max, table_max, beta
Guarantee       balance no worse than LLFD's and Simple's (theorems 2 and 4); at most table_max entries
Time, space     a few runs of LLFD; O(K)
First appeared  Fang et al., mixed-routing, algorithm 4
Deviations      1. The number n of entries sent home adds up over the trials (line 10 sets it to the last overuse, which
                   can cycle), and doubles from the fourth trial on; with the whole table sent home MinTable has a try.
                2. The table limit is hard: what still does not fit goes home, the lightest first, and is refused. (The
                   paper gives the limit up.)
                3. Those of LLFD. Also on the compact form (``degree``).
Backfires       with table_max below what balance needs it becomes MinTable and moves much state: raise table_max or
                theta_max. Where every key costs the same, hashing is enough
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headgate.planners.base import Decision, Planner
from headgate.planners.items import Items
from headgate.planners.minmig import BETA, check_beta
from headgate.planners.phases import Ground, Trial, better_of, by_falling, compact_of, run_phases, settle
from headgate.planners.plan import Limits, Plan
from headgate.routing.assignment import Assignment
from headgate.stats.compact import Compact
from headgate.stats.snapshot import Snapshot

_PATIENCE = 3
"""Trials with the paper's step before the step doubles: large overuse is met in one or two, small steps never end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed(Planner):
    """Sends home just enough entries for the table to fit, then moves keys by gamma = c^beta / S.

    ``degree``: R of the compact form to plan on; None plans on the keys themselves.
    """

    name: ClassVar[str] = "mixed"
    controls_table: ClassVar[bool] = True
    beta: float = BETA
    degree: int | None = None

    def __post_init__(self) -> None:
        check_beta(self.name, self.beta)

    def decide(self, items: Items, limits: Limits) -> Decision:
        return self.decide_on(items, compact_of(items, self.degree), limits)

    def plan_on(
        self, records: Compact, snapshot: Snapshot, assignment: Assignment, limits: Limits | None = None
    ) -> Plan:
        """As ``plan``, on records that the slots have made of their keys already: the rows of ``records`` are those of
        the snapshot, placed as by the assignment."""

        def decide(items: Items, limits: Limits) -> Decision:
            return self.decide_on(items, records, limits)

        return self._plan(decide, snapshot, assignment, limits)

    def decide_on(self, items: Items, compact: Compact | None, limits: Limits) -> Decision:
        """As ``decide``, on records that are there already."""
        trials = Trials(Ground.of(items, compact), self.beta)

        def search(theta_max: float) -> tuple[Trial, int]:
            return _search(trials, theta_max, limits.table_max)

        def exact() -> Decision:
            return self.decide_on(items, None, limits)

        decision = settle(items, compact, search, limits.theta_max, exact)
        return better_of(items, decision, limits.theta_max, limits.table_max)


def _search(trials: Trials, theta_max: float, table_max: int | None) -> tuple[Trial, int]:
    """Algorithm 4: the first trial whose table fits, and how many trials it took."""
    back, tried = 0, 0
    while True:
        trial = trials.run(back, theta_max)
        tried += 1
        over = 0 if table_max is None else trial.table_size - table_max
        if over <= 0:
            return trial, tried
        if back >= trials.entries:
            smallest = trials.run_smallest_table(theta_max)
            return min(trial, smallest, key=lambda each: each.table_size), tried + 1
        back = min(trials.entries, back + (over if tried <= _PATIENCE else max(over, back)))


class Trials:
    """The phases of MinMig after sending home some entries; what the trials share is sorted once."""

    def __init__(self, ground: Ground, beta: float) -> None:
        self.ground = ground
        self.psi = ground.by_priority(beta)
        self.order = by_falling(self.psi)
        pinned = ground.records.current != ground.records.home
        self.entries = int(ground.records.count[pinned].sum())

    def run(self, back: int, theta_max: float) -> Trial:
        return run_phases(self.ground, self.psi, theta_max, back=back, order=self.order)

    def run_smallest_table(self, theta_max: float) -> Trial:
        return run_phases(self.ground, self.ground.by_cost(), theta_max, back=self.entries)
