"""How the key groups of a component take their state along, and what became of it. Enorm 4.5, 5.

    way        state of a key group that moves                                 until it is all over
    instant    stays where it is; a consolidate merges the parts of a key      the last piece of it closes
    smooth     stays; windows that start later are the new slot's              the last window of it closes
    manifest   changes owner by reference: not a byte is copied                at once
    copy       is read and written again before the batch goes on              when it is written (the papers' way)

What is allowed and what it costs says ``headgate.topology``; the engine adds what it cannot do. ``manifest`` is for
all, and takes the place of the papers' disruptive migration wherever state lies in a store that every slot reads.
``smooth`` is for windows that are alone in their component, for the old slot cannot hand results on within a task, and
of which it is known which have had no rows so far: those are the new slot's. Inputs tell by their event times; a
consolidate gets nothing that ends after the watermark. ``copy`` is taken only where it is asked for, to compare with.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from headgate.arrays import I32, I64, frozen_i32
from headgate.control import Entry
from headgate.engine.orders import Report, SlotReport, nothing
from headgate.engine.program import Program, ToOperator, leaves
from headgate.engine.running import component_in, layout_of
from headgate.engine.splitting import SEND_SECONDS
from headgate.operators import Consolidate, KeyedOperator, WindowedAggregation
from headgate.routing import Assignment, Handover, Places
from headgate.state import BatchPlan, Manifest, Migration, Way, astray
from headgate.topology import Allowed, Bounds, Component, Layout, Moving, Pick, allowed, cheapest, taken
from headgate.topology import Migration as MoveKind
from headgate.windows import SLICE, Spans

WAYS: Mapping[MoveKind, Way] = {
    MoveKind.INSTANT: "instant",
    MoveKind.DISRUPTIVE: "copy",
    MoveKind.SMOOTH: "smooth",
    MoveKind.REFERENCE: "manifest",
}
"""The paper's ways, and ours, as ``start(migration=...)`` and the journal name them."""

COPY_SECONDS = 4e-9
"""Of reading and writing a byte of state, where nothing was copied yet: 3e-9 to 5e-9 in our enorm figure 10."""

FETCH_SECONDS = 1e-8
"""Of fetching a byte from a store that is not on this machine's disk: 100 MB a second, what one connection to an object
store gives, about."""

STORED: Mapping[MoveKind, str] = {
    MoveKind.INSTANT: "",
    MoveKind.DISRUPTIVE: "state can always be moved while nothing runs",
    MoveKind.SMOOTH: "all its state ends with windows",
    MoveKind.REFERENCE: "state changes owner in a store that all slots read",
}
"""Why components of consolidates may move in these ways."""

SOON = Bounds(max_completion_seconds=60.0)
"""What "auto" takes is over within a minute: planners level the load of now, not that of the end of a long window."""


def ways_of(program: Program, layout: Layout, component: Component, *, hurried: bool = False) -> tuple[Allowed, ...]:
    """The row of the table for a component, less what the engine cannot do; ``hurried``: see ``Migrations.planned``."""
    mates = {number for number, step in enumerate(program.steps) if step.operator.name in component}
    cannot: dict[MoveKind, str] = {}
    if any(not isinstance(program.steps[mate].operator, Consolidate) for mate in mates & _fed(program)):
        cannot[MoveKind.SMOOTH] = "its rows come from another operator, and may be of any time"
    elif len(mates) > 1:
        cannot[MoveKind.SMOOTH] = "the old slot could not hand results on within its component"
    elif any(_lasting(program.steps[mate].operator) for mate in mates):
        cannot[MoveKind.SMOOTH] = "its rows last, and reach into windows that have not begun"
    elif any(_passing_on(program.steps[mate].operator) for mate in mates):
        cannot[MoveKind.SMOOTH] = "what comes late goes on to another consolidate, and both slots would send it"
    elif hurried:
        cannot[MoveKind.SMOOTH] = "components are about to change, and would have to wait for its end"
    ways = allowed(layout, component)
    if not component.stateful:
        # The paper's consolidates have no state, for what they buffer is sent again. Ours have it in the store.
        cannot[MoveKind.INSTANT] = "what it has buffered lies in the store, and is not sent again"
        ways = tuple(replace(way, allowed=True, reason=STORED[way.migration]) for way in ways)
    return tuple(
        replace(way, allowed=False, reason=cannot[way.migration]) if way.allowed and way.migration in cannot else way
        for way in ways
    )


def _fed(program: Program) -> set[int]:
    """The operators that get rows of others."""
    return {leaf.operator for step in program.steps for leaf in leaves(step.branches) if isinstance(leaf, ToOperator)}


def _lasting(operator: KeyedOperator) -> bool:
    """Whether rows may count in windows that start after them."""
    return (
        isinstance(operator, WindowedAggregation) and operator.until is not None and operator.spans is not Spans.START
    )


def _passing_on(operator: KeyedOperator) -> bool:
    """Whether what comes for windows that are over goes on to another operator."""
    return isinstance(operator, Consolidate) and operator.partial


@dataclass(frozen=True, slots=True)
class Measured:
    """What the last batch of an operator showed. ``None``: nothing was there to see it by."""

    rows_per_second: float = 0.0
    row_seconds: float | None = None
    byte_seconds: float | None = None


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
    until: int | None = None
    """Once the watermark is here, nothing of an instant move is left, whatever later ones leave. None: not known, as
    rows of another operator may be of any time."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Migrations:
    """Follows the migrations of a query from the boundary where they begin to the batch after which nothing is left."""

    program: Program
    underway: list[Underway] = field(default_factory=list)
    remote: bool = False
    """Whether the store is not on a local disk."""
    measured: dict[int, Measured] = field(default_factory=dict)
    _looked: int | None = None

    @classmethod
    def restored(cls, program: Program, saved: Sequence[Mapping[str, Any]], *, remote: bool = False) -> Migrations:
        """Those that were under way when the last manifest was written."""
        return cls(program, [Underway(**fields) for fields in saved], remote)

    def going_on(self, last: Manifest) -> tuple[Handover, ...]:
        """The handovers that the next batch goes on with. The others of the last batch are over: in the next one their
        old slots let go of what they had, so nothing else may become of these groups before it is committed."""
        watermark = last.watermark
        if watermark is None:
            return last.handovers
        return tuple(one for one in last.handovers if watermark < self._finished(one, last))

    def _finished(self, one: Handover, last: Manifest) -> int:
        """The watermark at which the old slot of a handover has no windows left to finish. Those that were computed by
        themselves may be from a run before, in which the job asked for it."""
        windows = self._windows(one.operator)
        alone = any(hop < SLICE for ref in last.layout.refs(one.operator, one.slot) for hop, _, _ in ref.run.pieces)
        slicing = windows.alone if alone or self.program.steps[one.operator].may_be_alone else windows.slicing
        return slicing.begun_until(one.since)

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
        *,
        hurried: bool = False,
    ) -> tuple[Assignment, tuple[Handover, ...], dict[int, Way], list[Entry]]:
        """How what moves at this boundary takes its state along; what is being handed over stays until that is done.
        ``hurried``: other components are waiting for the end of all handovers, so no more of them begin."""
        if last is None:
            return after, (), {}, []
        after, entries = self._held(batch, before, after, last.handovers)
        handovers, ways = list(self.going_on(last)), {}
        moves = {operator: (moving, old) for operator, moving, old in _moves(self.program, before, after)}
        layout = layout_of(self.program) if moves else None
        for operator, (moving, old) in moves.items():
            assert layout is not None
            groups = {mate: moves[mate][0] for mate in self._mates(operator) if mate in moves}
            picked = self.picked(layout, operator, wished, self._moving(groups, last), hurried=hurried)
            way = ways[operator] = WAYS[picked.migration]
            state = int(last.counts[operator].bytes[moving].sum())
            entries.append(self._entry(operator, picked, len(moving), state, batch))
            since = self._unbegun(operator, last) if way == "smooth" else None
            if since is not None:
                handovers += [
                    Handover(operator, int(group), int(slot), since)
                    for group, slot in zip(moving, old, strict=True)
                    if slot < after.slots
                ]
        return after, tuple(sorted(handovers)), ways, entries

    def any_smooth(self, before: Assignment, after: Assignment, last: Manifest | None, wished: Migration) -> bool:
        """Whether some of what differs between two assignments would move smoothly, as components are now."""
        if last is None:
            return False
        layout = layout_of(self.program)
        return any(
            self.picked(layout, operator, wished, self._moving({operator: moving}, last)).migration is MoveKind.SMOOTH
            for operator, moving, _ in _moves(self.program, before, after)
        )

    def picked(
        self, layout: Layout, operator: int, wished: Migration, moving: Moving, *, hurried: bool = False
    ) -> Pick:
        """The way in which key groups of an operator move where the query was started with this wish."""
        component = component_in(layout, self.program, operator)
        ways = ways_of(self.program, layout, component, hurried=hurried)
        if not component.stateful:
            # Of the paper's consolidates nothing lasts. Of ours the windows do, in the store.
            component = replace(component, window_micros=self._windows(operator).slicing.longest)
        if wished == "auto":
            return cheapest(ways, component, moving, SOON)
        wanted = next(kind for kind, way in WAYS.items() if way == wished)
        answer = next(way for way in ways if way.migration is wanted)
        if answer.allowed:
            return taken(wanted, "asked for", ways, component, moving)
        return taken(MoveKind.REFERENCE, f"{wished} was asked for, and cannot be", ways, component, moving)

    def _mates(self, operator: int) -> tuple[int, ...]:
        together = self.program.together
        return together.components[together.component(operator)]

    def _moving(self, groups: Mapping[int, I64], last: Manifest) -> Moving:
        """What is known of these key groups of the operators of a component."""
        rows, work, hops, copying = 0.0, 0.0, [], [COPY_SECONDS]
        for operator, moving in groups.items():
            known = self.measured.get(operator, Measured())
            counts = last.counts[operator].rows
            share = counts[moving].sum() / max(1, counts.sum())
            rows += share * known.rows_per_second
            work += share * known.rows_per_second * (known.row_seconds or 0.0)
            copying += [known.byte_seconds] if known.byte_seconds is not None else []
            step = self.program.steps[operator]
            if isinstance(step.operator, WindowedAggregation):
                slicing = step.operator.alone if step.may_be_alone else step.operator.slicing
                hops += [hop.every for hop in slicing.hops]
        return Moving(
            state_bytes=float(sum(last.counts[one].bytes[moving].sum() for one, moving in groups.items())),
            state_rows=float(sum(last.counts[one].rows[moving].sum() for one, moving in groups.items())),
            rows_per_second=rows,
            row_seconds=work / rows if rows else 0.0,
            byte_seconds=copying[-1],
            merge_seconds=SEND_SECONDS,
            fetch_seconds=FETCH_SECONDS if self.remote else 0.0,
            hop_micros=min(hops, default=None),
        )

    def holds(self, operator: int, ways: Mapping[int, Way]) -> bool:
        """Whether slots keep what they have of an operator in this batch although its places are no longer theirs: what
        an instant move left behind, for as long as there is something and instant moves are allowed."""
        instant = ways[operator] == "instant" if operator in ways else self._left(operator)
        if not instant:
            return False
        layout = layout_of(self.program)
        ways_now = ways_of(self.program, layout, component_in(layout, self.program, operator))
        return any(way.allowed for way in ways_now if way.migration is MoveKind.INSTANT)

    def _left(self, operator: int) -> bool:
        return any(one.operator == operator and one.way == "instant" for one in self.underway)

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
                way = plan.ways[operator]
                until = self._emptied(operator, last) if way == "instant" else None
                begun.append(Underway(operator, way, len(moving), state, plan.batch, plan.now, until=until))
        self.underway += begun
        return begun

    def _unbegun(self, operator: int, last: Manifest) -> int | None:
        """From when on windows of an operator had no rows in a manifest; None where none had any."""
        windows = self._windows(operator)
        if not isinstance(windows, Consolidate):
            return self._closed(operator, last)
        if last.watermark is None:
            return None
        return int(windows.slicing.slice_of(np.array([last.watermark - 1]))[0]) + windows.slicing.width

    def _closed(self, operator: int, last: Manifest) -> int | None:
        """The end of the last slice of an operator that had rows in a manifest; None where other operators feed it."""
        if operator in _fed(self.program) or not last.event_times:
            return None
        slicing = self._windows(operator).slicing
        return int(slicing.slice_of(np.array([max(last.event_times.values())]))[0]) + slicing.width

    def _emptied(self, operator: int, last: Manifest) -> int | None:
        """The watermark at which a compute has passed on all that it had in a manifest; None as above."""
        closed, windows = self._closed(operator, last), self._windows(operator)
        if _lasting(windows):
            return None
        if closed is None or not self.program.steps[operator].may_be_alone:
            return closed
        until = windows.alone.needed_until(np.array([closed - windows.slicing.width]), np.array([closed]))
        return max(closed, int(until[0]))

    def followed(self, manifest: Manifest, reports: Iterable[Report], done: int) -> dict[str, Any]:
        """What the manifest says of migrations: those under way, and of those that are over a line for the journal.

        ``done``: when the tasks of the batch were over, by the clock that its plan was made by.
        """
        reports = list(reports)
        self._measure(manifest, reports)
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
        over = self.observe(
            manifest.batch, done, manifest.watermark, self.left_behind(manifest), handed, pauses, copied
        )
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

    def _entry(self, operator: int, picked: Pick, groups: int, state_bytes: int, batch: int) -> Entry:
        """What the journal says of key groups that are about to move."""
        name = self.program.steps[operator].operator.name
        details = {
            "way": WAYS[picked.migration],
            "groups": groups,
            "state_bytes": state_bytes,
            "prices": {
                WAYS[one.migration]: {
                    "cpu_seconds": one.cpu_seconds,
                    "pause_seconds": one.pause_seconds,
                    "completion_seconds": one.completion_seconds,
                }
                for one in picked.prices
            },
            "refused": {WAYS[way.migration]: way.reason for way in picked.refused},
        }
        return Entry(batch, "migration", f"{_groups(groups)} to move, {picked.reason}", name, details=details)

    def _measure(self, manifest: Manifest, reports: Iterable[Report]) -> None:
        """Look at what the operators did in a batch."""
        since, self._looked = self._looked, manifest.now
        rows, copied = Counter[int](), Counter[int]()
        busy, copying = defaultdict[int, float](float), defaultdict[int, float](float)
        for report in reports:
            if isinstance(report, SlotReport):
                rows[report.operator] += report.tuples
                busy[report.operator] += sum(report.seconds.values()) - report.seconds.get("move", 0.0)
                copied[report.operator] += report.copied_bytes
                copying[report.operator] += report.seconds.get("move", 0.0) if report.copied_bytes else 0.0
        for operator, count in rows.items():
            known = self.measured.get(operator, Measured())
            self.measured[operator] = Measured(
                count * 1e6 / (manifest.now - since) if since is not None else known.rows_per_second,
                busy[operator] / count if count else known.row_seconds,
                copying[operator] / copied[operator] if copied[operator] else known.byte_seconds,
            )

    def observe(
        self,
        batch: int,
        done: int,
        watermark: int | None,
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
            if one.until is not None and watermark is not None and watermark >= one.until:
                rest = 0
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
