"""blocking-rate, the experiments that look into one run: figures 5, 8, 12 and the top of figure 11."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headgate.regions import BlockingRate, Fixed, RoundRobin
from regions_runs import ADAPTIVE, ORACLE, ROBIN, Run, Setting, items_for, loaded, run
from regions_work import Work
from reporting import Claim, Report, Table, about, finish, panels

SERVICE = "Workers are processes behind real sockets; an item costs service time (sleep), not processor time."
PROCESSOR = "Workers are processes behind real sockets; an item costs processor time (integer multiplications)."

SETTLED_SHARE = 0.02
"""A worker 100 times slower has settled below this share of the load; the right one is 0.5 %."""

SETTLED_WITHIN = 20
"""Sampling periods: the target."""


def figure5(quick: bool) -> Report:
    """Fixed splits between two equal workers, and the blocking rates over time."""
    cost, source, seconds = 0.002, 0.0010, 4.0 if quick else 10.0
    splits, runs = (80, 70, 60, 50), {}
    for split in splits:
        rate = min(1 / source, 1 / cost / (split / 100))
        setting = Setting(work=Work(cost, (1.0, 1.0)), items=int(seconds * rate), source=source)
        runs[split] = run(f"{split}/{100 - split}", setting, Fixed([split, 100 - split]))
    means = {split: float(np.mean([each[0] for each in of.rates[5:]])) for split, of in runs.items()}
    spread = {split: float(np.std([each[0] for each in of.rates[5:]])) for split, of in runs.items()}
    both = {split: float(np.mean([each.sum() for each in of.rates[5:]])) for split, of in runs.items()}
    claims = [
        Claim(
            "the blocking rate of connection 1 falls with its weight: 80, 70, 60, 50 %",
            ", ".join(f"{split} %: {means[split]:.2f}" for split in splits),
            means[80] > means[70] > means[60] > means[50],
        ),
        Claim(
            "at 80, 70 and 60 % the rate is flat over time",
            "standard deviation " + ", ".join(f"{spread[split]:.3f}" for split in (80, 70, 60)),
            all(spread[split] < 0.25 * means[split] for split in (80, 70, 60)),
            "Other programs share the two processors, and a period of a tenth of a second shows it.",
        ),
        Claim(
            "at 50 % the blocking changes hands between the connections",
            f"connection 1 has {100 * means[50] / max(both[50], 1e-9):.0f} % of the waiting",
            0.02 < means[50] / max(both[50], 1e-9) < 0.98,
        ),
    ]
    picture, axes = panels(4, "Blocking rate of both connections over time at fixed weights.", width=3.4, height=3.4)
    for ax, (split, of) in zip(axes, runs.items(), strict=True):
        for worker in (0, 1):
            ax.plot(of.at, [each[worker] for each in of.rates], label=f"connection {worker + 1}")
        finish(ax, title=f"{split}/{100 - split}", xlabel="seconds", ylabel="blocking rate", ylim=(0, 1))
    rows = [
        (f"{split}/{100 - split}", means[split], spread[split], both[split] - means[split], of.items / of.seconds)
        for split, of in runs.items()
    ]
    columns = ("split", "mean rate of 1", "standard deviation", "mean rate of 2", "items/s")
    return Report(
        name="regions_fig05",
        title="blocking-rate, Figure 5: fixed splits and their blocking rates",
        setup=f"Two equal workers, {1000 * cost:g} ms an item. {SERVICE} The source gives an item every "
        f"{1000 * source:g} ms, so that it sets the pace where the workers keep up.",
        claims=claims,
        tables=[Table(columns, rows)],
        parameters={"period": "0.1 s", "items": "as many as take some ten seconds"},
        seed=0,
        picture=picture,
    )


def settled(of: Run, slow: Sequence[int], until: int, share: float = SETTLED_SHARE) -> int | None:
    """The period from which on each slow worker has at most this share, until so many results have left."""
    end = of.periods(until)
    last_high = -1
    for at, weights in enumerate(of.weights[:end]):
        if max(int(weights[worker]) for worker in slow) > 1000 * share:
            last_high = at
    return last_high + 2 if last_high + 1 < end else None


def figure8(quick: bool) -> Report:
    """Three workers, one of them 100 times slower until an eighth; and three equal ones."""
    cost, period, seconds = 0.001, 0.25, 10.0 if quick else 30.0
    slow = loaded(3, 1, 100.0)
    items = items_for(seconds, cost, slow, leaves=True)
    top = Setting(work=Work(cost, slow, items // 8), items=items, period=period)
    oracle = run(ORACLE, top, top.oracle())
    ours = run(ADAPTIVE, top, BlockingRate())
    robin = run(ROBIN, top, RoundRobin(), 0.02 if quick else 0.05)
    found = settled(ours, [0], items // 8)
    level = Setting(work=Work(0.002, (1.0,) * 3), items=int((3.0 if quick else 8.0) * 3 / 0.002))
    rounds = [(run(ROBIN, level, RoundRobin()), run(ADAPTIVE, level, BlockingRate())) for _ in range(1 if quick else 3)]
    ratios = sorted(mine.seconds / plain.seconds for plain, mine in rounds)
    ratio, equal = float(np.median(ratios)), rounds[-1][1]
    lowest = min(int(each.min()) for each in equal.weights)
    recovered = [number for number, weight in enumerate(ours.column(0)) if weight >= 250]
    after = next((number for number in recovered if number > ours.periods(items // 8)), None)
    claims = [
        Claim(
            "top: settles on a sustainable distribution (within 15 samples); target: within 20",
            f"{found} periods until the slow connection stays below {SETTLED_SHARE:.0%}"
            if found is not None
            else "not before the load left",
            found is not None and found <= SETTLED_WITHIN,
        ),
        Claim(
            "top: the connection climbs back to an even share once the load is gone",
            f"a quarter of the load {after - ours.periods(items // 8)} periods later" if after else "never",
            after is not None,
        ),
        Claim(
            "target: after the load is removed, final throughput at least 95 % of Oracle*'s",
            f"{ours.final / oracle.final:.1%}",
            ours.final >= 0.95 * oracle.final,
        ),
        Claim(
            "top: dynamic balancing far faster than round-robin",
            f"{robin.total / ours.total:.1f} times faster; {ours.total / oracle.total:.2f} times Oracle*'s time",
            robin.total > 3 * ours.total,
        ),
        Claim(
            "bottom, target: equal workers at most 5 % slower than round-robin",
            f"{ratio - 1:+.1%} (median of {len(ratios)} rounds: {', '.join(f'{each - 1:+.1%}' for each in ratios)})",
            ratio <= 1.05,
        ),
        Claim(
            "bottom: the draft leader drops to 0 first, and all end at an even split",
            f"lowest weight on the way {lowest}, at the end {', '.join(map(str, equal.weights[-1]))}",
            abs(int(equal.weights[-1].max()) - int(equal.weights[-1].min())) <= 100,
            "Ours is meant not to drop anybody; the last weights are of one period.",
        ),
    ]
    picture = _depth(
        [("one 100 times slower", ours), ("equal", equal)],
        [ours.at[min(ours.periods(items // 8), len(ours.at) - 1)], None],
    )
    columns = ("run", "total s", "items/s at the end", "periods")
    rows = [(of.name, of.total, of.final, len(of.at)) for of in (oracle, ours, robin)]
    return Report(
        name="regions_fig08",
        title="blocking-rate, Figure 8: three workers, one loaded, and three equal ones",
        setup=f"Top: {1000 * cost:g} ms an item, worker 1 takes 100 times as long for the first eighth of {items:,} "
        f"items. Bottom: 2 ms an item, all equal. {SERVICE}",
        claims=claims,
        tables=[
            Table(columns, rows, "Top"),
            Table(
                ("round", "RR s", "LB-adaptive s"),
                [(number, plain.seconds, mine.seconds) for number, (plain, mine) in enumerate(rounds, 1)],
                "Bottom",
            ),
        ],
        parameters={"period": f"{period:g} s (top), 0.1 s (bottom)"},
        seed=0,
        notes=[_part_note(robin)],
        picture=picture,
    )


def _part_note(of: Run) -> str:
    return (
        f"Round-robin was run on {of.part:.0%} of the items and its time scaled up: it does not adapt, so its time is "
        "proportional."
    )


def _depth(runs: Sequence[tuple[str, Run]], marks: Sequence[float | None]) -> Figure:
    """A row per run, a panel per connection: weight on the left axis, blocking rate on the right."""
    from matplotlib import pyplot as plt

    width = max(len(of.weights[0]) for _, of in runs)
    figure, grid = plt.subplots(len(runs), width, figsize=(4.2 * width, 3.0 * len(runs)), squeeze=False)
    for axes, (title, of), mark in zip(grid, runs, marks, strict=True):
        for worker, ax in enumerate(axes):
            _connection(ax, of, worker, f"{title}: connection {worker + 1}", mark)
    figure.tight_layout()
    return figure


def _connection(ax: Axes, of: Run, worker: int, title: str, mark: float | None) -> None:
    ax.step(of.at, [weight / 10 for weight in of.column(worker)], where="post", color="tab:blue")
    ax.set(title=title, xlabel="seconds", ylim=(0, 100))
    ax.set_ylabel("weight, % of the items", color="tab:blue")
    ax.grid(alpha=0.3)
    right = ax.twinx()
    right.plot(of.at, [each[worker] for each in of.rates], color="tab:red", linewidth=0.7, alpha=0.6)
    right.set(ylim=(0, 1))
    right.set_ylabel("blocking rate", color="tab:red")
    if mark is not None:
        ax.axvline(mark, color="black", linestyle=":", linewidth=1)


FAST, SLOW = 65, 35
"""What a fast and a slow host can do, relative to each other: what the paper's balancer found."""


def heterogeneous_depth(quick: bool) -> tuple[Run, Run, Run]:
    """The top of figure 11: two workers, one fast, one slow, with real processor work."""
    times = 20_000
    work = Work(0.0, (1.0, FAST / SLOW), multiplies=times)
    items = 2_000 if quick else 12_000
    setting = Setting(work=work, items=items, period=0.2)
    return (
        run(ORACLE, setting, setting.oracle()),
        run(ADAPTIVE, setting, BlockingRate()),
        run(ROBIN, setting, RoundRobin()),
    )


def figure12(quick: bool) -> Report:
    """64 workers in three classes: weights over time, and who was clustered with whom."""
    sizes, factors, cost = (20, 20, 24), (100.0, 5.0, 1.0), 0.008
    if quick:
        sizes = (5, 5, 6)
    classes = np.repeat([0, 1, 2], sizes)
    slowdowns = tuple(float(factors[each]) for each in classes)
    period, seconds = 0.5, 15.0 if quick else 60.0
    items = items_for(seconds, cost, slowdowns, leaves=False)
    setting = Setting(work=Work(cost, slowdowns), items=items, period=period)
    oracle = run(ORACLE, setting.scaled(0.25), setting.oracle(), 1.0)
    ours = run(ADAPTIVE, setting, BlockingRate())
    late = ours.weights[-10:]
    means = [float(np.mean([each[classes == which].mean() for each in late])) for which in range(3)]
    mixed = _mixed(ours.clusters[-1], classes)
    rate = oracle.items / oracle.seconds
    claims = [
        Claim(
            "the 100 times slower end with the least weight, the 5 times slower with less than the others",
            f"mean weights at the end {', '.join(f'{mean:.1f}' for mean in means)}",
            means[0] < means[1] < means[2],
        ),
        Claim(
            "5 times slower: no more than 2 (%) each; unloaded: about 4 (%)",
            f"{means[1] / 10:.2f} % and {means[2] / 10:.2f} %",
            means[1] / 10 <= 2 and about(means[2] / 10, 4),
            "In proportion to speed the unloaded would get 3.5 %, the 5 times slower 0.7 %.",
        ),
        Claim(
            "in the end no cluster has connections of two classes",
            f"{mixed} of {len(set(ours.clusters[-1].tolist()))} clusters are mixed",
            mixed == 0,
            "The clusters are those of the last sample.",
        ),
        Claim(
            "(ours) final throughput near Oracle*'s",
            f"{ours.final / rate:.0%}",
            ours.final >= 0.75 * rate,
        ),
    ]
    return Report(
        name="regions_fig12",
        title=f"blocking-rate, Figure 12: {sum(sizes)} workers in three classes",
        setup=f"{sizes[0]} workers 100 times slower, {sizes[1]} 5 times slower, {sizes[2]} at {1000 * cost:g} ms an "
        f"item. {SERVICE}",
        claims=claims,
        tables=[
            Table(
                ("class", "workers", "mean weight at the end, %", "in proportion to speed, %"),
                [
                    (f"{factors[at]:g}x", sizes[at], means[at] / 10, 100 / factors[at] / sum(1 / s for s in slowdowns))
                    for at in range(3)
                ],
            )
        ],
        parameters={"period": f"{period:g} s", "items": items},
        seed=0,
        picture=_classes(ours, classes),
    )


def _mixed(clusters: Any, classes: Any) -> int:
    return sum(len(set(classes[clusters == each].tolist())) > 1 for each in set(clusters.tolist()))


def _classes(of: Run, classes: Any) -> Figure:
    picture, (left, right) = panels(
        2,
        "Left: weight of each connection over time. Right: a row per sample, time downwards; equal colours in a row "
        "are one cluster, numbered in the order in which they first occur.",
        width=6.5,
        height=5.0,
    )
    colours = ("tab:red", "tab:orange", "tab:blue")
    for worker, which in enumerate(classes):
        left.plot(of.at, [weight / 10 for weight in of.column(worker)], color=colours[which], alpha=0.5, linewidth=0.8)
    for name, colour in zip(("100x", "5x", "1x"), colours, strict=True):
        left.plot([], [], color=colour, label=name)
    finish(left, xlabel="seconds", ylabel="weight, % of the items", title="weights")
    shown = np.array([[_dense(row)[at] % 20 for at in range(len(row))] for row in of.clusters])
    right.imshow(shown, aspect="auto", interpolation="nearest", cmap="tab20", extent=(0, len(classes), of.at[-1], 0))
    right.set(xlabel="connection", ylabel="seconds", title="clusters")
    for edge in np.flatnonzero(np.diff(classes)) + 1:
        right.axvline(float(edge), color="black", linewidth=1)
    return picture


def _dense(row: Any) -> list[int]:
    seen: dict[int, int] = {}
    return [seen.setdefault(int(each), len(seen)) for each in row]
