"""How fast the core is, against a twin in the same run.

    python benchmarks/speed.py [--keys 1000000] [--only compact|growth|readj|route] [--quick]

compact  Mixed on the compact form (R = 8) against Mixed on the keys themselves
growth   Mixed on ten times the keys
readj    Mixed against Readj at the same theta_max
route    Assignment.route with a full routing table against a Python dict

All but the last follow the papers' stream: Zipf 0.85, fluctuation 1, 15 slots, theta_max 0.08, a table of 3,000, state
of the last 5 intervals. Both sides of a ratio plan from the same statistics; the stream goes on with Mixed's plans.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median

import numpy as np

from headgate.planners import Limits, Mixed, Readj
from headgate.routing import Assignment, key_hash, pins_from
from headgate.stats.compact import Compact, compact
from intervals import Flow, Interval, Setting, check
from reporting import RESULTS, Claim, Report, Table, timed

DEGREE, TABLE, REPEATS = 8, 3000, 3
LIMITS = Limits(theta_max=0.08, table_max=TABLE)

Part = tuple[list[tuple[str, str]], list[Claim]]


def stream(keys: int, intervals: int, seed: int) -> Iterator[Interval]:
    """Intervals of the stream, after as many as fill the window. Mixed's plans are applied in between."""
    flow = Flow(Setting(keys=keys, seed=seed))
    for number in range(flow.setting.window + intervals):
        interval = flow.next()
        if number >= flow.setting.window:
            yield interval
        plan = Mixed().plan(interval.snapshot, interval.assignment, LIMITS)
        check(Mixed(), plan, interval, LIMITS)
        flow.assignment = plan.assignment


def records_of(interval: Interval) -> tuple[Compact, float]:
    """The records that each slot makes of its own keys, joined, and the seconds of the slot that takes longest."""
    snapshot, places, slots = interval.snapshot, interval.places, interval.assignment.slots
    home = interval.assignment.groups[snapshot.group]
    rows = [np.flatnonzero(places == slot) for slot in range(slots)]
    made = []
    for mine in rows:
        cost, state, current, own = snapshot.cost[mine], snapshot.state_bytes[mine], places[mine], home[mine]
        made.append(timed(lambda: compact(cost, state, current, own, slots, DEGREE), 1))
    return Compact.joined([each.result for each in made], rows), max(each.median for each in made)


def on_records(keys: int, intervals: int, seed: int) -> Part:
    exact, ready, whole, slowest, errors = [], [], [], [], []
    state: dict[str, list[float]] = {"keys": [], "records": []}
    for interval in stream(keys, intervals, seed):
        snapshot, assignment = interval.snapshot, interval.assignment
        records, seconds = records_of(interval)
        slowest.append(seconds)
        by_keys = timed(lambda: Mixed().plan(snapshot, assignment, LIMITS), REPEATS)
        by_records = timed(lambda: Mixed(degree=DEGREE).plan_on(records, snapshot, assignment, LIMITS), REPEATS)
        from_keys = timed(lambda: Mixed(degree=DEGREE).plan(snapshot, assignment, LIMITS), REPEATS)
        for timing in (by_keys, by_records, from_keys):
            check(Mixed(), timing.result, interval, LIMITS)
        exact.append(by_keys.median)
        ready.append(by_records.median)
        whole.append(from_keys.median)
        errors.append(records.load_error(snapshot.cost, interval.places, assignment.slots))
        state["keys"].append(by_keys.result.figures.migrated_share)
        state["records"].append(by_records.result.figures.migrated_share)
    ratio, end_to_end, error = median(exact) / median(ready), median(exact) / median(whole), max(errors)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = [
        (f"Mixed, {keys:,} keys: planning on records that the slots made, against planning on keys", f"{ratio:.1f} x"),
        ("the same, the records made by the planner itself on one core", f"{end_to_end:.1f} x"),
        ("the slowest slot makes its records in", f"{median(slowest) / median(exact):.1%} of the time on keys"),
        ("greatest error of a slot's load added up from records", f"{error:.4%}"),
        ("state moved per plan, on keys and on records", f"{fmean(state['keys']):.3%}, {fmean(state['records']):.3%}"),
        ("peak memory of the process so far, generator and statistics included", f"{peak:.2f} GiB"),
    ]
    return rows, [
        Claim(
            f"the compact form (R = {DEGREE}) is at least 5 times faster",
            f"{ratio:.1f} times on records that the slots made, {end_to_end:.1f} if the planner makes them itself",
            ratio >= 5,
        ),
        Claim("its load estimation error is at most 1 %", f"{error:.4%}", error <= 0.01),
        Claim("a million keys in under 1 GiB", f"{peak:.2f} GiB", peak < 1),
    ]


def growth(keys: int, intervals: int, seed: int) -> Part:
    few, many = (
        median(
            timed(lambda: Mixed().plan(each.snapshot, each.assignment, LIMITS), REPEATS).median
            for each in stream(size, intervals, seed)
        )
        for size in (keys // 10, keys)
    )
    ratio = many / few
    return [(f"Mixed on keys, {keys:,} against {keys // 10:,} keys", f"{ratio:.1f} x the time")], [
        Claim("ten times the keys take at most 15 times the time", f"{ratio:.1f} times", ratio <= 15)
    ]


def against_readj(keys: int, intervals: int, seed: int) -> Part:
    mixed, published, walking = [], [], []
    state: dict[str, list[float]] = {"mixed": [], "readj": []}
    for interval in stream(keys, intervals, seed):
        snapshot, assignment = interval.snapshot, interval.assignment
        ours = timed(lambda: Mixed().plan(snapshot, assignment, LIMITS), REPEATS)
        theirs = timed(lambda: Readj(swaps="every").plan(snapshot, assignment, LIMITS), 1)
        walked = timed(lambda: Readj().plan(snapshot, assignment, LIMITS), 1)
        assert theirs.result.assignment == walked.result.assignment
        assert check(Mixed(), ours.result, interval, LIMITS) == check(Readj(), theirs.result, interval, LIMITS)
        mixed.append(ours.median)
        published.append(theirs.median)
        walking.append(walked.median)
        state["mixed"].append(ours.result.figures.migrated_share)
        state["readj"].append(theirs.result.figures.migrated_share)
    ratio = median(published) / median(mixed)
    shares = fmean(state["mixed"]), fmean(state["readj"])
    rows = [
        (f"Mixed against Readj as published, the best of 8 sigmas, {keys:,} keys", f"{ratio:.0f} x"),
        ("Mixed against Readj that walks sorted keys to the same plans", f"{median(walking) / median(mixed):.1f} x"),
        ("state moved per plan, Mixed and Readj", f"{shares[0]:.3%}, {shares[1]:.3%}"),
    ]
    return rows, [
        Claim("Mixed is at least 50 times faster than Readj at the same theta", f"{ratio:.0f} times", ratio >= 50),
        Claim("with no more migrated state", f"{shares[0]:.3%} against {shares[1]:.3%}", shares[0] <= shares[1]),
    ]


def against_dict(keys: int, seed: int) -> Part:
    random = np.random.default_rng(seed)
    slots, groups = 15, 1024
    hashes = key_hash(random.integers(0, keys, keys))
    pinned = random.choice(np.unique(hashes), TABLE, replace=False)
    wanted = {int(key): int(slot) for key, slot in zip(pinned, random.integers(0, slots, TABLE), strict=True)}
    assignment = Assignment.hashed(slots, groups).next(pins=pins_from(wanted))
    homes, as_list = assignment.groups.tolist(), hashes.tolist()

    def loop() -> list[int]:
        get = wanted.get
        return [slot if (slot := get(key)) is not None else homes[key % groups] for key in as_list]

    slow, fast = timed(loop, REPEATS), timed(lambda: assignment.route(hashes), 9)
    assert fast.result.tolist() == slow.result
    ratio = slow.median / fast.median
    rows = [
        (f"route() of {keys:,} hashes with {TABLE:,} pins against a dict loop", f"{ratio:.0f} x"),
        ("per hash", f"{fast.median / keys * 1e9:.1f} ns against {slow.median / keys * 1e9:.0f} ns"),
    ]
    return rows, [Claim("route() is at least 20 times faster than a dict loop", f"{ratio:.0f} times", ratio >= 20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--intervals", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["compact", "growth", "readj", "route"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys, two intervals")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    keys, intervals, seed = options.keys, options.intervals, options.seed
    if options.quick:
        keys, intervals = keys // 10, 2
    parts: dict[str, Callable[[], Part]] = {
        "compact": lambda: on_records(keys, intervals, seed),
        "growth": lambda: growth(keys, intervals, seed),
        "readj": lambda: against_readj(keys // 10, intervals, seed),
        "route": lambda: against_dict(keys, seed),
    }
    rows: list[tuple[str, str]] = []
    claims: list[Claim] = []
    for name, part in parts.items():
        if options.only not in (None, name):
            continue
        print(f"{name} ...", flush=True)
        more_rows, more_claims = part()
        for text, figure in more_rows:
            print(f"  {text}: {figure}", flush=True)
        rows += more_rows
        claims += more_claims
    report = Report(
        name="speed",
        title="Speed of the core",
        setup="Zipf 0.85, fluctuation 1, 15 slots, theta_max 0.08, table_max 3,000, w = 5; ratios of medians, both "
        "sides from the same statistics in one process.",
        claims=claims,
        tables=[Table(("what", "measured"), rows)],
        parameters={"keys": keys, "intervals": intervals},
        seed=seed,
        claimed_by="the target",
    )
    print(report.write(options.out))


if __name__ == "__main__":
    main()
