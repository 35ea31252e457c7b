"""enorm, figures 11 and 12: split and combine, and what migrating costs altogether."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

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
    check_windows,
    expected_windows,
    fresh,
    move_on,
    simple_job,
    steered,
    written,
)
from reporting import Claim, Report, Table, finish, panels, rises

SPLIT_AT, MOVE_AT, COMBINE_AT, END_AT = 4, 7, 10, 13
COMBINES = {"disruptive": "copy", "smooth, where possible": "smooth", "auto": "auto"}


def figure11(quick: bool) -> Report:
    """Pause and completion of taking a component apart and of putting it together."""
    sizes, rows = ((0.2,), 500) if quick else ((1.0, 5.0, 20.0), 20_000)
    rng = np.random.default_rng(11)
    lines: list[tuple[object, ...]] = []
    pause: dict[tuple[str, str, float], float] = {}
    done: dict[tuple[str, str, float], int] = {}
    smooth_ways: set[str] = set()
    with scratch() as space, session(CORES, SLOTS) as spark:
        warm_up(spark, space, rng)
        for size in sizes:
            keys = max(100, int(size * 1e6 / ROW_BYTES * PARTS))
            # Two minutes of all keys: the first is with the consolidate when the second is with the compute.
            tables = [once(keys, 0, 0.9, rng), once(keys, 1, 1.1, rng)]
            count = END_AT - 2
            tables += [some(keys, rows, 1.1 + 0.8 * n / count, 1.1 + 0.8 * (n + 1) / count, rng) for n in range(count)]
            tables += [some(keys, rows, 2 + n, 2.5 + n, rng) for n in range(LENGTH)]
            tables += closing(keys, 2 * LENGTH + 1, rng)
            folder, wanted = written(space / f"in-{size}", tables), expected_windows(tables, [LENGTH])
            for way, migration in COMBINES.items():
                script: dict[int, Callable[[hg.Query], None]] = {
                    SPLIT_AT: lambda query: query.split(WINDOWS),
                    COMBINE_AT: lambda query: query.combine(WINDOWS),
                }
                if migration != "smooth":
                    script[MOVE_AT] = moving(0, COMPUTE)
                else:  # what is being handed over cannot move again, so the consolidate goes elsewhere instead
                    script[MOVE_AT] = moving(0, WINDOWS)
                sink = hg.sinks.memory()
                job = simple_job(spark, folder, "combined", [LENGTH], sink, groups=GROUPS)
                run = steered(job, spark, fresh(space, size, way), script, slots=SLOTS, migration=migration)
                check_windows(sink.to_arrow(), wanted, f"split and combine, {way}")
                for what, batch in (("split", SPLIT_AT), ("combine", COMBINE_AT)):
                    begun = [one for one in run.journal if one.kind == "migration" and one.batch == batch]
                    over = [
                        one.details
                        for one in run.journal
                        if one.kind == "migrated" and one.batch - int(str(one.details["completion_batches"])) == batch
                    ]
                    assert len(over) == len(begun), "a migration is not over"
                    waited = max((float(str(one["pause_seconds"])) for one in over), default=0.0)
                    batches = max((int(str(one["completion_batches"])) for one in over), default=1)
                    moved = sum(float(str(one.details["state_bytes"])) for one in begun)
                    ways = sorted({str(one.details["way"]) for one in begun})
                    pause[what, way, size], done[what, way, size] = waited, batches
                    if what == "combine" and migration == "smooth":
                        smooth_ways.update(ways)
                    last = run.course.progress[batch + batches - 1]["watermark_micros"]
                    seconds = (last - run.course.progress[batch]["watermark_micros"]) / 1e6
                    after = median(run.course.seconds[batch + 1 : batch + 3])
                    extra = float(run.course.seconds[batch] - after)
                    name = f"{moved / 1e6:.1f} MB in {', '.join(ways)}" if ways else "nothing"
                    lines.append((f"{size:g} MB", what, way, name, f"{waited * 1e3:.3f} ms", batches,
                                  f"{seconds:.0f} s", millis(extra)))  # fmt: skip
                    print(f"  {size} MB, {what}, {way}: {name}, pause {millis(waited)}", flush=True)
    split = max(value for (what, _, _), value in pause.items() if what == "split")
    copied = [pause["combine", "disruptive", size] for size in sizes]
    smooth = max(pause["combine", "smooth, where possible", size] for size in sizes)
    auto = max(pause["combine", "auto", size] for size in sizes)
    picture, (panel,) = panels(1, f"A quarter of {GROUPS} key groups lies apart before the halves are combined.", 7)
    for (what, way), style in {("split", "auto"): "o:", **{("combine", way): "o-" for way in COMBINES}}.items():
        panel.plot(sizes, [1e3 * pause[what, way, size] for size in sizes], style, label=f"{what}, {way}")
    finish(panel, xlabel="state of a quarter of the key groups, about, MB", ylabel="pause, ms")
    return Report(
        name="enorm_fig11",
        title="enorm, figure 11: split and combine",
        setup=f"The simple job with windows of {LENGTH} minutes starts combined, is split, then a quarter of the key "
        "groups of one half moves, and three batches later it is combined again, by which the key groups of the "
        "consolidate go back to those of the compute. Size: the state of a quarter of the key groups in a minute. "
        "The pause is the longest that a slot spent on moved state; “added” is the batch's time beyond the median of "
        "the two that follow, which run in the same form. Completion is counted from the batch of the change on, in "
        f"batches and in seconds of event time. Windows are equal to pyarrow's. local[{CORES}], {SLOTS} slots.",
        claims=[
            Claim("split can be done instantly: finished at once, with negligible latency",
                  f"a pause of at most {split * 1e3:.3f} ms, over within "
                  f"{max(done['split', way, s] for way in COMBINES for s in sizes)} batch(es)",
                  split <= NEGLIGIBLE and all(done["split", way, s] == 1 for way in COMBINES for s in sizes)),
            Claim("combine with disruptive migration incurs latency relative to the state",
                  ", ".join(f"{size:g} MB: {millis(one)}" for size, one in zip(sizes, copied, strict=True)),
                  copied[-1] > NEGLIGIBLE and (len(sizes) < 2 or rises(copied)),
                  "The state of the small version is copied within the pause that counts as none." if quick else SMALL),
            Claim("combine with smooth migration incurs no latency, but can take as long as the longest window",
                  f"moved by {', '.join(sorted(smooth_ways))}: a pause of at most {smooth * 1e3:.3f} ms, over within "
                  f"{max(done['combine', 'smooth, where possible', size] for size in sizes)} batch(es)",
                  smooth <= NEGLIGIBLE and smooth_ways == {"smooth"},
                  "What moves in a combine is the consolidate, to where the compute is. Its rows come from another "
                  "operator and may be of any time, so smooth migration does not apply to it; headgate moves it by "
                  "manifest instead, which pauses no longer and does not wait for windows either."),
            Claim("headgate's own: combining by manifest needs neither to copy nor to wait for windows",
                  f"a pause of at most {auto * 1e3:.3f} ms, over within "
                  f"{max(done['combine', 'auto', size] for size in sizes)} batch(es)",
                  auto <= NEGLIGIBLE and all(done["combine", "auto", size] == 1 for size in sizes)),
        ],
        tables=[
            Table(
                ("size", "change", "way", "moved", "pause", "over after batches", "event time until then", "added"),
                lines,
            )
        ],
        parameters={"rows": rows},
        seed=11,
        notes=[
            "By a split nothing moves: both halves stay where they were and the next batch has a stage more. Its pause "
            "is therefore none, and what the change costs a batch is under “added”.",
            "Before a smooth combine it is the consolidate that is moved, since key groups of the compute that are "
            "still handed over cannot be combined.",
        ],
        picture=picture,
    )  # fmt: skip


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
