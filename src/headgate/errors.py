"""Every error headgate raises.

    HeadgateError
    ├── InputError (ValueError)      what was handed in cannot be used
    │   ├── KeyTypeError (TypeError) a key column of a type that has no stable hash
    │   ├── SnapshotError            statistics that contradict themselves
    │   ├── AssignmentError          slots, groups or pins that do not exist
    │   ├── LimitsError              limits that no plan can hold
    │   └── JobError                 a job that cannot run as it was put together
    ├── SolverError                  a solver failed for a reason of its own
    ├── StateError                   a file of the state store is missing, damaged or cannot be written
    ├── CheckpointError              a checkpoint that this job may not use, or not now
    ├── KeyCollisionError            two keys with one 64-bit hash
    ├── UserFunctionError            a function of the job raised
    ├── RowError                     a row that the rule of the job does not let through
    ├── SourceError                  a source that cannot be read
    ├── SinkError                    a sink failed after the batch was committed
    ├── QueryError                   a running query has failed
    └── RegionError                  an ordered parallel region cannot go on; says how far it came
        ├── FunctionError            the function of a region raised
        ├── WorkersLostError         no worker of a region is left
        ├── ShippingError            something that cannot be sent to a worker or back
        ├── GreetingError            a peer that did not prove that it knows the secret
        └── FrameError               bytes that are no frame, or a frame past its limits

A message says what must hold, what came, and what to do. Messages are built by the class methods here, so that the
same fault reads the same wherever it is found.
"""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5
"""How many offending values a message lists before it says how many more there are."""


def listing(values: Sequence[object]) -> str:
    """The first few values, and how many were left out: ``a, b, c, d, e (and 12 more)``."""
    shown = ", ".join(str(value) for value in values[:SHOWN])
    left = len(values) - SHOWN
    return f"{shown} (and {left} more)" if left > 0 else shown


class HeadgateError(Exception):
    """The root: catch this to catch everything that headgate raises on purpose."""


class InputError(HeadgateError, ValueError):
    """Something handed to headgate cannot be used as it is."""


class KeyTypeError(InputError, TypeError):
    """A key column has a type without a stable hash."""

    @classmethod
    def unhashable(cls, column: object, dtype: object) -> KeyTypeError:
        return cls(
            f"key column {column} has type {dtype}, which has no stable hash; keys may be integers, strings, dates, "
            "timestamps, decimals, booleans or bytes: cast the column first (a float to a decimal, a struct to its "
            "fields)"
        )

    @classmethod
    def mixed(cls, column: object, reason: object) -> KeyTypeError:
        return cls(
            f"key column {column} must hold values of one type that Arrow knows, and does not ({reason}): cast them "
            "first, or pass an Arrow array"
        )

    @classmethod
    def untyped_decimal(cls, column: object) -> KeyTypeError:
        return cls(
            f"key column {column} holds Python decimals, whose hash depends on a precision and scale that they do not "
            "carry: pass an Arrow array of a decimal type"
        )

    @classmethod
    def lengths(cls, lengths: Sequence[int]) -> KeyTypeError:
        return cls(f"key columns must have equal lengths, got {listing(lengths)}: pass columns of one table")


class SnapshotError(InputError):
    """Statistics that contradict themselves."""

    @classmethod
    def length(cls, name: str, expected: int, got: int) -> SnapshotError:
        return cls(f"every column of a snapshot must have one value per key: expected {expected} {name}, got {got}")

    @classmethod
    def negative(cls, name: str, keys: Sequence[object], value: float) -> SnapshotError:
        return cls(
            f"{name} must be zero or more, got {value} for key {listing(keys)}: drop the rows or mend the measurement"
        )

    @classmethod
    def not_finite(cls, name: str, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"{name} must be a finite number, got NaN or infinity for key {listing(keys)}: drop the rows or mend the "
            "measurement"
        )

    @classmethod
    def key_twice(cls, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"every key may be listed once per operator, listed more than once: {listing(keys)}: add their rows up "
            "first"
        )

    @classmethod
    def group_range(cls, group: int, groups: int) -> SnapshotError:
        return cls(f"key groups are numbered 0 to {groups - 1}, got {group}: use one number of groups throughout")

    @classmethod
    def capacity(cls, capacity: object) -> SnapshotError:
        return cls(f"a slot's capacity must be a finite number above zero, got {capacity}: drain the slot instead")

    @classmethod
    def traffic_unknown(cls, side: str, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"traffic may only name keys that the statistics list, unknown {side}: {listing(keys)}: add the keys (a "
            "cost of 0 will do) or drop the rows"
        )

    @classmethod
    def too_large(cls, name: str) -> SnapshotError:
        return cls(f"the values of {name} must add up to a finite number, and overflow: use a larger unit")

    @classmethod
    def traffic_range(cls, what: str, count: int, got: int) -> SnapshotError:
        return cls(f"traffic is between {what}s 0 to {count - 1}, got {got}: number them as the snapshot does")

    @classmethod
    def mismatch(cls, what: str, left: object, right: object) -> SnapshotError:
        return cls(f"snapshots can be merged only when they agree on {what}: one has {left}, another {right}")

    @classmethod
    def traffic_missing(cls, planner: str, grain: str) -> SnapshotError:
        return cls(
            f"{planner} at the grain of a {grain} needs traffic between {grain}s, and the snapshot has none at that "
            f"grain: measure it, or plan at the other grain"
        )


class AssignmentError(InputError):
    """Slots, groups or pins that do not exist."""

    @classmethod
    def no_slot(cls, slots: int) -> AssignmentError:
        return cls(f"an assignment needs at least one slot, got {slots}")

    @classmethod
    def unknown_slot(cls, what: str, slot: int, slots: int) -> AssignmentError:
        return cls(f"slots are numbered 0 to {slots - 1}, but {what} names slot {slot}: raise slots or mend the input")

    @classmethod
    def drains(cls, slot: int) -> AssignmentError:
        return cls(f"slot {slot} is draining, so nothing may move there: choose a slot that is not draining")

    @classmethod
    def all_draining(cls, slots: int) -> AssignmentError:
        return cls(
            f"all {slots} slots are draining, so there is nowhere to move anything: keep at least one slot that is "
            "not draining"
        )

    @classmethod
    def groups(cls, expected: int, got: int) -> AssignmentError:
        return cls(
            f"the snapshot counts {expected} key groups and the assignment places {got}: build both with the same "
            "number of groups and operators"
        )

    @classmethod
    def pinned_twice(cls, operator: int, key_hash: int) -> AssignmentError:
        return cls(f"a key may be pinned once, key hash {key_hash} of operator {operator} is pinned more than once")

    @classmethod
    def unknown_operator(cls, operator: int, operators: int) -> AssignmentError:
        return cls(f"operators are numbered 0 to {operators - 1}, got {operator}")

    @classmethod
    def capacity_count(cls, slots: int, got: int) -> AssignmentError:
        return cls(f"there must be one capacity per slot: expected {slots}, got {got}")


class LimitsError(InputError):
    """Limits that no plan can hold."""

    @classmethod
    def negative(cls, name: str, value: float, unit: str) -> LimitsError:
        return cls(f"{name} must be zero or more ({unit}), got {value}")

    @classmethod
    def both_migration_limits(cls, count: int, cost: float) -> LimitsError:
        return cls(
            f"give max_migrations or max_migration_cost, not both: got {count} migrations and a cost of {cost}; the "
            "first counts moves, the second adds up the state they carry"
        )

    @classmethod
    def unknown_resource(cls, name: str, known: Sequence[str]) -> LimitsError:
        have = listing(sorted(known)) if known else "none"
        return cls(f"a cap names the resource {name!r}, which the snapshot does not measure (it has: {have})")

    @classmethod
    def cap_count(cls, name: str, slots: int, got: int) -> LimitsError:
        return cls(f"the cap on {name!r} must be one number or one per slot: expected {slots}, got {got}")

    @classmethod
    def parameter(cls, owner: str, name: str, must: str, got: object) -> LimitsError:
        return cls(f"{owner}: {name} must be {must}, got {got}")


class SolverError(HeadgateError):
    """A solver stopped for a reason of its own."""

    @classmethod
    def status(cls, solver: str, status: object) -> SolverError:
        return cls(f"{solver} ended with status {status!r} and no plan: this is a fault of headgate, please report it")


class StateError(HeadgateError):
    """A file of the state store is missing, damaged or cannot be written. `file` is its name."""

    file: str | None = None

    @classmethod
    def _of(cls, file: str, message: str) -> StateError:
        error = cls(message)
        error.file = file
        return error

    @classmethod
    def missing(cls, file: str) -> StateError:
        return cls._of(
            file,
            f"the state store needs the file {file}, and it is not there: restore it from a backup, or go back to a "
            "version of the checkpoint that does not use it",
        )

    @classmethod
    def no_space(cls, file: str) -> StateError:
        return cls._of(
            file,
            f"no space left to write {file}: free some space and start the job again, it goes on from its last commit",
        )

    @classmethod
    def unreachable(cls, file: str, error: object) -> StateError:
        return cls._of(
            file,
            f"the file system failed on {file} ({error}): mend the access and start the job again, it goes on from "
            "its last commit",
        )

    @classmethod
    def truncated(cls, file: str, expected: int, got: int) -> StateError:
        return cls._of(
            file,
            f"{file} must have {expected} bytes and has {got}: restore it from a backup, or go back to a version of "
            "the checkpoint that does not use it",
        )

    @classmethod
    def damaged(cls, file: str, what: str) -> StateError:
        return cls._of(
            file,
            f"{file} is damaged ({what}): restore it from a backup, or go back to a version of the checkpoint that "
            "does not use it",
        )

    @classmethod
    def foreign(cls, file: str, expected: str) -> StateError:
        return cls._of(
            file,
            f"{file} must be {expected} and is something else: restore the right file from a backup, or go back to a "
            "version of the checkpoint that does not use it",
        )

    @classmethod
    def newer(cls, file: str, found: int, known: int) -> StateError:
        return cls._of(
            file,
            f"{file} has format version {found}, and this headgate reads up to version {known}: use the newer "
            "headgate that wrote it",
        )

    @classmethod
    def schema(cls, file: str, expected: object, got: object) -> StateError:
        return cls._of(
            file,
            f"{file} must have the columns {expected} and has {got}: state of another job or of another version of "
            "it; use the checkpoint that belongs to this job",
        )

    @classmethod
    def unordered(cls, file: str, place: int, key_hash: int) -> StateError:
        return cls._of(
            file,
            f"the rows of {file} must be appended in ascending order of place and hash, each pair once, and place "
            f"{place} hash {key_hash} is not: this is a fault of headgate, please report it",
        )

    @classmethod
    def place_range(cls, file: str, place: int, places: int) -> StateError:
        return cls._of(
            file,
            f"the places of {file} are numbered 0 to {places - 1}, got {place}: this is a fault of headgate, please "
            "report it",
        )

    @classmethod
    def outside(cls, file: str) -> StateError:
        return cls._of(
            file,
            f"a file of the state store must lie under its root, and {file!r} does not: use a relative name without "
            "'..'",
        )


class CheckpointError(HeadgateError):
    """A checkpoint that this job may not use, or not now."""

    @classmethod
    def other_job(cls, root: str, differences: Sequence[str]) -> CheckpointError:
        lines = "".join(f"\n  {difference}" for difference in differences)
        return cls(
            f"the checkpoint {root} belongs to a job that differs from this one: use another checkpoint directory, or "
            f"change the job back:{lines}"
        )

    @classmethod
    def newer(cls, root: str, found: object, known: int) -> CheckpointError:
        return cls(
            f"the checkpoint {root} has format version {found}, and this headgate reads up to version {known}: use "
            "the newer headgate that wrote it"
        )

    @classmethod
    def in_use(cls, root: str, host: str, pid: int, evidence: str) -> CheckpointError:
        return cls(
            f"the checkpoint {root} is in use by process {pid} on host {host} ({evidence}): stop that process first, "
            "or use another checkpoint directory; if it is certain that it no longer runs, claim with takeover"
        )

    @classmethod
    def lost(cls, root: str, run_id: str, owner: str) -> CheckpointError:
        return cls(
            f"run {run_id} no longer owns the checkpoint {root} ({owner}): nothing was committed; let the other run "
            "go on, or stop it and start this job again"
        )

    @classmethod
    def not_claimed(cls, root: str) -> CheckpointError:
        return cls(f"the checkpoint {root} must be claimed before anything is written to it: call claim() first")

    @classmethod
    def conflict(cls, root: str, what: str, batch: int) -> CheckpointError:
        return cls(
            f"the checkpoint {root} already has another {what} for batch {batch}: two runs wrote to it; stop both and "
            "start one of them again"
        )

    @classmethod
    def gap(cls, root: str, expected: int, got: int) -> CheckpointError:
        return cls(
            f"the next batch of the checkpoint {root} must be {expected}, got {got}: the checkpoints of Spark and of "
            "headgate do not belong together; restore both from one moment"
        )

    @classmethod
    def no_version(cls, root: str, batch: int, versions: Sequence[int]) -> CheckpointError:
        have = listing(versions) if versions else "none"
        return cls(f"the checkpoint {root} has no version {batch} (it has: {have}): choose one of those")


class KeyCollisionError(HeadgateError):
    """Two keys of one operator share a 64-bit hash, so their state cannot be told apart."""

    first: object = None
    second: object = None
    hash: int | None = None

    @classmethod
    def two_keys(cls, first: object, second: object, hash: int) -> KeyCollisionError:
        error = cls(
            f"the keys {first!r} and {second!r} have the same 64-bit hash {hash}, and state is kept per hash: nothing "
            "was written; add a column to the key, or change one of the two keys"
        )
        error.first, error.second, error.hash = first, second, hash
        return error


class UserFunctionError(HeadgateError):
    """A function of the job raised. The batch is not committed; it runs again once the function is mended.

    Attributes: `operator` (its name), `key`, `row` (the first row of the key, or None when a timer fired), `error`
    (what was raised) and `slot` (None until `on_slot` names it).
    """

    operator: str | None = None
    key: object = None
    row: object = None
    error: BaseException | None = None
    slot: int | None = None

    @classmethod
    def in_key(cls, operator: str, key: object, row: object, error: BaseException) -> UserFunctionError:
        return cls._built(operator, key, row, error, None)

    def on_slot(self, slot: int) -> UserFunctionError:
        """The same error, with the slot it happened on in its text and attributes."""
        if self.operator is None or self.error is None:
            return self
        named = self._built(self.operator, self.key, self.row, self.error, slot)
        named.__cause__ = self.__cause__
        return named.with_traceback(self.__traceback__)

    @classmethod
    def strayed(cls, source: str, target: str, columns: Sequence[str], row: object) -> UserFunctionError:
        return cls(
            f"rows that {source!r} hands to {target!r} must keep the value of {listing(columns)} that they came with, "
            f"since both run in one component that is placed by it; {row!r} belongs to another slot: leave the column "
            "as it is, or take it out of keeps="
        )

    @classmethod
    def _built(
        cls, operator: str, key: object, row: object, error: BaseException, slot: int | None
    ) -> UserFunctionError:
        where = "" if slot is None else f" on slot {slot}"
        first = "it had no rows, a timer fired" if row is None else f"its first row is {row!r}"
        built = cls(
            f"the function of operator {operator!r} raised {type(error).__name__}: {error} for key {key!r}{where} "
            f"({first}): mend the function and start the job again, it goes on from its last commit"
        )
        built.operator, built.key, built.row, built.error, built.slot = operator, key, row, error, slot
        built.__cause__ = error
        return built


class JobError(InputError):
    """A job that cannot run as it was put together."""

    @classmethod
    def unknown_column(cls, operator: str, column: str, have: Sequence[str]) -> JobError:
        return cls(f"{operator!r} needs the column {column!r}, and its rows have {listing(have)}: check the name")

    @classmethod
    def name_twice(cls, kind: str, name: str) -> JobError:
        return cls(
            f"every {kind} of a job must have a name of its own, and {name!r} is there twice: pass name= to one of them"
        )

    @classmethod
    def empty(cls, name: str) -> JobError:
        return cls(f"job {name!r} writes nothing: call write_to(sink) on a stream before you start it")

    @classmethod
    def mixed_sources(cls, streaming: str, static: str) -> JobError:
        return cls(
            f"the sources of a job must all stream or all be static, and {streaming!r} streams while {static!r} does "
            "not: read the static one as a stream, or join it to the streaming DataFrame first"
        )

    @classmethod
    def unions(cls, left: object, right: object) -> JobError:
        return cls(
            f"a union takes streams of one job with equal columns, got {left} and {right}: map one of them first"
        )

    @classmethod
    def joined_jobs(cls, left: str, right: str) -> JobError:
        return cls(
            f"both sides of a join must be streams of one job, and these are of two, {left!r} and {right!r}: make them "
            "from sources of one Job object"
        )

    @classmethod
    def joined_keys(cls, name: str, left: Sequence[str], right: Sequence[str]) -> JobError:
        return cls(
            f"both sides of the join {name!r} must have equally many key columns, which are paired by position, got "
            f"{listing(left) or 'none'} and {listing(right) or 'none'}: give key_by the same number of columns"
        )

    @classmethod
    def joined_by_nothing(cls, name: str) -> JobError:
        return cls(
            f"the join {name!r} must have key columns, since it pairs rows that have equal ones, got key_by() on both "
            'sides, which would pair every row with every other: name the columns, key_by("user") say'
        )

    @classmethod
    def joined_types(cls, name: str, left: str, left_type: object, right: str, right_type: object) -> JobError:
        return cls(
            f"columns that the join {name!r} compares must have one type, and {left!r} is {left_type} on the left and "
            f"{right!r} {right_type} on the right: cast one of them in a map before key_by"
        )

    @classmethod
    def joined_twice(cls, name: str, column: str, suffixes: Sequence[str]) -> JobError:
        return cls(
            f"the join {name!r} would have two columns named {column!r} with the suffixes {tuple(suffixes)!r}: pass "
            "other suffixes=, or rename a column in a map before key_by"
        )

    @classmethod
    def expression(cls, what: str) -> JobError:
        return cls(
            f"a Spark expression ({what}) works on rows that are still in Spark, and these have been through a Python "
            "function: put it before the function, or do the same in a Python function"
        )

    @classmethod
    def not_inferred(cls, name: str, error: object) -> JobError:
        return cls(
            f"the columns that {name!r} returns could not be found out by calling it with no rows ({error}): pass "
            'schema="name type, ..." to map'
        )

    @classmethod
    def no_event_time(cls, what: str) -> JobError:
        return cls(
            f"{what} needs the time of each event, and the job has none: name the column when you make the job, "
            'Job(..., event_time="at", slack="1 minute")'
        )

    @classmethod
    def unpinned(cls, name: str, component: str) -> JobError:
        where = "" if component == name else f" (in the component {component})"
        return cls(
            f"the keys of {name!r}{where} must move by key group, not one by one: where there are windows, rows are "
            "added up before the shuffle, so a hot key costs its slot no more than another; where a component is "
            "placed by a part of the key, there is nothing smaller to move; pass groups= instead of keys"
        )

    @classmethod
    def order_lost(cls, name: str) -> JobError:
        return cls(
            f"the rows of the ordered map {name!r} must still be in the order of their source, and a keyed operator or "
            "a union before it gives rows in no order: put it between the source and that step"
        )

    @classmethod
    def region_room(cls, name: str, workers: int, room: int) -> JobError:
        return cls(
            f"the ordered map {name!r} needs a core for each of its {workers} workers at once, and Spark can run "
            f"{room} tasks here: ask for fewer workers, or give the application more cores"
        )

    @classmethod
    def not_splittable(cls, name: str, reason: str) -> JobError:
        return cls(f"the keys of {name!r} cannot be split over slots: {reason}; leave out split=True")

    @classmethod
    def option(cls, name: str, must: str, got: object) -> JobError:
        return cls(f"{name} must be {must}, got {got!r}")

    @classmethod
    def window(cls, what: str, must: str, got: object, instead: str = "check the window") -> JobError:
        return cls(f"{what} must {must}, got {got!r}: {instead}")

    @classmethod
    def unknown_operator(cls, what: str, name: str, have: Sequence[str]) -> JobError:
        return cls(f"{what} names the operator {name!r}, and the job has {listing(have)}: check the name")

    @classmethod
    def edge(cls, source: str, target: str, must: str) -> JobError:
        return cls(f"what {source!r} sends to {target!r} {must}")

    @classmethod
    def circle(cls, between: Sequence[tuple[int, int]]) -> JobError:
        return cls(
            "components must not wait for each other, and of these pairs, the first feeding the second, some go round: "
            f"{listing(between)}: keep apart what lies between them"
        )

    @classmethod
    def cycle(cls, job: str, path: Sequence[str]) -> JobError:
        return cls(
            f"the operators of job {job!r} must not feed themselves, and {' -> '.join(path)} goes round: take one of "
            "these edges out"
        )

    @classmethod
    def not_partial(cls, name: str, feeder: str, kind: str) -> JobError:
        return cls(
            f"a consolidate merges partial windows, so only compute and consolidate may feed {name!r}, and {feeder!r} "
            f"is a {kind}: put a compute between them"
        )

    @classmethod
    def not_fusable(cls, operators: Sequence[str], reason: str) -> JobError:
        return cls(f"operators {listing(operators)} cannot be one component: {reason}")

    @classmethod
    def not_movable(cls, operator: str, reason: str) -> JobError:
        return cls(f"operator {operator!r} cannot change its component: {reason}")


class RowError(HeadgateError):
    """A row that the rule of the job does not let through. The batch is not committed."""

    @classmethod
    def refused(cls, source: str, reason: str, count: int, first: object) -> RowError:
        return cls(
            f"{count} row(s) of {source!r} cannot be used ({reason}), the first being {first}: mend the source, or "
            'start the job with bad_keys="drop" (counts them) or "side" (keeps them in job.rejected()); late="drop" '
            'and "side" do the same for late rows'
        )


class SourceError(HeadgateError):
    """A source that cannot be read."""

    @classmethod
    def unreadable(cls, path: str, format: str, error: object) -> SourceError:
        return cls(f"{path} cannot be read as {format} ({error}): mend or remove the file, then start the job again")

    @classmethod
    def columns(cls, path: str, missing: Sequence[str], have: Sequence[str]) -> SourceError:
        return cls(
            f"{path} must have the columns {listing(missing)}, it has {listing(have)}: mend or remove the file, or "
            "give the source another schema"
        )

    @classmethod
    def types(cls, path: str, column: str, expected: object, got: object, error: object) -> SourceError:
        return cls(
            f"column {column!r} of {path} must be {expected}, it is {got} and cannot be cast without loss ({error}): "
            "mend or remove the file, or give the source another schema"
        )

    @classmethod
    def format(cls, format: object) -> SourceError:
        return cls(f"a file source reads 'parquet', 'csv' or 'json' (one object a line), got {format!r}")

    @classmethod
    def no_files(cls, path: str) -> SourceError:
        return cls(f"there is no file under {path} to find the columns from: pass schema= or put a first file there")


class SinkError(HeadgateError):
    """A sink failed. The batch is committed and is delivered again when the job starts again."""

    @classmethod
    def failed(cls, output: str, batch: int, error: object) -> SinkError:
        return cls(
            f"a sink of output {output!r} failed for batch {batch} ({type(error).__name__}: {error}): the batch is "
            "committed, and is delivered again when the job is started again"
        )


class QueryError(HeadgateError):
    """A running query has failed; the message says where and why."""

    @classmethod
    def failed(cls, job: str, batch: int | None, error: str) -> QueryError:
        where = "while starting" if batch is None else f"in batch {batch}"
        return cls(
            f"query {job!r} failed {where}: {error}; what was committed is safe: start the job again with the same "
            "checkpoint to go on from there"
        )

    @classmethod
    def not_running(cls, job: str, what: str) -> QueryError:
        return cls(f"query {job!r} has ended, so {what} is not possible: start the job again with the same checkpoint")


class RegionError(HeadgateError):
    """An ordered parallel region cannot go on.

    `position` is the number of leading items that are dealt with: their results were delivered, or skipped on purpose.
    A stream that can be read from a position is resumed there. None where the fault has no place in the stream.
    """

    position: int | None = None

    @classmethod
    def used(cls) -> RegionError:
        return cls("a region runs one stream, and this one has had its own or is closed: make a new Region")

    @classmethod
    def unguarded(cls) -> RegionError:
        return cls(
            "a worker imports the main script to find its functions, and this script starts a region while it is "
            'imported: put what starts it below `if __name__ == "__main__":`'
        )

    @classmethod
    def poisonous(cls, position: int, count: int, deaths: int, why: str) -> RegionError:
        error = cls(
            f"a worker must outlive its items, and {deaths} died one after another at work on items {position} to "
            f"{position + count - 1} (the last: {why}): run the function on these items alone to see why, or leave "
            "them out"
        )
        error.position = position
        return error

    def reached(self, position: int) -> RegionError:
        """The same error, with the position that the results came to in its attributes and its text."""
        self.position = position
        self.args = (f"{self.args[0]}; results up to position {position} (exclusive) were delivered",)
        return self


class FunctionError(RegionError):
    """The function of a region raised.

    `position` is the item's place in the stream, `traceback` what the worker printed, `error` the exception itself
    where it could be sent.
    """

    traceback: str = ""
    error: BaseException | None = None

    @classmethod
    def raised(cls, position: int, name: str, traceback: str, error: BaseException | None) -> FunctionError:
        built = cls(
            f"the function raised {name} for the item at position {position}: mend the function or the item and "
            f'resume there, or let such items go with on_error="skip"; the worker says:\n{traceback.rstrip()}'
        )
        built.position, built.traceback, built.error = position, traceback, error
        built.__cause__ = error
        return built


class WorkersLostError(RegionError):
    """No worker of a region is left, or none came back in time."""

    @classmethod
    def all_gone(cls, reasons: Sequence[str]) -> WorkersLostError:
        lines = "".join(f"\n  {reason}" for reason in reasons)
        return cls(
            f"a region needs at least one worker, and all {len(reasons)} are gone for good: mend what follows and "
            f"resume from the position:{lines}"
        )

    @classmethod
    def too_long(cls, seconds: float, reasons: Sequence[str]) -> WorkersLostError:
        lines = "".join(f"\n  {reason}" for reason in reasons)
        return cls(
            f"a region needs at least one worker, and none came back within {seconds:g} seconds: bring one back and "
            f"resume from the position, or raise deadline=:{lines}"
        )


class ShippingError(RegionError):
    """Something that cannot be sent to a worker or back."""

    @classmethod
    def function(cls, function: object, reason: object) -> ShippingError:
        return cls(
            f"the function must be one that another process can load, and {function!r} is not ({reason}): define it "
            "at the top level of a module that the workers can import, or install cloudpickle for lambdas, closures "
            "and functions of the main script"
        )

    @classmethod
    def unloadable(cls, traceback: str) -> ShippingError:
        return cls(
            "a worker must be able to load the function, and this one is not: install what it needs there, in the same "
            f"version as here; the worker says:\n{traceback.rstrip()}"
        )

    @classmethod
    def item(cls, position: int, reason: object) -> ShippingError:
        error = cls(f"items must be picklable, and the one at position {position} is not ({reason}): convert it first")
        error.position = position
        return error

    @classmethod
    def too_large(cls, position: int, size: int, most: int) -> ShippingError:
        error = cls(
            f"an item with its frame may have {most:,} bytes, and the one at position {position} has {size:,}: raise "
            "max_frame_bytes, or send a reference to it"
        )
        error.position = position
        return error

    @classmethod
    def result(cls, position: int, reason: object) -> ShippingError:
        error = cls(
            f"results must be loadable here, and the one at position {position} is not ({reason}): return plain "
            "values, or make its class importable in this process"
        )
        error.position = position
        return error


class GreetingError(RegionError):
    """A peer that did not prove that it knows the secret. Nothing it sent was loaded.

    `final` says that trying again is no use until somebody mends something.
    """

    final: bool = True

    @classmethod
    def _passing(cls, message: str) -> GreetingError:
        error = cls(message)
        error.final = False
        return error

    @classmethod
    def foreign(cls, found: bytes) -> GreetingError:
        return cls(
            f"a peer must greet as a headgate region, and this one sent {found[:16]!r}: check host and port, and that "
            "both sides use TLS or neither does"
        )

    @classmethod
    def version(cls, found: int, known: int) -> GreetingError:
        return cls(
            f"both sides must speak one version of the protocol, and the peer speaks {found} where this side speaks "
            f"{known}: install the same headgate on both"
        )

    @classmethod
    def wrong_secret(cls, who: str) -> GreetingError:
        return cls(f"both sides must know the same secret, and the {who}'s is another: give both the same secret")

    @classmethod
    def full(cls) -> GreetingError:
        return cls._passing(
            "the worker already serves as many connections as it may: raise its --limit, or use another"
        )

    @classmethod
    def ended(cls) -> GreetingError:
        return cls._passing("the peer closed the connection before the greeting was over: look at its log")

    @classmethod
    def late(cls, seconds: float) -> GreetingError:
        return cls._passing(
            f"a peer must greet within {seconds:g} seconds, and this one did not: check host, port and network, and "
            "that both sides use TLS or neither does"
        )

    @classmethod
    def secret(cls, least: int, got: int) -> GreetingError:
        return cls(
            f"a secret must have at least {least} bytes, got {got}: make one with "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )


class FrameError(RegionError):
    """Bytes that are no frame, or a frame past its limits. The connection they came by is closed."""

    @classmethod
    def kind(cls, found: int) -> FrameError:
        return cls(f"a frame starts with its kind, and {found} is none: the peer is broken or speaks something else")

    @classmethod
    def too_large(cls, size: int, most: int) -> FrameError:
        return cls(f"a frame may have {most:,} bytes, and one of {size:,} was announced: raise max_frame_bytes")

    @classmethod
    def torn(cls, what: str) -> FrameError:
        return cls(f"a frame must be whole and agree with itself, and this one does not ({what}): the peer is broken")

    @classmethod
    def unexpected(cls, what: str) -> FrameError:
        return cls(f"a peer may only send what it was asked for, and this one sent {what}: the connection is closed")
