"""How a component may move: instant, disruptive or smooth. Enorm 4.5 and 5.

    component             made of                            instant   disruptive   smooth
    flexible, stateless   map                                yes       -            -
    flexible, stateful    map, compute                       yes (1)   yes          yes (2)
    rigid, stateless      map, consolidate                   yes (3)   -            -
    rigid, stateful       anything                           no        yes          yes (2)

    (1) if all that its computes send is merged by a consolidate downstream
    (2) if all its state ends with windows of time
    (3) what a consolidate has buffered is sent again

    instant      |old....|new....            no state moves; the parts of a key meet at the consolidate
    disruptive   |old....|  pause  |new..    state moves while nothing runs
    smooth       |old.........|              the old one finishes its windows while
                         |new..........      the new one does those that start later

Card: docs/algorithms/migrations.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

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
    rows_per_second: float = 0.0
    """Rows of these key groups."""
    row_seconds: float = 0.0
    """CPU of one row."""
    byte_seconds: float = 0.0
    """CPU of writing and reading a byte of state, and how long it takes: the pause of a disruptive move."""
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


@dataclass(frozen=True, slots=True)
class Price:
    """What a move costs: CPU, the time rows wait, the time until the old slot has nothing left of it."""

    migration: Migration
    cpu_seconds: float
    pause_seconds: float
    completion_seconds: float


@dataclass(frozen=True, slots=True)
class Pick:
    """The way taken, what every allowed way would cost, what is not allowed, and why."""

    migration: Migration
    prices: tuple[Price, ...]
    refused: tuple[Allowed, ...]
    reason: str


def allowed(layout: Layout, component: Component) -> tuple[Allowed, ...]:
    """The row of the table for a component: instant, disruptive, smooth, each with its reason."""
    if not component.stateful:
        how = "it has no state" if component.flexible else "it has no state but what is sent again"
        needless = "there is no state to move"
        return (
            Allowed(Migration.INSTANT, True, how),
            Allowed(Migration.DISRUPTIVE, False, needless),
            Allowed(Migration.SMOOTH, False, needless),
        )
    return (
        _instant(layout, component),
        Allowed(Migration.DISRUPTIVE, True, "state can always be moved while nothing runs"),
        _smooth(layout, component),
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

    Instant: the parts left behind are merged once more, as much work as moving them (7.4), at a later time and in no
    row's way; they are gone when the longest window that has them ends. Disruptive: rows wait while the state is moved.
    Smooth: rows that are in windows of both the old and the new instance are computed twice, for as long as the
    longest window exceeds its hop.
    """
    window = (component.window_micros or 0) / MICROS
    copying = moving.state_bytes * moving.byte_seconds
    if migration is Migration.INSTANT:
        return Price(migration, copying, 0.0, window if component.stateful else 0.0)
    if migration is Migration.DISRUPTIVE:
        return Price(migration, copying, copying, copying)
    hop = window if moving.hop_micros is None else moving.hop_micros / MICROS
    twice = max(window - hop, 0.0) * moving.rows_per_second * moving.row_seconds
    return Price(migration, twice, 0.0, window)


def pick(layout: Layout, component: Component, moving: Moving, bounds: Bounds | None = None) -> Pick:
    """The allowed way with least CPU whose pause and completion are within the bounds (as 5.1.2 does for split).

    Of equal ones the shorter pause, then the earlier end. If none is within the bounds, the shortest pause: rows that
    wait hurt more than a move that takes long. Instant counts as completed at once: its effect is there from the next
    batch, and what it leaves behind holds nobody up.
    """
    bounds = bounds or Bounds()
    ways = allowed(layout, component)
    prices = tuple(price(way.migration, component, moving) for way in ways if way.allowed)
    refused = tuple(way for way in ways if not way.allowed)
    within = [one for one in prices if _within(one, bounds)]
    if within:
        best = min(within, key=lambda one: (one.cpu_seconds, one.pause_seconds, one.completion_seconds))
    else:
        best = min(prices, key=lambda one: (one.pause_seconds, one.cpu_seconds))
    return Pick(best.migration, prices, refused, _reason(best, ways, prices, refused, bool(within)))


def _within(one: Price, bounds: Bounds) -> bool:
    taking = 0.0 if one.migration is Migration.INSTANT else one.completion_seconds
    return one.pause_seconds <= bounds.max_pause_seconds and taking <= bounds.max_completion_seconds


def _reason(
    best: Price, ways: tuple[Allowed, ...], prices: tuple[Price, ...], refused: tuple[Allowed, ...], within: bool
) -> str:
    why = next(way.reason for way in ways if way.migration is best.migration)
    text = f"{best.migration.value}: {why}"
    others = [one for one in prices if one is not best]
    if others:
        costs = ", ".join(f"{one.migration.value} {_cost(one)}" for one in others)
        text += f"; {_cost(best)}, against {costs}"
    if not within:
        text += "; no way is within the bounds, and this one pauses least"
    refusals = "; ".join(f"not {way.migration.value}: {way.reason}" for way in refused)
    return f"{text}; {refusals}" if refusals and best.migration is not Migration.INSTANT else text


def _cost(one: Price) -> str:
    return f"{one.cpu_seconds:.3g} s of CPU and a pause of {one.pause_seconds:.3g} s"
