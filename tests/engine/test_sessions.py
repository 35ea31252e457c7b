"""Sessions in the engine: what comes out, batch by batch, is what a plain model says, whatever moves or is replayed."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.engine.program import FileFormat, Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.errors import JobError
from headgate.operators import SessionAggregation
from headgate.sources import FileSource
from headgate.windows import Sessions

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
KEYS = ["a", "b", "c", "d", "e"]
END_OF_INPUT = 253_402_300_799_999_999

Row = tuple[str, int, int]
"""Key, value, time in microseconds."""


def _operator(gap: int, lateness: int = 0) -> SessionAggregation:
    kind = Sessions(gap * MICRO, lateness=lateness * MICRO)
    made = {"n": hg.count(), "total": hg.sum("v"), "most": hg.max("v")}
    return SessionAggregation("sessions", SCHEMA, ("k",), made, kind, "at")


def _bench(engine: Any, root: Path, operator: SessionAggregation, *, slack: int = 0, **how: Any) -> Any:
    program = engine.one_operator(
        operator, schema=SCHEMA, event_time="at", timers=True, combine_early=True,
        lateness_micros=operator.kind.lateness_micros,
    )  # fmt: skip
    return engine.Bench(root, program, options={"slack_micros": slack}, **how)


def _results(bench: Any, number: int) -> list[tuple[Any, ...]]:
    return sorted(
        tuple((value - EPOCH) // MICRO if isinstance(value, dt.datetime) else value for value in row.values())
        for row in bench.results("out", number)
    )


def _rows(*rows: Row) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "at": at} for key, value, at in rows]


def test_a_session_closes_when_the_watermark_has_passed_its_end(engine: Any, tmp_path: Path) -> None:
    # gap 10         0         10        20        30
    # batch 0        a1   b2                              watermark: none
    # batch 1              a3        a4                   5: a is [0, 17), and [16, 26) touches it: one session
    # batch 2                                      b5     16: b [5, 15) has passed, a ends at 26
    # batch 3                                             30: nothing new, but a is woken
    bench = _bench(engine, tmp_path, _operator(10))
    assert bench.batch(_rows(("a", 1, 0), ("b", 2, 5))) == {"out": []}
    bench.batch(_rows(("a", 3, 7), ("a", 4, 16)))
    assert _results(bench, 1) == []
    bench.batch(_rows(("b", 5, 30)))
    assert _results(bench, 2) == [("b", 5, 15, 1, 2, 2)]
    bench.batch(_rows())
    assert _results(bench, 3) == [("a", 0, 26, 3, 8, 4)]
    assert bench.told[-1]["timers_fired"] == 1
    bench.batch(_rows(), flush=True)
    assert _results(bench, 4) == [("b", 30, 40, 1, 5, 5)]
    assert bench.state() == {}
    assert not bench.counted()


def test_a_row_at_the_watermark_is_taken_and_joins_and_one_before_is_late(engine: Any, tmp_path: Path) -> None:
    # gap 10         0         10        20
    # batch 0        a1        b2                         [0, 10) and, of b, [10, 20)
    # batch 1                  a3                         watermark 10: a row at 10 joins what ends at 10
    # batch 1                 (a9)                        at 9: late, turned away
    bench = _bench(engine, tmp_path, _operator(10))
    bench.batch(_rows(("a", 1, 0), ("b", 2, 10)))
    bench.batch(_rows(("a", 3, 10), ("a", 9, 9)))
    assert bench.told[-1]["late_rows"] == 1
    bench.batch(_rows(), flush=True)
    assert _results(bench, 2) == [("a", 0, 20, 2, 4, 3), ("b", 10, 20, 1, 2, 2)]


def test_a_late_row_within_the_lateness_makes_one_session_of_two(engine: Any, tmp_path: Path) -> None:
    # gap 10, lateness 20   0         10        20        30        40        50
    # batch 0               a1                            b2                         watermark then 30
    # batch 1                                  a4                                    30, late by 10
    # batch 2                         a8                            b0               30: at 10, within the gap of both
    # batch 3                                                            c0          42: 30 + 20 has not passed
    # batch 4                                                                        51: a has
    bench = _bench(engine, tmp_path, _operator(10, lateness=20))
    bench.batch(_rows(("a", 1, 0), ("b", 2, 30)))
    bench.batch(_rows(("a", 4, 20)))
    assert bench.state()["a"]["__start"] == [0, 20], "[0, 10) is kept: 10 + 20 is not before 30"
    bench.batch(_rows(("a", 8, 10), ("b", 0, 42), ("a", 5, 9)))
    assert bench.told[-1]["late_rows"] == 1, "at watermark 30 rows before 10 are too late"
    bench.batch(_rows(("c", 0, 51)))
    bench.batch(_rows())
    assert [_results(bench, number) for number in range(5)] == [[], [], [], [], [("a", 0, 30, 3, 13, 8)]]


def test_rows_without_a_time_are_in_no_session(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path, _operator(10))
    bench.batch([{"k": "a", "v": 1, "at": None}, {"k": "a", "v": 2, "at": 3}, {"k": "b", "v": 2, "at": None}])
    bench.batch([], flush=True)
    assert _results(bench, 1) == [("a", 3, 13, 1, 2, 2)]


def test_results_of_another_operator_are_in_time_although_the_watermark_has_passed_them(
    engine: Any, tmp_path: Path
) -> None:
    # first, gap 12    0         10        20        30        40
    #                  a-----------a-----------)                    [0, 24), closed at watermark 25
    #                       b---b-----------)                       [5, 21), closed at watermark 25
    # second, gap 10   takes the ends as times, in the batch with watermark 25:
    #                                       x  x--------)           [21, 34), two results of two rows
    first = _operator(12)
    second = SessionAggregation(
        "second", pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), ("n",),
        {"results": hg.count()}, Sessions(10 * MICRO), "at",
    )  # fmt: skip
    named = Mapped("named", _ends, "arrow", second.input_schema, (ToOperator(1),))
    program = Program(
        "job", (Input("in", SCHEMA, (ToOperator(0),)),),
        (
            Step(first, 1, (named,), timers=True, combine_early=True),
            Step(second, 2, (ToOutput("out"),), timers=True, combine_early=True),
        ),
        {"out": second.output_schema}, 8, event_time="at",
    )  # fmt: skip
    bench = engine.Bench(tmp_path, program)
    bench.batch(_rows(("a", 1, 0), ("a", 1, 12), ("b", 1, 5), ("b", 1, 9)))
    bench.batch(_rows(("c", 1, 25)))
    bench.batch(_rows(("c", 1, 90)))
    assert bench.results("out", 2) == [], "watermark 25: both are out at 21 and 24, a session of n = 2 to 34 is open"
    bench.batch(_rows())
    assert _results(bench, 3) == [(1, 37, 47, 1), (2, 21, 34, 2)]


def _ends(rows: Any) -> pa.Table:
    return pa.table({"n": rows["n"], "at": rows["window_end"]})


@dataclass
class Model:
    """The same sessions in plain Python: all rows that were taken, split anew in every batch."""

    gap: int
    lateness: int
    slack: int
    watermark: int | None = None
    greatest: int | None = None
    rows: list[Row] = field(default_factory=list)
    out: set[tuple[str, int]] = field(default_factory=set)

    def batch(self, rows: list[Row], *, flush: bool = False) -> list[tuple[Any, ...]]:
        if self.greatest is not None:
            reached = self.greatest - self.slack
            self.watermark = reached if self.watermark is None else max(reached, self.watermark)
        if flush:
            self.watermark = END_OF_INPUT
        self.rows += [row for row in rows if self.watermark is None or row[2] >= self.watermark - self.lateness]
        if rows:
            self.greatest = max([row[2] for row in rows] + ([self.greatest] if self.greatest is not None else []))
        made = []
        for key, sessions in self._sessions().items():
            for session in sessions:
                start, end = session[0][2], session[-1][2] + self.gap
                if self.watermark is not None and end + self.lateness < self.watermark and (key, start) not in self.out:
                    self.out.add((key, start))
                    values = [value for _, value, _ in session]
                    made.append((key, start, end, len(values), sum(values), max(values)))
        return sorted(made)

    def _sessions(self) -> dict[str, list[list[Row]]]:
        found: dict[str, list[list[Row]]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda row: row[2]):
            sessions = found[row[0]]
            if sessions and row[2] <= sessions[-1][-1][2] + self.gap:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        return found


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5, 5), st.integers(-40, 40)), max_size=8),
        st.sampled_from(["", "", "move", "resize", "restart", "pin", "crash"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    gap=st.sampled_from([1, 6, 15, 40]),
    lateness=st.sampled_from([0, 12, 30]),
    slack=st.sampled_from([0, 7, 40]),
    turns=TURNS,
    seed=st.integers(0, 99),
)
def test_any_stream_gives_what_the_model_says(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, gap: int, lateness: int, slack: int, turns: Any,
    seed: int,
) -> None:  # fmt: skip
    root = tmp_path_factory.mktemp("sessions")
    bench = _bench(engine, root, _operator(gap, lateness), slack=slack)
    bench.driver.run_tasks = engine.scrambled(seed)
    model = Model(gap, lateness, slack)
    now = 0
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        now += 9
        rows = [(key, value, now + ahead) for key, value, ahead in drawn]
        flush = number == len(turns)
        bench.disturb(event, slot, seed + number, KEYS)
        wanted = model.batch(rows, flush=flush)
        frame = bench.frame(_rows(*rows[::2]), _rows(*rows[1::2]))
        bench.survived(frame, number, seed + number, flush=flush)
        assert _results(bench, number) == wanted
    assert bench.state() == {}
    assert not bench.counted()


def test_rows_in_order_give_the_sessions_of_polars(engine: Any, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    gap = 25
    rows = [(KEYS[(7 * number) % 5], number % 13, 11 * number + (number * number) % 7) for number in range(400)]
    rows = [row for number, row in enumerate(rows) if number % 11 < 7]
    bench = _bench(engine, tmp_path, _operator(gap))
    for number, at in enumerate(range(0, len(rows), 37)):
        bench.batch(_rows(*rows[at : at + 20]), _rows(*rows[at + 20 : at + 37]), number=number)
    bench.batch([], flush=True)
    made = sorted(one for number in range(bench.next) for one in _results(bench, number))
    frame = polars.DataFrame(_rows(*rows)).sort("k", "at")
    starts = (polars.col("at").diff().over("k") > gap).fill_null(True)
    wanted = (
        frame.with_columns(session=starts.cum_sum().over("k"))
        .group_by("k", "session")
        .agg(
            polars.col("at").min().alias("start"), polars.col("at").max().alias("end") + gap, polars.len(),
            polars.col("v").sum().alias("total"), polars.col("v").max().alias("most"),
        )
        .drop("session")
    )  # fmt: skip
    assert made == sorted(wanted.rows())
    assert len(made) > 50


def _source(**options: Any) -> Any:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    source = FileSource(None, FileFormat("parquet", schema))  # type: ignore[arg-type]
    return hg.Job("job", **options).source(source, "in")


def test_a_session_in_a_job() -> None:
    stream = _source(event_time="at")
    keyed = stream.key_by("k")
    keyed.session("30 minutes", lateness="1 hour").aggregate(total=hg.sum("v")).write_to(hg.sinks.memory())
    keyed.window(Sessions("30 minutes")).aggregate(total=hg.sum("v")).write_to(hg.sinks.memory())
    one, two = stream.job.program().steps
    assert isinstance(one.operator, SessionAggregation)
    assert one.operator.input_schema.names == ["k", "v", "at"]
    assert one.operator.output_schema.names == ["k", "window_start", "window_end", "total"]
    assert one.operator.kind == Sessions("30 minutes", lateness="1 hour")
    assert (one.timers, one.combine_early, one.lateness_micros, one.waits) == (True, True, 3_600_000_000, True)
    assert isinstance(two.operator, SessionAggregation)
    assert (two.operator.kind, two.lateness_micros) == (Sessions("30 minutes"), 0)
    assert [operator["windows"] for operator in stream.job.identity()["operators"]] == [
        "sessions with a gap of 0:30:00"
    ] * 2
    assert (
        "component 1: SessionAggregation 'sessions0' (sessions with a gap of 0:30:00, combined before the shuffle, "
        "rows up to 3600 s late)"
    ) in stream.job.explain()


def test_what_sessions_are_refused() -> None:
    with pytest.raises(JobError, match="window needs the time of each event, and the job has none"):
        _source().key_by("k").session("1 minute")
    with pytest.raises(JobError) as refused:
        _source(event_time="at").key_by("k").window(Sessions("1 minute"), lateness="2 minutes")
    assert str(refused.value) == (
        "every, offset, lateness and spans must be left out beside Sessions, which has its own, got "
        "{'lateness': '2 minutes'}"
    )
    with pytest.raises(JobError, match="the gap of sessions must be longer than zero"):
        _source(event_time="at").key_by("k").session(0)
