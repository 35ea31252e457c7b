"""How the key groups of a component take their state along, and what became of it. Enorm 4.5, 5.

    way        state of a key group that moves                                 until it is all over
    instant    stays where it is; a consolidate merges the parts of a key      the last slice of it closes
    smooth     stays; windows that start later are the new slot's              the last window of it closes
    manifest   changes owner by reference: not a byte is copied                at once
    copy       is read and written again before the batch goes on              when it is written (the papers' way)

``instant`` is for components that are flexible, which here means computes that a consolidate follows; ``smooth`` for
windows that are fed by inputs, because the time from which the new slot is in charge must lie beyond all rows so far.
``manifest`` is possible for all, and takes the place of the papers' disruptive migration wherever state lies in a
store that every slot reads. ``copy`` is there to compare with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from headgate.arrays import I32, I64, frozen_i32
from headgate.control import Entry
from headgate.engine.orders import Report, SlotReport, nothing
from headgate.engine.program import Program, ToOperator, Way, leaves
from headgate.operators import Compute, Consolidate, WindowedAggregation
from headgate.routing import Assignment, Handover, Places
from headgate.state import BatchPlan, Manifest, Migration, astray


def way_of(program: Program, operator: int, wished: Migration) -> tuple[Way, str]:
    """How key groups of an operator move where the query was started with this wish, and why."""
    if wished == "copy":
        return "copy", "asked for: state is copied while the batch waits"
    step = program.steps[operator]
    if wished == "auto":
        mates = program.together.components[program.together.component(operator)]
        stuck = [program.steps[mate].operator.name for mate in mates if not _flexible(program, mate)]
        if not stuck:
            return "instant", "flexible: a consolidate downstream merges the parts of a key, so no state moves"
        return "manifest", f"rigid: {', '.join(stuck)} needs all of a key in one slot, which gets it by reference"
    if wished == "smooth" and isinstance(step.operator, WindowedAggregation):
        if isinstance(step.operator, Consolidate) or not _fed_by_inputs(program, operator):
            return "manifest", "by reference: its rows come from another operator, and may be of any time"
        if len(program.together.components[program.together.component(operator)]) > 1:
            return "manifest", "by reference: the old slot could not hand results on within its component"
        return "smooth", "all its state ends with windows: the old slot finishes those that have begun"
    return "manifest", "by reference: state lies in a store that all slots read"


def _flexible(program: Program, operator: int) -> bool:
    """Whether what an operator sends is merged downstream: a compute that feeds consolidates alone."""
    step = program.steps[operator]
    targets = list(leaves(step.branches))
    merged = all(
        isinstance(leaf, ToOperator) and isinstance(program.steps[leaf.operator].operator, Consolidate)
        for leaf in targets
    )
    return isinstance(step.operator, Compute) and bool(targets) and merged


def _fed_by_inputs(program: Program, operator: int) -> bool:
    return not any(
        isinstance(leaf, ToOperator) and leaf.operator == operator
        for step in program.steps
        for leaf in leaves(step.branches)
    )


@dataclass(frozen=True, slots=True)
class Underway:
    """A migration that has begun: what moved and how, and what it has cost so far. Plain, so that it outlives a crash
    in the manifest."""

    operator: int
    way: Way
    groups: int
    state_bytes: int
    batch: int
    began: int
    """When the plan of the batch was made, in microseconds; a replay goes on from there."""
    pause_seconds: float = 0.0
    copied_bytes: int = 0
    most_left: int = 0
    """Rows that were left behind at most: the temporary key expansion."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Migrations:
    """Follows the migrations of a query from the boundary where they begin to the batch after which nothing is left."""

    program: Program
    underway: list[Underway] = field(default_factory=list)

    @classmethod
    def restored(cls, program: Program, saved: Sequence[Mapping[str, Any]]) -> Migrations:
        """Those that were under way when the last manifest was written."""
        return cls(program, [Underway(**fields) for fields in saved])

    def going_on(self, last: Manifest) -> tuple[Handover, ...]:
        """The handovers that the next batch goes on with. The others of the last batch are over: in the next one their
        old slots let go of what they had, so nothing else may become of these groups before it is committed."""
        watermark = last.watermark
        if watermark is None:
            return last.handovers
        return tuple(one for one in last.handovers if watermark < one.since + self._longest(one.operator))

    def _longest(self, operator: int) -> int:
        windows = self._windows(operator).slicing
        return windows.longest + windows.lateness

    def _windows(self, operator: int) -> WindowedAggregation:
        windows = self.program.steps[operator].operator
        assert isinstance(windows, WindowedAggregation)
        return windows

    def planned(
        self,
        batch: int,
        before: Assignment,
        after: Assignment,
        last: Manifest | None,
        wished: Migration,
    ) -> tuple[Assignment, tuple[Handover, ...], list[Entry]]:
        """How what moves at this boundary takes its state along; what is being handed over stays until that is done."""
        if last is None:
            return after, (), []
        after, entries = self._held(batch, before, after, last.handovers)
        handovers = list(self.going_on(last))
        for operator, moving, old in _moves(self.program, before, after):
            state = int(last.counts[operator].bytes[moving].sum())
            way, entry = self.entry(operator, wished, len(moving), state, batch)
            entries.append(entry)
            if way == "smooth" and last.event_times:
                slicing = self._windows(operator).slicing
                since = int(slicing.slice_of(np.array([max(last.event_times.values())]))[0]) + slicing.width
                handovers += [
                    Handover(operator, int(group), int(slot), since)
                    for group, slot in zip(moving, old, strict=True)
                    if slot < after.slots
                ]
        return after, tuple(sorted(handovers)), entries

    def _held(
        self, batch: int, before: Assignment, after: Assignment, handovers: tuple[Handover, ...]
    ) -> tuple[Assignment, list[Entry]]:
        """The assignment without moves of groups that are still being handed over, and what to say of these."""
        size, together = after.groups_per_operator, self.program.together
        groups, entries = np.array(after.groups), []
        for one in handovers:
            at = np.array(together.components[together.component(one.operator)]) * size + one.group
            if (groups[at] != before.groups[at]).any():
                groups[at] = before.groups[at]
                text = f"is still being handed over by slot {one.slot}: it stays until its windows have closed"
                name = self.program.steps[one.operator].operator.name
                entries.append(Entry(batch, "refused", text, name, group=one.group))
        return (replace(after, groups=frozen_i32(groups)) if entries else after), entries

    def begin(self, plan: BatchPlan, before: Assignment, last: Manifest | None) -> list[Underway]:
        """What begins to move with this batch."""
        begun = []
        if last is not None:
            for operator, moving, _ in _moves(self.program, before, plan.assignment):
                state = int(last.counts[operator].bytes[moving].sum())
                way, _ = way_of(self.program, operator, plan.migration)
                begun.append(Underway(operator, way, len(moving), state, plan.batch, plan.now))
        self.underway += begun
        return begun

    def followed(self, manifest: Manifest, reports: Iterable[Report], done: int) -> dict[str, Any]:
        """What the manifest says of migrations: those under way, and of those that are over a line for the journal.

        ``done``: when the tasks of the batch were over, by the clock that its plan was made by.
        """
        if not self.underway:
            return {}
        pauses: dict[int, float] = {}
        copied: dict[int, int] = {}
        for report in reports:
            if isinstance(report, SlotReport):
                pause = max(pauses.get(report.operator, 0.0), report.seconds.get("move", 0.0))
                pauses[report.operator] = pause
                copied[report.operator] = copied.get(report.operator, 0) + report.copied_bytes
        handed = {one.operator for one in manifest.handovers}
        over = self.observe(manifest.batch, done, self.left_behind(manifest), handed, pauses, copied)
        return {
            "migrations": [one.to_json() for one in self.underway],
            "journal": [entry.to_json() for entry in over],
        }

    def left_behind(self, manifest: Manifest) -> dict[int, int]:
        """Rows of each operator that are with a slot that does not own their place any more: the key expansion."""
        return {
            operator: rows
            for operator, step in enumerate(self.program.steps)
            if isinstance(step.operator, WindowedAggregation)
            and (rows := astray(manifest.layout, operator, Places(manifest.assignment, operator, nothing()).owners()))
        }

    def entry(self, operator: int, wished: Migration, groups: int, state_bytes: int, batch: int) -> tuple[Way, Entry]:
        """Key groups of an operator are to move with this batch: how, and what the journal says."""
        way, why = way_of(self.program, operator, wished)
        name = self.program.steps[operator].operator.name
        text = f"{_groups(groups)} to move, {way}: {why}"
        details = {"way": way, "groups": groups, "state_bytes": state_bytes}
        return way, Entry(batch, "migration", text, name, details=details)

    def observe(
        self,
        batch: int,
        done: int,
        left: Mapping[int, int],
        handed: Collection[int],
        pauses: Mapping[int, float],
        copied: Mapping[int, int],
    ) -> list[Entry]:
        """What a batch made of them; entries for those that are over.

        ``done``: when its tasks were over. ``left``: rows of each operator that are still where they no longer
        belong, ``handed`` the operators of which two slots have a part of a key group, ``pauses`` the longest time a
        slot spent on moved state, ``copied`` the bytes written for it.
        """
        entries, still = [], []
        for one in self.underway:
            rest = left.get(one.operator, 0) if one.way in ("instant", "smooth") else 0
            one = replace(one, most_left=max(one.most_left, rest))
            if one.batch == batch:
                one = replace(
                    one,
                    pause_seconds=pauses.get(one.operator, 0.0),
                    copied_bytes=copied.get(one.operator, 0),
                )
            if rest or (one.way == "smooth" and one.operator in handed):
                still.append(one)
                continue
            entries.append(self._over(one, batch, done))
        self.underway = still
        return entries

    def _over(self, one: Underway, batch: int, done: int) -> Entry:
        seconds = (done - one.began) / 1e6
        name = self.program.steps[one.operator].operator.name
        took = batch - one.batch + 1
        text = (
            f"{_groups(one.groups)} moved, {one.way}: a pause of {one.pause_seconds * 1e3:.1f} ms, "
            f"{one.copied_bytes:,} bytes copied, over after {took} {'batch' if took == 1 else 'batches'} "
            f"({seconds:.1f} s)"
        )
        details = {
            "way": one.way,
            "groups": one.groups,
            "state_bytes": one.state_bytes,
            "pause_seconds": one.pause_seconds,
            "copied_bytes": one.copied_bytes,
            "completion_seconds": seconds,
            "completion_batches": took,
            "most_rows_left_behind": one.most_left,
        }
        return Entry(batch, "migrated", text, name, details=details)


def _moves(program: Program, before: Assignment, after: Assignment) -> Iterator[tuple[int, I64, I32]]:
    """Of each operator of which key groups change slot: its number, the groups, and their slots before."""
    size = after.groups_per_operator
    for operator in range(len(program.steps)):
        span = slice(operator * size, (operator + 1) * size)
        moving = np.flatnonzero(after.groups[span] != before.groups[span])
        if len(moving):
            yield operator, moving, before.groups[span][moving]


def _groups(count: int) -> str:
    return "1 key group" if count == 1 else f"{count:,} key groups"
