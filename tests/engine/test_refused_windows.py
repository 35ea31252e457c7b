"""Windows, computes and consolidates that a job refuses, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.engine.program import FileFormat
from headgate.errors import InputError, JobError
from headgate.sources import FileSource
from headgate.windows import CountWindows, Hopping, Overlapping, Sessions, Spans, Tumbling

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
LASTING = SCHEMA.append(pa.field("until", pa.timestamp("us", "UTC")))
TOTAL: dict[str, Any] = {"n": hg.count(), "total": hg.sum("v")}


def _source(schema: pa.Schema = SCHEMA, event_time: str | None = "at") -> Any:
    source = FileSource(None, FileFormat("parquet", schema))  # type: ignore[arg-type]
    return hg.Job("job", event_time=event_time).source(source, "in")


def _refused(build: Callable[[], Any]) -> str:
    with pytest.raises(JobError) as refused:
        build()
    return str(refused.value)


def test_what_a_compute_is_refused() -> None:
    no_time = _refused(lambda: _source(event_time=None).key_by("k").compute("1 minute", **TOTAL))
    assert no_time == (
        "compute needs the time of each event, and the job has none: name the column when you make the job, "
        'Job(..., event_time="at", slack="1 minute")'
    )
    other = _refused(lambda: _source(event_time="then").key_by("k").compute("1 minute", **TOTAL))
    assert other == "'compute' needs the column 'then', and its rows have k, v, at: check the name"
    column = _refused(lambda: _source().key_by("k").compute("1 minute", total=hg.sum("amount")))
    assert column == "'aggregate' needs the column 'amount', and its rows have k, v, at: check the name"
    nothing = _refused(lambda: _source().key_by("k").compute(0, **TOTAL))
    assert nothing == 'a window\'s length must be longer than zero, got 0: for example "10 minutes"'
    with pytest.raises(InputError, match="must have no column or aggregate named 'window_end', which its windows use"):
        _source().key_by("k").compute("1 minute", window_end=hg.count())


def test_what_a_consolidate_is_refused() -> None:
    partials = _source().key_by("k").compute("4 minutes", **TOTAL)
    assert _refused(lambda: partials.consolidate("12 minutes", offset="1 minute")) == (
        "the offset of a consolidate must fall on the slices that it merges, got '0:01:00': give the compute the same "
        "offset"
    )
    partials.consolidate("12 minutes", offset="8 minutes")
    too_wide = (
        "the slices that a consolidate merges must divide 0:10:00, the widest that fit its windows, got '0:04:00': "
        "make them narrower, or its windows longer"
    )
    assert _refused(lambda: partials.consolidate("10 minutes")) == too_wide
    assert _refused(lambda: partials.consolidate_partially("10 minutes")) == too_wide
    assert "must divide 0:02:00" in _refused(lambda: partials.consolidate("8 minutes", every="2 minutes"))
    tiny = _source().key_by("k").compute("1 ms", **TOTAL)
    assert _refused(lambda: tiny.consolidate("1 hour")) == (
        "the slices that a window is made of must be at most 20,000, got 3600000: make the slices of the compute wider"
    )
    assert _refused(lambda: partials.consolidate(Tumbling("8 minutes", lateness="1 minute"))) == (
        "the lateness of a consolidate must be zero, got '0:01:00': give the job slack instead: its partials come when "
        "their slice has closed"
    )
    sessions, counts = Sessions("8 minutes"), CountWindows(8)
    assert _refused(lambda: partials.consolidate(sessions)) == (
        "consolidate must be given windows of time, got 'Sessions'"
    )
    assert _refused(lambda: partials.consolidate(counts)) == (
        "consolidate must be given windows of time, got 'CountWindows'"
    )
    assert _refused(lambda: partials.consolidate(Tumbling("8 minutes"), offset="4 minutes")) == (
        "every, offset, lateness and spans must be left out beside Tumbling, which has its own, got {'offset': "
        "'4 minutes'}"
    )
    assert _refused(lambda: partials.consolidate()) == (
        'windows must have at least one length, got (): for example "10 minutes"'
    )


@pytest.mark.parametrize("share", ["per window", "auto"])
def test_one_computation_per_window_is_refused_where_slices_are_for_several_consolidates(share: Any) -> None:
    text = f"share must be True or False where the slices of a compute are for several consolidates, got {share!r}"
    partials = _source().key_by("k").compute("4 minutes", **TOTAL)
    partials.consolidate("8 minutes")
    assert _refused(lambda: partials.consolidate("12 minutes", share=share)) == text
    partials = _source().key_by("k").compute("4 minutes", **TOTAL)
    partials.consolidate("8 minutes", share=share)
    assert _refused(lambda: partials.consolidate("12 minutes")) == text
    assert _refused(lambda: partials.consolidate_partially("12 minutes")) == text
    eights = _source().key_by("k").compute("4 minutes", **TOTAL).consolidate_partially("8 minutes")
    assert _refused(lambda: eights.consolidate("16 minutes", share=share)) == text
    assert _refused(lambda: eights.consolidate("16 minutes", share="now and then")) == (
        'share must be True, False, "auto" or "per window", got \'now and then\''
    )


def test_what_a_partial_consolidate_is_refused() -> None:
    partials = _source().key_by("k").compute("4 minutes", **TOTAL)
    assert _refused(lambda: partials.consolidate_partially(Hopping("8 minutes", "4 minutes"))) == (
        "windows that another consolidate merges must lie side by side, got 'windows of 0:08:00 every 0:04:00 from "
        "0:00:00': check the window"
    )
    assert "must lie side by side" in _refused(
        lambda: partials.consolidate_partially(Overlapping(("8 minutes", "16 minutes")))
    )
    eights = partials.consolidate_partially("8 minutes", offset="4 minutes")
    assert "the offset of a consolidate must fall on the slices that it merges" in _refused(
        lambda: eights.consolidate("16 minutes")
    )
    assert "must divide 0:12:00, the widest that fit its windows, got '0:08:00'" in _refused(
        lambda: eights.consolidate("12 minutes", offset="4 minutes")
    )


@pytest.mark.parametrize(
    ("windows", "how", "text"),
    [
        pytest.param(
            Tumbling("1 minute"), {"share": "sometimes"},
            'share must be True, False, "auto" or "per window", got \'sometimes\'',
            id="another way to share",
        ),
        pytest.param(
            Tumbling("1 minute"), {"split": "maybe"}, 'split must be True, False or "auto", got \'maybe\'',
            id="another way to split",
        ),
        pytest.param(
            Tumbling("1 minute"), {"split": True, "share": "sometimes"},
            'share must be True, False, "auto" or "per window", got \'sometimes\'',
            id="another way to share between halves",
        ),
        pytest.param(
            Tumbling("1 minute", lateness="1 minute"), {"split": True},
            "split must be left out for windows with lateness: partials come once, got True",
            id="split and late rows",
        ),
        pytest.param(
            Tumbling("1 minute", lateness="1 minute"), {"split": True, "share": "per window"},
            "split must be left out for windows with lateness: partials come once, got True",
            id="split and late rows, one computation per window",
        ),
        pytest.param(
            Tumbling("1 minute"), {"until": "end"},
            "'until' needs the column 'end', and its rows have k, v, at, until: check the name",
            id="no such column",
        ),
        pytest.param(
            Tumbling("1 minute"), {"until": "k"},
            "until='k' must be a timestamp, a date or a whole number of microseconds since 1970, got 'string'",
            id="rows that last until something that is no time",
        ),
        pytest.param(
            [1, 2], {},
            "windows must be told by durations, or by an object of headgate.windows such as Tumbling('1 hour'), got "
            "[1, 2]",
            id="a list",
        ),
        pytest.param(
            1e30, {}, "a window's length must be at most 100,000 years, got 1e+30", id="longer than time",
        ),
        pytest.param(
            Tumbling("1 minute"), {"name": 5}, "the name of an operator must be a text, got 5",
            id="a name that is none",
        ),
        pytest.param(
            Sessions("1 minute"), {"split": True},
            "share, split and until must be left out beside Sessions, got {'share': True, 'split': True, 'until': "
            "None}",
            id="sessions in halves",
        ),
        pytest.param(
            Sessions("1 minute"), {"until": "until"},
            "share, split and until must be left out beside Sessions, got {'share': True, 'split': False, 'until': "
            "'until'}",
            id="sessions of rows that last",
        ),
        pytest.param(
            CountWindows(5), {"share": "per window"},
            "share, split and until must be left out beside CountWindows, got {'share': 'per window', 'split': False, "
            "'until': None}",
            id="count windows one by one",
        ),
    ],
)  # fmt: skip
def test_what_windows_are_refused(windows: Any, how: dict[str, Any], text: str) -> None:
    assert _refused(lambda: _source(LASTING).key_by("k").window(windows).aggregate(**how, **TOTAL)) == text


def test_what_is_no_aggregate_is_refused_by_windows_too() -> None:
    keyed = _source().key_by("k")
    for windows in (keyed.window("1 minute"), keyed.session("1 minute"), keyed.count_window(3), keyed):
        with pytest.raises(InputError, match=r"'n' must be an aggregate such as count\(\) .* got 'count'"):
            windows.aggregate(n="count")
    with pytest.raises(InputError, match="'n' must be an aggregate"):
        keyed.compute("1 minute", n=hg.count)


def test_windows_need_the_event_time_among_their_columns() -> None:
    assert _refused(lambda: _source(event_time="then").key_by("k").window("1 minute").aggregate(**TOTAL)) == (
        "'window' needs the column 'then', and its rows have k, v, at: check the name"
    )
    windows = _source(LASTING).key_by("k").window(Tumbling("1 minute", spans=Spans.SHARE))
    with pytest.raises(InputError) as refused:
        windows.aggregate(until="until", **TOTAL)
    assert str(refused.value) == (
        "operator 'windows0' must count rows that span several windows whole, got the rule SHARE: take START, END, "
        "EACH or WITHIN"
    )


def test_halves_that_are_kept_apart_by_name_must_be_there() -> None:
    stream = _source()
    stream.key_by("k").compute("1 minute", **TOTAL).consolidate("5 minutes").write_to(hg.sinks.memory())
    stream.job.keep_apart("compute0", "windows")
    assert "names the operator 'windows', and the job has compute0, consolidate1: check the name" in _refused(
        stream.job.program
    )
