"""enorm, figures 11 and 12: split and combine, and what migrating costs altogether."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pyarrow as pa

import headgate as hg
from engine import millis, scratch, session
from enorm_migration import (
    GROUPS,
    LENGTH,
    NEGLIGIBLE,
    PARTS,
    ROW_BYTES,
    SLOTS,
    SMALL,
    WAYS,
    closing,
    moving,
    once,
    some,
    warm_up,
)
from enorm_runs import (
    COMPUTE,
    CORES,
    WINDOWS,
    Run,
    check_windows,
    expected_windows,
    fresh,
    move_on,
    simple_job,
    steered,
    written,
)
from reporting import Claim, Report, Table, finish, panels, rises

SPLIT_AT, MOVE_AT, COMBINE_AT = 4, 7, 12
"""Batches. Between the last two the slices of the compute that had begun when it moved close, so that a smooth move of
it is over when the halves are combined."""

COMBINES = {"disruptive": "copy", "smooth": "smooth", "auto": "auto"}


@dataclass(frozen=True, slots=True)
class Change:
    """What a split or a combine was, by the journal. ``event_seconds`` until nothing was left of it; ``joined``: the
    batches until the halves ran as they should."""

    ways: tuple[str, ...]
    moved_bytes: float
    pause_seconds: float
    batches: int
    event_seconds: float
    joined: int
    added_seconds: float

    @classmethod
    def of(cls, run: Run, batch: int, until: float = math.inf) -> Change:
        """The one that was asked for before this batch; ``until``: the batch of the next one."""
        begun = [one for one in run.journal if one.kind == "migration" and one.batch == batch]
        over = [
            one.details
            for one in run.journal
            if one.kind == "migrated" and one.batch - int(str(one.details["completion_batches"])) + 1 == batch
        ]
        assert len(over) == len(begun), "a migration is not over"
        batches = max((int(str(one["completion_batches"])) for one in over), default=1)
        progress, seconds = run.course.progress, run.course.seconds
        last = progress[batch + batches - 1]["watermark_micros"]
        joined = max(one.batch for one in run.journal if one.kind == "fused" and batch <= one.batch < until)
        return cls(
            tuple(sorted({str(one.details["way"]) for one in begun})),
            sum(float(str(one.details["state_bytes"])) for one in begun),
            max((float(str(one["pause_seconds"])) for one in over), default=0.0),
            batches,
            (last - progress[batch]["watermark_micros"]) / 1e6,
            joined - batch + 1,
            float(seconds[batch] - median(seconds[batch + 1 : batch + 3])),
        )


def _stream(keys: int, rows: int, rng: np.random.Generator) -> list[pa.Table]:
    """Two minutes of all keys, which are with the consolidate when halves are combined; then few rows: up to the split
    and the move in minute 2, around the combine in minute 4, and on until the windows after the next have closed."""
    tables = [once(keys, 0, 0.9, rng), once(keys, 1, 1.9, rng)]
    tables += [some(keys, rows, 2 + 0.1 * at, 2.1 + 0.1 * at, rng) for at in range(MOVE_AT - 1)]
    tables += [some(keys, rows, 4 + 0.1 * at, 4.1 + 0.1 * at, rng) for at in range(COMBINE_AT - MOVE_AT + 3)]
    tables += [some(keys, rows, 5 + at, 5.5 + at, rng) for at in range(LENGTH)]
    return tables + closing(keys, 2 * LENGTH + 1, rng)


def figure11(quick: bool) -> Report:
    """Pause and completion of taking a component apart and of putting it together."""
    sizes, rows = ((0.2,), 500) if quick else ((1.0, 5.0, 20.0, 50.0), 20_000)
    rng = np.random.default_rng(11)
    changes: dict[tuple[str, str, float], Change] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        warm_up(spark, space, rng)
        for size in sizes:
            keys = max(100, int(size * 1e6 / ROW_BYTES * PARTS / 2))
            tables = _stream(keys, rows, rng)
            folder, wanted = written(space / f"in-{size}", tables), expected_windows(tables, [LENGTH])
            for way, migration in COMBINES.items():
                script: dict[int, Callable[[hg.Query], None]] = {
                    SPLIT_AT: lambda query: query.split(WINDOWS),
                    MOVE_AT: moving(0, COMPUTE),
                    COMBINE_AT: lambda query: query.combine(WINDOWS),
                }
                sink = hg.sinks.memory()
                job = simple_job(spark, folder, "combined", [LENGTH], sink, groups=GROUPS)
                run = steered(job, spark, fresh(space, size, way), script, slots=SLOTS, migration=migration)
                check_windows(sink.to_arrow(), wanted, f"split and combine, {way}")
                for what, one in {
                    "split": Change.of(run, SPLIT_AT, COMBINE_AT),
                    "combine": Change.of(run, COMBINE_AT),
                }.items():
                    changes[what, way, size] = one
                    print(f"  {size} MB, {what}, {way}: {_moved(one)}, pause {millis(one.pause_seconds)}", flush=True)
    splits = [one for (what, _, _), one in changes.items() if what == "split"]
    combines = {way: [changes["combine", way, size] for size in sizes] for way in COMBINES}
    longest = {way: max(one.pause_seconds for one in those) for way, those in combines.items()}
    longest["split"] = max(one.pause_seconds for one in splits)
    copied = [one.pause_seconds for one in combines["disruptive"]]
    lasted = max(one.event_seconds for one in combines["smooth"]) / 60
    picture, panel = panels(2, f"A quarter of {GROUPS} key groups lies apart before the halves are combined.")
    for (what, way), style in {("split", "auto"): "o:", **{("combine", way): "o-" for way in COMBINES}}.items():
        those = [changes[what, way, size] for size in sizes]
        panel[0].plot(sizes, [1e3 * one.pause_seconds for one in those], style, label=f"{what}, {way}")
        panel[1].plot(sizes, [one.event_seconds / 60 for one in those], style, label=f"{what}, {way}")
    told = "state of a quarter of the key groups, about, MB"
    finish(panel[0], xlabel=told, ylabel="pause, ms", title="latency")
    finish(panel[1], xlabel=told, ylabel="minutes of event time until it is over", title="completion")
    return Report(
        name="enorm_fig11",
        title="enorm, figure 11: split and combine",
        setup=f"The simple job with windows of {LENGTH} minutes starts combined, is split, then a quarter of the key "
        "groups of the compute moves, and when that is over both are combined again, by which the key groups of the "
        "consolidate go to where those of the compute are, in the middle of a window. Size: the state of a quarter of "
        "the key groups. The pause is the longest that a slot spent on moved state; “added” is the batch's time beyond "
        "the median of the two that follow. Completion is counted from the batch of the change on, until nothing is "
        "left in an old slot, in batches and in event time; “in one task” until both halves run as one component "
        f"again. Windows are equal to pyarrow's. local[{CORES}], {SLOTS} slots.",
        claims=[
            Claim("split can be done instantly: finished at once, with negligible latency",
                  f"a pause of at most {longest['split'] * 1e3:.3f} ms, over within "
                  f"{max(one.batches for one in splits)} batch(es)",
                  longest["split"] <= NEGLIGIBLE and all(one.batches == 1 for one in splits)),
            Claim("combine with disruptive migration incurs latency relative to the state",
                  ", ".join(f"{size:g} MB: {millis(one)}" for size, one in zip(sizes, copied, strict=True)),
                  copied[-1] > NEGLIGIBLE and (len(sizes) < 2 or rises(copied)),
                  "The state of the small version is copied within the pause that counts as none." if quick else SMALL),
            Claim("combine with smooth migration incurs no latency, but can take as long as the longest window",
                  f"moved by {', '.join(sorted({way for one in combines['smooth'] for way in one.ways}))}: a pause of "
                  f"at most {longest['smooth'] * 1e3:.3f} ms, over after {lasted:.1f} minutes of event time; windows "
                  f"have {LENGTH}",
                  longest["smooth"] <= NEGLIGIBLE and all(one.ways == ("smooth",) for one in combines["smooth"])
                  and 0 < lasted <= LENGTH),
            Claim("headgate's own: combining by manifest needs neither to copy nor to wait for windows",
                  f"a pause of at most {longest['auto'] * 1e3:.3f} ms, over within "
                  f"{max(one.batches for one in combines['auto'])} batch(es)",
                  longest["auto"] <= NEGLIGIBLE and all(one.batches == 1 for one in combines["auto"])),
        ],
        tables=[
            Table(
                ("size", "change", "way", "moved", "pause", "over after batches", "event time until then",
                 "in one task, or two, after batches", "added"),
                [
                    (f"{size:g} MB", what, way, _moved(one), f"{one.pause_seconds * 1e3:.3f} ms", one.batches,
                     f"{one.event_seconds:.0f} s", one.joined, millis(one.added_seconds))
                    for (what, way, size), one in changes.items()
                ],
            )
        ],
        parameters={"rows": rows},
        seed=11,
        notes=[
            "By a split nothing moves: both halves stay where they were and the next batch has a stage more. Its pause "
            "is therefore none, and what the change costs a batch is under “added”.",
            "A smooth combine: the consolidate is handed over window by window while both halves are two tasks, which "
            "become one when the windows that had begun are over.",
        ],
        picture=picture,
    )  # fmt: skip


def _moved(one: Change) -> str:
    return f"{one.moved_bytes / 1e6:.1f} MB in {', '.join(one.ways)}" if one.ways else "nothing"


def figure12(quick: bool) -> Report:
    """Extra time to complete by the share of key groups that migrate."""
    shares = (0.0, 0.5, 1.0) if quick else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    keys, rows, rounds, minutes, start = (2_000, 2_000, 1, 3, 1) if quick else (100_000, 100_000, 3, 6, 2)
    per_minute = 2 if quick else 3
    rng = np.random.default_rng(12)
    ways = {name: WAYS[name] for name in ("instant", "disruptive")}
    seconds: dict[tuple[str, float], list[float]] = {(way, share): [] for way in ways for share in shares}
    copied: dict[tuple[str, float], float] = {}
    with scratch() as space, session(CORES, SLOTS) as spark:
        warm_up(spark, space, rng)
        total = minutes * per_minute
        tables = [some(keys, rows, at / per_minute, (at + 1) / per_minute, rng) for at in range(total)]
        tables += closing(keys, max(minutes, LENGTH) + 1, rng)
        folder, wanted = written(space / "in", tables), expected_windows(tables, [LENGTH])
        for turn in range(rounds):
            for share in shares[:: 1 if turn % 2 == 0 else -1]:
                for way, (form, migration) in ways.items():
                    groups = range(round(share * GROUPS))
                    at = [minute * per_minute + 1 for minute in range(start, minutes)] if groups else []
                    script = {batch: _sharing(groups) for batch in at}
                    sink = hg.sinks.memory()
                    job = simple_job(spark, folder, form, [LENGTH], sink, groups=GROUPS)
                    checkpoint = fresh(space, turn, share, way)
                    run = steered(job, spark, checkpoint, script, slots=SLOTS, migration=migration)
                    check_windows(sink.to_arrow(), wanted, f"{share:.0%}, {way}")
                    seconds[way, share].append(float(run.course.seconds[start * per_minute : -1].sum()))
                    copied[way, share] = sum(each["copied_bytes"] for each in run.course.progress)
                    print(f"  {share:.0%}, {way}: {seconds[way, share][-1]:.2f} s", flush=True)
    # Where nothing moves both ways are the same, so what others are compared with is the mean of the two.
    still = np.mean([seconds[way, 0.0] for way in ways], axis=0)
    rounds_of = {key: 100 * (np.array(values) / still - 1) for key, values in seconds.items()}
    extra = {key: float(np.median(values)) for key, values in rounds_of.items()}
    apart = max(abs(extra["instant", share] - extra["disruptive", share]) for share in shares)
    picture, (panel,) = panels(
        1, f"Medians of {rounds} round(s); the share moves once a minute for {minutes - start} minutes.", 7
    )
    for way in ways:
        panel.plot([100 * share for share in shares], [extra[way, share] for share in shares], "o-", label=way)
    finish(panel, xlabel="key groups that migrate, %", ylabel="extra time to complete, %", from_zero=False)
    return Report(
        name="enorm_fig12",
        title="enorm, figure 12: overhead of migrating",
        setup=f"The simple job, split, partials of a minute and windows of {LENGTH} minutes; {minutes} minutes of "
        f"{per_minute * rows:,} rows, {keys:,} keys. After {start} minutes a share of the {GROUPS} key groups of the "
        "compute moves once a minute, each to the next slot (the paper migrates once, after 20 minutes; several times "
        f"stand out better from noise). {rounds} round(s) in which all take turns; the extra is against the two runs "
        "of the same round in which nothing moves, whose own distance from their mean is noise. Windows are equal to "
        f"pyarrow's. local[{CORES}], {SLOTS} slots.",
        claims=[
            Claim(
                "the overhead is similar for both approaches",
                f"at most {apart:.0f} percentage points apart",
                apart <= 10,
            ),
            Claim(
                "instant migration incurs no performance overhead beyond what disruptive migration has",
                f"{extra['instant', 1.0]:.0f} % against {extra['disruptive', 1.0]:.0f} % where all key groups move",
                extra["instant", 1.0] <= extra["disruptive", 1.0] + 5,
            ),
        ],
        tables=[
            Table(
                ("that migrate", *(f"{way}: {what}" for way in ways for what in ("time", "extra", "copied"))),
                [
                    (
                        f"{share:.0%}",
                        *(
                            text
                            for way in ways
                            for text in (
                                f"{median(seconds[way, share]):.2f} s", f"{extra[way, share]:+.1f} %",
                                f"{copied[way, share] / 1e6:.1f} MB",
                            )
                        ),
                    )
                    for share in shares
                ],
            )
        ],
        parameters={"rows": rows, "keys": keys, "rounds": rounds, "minutes": minutes},
        seed=12,
        notes=[
            "Extra in the single rounds, %: "
            + "; ".join(
                f"{way} {share:.0%} " + ", ".join(f"{one:+.0f}" for one in rounds_of[way, share])
                for way in ways
                for share in shares
            )
        ],
        picture=picture,
    )  # fmt: skip


def _sharing(groups: Sequence[int]) -> Callable[[hg.Query], None]:
    return lambda query: move_on(query, groups, SLOTS, COMPUTE)
