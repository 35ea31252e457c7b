"""The kinds of windows that a user can ask for.

    Tumbling("10 min")                   |---------|---------|---------|        every row in one window

    Hopping("20 min", "10 min")          |-------------------|                  every row in two
                                                   |-------------------|

    Hopping("5 min", "10 min")           |----|    |----|    |----|             a row in one, or in none

    Overlapping(("10 min", "30 min"))    |---------|---------|---------|        several lengths over one stream,
                                         |-----------------------------|        each row in one window of each

    Sessions("10 min")                   |-x--x----------|   |-x----------|     ends when a key has been quiet

    CountWindows(3)                      |x x   x|x  x      x|                  every three rows of a key

A window covers ``[start, end)``: a row at ``start`` is in it, a row at ``end`` is not. Windows of time start at
``offset + k * every`` for every whole ``k``, negative ones too, counted from 1970-01-01 UTC, so that two jobs, or a job
before and after a restart, have the same windows. Durations are texts (``"10 minutes"``), ``timedelta`` or numbers of
seconds, and are kept as ``timedelta``: ``Tumbling("60 s") == Tumbling("1 minute")``.

When a window of time ends, with a watermark ``w`` (greatest event time less the slack of the job):

    rows           on time                          late, but allowed              too late
    ---------------------------------------------|------------------------------|----------------> w
                                                end                       end + lateness
    result                                       emitted                  again after every batch that had rows for it,
                                                                          then the window is forgotten
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from enum import Enum

from headgate.durations import Duration, micros_of
from headgate.errors import JobError


class Spans(Enum):
    """Which windows a row belongs to that stands for a span of time ``[t1, t2)`` (enorm 4.1, 4.2).

    A row with ``t1 == t2`` stands for an instant, and all rules but ``SHARE`` treat it alike.

        windows         |---------A---------|---------B---------|
        row                          [t1==========t2)
        START            A           where it starts
        END              B           where its last microsecond lies
        EACH             A, B        every window it touches, whole in each
        WITHIN           none        only windows that cover it
        SHARE            A, B        every window it touches, in each with the share of it that lies inside

    Jobs take all but ``SHARE``: their aggregates count rows whole. It is for ``windows.place_in_windows``, and in a job
    for a ``map`` before ``key_by`` that makes a row of each share, as it does for any other rule.
    """

    START = "start"
    END = "end"
    EACH = "each"
    WITHIN = "within"
    SHARE = "share"

    @property
    def sliceable(self) -> bool:
        """Whether windows may share slices. Under EACH a row that touches two slices of a window would count twice in
        it, under WITHIN it would have to be in no slice: these are computed once per window."""
        return self in (Spans.START, Spans.END, Spans.SHARE)


@dataclass(frozen=True, slots=True)
class Hop:
    """A family of windows ``[offset + k * every, offset + k * every + length)``, all in microseconds.

    ``0 <= offset < every``. A ``helper`` is computed and kept like the others, for them to be made of, but never
    emitted (see ``headgate.windows.helpers``).
    """

    length: int
    every: int
    offset: int = 0
    helper: bool = False

    def __post_init__(self) -> None:
        if self.length < 1 or self.every < 1:
            raise JobError.window(
                "the length and the hop of a window", "be longer than zero", (self.length, self.every)
            )
        object.__setattr__(self, "offset", self.offset % self.every)

    @property
    def windows_per_row(self) -> float:
        """In how many windows a row is on average: exactly so many if ``every`` divides ``length``."""
        return self.length / self.every


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows one after another: every row is in exactly one.

    ``Tumbling("1 hour", offset="15 minutes")`` starts at a quarter past.
    """

    length: Duration
    _: KW_ONLY
    offset: Duration = 0
    lateness: Duration = 0
    spans: Spans = Spans.START

    def __post_init__(self) -> None:
        _normalise(self, "length", "offset", "lateness")

    @property
    def hops(self) -> tuple[Hop, ...]:
        length = _micros(self.length)
        return (Hop(length, length, _micros(self.offset)),)

    @property
    def lateness_micros(self) -> int:
        return _micros(self.lateness)


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one length, one every so often: a row is in ``length / every`` of them.

    If ``every`` does not divide ``length`` a row is in one more or one less. If ``every`` is longer than ``length``
    there are gaps, and rows in them are in no window.
    """

    length: Duration
    every: Duration
    _: KW_ONLY
    offset: Duration = 0
    lateness: Duration = 0
    spans: Spans = Spans.START

    def __post_init__(self) -> None:
        _normalise(self, "length", "every", "offset", "lateness")

    @property
    def hops(self) -> tuple[Hop, ...]:
        return (Hop(_micros(self.length), _micros(self.every), _micros(self.offset)),)

    @property
    def lateness_micros(self) -> int:
        return _micros(self.lateness)


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Windows of several lengths over one stream, computed together.

    ``every`` is the hop of all of them; left out, the windows of each length tumble, as in enorm, figure 7.
    """

    lengths: tuple[Duration, ...]
    every: Duration | None = None
    _: KW_ONLY
    offset: Duration = 0
    lateness: Duration = 0
    spans: Spans = Spans.START

    def __post_init__(self) -> None:
        lengths = tuple(_positive("a window's length", length) for length in self.lengths)
        if not lengths:
            raise JobError.window("windows", "have at least one length", lengths, 'for example "10 minutes"')
        if len(set(lengths)) < len(lengths):
            raise JobError.window(
                "the lengths of windows", "differ", [str(length) for length in lengths], "leave out the repeated one"
            )
        object.__setattr__(self, "lengths", lengths)
        _normalise(self, *(("every", "offset", "lateness") if self.every is not None else ("offset", "lateness")))

    @property
    def hops(self) -> tuple[Hop, ...]:
        offset = _micros(self.offset)
        lengths = [_micros(length) for length in self.lengths]
        return tuple(Hop(length, length if self.every is None else _micros(self.every), offset) for length in lengths)

    @property
    def lateness_micros(self) -> int:
        return _micros(self.lateness)


TimeWindows = Tumbling | Hopping | Overlapping
"""The windows that slices are made for."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """A window per key that grows as long as the next row comes within ``gap``.

    It covers ``[first row, last row + gap)``. A row exactly ``gap`` after the last still belongs to it, as in Spark
    and Flink; a row that lies between two sessions within ``gap`` of both makes them one.
    """

    gap: Duration
    _: KW_ONLY
    lateness: Duration = 0

    def __post_init__(self) -> None:
        _normalise(self, "gap", "lateness")

    @property
    def gap_micros(self) -> int:
        return _micros(self.gap)

    @property
    def lateness_micros(self) -> int:
        return _micros(self.lateness)


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Windows of ``rows`` rows of a key, a new one every ``every`` rows (left out: ``rows``, one after another).

    Rows are counted from 0 for each key in the order they are processed; window ``k`` has the rows
    ``[k * every, k * every + rows)``. It ends with its last row, so a key that goes quiet keeps it open.
    """

    rows: int
    every: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("every", self.rows if self.every is None else self.every)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise JobError.window(f"{name} of a count window", "be a whole number from 1", value)
        if self.every is None:
            object.__setattr__(self, "every", self.rows)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The same windows over row numbers instead of microseconds."""
        return (Hop(self.rows, self.every or self.rows),)


def window(
    *lengths: Duration,
    every: Duration | None = None,
    offset: Duration = 0,
    lateness: Duration = 0,
    spans: Spans = Spans.START,
) -> TimeWindows:
    """The kind that these lengths make: tumbling, hopping, or several lengths together.

    ``window("10 minutes", "1 hour", every="10 minutes")`` has both lengths end every ten minutes.
    """
    if len(lengths) != 1:
        return Overlapping(lengths, every, offset=offset, lateness=lateness, spans=spans)
    if every is None or micros_of(every, "every") == micros_of(lengths[0], "a window's length"):
        return Tumbling(lengths[0], offset=offset, lateness=lateness, spans=spans)
    return Hopping(lengths[0], every, offset=offset, lateness=lateness, spans=spans)


_NAMES = {"length": "a window's length", "every": "every", "gap": "the gap of sessions"}


def _normalise(kind: TimeWindows | Sessions, *names: str) -> None:
    for name in names:
        value = getattr(kind, name)
        zero = name in ("offset", "lateness")
        told = _duration(f"the {name} of windows", value) if zero else _positive(_NAMES[name], value)
        object.__setattr__(kind, name, told)


def _positive(what: str, value: Duration) -> timedelta:
    told = _duration(what, value)
    if not told:
        raise JobError.window(what, "be longer than zero", value, 'for example "10 minutes"')
    return told


def _duration(what: str, value: Duration) -> timedelta:
    return timedelta(microseconds=micros_of(value, what))


def _micros(value: Duration) -> int:
    # Exact: a timedelta is made of whole microseconds, and total_seconds() of a float is not.
    assert isinstance(value, timedelta)
    return value // timedelta(microseconds=1)


def common_divisor(hops: tuple[Hop, ...]) -> int:
    """The greatest width that fits all lengths, hops and differences between offsets whole times."""
    first = hops[0].offset
    return math.gcd(*(part for hop in hops for part in (hop.length, hop.every, hop.offset - first)))
