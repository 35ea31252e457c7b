"""enorm, figure 13: one slot after another gets more rows; key groups migrate, disruptively or at once, to keep up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import millis, scratch, session, times
from enorm_runs import Run, check_windows, expected_windows, fresh, rows_between, simple_job, steered, written
from headgate.arrays import F64, I64
from headgate.control import Policy
from headgate.planners import Flux, Limits
from headgate.routing import Assignment, key_hash
from reporting import Claim, Report, Table, finish, panels

SLOTS, GROUPS = 4, 128
PER_MINUTE = 3
"""Batches, each as long as a slice, so that every batch has the same to consolidate."""

LENGTH = 5
LOAD = 0.7
"""How busy slots are before anything changes: batches arrive that often."""

EXTRA = 0.5
THETA = 0.05
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
    def batches(self) -> int:
        """All that count."""
        return PER_MINUTE * (self.start + self.nodes * (self.rise + self.stay))

    @property
    def first(self) -> int:
        """The first batch with adaptation."""
        return PER_MINUTE * self.start


FULL = Setting(2, 3, 2, 3, 60_000, 50_000, 30e-6)
QUICK = Setting(1, 1, 1, 1, 3_000, 500, 100e-6)


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration: how key groups move, and how many batches lie between two plans."""

    migration: str
    every: int


SIDES = {
    "disruptive, every minute": Side("copy", PER_MINUTE),
    "disruptive, every five minutes": Side("copy", 5 * PER_MINUTE),
    "instant, continuously": Side("auto", 1),
    "by manifest, continuously": Side("manifest", 1),
}
EVERY_MINUTE, EVERY_FIVE, INSTANT, MANIFEST = SIDES


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


def streams(setting: Setting, rng: np.random.Generator) -> tuple[list[pa.Table], list[pa.Table]]:
    """The stream, and one with as many rows in each batch that are spread evenly. Slots are those of the start."""
    keys = np.arange(GROUPS * setting.group_keys)
    owners = Assignment.hashed(SLOTS, GROUPS, operators=2).route(key_hash(pa.array(keys)))
    pools = [keys[owners == slot] for slot in range(SLOTS)]

    def drawn(batch: int, shares: F64) -> pa.Table:
        counts = np.rint(setting.rows / SLOTS * shares).astype(int)
        picked: list[I64] = [rng.choice(pool, count) for pool, count in zip(pools, counts, strict=True)]
        return rows_between(rng.permutation(np.concatenate(picked)), batch / PER_MINUTE, (batch + 1) / PER_MINUTE, rng)

    skewed, even = [], []
    for batch in range(setting.batches):
        shares = weights(batch, setting)
        skewed.append(drawn(batch, shares))
        even.append(drawn(batch, np.full(SLOTS, shares.mean())))
    end = max(setting.batches / PER_MINUTE, LENGTH)
    last = [rows_between(rng.choice(keys, 100), end + at, end + at + 0.3, rng) for at in (0, 1, 2)]
    return skewed + last, even + last


def run(spark: SparkSession, folder: Path, checkpoint: Path, setting: Setting, side: Side | None, wanted: pa.Table,
        what: str) -> Run:  # fmt: skip
    """One configuration over a stream; None: nothing moves."""
    sink = hg.sinks.memory()
    job = simple_job(spark, folder, "split", [LENGTH], sink, groups=GROUPS, slice_seconds=60 // PER_MINUTE)
    options = {}
    if side is not None:
        limits = Limits(theta_max=THETA)
        options = {"migration": side.migration, "policy": Policy(every=side.every, limits=limits, smoothing=1.0)}
    script = {setting.first: lambda query: query.set_balance(Flux())} if side is not None else {}
    made = steered(
        job, spark, checkpoint, script, slots=SLOTS, service_time=setting.service, wait_for_plan="500 milliseconds",
        **options,
    )  # fmt: skip
    check_windows(sink.to_arrow(), wanted, what)
    return made


def latencies(seconds: F64, period: float) -> F64:
    """Seconds from the arrival of each batch to its end, if they arrive this far apart and wait for each other."""
    made, free = np.empty(len(seconds)), 0.0
    for number, taken in enumerate(seconds):
        free = max(free, number * period) + taken
        made[number] = free - number * period
    return made


def figure13(quick: bool) -> Report:
    """Latency that overload and migrations add, by how and how often key groups migrate."""
    setting = QUICK if quick else FULL
    rng = np.random.default_rng(13)
    runs: dict[str, Run] = {}
    with scratch() as space, session(SLOTS, SLOTS) as spark:
        skewed, even = streams(setting, rng)
        folder, wanted = written(space / "in", skewed), expected_windows(skewed, [LENGTH])
        level, level_wanted = written(space / "level", even), expected_windows(even, [LENGTH])
        del skewed, even
        warm = streams(QUICK, rng)[0][-5:]
        due = expected_windows(warm, [LENGTH])
        run(spark, written(space / "warm", warm), space / "w", QUICK, SIDES[EVERY_MINUTE], due, "warm-up")
        reference = run(spark, level, space / "reference", setting, None, level_wanted, "evenly spread")
        for name, side in SIDES.items():
            runs[name] = run(spark, folder, fresh(space, name.replace(",", "")), setting, side, wanted, name)
            moves = sum(each["moved_groups"] for each in runs[name].course.progress)
            print(f"  {name}: {moves} key groups moved", flush=True)
    return _report(setting, reference, runs)


def _report(setting: Setting, reference: Run, runs: dict[str, Run]) -> Report:
    count, first = setting.batches, setting.first
    base = reference.course.seconds[:count]
    period = float(np.median(base[1:first])) / LOAD
    level = latencies(base[1:], period)
    added = {name: latencies(one.course.seconds[1:count], period) - level for name, one in runs.items()}
    mean = {name: float(values[first - 1 :].mean()) for name, values in added.items()}
    least = max(mean[INSTANT], 1e-3)
    ratio = {name: mean[name] / least for name in mean}
    minutes = np.arange(1, count) / PER_MINUTE
    picture, (panel,) = panels(
        1, f"Added to the latency of batches that are spread evenly. {SLOTS} slots; emulated {setting.service * 1e6:g} "
        "µs a row; the rows of one slot after another rise by half. Dotted: the next slot.", 9,
    )  # fmt: skip
    for name, values in added.items():
        panel.plot(minutes, values, label=name, linewidth=1.2)
    for node in range(setting.nodes):
        panel.axvline(setting.start + node * (setting.rise + setting.stay), color="grey", ls=":", lw=0.8)
    finish(panel, xlabel="minute of the stream", ylabel="added latency, s", from_zero=False)
    details = {name: _costs(one) for name, one in runs.items()}
    return Report(
        name="enorm_fig13",
        title="enorm, figure 13: instant against disruptive migration under overload",
        setup=f"The simple job, split; partials of {60 // PER_MINUTE} s, which is also a batch, and windows of "
        f"{LENGTH} minutes. {setting.rows:,} rows a batch, keys drawn from {setting.group_keys:,} of each of {GROUPS} "
        f"key groups. For {setting.start} minutes all slots have the same to do and nothing moves. Then the rows of "
        f"one slot's key groups rise by {EXTRA:.0%} within {setting.rise} minutes and stay so for {setting.stay}, "
        f"while those of the slot before go back; {setting.nodes} slots, one after another, by the placement of the "
        f"start. Flux plans, theta_max {THETA}. A row takes {setting.service * 1e6:g} µs in its slot (emulated, "
        f"local[{SLOTS}]); state is written, read and copied for real. Latency: batches are timed one after another, "
        f"and taken to arrive so far apart that slots are busy for {LOAD:.0%} of the time at first; a batch waits "
        "until those before it are done. “Added” is what goes beyond the same batch of a run with as many rows that "
        "are spread evenly and no moves. Windows of all runs are equal to pyarrow's.",
        claims=[
            Claim(
                "instant migration has at least 10 times less latency than disruptive migration every minute",
                f"{millis(mean[EVERY_MINUTE])} against {millis(mean[INSTANT])} added: {times(ratio[EVERY_MINUTE])}",
                ratio[EVERY_MINUTE] >= TARGET,
            ),
            Claim(
                "at least 10 times less than disruptive migration every five minutes",
                f"{millis(mean[EVERY_FIVE])} against {millis(mean[INSTANT])} added: {times(ratio[EVERY_FIVE])}",
                ratio[EVERY_FIVE] >= TARGET,
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
                    for name in runs
                ],
            )
        ],
        parameters={
            "rows": setting.rows, "service_s": setting.service, "batches": count,
            "period": f"{period:.2f} s, a batch at first {period * LOAD:.2f} s",
        },
        seed=13,
        notes=[
            "The paper has six nodes and 50,000 keys a key group, all of them with state; here the state of a key "
            f"group is what came in {LENGTH} minutes, a few thousand partials.",
            "By manifest is headgate's own way, shown beside the paper's.",
        ],
        picture=picture,
    )  # fmt: skip


def _costs(one: Run) -> tuple[object, ...]:
    """Plans, key groups moved, bytes copied and the longest pause."""
    progress = one.course.progress
    plans = sum(entry.kind == "plan" for entry in one.journal)
    pause = max((float(each["pause_seconds"]) for each in one.migrated()), default=0.0)
    copied = sum(each["copied_bytes"] for each in progress)
    return plans, sum(each["moved_groups"] for each in progress), f"{copied / 1e6:.1f} MB", millis(pause)
