"""enorm, figure 13: one slot after another gets more rows; key groups migrate, disruptively or at once, to keep up."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

import headgate as hg
from engine import Course, millis, scratch, session, times, write_batches
from enorm_runs import (
    COMPUTE,
    FILES,
    Run,
    check_windows,
    expected_windows,
    fresh,
    rows_between,
    simple_job,
    started,
    steered,
    written,
)
from headgate.arrays import F64, I64
from headgate.control import Policy
from headgate.engine.starting import MIN_LOAD_SECONDS
from headgate.planners import Flux, Limits
from headgate.routing import Assignment, key_hash
from headgate.routing.groups import group_of
from headgate.sinks import MemorySink, Sink
from lockstep import Gate, Lockstep
from reporting import Claim, Report, Table, finish, panels

SLOTS, GROUPS = 4, 512
"""Flux moves whole key groups and stops half a group from the mean: with 128 of each slot that is 0.4%, where 32 would
be as much as the rows of a slot rise in a batch."""

PER_MINUTE = 24
"""Batches. A plan comes one batch after what it is made from: that is what there is to add where nothing is copied, and
the paper's stream, which has no batches, does not have it."""

LENGTH = 30
"""Minutes of the windows, the paper's longest: none closes while the stream is timed. Consolidating is a small part
then, as it is in the paper."""

BUILT = 10
"""Minutes before anything is timed, in each of which every key comes once, with partials of a minute as in the paper's
simple job. A combined component keeps them all (enorm 5.1.1). In the paper keys go on coming, and a key has 5 of them
after the initialisation and 15 when two slots have had their turn: this is between the two, from the start."""

BUILD = BUILT + 2
"""The batches of that: one a minute, and two by which the last partials go to the consolidate."""

LOAD = 0.7
"""How busy slots are with rows before anything changes: batches arrive that often. With ``EXTRA`` of that a slot is
overloaded, 1.05."""

EXTRA = 0.5
THETA = 0.005
"""Of the mean load of a slot: half a key group and a little more, so that plans are made while there is something to
gain."""

TARGET = 10.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Minutes before anything changes, in which a slot's rows rise, and after that; ``rows`` of a batch."""

    start: int
    rise: int
    stay: int
    nodes: int
    rows: int
    group_keys: int
    service: float

    @property
    def busy(self) -> float:
        """Seconds of a batch that a slot is busy with rows while nothing has changed."""
        return self.rows / SLOTS * self.service

    @property
    def least(self) -> float:
        """Seconds of a batch that slots must be busy for their load to be levelled: the engine's default, and so little
        that what is emulated always is."""
        return min(MIN_LOAD_SECONDS, self.busy / 2)

    @property
    def batches(self) -> int:
        """All that count."""
        return PER_MINUTE * (self.start + self.nodes * (self.rise + self.stay))

    @property
    def first(self) -> int:
        """The first batch with adaptation, of those that are timed."""
        return PER_MINUTE * self.start


FULL = Setting(1, 3, 2, 2, 6_000, 12_500, 360e-6)
"""A batch of 0.54 s in every slot, of which what is not emulated is a small part."""

QUICK = Setting(1, 1, 1, 1, 1_500, 125, 100e-6)


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration: the form of the job, how key groups move, and how many batches lie between two plans."""

    form: str
    migration: str
    every: int


FORMS = ("combined", "split")
"""A combined component is rigid and must move disruptively; the compute of a split one is flexible (enorm 7.4)."""

SIDES = {
    "disruptive, every minute": Side("combined", "copy", PER_MINUTE),
    "disruptive, every five minutes": Side("combined", "copy", 5 * PER_MINUTE),
    "instant, continuously": Side("split", "instant", 1),
    "by manifest, continuously": Side("combined", "manifest", 1),
}
EVERY_MINUTE, EVERY_FIVE, INSTANT, MANIFEST = SIDES
EVEN = {
    "combined, evenly spread": "combined",
    "split, evenly spread": "split",
    "split, evenly spread, again": "split",
}
"""What the others are compared with, and its form: nothing moves. Two are alike, to see what that makes."""


def weights(batch: int, setting: Setting) -> F64:
    """Rows of each slot's key groups, as shares of what they had at first: those of one slot rise by half, stay there,
    and go back while those of the next one rise."""
    made = np.ones(SLOTS)
    each = PER_MINUTE * (setting.rise + setting.stay)
    node, at = divmod(batch - setting.first, each)
    if batch < setting.first:
        return made
    risen = min(1.0, (at + 1) / (PER_MINUTE * setting.rise))
    made[node % SLOTS] += EXTRA * risen
    if node:
        made[(node - 1) % SLOTS] += EXTRA * (1 - risen)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Which rows come. Every key group of a slot has as many in a batch as the next one, give or take a row, as at the
    paper's rate of tens of thousands a second; if these few were drawn at random, groups would differ by a fifth, and
    plans would follow that."""

    rng: np.random.Generator
    owners: I64
    """The slot of each key group at the start."""
    pools: NDArray[np.int64]
    """A row for each key group: its keys that come again, no fewer than a file has rows of it."""

    @classmethod
    def of(cls, setting: Setting, rng: np.random.Generator) -> Keys:
        """The keys of a setting, by the placement that queries start with."""
        keys = np.arange(GROUPS * setting.group_keys)
        groups = group_of(key_hash(pa.array(keys)), GROUPS)
        owners = Assignment.hashed(SLOTS, GROUPS, operators=2).groups[:GROUPS].astype(np.int64)
        fewest = int(np.bincount(owners, minlength=SLOTS).min())
        width = int(setting.rows / SLOTS / FILES * (1 + EXTRA) / fewest) + 2
        by_group = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[by_group], np.arange(GROUPS))
        return cls(rng, owners, by_group[starts[:, None] + np.arange(width)])

    def file(self, rows: I64) -> I64:
        """The keys of a file with this many rows of each slot's key groups. No key twice: it would be one row by the
        time it is in its slot."""
        counts = np.zeros(GROUPS, dtype=np.int64)
        for slot, wanted in enumerate(rows):
            mine = np.flatnonzero(self.owners == slot)
            counts[mine] = np.diff(np.floor(np.arange(len(mine) + 1) * wanted / len(mine) + self.rng.random()))
        drawn = self.rng.permuted(self.pools, axis=1)
        return self.rng.permutation(drawn[np.arange(drawn.shape[1]) < counts[:, None]])


def streams(setting: Setting, rng: np.random.Generator) -> tuple[list[pa.Table], list[pa.Table], list[pa.Table]]:
    """Batches that build the state up; those of the stream; and as many rows in each that are spread evenly."""
    everybody = np.arange(GROUPS * setting.group_keys)
    keys = Keys.of(setting, rng)

    def minute(batch: int) -> float:
        return BUILT + (batch + BUILD - BUILT) / PER_MINUTE

    def drawn(batch: int, shares: F64) -> pa.Table:
        rows = np.rint(setting.rows / SLOTS / FILES * shares).astype(np.int64)
        picked = np.concatenate([keys.file(rows) for _ in range(FILES)])
        return rows_between(picked, minute(batch), minute(batch + 1), rng)

    def few(start: float, end: float) -> pa.Table:
        return rows_between(rng.choice(everybody, 100), start, end, rng)

    build = [rows_between(rng.permutation(everybody), at, at + 1, rng) for at in range(BUILT)]
    build += [few(minute(at), minute(at + 1)) for at in range(BUILT - BUILD, 0)]
    skewed, even = [], []
    for batch in range(setting.batches):
        shares = weights(batch, setting)
        skewed.append(drawn(batch, shares))
        even.append(drawn(batch, np.full(SLOTS, shares.mean())))
    assert minute(setting.batches) <= LENGTH, "a window closes while the stream is timed"
    last = [few(LENGTH + at, LENGTH + at + 0.3) for at in (0, 1, 2)]
    return build, skewed + last, even + last


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """What queries go on from: the files that they have read, and a checkpoint for each form of the job."""

    folder: Path
    checkpoints: dict[str, Path]

    @classmethod
    def of(cls, spark: SparkSession, path: Path, tables: list[pa.Table]) -> Built:
        """The state that these batches leave. Nothing is emulated."""
        made = cls(written(path / "in", tables), {form: path / form for form in FORMS})
        for form, checkpoint in made.checkpoints.items():
            steered(_job(spark, made.folder, form, hg.sinks.memory()), spark, checkpoint, slots=SLOTS)
        return made

    def read(self) -> None:
        """Have all runs in memory, as the paper's state is: else the first that copies them waits for the disk."""
        for checkpoint in self.checkpoints.values():
            for path in checkpoint.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        while file.read(LINKED_BYTES):
                            pass

    def files(self, folder: Path, tables: list[pa.Table]) -> Path:
        """A folder with the files that were read, and these batches after them."""
        shutil.copytree(self.folder, folder, copy_function=os.link)
        return write_batches(folder, tables, FILES, first=BUILD)

    def checkpoint(self, form: str, checkpoint: Path, folder: Path) -> Path:
        """A copy of a checkpoint, whose query goes on with the files of this folder.

        Runs, which are large and never written again, are linked, so that all queries have the same ones in memory.
        """

        def copied(source: str, target: str) -> str:
            if os.path.getsize(source) >= LINKED_BYTES:
                os.link(source, target)
            elif SPARK_SOURCES in source:
                Path(target).write_text(Path(source).read_text().replace(str(self.folder), str(folder)))
            elif source.endswith(SPARK_IDENTITY):
                Path(target).write_text(json.dumps({"id": str(uuid.uuid4())}))
            else:
                shutil.copy2(source, target)
            return target

        ignored = shutil.ignore_patterns("*.crc")  # Hadoop's, of files that name other ones now
        return Path(shutil.copytree(self.checkpoints[form], checkpoint, ignore=ignored, copy_function=copied))


LINKED_BYTES = 1 << 20
"""Files that are larger can only be runs."""

SPARK_SOURCES = "/spark/sources/"
"""Where Spark writes down which files it has read."""

SPARK_IDENTITY = "/spark/metadata"
"""What Spark takes for the same query, of which only one may run at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Batches that come after those that built the state up, and the windows of all of them."""

    built: Built
    files: Path
    wanted: pa.Table

    def start(
        self, spark: SparkSession, checkpoint: Path, setting: Setting, side: Side, sink: Sink, gate: Gate
    ) -> tuple[hg.Query, list[dict[str, Any]]]:
        """One configuration; with a migration of "none" nothing moves."""
        self.built.checkpoint(side.form, checkpoint, self.files)
        options: dict[str, Any] = {}
        script: dict[int, Callable[[hg.Query], None]] = {}
        if side.migration != "none":
            policy = Policy(
                every=side.every,
                limits=Limits(theta_max=THETA),
                min_gain=0.0,
                min_load=setting.least * side.every,  # of an interval
                smoothing=1.0,
            )
            options = {"migration": side.migration, "policy": policy}
            script[BUILD + setting.first] = lambda query: query.set_balance(Flux())
        return started(
            _job(spark, self.files, side.form, sink), spark, checkpoint, script, [gate], slots=SLOTS,
            service_time={COMPUTE: setting.service}, wait_for_plan="500 milliseconds", **options,
        )  # fmt: skip


def prepared(spark: SparkSession, space: Path, setting: Setting, rng: np.random.Generator) -> tuple[Stream, Stream]:
    """The stream, and the one that is spread evenly."""
    build, *both = streams(setting, rng)
    built = Built.of(spark, space / "built", build)
    skewed, even = (
        Stream(
            built,
            built.files(space / name, tables),
            expected_windows(build + tables, [LENGTH]),
        )
        for name, tables in zip(("skewed", "even"), both, strict=True)
    )
    return skewed, even


def _job(spark: SparkSession, folder: Path, form: str, sink: Sink) -> hg.Job:
    return simple_job(spark, folder, form, [LENGTH], sink, groups=GROUPS)


def latencies(seconds: F64, period: float) -> F64:
    """Seconds from the arrival of each batch to its end, if they arrive this far apart and wait for each other."""
    made, free = np.empty(len(seconds)), 0.0
    for number, taken in enumerate(seconds):
        free = max(free, number * period) + taken
        made[number] = free - number * period
    return made


def race(spark: SparkSession, space: Path, setting: Setting, rng: np.random.Generator) -> dict[str, Run]:
    """All configurations over the stream, and both forms over the one that is spread evenly, in lockstep."""
    skewed, even = prepared(spark, space, setting, rng)
    steps = Lockstep(rng)
    sinks: dict[str, MemorySink] = {}
    progress: dict[str, list[dict[str, Any]]] = {}

    def start(name: str, gate: Gate) -> hg.Query:
        side, stream = SIDES.get(name), skewed if name in SIDES else even
        side = side or Side(EVEN[name], "none", 1)
        sinks[name] = hg.sinks.memory()
        checkpoint = fresh(space, name.replace(",", ""))
        query, progress[name] = stream.start(spark, checkpoint, setting, side, sinks[name], gate)
        return query

    for name in (*EVEN, *SIDES):
        steps.join(name, partial(start, name))
    skewed.built.read()
    steps.run(setting.batches - 1, lambda number: _say(number + 2, setting, steps))
    runs: dict[str, Run] = {}
    for name, gate in steps.gates.items():
        gate.leave()
        assert gate.query is not None
        course = Course(np.array(gate.seconds[: setting.batches]), tuple(progress[name][: setting.batches]))
        runs[name] = Run(course, tuple(gate.query.journal()))
        check_windows(sinks.pop(name).to_arrow(), (skewed if name in SIDES else even).wanted, name)
    return runs


def _say(done: int, setting: Setting, steps: Lockstep) -> None:
    if done % PER_MINUTE == 0:
        recent = {name: float(np.mean(gate.seconds[-PER_MINUTE:])) for name, gate in steps.gates.items()}
        print(f"  {done} of {setting.batches}: " + ", ".join(f"{name} {mean:.3f} s" for name, mean in recent.items()),
              flush=True)  # fmt: skip


def figure13(quick: bool) -> Report:
    """Latency that overload and migrations add, by how and how often key groups migrate."""
    setting = QUICK if quick else FULL
    rng = np.random.default_rng(13)
    with scratch() as space, session(SLOTS, SLOTS) as spark:
        # Python workers start, and Flux and the ways to move, which Numba compiles, are needed once before it counts.
        race(spark, space / "warm", QUICK, rng)
        shutil.rmtree(space / "warm")
        runs = race(spark, space / "timed", setting, rng)
    return _report(setting, runs)


def _report(setting: Setting, runs: dict[str, Run]) -> Report:
    first = setting.first
    seconds = {name: run.course.seconds[1:] for name, run in runs.items()}  # a query starts in its first batch
    calm = float(np.median([values[: first - 1] for values in seconds.values()]))
    beside = max(0.0, calm - setting.busy)
    period = beside + setting.busy / LOAD
    waited = {name: latencies(values, period) for name, values in seconds.items()}
    twins = {form: [waited[name] for name, own in EVEN.items() if own == form] for form in FORMS}
    one, other = twins["split"]
    noise = float(abs((one - other)[first - 1 :].mean()))
    added = {name: waited[name] - np.mean(twins[side.form], axis=0) for name, side in SIDES.items()}
    mean = {name: float(values[first - 1 :].mean()) for name, values in added.items()}
    least = max(mean[INSTANT], noise)
    ratio = {name: max(0.0, mean[name]) / least for name in mean}
    minutes = np.arange(1, setting.batches) / PER_MINUTE
    state = runs[EVERY_MINUTE].course.progress[first]["state_bytes"]
    picture, (panel,) = panels(
        1, f"Added to the latency of batches that are spread evenly. {SLOTS} slots; emulated {setting.service * 1e6:g} "
        "µs a row; the rows of one slot after another rise by half. Dotted: the next slot.", 9,
    )  # fmt: skip
    for name, values in added.items():
        panel.plot(minutes, values, label=name, linewidth=1.2)
    for node in range(setting.nodes):
        panel.axvline(setting.start + node * (setting.rise + setting.stay), color="grey", ls=":", lw=0.8)
    finish(panel, xlabel="minute of the stream", ylabel="added latency, s", from_zero=False)
    details = {name: _costs(runs[name]) for name in SIDES}
    copies = (
        f"Copying pauses a slot for {details[EVERY_MINUTE][-1]} and {details[EVERY_FIVE][-1]} at most, as state is "
        f"copied in columns (pauses alone are compared in figure 10). What is left is how late plans come, and without "
        f"copying too they come a batch of {60 / PER_MINUTE:g} s after what they are made from, in which rows rise by "
        f"{EXTRA / setting.rise / PER_MINUTE:.1%}. Two queries without any move differ by {millis(noise)} on average."
    )
    return Report(
        name="enorm_fig13",
        title="enorm, figure 13: instant against disruptive migration under overload",
        setup=f"The simple job: partials of a minute, a batch of {60 / PER_MINUTE:g} s, and windows of {LENGTH} "
        f"minutes, of which none closes before the end. For {BUILT} minutes every key comes once a minute: "
        f"{setting.group_keys:,} in each of {GROUPS} key groups ({state / 1e6:,.0f} MB of state in the combined form "
        f"when the overload begins). Then {setting.rows:,} rows a batch, of few keys, so that consolidating is a small "
        "part; every key group of a slot has as many, give or take one. For "
        f"{setting.start} minute(s) all slots have the same to do and nothing moves. Then the rows of one slot's key "
        f"groups rise by {EXTRA:.0%} within {setting.rise} minutes and stay so "
        f"for {setting.stay}, while those of the slot before go back; {setting.nodes} slots, one after another, by "
        f"the placement of the start. Flux plans, theta_max {THETA}, costs not smoothed, and no plan "
        f"is too small; but of the {setting.least:.2g} s that slots must be busy at all each stage has to have its "
        "share, so the consolidate of a split job, which takes milliseconds, is left alone. Disruptively, the combined "
        "component moves with its windows; instantly, the compute of the "
        f"split one (enorm 7.4). A row takes {setting.service * 1e6:g} µs in the compute's slot (emulated, "
        f"local[{SLOTS}]); consolidating is not emulated, and state is written, read and copied for real. All "
        "configurations run in lockstep, a batch of each in turn, in an order that is drawn for each round: Spark's "
        "part of a batch comes and goes in waves of minutes, which they all meet alike. A batch is timed by the clock, "
        "with all that Spark and headgate do for it, its plan too. Latency: batches are taken to arrive so far apart "
        f"that rows keep a slot busy for {LOAD:.0%} of the time at first, and the slot whose rows have risen for "
        f"{LOAD * (1 + EXTRA):.0%}, beside what else a batch takes ({beside:.2f} s); a batch waits until those before "
        "it are done. “Added” is what goes beyond the same batch of a query in the same form with as many rows that "
        "are spread evenly and no moves; in the split form there are two such queries. Where instant migration adds "
        "less than these differ by, ratios are against that. Windows of all queries are equal to pyarrow's.",
        claims=[
            Claim(
                "instant migration has at least 10 times less latency than disruptive migration every minute",
                f"{millis(mean[EVERY_MINUTE])} against {millis(mean[INSTANT])} added: {times(ratio[EVERY_MINUTE])}",
                ratio[EVERY_MINUTE] >= TARGET,
                copies,
            ),
            Claim(
                "at least 10 times less than disruptive migration every five minutes",
                f"{millis(mean[EVERY_FIVE])} against {millis(mean[INSTANT])} added: {times(ratio[EVERY_FIVE])}",
                ratio[EVERY_FIVE] >= TARGET,
                copies,
            ),
            Claim(
                "disruptive migration every minute has less latency than every five minutes",
                f"{millis(mean[EVERY_MINUTE])} against {millis(mean[EVERY_FIVE])}",
                mean[EVERY_MINUTE] < mean[EVERY_FIVE],
            ),
        ],
        tables=[
            Table(
                ("configuration", "added, mean", "added, most", "against instant", "plans", "key groups moved",
                 "copied", "longest pause"),
                [
                    (name, millis(mean[name]), millis(float(added[name][first - 1 :].max())), times(ratio[name]),
                     *details[name])
                    for name in SIDES
                ],
            ),
            Table(
                ("a batch by the clock, mean", "before anything changes", "from then on", "slowest slot", "the rest"),
                [(name, *map(millis, _parts(runs[name], first))) for name in runs],
            ),
        ],
        parameters={
            "rows": setting.rows, "service_s": setting.service, "batches": setting.batches,
            "period": f"{period:.2f} s, a batch at first {beside + setting.busy:.2f} s",
        },
        seed=13,
        notes=[
            "The paper has six nodes and a real cluster; this is scaled to what two cores do in minutes. Its key "
            "groups have 50,000 keys, and it does not say how many there are: these have fewer, so that slots can be "
            "levelled.",
            f"The means of the two queries that do the same differ by {millis(noise)}.",
            "By manifest is headgate's own way, shown beside the paper's.",
        ],
        picture=picture,
    )  # fmt: skip


def _parts(run: Run, first: int) -> tuple[float, float, float, float]:
    """Seconds of a batch before anything changes, and from then on; and of these, those of the slowest slot and all
    others."""
    seconds = run.course.seconds
    slots = np.array([max(each["slot_seconds"]) for each in run.course.progress])
    late = seconds[first:], slots[first:], (seconds - slots)[first:]
    return float(seconds[1:first].mean()), *(float(values.mean()) for values in late)  # type: ignore[return-value]


def _costs(one: Run) -> tuple[object, ...]:
    """Plans, key groups moved, bytes copied and the longest pause."""
    progress = one.course.progress
    plans = sum(entry.kind == "plan" for entry in one.journal)
    pause = max((float(each["pause_seconds"]) for each in one.migrated()), default=0.0)
    copied = sum(each["copied_bytes"] for each in progress)
    return plans, sum(each["moved_groups"] for each in progress), f"{copied / 1e6:.1f} MB", millis(pause)
