"""An ordered parallel region on a fake clock: what a balancer sees, and what comes of what it says.

    source -> splitter --[ buffer of B frames ]--> worker --> merger (W frames at most between oldest and newest) ->

One thread sends. Where a connection's buffer is full the splitter waits, and the time is that connection's. Where the
merger's window is full it waits too, and the time belongs to the connection that has the oldest frame. Everything
follows from the times at which frames are sent, so each frame costs a few operations and a run of 100,000 frames some
milliseconds beside what the balancer takes. Time is in units of what the fastest worker takes for a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.arrays import F64, I64, compiled
from headgate.regions.balance import Balancer, Sample, Service
from headgate.regions.turns import turn

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Region:
    """The workers of a region. ``phases`` has, from the time given on, what each worker takes for a frame."""

    phases: Sequence[tuple[float, Sequence[float]]]
    buffer: int = 8
    window: int = 1024
    sending: float = 0.01
    """What the splitter takes for a frame."""
    latency: float = 0.0
    """What a frame takes from the splitter to a worker, and a result back to the merger."""
    period: float = 100.0
    """The time between two samples."""
    jitter: float = 0.0
    """Times vary evenly between 1 - jitter and 1 + jitter of what a frame takes."""
    alive: Callable[[float], Sequence[bool]] | None = None

    @property
    def connections(self) -> int:
        return len(self.phases[0][1])


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it. ``merged`` has the time at which each frame left; ``weights`` and ``blocked`` have a row per
    period, and ``clusters`` one per sample."""

    total_time: float
    merged: F64
    weights: I64
    blocked: F64
    clusters: list[I64] = field(default_factory=list)

    def throughput(self, since: float = 0.0, until: float = FOREVER) -> float:
        """Frames per unit of time that left between the two."""
        until = min(until, self.total_time)
        first, last = np.searchsorted(self.merged, [since, until])
        return float(last - first) / (until - since)

    def final_throughput(self) -> float:
        """Over the last quarter of the run."""
        return self.throughput(0.75 * self.total_time)


def simulate(
    region: Region,
    balancer: Balancer,
    *,
    periods: int = 0,
    frames: int = 0,
    seed: int = 1,
    keep_clusters: bool = False,
    counts: bool = True,
) -> Run:
    """Run for so many periods, or until so many frames have been merged."""
    count = region.connections
    starts = np.array([start for start, _ in region.phases])
    service = np.array([times for _, times in region.phases], dtype=np.float64)
    fastest = (1.0 / service).sum(axis=1).max() / (1.0 - region.jitter)
    most = frames or int(periods * region.period * fastest) + 2 * count * region.buffer + region.window
    state = _State(count, most, region.buffer, seed)
    weights = balancer.start(count)
    history, charges, clusters = [weights], [], []
    cumulative = np.zeros(count)
    number = 0
    while True:
        number += 1
        at = number * region.period
        state.send_until(at, weights, starts, service, region)
        cumulative = cumulative + state.take_blocked(at)
        charges.append(cumulative)
        done = state.sent == most if frames else number == periods
        if done and (periods or state.time <= at):
            break
        alive = np.array(region.alive(at)) if region.alive else np.ones(count, dtype=np.bool_)
        told = (state.sent, state.take_service(at)) if counts else (None, None)
        weights = balancer.observe(Sample(at, cumulative, alive, *told))
        history.append(weights)
        if keep_clusters:
            clusters.append(balancer.view().clusters)
    merged = state.merged[: state.sent]
    total_time = float(merged[-1])
    if periods:
        total_time = periods * region.period
        merged = merged[merged <= total_time]
    return Run(total_time, merged, np.array(history), np.array(charges), clusters)


class _State:
    """Where the splitter is. Charges for waiting lie in order of time until their period is over."""

    def __init__(self, count: int, most: int, buffer: int, seed: int) -> None:
        self.merged = np.empty(most)
        self.begun = np.empty(most)  # when each frame was its worker's oldest, and when its result was seen
        self.seen = np.empty(most)
        self.out: I64 = np.zeros(0, dtype=np.int64)  # frames that were not answered at the last sample
        self.counted = 0
        self.answered: I64 = np.zeros(count, dtype=np.int64)
        self.served = np.zeros(count)
        self.worked = np.zeros(count)
        self.takes = np.empty(most)
        self.last_seen = np.zeros(count)
        self.sender = np.empty(most, dtype=np.int64)
        self.began = np.zeros((count, buffer))  # when the last frames of each connection left its buffer, a ring
        self.sent_to = np.zeros(count, dtype=np.int64)
        self.free_at = np.zeros(count)
        self.owed = np.zeros(count)
        self.weights_before: I64 = np.zeros(count, dtype=np.int64)
        self.scalars = np.zeros(1)
        self.counters = np.array([0, 0, seed], dtype=np.int64)  # frames sent, oldest outstanding, random state
        self.charges: list[tuple[F64, F64, I64]] = []

    @property
    def time(self) -> float:
        return float(self.scalars[0])

    @property
    def sent(self) -> int:
        return int(self.counters[0])

    def send_until(self, at: float, weights: I64, starts: F64, service: F64, region: Region) -> None:
        if (weights != self.weights_before).any():
            total = max(int(self.weights_before.sum()), 1)
            turns = np.where(weights > 0, np.clip(self.owed / total, -1, 1), 0.0)
            turns[weights > 0] -= turns[weights > 0].mean() if (weights > 0).any() else 0.0
            self.owed = turns * int(weights.sum())
            self.weights_before = weights
        self.charges.append(
            _send(
                at,
                weights,
                self.owed,
                starts,
                service,
                region.sending,
                region.window,
                region.jitter,
                region.latency,
                self.scalars,
                self.counters,
                self.merged,
                self.sender,
                self.begun,
                self.seen,
                self.takes,
                self.last_seen,
                self.began,
                self.sent_to,
                self.free_at,
            )
        )

    def take_blocked(self, at: float) -> F64:
        """The charges of the period that ends at ``at``; what lies later is kept."""
        begin, end, whose = (np.concatenate(part) for part in zip(*self.charges, strict=True))
        until = np.minimum(end, at)
        blocked = np.bincount(whose, np.maximum(until - begin, 0.0), minlength=len(self.free_at)).astype(np.float64)
        later = end > at
        self.charges = [(np.maximum(begin[later], at), end[later], whose[later])]
        return blocked

    def take_service(self, at: float) -> Service:
        """What has been answered by then, and for how long connections were busy."""
        frames = np.concatenate([self.out, np.arange(self.counted, self.sent)])
        self.counted = self.sent
        done = self.seen[frames] <= at
        self.out = frames[~done]
        finished, current = frames[done], self.out[self.begun[self.out] < at]
        count = len(self.free_at)
        self.answered = self.answered + np.bincount(self.sender[finished], minlength=count)
        takes = self.seen[finished] - self.begun[finished]
        self.served = self.served + np.bincount(self.sender[finished], takes, minlength=count)
        at_work = np.bincount(self.sender[current], at - self.begun[current], minlength=count)
        self.worked = self.worked + np.bincount(self.sender[finished], self.takes[finished], minlength=count)
        return Service(self.answered, self.served, self.worked, at_work.astype(np.float64))


@compiled
def _send(
    at: float,
    weights: I64,
    owed: F64,
    starts: F64,
    service: F64,
    sending: float,
    window: int,
    jitter: float,
    latency: float,
    scalars: F64,
    counters: I64,
    merged: F64,
    sender: I64,
    begun: F64,
    seen: F64,
    took: F64,
    last_seen: F64,
    began: F64,
    sent_to: I64,
    free_at: F64,
) -> tuple[F64, F64, I64]:
    begin = [0.0]
    end = [0.0]
    whose = [0]
    now = scalars[0]
    frame, oldest, random = counters[0], counters[1], counters[2]
    buffer = began.shape[1]
    while now < at and frame < len(merged):
        to = turn(weights, owed)
        if to < 0:
            now = at
            break
        while oldest < frame and merged[oldest] <= now:
            oldest += 1
        while frame - oldest >= window:
            if merged[oldest] > now:
                begin.append(now)
                end.append(merged[oldest])
                whose.append(sender[oldest])
                now = merged[oldest]
            oldest += 1
        slot = sent_to[to] % buffer
        if sent_to[to] >= buffer and began[to, slot] > now:
            begin.append(now)
            end.append(began[to, slot])
            whose.append(to)
            now = began[to, slot]
        now += sending
        start = max(now + latency, free_at[to])
        phase = 0
        while phase + 1 < len(starts) and starts[phase + 1] <= start:
            phase += 1
        takes = service[phase, to]
        if jitter > 0.0:
            random = (random * 1103515245 + 12345) % 2147483648
            takes *= 1.0 + jitter * (2.0 * random / 2147483648 - 1.0)
        began[to, slot] = start
        sent_to[to] += 1
        free_at[to] = start + takes
        back = start + takes + latency
        begun[frame] = max(now, last_seen[to])
        seen[frame] = last_seen[to] = back
        took[frame] = takes
        merged[frame] = max(back, merged[frame - 1]) if frame > 0 else back
        sender[frame] = to
        frame += 1
    scalars[0] = now
    counters[0], counters[1], counters[2] = frame, oldest, random
    return np.array(begin), np.array(end), np.array(whose)
