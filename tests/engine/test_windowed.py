"""Windows in the engine: what comes out, batch by batch, is what a plain model of the windows says, whatever moves."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.engine import windowed
from headgate.engine.program import Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.operators import Aggregation, WindowedAggregation
from headgate.state import MAX_REFS
from headgate.windows import Slicing, window, with_helpers

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KEYS = ["a", "b", "c", "d", "e"]

Row = tuple[str, int, int]
"""Key, value, time in microseconds."""


def _operator(*lengths: int, every: int | None = None, offset: int = 0, lateness: int = 0, share: bool = True) -> Any:
    def span(micros: int) -> dt.timedelta:
        return dt.timedelta(microseconds=micros)

    kind = window(
        *(span(length) for length in lengths),
        every=None if every is None else span(every),
        offset=span(offset),
        lateness=span(lateness),
    )
    slicing = Slicing.of(kind)
    return WindowedAggregation(
        "windows", SCHEMA, ("k",), {"n": hg.count(), "total": hg.sum("v"), "most": hg.max("v")},
        with_helpers(slicing) if share else slicing, "at", share,
    )  # fmt: skip


def _bench(engine: Any, root: Path, operator: Any, *, slack: int = 0, **options: Any) -> Any:
    program = engine.one_operator(
        operator, schema=SCHEMA, combine_early=True, event_time="at", lateness_micros=operator.slicing.lateness
    )
    return engine.Bench(root, program, options={"slack_micros": slack}, **options)


@dataclass
class Model:
    """The same windows in plain Python."""

    slicing: Slicing
    slack: int
    watermark: int | None = None
    greatest: int | None = None
    rows: list[Row] = field(default_factory=list)

    def batch(self, rows: list[Row], *, flush: bool = False) -> list[tuple[Any, ...]]:
        before = self.watermark
        if self.greatest is not None:
            reached = self.greatest - self.slack
            self.watermark = reached if before is None else max(reached, before)
        if flush:
            self.watermark = 253_402_300_799_999_999
        late = self.slicing.lateness
        taken = [row for row in rows if self.watermark is None or row[2] >= self.watermark - late]
        self.rows += taken
        if rows:
            self.greatest = max([row[2] for row in rows] + ([self.greatest] if self.greatest is not None else []))
        if self.watermark is None:
            return []
        made = []
        for hop in self.slicing.hops:
            if hop.helper:
                continue
            windows: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            late_keys = set()
            for number, (key, value, at) in enumerate(self.rows):
                start = (at - hop.offset) // hop.every * hop.every + hop.offset
                while start + hop.length > at:
                    windows[start][key].append(value)
                    if number >= len(self.rows) - len(taken):
                        late_keys.add((start, key))
                    start -= hop.every
            for start, keys in windows.items():
                end = start + hop.length
                closes = end <= self.watermark and (before is None or end > before)
                again = before is not None and end <= before < end + late
                made += [
                    (k, start, end, len(v), sum(v), max(v))
                    for k, v in keys.items()
                    if closes or (again and (start, k) in late_keys)
                ]
        return sorted(made)


def _results(bench: Any, number: int) -> list[tuple[Any, ...]]:
    rows = bench.results("out", number)
    micros = dt.timedelta(microseconds=1)
    return sorted(
        (row["k"], (row["window_start"] - EPOCH) // micros, (row["window_end"] - EPOCH) // micros, row["n"],
         row["total"], row["most"])
        for row in rows
    )  # fmt: skip


def _rows(rows: list[Row]) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "at": at} for key, value, at in rows]


def test_a_hopping_window_closes_when_the_watermark_has_passed_its_end(engine: Any, tmp_path: Path) -> None:
    # time        0         10        20        30        40
    # rows        a1   b2   a3        a4              a5 (late: b9 at 12)
    # windows     |-------------------|                         [0, 20)
    #       |-------------|   [-10, 10)   |-------------------| [10, 30)
    bench = _bench(engine, tmp_path, _operator(20, every=10))
    assert bench.batch(_rows([("a", 1, 0), ("b", 2, 5), ("a", 3, 11)])) == {"out": []}
    bench.batch(_rows([("a", 4, 22)]))
    assert _results(bench, 1) == [
        ("a", -10, 10, 1, 1, 1),
        ("b", -10, 10, 1, 2, 2),
    ]
    bench.batch(_rows([("b", 9, 12), ("a", 5, 35)]))
    assert _results(bench, 2) == [("a", 0, 20, 2, 4, 3), ("b", 0, 20, 1, 2, 2)]
    assert bench.told[-1]["late_rows"] == 1
    bench.batch(_rows([]))
    assert _results(bench, 3) == [("a", 10, 30, 2, 7, 4)]
    bench.batch(_rows([]), flush=True)
    assert _results(bench, 4) == [("a", 20, 40, 2, 9, 5), ("a", 30, 50, 1, 5, 5)]
    assert not bench.counted(), "nothing is kept once every window has closed"


def test_a_late_row_within_the_lateness_makes_its_key_come_again(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path, _operator(10, lateness=15))
    bench.batch(_rows([("a", 1, 3)]))
    bench.batch(_rows([("a", 2, 12)]))
    bench.batch(_rows([("b", 5, 4), ("a", 7, 5)]))  # the watermark is 12: [0, 10) has just closed
    assert _results(bench, 2) == [("a", 0, 10, 2, 8, 7), ("b", 0, 10, 1, 5, 5)]
    bench.batch(_rows([("a", 1, 6)]))
    assert _results(bench, 3) == [("a", 0, 10, 3, 9, 7)], "b is as it was"
    bench.batch(_rows([("a", 1, 40)]))
    bench.batch(_rows([("a", 1, 6), ("a", 3, 26)]))
    assert bench.told[-1]["late_rows"] == 1, "at watermark 40 rows before 25 are too late"
    assert _results(bench, 5) == [("a", 10, 20, 1, 2, 2), ("a", 20, 30, 1, 3, 3)]


def test_rows_without_a_time_are_in_no_window(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path, _operator(10))
    bench.batch([{"k": "a", "v": 1, "at": None}, {"k": "a", "v": 2, "at": 3}])
    bench.batch(_rows([]), flush=True)
    assert _results(bench, 1) == [("a", 0, 10, 1, 2, 2)]


def test_helpers_are_kept_for_long_windows_and_never_come_out(engine: Any, tmp_path: Path) -> None:
    operator = _operator(60, every=1)
    assert any(hop.helper for hop in operator.slicing.hops)
    bench, model = _bench(engine, tmp_path, operator), Model(operator.slicing, 0)
    for number in range(90):
        rows = [(key, number, number) for key in KEYS]
        wanted = model.batch(rows)
        bench.batch(_rows(rows))
        assert _results(bench, number) == wanted
    pieces = {piece[0] for refs in bench.last.layout.owners.values() for ref in refs for piece in ref.run.pieces}
    assert any(hop >= 0 for hop in pieces), "blocks of slices are there"
    assert sum(bench.counted().values()) < 5 * len(KEYS) * 60, "and not many more rows than slices"


def test_windows_of_windows_get_their_rows_in_the_batch_that_closes_both(engine: Any, tmp_path: Path) -> None:
    # time            0         10        20        30        40
    # first, 10       |---------|---------|---------|---------|     counts of rows
    # second, 20      |-------------------|-------------------|     sums of these counts, at the last instant of each
    first = _operator(10)
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
    second = WindowedAggregation(
        "second", schema, ("k",), {"n": hg.sum("n"), "windows": hg.count()},
        Slicing.of(window(dt.timedelta(microseconds=20))), "at",
    )  # fmt: skip

    def timed(rows: Any) -> pa.Table:
        ends = pc.subtract(rows["window_end"].cast(pa.int64()), 1)
        return pa.table({"k": rows["k"], "n": rows["n"], "at": ends})

    program = Program(
        name="chain",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(
            Step(first, 1, (Mapped("timed", timed, "arrow", schema, (ToOperator(1),)),), combine_early=True),
            Step(second, 2, (ToOutput("out"),), combine_early=True),
        ),
        outputs={"out": second.output_schema},
        groups=8,
        event_time="at",
    )
    bench = engine.Bench(tmp_path, program)
    for number, at in enumerate([1, 5, 12, 18, 25, 41, 42]):
        bench.batch(_rows([("a", 1, at), ("b", 1, at)]))
        ends = {2: 0, 3: 0, 4: 0, 5: 1, 6: 1}.get(number, 0)
        assert len(bench.results("out", number)) == 2 * ends
    assert [(row["k"], row["n"], row["windows"]) for row in bench.results("out", 5)] == [("a", 4, 2), ("b", 4, 2)]
    assert [(row["k"], row["n"], row["windows"]) for row in bench.results("out", 6)] == [("a", 1, 1), ("b", 1, 1)]


def test_the_windows_of_an_operator_in_words() -> None:
    assert _operator(20, every=10, share=False).windows == "windows of 0:00:00.000020 every 0:00:00.000010 from 0:00:00"


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5, 5), st.integers(-30, 30)), max_size=8),
        st.sampled_from(["", "", "move", "resize", "restart", "crash"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=14,
)
WINDOWS = st.sampled_from(
    [
        {"lengths": (10,)},
        {"lengths": (20,), "every": 10},
        {"lengths": (35,), "every": 10, "offset": 3},
        {"lengths": (5,), "every": 20},
        {"lengths": (10, 20, 60), "every": 10},
        {"lengths": (64,), "every": 2},
        {"lengths": (64,), "every": 2, "share": False},
        {"lengths": (10, 20, 60), "every": 10, "share": False},
        {"lengths": (20,), "every": 10, "lateness": 25},
        {"lengths": (10, 30), "every": 10, "lateness": 7},
    ]
)


ALONE = st.sampled_from([1, 3, windowed.ALONE])
"""Rows from which on a piece has a run of its own."""


@pytest.mark.slow
@settings(max_examples=60)
@given(kind=WINDOWS, turns=TURNS, slack=st.sampled_from([0, 7, 40]), seed=st.integers(0, 99), alone=ALONE)
def test_any_stream_gives_what_the_model_says(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    kind: dict[str, Any],
    turns: Any,
    slack: int,
    seed: int,
    alone: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed, "ALONE", alone)
        options = dict(kind)
        operator = _operator(*options.pop("lengths"), **options)
        bench = _bench(engine, tmp_path_factory.mktemp("windows"), operator, slack=slack)
        bench.driver.run_tasks = engine.scrambled(seed)
        model = Model(operator.slicing, slack)
        now = 0
        for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
            now += 9
            rows = [(key, value, now + ahead) for key, value, ahead in drawn]
            flush = number == len(turns)
            bench.disturb(event, slot, seed + number)
            wanted = model.batch(rows, flush=flush)
            frame = bench.frame(_rows(rows[::2]), _rows(rows[1::2]))
            bench.survived(frame, number, seed + number, flush=flush)
            assert _results(bench, number) == wanted
        assert not bench.counted()


def _of_first_times(share: bool) -> Program:
    """Windows over the results of a running aggregate, whose time is that of a key's first row: as old as you like."""
    schema = pa.schema([("k", pa.string()), ("at", pa.int64())])
    first = Aggregation("first", schema, ("k",), {"at": hg.min("at")})
    lengths = (dt.timedelta(microseconds=each) for each in (10, 60))
    slicing = Slicing.of(window(*lengths))
    windows = WindowedAggregation("windows", first.output_schema, ("k",), {"n": hg.count()}, slicing, "at", share=share)
    return Program(
        name="first times",
        inputs=(Input("in", schema, (ToOperator(0),)),),
        steps=(
            Step(first, 1, (ToOperator(1),), combine_early=True),
            Step(windows, 2, (ToOutput("out"),), combine_early=True),
        ),
        outputs={"out": windows.output_schema},
        groups=8,
        event_time="at",
    )


#              0         10        20        30        40        50        60
# rows of b     x                            x
# its result    x <--------------------------'       of time 2, when [0, 10) is over and [0, 60) is not
def test_a_result_that_comes_for_a_window_that_is_over_counts_in_longer_ones(engine: Any, tmp_path: Path) -> None:
    for share in (True, False):
        bench = engine.Bench(tmp_path / str(share), _of_first_times(share), slots=1)
        made = []
        turns = [[("a", 1), ("b", 2)], [("c", 21)], [("e", 23)], [("b", 31)], [("e", 61)], [("d", 81)], [("d", 99)]]
        for rows in turns:
            made += bench.batch([{"k": key, "at": at} for key, at in rows])["out"]
        found = {(row["k"], row["window_end"].microsecond): row["n"] for row in made}
        short = {("a", 10): 1, ("b", 10): 1, ("c", 30): 1, ("e", 30): 2}
        assert found == {**short, ("a", 60): 1, ("b", 60): 2, ("c", 60): 1, ("e", 60): 2}, share


@settings(max_examples=20)
@given(
    turns=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=5),
            st.sampled_from(["", "", "move", "resize", "restart"]),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=14,
    )
)
def test_results_of_any_time_count_alike_wherever_they_are_and_whatever_windows_are_made_of(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any
) -> None:
    slices = engine.Bench(tmp_path_factory.mktemp("slices"), _of_first_times(share=False), slots=1)
    shared = engine.Bench(tmp_path_factory.mktemp("shared"), _of_first_times(share=True))
    for number, (drawn, event, slot) in enumerate([*turns, ([], "", 0)]):
        shared.disturb(event, slot, number)
        rows = [{"k": key, "at": 10 * number + ahead} for key, ahead in drawn]
        flush = number == len(turns)
        assert shared.batch(rows, flush=flush) == slices.batch(rows, flush=flush)


def test_slices_of_few_rows_share_runs(engine: Any, tmp_path: Path) -> None:
    """A row a batch, each in a slice of its own: a hundred slices are open, and few files."""
    bench = _bench(engine, tmp_path, _operator(100, every=1), slots=1)
    counts = []
    for at in range(220):
        made = bench.batch([{"k": "a", "v": 1, "at": at}])["out"]
        counts.append(len(bench.last.layout.refs(0, 0)))
        assert [row["n"] for row in made] == ([min(at - 1, 100)] if at > 1 else [])
    assert max(counts) <= 2 * MAX_REFS
    assert int(bench.last.counts[0].rows.sum()) < 400, "what no window needs is not written again"


def test_moves_by_reference_do_not_write_large_slices_again(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key group goes from slot to slot until each has a part of all runs: references, and not a byte."""
    monkeypatch.setattr(windowed, "ALONE", 2)
    slots, slices = 4, 10
    bench = _bench(engine, tmp_path, _operator(100, every=10), slots=slots)
    keys = [f"k{number}" for number in range(64)]
    for at in range(slices):
        bench.batch([{"k": key, "v": 1, "at": 10 * at} for key in keys])
    bench.restart(migration="manifest")
    runs = {ref.run.name for slot in range(slots) for ref in bench.last.layout.refs(0, slot)}
    most = 0
    for turn in range(2 * slots):
        groups = range(turn % 2, 8, 2)
        bench.change(lambda assignment, to=turn % slots, groups=groups: bench._moved(assignment, to=to, groups=groups))
        bench.batch([])
        most = max(most, *(len(bench.last.layout.refs(0, slot)) for slot in range(slots)))
        assert {ref.run.name for slot in range(slots) for ref in bench.last.layout.refs(0, slot)} <= runs
    assert most > 2 * slices, "slots have parts of others' runs"
    made = bench.batch([{"k": "k0", "v": 1, "at": 500}, {"k": "k0", "v": 1, "at": 600}])["out"]
    made += bench.batch([], flush=True)["out"]
    assert {row["k"]: row["n"] for row in made if row["window_end"].microsecond == 100} == dict.fromkeys(keys, slices)


def test_runs_of_an_open_window_are_few_however_many_rows_batches_bring(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch has a key less than the one before."""
    monkeypatch.setattr(windowed, "ALONE", 2)
    bench = _bench(engine, tmp_path, _operator(1000), slots=1)
    counts = []
    for at in range(50):
        bench.batch([{"k": f"k{number}", "v": 1, "at": at} for number in range(80 - at)])
        counts.append(len(bench.last.layout.refs(0, 0)))
    assert max(counts) <= 6, "each has at least twice the rows of the next"
