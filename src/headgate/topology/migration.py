"""How a component may move: instant, disruptive, smooth, or by reference. Enorm 4.5 and 5, and one way more.

    component             made of                            instant   disruptive   smooth    by reference (4)
    flexible, stateless   map                                yes       -            -         -
    flexible, stateful    map, compute                       yes (1)   yes          yes (2)   yes
    rigid, stateless      map, consolidate                   yes (3)   -            -         -
    rigid, stateful       anything                           no        yes          yes (2)   yes

    (1) if all that its computes send is merged by a consolidate downstream
    (2) if all its state ends with windows of time
    (3) what a consolidate has buffered is sent again
    (4) if state lies in a store that all slots read

    instant      |old....|new....            no state moves; the parts of a key meet at the consolidate
    disruptive   |old....|  pause  |new..    state moves while nothing runs
    smooth       |old.........|              the old one finishes its windows while
                         |new..........      the new one does those that start later
    by reference |old....|new....            state changes owner in the store

Card: docs/algorithms/migrations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import MappingProxyType

from headgate.errors import JobError
from headgate.topology.components import Component, Layout
from headgate.topology.operators import Kind, told

MICROS = 1e6
"""Microseconds in a second."""


class Migration(Enum):
    """How a move treats state."""

    INSTANT = "instant"
    DISRUPTIVE = "disruptive"
    SMOOTH = "smooth"
    REFERENCE = "by reference"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whether a component may move in some way, and why."""

    migration: Migration
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What is to move: measured, for the key groups that one plan moves."""

    state_bytes: float = 0.0
    state_rows: float = 0.0
    """Partials: what an instant move leaves behind."""
    rows_per_second: float = 0.0
    """Rows of these key groups."""
    row_seconds: float = 0.0
    """CPU of one row."""
    byte_seconds: float = 0.0
    """CPU of writing and reading a byte of state, and how long it takes: the pause of a disruptive move."""
    merge_seconds: float = 0.0
    """CPU of one partial more that is sent and merged; times ``state_rows`` it is MK K1 of 5.1.1."""
    fetch_seconds: float = 0.0
    """Of reading a byte of the store that another slot has had at hand; none where all read the same disk."""
    hop_micros: int | None = None
    """The shortest hop of the windows; left out, they tumble."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise JobError.window(f"{name} of a move", "be a finite number from zero", value, "measure again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a move may pause rows, and how long it may take until nothing of it is left."""

    max_pause_seconds: float = math.inf
    max_completion_seconds: float = math.inf

    def broken(self, price: Price) -> str | None:
        """Which bound a way of moving breaks; None if it breaks none.

        Instant counts as completed at once: its effect is there from the next batch, and what it leaves behind holds
        nobody up.
        """
        if price.pause_seconds > self.max_pause_seconds:
            return f"a pause of {price.pause_seconds:.3g} s is beyond {self.max_pause_seconds:.3g} s"
        if price.migration is not Migration.INSTANT and price.completion_seconds > self.max_completion_seconds:
            return (
                f"its {price.completion_seconds:.3g} s until it is over are beyond {self.max_completion_seconds:.3g} s"
            )
        return None


@dataclass(frozen=True, slots=True)
class Price:
    """What a move costs: CPU, the time rows wait, the time until the old slot has nothing left of it."""

    migration: Migration
    cpu_seconds: float
    pause_seconds: float
    completion_seconds: float

    def __str__(self) -> str:
        return f"{self.cpu_seconds:.3g} s of CPU and a pause of {self.pause_seconds:.3g} s"


@dataclass(frozen=True, slots=True)
class Pick:
    """The way taken, what every allowed way would cost, what is not allowed or beyond the bounds, and why."""

    migration: Migration
    prices: tuple[Price, ...]
    refused: tuple[Allowed, ...]
    reason: str


def allowed(layout: Layout, component: Component, *, shared_store: bool = True) -> tuple[Allowed, ...]:
    """The row of the table for a component: instant, disruptive, smooth, by reference, each with its reason.

    ``shared_store``: every slot reads the state of every other one, as in the engine; the paper's slots do not.
    """
    if not component.stateful:
        how = "it has no state" if component.flexible else "it has no state but what is sent again"
        return (
            Allowed(Migration.INSTANT, True, how),
            *(Allowed(way, False, "there is no state to move") for way in Migration if way is not Migration.INSTANT),
        )
    stored = "state changes owner in a store that all slots read" if shared_store else "no slot reads another's state"
    return (
        _instant(layout, component),
        Allowed(Migration.DISRUPTIVE, True, "state can always be moved while nothing runs"),
        _smooth(layout, component),
        Allowed(Migration.REFERENCE, shared_store, stored),
    )


def _instant(layout: Layout, component: Component) -> Allowed:
    topology = layout.topology
    operators = [topology.operator(name) for name in component.operators]
    stuck = [one.name for one in operators if not one.flexible]
    if stuck:
        return Allowed(Migration.INSTANT, False, f"rigid: {told(stuck)} needs all of a key in one place")
    eager = [one.name for one in operators if one.kind is Kind.COMPUTE and not topology.makes_partials(one.name)]
    if eager:
        return Allowed(Migration.INSTANT, False, f"no consolidate merges what {told(eager)} sends")
    return Allowed(Migration.INSTANT, True, "a consolidate downstream merges the parts of a key")


def _smooth(layout: Layout, component: Component) -> Allowed:
    endless = [
        name
        for name in component.operators
        if (one := layout.topology.operator(name)).stateful and not one.windowed
    ]  # fmt: skip
    if endless:
        return Allowed(Migration.SMOOTH, False, f"the state of {told(endless)} does not end with a window")
    return Allowed(Migration.SMOOTH, True, "all its state ends with windows")


def price(migration: Migration, component: Component, moving: Moving) -> Price:
    """What a move would cost.

    Instant: the parts left behind are sent and merged once more (MK K1 of 5.1.1), at a later time and in no row's way;
    they are gone when the longest window that has them ends. Disruptive: rows wait while the state is read and written.
    Smooth: rows that are in windows of both the old and the new instance are computed twice, for as long as the longest
    window exceeds its hop. By reference: the new owner reads what the old one had at hand.
    """
    window = (component.window_micros or 0) / MICROS
    if migration is Migration.INSTANT:
        left = moving.state_rows * moving.merge_seconds
        return Price(migration, left, 0.0, window if component.stateful else 0.0)
    if migration is Migration.DISRUPTIVE:
        copying = moving.state_bytes * (moving.byte_seconds + moving.fetch_seconds)
        return Price(migration, copying, copying, copying)
    if migration is Migration.REFERENCE:
        return Price(migration, moving.state_bytes * moving.fetch_seconds, 0.0, 0.0)
    hop = window if moving.hop_micros is None else moving.hop_micros / MICROS
    twice = max(window - hop, 0.0) * moving.rows_per_second * moving.row_seconds
    return Price(migration, twice, 0.0, window)


def pick(
    layout: Layout,
    component: Component,
    moving: Moving,
    bounds: Bounds | None = None,
    *,
    shared_store: bool = True,
) -> Pick:
    """The cheapest of what the table allows."""
    return cheapest(allowed(layout, component, shared_store=shared_store), component, moving, bounds)


def cheapest(ways: tuple[Allowed, ...], component: Component, moving: Moving, bounds: Bounds | None = None) -> Pick:
    """The allowed way with least CPU whose pause and completion are within the bounds (as 5.1.2 does for split).

    Of equal ones the shorter pause, then the earlier end, then one that rewrites nothing. If none is within the bounds,
    the shortest pause: rows that wait hurt more than a move that takes long. At least one way must be allowed.
    """
    bounds = bounds or Bounds()
    prices = _prices(ways, component, moving)
    beyond = {one.migration: why for one in prices if (why := bounds.broken(one)) is not None}
    within = [one for one in prices if one.migration not in beyond]
    best = min(within, key=_rank) if within else min(prices, key=lambda one: (one.pause_seconds, one.cpu_seconds))
    why = next(way.reason for way in ways if way.migration is best.migration)
    return taken(best.migration, why, ways, component, moving, beyond)


def taken(
    migration: Migration,
    why: str,
    ways: tuple[Allowed, ...],
    component: Component,
    moving: Moving,
    beyond: Mapping[Migration, str] = MappingProxyType({}),
) -> Pick:
    """An allowed way for a reason of the caller's, with what the others would cost or why they are not allowed.

    ``beyond``: ways that a bound rules out, and which.
    """
    prices = _prices(ways, component, moving)
    best = next(one for one in prices if one.migration is migration)
    out = (
        *(way for way in ways if not way.allowed),
        *(Allowed(way, False, text) for way, text in beyond.items()),
    )
    return Pick(migration, prices, out, _reason(best, why, prices, out))


def _rank(one: Price) -> tuple[float, float, float, bool]:
    rewrites = one.migration is Migration.DISRUPTIVE
    return one.cpu_seconds, one.pause_seconds, one.completion_seconds, rewrites


def _prices(ways: tuple[Allowed, ...], component: Component, moving: Moving) -> tuple[Price, ...]:
    return tuple(price(way.migration, component, moving) for way in ways if way.allowed)


def _reason(best: Price, why: str, prices: tuple[Price, ...], out: tuple[Allowed, ...]) -> str:
    text = f"{best.migration.value}: {why}"
    others = [one for one in prices if one is not best]
    if others:
        text += f"; {best}, against {', '.join(f'{one.migration.value} {one}' for one in others)}"
    if any(way.migration is best.migration for way in out):
        text += "; no way is within the bounds, and this one pauses least"
    noes = [f"not {way.migration.value}: {way.reason}" for way in out if way.migration is not best.migration]
    return "; ".join([text, *noes])
