"""Who decides how much each connection of a region gets. Pure.

A region hands its balancer one :class:`Sample` per sampling period and sends by the weights that come back until the
next one. Weights are whole units of 0.1 % (section 5.1 of the blocking-rate paper) and always sum to
:data:`RESOLUTION`.

    transport --Sample--> Balancer.observe --weights--> Turns --connection--> transport
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headgate.errors import InputError

RESOLUTION = 1000
"""How many units the whole load has: weights are multiples of 0.1 % (section 5.1)."""


@dataclass(frozen=True, slots=True)
class Service:
    """What each connection has done since the region began.

    ``answered`` counts tuples. ``served`` is the time in seconds that the connection was at work on those as the region
    sees it, from when a frame was sent, or the one before was answered, to its answer; ``worked`` is what the worker
    says it took. None of them falls. ``current`` is for how long it has been at work on its oldest unanswered frame
    now, 0 where it has none; ``frame`` is how many tuples a frame has at present.
    """

    answered: NDArray[np.int64]
    served: NDArray[np.float64]
    worked: NDArray[np.float64]
    current: NDArray[np.float64]
    frame: int = 1

    def _moved(self, by: Service | None, sign: int) -> Service:
        if by is None:
            return self
        return replace(
            self,
            answered=self.answered + sign * by.answered,
            served=self.served + sign * by.served,
            worked=self.worked + sign * by.worked,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """What the transport saw by the end of one sampling period.

    ``at`` is the time of the sample in seconds since the region began, on a clock that never goes back. ``blocked`` is
    the time in seconds, since then too, for which the splitter could not go on because of each connection. It never
    falls. ``alive`` says which connections can be given work now. ``sent`` is how many tuples the splitter has sent
    since then, over all connections, and ``service`` what came back; None where the transport does not count.
    """

    at: float
    blocked: NDArray[np.float64]
    alive: NDArray[np.bool_]
    sent: int | None = None
    service: Service | None = None

    def after(self, before: Sample) -> Sample:
        """The same moment on the clock and the counts of a region that had come to ``before`` when this one began."""
        return self._moved(before, 1)

    def since(self, before: Sample) -> Sample:
        """The same moment for a region that begins at ``before``."""
        return self._moved(before, -1)

    def _moved(self, by: Sample, sign: int) -> Sample:
        sent = None if self.sent is None else self.sent + sign * (by.sent or 0)
        service = None if self.service is None else self.service._moved(by.service, sign)
        return Sample(self.at + sign * by.at, self.blocked + sign * by.blocked, self.alive, sent, service)


@dataclass(frozen=True, slots=True)
class View:
    """What a balancer believes, for people to look at: one value per connection."""

    weights: NDArray[np.int64]
    rates: NDArray[np.float64]
    """Seconds blocked per second, smoothed, at the weights that were in force."""
    clusters: NDArray[np.int64]
    """Which cluster each connection belongs to; connections that stand alone have numbers of their own."""


class Balancer(Protocol):
    """Turns samples into weights. One object serves one region, from its first sample to its last.

    ``observe`` is called once per sampling period, with samples in the order of their times. The weights it returns
    are zero for every connection that is not alive and sum to :data:`RESOLUTION` as long as one is alive; with none
    alive they are all zero.
    """

    def start(self, connections: int) -> NDArray[np.int64]: ...

    def observe(self, sample: Sample) -> NDArray[np.int64]: ...

    def view(self) -> View: ...


def even(alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The same weight for every connection that is alive, to the unit: the first ones get what is left over."""
    weights = np.zeros(len(alive), dtype=np.int64)
    living = np.flatnonzero(alive)
    if len(living):
        share, left = divmod(RESOLUTION, len(living))
        weights[living] = share
        weights[living[:left]] += 1
    return weights


def shares(parts: Sequence[float] | NDArray[np.generic], alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Weights in proportion to ``parts`` over the living connections, rounded so that they sum to the whole.

    Parts that are all zero count as equal. Largest remainders get the units that rounding leaves.
    """
    given = np.asarray(parts, dtype=np.float64)
    if given.shape != alive.shape or not np.isfinite(given).all() or (given < 0).any():
        raise InputError(
            f"a fixed split must have one finite share of zero or more for each of {len(alive)} connections, got "
            f"{given.tolist()}: pass one number per worker"
        )
    wanted = np.where(alive, given, 0.0)
    total = wanted.sum()
    if total == 0:
        return even(alive)
    exact = wanted / total * RESOLUTION
    weights: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left = RESOLUTION - int(weights.sum())
    weights[np.argsort(weights - exact, kind="stable")[:left]] += 1
    return weights


class RoundRobin:
    """Even weights over the living connections: what a region does without load balancing (RR of section 6)."""

    def start(self, connections: int) -> NDArray[np.int64]:
        return self._keep(even(np.ones(connections, dtype=np.bool_)))

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        return self._keep(even(sample.alive))

    def view(self) -> View:
        return _plain(self._weights)

    def _keep(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        self._weights = weights
        return weights


class Fixed:
    """The same split for ever, over the connections that live at the time.

    ``parts`` has one share of zero or more per connection; they need not sum to anything. When all connections that
    have a share are dead, the living ones get even weights: the stream must go on.
    """

    def __init__(self, parts: Sequence[float]) -> None:
        self._schedule = Schedule([(0.0, parts)])

    def start(self, connections: int) -> NDArray[np.int64]:
        return self._schedule.start(connections)

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        return self._schedule.observe(sample)

    def view(self) -> View:
        return self._schedule.view()


class Schedule:
    """Fixed splits that change at given times: the Oracle* of section 6, who is told when the load changes.

    ``splits`` has pairs of a time and the parts in force from the first sample at or after it, in ascending order of
    time. The first is in force from the start, whatever its time.
    """

    def __init__(self, splits: Sequence[tuple[float, Sequence[float]]]) -> None:
        times = [at for at, _ in splits]
        if not splits or times != sorted(times):
            raise InputError(
                f"a schedule must have at least one split and ascending times, got times {times}: sort the splits by "
                "the time from which they hold"
            )
        self._splits = [(at, tuple(parts)) for at, parts in splits]

    def start(self, connections: int) -> NDArray[np.int64]:
        return self._keep(self._splits[0][1], np.ones(connections, dtype=np.bool_))

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        parts = self._splits[0][1]
        for at, later in self._splits[1:]:
            if at <= sample.at:
                parts = later
        return self._keep(parts, sample.alive)

    def view(self) -> View:
        return _plain(self._weights)

    def _keep(self, parts: Sequence[float], alive: NDArray[np.bool_]) -> NDArray[np.int64]:
        self._weights = shares(parts, alive)
        return self._weights


def _plain(weights: NDArray[np.int64]) -> View:
    """The view of a balancer that measures nothing: no rates, and every connection for itself."""
    return View(weights.copy(), np.zeros(len(weights)), np.arange(len(weights)))
