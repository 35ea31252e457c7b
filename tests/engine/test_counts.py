"""Count windows in the engine: rows of a key keep their numbers, whatever moves, is replayed or comes in another order
of tasks."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.engine.program import FileFormat
from headgate.errors import JobError
from headgate.operators import CountAggregation
from headgate.sources import FileSource
from headgate.windows import CountWindows

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
KEYS = ["a", "b", "c", "d", "e"]

Row = tuple[str, int]


def _operator(rows: int, every: int | None = None) -> CountAggregation:
    made = {"n": hg.count(), "total": hg.sum("v"), "most": hg.max("v")}
    return CountAggregation("counts", SCHEMA, ("k",), made, CountWindows(rows, every))


def _bench(engine: Any, root: Path, operator: CountAggregation, **how: Any) -> Any:
    return engine.Bench(root, engine.one_operator(operator, schema=SCHEMA, **how))


def _rows(*rows: Row, at: int = 0) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "at": at} for key, value in rows]


def _results(bench: Any, number: int) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in bench.results("out", number))


def test_rows_count_in_the_order_of_batches_then_partitions_then_rows(engine: Any, tmp_path: Path) -> None:
    # rows 3, every 2      0   1   2   3   4   5   6
    # batch 0, part 0      a1  a2
    #          part 1              a4
    # batch 1, part 1                      a32            a window is [start, start + 3), a new one every 2 rows
    #          part 0                  a16
    #                      |---------|       [0, 3): 1 + 2 + 4
    #                              |---------|             [2, 5): 4 + 16 + 32, part 0 before part 1
    bench = _bench(engine, tmp_path, _operator(3, 2))
    bench.driver.run_tasks = engine.scrambled(5)
    bench.batch(_rows(("a", 1), ("a", 2)), _rows(("a", 4), ("b", 9)))
    assert _results(bench, 0) == [("a", 0, 3, 3, 7, 4)]
    bench.batch(_rows(("a", 16)), _rows(("a", 32), ("b", 9)))
    assert _results(bench, 1) == [("a", 2, 5, 3, 52, 32)]
    bench.batch([], flush=True)
    assert _results(bench, 2) == [], "the end of the input does not fill a window"
    assert bench.state()["a"] == {"__rows": 5, "n.count": [1], "total.sum": [32], "most.max": [32]}


def test_a_key_that_is_forgotten_counts_from_0_again(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path, _operator(2), ttl_micros=10_000_000)
    bench.batch(_rows(("a", 1), ("a", 2), ("a", 4)))
    bench.seconds += 9
    bench.batch(_rows(("a", 8)))
    assert _results(bench, 1) == [("a", 2, 4, 2, 12, 8)]
    bench.batch(_rows(("a", 16)))
    bench.seconds += 11
    bench.batch(_rows(("a", 32)))
    assert bench.state()["a"]["__rows"] == 1
    bench.batch(_rows(("a", 64)))
    assert _results(bench, 4) == [("a", 0, 2, 2, 96, 64)]


def test_late_rows_are_turned_away_and_have_no_number(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path, _operator(2), event_time="at")
    bench.batch(_rows(("a", 1), at=50))
    bench.batch(_rows(("a", 2), at=49), _rows(("a", 4), at=50))
    assert bench.told[-1]["late_rows"] == 1
    assert _results(bench, 1) == [("a", 0, 2, 2, 5, 4)]


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5, 5)), max_size=16),
        st.sampled_from(["", "", "move", "resize", "restart", "pin", "crash"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(rows=st.integers(1, 9), every=st.integers(1, 9), turns=TURNS, seed=st.integers(0, 99))
def test_any_stream_gives_what_the_model_says(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, rows: int, every: int, turns: Any, seed: int
) -> None:
    bench = _bench(engine, tmp_path_factory.mktemp("counts"), _operator(rows, every))
    bench.driver.run_tasks = engine.scrambled(seed)
    model: dict[str, list[int]] = defaultdict(list)
    for number, (drawn, event, slot) in enumerate(turns):
        bench.disturb(event, slot, seed + number, KEYS)
        wanted = []
        for key, value in [*drawn[::2], *drawn[1::2]]:
            model[key].append(value)
            start = len(model[key]) - rows
            if start >= 0 and start % every == 0:
                last = model[key][start:]
                wanted.append((key, start, start + rows, rows, sum(last), max(last)))
        frame = bench.frame(_rows(*drawn[::2]), _rows(*drawn[1::2]))
        bench.survived(frame, number, seed + number)
        assert _results(bench, number) == sorted(wanted)
    assert {key: state["__rows"] for key, state in bench.state().items()} == {
        key: len(values) for key, values in model.items()
    }


def test_rows_give_the_windows_of_polars(engine: Any, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    drawn = [(KEYS[(number * number) % 5], (number * 37) % 101) for number in range(500)]
    bench = _bench(engine, tmp_path, _operator(20, 5))
    for at in range(0, len(drawn), 61):
        bench.batch(_rows(*drawn[at : at + 61]))
    made = sorted(one for number in range(bench.next) for one in _results(bench, number))
    numbered = polars.DataFrame(_rows(*drawn)).with_columns(number=polars.int_range(polars.len()).over("k"))
    wanted = (
        numbered.sort("number")
        .group_by_dynamic("number", every="5i", period="20i", group_by="k", closed="left", include_boundaries=True)
        .agg(polars.len(), polars.col("v").sum().alias("total"), polars.col("v").max().alias("most"))
        .filter((polars.col("len") == 20) & (polars.col("_lower_boundary") >= 0))
        .select("k", "_lower_boundary", "_upper_boundary", "len", "total", "most")
    )
    assert made == sorted(wanted.rows())
    assert len(made) > 60


def _source(**options: Any) -> Any:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
    source = FileSource(None, FileFormat("parquet", schema))  # type: ignore[arg-type]
    return hg.Job("job", **options).source(source, "in")


def test_count_windows_in_a_job() -> None:
    stream = _source()
    keyed = stream.key_by("k")
    keyed.count_window(100, every=20, ttl="1 day").aggregate(total=hg.sum("v")).write_to(hg.sinks.memory())
    keyed.window(CountWindows(100)).aggregate(total=hg.sum("v")).write_to(hg.sinks.memory())
    one, two = stream.job.program().steps
    assert isinstance(one.operator, CountAggregation)
    assert one.operator.input_schema.names == ["k", "v"]
    assert one.operator.output_schema == pa.schema(
        [("k", pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64()), ("total", pa.int64())]
    )
    assert one.operator.kind == CountWindows(100, 20)
    assert (one.timers, one.combine_early, one.ttl_micros, one.waits) == (False, False, 86_400_000_000, False)
    assert isinstance(two.operator, CountAggregation)
    assert (two.operator.kind, two.ttl_micros) == (CountWindows(100), None)
    assert [operator["windows"] for operator in stream.job.identity()["operators"]] == [
        "windows of 100 rows, one every 20",
        "windows of 100 rows, one every 100",
    ]
    drawn = stream.job.explain()
    assert "component 1: CountAggregation 'counts0' (windows of 100 rows, one every 20)" in drawn


@pytest.mark.parametrize(
    ("rows", "every", "text"),
    [
        (0, None, "rows of a count window must be a whole number from 1, got 0"),
        (2.5, None, "rows of a count window must be a whole number from 1, got 2.5"),
        (5, 0, "every of a count window must be a whole number from 1, got 0"),
    ],
)
def test_what_count_windows_are_refused(rows: Any, every: Any, text: str) -> None:
    with pytest.raises(JobError, match=text):
        _source().key_by("k").count_window(rows, every=every)
