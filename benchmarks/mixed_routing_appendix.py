"""mixed-routing, appendix: figures 17 to 21. Run them with ``mixed_routing_figures.py``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headgate.planners import Limits, MinMig, MinTable, Mixed, Planner
from intervals import (
    SLOTS,
    Setting,
    steps,
)
from reporting import Claim, Report, Table, about, falls, finish, panels
from sweeps import (
    JUDGED,
    LONGER,
    MUCH,
    NOISE,
    SMALL_TABLE,
    STABLE,
    STYLES,
    Case,
    Scale,
    common,
    costs,
    ratios,
    rows_of,
    span,
    sweep,
)


def figure_17(scale: Scale) -> Report:
    """The size of the routing table."""
    thetas = (0.02, 0.08, 0.15)
    exponents = scale.thin([0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    values = [2**exponent for exponent in exponents]

    def line(theta: float) -> Callable[[Any], Case]:
        return lambda size: (
            Mixed(),
            Limits(theta_max=theta, table_max=size),
            Setting(keys=scale.keys, seed=scale.seed),
        )

    lines = sweep(
        scale,
        "17",
        values,
        {f"Mixed, theta_max {theta:g}": line(theta) for theta in thetas},
        measured=2 * scale.measured,
        runs=1,
    )
    knees, reached = {}, {}
    for theta in thetas:
        by_size = lines[f"Mixed, theta_max {theta:g}"]
        least = costs(by_size)[-1]
        fits = [size for size, course in by_size.items() if course.missed_percent == 0]
        reached[theta] = min(fits) if fits else values[-1]
        above = [size for size, course in by_size.items() if course.migrated_percent > STABLE * least]
        knees[theta] = min((size for size in values if not above or size > max(above)), default=values[-1])
    small = {t: max(costs(lines[f"Mixed, theta_max {t:g}"])[:-1]) for t in thetas}
    drop = {t: small[t] / costs(lines[f"Mixed, theta_max {t:g}"])[-1] for t in thetas}
    peak = lines["Mixed, theta_max 0.08"][values[-1]].table_peak
    claims = [
        Claim(
            "with a small table Mixed migrates much, with one large enough much less",
            "; ".join(f"theta_max {t:g}: {ratio:.2f} times the least" for t, ratio in drop.items()),
            min(drop.values()) >= MUCH,
        ),
        Claim(
            "at theta_max = 0.08 the cost falls between N_A = 1,000 and 2,000",
            f"it is near its least from N_A = {knees[0.08]} on; theta_max is always reached from {reached[0.08]} on",
            1000 <= knees[0.08] <= 2048,
            f"{SMALL_TABLE} After all adjustments of this run the table holds {peak} entries when nothing limits it.",
        ),
        Claim(
            "a stricter theta_max needs a larger table",
            "; ".join(f"theta_max {t:g}: {size}" for t, size in reached.items())
            + " entries until it is always reached",
            reached[0.02] >= reached[0.08] >= reached[0.15] and reached[0.02] > reached[0.15],
        ),
    ]
    picture, (left, middle, right) = panels(
        3,
        "The paper: below the N_A that the tolerance needs, Mixed acts as MinTable and moves much state; from there on "
        "the cost falls drastically, at theta_max = 0.08 between 1,000 and 2,000. Here N_A is a hard limit: too small "
        "a table leaves theta_max unreached (right).",
    )
    for name, by_size in lines.items():
        left.plot(list(by_size), costs(by_size), "o-", label=name)
        middle.plot(list(by_size), [course.moves for course in by_size.values()], "o-", label=name)
        right.plot(list(by_size), [course.missed_percent for course in by_size.values()], "o-", label=name)
    labels = ("migration cost, % of all state (mean)", "keys moved (mean)", "plans that missed theta_max, %")
    for axes, label in zip((left, middle, right), labels, strict=True):
        axes.set_xscale("log", base=2)
        finish(axes, xlabel="table entries allowed N_A", ylabel=label)
    return Report(
        name="mixed_routing_fig17",
        title="mixed-routing, figure 17: varying the size of the routing table",
        setup=f"{JUDGED} The paper gives N_A up where it does not suffice; here it is a hard limit, and a plan may "
        "miss theta_max instead.",
        claims=claims,
        tables=[replace(rows_of(lines), title="By N_A")],
        parameters=common(scale, N_A="1..4096", measured=2 * scale.measured, runs=1),
        seed=scale.seed,
        picture=picture,
    )


def figure_18(scale: Scale) -> Report:
    """The table of MinMig over many adjustments."""
    keys, thetas = 10_000, (0.02, 0.08, 0.15)
    expected = (SLOTS - 1) / SLOTS * keys
    sizes: dict[float, list[int]] = {}
    for theta in thetas:
        setting, limits = Setting(keys=keys, seed=scale.seed), Limits(theta_max=theta, table_max=None)
        sizes[theta] = []
        start = time.perf_counter()
        for number, step in enumerate(steps(MinMig(), limits, setting, warm=0, measured=scale.adjustments), 1):
            sizes[theta].append(step.table_size)
            if number % 2000 == 0:
                print(f"  figure 18: theta_max {theta:g}, {number} adjustments, {step.table_size} entries", flush=True)
        print(f"  figure 18: theta_max {theta:g} done in {time.perf_counter() - start:.1f} s", flush=True)
    final = {theta: float(np.mean(line[-len(line) // 10 :])) for theta, line in sizes.items()}
    half = {t: next((at + 1 for at, size in enumerate(line) if size >= expected / 2), 0) for t, line in sizes.items()}
    early = [sizes[theta][len(sizes[theta]) // 10] for theta in thetas]
    shares = {theta: 100 * value / expected for theta, value in final.items()}
    claims = [
        Claim(
            "a smaller theta_max makes the table grow faster",
            "; ".join(f"theta_max {t:g}: {size:,}" for t, size in zip(thetas, early, strict=True))
            + f" entries after {scale.adjustments // 10:,} adjustments",
            early[0] > early[1] > early[2],
        ),
        Claim(
            "the sizes with different theta_max converge to the same",
            f"last tenth: {span(list(final.values()), ',.0f')} entries",
            max(final.values()) <= 1.05 * min(final.values()),
            f"After {scale.adjustments:,} adjustments they are still growing towards it.",
        ),
        Claim(
            f"that size is (N_D - 1) / N_D * K = {expected:,.0f} (the paper saw about 9,350)",
            "; ".join(f"theta_max {t:g}: {share:.1f} % of it" for t, share in shares.items()),
            all(about(value, expected, 0.05) for value in final.values()),
            f"After {scale.adjustments:,} adjustments the larger tolerances are not there yet.",
        ),
    ]
    picture, (axes,) = panels(
        1,
        "The paper: a smaller theta_max makes the table grow faster, and all converge to (N_D - 1) / N_D * K, about "
        "9,350 entries.",
        width=8,
    )
    for theta, line in sizes.items():
        axes.plot(np.arange(1, len(line) + 1), line, label=f"MinMig, theta_max {theta:g}")
    axes.axhline(expected, color="grey", linestyle="--", label=f"(N_D - 1) / N_D * K = {expected:,.0f}")
    finish(axes, xlabel="adjustments", ylabel="entries of the routing table")
    marks = [at for at in (1, 10, 100, 500, 1000, 2000, 4000, 6000, 8000, 10_000) if at <= scale.adjustments]
    return Report(
        name="mixed_routing_fig18",
        title="mixed-routing, figure 18: the routing table of MinMig over many adjustments",
        setup="MinMig, which does not limit its table, adjusts after every interval.",
        claims=claims,
        tables=[
            Table(
                ("adjustments", *(f"theta_max {theta:g}" for theta in thetas)),
                [(f"{at:,}", *(f"{sizes[theta][at - 1]:,}" for theta in thetas)) for at in marks],
            )
        ],
        notes=[
            "Half of the limit is reached after "
            + ", ".join(f"{at:,} (theta_max {theta:g})" if at else f"never ({theta:g})" for theta, at in half.items())
            + " adjustments."
        ],
        parameters=common(scale, K=keys, theta_max="0.02, 0.08, 0.15", N_A="none", measured=scale.adjustments, runs=1),
        seed=scale.seed,
        picture=picture,
    )


def figure_19(scale: Scale) -> Report:
    """The window."""
    values = scale.thin([1, 5, 10, 15, 20])

    def line(planner: Planner) -> Callable[[Any], Case]:
        return lambda window: (planner, Limits(), Setting(keys=scale.keys, window=window, seed=scale.seed))

    planners = {"Mixed": Mixed(), "MinTable": MinTable()}
    lines = sweep(
        scale,
        "19",
        values,
        {name: line(planner) for name, planner in planners.items()},
        measured=scale.measured,
        warm=max(values),
    )
    saved = ratios(costs(lines["MinTable"]), costs(lines["Mixed"]))
    claims = [
        Claim(
            "the migration cost of Mixed is smaller than MinTable's for every window",
            f"MinTable moves {span(saved)} times as much",
            min(saved) > 1,
        ),
        Claim(
            "a larger window gives more choice, so Mixed migrates less",
            ", ".join(f"w = {w}: {cost:.2f} %" for w, cost in zip(values, costs(lines["Mixed"]), strict=True)),
            falls(costs(lines["Mixed"])),
        ),
    ]
    picture, (axes,) = panels(
        1,
        "The paper: Mixed moves less state than MinTable, the larger the window the less.",
        width=7,
    )
    for name, by_window_size in lines.items():
        axes.plot(list(by_window_size), costs(by_window_size), marker=STYLES[name], label=name)
    axes.set_xticks(values)
    finish(axes, xlabel="window w, intervals", ylabel="migration cost, % of all state (mean)")
    return Report(
        name="mixed_routing_fig19",
        title="mixed-routing, figure 19: varying the window",
        setup=f"{JUDGED} Every window is full before the first adjustment counts.",
        claims=claims,
        tables=[replace(rows_of(lines), title="By w")],
        notes=[LONGER],
        parameters=common(scale, w="1..20"),
        seed=scale.seed,
        picture=picture,
    )


def figure_20(scale: Scale) -> Report:
    """Beta: figures 20 and 21."""
    values = scale.thin([round(1 + 0.1 * step, 1) for step in range(11)])
    thetas = (0.02, 0.08, 0.15)

    def line(theta: float) -> Callable[[Any], Case]:
        limits = Limits(theta_max=theta, table_max=None)
        return lambda beta: (MinMig(beta=beta), limits, Setting(keys=scale.keys, seed=scale.seed))

    names = {theta: f"MinMig, theta_max {theta:g}" for theta in thetas}
    lines = sweep(scale, "20", values, {names[theta]: line(theta) for theta in thetas}, measured=10, warm=0)
    tables = {theta: [course.table_size for course in lines[names[theta]].values()] for theta in thetas}
    moved = {theta: costs(lines[names[theta]]) for theta in thetas}
    late = {t: [s for beta, s in zip(values, sizes, strict=True) if beta >= 1.5] for t, sizes in tables.items()}
    claims = [
        Claim(
            "the larger beta, the smaller the table",
            "; ".join(f"theta_max {t:g}: {sizes[0]:,.0f} to {sizes[-1]:,.0f} entries" for t, sizes in tables.items()),
            all(falls(sizes, slack=NOISE) for sizes in tables.values()),
            f"The fall is between beta = {values[0]:g} and {values[1]:g}; from there to {values[-1]:g}: "
            + "; ".join(f"theta_max {t:g} {sizes[1]:,.0f} to {sizes[-1]:,.0f}" for t, sizes in tables.items())
            + " entries.",
        ),
        Claim(
            "from beta = 1.5 to 2 the table is stable",
            "; ".join(f"theta_max {t:g}: {span(sizes, '.0f')}" for t, sizes in late.items()),
            all(max(sizes) <= STABLE * min(sizes) for sizes in late.values()),
        ),
        Claim(
            "a larger beta looks more at load and less at the migration cost",
            "; ".join(f"theta_max {t:g}: {line[0]:.2f} % to {line[-1]:.2f} %" for t, line in moved.items()),
            all(line[-1] > line[0] for line in moved.values()),
        ),
    ]
    picture, (left, right) = panels(
        2,
        "Means of 10 adjustments. The paper: a larger beta makes a smaller table, stable from 1.5 on (figure 20), and "
        "weighs load over state (figure 21); its default is 1.5.",
    )
    for theta in thetas:
        left.plot(values, tables[theta], "o-", label=names[theta])
        right.plot(values, moved[theta], "o-", label=names[theta])
    left.set_yscale("log")
    finish(left, title="figure 20", xlabel="beta", ylabel="entries of the routing table (mean)")
    finish(right, title="figure 21", xlabel="beta", ylabel="migration cost, % of all state (mean)")
    return Report(
        name="mixed_routing_fig20_21",
        title="mixed-routing, figures 20 and 21: varying beta",
        setup=f"MinMig, the first 10 adjustments after hashing. {JUDGED}",
        claims=claims,
        tables=[replace(rows_of(lines), title="By beta")],
        parameters=common(scale, beta="1..2", N_A="none", measured=10),
        seed=scale.seed,
        picture=picture,
    )
