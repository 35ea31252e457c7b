"""The driver's part of a micro-batch: decide, write the decision down, run the tasks, commit, deliver.

    plan N ── durable ──> Spark job of N ──> manifest N ── the commit ──> sinks ──> statistics ──> controller
      ^                                                                                               │
      └───────────────── the next boundary: what the controller, or a person, has decided ────────────┘

Whatever instant the driver dies at, the batch is either not committed, and runs again from the same plan and the state
of N-1, or committed, and only its delivery is repeated, from the files that were committed with it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from headgate.arrays import I64
from headgate.control import Controller, Entry, Verdict
from headgate.engine.arrivals import Arrived
from headgate.engine.keyed import OperatorBatch
from headgate.engine.migrating import Migrations, Underway
from headgate.engine.orders import Orders, OutputReport, Report, RouteReport, SlotReport, nothing
from headgate.engine.outbox import Outbox
from headgate.engine.outcome import manifest_of, watermark_after
from headgate.engine.payload import HASH, decode
from headgate.engine.program import Pair, Program, ToOperator, ToOutput, flow
from headgate.engine.progress import END_OF_INPUT, progress_of
from headgate.engine.running import AS_BEFORE, as_before
from headgate.engine.sharing import SharingWatch
from headgate.engine.splitting import Splitting
from headgate.errors import CheckpointError, JobError
from headgate.operators import NO_WATERMARK
from headgate.routing import SHARED, Assignment, Handover, Places, Together
from headgate.sinks.results import Results
from headgate.state import (
    BatchPlan,
    Bitmap,
    Checkpoint,
    Layout,
    Manifest,
    Migration,
    moved,
)
from headgate.testing import CrashPoints
from headgate.windows.costs import Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.sinks import Sink

RETAIN_EVERY = 16
"""Batches between two clean-ups of old versions and orphans: listing directories costs more than a small batch."""

RunTasks = Callable[[Any, Orders], list[Report]]
"""Runs the tasks of a batch over a frame of rows and gives their reports: Spark does, or a test in its own process."""


class BeforeTasks(Protocol):
    """What happens to the rows of a batch before its tasks run, and a report of it: the ordered regions of a job."""

    progress: list[dict[str, Any]]

    def __call__(self, frame: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a query runs."""

    slots: int
    slack_micros: int = 0
    migration: Migration = "auto"
    statistics: bool = True
    service_seconds: float | Mapping[str, float] = 0.0
    keep_versions: int = 10
    wait_for_plan_seconds: float = 0.0
    max_pause_seconds: float = math.inf


Rearrange = Callable[[Program], tuple[tuple[int, ...], Entry]]
"""Something to do at the next boundary: program -> (component of each operator, journal entry)."""

Change = Callable[[Assignment, int], tuple[Assignment, list[Entry]]]
"""Something to do at the next boundary: (assignment, batch) -> (assignment, journal entries)."""


def rearranged(pair: Pair, way: Callable[[Program, Pair], tuple[int, ...]], entry: Entry) -> Rearrange:
    """The wish to run a compute and its consolidate in this way, and what to say of it."""
    return lambda program: (way(program, pair), entry)


@dataclass(slots=True)
class Driver:
    """Runs the batches of one query. All of it in the thread that Spark calls, save planning."""

    run_tasks: RunTasks
    spark: SparkSession | None
    program: Program
    pickled: bytes
    program_id: str
    checkpoint: Checkpoint
    controller: Controller
    sinks: Mapping[str, Sequence[Sink]]
    options: Options
    job_id: str
    crash: CrashPoints = field(default_factory=CrashPoints)
    regions: BeforeTasks | None = None
    clock: Callable[[], float] = time.time
    on_progress: Callable[[dict[str, Any]], None] = lambda progress: None
    _changes: list[Change] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _planning: list[Future[Verdict | None]] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "headgate-planner"))
    _warm: bool = False
    last: Manifest | None = None
    together: Together = field(init=False)
    migrations: Migrations = field(init=False)
    _job: Program = field(init=False)
    _begun: list[Underway] = field(default_factory=list)
    _rearranging: list[Rearrange] = field(default_factory=list)
    splitting: Splitting = field(init=False)
    sharing: SharingWatch = field(default_factory=SharingWatch)
    per_window: frozenset[int] = field(init=False)
    _told: list[Entry] = field(default_factory=list)
    _put_off: list[Change] = field(default_factory=list)
    _coming: tuple[int, ...] = ()
    _arrangements: dict[tuple[int, ...], tuple[Program, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._job = self.program
        self.together = self.program.together
        self._arrangements[self.program.components] = self.program, self.pickled
        self.last = self.checkpoint.latest()
        saved = self.last.progress.get("migrations", ()) if self.last is not None else ()
        remote = not self.checkpoint.files.is_local
        self.migrations = Migrations.restored(self.program, saved, remote=remote)
        self.splitting = Splitting(self.options.max_pause_seconds)
        self.per_window = frozenset(number for number, step in enumerate(self.program.steps) if step.per_window)
        self._go_on_as_before()
        self._keep_apart_what_is_handed_over()
        self.checkpoint.retain(self.options.keep_versions)

    def change(self, change: Change) -> None:
        """Do this at the next boundary."""
        with self._lock:
            self._changes.append(change)

    @property
    def assignment(self) -> Assignment:
        """The assignment of the last committed batch."""
        if self.last is not None:
            return self.last.assignment
        components = max(1, len(self.together.components))
        return self.together.spread(Assignment.hashed(self.options.slots, self.program.groups, operators=components))

    @property
    def _handed_over(self) -> tuple[Handover, ...]:
        """The key groups that two slots had a part of when the last batch was committed."""
        return self.last.handovers if self.last is not None else ()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def batch(self, frame: Any, number: int, *, flush: bool = False) -> None:
        """Process one micro-batch. ``flush``: the input has ended, so every event-time timer is due."""
        started = time.perf_counter()
        phases: dict[str, float] = {}
        last = self.last
        committed = last.batch if last is not None else -1
        if committed == number:
            assert last is not None
            self._deliver(last)  # committed before a crash, perhaps not delivered
            return
        if committed != number - 1:
            raise CheckpointError.gap(self.checkpoint.files.root, committed + 1, number)
        mark = time.perf_counter()
        plan = self._plan(number, flush)
        phases["plan"] = time.perf_counter() - mark
        self._arrange(plan.components or self._job.components)
        orders = self._orders(plan, last)
        self._begun = self.migrations.begin(plan, orders.before, last)
        mark = time.perf_counter()
        if self.regions is not None:
            frame = self.regions(frame)
            phases["regions"] = time.perf_counter() - mark
            mark = time.perf_counter()
        reports = self.run_tasks(frame, orders)
        phases["tasks"] = time.perf_counter() - mark
        done = max(plan.now, int(self.clock() * 1e6))
        mark = time.perf_counter()
        reports += self._shared(orders, reports)
        manifest = manifest_of(self.job_id, self.program, plan, orders, reports, last)
        manifest = replace(manifest, progress=self.migrations.followed(manifest, reports, done))
        self.crash.reach("before manifest commit", number)
        self.checkpoint.commit(manifest)
        self.last = manifest
        self.crash.reach("after manifest commit", number)
        phases["commit"] = time.perf_counter() - mark
        mark = time.perf_counter()
        self._deliver(manifest)
        phases["sinks"] = time.perf_counter() - mark
        mark = time.perf_counter()
        self._observe(number, reports, manifest)
        if number % RETAIN_EVERY == 0:
            self.checkpoint.retain(self.options.keep_versions)
        phases["after"] = time.perf_counter() - mark
        phases["total"] = time.perf_counter() - started
        regions = [] if self.regions is None else self.regions.progress
        verdicts = {**self.sharing.verdicts, **self.splitting.verdicts}
        progress = progress_of(
            self.program, orders, plan, manifest, reports, phases, self.migrations, regions, verdicts
        )
        self.checkpoint.write_progress(number, progress)
        self.on_progress(progress)

    def _plan(self, number: int, flush: bool) -> BatchPlan:
        """What batch N runs with: as it was written before a crash, or decided now and made durable."""
        written = self.checkpoint.plan(number)
        if written is not None:
            if written.decisions:  # the crash may have come between the two
                self.checkpoint.append_journal(number, written.decisions)
            return self._once_more(written)
        last = self.last
        ahead, rearranged = self._rearranged(number)
        hurried = ahead is None and bool(self._rearranging)
        components = self.program.components
        assignment, entries = self._put_together(ahead, number)
        if rearranged and assignment is self.assignment:
            assignment = replace(assignment, version=assignment.version + 1)  # plans for other components are stale
        told, self._told = self._told, []
        entries = [*rearranged, *(replace(entry, batch=number) for entry in told), *entries]
        # A job that was started again without split=True brings its split keys together at the first boundary.
        steps = zip(self._shared_before(), self.program.steps, strict=True)
        shared = tuple(keys if step.splits else nothing() for keys, step in steps)
        with self._lock:
            changes, self._changes = self._changes, []
        for change in changes:
            changed, told = change(assignment, number)
            if changed.slots < assignment.slots and self._handed_over:
                self.change(change)  # a slot that finishes windows stays until it has
                if change not in self._put_off:
                    self._put_off.append(change)
                    text = f"slots go down to {changed.slots} when the windows that are handed over have closed"
                    entries.append(Entry(number, "slots", text))
                continue
            assignment = changed
            entries += told
        for verdict in self._verdicts():
            if verdict.changes and verdict.made_for != assignment.version:
                entries.append(self.controller.stale(verdict, assignment.version))
                continue
            if verdict.assignment is not None:
                assignment = self.together.spread(verdict.assignment)
            if verdict.split is not None:
                shared = self.together.by_operator(verdict.split)
            self.controller.applied(verdict)
            entries += verdict.entries
        assignment = self.program.levelled(assignment)  # changes may have been wished for before components changed
        assignment, handovers, ways, told = self.migrations.planned(
            number, self.assignment, assignment, last, self.options.migration, hurried=hurried
        )
        entries += told
        now = int(self.clock() * 1e6)
        if last is not None:
            now = max(now, last.now + 1)
        plan = BatchPlan(
            batch=number,
            assignment=assignment,
            watermark=END_OF_INPUT if flush else watermark_after(last, self.program, self.options.slack_micros),
            now=now,
            shared=shared,
            migration=self.options.migration,
            ways=ways,
            handovers=handovers,
            per_window=tuple(sorted(self.per_window)),
            components=components,
            coming=self._coming,
            wishes=self._job.wishes,
            decisions=tuple(entry.at(number).to_json() for entry in entries),
        )
        self.crash.reach("before plan write", number)
        self.checkpoint.write_plan(plan)
        if plan.decisions:
            self.checkpoint.append_journal(number, plan.decisions)
        self.crash.reach("after plan write", number)
        return plan

    def _once_more(self, plan: BatchPlan) -> BatchPlan:
        """The plan of a batch that runs again. Operators are in one task only if they were by the plan, because key
        groups may be handed over between them, and are in the job as it is now, because it may no longer allow that:
        in the same slots but apart, the same rows meet the same state."""
        components = self.program.refined(plan.components or self._job.components)
        if not self._coming and components != self.program.components:
            self._come(self.program.components)
        return replace(plan, components=components)

    def _arrange(self, components: tuple[int, ...]) -> None:
        """Go on with these components."""
        if components == self.program.components:
            return
        known = self._arrangements.get(components)
        if known is None:
            program = self._job.arranged(components)
            known = self._arrangements[components] = program, cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        self.program, self.pickled = known
        self.program_id = f"{self.program_id.partition(' ')[0]} {components}"
        self.together = self.program.together
        self.migrations.program = self.program
        # The controller is the planning thread's: what it still looks at comes first, and is of no use then.
        self._planning.clear()
        program = self.program
        self._pool.submit(self.controller.rearranged, program.component_names, program.splitting, program.depths)

    def _go_on_as_before(self) -> None:
        """What was decided while the job last ran holds on, wherever the job wants the same as it did then."""
        done = self.last.batch if self.last is not None else -1
        before = self.checkpoint.plan(done + 1) or (self.checkpoint.plan(done) if done >= 0 else None)
        if before is None:
            return
        program, told = as_before(self._job, before)
        self._arrange(program.components)
        for number, step in enumerate(program.steps):
            same = before.wishes.get(f"share {number}") == "auto"
            if step.decides_sharing and same and number in before.per_window:
                self.per_window |= {number}
                told.append(Entry(0, "shared", f"computed per window, {AS_BEFORE}", step.operator.name))
        self._told += told

    def _keep_apart_what_is_handed_over(self) -> None:
        """A job that was started again with more fused than before runs apart until two slots no longer have a part of
        the same key groups: the old one could not hand results on within a task."""
        handed = {one.operator for one in self._handed_over}
        fused = [members for members in self.together.components if len(members) > 1 and handed.intersection(members)]
        if not fused:
            return
        wanted = self.program.components
        apart = list(wanted)
        for member in (member for members in fused for member in members):
            apart[member] = len(apart) + member
        self._arrange(self.program.arranged(apart).components)
        self._come(wanted)

    def _come(self, components: tuple[int, ...]) -> None:
        """Go on with these components once two slots no longer have a part of the same key groups; what somebody has
        wished for since comes after that."""
        self._coming = components
        entry = Entry(0, "fused", "nothing is handed over any more: components are as was decided")
        with self._lock:
            self._rearranging.insert(0, lambda _: (components, entry))

    def arrange(self, change: Rearrange) -> None:
        """Other components from the next boundary on."""
        with self._lock:
            self._rearranging.append(change)

    def _rearranged(self, number: int) -> tuple[Assignment | None, list[Entry]]:
        """Go on with the components that somebody, or the cost model, wants, and say so.

        What moves smoothly cannot be put into one task at once, for its old slot still has windows to finish: enorm's
        smooth combine. Its key groups then go ahead to where they will be, by the assignment that is given, and the
        change is made when nothing is handed over any more; what has come apart again by then moves otherwise.
        """
        if self._handed_over:
            return None, []  # two slots have a part of some key groups: first they finish
        with self._lock:
            changes, self._rearranging = self._rearranging, []
        led, self._coming = bool(self._coming), ()
        wanted, entries = self.program, []
        for change in changes:
            try:
                components, entry = change(wanted)
                if entry.kind == "fused" and components == wanted.components:
                    continue  # somebody else wanted the same
                wanted = self._job.arranged(components)
            except JobError as error:  # another change came first
                entry = Entry(number, "refused", f"components stay as they are: {error}")
            entries.append(replace(entry, batch=number))
        ahead = None if led or wanted is self.program else self._ahead(wanted)
        if ahead is None:
            self._arrange(wanted.components)
            return None, entries
        self._come(wanted.components)
        text = "what lies apart goes ahead, smoothly: components change when the windows that have begun are over"
        return ahead, [*entries, Entry(number, "fused", text)]

    def _ahead(self, wanted: Program) -> Assignment | None:
        """Where key groups go before the job has these components; None where there is no need to."""
        before = self.assignment
        after = wanted.levelled(before)
        if self.program.levelled(after) is not after:
            return None  # some would have to leave the operators that they are with
        return after if self.migrations.any_smooth(before, after, self.last, self.options.migration) else None

    def _put_together(self, ahead: Assignment | None, number: int) -> tuple[Assignment, list[Entry]]:
        """The assignment so far, or what goes ahead of a change, with the operators of each component in the same
        slots: they were not before if the job was fused otherwise when it last ran."""
        before = self.assignment if ahead is None else ahead
        after = self.program.levelled(before)
        if after is before:
            return before, []
        count = int(np.count_nonzero(after.groups != before.groups))
        text = f"operators that are fused now are put together: {count} key groups move"
        return after, [Entry(number, "fused", text)]

    def _shared_before(self) -> tuple[I64, ...]:
        if self.last is not None:
            return self.last.shared
        return tuple(nothing() for _ in self.program.steps)

    def _verdicts(self) -> list[Verdict]:
        """What the controller has decided by now; planning never makes data wait (unless it was told to)."""
        if self._planning and self.options.wait_for_plan_seconds:
            wait(self._planning, self.options.wait_for_plan_seconds)
        made: list[Verdict] = []
        while self._planning and self._planning[0].done():
            verdict = self._planning.pop(0).result()
            if verdict is not None:
                made.append(verdict)
        return made

    def _orders(self, plan: BatchPlan, last: Manifest | None) -> Orders:
        before = last.assignment if last is not None else plan.assignment
        committed = last.layout if last is not None else Layout()
        shared_before = self._shared_before()
        ended = tuple(one for one in (last.handovers if last is not None else ()) if one not in plan.handovers)
        layout = committed
        for operator in range(len(self.program.steps)):
            places = Places(plan.assignment, operator, plan.shared[operator])
            held: dict[int, Bitmap] = {}
            if self.migrations.holds(operator, plan.ways):
                everything = Bitmap.of_mask(np.ones(places.groups, dtype=np.bool_))
                held = dict.fromkeys(range(plan.assignment.slots), everything)
            for one in (*plan.handovers, *ended):
                if one.operator == operator:
                    held[one.slot] = held.get(one.slot, Bitmap()).union(Bitmap.of([one.group]))
            layout = moved(layout, operator, places.owners(), held)
        return Orders(
            program=self.pickled,
            program_id=self.program_id,
            files=self.checkpoint.files,
            batch=plan.batch,
            now=plan.now,
            watermark=NO_WATERMARK if plan.watermark is None else plan.watermark,
            last_now=last.now if last is not None else NO_WATERMARK,
            last_watermark=NO_WATERMARK if last is None or last.watermark is None else last.watermark,
            assignment=plan.assignment,
            before=before,
            shared=plan.shared,
            shared_before=shared_before,
            layout=layout,
            sources=committed.differing(layout),
            migration=plan.migration,
            handovers=plan.handovers,
            ended=ended,
            per_window=frozenset(plan.per_window),
            service_seconds=self._service_seconds(),
            statistics=self.options.statistics,
            cold=not self._warm,
            crash=self.crash,
        )

    def _service_seconds(self) -> tuple[float, ...]:
        """Of each operator; none where nothing is emulated."""
        given = self.options.service_seconds
        if not given:
            return ()
        names = [step.operator.name for step in self.program.steps]
        return tuple(given.get(name, 0.0) if isinstance(given, Mapping) else given for name in names)

    def _shared(self, orders: Orders, reports: Iterable[Report]) -> list[Report]:
        """Split keys: what the slots computed for them comes together here."""
        made: list[Report] = []
        outbox = Outbox(orders.files, orders.batch, SHARED)
        for number, step in enumerate(self.program.steps):
            if not (step.splits or len(orders.shared[number]) or len(orders.shared_before[number])):
                continue
            moving = orders.relocation(number)
            parts = [
                decode(report.partials)
                for report in reports
                if isinstance(report, SlotReport) and report.operator == number and report.partials is not None
            ]
            expires = step.ttl_micros is not None and bool(orders.refs(number, SHARED))
            if not parts and not expires and not ((moving.target == SHARED) | (moving.cleaner == SHARED)).any():
                continue
            arrived = None
            if parts:
                table = pa.concat_tables(parts).combine_chunks()
                hashes = table.column(HASH).combine_chunks().to_numpy()
                arrived = Arrived(*step.operator.combine(table.drop_columns([HASH]), hashes))
            results, report = OperatorBatch(orders, number, SHARED).run(arrived)

            def deliver(leaf: ToOperator | ToOutput, rows: pa.Table) -> None:
                assert isinstance(leaf, ToOutput), "split operators feed outputs only"
                outbox.add(leaf.output, rows)

            flow(step.branches, results, deliver)
            made.append(report)
        made.append(OutputReport(SHARED, outbox.finish(), 0.0))
        return made

    def _deliver(self, manifest: Manifest) -> None:
        """Hand the results to the sinks, and what is over to the journal; those of the batch before are delivered for
        good and may go. All of it may be repeated: the journal has a line once."""
        if over := manifest.progress.get("journal"):
            self.checkpoint.append_journal(manifest.batch, over)
        deliveries: list[tuple[Sink, Results]] = []
        for output, sinks in self.sinks.items():
            names = manifest.outputs.get(output, ())
            if not names:
                continue
            results = Results(
                output,
                manifest.batch,
                self.job_id,
                self.program.outputs[output],
                names,
                self.checkpoint.files,
                self.spark,
            )
            deliveries += [(sink, results) for sink in sinks]
        for number, (sink, results) in enumerate(deliveries):
            if number == len(deliveries) // 2:
                self.crash.reach("during sink write", manifest.batch)
            sink.deliver(results)
        self.crash.reach("after sink write", manifest.batch)

    def _observe(self, number: int, reports: Sequence[Report], manifest: Manifest) -> None:
        """Give the controller what the batch measured, and let it plan beside the next one."""
        loads = [report.load for report in reports if isinstance(report, SlotReport) and report.load is not None]
        groups = self.program.groups
        together = self.together
        sizes = [
            np.sum([manifest.counts[member].bytes[:groups] for member in members], axis=0, dtype=np.float64)
            for members in together.components
        ]
        assignment, shared = together.planned(manifest.assignment), together.by_component(manifest.shared)

        def look() -> Verdict | None:
            self.controller.observe(number, loads, sizes)
            return self.controller.decide(assignment, split=shared) if self.controller.due() else None

        if any(step.decides_sharing for step in self.program.steps):
            routed = [report for report in reports if isinstance(report, RouteReport)]
            slotted = [report for report in reports if isinstance(report, SlotReport)]
            self.per_window, told = self.sharing.observe(
                self.program, routed, slotted, self.per_window, manifest.watermark
            )
            self._told += told
        if self.program.pairs:
            self._judge_pairs(reports, manifest)
        if self.options.statistics:
            self._planning.append(self._pool.submit(look))
        self._warm = True

    def _judge_pairs(self, reports: Sequence[Report], manifest: Manifest) -> None:
        """Whether a compute and its consolidate should run apart, or no longer."""
        groups = np.zeros(len(self.program.steps), dtype=np.int64)
        for one in self._begun:
            groups[one.operator] += one.groups
        slotted = [report for report in reports if isinstance(report, SlotReport)]
        wishes = self.splitting.observe(self.program, slotted, groups.tolist(), manifest.watermark)
        for pair, running, entry in wishes:
            way = Program.taken_apart if running is Running.SPLIT else Program.put_together
            self.arrange(rearranged(pair, way, entry))
