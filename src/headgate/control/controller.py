"""The controller: looks at the statistics of an interval, and says what the assignment should be.

    batch         7        8        9       10
    interval   ...........|--------|--------|
    observe              ^        ^        ^          after every batch, with what its slots reported
    decide                ````\\    ````\\               beside batch 8, from the statistics up to batch 7
    applies                    |8|9     |             from batch 9 on, if the assignment is still the one it was for

One interval goes through these tests, and the first that holds ends it (mixed-routing, IV; albic, algorithm 1):

    nothing beyond the limits                    balanced
    a plan was applied a moment ago              skipped
    out of balance for too short a time          skipped
    no placement could gain enough               skipped
    the planner fails                            failed
    the plan gains too little                    skipped
    otherwise                                    plan

A slot that drains, a routing table that is too long and caps are not made to wait and need not gain anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import I64, Bool, frozen_i64
from headgate.control.journal import Entry, Kind
from headgate.control.levelling import left_of, level_groups
from headgate.control.policy import Policy
from headgate.control.stages import Stages, joined
from headgate.errors import AssignmentError, HeadgateError
from headgate.planners.base import ROUNDING, Planner
from headgate.planners.plan import Limits, Move, Moves
from headgate.routing.assignment import Assignment
from headgate.routing.groups import GROUPS
from headgate.stats.loads import Interval, OperatorLoad, Tally
from headgate.stats.measures import Balance, delta
from headgate.stats.snapshot import Snapshot

MOVES_SHOWN = 50
"""Moves of a plan, and refusals, that get an entry each, the costliest first; the plan's entry counts all of them. A
person reads a screenful, and a journal that lists every move of every plan would outgrow the state of a small job."""

UNSPLIT = 0.5
"""A split key is joined again below this share of the bar at which it is split, so that a key near the bar does not
come and go: the measured cost of a key would have to be off by half."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What the controller says after an interval. ``assignment`` and ``split`` are None where they should stay.

    ``made_for`` is the version of the assignment it was made for: apply it to no other. ``split`` has the hashes of the
    keys to be split from now on, per operator. ``before`` and ``after`` are measured with the interval's statistics;
    ``after`` is that of the plan, also of one that was not taken. Counts are those of the plan that is to be applied.
    """

    batch: int
    made_for: int
    entries: tuple[Entry, ...]
    assignment: Assignment | None = None
    split: tuple[I64, ...] | None = None
    before: Balance | None = None
    after: Balance | None = None
    moved_keys: int = 0
    moved_groups: int = 0
    moved_bytes: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether there is anything to apply."""
        return self.assignment is not None or self.split is not None


class Controller:
    """Gathers reports, and decides once per interval.

    ``observe``, ``due``, ``applied`` and ``stale`` belong to one thread; ``decide`` may run in another, one call at a
    time: it works on immutable statistics that ``observe`` left, and changes nothing but its own count of intervals out
    of balance. No planner (None) never moves anything.

    ``names`` are the operators' names, ``groups`` the key groups of each, ``combines`` says for each whether its keys
    may be split over slots. ``stages`` has the number of each operator's stage: operators of one stage run at the same
    time, stages one after another (left out: all at the same time).
    """

    def __init__(
        self,
        planner: Planner | None,
        policy: Policy | None = None,
        *,
        names: Sequence[str] = ("",),
        groups: int = GROUPS,
        combines: Sequence[bool] = (),
        stages: Sequence[int] = (),
    ) -> None:
        self.planner = planner
        self.policy = policy or Policy()
        self._set_operators(names, combines, stages)
        self._interval = Interval(groups, len(self.names))
        self._tally: Tally | None = None
        self._waiting = False
        self._cooling = 0
        self._out_of_balance = 0

    def _set_operators(self, names: Sequence[str], combines: Sequence[bool], stages: Sequence[int]) -> None:
        for what, given, says in (
            ("combines", combines, "whether its keys may be split"),
            ("stages", stages, "which stage it runs in"),
        ):
            if given and len(given) != len(names):
                raise AssignmentError(
                    f"{what} must say for each of {len(names)} operators {says}, got {len(given)} values: give one "
                    "per operator"
                )
        self.names = tuple(names)
        self.combines = tuple(combines) or (False,) * len(names)
        self.stages = Stages(tuple(stages)) if stages else Stages.at_once(len(names))

    def observe(self, batch: int, loads: Sequence[OperatorLoad], state_bytes: Sequence[ArrayLike] = ()) -> None:
        """What the slots of a batch reported, and the state of each key group after it (see ``Interval.add``).

        Reports that arrive while a decision is pending go into the next interval.
        """
        self._interval.add(batch, loads, state_bytes)
        if self._interval.batches < self.policy.every:
            return
        tally = self._interval.tally()
        self._interval = self._interval.next()
        if tally.total_cost <= 0:
            return  # nothing came in: the last statistics that say something stay
        if self._tally is not None:
            tally = tally.blended(self._tally, self.policy.smoothing, self.policy.shift)
        self._tally = tally
        self._waiting = True
        self._cooling = max(0, self._cooling - 1)

    def due(self) -> bool:
        """Whether an interval has ended that nobody has decided on."""
        return self._waiting and self.planner is not None

    @property
    def tally(self) -> Tally | None:
        """The statistics of the last interval; None before the first has ended."""
        return self._tally

    def balance(
        self, assignment: Assignment, *, split: Sequence[I64] = (), capacity: ArrayLike | None = None
    ) -> Balance | None:
        """How level the load of the last interval is under an assignment; None before the first has ended."""
        tally = self._tally
        if tally is None:
            return None
        snapshot = tally.snapshot(assignment, names=self.names, capacity=capacity, split=split)
        return self.stages.measure(snapshot, assignment)

    def rearranged(self, names: Sequence[str], combines: Sequence[bool], stages: Sequence[int] = ()) -> None:
        """The operators are others from now on: what was measured of the old ones says nothing."""
        self._set_operators(names, combines, stages)
        self._interval = Interval(self._interval.groups, len(self.names))
        self._tally, self._waiting = None, False

    def set_planner(self, planner: Planner | None, batch: int) -> Entry:
        """Go on with another planner; the entry says so."""
        before, self.planner = self.planner, planner
        self._out_of_balance = 0
        told = {"before": before.name if before else None, "now": planner.name if planner else None}
        text = f"{planner.name} plans from now on" if planner else "nobody plans from now on: everything stays"
        return Entry(batch, "balance", text, details=told)

    def applied(self, verdict: Verdict) -> None:
        """The verdict's assignment is in use from the next batch on: cooling down begins."""
        if verdict.assignment is not None:
            self._cooling = self.policy.cooldown + 1
            self._out_of_balance = 0

    def stale(self, verdict: Verdict, version: int) -> Entry:
        """The entry for a verdict that comes too late: the assignment now has this version."""
        return Entry(
            verdict.batch,
            "stale",
            f"the plan was made for version {verdict.made_for} of the assignment and {version} is in use by now: it is "
            "dropped, the next interval plans anew",
            details={"made_for": verdict.made_for, "version": version},
        )

    def decide(
        self, assignment: Assignment, *, split: Sequence[I64] = (), capacity: ArrayLike | None = None
    ) -> Verdict:
        """The verdict on the last interval for this assignment, with these keys split (hashes per operator).

        ``capacity`` has one value per slot, 1.0 being an ordinary one. Never raises for what a planner does.
        """
        tally, planner = self._tally, self.planner
        self._waiting = False
        if tally is None or planner is None:
            return Verdict(tally.batch if tally else -1, assignment.version, ())
        wanted, split_entries = self._split(tally, assignment, split)
        in_force = split if wanted is None else wanted
        snapshot = tally.snapshot(assignment, names=self.names, capacity=capacity, split=in_force)
        verdict = _Judgement(self, planner, snapshot, assignment, tally.batch).verdict()
        return replace(verdict, split=wanted, entries=(*split_entries, *verdict.entries))

    def _split(
        self, tally: Tally, assignment: Assignment, now: Sequence[I64]
    ) -> tuple[tuple[I64, ...] | None, list[Entry]]:
        """Which keys to split from now on (None: the same as now), and what to say of it."""
        share = self.policy.split_share
        if share is None or not any(self.combines):
            return None, []
        everything = tally.snapshot(assignment, names=self.names)
        means, bars = self.stages.hot_bars(everything, assignment, share, self.policy.limits.theta_max)
        of_what = "a slot's share" if self.stages.single else "a slot's share of its stage"
        wanted, entries = [], []
        for number, combines in enumerate(self.combines):
            held = np.asarray(now[number], dtype=np.int64) if number < len(now) else np.empty(0, dtype=np.int64)
            mean, bar = means[number], bars[number]
            hot = hot_keys(everything, number, bar) if combines else held[:0]
            warm = hot_keys(everything, number, bar * UNSPLIT) if combines else held[:0]
            keep = frozen_i64(np.union1d(hot, np.intersect1d(held, warm)))
            wanted.append(keep)
            mine = np.flatnonzero(everything.operator == number)
            for key in (*np.setdiff1d(keep, held), *np.setdiff1d(held, keep)):
                row = mine[everything.hash[mine] == key]
                cost = float(everything.cost[row].sum()) / mean if mean else 0.0
                label = everything.label(int(row[0])) if len(row) else f"{int(key) & (2**64 - 1):016x}"
                level = bar / mean if mean else share
                text = (
                    f"costs {cost:.2f} of {of_what}, more than {level:.2f}: spread over all slots"
                    if key in keep
                    else f"costs {cost:.2f} of {of_what}, no more than {level * UNSPLIT:.2f}: back in one slot"
                )
                entries.append(Entry(tally.batch, "split", text, self.names[number], label))
        return (tuple(wanted), entries) if entries else (None, [])


def hot_keys(snapshot: Snapshot, operator: int, bar: float) -> I64:
    """The hashes, ascending, of an operator's listed keys that cost more than ``bar`` (see ``Stages.hot_bars``).

    These are the keys that W-Choices spreads over all slots.
    """
    hot = (snapshot.operator == operator) & (snapshot.cost > bar)
    return frozen_i64(np.sort(snapshot.hash[hot]))


@dataclass(frozen=True, slots=True, eq=False)
class _Proposal:
    """What planners come to: an assignment (the present one where nothing moves), and the moves that lead to it."""

    assignment: Assignment
    after: Balance
    moves: tuple[Moves, ...]
    refused: tuple[Moves, ...]
    warnings: tuple[str, ...]

    @property
    def migrations(self) -> int:
        return sum(len(moves) for moves in self.moves)

    @property
    def migrated_state(self) -> float:
        return sum(float(moves.state_bytes.sum()) for moves in self.moves)


class _Judgement:
    """One interval's way through the tests."""

    def __init__(
        self, controller: Controller, planner: Planner, snapshot: Snapshot, assignment: Assignment, batch: int
    ) -> None:
        self.controller = controller
        self.planner = planner
        self.policy = controller.policy
        self.snapshot = snapshot
        self.assignment = assignment
        self.batch = batch
        # Caps and collocation are about all operators at once.
        by_stage = planner.guards_balance and not self.policy.limits.caps
        self.stages = controller.stages if by_stage else Stages.at_once(len(controller.names))
        self.before = self.stages.measure(snapshot, assignment)
        self.forced = self._forced()

    def verdict(self) -> Verdict:
        policy, before = self.policy, self.before
        theta_max = policy.limits.theta_max
        forced = self.forced
        uneven = before.theta_max > theta_max + ROUNDING
        # Planners whose aim is not the balance alone have a say every time.
        if not (uneven or forced or not self.planner.guards_balance):
            self.controller._out_of_balance = 0
            return self._stay("balanced", f"theta {before.theta_max:.3f} <= {theta_max:g}")
        if not forced:
            reason = self._reason_to_wait(uneven)
            if reason:
                return self._stay("skipped", reason)
        try:
            plan = self._plan()
        except HeadgateError as error:
            return self._stay("failed", f"{self.planner.name} could not plan, everything stays: {error}")
        except Exception as error:  # a planner of the user's own may raise anything: data must flow on
            what = f"{type(error).__name__}: {error}"
            return self._stay("failed", f"{self.planner.name} failed, everything stays: {what}")
        if plan.assignment is self.assignment:
            text = f"theta {before.theta_max:.3f}, and {self.planner.name} finds no move that helps"
            return replace(self._stay("skipped", text, plan.refused), after=plan.after)
        gain = self._gain(plan.after)
        if not forced and gain < policy.min_gain:
            text = (
                f"gain too small: the plan would win {gain:.1%}, and moving is worth it from {policy.min_gain:.1%} on"
            )
            return replace(self._stay("skipped", text, plan.refused), after=plan.after)
        return self._go(plan, gain)

    def _forced(self) -> bool:
        """Whether a limit other than theta_max is broken: then there is no waiting."""
        assignment, limits = self.assignment, self.policy.limits
        if assignment.draining:
            is_open = assignment.open_slots
            if not (is_open[assignment.groups].all() and is_open[assignment.pins.slot].all()):
                return True
        if self.planner.controls_table and limits.table_max is not None and len(assignment.pins) > limits.table_max:
            return True
        return bool(limits.caps)

    def _reason_to_wait(self, uneven: bool) -> str | None:
        controller, policy, before = self.controller, self.policy, self.before
        if uneven:
            controller._out_of_balance += 1
        theta = f"theta {before.theta_max:.3f} > {policy.limits.theta_max:g}"
        if controller._cooling > 0:
            return f"{theta}, but cooling down after the last plan: {controller._cooling} more interval(s)"
        if uneven and controller._out_of_balance < policy.patience:
            return f"{theta} for {controller._out_of_balance} interval(s): acts after {policy.patience}"
        highest = before.max_over_mean * before.mean
        if highest < policy.min_load:
            return (
                f"{theta}, but no slot has more than {highest:.3g} to do, and levelling begins at {policy.min_load:g}"
            )
        if self.planner.guards_balance:
            best = self.stages.best_load(self.snapshot, self.assignment)
            possible = 1 - best / highest if highest > 0 else 0.0
            if possible < policy.min_gain:
                return (
                    f"{theta}, but no placement can win more than {max(possible, 0.0):.1%} of the highest load, and "
                    f"moving is worth it from {policy.min_gain:.1%} on"
                )
        return None

    def _plan(self) -> _Proposal:
        policy = self.policy
        limits = replace(policy.limits, theta_max=policy.target * policy.limits.theta_max)
        if self.stages.single:
            return self._planned(self.snapshot, self.assignment, limits)
        measures = self.stages.measures(self.snapshot, self.assignment)
        # What a batch may be off the mean, and what it must at least have to do, is shared out alike among the stages
        # that have anything to do.
        busy = max(sum(balance.mean > 0 for balance in measures), 1)
        allowed = limits.theta_max * self.before.mean / busy
        made, proposals = [], []
        pins = len(self.assignment.pins)
        for stage, balance in zip(self.stages.each(self.snapshot, self.assignment), measures, strict=True):
            mean = balance.mean
            if not self.forced and balance.max_over_mean * mean < policy.min_load / busy:
                made.append((stage, stage.assignment))
                continue
            others = pins - len(stage.assignment.pins)
            own = replace(
                limits,
                theta_max=allowed / mean if mean else limits.theta_max,
                table_max=None if limits.table_max is None else max(0, limits.table_max - others),
            )
            proposal = self._planned(stage.snapshot, stage.assignment, own)
            made.append((stage, proposal.assignment))
            proposals.append(proposal)
            pins = others + len(proposal.assignment.pins)
            limits = left_of(limits, proposal.migrations, proposal.migrated_state)
        assignment = joined(self.assignment, made)
        return _Proposal(
            assignment,
            self.stages.measure(self.snapshot, assignment),
            tuple(moves for each in proposals for moves in each.moves),
            tuple(moves for each in proposals for moves in each.refused),
            tuple(dict.fromkeys(warning for each in proposals for warning in each.warnings)),
        )

    def _planned(self, snapshot: Snapshot, assignment: Assignment, limits: Limits) -> _Proposal:
        """What the planner makes of operators that run at the same time."""
        policy, planner = self.policy, self.planner
        plan = planner.plan(snapshot, assignment, limits)
        after, levelled = plan.figures.after, None
        if policy.level_groups and planner.grain == "key" and planner.guards_balance:
            best = Stages.at_once(assignment.operators).best_load(snapshot, assignment)
            reachable = max(best, (1 + limits.theta_max) * after.mean)
            if after.max_over_mean * after.mean > reachable * (1 + ROUNDING):
                levelled = level_groups(planner, snapshot, plan, assignment, limits)
        if levelled is None:
            return _Proposal(plan.assignment, after, (plan.moves,), (plan.refused,), plan.figures.warnings)
        figures = levelled.plan.figures
        moves = (plan.moves, levelled.plan.moves)
        return _Proposal(levelled.assignment, figures.after, moves, (plan.refused,), figures.warnings)

    def _gain(self, after: Balance) -> float:
        """What the plan wins: of the highest load, or of the traffic that leaves slots, whichever is more."""
        highest = self.before.max_over_mean * self.before.mean
        gain = 1 - after.max_over_mean * after.mean / highest if highest > 0 else 0.0
        if not self.planner.guards_balance and after.collocation is not None and self.before.collocation is not None:
            gain = max(gain, after.collocation - self.before.collocation)
        return gain

    def _stay(self, kind: Kind, reason: str, refused: tuple[Moves, ...] = ()) -> Verdict:
        details = {"theta": self.before.theta_max, "max_over_mean": self.before.max_over_mean}
        entry = Entry(self.batch, kind, reason, details=details)
        return Verdict(
            self.batch, self.assignment.version, (entry, *self._told("refused", refused)), before=self.before
        )

    def _go(self, plan: _Proposal, gain: float) -> Verdict:
        assignment, after = plan.assignment, plan.after
        moved = delta(self.snapshot, self.assignment, assignment)
        keys = _pinned_rows(self.snapshot, self.assignment, assignment)
        groups = int(np.count_nonzero(self.assignment.groups != assignment.groups))
        moved_keys = int(np.count_nonzero(keys[moved.rows[moved.rows >= 0]]))
        text = (
            f"{self.planner.name} moves {moved_keys} key(s) and {groups} key group(s) with "
            f"{moved.total_bytes:,.0f} bytes of state: theta {self.before.theta_max:.3f} to {after.theta_max:.3f}, "
            f"highest load {self.before.max_over_mean:.3f} to {after.max_over_mean:.3f} times the mean"
        )
        details = {
            "planner": self.planner.name,
            "theta_before": self.before.theta_max,
            "theta_after": after.theta_max,
            "max_over_mean_before": self.before.max_over_mean,
            "max_over_mean_after": after.max_over_mean,
            "gain": gain,
            "moved_keys": moved_keys,
            "moved_groups": groups,
            "moved_bytes": moved.total_bytes,
            "refused": sum(len(moves) for moves in plan.refused),
            "table_size": len(assignment.pins),
            "made_for": self.assignment.version,
            "warnings": list(plan.warnings),
        }
        entry = Entry(self.batch, "plan", text, details=details)
        return Verdict(
            batch=self.batch,
            made_for=self.assignment.version,
            entries=(entry, *self._told("move", plan.moves), *self._told("refused", plan.refused)),
            assignment=assignment,
            before=self.before,
            after=after,
            moved_keys=moved_keys,
            moved_groups=groups,
            moved_bytes=moved.total_bytes,
        )

    def _told(self, kind: Kind, plans: tuple[Moves, ...]) -> Iterator[Entry]:
        """An entry for each of the costliest moves of each plan."""
        for moves in plans:
            for at in np.argsort(-moves.cost, kind="stable")[:MOVES_SHOWN]:
                yield self._entry(kind, moves[int(at)])

    def _entry(self, kind: Kind, move: Move) -> Entry:
        size = self.assignment.groups_per_operator
        return Entry(
            self.batch,
            kind,
            move.reason,
            operator=move.operator or None,
            key=move.key,
            group=move.group % size,
            source=move.source,
            target=move.target,
            details={"cost": move.cost, "state_bytes": move.state_bytes},
        )


def _pinned_rows(snapshot: Snapshot, before: Assignment, after: Assignment) -> Bool:
    """The listed keys that one of the assignments pins: where such a key changes slot it moves by itself, the others
    move with their group."""
    pinned = before.pinned(snapshot.hash, snapshot.operator)
    pinned |= after.pinned(snapshot.hash, snapshot.operator)
    return pinned
