"""Windows of a keyed stream while a job is put together: whole ones, and partials for a consolidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headgate.durations import Duration
from headgate.errors import JobError
from headgate.operators import (
    Aggregate,
    Compute,
    Consolidate,
    CountAggregation,
    SessionAggregation,
    WindowedAggregation,
)
from headgate.windows import CountWindows, Sessions, Slicing, Spans, TimeWindows, window, with_helpers

if TYPE_CHECKING:
    from headgate.engine.stream import KeyedStream, Stream

MAX_SLICES = 20_000
"""That a window may be made of, a day every five seconds say. How a window is put together is looked at slice by slice
when it closes; hops of odd lengths have slices of milliseconds, and would take minutes."""

AnyWindows = TimeWindows | Sessions | CountWindows
"""The kinds of windows a user can ask for."""

Share = bool | Literal["auto", "per window"]
"""What windows share: windows inside them and slices, slices alone, as it costs, or nothing."""


def windows_of(
    lengths: Sequence[Duration | AnyWindows],
    every: Duration | None,
    offset: Duration,
    lateness: Duration,
    spans: Spans = Spans.START,
) -> AnyWindows:
    """The windows that somebody told by lengths, or by one object that says all by itself."""
    if not isinstance(spans, Spans):
        raise JobError.option("spans", "one of headgate.windows.Spans", spans)
    kind: object = lengths[0] if len(lengths) == 1 and not isinstance(lengths[0], Duration) else None
    if kind is not None and not isinstance(kind, AnyWindows):
        must = "told by durations, or by an object of headgate.windows such as Tumbling('1 hour')"
        raise JobError.option("windows", must, kind)
    if kind is None:
        return window(*lengths, every=every, offset=offset, lateness=lateness, spans=spans)  # type: ignore[arg-type]
    given = {"every": every, "offset": offset, "lateness": lateness, "spans": spans is not Spans.START and spans}
    if any(given.values()):
        raise JobError.option(
            "every, offset, lateness and spans",
            f"left out beside {type(kind).__name__}, which has its own",
            {name: value for name, value in given.items() if value},
        )
    return kind


def no_results_among(options: Mapping[str, object]) -> None:
    """Refuse a result that has the name of an option: it would be taken for that."""
    for name, value in options.items():
        if isinstance(value, Aggregate):
            raise JobError.option(
                f"a result named {name!r}", "named otherwise, since that is an option of aggregate()", value.verb
            )


def _spanless(kind: TimeWindows) -> None:
    """Rows without a span are in the windows of their one time: a rule for spans would do nothing."""
    if kind.spans is not Spans.START:
        raise JobError.option("spans", "left out where aggregate(until=...) does not say what rows span", kind.spans)


def _few_slices(slicing: Slicing, do: str) -> None:
    if slicing.longest > MAX_SLICES * slicing.width:
        count = slicing.longest // slicing.width
        raise JobError.window("the slices that a window is made of", f"be at most {MAX_SLICES:,}", count, do)


def _known_share(share: Share) -> None:
    if share not in (True, False, "auto", "per window"):
        raise JobError.option("share", 'True, False, "auto" or "per window"', share)


class WindowedStream:
    """Rows by key and window."""

    def __init__(self, keyed: KeyedStream, kind: AnyWindows, ttl: Duration | None = None) -> None:
        self.keyed = keyed
        self.kind = kind
        self.ttl = ttl

    def aggregate(
        self,
        *,
        name: str | None = None,
        share: Share = True,
        split: bool | Literal["auto"] = False,
        until: str | None = None,
        **aggregates: Aggregate,
    ) -> Stream:
        """Aggregates per key and window, emitted once the window is complete: the watermark has passed its end, or it
        has all its rows. ``window("1 hour", every="5 minutes").aggregate(n=hg.count(), total=hg.sum("amount"))``.

        Results have the key columns, ``window_start``, ``window_end`` and the aggregates. ``share=False`` makes every
        window of time from its slices alone, and keeps nothing in between.

        ``share="per window"`` computes every window by itself, each row once for each; ``"auto"`` changes between that
        and slices, whichever costs less by what is measured. Both go with ``split``.

        ``until`` names a column, so that a row stands for the time from its event time until then;
        ``window(..., spans=...)`` says which windows such a row is in.

        ``split=True`` makes partials of slices, or of windows, in one operator, ``NAME.compute``, and windows of them
        in another: a shuffle more, and key groups of the first can move without their state. ``"auto"`` runs both in
        one task or apart, whichever costs less by what is measured, and changes that between two batches.
        """
        no_results_among({"name": name, "share": share, "split": split, "until": until})
        keyed, kind, stream = self.keyed, self.kind, self.keyed.stream
        used = keyed._used(aggregates, until)
        _known_share(share)
        if not isinstance(kind, TimeWindows) and (split or until is not None or not isinstance(share, bool)):
            given = {"share": share, "split": split, "until": until}
            raise JobError.option("share, split and until", f"left out beside {type(kind).__name__}", given)
        number = len(stream.job._steps)
        if isinstance(kind, CountWindows):
            label = name or f"counts{number}"
            return keyed._add(CountAggregation(label, used, keyed.keys, aggregates, kind), self.ttl, timers=False)
        event_time = stream.job.event_time
        assert event_time is not None
        if event_time not in stream.schema.names:
            raise JobError.unknown_column("window", event_time, stream.schema.names)
        late = kind.lateness_micros
        if isinstance(kind, Sessions):
            label = name or f"sessions{number}"
            sessions = SessionAggregation(label, used, keyed.keys, aggregates, kind, event_time)
            return keyed._add(sessions, None, timers=True, combine_early=True, lateness_micros=late)
        if until is None:
            _spanless(kind)
        slicing = Slicing.of(kind)
        _few_slices(slicing, "choose lengths, hops and offsets with a greater common divisor")
        label = name or f"windows{number}"
        if split:
            if split not in (True, "auto"):
                raise JobError.option("split", 'True, False or "auto"', split)
            if late:
                raise JobError.option("split", "left out for windows with lateness: partials come once", split)
            width = timedelta(microseconds=slicing.width)
            offset = timedelta(microseconds=slicing.anchor)
            partials = keyed.compute(
                width, offset=offset, until=until, spans=kind.spans, name=f"{label}.compute", **aggregates
            )
            stream.job._split[f"{label}.compute", label] = split == "auto"
            return partials.consolidate(replace(kind, spans=Spans.START), name=label, share=share)
        if share is True or share == "auto":
            slicing = with_helpers(slicing)
        operator = WindowedAggregation(
            label, used, keyed.keys, aggregates, slicing, event_time, bool(share), until, kind.spans
        )
        alone = share == "per window" or not operator.sliceable
        return keyed._add(
            operator,
            None,
            timers=False,
            combine_early=True,
            lateness_micros=late,
            per_window=alone,
            decides_sharing=share == "auto" and not alone,
        )


class PartialStream:
    """Partials per key and slice, or per key and window, on their way to a consolidate."""

    def __init__(
        self,
        rows: Stream,
        keys: tuple[str, ...],
        used: pa.Schema,
        aggregates: Mapping[str, Aggregate],
        slicing: Slicing,
    ) -> None:
        self.rows = rows
        self.keys = keys
        self._used = used
        self._aggregates = aggregates
        self._slicing = slicing

    def consolidate(
        self,
        *lengths: Duration | TimeWindows,
        every: Duration | None = None,
        offset: Duration = 0,
        name: str | None = None,
        share: Share = True,
    ) -> Stream:
        """Windows of the partials, told as in ``KeyedStream.window``; slices must fit them. May be called several
        times.

        With ``share="per window"`` the compute makes a partial of each of these windows instead of slices, and they
        are merged where a move has left parts of one in several slots; ``"auto"`` changes between both. Only where
        these windows are all that the compute feeds: slices are what several consolidates share.
        """
        _known_share(share)
        operator = self._operator(lengths, every, offset, name, share, partial=False)
        self._feed(operator, share)
        return self._add(operator)

    def consolidate_partially(
        self, length: Duration, *, offset: Duration = 0, name: str | None = None
    ) -> PartialStream:
        """Larger partials, for another consolidate: windows of this length, side by side, that are its slices."""
        operator = self._operator((length,), None, offset, name, True, partial=True)
        self._feed(operator, True)
        slicing = Slicing(tuple(hop for hop in operator.slicing.hops if not hop.helper))
        return PartialStream(self._add(operator), self.keys, self._used, self._aggregates, slicing)

    def _operator(
        self,
        lengths: Sequence[Duration | TimeWindows],
        every: Duration | None,
        offset: Duration,
        name: str | None,
        share: Share,
        *,
        partial: bool,
    ) -> Consolidate:
        job = self.rows.job
        kind = windows_of(lengths, every, offset, 0)
        if not isinstance(kind, TimeWindows):
            raise JobError.option("consolidate", "given windows of time", type(kind).__name__)
        _spanless(kind)
        widest, width = (timedelta(microseconds=each.width) for each in (Slicing.of(kind), self._slicing))
        if widest % width:
            raise JobError.window(
                "the slices that a consolidate merges", f"divide {widest}, the widest that fit its windows", str(width),
                "make them narrower, or its windows longer",
            )  # fmt: skip
        slicing = Slicing(kind.hops, kind.lateness_micros, slice_micros=self._slicing.width)
        if slicing.anchor != self._slicing.anchor:
            raise JobError.window(
                "the offset of a consolidate", "fall on the slices that it merges",
                str(timedelta(microseconds=slicing.anchor)), "give the compute the same offset",
            )  # fmt: skip
        _few_slices(slicing, "make the slices of the compute wider")
        if share is True or share == "auto":
            slicing = with_helpers(slicing)
        assert job.event_time is not None
        label = name or f"consolidate{len(job._steps)}"
        return Consolidate(
            label, self._used, self.keys, self._aggregates, slicing, job.event_time, bool(share), partial=partial
        )

    def _feed(self, consolidate: Consolidate, share: Share) -> None:
        """Tell the compute which windows its partials are for, and whether each is computed by itself: that only makes
        sense where its slices would be for nothing else."""
        (node,) = self.rows._nodes
        source = self.rows.job._steps[node.step]
        compute = source.operator
        assert isinstance(compute, WindowedAggregation)
        if isinstance(compute, Compute) and not consolidate.partial and not node.branches:
            hops = tuple(hop for hop in consolidate.slicing.hops if not hop.helper)
            source.operator = replace(compute, feeds=replace(consolidate.slicing, hops=hops))
            source.per_window = share == "per window" or not compute.sliceable
            source.decides_sharing = share == "auto" and not source.per_window
            return
        if not compute.sliceable:
            raise JobError.window(
                "the rule for rows that last in a compute with several consolidates",
                "be START or END, which put a row in one slice", compute.spans.name, "give each a compute of its own",
            )  # fmt: skip
        if source.per_window or source.decides_sharing or not isinstance(share, bool):
            first = "per window" if source.per_window else "auto"
            raise JobError.option(
                "share", "True or False where the slices of a compute are for several consolidates",
                first if isinstance(share, bool) else share,
            )  # fmt: skip
        if isinstance(compute, Compute):
            source.operator = replace(compute, feeds=None)

    def _add(self, operator: Consolidate) -> Stream:
        return self.rows.key_by(*self.keys)._add(operator, None, timers=False, combine_early=True)
