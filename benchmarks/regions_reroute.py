"""blocking-rate, section 4.4: re-routing at the transport, without learning, against balancing."""

from __future__ import annotations

from typing import Any

from headgate.regions import Balancer, BlockingRate, RoundRobin
from regions_depth import PROCESSOR
from regions_runs import Run, Setting, run
from regions_work import Work
from reporting import Claim, Report, Table, finish, panels

SMALL = 4096
"""Bytes of each kernel buffer; Linux gives somewhat more."""

PAPERS_WAY: dict[str, Any] = {"ahead": None, "send_buffer": SMALL, "receive_buffer": SMALL, "frame_tuples": 1}
"""As in the paper: kernel buffers only, a tuple a frame, and a merger that takes what comes."""

WAYS: dict[str, tuple[type[Balancer], dict[str, Any]]] = {
    "RR, kernel buffers": (RoundRobin, PAPERS_WAY),
    "re-routing, kernel buffers": (RoundRobin, {**PAPERS_WAY, "reroute": True}),
    "RR, credit window": (RoundRobin, {}),
    "re-routing, credit window": (RoundRobin, {"reroute": True}),
    "LB-adaptive": (BlockingRate, {}),
}


def section44(quick: bool) -> Report:
    """Two workers, one of them 100 times slower, at two costs of an item."""
    costs = (1_000, 10_000)
    seconds = 2.0 if quick else 8.0
    runs: dict[int, dict[str, Run]] = {}
    for multiplies in costs:
        runs[multiplies] = {}
        for name, (balancer, options) in WAYS.items():
            each = multiplies * 50e-9 * 100  # what an item takes on the slow worker, about
            plain = name.startswith("RR") or "kernel" in name
            items = int(seconds * 2 / each * (1 if plain else 20))
            setting = Setting(
                work=Work(0.0, (100.0, 1.0), multiplies=multiplies), items=items, period=0.1, options=options
            )
            runs[multiplies][name] = run(f"{multiplies}", setting, balancer())
            print(f"    {name}", flush=True)
    rate = {cost: {name: of.items / of.seconds for name, of in by.items()} for cost, by in runs.items()}
    part = {cost: {name: _rerouted(of) for name, of in by.items()} for cost, by in runs.items()}
    kernel = {cost: rate[cost]["re-routing, kernel buffers"] / rate[cost]["RR, kernel buffers"] for cost in costs}
    credit = {cost: rate[cost]["re-routing, credit window"] / rate[cost]["RR, credit window"] for cost in costs}
    ours = {cost: rate[cost]["LB-adaptive"] / rate[cost]["RR, credit window"] for cost in costs}
    claims = [
        Claim(
            "1,000 multiplications: re-routing makes no discernible difference (0.5 % of the tuples are re-routed)",
            f"{kernel[1000]:.2f} times round-robin; {part[1000]['re-routing, kernel buffers']:.1%} re-routed",
            0.8 <= kernel[1000] <= 1.25,
            "Our kernel buffers were made small, and the region's window bounds what waits behind the slow worker: "
            "blocking is not as rare as in the paper.",
        ),
        Claim(
            "10,000 multiplications: about 20 % better, 7.5 % of the tuples re-routed",
            f"{kernel[10000]:.2f} times round-robin; {part[10000]['re-routing, kernel buffers']:.1%} re-routed",
            1.0 <= kernel[10000] <= 1.6,
            "As above.",
        ),
        Claim(
            "balancing by blocking rate does far more than re-routing over kernel buffers",
            ", ".join(f"{cost:,}: {ours[cost]:.0f} times round-robin" for cost in costs),
            all(ours[cost] > 2 * kernel[cost] for cost in costs),
        ),
        Claim(
            "(ours) where a worker has little in hand, as with our credit window, re-routing is no longer late",
            ", ".join(f"{cost:,}: {credit[cost]:.0f} times round-robin" for cost in costs),
            all(credit[cost] > 5 for cost in costs),
        ),
    ]
    picture, axes = panels(2, "Throughput relative to round-robin over kernel buffers.", width=6.0)
    for ax, cost in zip(axes, costs, strict=True):
        values = [rate[cost][name] / rate[cost]["RR, kernel buffers"] for name in WAYS]
        ax.barh(range(len(WAYS)), values)
        ax.set_yticks(range(len(WAYS)), list(WAYS))
        ax.invert_yaxis()
        for at, value in enumerate(values):
            ax.text(value, at, f" {value:.1f}", va="center", fontsize=8)
        finish(ax, title=f"{cost:,} multiplications", xlabel="times round-robin", legend=False, from_zero=False)
        ax.margins(x=0.15)
    rows = [
        (f"{cost:,}", name, by[name].items, by[name].seconds, rate[cost][name], f"{part[cost][name]:.1%}")
        for cost, by in runs.items()
        for name in WAYS
    ]
    return Report(
        name="regions_reroute",
        title="blocking-rate, section 4.4: re-routing instead of balancing",
        setup=f"Two workers, one of them 100 times slower. {PROCESSOR} Kernel buffers: {SMALL} bytes each, no limit on "
        "what a worker has unanswered, a tuple a frame, as in the paper. Credit window: a worker has some 20 ms of "
        "its own work unanswered at the most, two frames at least; headgate's default.",
        claims=claims,
        tables=[Table(("multiplications", "way", "items", "seconds", "items/s", "re-routed"), rows)],
        parameters={"period": "0.1 s", "items": "fewer where a run would take minutes"},
        seed=0,
        picture=picture,
    )


def _rerouted(of: Run) -> float:
    assert of.counters is not None
    return of.counters.rerouted / of.items
