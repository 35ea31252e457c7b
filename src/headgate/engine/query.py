"""The running query: what it is doing, and the handles to steer it."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headgate import control
from headgate.control import Entry
from headgate.engine.drawing import drawn
from headgate.engine.driver import Driver, rearranged
from headgate.engine.options import check_list, check_whole
from headgate.engine.program import Pair, Program
from headgate.engine.progress import rates_of
from headgate.engine.running import migrated
from headgate.engine.tasks import SETTINGS
from headgate.errors import AssignmentError, HeadgateError, JobError, QueryError
from headgate.operators import keys_at, type_name
from headgate.planners import PLANNERS, Planner
from headgate.routing import Assignment, row_hash
from headgate.state import HEARTBEAT_SECONDS
from headgate.topology import RePartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headgate.engine.job import Job

RECENT = 100
"""Progress reports kept in memory, as many as Spark keeps."""

STOP_SECONDS = 60.0
"""How long ``stop`` lets the running batch finish before it interrupts it."""

_OURS = re.compile(r"headgate\.errors\.(\w+): (.*?)(?:\n\s*SQLSTATE|\nDuring handling|\n\n|\Z)", re.DOTALL)

_RAISED = re.compile(r"^(?:: )?((?:\w+\.)*\w+(?:Error|Exception|Interrupt)\b: .*)$", re.MULTILINE)
"""What Java says of an exception."""

_NAME = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"

_TRACED = re.compile(rf"^ +\S.*\n({_NAME}: .*|{_NAME}(?:Error|Exception|Interrupt))$", re.MULTILINE)
"""What a traceback of Python ends with: the first line behind its frames that is not indented."""


class Listener(Protocol):
    """Told of each batch after it is committed and delivered."""

    def on_progress(self, progress: dict[str, Any]) -> None: ...


class Query:
    """A running job.

    Everything that changes the query takes effect at the next boundary between two batches.
    """

    def __init__(self, job: Job, driver: Driver) -> None:
        self.job = job
        self.name = job.name
        self._driver = driver
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._busy = threading.Lock()
        self._stopping = False
        self._telling: int | None = None
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._stream: StreamingQuery | None = None
        self._thread: threading.Thread | None = None
        self._at_end: list[Callable[[], None]] = []
        driver.on_progress = self._tell

    def _stay_owner(self) -> None:
        """Signs of life while there is nothing to commit, so that an idle query is not taken for a dead one."""
        while not self._ended.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(HeadgateError):  # a checkpoint that was lost fails the next commit, which says so
                self._driver.checkpoint.assert_owner()

    def _begin(self, frame: DataFrame, streams: bool, location: str, trigger: dict[str, Any]) -> None:
        threading.Thread(target=self._stay_owner, name=f"headgate-owner-{self.name}", daemon=True).start()
        if not streams:
            self._thread = threading.Thread(target=self._run_once, args=(frame,), name=f"headgate-{self.name}")
            self._thread.daemon = True
            self._thread.start()
            return
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", location)
        writer = writer.queryName(f"headgate-{self.name}-{uuid.uuid4().hex[:6]}")
        if trigger:
            writer = writer.trigger(**trigger)
        self._stream = writer.start()
        threading.Thread(target=self._watch, name=f"headgate-watch-{self.name}", daemon=True).start()

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if self._stopping:
                raise QueryError.not_running(self.name, "another batch")
            try:
                self._driver.batch(frame, number)
            except Exception as error:
                self._failure = explained(self.name, number, error)
                raise self._failure from error

    def _run_once(self, frame: DataFrame) -> None:
        """A static source: one batch of everything, then one in which every event-time timer is due."""
        driver = self._driver
        number = 0
        conf = frame.sparkSession.conf  # the user's own, to be left as it was
        before = {name: conf.get(name, None) for name in SETTINGS}
        try:
            empty = frame.sparkSession.createDataFrame([], frame.schema)
            rounds = [(frame, False)]
            if any(step.waits for step in driver.program.steps) and driver.program.event_time is not None:
                rounds.append((empty, True))
            for number, (rows, flush) in enumerate(rounds):
                if driver.last is None or driver.last.batch <= number:
                    with self._busy:
                        if self._stopping:
                            break
                        driver.batch(rows, number, flush=flush)
        except Exception as error:
            self._failure = explained(self.name, number, error)
        finally:
            for name, value in before.items():
                conf.set(name, value) if value is not None else conf.unset(name)
            self._close()

    def _watch(self) -> None:
        """Notice when Spark ends the stream, for whatever reason."""
        assert self._stream is not None
        try:
            self._stream.awaitTermination()
        except Exception as error:
            if self._failure is None and not self._stopping:
                self._failure = explained(self.name, None, error)
        self._close()

    def _close(self) -> None:
        with self._busy:
            if not self._ended.is_set():
                self._driver.close()
                self._driver.checkpoint.release()
                for end in self._at_end:
                    end()
                self._ended.set()

    def _tell(self, progress: dict[str, Any]) -> None:
        self._recent.append(progress)
        self._telling = threading.get_ident()
        try:
            for listener in self._listeners:
                listener(progress)
        finally:
            self._telling = None

    @property
    def is_active(self) -> bool:
        return not self._ended.is_set()

    @property
    def exception(self) -> BaseException | None:
        """What made the query fail; None while it runs or after it ended well."""
        return self._failure

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, at most so many seconds; True if it has ended. Raises what made it fail."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def process_all_available(self) -> None:
        """Wait until everything that the sources have now is processed; for tests. Raises what made the query fail."""
        if self._stream is not None:
            try:
                self._stream.processAllAvailable()
            except Exception:
                self._ended.wait(STOP_SECONDS)
        else:
            self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let the running batch finish, then stop. The job goes on from here when it is started again.

        A listener may call it: then it returns at once, and the batch that was told of is the last.
        """
        if threading.get_ident() == self._telling:  # this batch ends when the listener is done
            self._stopping = True
            threading.Thread(target=self._stop, name=f"headgate-stop-{self.name}", daemon=True).start()
            return
        self._stop()

    def _stop(self) -> None:
        finished = self._busy.acquire(timeout=STOP_SECONDS)
        self._stopping = True  # a batch that begins after this ends at once
        if finished:
            self._busy.release()
        if self._stream is not None:
            self._stream.stop()
        self._ended.wait(STOP_SECONDS)

    def progress(self) -> dict[str, Any] | None:
        """What the last batch did; None before the first."""
        return self._recent[-1] if self._recent else None

    @property
    def recent_progress(self) -> list[dict[str, Any]]:
        """The last batches, oldest first."""
        return list(self._recent)

    def rates(self) -> dict[str, dict[str, float]]:
        """Rows a batch from one keyed operator to another over the last batches: what ``Job(rates=...)`` takes."""
        return rates_of(self._recent)

    def assignment(self) -> Assignment:
        """Which slot has which key groups and pinned keys now."""
        return self._driver.assignment

    def journal(self) -> list[Entry]:
        """Every decision and refusal since the job first started, with its reason."""
        return [Entry.from_json(entry) for entry in self._driver.checkpoint.journal()]

    def explain(self) -> str:
        """The job drawn as text, as it runs now: what was taken apart, put together or is computed per window since it
        started is drawn so."""
        return drawn(self.job, self._driver.program.components, self._driver.per_window)

    def add_listener(self, listener: Listener | Callable[[dict[str, Any]], None]) -> None:
        """Call this with the progress of each batch, in the thread of the query: be quick, and do not wait for the
        query. What a listener raises fails the query, after the batch was committed."""
        told = getattr(listener, "on_progress", listener)
        if not callable(told):
            raise JobError.option("a listener", "a function or an object with on_progress", listener)
        self._listeners.append(told)

    def _change(self, what: str, change: Callable[[Assignment, int], tuple[Assignment, list[Entry]]]) -> None:
        if self._ended.is_set():
            raise QueryError.not_running(self.name, what)
        self._driver.change(change)

    def move(
        self,
        keys: Sequence[object] | None = None,
        *,
        groups: Sequence[int] | None = None,
        to: int,
        operator: str | None = None,
    ) -> None:
        """Move keys (by pinning them) or whole key groups to a slot, from the next batch on.

        Keys are values, or tuples of values where the key has several columns; that of ``key_by()`` is ``()``.
        ``operator`` may be left out where the job has one. Raises ``AssignmentError`` for a slot or a group that does
        not exist, ``JobError`` for a key with too few or too many values.
        """
        if (keys is None) == (groups is None):
            raise JobError.option("move", "given either keys or groups", (keys, groups))
        if keys is not None:
            check_list("keys", keys, "keys")
        if groups is not None:
            check_list("groups", groups, "key groups")
        for group in groups or ():
            check_whole("a key group", group, least=0)
        check_whole("to", to, least=0)
        number = self._operator(operator)
        step = self._driver.program.steps[number]
        program = self._driver.program
        if keys is not None and not program.pinnable(number):
            raise JobError.unpinned(step.operator.name, program.component_of(number))
        hashes = self._hashes(number, keys) if keys is not None else ()

        def moved(assignment: Assignment) -> Assignment:
            together = self._driver.together  # at the boundary it may be another one
            planned, component = together.planned(assignment), together.component(number)
            return together.spread(control.moved(planned, to, keys=hashes, groups=groups or (), operator=component))

        moved(self.assignment())  # what is wrong is refused now, not at the boundary

        def change(assignment: Assignment, batch: int) -> tuple[Assignment, list[Entry]]:
            name = self._driver.program.component_of(number)
            what = list(keys) if keys is not None else list(groups or ())
            unit = "key" if keys is not None else "key group"
            try:
                after = moved(assignment)
            except AssignmentError as error:
                return assignment, [Entry(batch, "refused", f"moved by hand, but no longer possible: {error}", name)]
            text = f"{len(what)} {unit}(s) moved to slot {to} by hand"
            return after, [Entry(batch, "hand", text, name, target=to, details={unit: what})]

        self._change("move", change)

    def set_slots(self, slots: int) -> None:
        """Run with this many slots from the next batch on, more or fewer; state goes along."""
        check_whole("slots", slots)

        def change(assignment: Assignment, batch: int) -> tuple[Assignment, list[Entry]]:
            if assignment.slots == slots:
                return assignment, []
            after = control.resized(assignment, slots)
            shared = min(len(assignment.groups), len(after.groups))
            count = int((assignment.groups[:shared] != after.groups[:shared]).sum())
            text = f"{assignment.slots} slots become {slots}: {count} key groups move"
            return after, [Entry(batch, "slots", text, details={"before": assignment.slots, "after": slots})]

        self._change("set_slots", change)

    def split(self, windows: str) -> None:
        """Run the compute of these windows (``aggregate(split=...)``) in a task of its own from the next batch on:
        its key groups can then move without their state. While key groups are being handed over smoothly it waits."""
        self._rearrange(windows, "taken apart by hand", Program.taken_apart)

    def combine(self, windows: str) -> None:
        """Run the compute of these windows in the same task as its consolidate from the next batch on; or, where
        what lies apart moves smoothly, from when the windows that have begun are over."""
        self._rearrange(windows, "put together by hand", Program.put_together)

    def _rearrange(self, windows: str, text: str, way: Callable[[Program, Pair], tuple[int, ...]]) -> None:
        number = self._operator(windows)
        found = [pair for pair in self._driver.program.pairs if pair.consolidate == number]
        if not found:
            raise JobError.option("windows", "windows of a job that have a compute: aggregate(split=...)", windows)
        if self._ended.is_set():
            raise QueryError.not_running(self.name, "split or combine")
        program = self._driver.program
        try:
            way(program, found[0])
        except JobError as error:
            raise JobError.not_movable(
                program.steps[found[0].compute].operator.name,
                f"rows would leave the component of {windows!r} and come back to it: fuse what is between them first",
            ) from error
        self._driver.arrange(rearranged(found[0], way, Entry(0, "fused", text, windows)))

    def migrate(self, operator: str, to: str | None = None) -> None:
        """Run a keyed operator in the task of another one, or in a task of its own (None), from the next batch on:
        enorm's Migrate.

        Its key groups go to where the first operator of the component is; no window is lost or doubled. It stays so
        when the query is started again, unless the job then wants other components than it did. While key groups are
        being handed over smoothly it waits. Raises ``JobError`` for an operator that the job does not have, and where
        the two cannot be one component (other key columns, say).
        """
        number, target = self._operator(operator), None if to is None else self._operator(to)
        if self._ended.is_set():
            raise QueryError.not_running(self.name, "migrate")
        migrated(self._driver.program, number, target)  # what is wrong is refused now, not at the boundary

        def change(program: Program) -> tuple[tuple[int, ...], Entry]:
            try:
                components, text = migrated(program, number, target)
            except JobError as error:
                text = f"migrated by hand, but no longer possible: {error}"
                return program.components, Entry(0, "refused", text, operator)
            return components, Entry(0, "fused", f"migrated by hand: {text}", operator)

        self._driver.arrange(change)

    def repartition(self, operator: str, slots: Sequence[int]) -> None:
        """Spread the key groups of an operator's component evenly over exactly these slots from the next batch on:
        enorm's RePartition. As few groups move as that takes.

        A planner plans over all slots again when it finds them uneven: set ``balance`` to None if it is to stay. Raises
        ``JobError`` for an operator that the job does not have, ``AssignmentError`` for no slot, one that does not
        exist or one that is draining.
        """
        check_list("slots", slots, "slots")
        for slot in slots:
            check_whole("a slot", slot, least=0)
        number = self._operator(operator)
        driver = self._driver

        def spread(assignment: Assignment) -> tuple[Assignment, RePartition, int]:
            component = driver.together.component(number)
            planned = driver.together.planned(assignment)
            after = control.repartitioned(planned, slots, operator=component)
            size = planned.groups_per_operator
            mine = slice(component * size, (component + 1) * size)
            count = int((planned.groups[mine] != after.groups[mine]).sum())
            had = frozenset(planned.groups[mine].tolist())
            return driver.together.spread(after), RePartition(operator, had, frozenset(slots)), count

        spread(self.assignment())  # what is wrong is refused now, not at the boundary

        def change(assignment: Assignment, batch: int) -> tuple[Assignment, list[Entry]]:
            name = driver.program.component_of(number)
            try:
                after, made, count = spread(assignment)
            except AssignmentError as error:
                text = f"repartitioned by hand, but no longer possible: {error}"
                return assignment, [Entry(batch, "refused", text, name)]
            before = sorted(made.before)
            text = f"{made.purpose} by hand: from slots {_listed(before)} to {_listed(slots)}, {count} key groups move"
            details = {"purpose": made.purpose, "before": before, "after": sorted(made.after), "groups": count}
            return after, [Entry(batch, "hand", text, name, details=details)]

        self._change("repartition", change)

    def set_balance(self, balance: Planner | str | None) -> None:
        """Level the load with another planner from now on; None: leave everything where it is."""
        planner = planner_of(balance)
        if planner is not None and not self._driver.options.statistics:
            raise JobError.option("balance", "None for a query that was started with statistics=False", balance)

        def change(assignment: Assignment, batch: int) -> tuple[Assignment, list[Entry]]:
            return assignment, [self._driver.controller.set_planner(planner, batch)]

        self._change("set_balance", change)

    def _operator(self, name: str | None) -> int:
        names = [step.operator.name for step in self._driver.program.steps]
        if name is None and len(names) == 1:
            return 0
        if name not in names:
            raise JobError.option("operator", f"one of {', '.join(names)}", name)
        return names.index(name)

    def _hashes(self, number: int, keys: Sequence[object]) -> Any:
        operator = self._driver.program.steps[number].operator
        names = operator.key_names
        rows = [key if isinstance(key, tuple) else (key,) for key in keys]
        for row, key in zip(rows, keys, strict=True):
            if len(row) != len(names):
                must = f"a value for each of {', '.join(names)}" if names else "(), the only one of key_by()"
                raise JobError.option(f"a key of {operator.name!r}", must, key)
        columns = {}
        for at, name in enumerate(names):
            kind = operator.input_schema.field(name).type
            try:
                columns[name] = pa.array([row[at] for row in rows], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                columns[name] = None
            if columns[name] is None or columns[name].null_count:
                raise JobError.option(
                    f"the {name!r} of keys of {operator.name!r}", f"{type_name(kind)}, not null", keys
                )
        return row_hash(keys_at(np.arange(len(rows)), pa.table(columns)))

    def __repr__(self) -> str:
        last = self.progress()
        state = "running" if self.is_active else ("failed" if self._failure else "ended")
        at = "no batch yet" if last is None else f"batch {last['batch']}"
        return f"<Query {self.name!r} {state}, {at}>"


def planner_of(balance: Planner | str | None) -> Planner | None:
    """The planner of this name. Raises ``JobError`` where there is none."""
    if balance is None or isinstance(balance, Planner):
        return balance
    made = PLANNERS.get(balance) if isinstance(balance, str) else None
    if made is None:
        raise JobError.option("balance", f"a planner, None or one of {', '.join(PLANNERS)}", balance)
    return made() if isinstance(made, type) else made


def _listed(slots: Iterable[int]) -> str:
    return ", ".join(str(slot) for slot in sorted(set(slots)))


def explained(job: str, batch: int | None, error: BaseException) -> BaseException:
    """The error a user should see: ours, found in what Spark made of it, or Spark's own, shortened."""
    if isinstance(error, HeadgateError):
        return error
    text = str(error)
    found = _OURS.findall(text)
    if found:
        kind, message = found[-1]
        said = f"{kind}: {message.strip()}"
    else:
        raised = _TRACED.findall(text) or _RAISED.findall(text)
        said = raised[-1] if raised else f"{type(error).__name__}: {(text.strip() or 'no message').splitlines()[0]}"
    failed = QueryError.failed(job, batch, said)
    failed.__cause__ = error
    return failed
