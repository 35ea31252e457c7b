"""blocking-rate, the experiments over numbers of workers: figures 9, 10, 11 and 13."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from headgate.regions import Balancer, BlockingRate, RoundRobin
from regions_depth import FAST, PROCESSOR, SERVICE, SETTLED_WITHIN, SLOW, heterogeneous_depth
from regions_runs import ADAPTIVE, ORACLE, ROBIN, STATIC, WAITS, Run, Setting, items_for, loaded, run
from regions_work import Work
from reporting import Claim, Report, Table, finish, panels

NAMES = (ORACLE, STATIC, WAITS, ADAPTIVE, ROBIN)

Runs = dict[int, dict[str, Run]]
"""By number of workers and alternative: of several rounds the one whose time is the median."""

ROUNDS = 3
"""Where the load leaves, Oracle* and LB-adaptive take turns so many times: what the machine does to a single run is as
large as what is to be told apart."""

PERIODS, RECOVERY_PERIODS = 70, 80
"""Sampling periods that Oracle* takes, about; and where the load leaves, since what matters then comes afterwards."""

MEDIUM = {2: (0.002, 0.1), 4: (0.002, 0.1), 8: (0.002, 0.1), 16: (0.004, 0.1)}
"""For each number of workers the cost of an item and the sampling period, in seconds, where half are 10 times slower:
16 workers that need 2 ms would ask for 8,000 frames a second, more than the splitter sends here."""

HEAVY = {2: (0.0005, 0.1), 4: (0.0005, 0.15), 8: (0.001, 0.3), 16: (0.004, 0.4), 32: (0.01, 0.5), 64: (0.02, 0.5)}
"""For each number of workers the cost of an item and the sampling period, in seconds, where half are 100 times slower:
one splitter, in Python and on two processors that it shares with the workers, sends a few thousand frames a second, and
a slow worker should do several items a period. With 32 and 64 workers it takes a period or more for one."""

ROBIN_SECONDS = 6.0
"""Round-robin is run on so few items that it takes about this long, and its time is scaled up."""


def sweep(
    workers: Sequence[int], factor: float, costs: Mapping[int, tuple[float, float]], *, leaves: bool, periods: int
) -> Runs:
    """Half of the workers slower: all alternatives, at every number of workers, for so many periods of Oracle*."""
    runs: Runs = {}
    for count in workers:
        cost, period = costs[count]
        slowdowns = loaded(count, count // 2, factor)
        items = items_for(periods * period, cost, slowdowns, leaves=leaves)
        setting = Setting(work=Work(cost, slowdowns, items // 8 if leaves else None), items=items, period=period)
        slow_part = items / 8 if leaves else items
        robin_takes = slow_part * cost * factor / count
        parts = {ROBIN: min(1.0, ROBIN_SECONDS / robin_takes)}
        balancers = setting.balancers()
        rounds = [
            {name: run(name, setting, balancers[name](), parts.get(name, 1.0)) for name in names}
            for names in (NAMES, *((ORACLE, ADAPTIVE) for _ in range(ROUNDS - 1) if leaves))
        ]
        runs[count] = {name: _median([each[name] for each in rounds if name in each]) for name in NAMES}
        for name, of in runs[count].items():
            of.finals = [each[name].final for each in rounds if name in each]
    return runs


def _median(of: Sequence[Run]) -> Run:
    return sorted(of, key=lambda each: each.seconds)[(len(of) - 1) // 2]


SETTLED_RATE, STAYS = 0.75, 10
"""A run has settled when it does this part of what Oracle* does, over so many periods."""


def reaches(of: Run, rate: float) -> int | None:
    """The first period from which on throughput over the next ones is at least this, on average."""
    means = np.convolve(of.throughput, np.ones(STAYS) / STAYS, mode="valid")
    above = np.flatnonzero(means >= rate)
    return int(above[0]) + 1 if len(above) else None


def times(runs: Runs) -> dict[str, list[float]]:
    """Total time relative to Oracle*'s, per alternative, over the numbers of workers."""
    return {name: [of[name].total / of[ORACLE].total for of in runs.values()] for name in NAMES}


def _listed(values: Sequence[float], pattern: str = "{:.2f}") -> str:
    return ", ".join(pattern.format(value) for value in values)


def figure9(quick: bool) -> Report:
    """Half of the workers 10 times slower, medium cost."""
    workers = (2, 4) if quick else (2, 4, 8, 16)
    static, dynamic = (sweep(workers, 10.0, MEDIUM, leaves=leaves, periods=PERIODS) for leaves in (False, True))
    still, moving = times(static), times(dynamic)
    gain = [plain / ours for plain, ours in zip(still[ROBIN], still[ADAPTIVE], strict=True)]
    claims = [
        Claim(
            "static: load balancing is 1.5-4 times better than round-robin",
            _listed(gain) + " times",
            min(gain) >= 1.5,
        ),
        Claim(
            "static: only a marginal cost to being adaptive",
            "LB-adaptive takes "
            + _listed([a / s for a, s in zip(still[ADAPTIVE], still[STATIC], strict=True)])
            + " times as long as LB-static",
            max(a / s for a, s in zip(still[ADAPTIVE], still[STATIC], strict=True)) <= 1.15,
        ),
        Claim(
            "dynamic: LB-adaptive outperforms Oracle*, who changes too early",
            _listed(moving[ADAPTIVE]) + " times Oracle*'s time",
            max(moving[ADAPTIVE]) <= 1.0,
            "Our Oracle* changes when the first item without load is read, some milliseconds early.",
        ),
        _final_claim(dynamic),
    ]
    return _report(
        9,
        "half of the workers 10 times slower",
        claims,
        static,
        dynamic,
        workers,
        "2 ms an item; 4 ms with 16 workers, as one splitter serves them all.",
        f"period 0.1 s; Oracle* takes about {PERIODS} periods",
    )


def _final_claim(runs: Runs) -> Claim:
    """Whether throughput came back; if not, how far the weights are from Oracle*'s says whose fault it is."""
    rounds = {
        count: [ours / best for ours, best in zip(of[ADAPTIVE].finals, of[ORACLE].finals, strict=True)]
        for count, of in runs.items()
    }
    ends = [float(np.median(each)) for each in rounds.values()]
    off = [float(np.abs(of[ADAPTIVE].weights[-1] - of[ORACLE].weights[-1]).max()) for of in runs.values()]
    told = "; ".join(
        f"{count} workers {_listed([100 * end for end in each], '{:.0f}')}" for count, each in rounds.items()
    )
    return Claim(
        "target: after the load is removed, final throughput at least 95 % of Oracle*'s",
        f"{_listed([100 * end for end in ends], '{:.0f} %')}, the median of {ROUNDS} pairs of runs each ({told})",
        min(ends) >= 0.95,
        "At the end no weight, of 1000, is further from Oracle*'s than "
        f"{_listed(off, '{:.0f}')}; with the same weights what differs is how fast the machine was in that quarter.",
    )


def figure10(quick: bool) -> Report:
    """Half of the workers 100 times slower, heavy cost."""
    workers = (2, 4) if quick else (2, 4, 8, 16)
    static = sweep(workers, 100.0, HEAVY, leaves=False, periods=PERIODS)
    dynamic = sweep(workers, 100.0, HEAVY, leaves=True, periods=RECOVERY_PERIODS)
    still, moving = times(static), times(dynamic)
    gain = [plain / ours for plain, ours in zip(still[ROBIN], still[ADAPTIVE], strict=True)]
    later = [plain / ours for plain, ours in zip(moving[ROBIN], moving[ADAPTIVE], strict=True)]
    found = [reaches(of[ADAPTIVE], SETTLED_RATE * of[ORACLE].items / of[ORACLE].seconds) for of in static.values()]
    against = [of[ADAPTIVE].final / of[STATIC].final for of in dynamic.values()]
    claims = [
        Claim(
            "static: load balancing takes 1.3-1.8 times as long as Oracle*; target: at most 1.5",
            "; ".join(f"{name} {_listed(still[name])}" for name in (ADAPTIVE, WAITS, STATIC)),
            max(still[ADAPTIVE]) <= 1.5,
        ),
        Claim(
            "static: round-robin takes 45 times as long as Oracle*; target: ours at least 10 times faster than it",
            "round-robin "
            + _listed(still[ROBIN], "{:.0f}")
            + " times Oracle*; ours faster "
            + _listed(gain, "{:.0f}")
            + " times",
            min(gain) >= 10,
        ),
        Claim(
            "dynamic: round-robin takes at least 10 times as long",
            _listed(later, "{:.1f}") + " times",
            min(later) >= 10,
            "An eighth of the items at a hundredth of the speed gives round-robin some 8 to 12 times Oracle*'s time, "
            "depending on what an item takes besides its service time.",
        ),
        Claim(
            "dynamic: final throughput of LB-adaptive almost twice that of LB-static, who never finds out",
            _listed(against) + " times",
            min(against) >= 1.5,
            "LB-static still learns from connections that did not block, and recovers in part.",
        ),
        _final_claim(dynamic),
        Claim(
            "target: settles within 20 sampling periods",
            "static: "
            + ", ".join("never" if each is None else str(each) for each in found)
            + f" periods until throughput stays above {SETTLED_RATE:.0%} of Oracle*'s for {STAYS} periods on average",
            all(each is not None and each <= SETTLED_WITHIN for each in found),
            "In a period a slow worker answers once or twice, and a machine that is busy makes that late.",
        ),
    ]
    told = "; ".join(f"{count} workers {1000 * HEAVY[count][0]:g} ms, {HEAVY[count][1]:g} s" for count in workers)
    return _report(
        10,
        "half of the workers 100 times slower",
        claims,
        static,
        dynamic,
        workers,
        "Cost of an item and sampling period grow with the workers, as one splitter serves them all: " + told + ".",
        f"Oracle* takes about {PERIODS} periods (static) or {RECOVERY_PERIODS} (dynamic)",
    )


def _report(
    number: int,
    what: str,
    claims: Sequence[Claim],
    static: Runs,
    dynamic: Runs,
    workers: Sequence[int],
    costs: str,
    length: str,
) -> Report:
    return Report(
        name=f"regions_fig{number:02}",
        title=f"blocking-rate, Figure {number}: {what}",
        setup=f"{workers[0]} to {workers[-1]} workers; dynamic: the load leaves after an eighth of the items. {SERVICE}"
        " " + costs,
        claims=claims,
        tables=[_table(static, "Static"), _table(dynamic, "Dynamic")],
        parameters={"length": length},
        seed=0,
        notes=[
            f"Where the load leaves, Oracle* and LB-adaptive were run {ROUNDS} times, taking turns; the table has the "
            "runs with the median time.",
            "Round-robin was run on as many items as take about "
            f"{ROBIN_SECONDS:g} seconds, and its time scaled up: it does not adapt, so its time is proportional.",
        ],
        picture=_picture({"static": static, "dynamic": dynamic}, dynamic),
    )


def _table(runs: Runs, title: str) -> Table:
    rows = [
        (count, name, of[name].total, of[name].total / of[ORACLE].total, of[name].final, len(of[name].at))
        for count, of in runs.items()
        for name in NAMES
    ]
    return Table(("workers", "alternative", "total s", "times Oracle*'s", "items/s at the end", "periods"), rows, title)


def _picture(groups: Mapping[str, Runs], final: Runs) -> Figure:
    picture, axes = panels(
        len(groups) + 1,
        "Total time relative to Oracle* (logarithmic), and throughput over the last quarter of the items.",
        width=4.6,
    )
    for ax, (title, runs) in zip(axes, groups.items(), strict=False):
        for name, values in times(runs).items():
            ax.plot(range(len(runs)), values, "o-", label=name)
        ax.set_yscale("log")
        ax.set_xticks(range(len(runs)), [str(count) for count in runs])
        finish(ax, xlabel="workers", ylabel="time / Oracle*'s time", title=title)
    for name in NAMES:
        axes[-1].plot(range(len(final)), [of[name].final for of in final.values()], "o-", label=name)
    axes[-1].set_xticks(range(len(final)), [str(count) for count in final])
    finish(axes[-1], xlabel="workers", ylabel="items/s at the end", title="dynamic: final throughput")
    return picture


def figure13(quick: bool) -> Report:
    """Clustering on: 32 and 64 workers, half 100 times slower, dynamic."""
    workers = (16,) if quick else (32, 64)
    runs = sweep(workers, 100.0, HEAVY, leaves=True, periods=PERIODS)
    relative = times(runs)
    gain = [plain / ours for plain, ours in zip(relative[ROBIN], relative[ADAPTIVE], strict=True)]
    against = [of[ADAPTIVE].final / of[STATIC].final for of in runs.values()]
    claims = [
        Claim(
            "LB-adaptive is close to 9 times better than round-robin",
            _listed(gain, "{:.1f}") + " times",
            min(gain) >= 7,
            because="With 64 workers LB-adaptive loses seconds to the items that slow workers get at first, 2 s each; "
            "and round-robin's time is scaled up from a run in which a slow worker gets two or three of them.",
        ),
        Claim(
            "LB-static and LB-adaptive take about as long",
            _listed([s / a for s, a in zip(relative[STATIC], relative[ADAPTIVE], strict=True)]) + " (static/adaptive)",
            all(abs(s / a - 1) <= 0.3 for s, a in zip(relative[STATIC], relative[ADAPTIVE], strict=True)),
            because="LB-static never gives weight back to the workers that have become fast; LB-adaptive does, and "
            "takes less.",
        ),
        Claim(
            "final throughput of LB-adaptive is higher than that of LB-static",
            _listed(against) + " times",
            min(against) > 1.0,
        ),
        Claim(
            "target: at most 1.5 times Oracle*'s time",
            _listed(relative[ADAPTIVE]),
            max(relative[ADAPTIVE]) <= 1.5,
            "A slow worker does one item a period or less here, so that there is little to learn from.",
        ),
        _final_claim(runs),
    ]
    told = "; ".join(f"{count} workers {1000 * HEAVY[count][0]:g} ms, {HEAVY[count][1]:g} s" for count in workers)
    return Report(
        name="regions_fig13",
        title="blocking-rate, Figure 13: clustering on",
        setup=f"Half of the workers 100 times slower, for the first eighth of the items. {SERVICE} Cost of an item and "
        f"sampling period: {told}.",
        claims=claims,
        tables=[_table(runs, "")],
        parameters={"length": f"about {PERIODS} periods of Oracle*'s time"},
        seed=0,
        notes=[
            "Rounds and round-robin as in figure 10.",
            "The share of a slow worker is less than a unit of 1000. Oracle* gives eight of them one by rounding, and "
            "is held up by these while the load lasts: without any its time would be some 5 s (32 workers) and 17 s "
            "(64) shorter, by what they take for an item.",
        ],
        picture=_picture({"dynamic": runs}, runs),
    )


SLOW_THREADS, FAST_THREADS = 8, 16
"""Section 6.5: what a host can run at once. Beyond that its workers share."""

PLACES = ("All-Fast", "All-Slow", "Even-RR", "Even-LB")


def _hosts(fast: int, slow: int) -> tuple[float, ...]:
    """Slowdowns of so many workers on the fast and on the slow host."""
    ratio = FAST / SLOW
    return (max(1.0, fast / FAST_THREADS),) * fast + (ratio * max(1.0, slow / SLOW_THREADS),) * slow


def figure11(quick: bool) -> Report:
    """Fast and slow hosts: two workers in depth, and four ways to place 2 to 24."""
    oracle, ours, robin = heterogeneous_depth(quick)
    cost, period, seconds = 0.008, 0.1, 3.0 if quick else 7.0
    workers = (2, 4) if quick else (2, 4, 8, 16, 24)
    runs: Runs = {}
    for count in workers:
        half = 16 if count == 24 else count // 2  # section 6.5: 16 on the fast host, 8 on the slow one
        places: dict[str, tuple[tuple[float, ...], Balancer]] = {
            "All-Fast": (_hosts(count, 0), RoundRobin()),
            "All-Slow": (_hosts(0, count), RoundRobin()),
            "Even-RR": (_hosts(half, count - half), RoundRobin()),
            "Even-LB": (_hosts(half, count - half), BlockingRate()),
        }
        runs[count] = {}
        for name, (slowdowns, balancer) in places.items():
            items = int(seconds / cost * count / max(_hosts(half, count - half)))
            setting = Setting(work=Work(cost, slowdowns), items=items, period=period)
            runs[count][name] = run(name, setting, balancer)
    late = [each[0] for each in ours.weights[len(ours.weights) // 2 :]]
    rates = {name: [of[name].items / of[name].seconds for of in runs.values()] for name in PLACES}
    upto = [at for at, count in enumerate(workers) if count <= 8]
    claims = [
        Claim(
            "top: settles on about 65 % to 35 %",
            f"{np.mean(late) / 10:.1f} % on average in the second half",
            abs(float(np.mean(late)) / 10 - FAST) <= 5,
            "Two workers and the splitter share two processors with other programs.",
        ),
        Claim(
            "bottom: up to 8 workers All-Slow and Even-RR perform alike",
            _listed([rates["Even-RR"][at] / rates["All-Slow"][at] for at in upto]),
            all(abs(rates["Even-RR"][at] / rates["All-Slow"][at] - 1) <= 0.1 for at in upto),
        ),
        Claim(
            "bottom: Even-LB is faster than Even-RR",
            _listed([mine / plain for mine, plain in zip(rates["Even-LB"], rates["Even-RR"], strict=True)]) + " times",
            all(mine > plain for mine, plain in zip(rates["Even-LB"], rates["Even-RR"], strict=True)),
        ),
        Claim(
            "bottom: up to 16 workers All-Fast is faster than Even-LB",
            _listed([fast / mine for fast, mine in zip(rates["All-Fast"], rates["Even-LB"], strict=True)]) + " times",
            all(
                fast > mine
                for fast, mine, count in zip(rates["All-Fast"], rates["Even-LB"], workers, strict=True)
                if count <= 16
            ),
        ),
    ]
    if not quick:
        best = max(((rate, name, count) for name in PLACES for rate, count in zip(rates[name], workers, strict=True)))
        claims.append(
            Claim(
                "bottom: the fastest of all is Even-LB with 24 workers, 16 fast and 8 slow",
                f"{best[1]} with {best[2]}, {best[0]:,.0f} items/s",
                best[1:] == ("Even-LB", 24),
            )
        )
    picture, (depth, total, final) = panels(
        3, "Left: weights of a fast and a slow worker. Middle: time relative to Even-RR. Right: throughput.", width=4.6
    )
    for worker, name in enumerate(("fast", "slow")):
        depth.step(ours.at, [weight / 10 for weight in ours.column(worker)], where="post", label=name)
    finish(depth, xlabel="seconds", ylabel="weight, % of the items", title="two workers, processor work", ylim=(0, 100))
    for name in PLACES:
        base = [of["Even-RR"].seconds for of in runs.values()]
        values = [of[name].seconds / b for of, b in zip(runs.values(), base, strict=True)]
        total.plot(range(len(workers)), values, "o-", label=name)
        final.plot(range(len(workers)), rates[name], "o-", label=name)
    for ax, label in ((total, "time / Even-RR's time"), (final, "items/s")):
        ax.set_xticks(range(len(workers)), [str(count) for count in workers])
        finish(ax, xlabel="workers", ylabel=label)
    depth_rows = [(of.name, of.seconds, of.items / of.seconds) for of in (oracle, ours, robin)]
    rows = [
        (count, name, of[name].seconds, of[name].items / of[name].seconds)
        for count, of in runs.items()
        for name in PLACES
    ]
    return Report(
        name="regions_fig11",
        title="blocking-rate, Figure 11: fast and slow hosts",
        setup=f"Top: two workers, 20,000 multiplications an item, {FAST / SLOW:.2f} times as many on the slow one. "
        f"{PROCESSOR} Bottom: {1000 * cost:g} ms of service time an item on a fast host, {FAST / SLOW:.2f} times that "
        f"on a slow one; a fast host runs {FAST_THREADS} workers at once, a slow one {SLOW_THREADS}, and beyond that "
        "all of a host's workers slow down in proportion.",
        claims=claims,
        tables=[
            Table(("run", "seconds", "items/s"), depth_rows, "Top"),
            Table(("workers", "placement", "seconds", "items/s"), rows, "Bottom"),
        ],
        parameters={"period": f"0.2 s (top), {period:g} s (bottom)"},
        seed=0,
        picture=picture,
    )
