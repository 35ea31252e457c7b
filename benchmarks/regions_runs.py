"""What the region benchmarks share: one run of a real region, who balances it, and what came of it.

    items -> [ gate: opens when every worker is there ] -> region of real processes and sockets -> checked, timed

A run begins when all workers have come, and its results are checked: complete, in order, each once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headgate.regions import Balancer, BlockingRate, Counters, Progress, Region, RoundRobin, Sample, View, tcp
from headgate.regions.balance import Service, even, shares
from headgate.regions.greeting import Role
from headgate.regions.processes import Process
from regions_work import WORKER, Work

if TYPE_CHECKING:
    import socket

ORACLE, STATIC, WAITS, ADAPTIVE, ROBIN = "Oracle*", "LB-static", "LB-waits", "LB-adaptive", "RR"
"""The alternatives of section 6. LB-waits is adaptive and goes by waits alone, as the paper's does; LB-adaptive is what
regions do where nothing else is asked for."""

LAST = 0.25
"""The last quarter of the items is what the final throughput is taken over."""

SOURCE_RUN = 4
"""Items that a source with a pace of its own gives at once: shorter sleeps are not kept."""

_starting = threading.Lock()


@dataclass(frozen=True, slots=True)
class NumberedSite:
    """A local worker process that knows its number."""

    number: int
    send_buffer: int | None = None
    receive_buffer: int | None = None
    persistent: bool = False

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"worker {self.number}"

    def open(self, stopping: Callable[[], bool]) -> tuple[socket.socket, Process | None]:
        """Start the process and greet it."""
        with _starting:  # a process inherits the environment as it is when it starts
            os.environ[WORKER] = str(self.number)
            process = Process(self.send_buffer, self.receive_buffer)
        try:
            tcp.greet(process.sock, Role.DRIVER, process.secret, stopping)
        except BaseException:
            process.kill()
            raise
        return process.sock, process


class Oracle:
    """Oracle* of section 6: knows every speed, and is told when the splitter has read the first item without load."""

    def __init__(self, before: Sequence[float], after: Sequence[float] | None = None) -> None:
        self._before, self._after = before, after or before
        self.unloaded = False

    def start(self, connections: int) -> NDArray[np.int64]:
        """The split while the load is there."""
        return self._keep(np.ones(connections, dtype=np.bool_))

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        """The split of the time, whatever was waited for."""
        return self._keep(sample.alive)

    def view(self) -> View:
        """The split; it measures nothing."""
        return View(self._weights, np.zeros(len(self._weights)), np.arange(len(self._weights)))

    def _keep(self, alive: NDArray[np.bool_]) -> NDArray[np.int64]:
        self._weights = shares(self._after if self.unloaded else self._before, alive)
        return self._weights


class Gate:
    """Holds a balancer back until all workers have come: its clock begins then, with nothing waited for."""

    def __init__(self, inner: Balancer) -> None:
        self._inner = inner
        self.opened = threading.Event()
        self._from: Sample | None = None

    def start(self, connections: int) -> NDArray[np.int64]:
        """What the balancer behind it starts with."""
        return self._inner.start(connections)

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        """Even weights until everybody is there, then what the balancer behind it says."""
        if self._from is not None:
            return self._inner.observe(sample.since(self._from))
        if sample.alive.all():
            self._from = sample
            self.opened.set()
            return self._inner.view().weights
        return even(sample.alive)

    def view(self) -> View:
        """What the balancer behind it believes."""
        return self._inner.view()

    @property
    def at(self) -> float:
        """When it was opened, in seconds since the region began."""
        return self._from.at if self._from is not None else 0.0


@dataclass(slots=True)
class Run:
    """What came of one run. Times are in seconds since the gate opened."""

    name: str
    items: int
    seconds: float = 0.0
    final: float = 0.0
    """Items per second over the last quarter of the items."""
    finals: list[float] = field(default_factory=list)
    """The same of every round, this run's among them."""
    at: list[float] = field(default_factory=list)
    weights: list[NDArray[np.int64]] = field(default_factory=list)
    rates: list[NDArray[np.float64]] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    clusters: list[NDArray[np.int64]] = field(default_factory=list)
    counters: Counters | None = None
    part: float = 1.0
    """Which part of the items was run, where a run that does not adapt would take minutes; the time is scaled up."""

    @property
    def total(self) -> float:
        """Seconds for all the items."""
        return self.seconds / self.part

    def column(self, worker: int) -> list[int]:
        """The weight of one worker over time."""
        return [int(each[worker]) for each in self.weights]

    def periods(self, delivered: float) -> int:
        """How many periods it took until so many results had left."""
        return int(np.searchsorted(self.delivered, delivered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One region of an experiment: its work, its items, and the options of the region."""

    work: Work
    items: int
    period: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)
    source: float = 0.0
    """Seconds that the source takes for an item."""

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self.work.slowdowns)

    def scaled(self, part: float) -> Setting:
        """The same with fewer items; what happens at an eighth still does."""
        until = None if self.work.until is None else int(self.work.until * part)
        work = Work(self.work.cost, self.work.slowdowns, until, self.work.multiplies)
        return replace(self, work=work, items=int(self.items * part))

    def oracle(self) -> Oracle:
        """In proportion to speed, before and after."""
        speeds = [1 / takes(self.work.cost, factor) for factor in self.work.slowdowns]
        return Oracle(speeds, None if self.work.until is None else [1.0] * self.workers)

    def balancers(self) -> dict[str, Callable[[], Balancer]]:
        """The alternatives of section 6."""
        return {
            ORACLE: self.oracle,
            STATIC: lambda: BlockingRate(decay=None),
            WAITS: lambda: BlockingRate(completions=False),
            ADAPTIVE: BlockingRate,
            ROBIN: RoundRobin,
        }


def run(name: str, setting: Setting, balancer: Balancer, part: float = 1.0) -> Run:
    """Run all items, or a part of them, through a region; raises where a result is missing or out of order."""
    setting = setting.scaled(part) if part < 1 else setting
    gate, done = Gate(balancer), Run(name, setting.items, part=part)

    def items() -> Iterator[int]:
        gate.opened.wait()
        for item in range(setting.items):
            if item == setting.work.until and isinstance(balancer, Oracle):
                balancer.unloaded = True
            if setting.source and item % SOURCE_RUN == 0:
                time.sleep(setting.source * SOURCE_RUN)
            yield item

    def listen(progress: Progress) -> None:
        if gate.opened.is_set() and progress.at > gate.at:
            done.at.append(progress.at - gate.at)
            done.weights.append(progress.weights)
            done.rates.append(progress.rates)
            done.throughput.append(progress.throughput)
            done.delivered.append(progress.counters.delivered)
            done.clusters.append(gate.view().clusters)

    buffers = (setting.options.get("send_buffer"), setting.options.get("receive_buffer"))
    sites = [NumberedSite(number, *buffers) for number in range(setting.workers)]
    options = {"period": setting.period, "balance": gate, "listener": listen, **setting.options}
    late_from = int((1 - LAST) * setting.items)
    began = late = 0.0
    with Region(setting.work, sites, **options) as region:
        for expected, result in enumerate(region.run(items())):
            assert result == expected, f"result {result} where {expected} was due"
            if expected == 0:
                began = time.perf_counter()  # of the first result: the gate was opened less than a period before
            if expected == late_from:
                late = time.perf_counter()
        ended = time.perf_counter()
        done.counters = region.counters()
    assert expected == setting.items - 1, f"{expected + 1} results of {setting.items} items"
    assert done.counters.resent == 0, "a worker was lost"
    done.seconds = ended - began
    done.final = (setting.items - late_from) / (ended - late)
    told = ", ".join(str(weight) for weight in done.weights[-1][:8]) if done.weights else ""
    print(
        f"  {setting.workers:2} workers  {name:12} {done.total:7.1f} s  {setting.items / done.seconds:8.0f}/s  "
        f"at the end {done.final:8.0f}/s  {len(done.at):4} periods  weights {told}",
        flush=True,
    )
    return done


OVERHEAD = 0.0002
"""Seconds beyond its service time that an item takes: sleeping and waking, the frame, the function's call."""


def takes(cost: float, factor: float) -> float:
    """Seconds that an item takes on a worker, its frame and all. Work that is not asleep has a cost of 0 here."""
    return cost * factor + OVERHEAD if cost else factor


def loaded(workers: int, slow: int, factor: float) -> tuple[float, ...]:
    """Slowdowns where the first ``slow`` of the workers are so many times slower."""
    return (factor,) * slow + (1.0,) * (workers - slow)


def items_for(seconds: float, cost: float, slowdowns: Sequence[float], *, leaves: bool) -> int:
    """How many items keep Oracle* busy for so long; ``leaves``: the load is gone after an eighth of them."""
    busy = 1 / sum(1 / takes(cost, factor) for factor in slowdowns)
    idle = takes(cost, 1.0) / len(slowdowns)
    return int(seconds / (busy / 8 + idle * 7 / 8 if leaves else busy))


def warm() -> None:
    """Have everything compiled and loaded that the first sample of a balancer would otherwise wait for."""
    for count in (2, 20, 40):
        balancer = BlockingRate()
        balancer.start(count)
        for at in range(1, 4):
            blocked = np.linspace(0.1, 0.5, count) * at
            service = Service(np.full(count, 10 * at), blocked, blocked, np.zeros(count))
            balancer.observe(Sample(float(at), blocked, np.ones(count, dtype=np.bool_), 100 * at, service))
