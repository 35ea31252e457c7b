"""Windows, sessions, count windows and joins of random streams against Polars: one query over all rows gives what a job
gives batch by batch, whatever order rows come in and whatever moves, restarts or crashes in the middle of windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg

pl = pytest.importorskip("polars")
assert_frame_equal = pytest.importorskip("polars.testing").assert_frame_equal

LEFT = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("w", pa.int64()), ("at", pa.int64())])
KEYS = ["ann", "bob", "cid", "dan", "eve"]

STEP = 10
"""Microseconds from one batch to the next."""
AHEAD = 20
"""How far rows of a batch lie before or behind its time."""
SLACK = 2 * AHEAD - STEP
"""The least that makes no row late: the earliest row of a batch after the latest of the one before."""

Rows = list[dict[str, Any]]
Query = Callable[..., Any]
"""All rows of each input as a Polars frame -> the results as another."""


def _micros(value: int) -> dt.timedelta:
    return dt.timedelta(microseconds=value)


@dataclass(frozen=True)
class Case:
    """What a user asks of a job, and of Polars. ``again``: results may come several times, and the last one counts."""

    asked: Callable[..., Any]
    query: Query
    inputs: int = 1
    slack: int = SLACK
    again: bool = False


AGGREGATES: dict[str, tuple[Any, Any]] = {
    "n": (hg.count(), pl.len()),
    "values": (hg.count("v"), pl.col("v").count()),
    "total": (hg.sum("v"), pl.when(pl.col("v").count() > 0).then(pl.col("v").sum())),
    "low": (hg.min("v"), pl.col("v").min()),
    "high": (hg.max("v"), pl.col("v").max()),
    "mean": (hg.mean("v"), pl.col("v").mean()),
    "first": (hg.first("v", by="at"), pl.col("v").drop_nulls().first()),
    "last": (hg.last("v", by="at"), pl.col("v").drop_nulls().last()),
    "distinct": (hg.distinct("v"), pl.col("v").drop_nulls().n_unique()),
    "median": (hg.quantile("v", 0.5), pl.col("v").quantile(0.5, "equiprobable")),
}
"""Of each aggregate what it is here and in Polars, whose groups are in the order of time and value. A quantile is exact
for so few values."""


def _squares(state: dict[str, Any], v: pa.Array) -> dict[str, Any]:
    return {"total": state["total"] + sum(value * value for value in v.to_pylist() if value is not None)}


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"total": one["total"] + other["total"]}


def _seen(state: set[int], v: pa.Array) -> None:
    state.update(value for value in v.to_pylist() if value is not None)


def _all_seen(one: set[int], other: set[int]) -> None:
    one |= other


V = pl.col("v").drop_nulls()
LATEST = pl.struct(value="v", by="at").sort_by("at", "v", descending=[True, False])

RICHER: dict[str, tuple[Any, Any]] = {
    "n": (hg.count(), pl.len()),
    "variance": (hg.variance("v"), V.var()),
    "about": (hg.approx_distinct("v"), V.n_unique()),
    "least": (hg.collect("v", limit=3), V.sort().head(3)),
    "everything": (hg.collect("v", limit=None, by="at"), V),
    "latest": (
        hg.top_k("v", 2, by="at"),
        LATEST.filter(LATEST.struct.field("value").is_not_null()).head(2),
    ),
    "squares": (hg.aggregate("v", state={"total": 0}, update=_squares, merge=_both), (V * V).sum()),
    "kinds": (
        hg.aggregate(
            "v", state=hg.Pickled(set[int]), zero=set, update=_seen, merge=_all_seen, finish=len, result="long"
        ),
        V.n_unique(),
    ),
}  # fmt: skip
"""Likewise, those whose state is lists, bytes or a user's own. Few values are told apart exactly, and floats are within
what adding up in another order makes."""

Aggregates = Mapping[str, tuple[Any, Any]]


def _ours(aggregates: Aggregates) -> dict[str, Any]:
    return {name: one for name, (one, _) in aggregates.items()}


def _of_time(
    lengths: Sequence[int],
    *,
    every: int | None = None,
    offset: int = 0,
    lateness: int = 0,
    aggregates: Aggregates = AGGREGATES,
    **how: Any,
) -> Case:
    """Windows of time. In Polars: all pairs of a row and a window that has it, then groups."""

    def asked(stream: Any) -> Any:
        hop = None if every is None else _micros(every)
        windows = stream.key_by("k").window(
            *map(_micros, lengths), every=hop, offset=_micros(offset), lateness=_micros(lateness)
        )
        return windows.aggregate(**how, **_ours(aggregates))

    def query(rows: Any) -> Any:
        low, high = (rows["at"].min() or 0), (rows["at"].max() or 0)
        spans = [
            (start, start + length)
            for length in lengths
            for start in range(_before(low - length, every or length, offset), high + 1, every or length)
        ]
        windows = pl.DataFrame(spans, schema={"window_start": pl.Int64, "window_end": pl.Int64}, orient="row")
        return _grouped(
            rows.join_where(windows, pl.col("at") >= pl.col("window_start"), pl.col("at") < pl.col("window_end")),
            aggregates,
        )

    slack = SLACK - lateness  # rows are late by no more than is allowed
    return Case(asked, query, slack=slack, again=lateness > 0)


def _before(time: int, every: int, offset: int) -> int:
    """The latest start of a window at or before a time."""
    return (time - offset) // every * every + offset


def _grouped(rows: Any, aggregates: Aggregates) -> Any:
    theirs = [one.alias(name) for name, (_, one) in aggregates.items()]
    return rows.sort("at", "v").group_by(*WINDOW).agg(theirs)


WINDOW = ("k", "window_start", "window_end")


def _of_sessions(gap: int, aggregates: Aggregates = AGGREGATES) -> Case:
    def asked(stream: Any) -> Any:
        return stream.key_by("k").session(_micros(gap)).aggregate(**_ours(aggregates))

    def query(rows: Any) -> Any:
        opens = (pl.col("at").diff().over("k") > gap).fill_null(True)
        numbered = rows.sort("k", "at").with_columns(session=opens.cum_sum().over("k"))
        first, last = (edge.over("k", "session") for edge in (pl.col("at").min(), pl.col("at").max()))
        return _grouped(numbered.with_columns(window_start=first, window_end=last + gap), aggregates)

    return Case(asked, query)


def _of_counts(size: int, every: int, aggregates: Aggregates = AGGREGATES) -> Case:
    """Rows of a key by number; a window that is not full is none."""

    def asked(stream: Any) -> Any:
        return stream.key_by("k").count_window(size, every=every).aggregate(**_ours(aggregates))

    def query(rows: Any) -> Any:
        starts = pl.DataFrame({"window_start": range(0, len(rows) + 1, every)}, schema={"window_start": pl.Int64})
        windows = starts.with_columns(window_end=pl.col("window_start") + size)
        numbered = rows.with_columns(number=pl.int_range(pl.len()).over("k"))
        number = pl.col("number")
        within = numbered.join_where(windows, number >= pl.col("window_start"), number < pl.col("window_end"))
        return _grouped(within, aggregates).filter(pl.col("n") == size)

    return Case(asked, query)


def _of_two(before: int, after: int, how: str) -> Case:
    def asked(left: Any, right: Any) -> Any:
        return left.key_by("k").join(right.key_by("k"), before=_micros(before), after=_micros(after), how=how)

    return Case(asked, partial(_joined, before=before, after=after, how=how), inputs=2)


def _of_itself(before: int, after: int, how: str) -> Case:
    def asked(stream: Any) -> Any:
        keyed = stream.key_by("k")
        return keyed.join(keyed, before=_micros(before), after=_micros(after), how=how)

    def query(rows: Any) -> Any:
        return _joined(rows, rows, before=before, after=after, how=how)

    return Case(asked, query)


def _joined(left: Any, right: Any, *, before: int, after: int, how: Any) -> Any:
    left = left.with_row_index("row")
    apart = pl.col("at_right") - pl.col("at")
    pairs = left.join(right, on="k").filter(apart >= -before, apart <= after)
    gained = [name for name in pairs.columns if name not in left.columns]
    return left.join(pairs.select("row", *gained), on="row", how=how).drop("row")


KINDS: dict[str, dict[str, Any]] = {
    "tumbling": {"lengths": (10,)},
    "hopping, with an offset": {"lengths": (20,), "every": 10, "offset": 7},
    "the hop does not divide the length": {"lengths": (35,), "every": 10, "offset": 3},
    "gaps between windows": {"lengths": (5,), "every": 20},
    "several lengths side by side": {"lengths": (10, 20, 60)},
    "several lengths with one hop": {"lengths": (10, 30), "every": 10, "offset": 4},
    "made with helpers": {"lengths": (64,), "every": 2},
}


def _windows(**how: Any) -> st.SearchStrategy[Case]:
    return st.sampled_from(list(KINDS)).map(lambda kind: _of_time(**KINDS[kind], **how))


BOUNDS = st.sampled_from([0, 6, 40]), st.sampled_from([0, 15]), st.sampled_from(["inner", "left"])

CASES: dict[str, st.SearchStrategy[Case]] = {
    "whole windows": _windows(),
    "whole windows, of slices alone": _windows(share=False),
    "one computation per window": _windows(share="per window"),
    "halves in two tasks": _windows(split=True),
    "halves in one task or two": _windows(split="auto"),
    "shared or not, as it costs": _windows(share="auto"),
    "halves in two tasks, one computation per window": _windows(split=True, share="per window"),
    "halves in one task or two, one computation per window": _windows(split="auto", share="per window"),
    "halves in two tasks, shared or not": _windows(split=True, share="auto"),
    "halves in one task or two, shared or not": _windows(split="auto", share="auto"),
    "windows that wait for late rows": _windows(lateness=25),
    "late rows, one computation per window": _windows(lateness=25, share="per window"),
    "sessions": st.builds(_of_sessions, st.sampled_from([1, 6, 15, 40])),
    "count windows": st.builds(_of_counts, st.integers(1, 7), st.integers(1, 7)),
    "joins": st.builds(_of_two, *BOUNDS),
    "self joins": st.builds(_of_itself, *BOUNDS),
}

RICHLY: dict[str, st.SearchStrategy[Case]] = {
    "lists and bytes, whole windows": _windows(aggregates=RICHER),
    "lists and bytes, one computation per window": _windows(aggregates=RICHER, share="per window"),
    "lists and bytes, halves in one task or two": _windows(aggregates=RICHER, split="auto"),
    "lists and bytes, sessions": st.builds(_of_sessions, st.sampled_from([1, 6, 15, 40]), st.just(RICHER)),
    "lists and bytes, count windows": st.builds(_of_counts, st.integers(1, 7), st.integers(1, 7), st.just(RICHER)),
}

HALVES = {name: case for name, case in CASES.items() if name.startswith("halves")}

VALUE = st.one_of(st.none(), *[st.integers(-4, 4)] * 4)
TIME = st.integers(-AHEAD, AHEAD) | st.sampled_from(range(-AHEAD, AHEAD + 1, 5))
"""Anywhere; or where windows, gaps and bounds of joins begin and end."""
ROW = st.tuples(st.sampled_from(KEYS), VALUE, TIME)
EVENTS = ["", "", "move", "move last", "resize", "restart", "crash", "rearrange"]


MOVES = ["move", "move", "move last", "resize", "rearrange", "restart", "crash"]


def _turns(batches: int, events: Sequence[str] = EVENTS, *, least: int = 0) -> st.SearchStrategy[Any]:
    """Batches: rows of either input, at least so many, what happens before them, and to which slot."""
    rows = st.lists(ROW, min_size=least, max_size=10)
    return st.lists(
        st.tuples(rows, st.lists(ROW, max_size=6), st.sampled_from(events), st.integers(0, 3)),
        min_size=3 if least else 1,
        max_size=batches,
    )


WAYS = st.sampled_from(["auto", "instant", "smooth", "copy", "manifest"])


def play(engine: Any, root: Path, case: Case, way: str, turns: Sequence[Any], seed: int) -> None:
    """A job over these batches and a query over all their rows: the results are equal."""
    job = hg.Job("job", event_time="at", slack=_micros(case.slack), groups=8)
    streams = [engine.source(job, *one) for one in ((LEFT, "left"), (RIGHT, "right"))[: case.inputs]]
    case.asked(*streams).write_to(hg.sinks.memory(), name="out")
    bench = engine.of_job(root, job, {"migration": way})
    bench.driver.run_tasks = engine.scrambled(seed)
    seen: list[Rows] = [[] for _ in streams]
    for number, (*drawn, event, slot) in enumerate([*turns, ((), (), "", 0)]):
        bench.disturb(event, slot, seed + number)
        given = [
            _rows(schema, rows, STEP * (number - 3))
            for schema, rows in zip((LEFT, RIGHT), drawn[: case.inputs], strict=False)
        ]
        if case.inputs == 1:
            parts = given[0][::2], given[0][1::2]
            frame, given = bench.frame(*parts), [[*parts[0], *parts[1]]]
        else:
            frame = bench.tagged(*given)
        for all_of_it, rows in zip(seen, given, strict=True):
            all_of_it += rows
        bench.survived(frame, number, seed + number, flush=number == len(turns))
    assert not any(told.get("late_rows") for told in bench.told), "or Polars would have more rows"
    wanted = case.query(*(pl.from_arrow(pa.Table.from_pylist(*one)) for one in zip(seen, (LEFT, RIGHT), strict=False)))
    made = _emitted(bench)
    if case.again:
        made = made.unique(WINDOW, keep="last", maintain_order=True)
    wanted = wanted.select(made.columns)
    if "variance" in made.columns:
        assert_frame_equal(made.sort(*WINDOW), wanted.sort(*WINDOW), check_dtypes=False, abs_tol=1e-9, rel_tol=0)
    else:
        assert_frame_equal(made, wanted, check_row_order=False, check_dtypes=False, check_exact=True)


def _rows(schema: pa.Schema, drawn: Sequence[tuple[str, int | None, int]], now: int) -> Rows:
    return [dict(zip(schema.names, (key, value, now + ahead), strict=True)) for key, value, ahead in drawn]


def _emitted(bench: Any) -> Any:
    """All results, batch by batch; times as microseconds."""
    batches = bench.sinks["out"]._batches
    table = pa.concat_tables([bench.program.outputs["out"].empty_table(), *(batches[at] for at in sorted(batches))])
    return pl.from_arrow(table).with_columns(pl.col(pl.Datetime("us", "UTC")).dt.epoch("us"))


@pytest.mark.parametrize("case", [*CASES.values(), *RICHLY.values()], ids=[*CASES, *RICHLY])
@settings(max_examples=20)
@given(data=st.data(), way=WAYS, turns=_turns(8), seed=st.integers(0, 99))
def test_a_job_gives_what_one_query_over_all_rows_gives(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    case: st.SearchStrategy[Case],
    data: st.DataObject,
    way: str,
    turns: Any,
    seed: int,
) -> None:
    play(engine, tmp_path_factory.mktemp("polars"), data.draw(case), way, turns, seed)


@pytest.mark.parametrize("way", ["instant", "smooth"])
@pytest.mark.parametrize("case", HALVES.values(), ids=HALVES.keys())
@settings(max_examples=10)
@given(data=st.data(), turns=_turns(8, MOVES, least=6), seed=st.integers(0, 99))
def test_parts_of_windows_that_moves_leave_in_several_slots_are_brought_together(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    case: st.SearchStrategy[Case],
    way: str,
    data: st.DataObject,
    turns: Any,
    seed: int,
) -> None:
    play(engine, tmp_path_factory.mktemp("polars"), data.draw(case), way, turns, seed)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@settings(max_examples=50)
@given(data=st.data(), way=WAYS, turns=_turns(16), seed=st.integers(0, 99))
def test_long_streams_too(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    case: st.SearchStrategy[Case],
    data: st.DataObject,
    way: str,
    turns: Any,
    seed: int,
) -> None:
    play(engine, tmp_path_factory.mktemp("polars"), data.draw(case), way, turns, seed)
