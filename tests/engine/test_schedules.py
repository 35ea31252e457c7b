"""Random schedules against a plain model: whatever moves, splits, crashes or is compacted, a job gives what a single
process with a dictionary gives.

    turn = rows in partitions, then at the boundary before them: moves by hand, other slots, split keys, restarts; and
    crashes at named points, after each of which a new driver replays the batch

After every batch the results at the sinks, the state in the store, and the manifest's count of rows per place must be
the model's.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import control
from headgate.engine.program import Filtered, Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.operators import NO_TIMER, NO_WATERMARK, Aggregation, PerKey, Update, Vectorised, count, max_, min_, sum_
from headgate.routing import Assignment, Places, key_hash
from headgate.testing import CRASH_POINTS, CrashPoints

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
GROUPS = 5
SLACK = 4
TTL = 3_000_000
WORDS = ["", "a", "b", "c", "d", "e", "ff", "word"]
ROWS = pa.schema(
    [("word", pa.string()), ("at", pa.int64()), ("v", pa.int64()), ("do", pa.string()), ("when", pa.int64())]
)

Row = dict[str, Any]
Outputs = dict[str, list[Row]]


# -- what is drawn -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """By hand: keys (numbers of words) or groups of an operator go to a slot."""

    kind: str
    operator: int
    what: frozenset[int]
    to: int


@dataclass(frozen=True)
class Turn:
    """One batch, and what happens at the boundary before it."""

    parts: list[list[tuple[int, int, int, str, int]]]
    pause: int = 0
    moves: list[Move] = field(default_factory=list)
    slots: int | None = None
    split: frozenset[int] | None = None
    restart: bool = False
    crashes: list[tuple[str, int]] = field(default_factory=list)
    copies: bool = False
    seed: int | None = None
    retain: bool = False


ROW = st.tuples(
    st.integers(0, len(WORDS) - 1),
    st.integers(-8, 8),
    st.integers(-3, 3),
    st.sampled_from(["", "", "", "event", "clock", "clear", "forget"]),
    st.integers(-2, 6),
)
MOVE = st.builds(
    Move,
    kind=st.sampled_from(["keys", "groups"]),
    operator=st.integers(0, 1),
    what=st.frozensets(st.integers(0, len(WORDS) - 1), min_size=1, max_size=4),
    to=st.integers(0, 3),
)
TURN = st.builds(
    Turn,
    parts=st.lists(st.lists(ROW, max_size=5), max_size=3),
    pause=st.sampled_from([0, 0, 1, 2, 5]),
    moves=st.lists(MOVE, max_size=2),
    slots=st.one_of(st.none(), st.none(), st.integers(1, 4)),
    split=st.one_of(st.none(), st.frozensets(st.integers(0, len(WORDS) - 1), max_size=3)),
    restart=st.sampled_from([False, False, False, True]),
    crashes=st.one_of(
        st.just([]), st.lists(st.tuples(st.sampled_from(CRASH_POINTS), st.integers(0, 4)), min_size=1, max_size=2)
    ),
    copies=st.booleans(),
    seed=st.one_of(st.none(), st.integers(0, 99)),
    retain=st.booleans(),
)
SIZES = st.sampled_from([(1, 1, 1, 2), (3, 2, 200, 3), (10**5, 10**5, 10**7, 16)])
"""Rows per chunk of a merge, rows per call of a function, bytes per chunk of the first stage, most references."""


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Kept:
    """What a key has: its state and what is due when."""

    state: Row
    event: int | None = None
    processing: int | None = None
    expires: int | None = None


@dataclass
class Call:
    """A key's turn in a batch; looks to a function like the context it gets."""

    key: Any
    rows: list[Row]
    state: Row
    is_new: bool
    now_micros: int
    watermark_micros: int | None
    fired_event: bool = False
    fired_processing: bool = False
    event: int | None = None
    processing: int | None = None
    keep: bool = True

    @property
    def watermark(self) -> dt.datetime | None:
        return None if self.watermark_micros is None else EPOCH + self.watermark_micros * MICRO

    def set_timer(self, at: dt.datetime) -> None:
        self.event = (at - EPOCH) // MICRO

    def set_processing_timer(self, at: dt.timedelta) -> None:
        self.processing = self.now_micros + at // MICRO

    def clear_timer(self) -> None:
        self.event = None

    def clear_processing_timer(self) -> None:
        self.processing = None

    def forget(self) -> None:
        self.keep = False


@dataclass
class Keyed:
    """A keyed operator with a dictionary."""

    key: Callable[[Row], Any]
    initial: Row
    call: Callable[[Call], Iterable[Row]]
    ttl: int | None = None
    kept: dict[Any, Kept] = field(default_factory=dict)

    def batch(self, rows: Iterable[Row], now: int, watermark: int | None) -> list[Row]:
        by_key: dict[Any, list[Row]] = {}
        for row in rows:
            by_key.setdefault(self.key(row), []).append(row)
        self.kept = {key: kept for key, kept in self.kept.items() if kept.expires is None or kept.expires > now}
        results: list[Row] = []
        for key in {**by_key, **self.kept}:
            kept = self.kept.get(key)
            call = Call(key, by_key.get(key, []), dict(self.initial), kept is None, now, watermark)
            if kept is not None:
                call.state, call.event, call.processing = dict(kept.state), kept.event, kept.processing
                call.fired_event = kept.event is not None and watermark is not None and kept.event <= watermark
                call.fired_processing = kept.processing is not None and kept.processing <= now
                call.event = None if call.fired_event else call.event
                call.processing = None if call.fired_processing else call.processing
            if not (call.rows or call.fired_event or call.fired_processing):
                continue
            results += self.call(call)
            self.kept.pop(key, None)
            if call.keep:
                expires = None if self.ttl is None else now + self.ttl
                self.kept[key] = Kept(call.state, call.event, call.processing, expires)
        return results


class Model:
    """One job: its program for the engine, and the same for a dictionary. Watermark and late rows are the same in all
    of them."""

    program: Program

    def __init__(self) -> None:
        self.operators = self.keyed()
        self.greatest: int | None = None
        self.watermark: int | None = None
        self.late = 0

    def keyed(self) -> list[Keyed]:
        raise NotImplementedError

    def flow(self, rows: list[Row], now: int) -> Outputs:
        raise NotImplementedError

    def keys(self, operator: int, numbers: Iterable[int]) -> Any:
        """The hashes of an operator's keys that have these numbers."""
        return key_hash(pa.array([WORDS[number % len(WORDS)] for number in numbers], pa.string()))

    def batch(self, rows: list[Row], now: int) -> Outputs:
        if self.greatest is not None:
            reached = self.greatest - SLACK
            self.watermark = reached if self.watermark is None else max(reached, self.watermark)
        known = [] if self.greatest is None else [self.greatest]
        self.greatest = max([*known, *(row["at"] for row in rows)], default=None)
        behind = self.watermark
        on_time = [row for row in rows if behind is None or row["at"] >= behind]
        self.late = len(rows) - len(on_time)
        return self.flow(on_time, now)


# -- a function per key, with timers and expiry ------------------------------------------------------------------------


def watch(key: Any, rows: Any, state: Any, context: Any) -> Row:
    """Does what its rows say, and tells everything it sees. The order of a key's rows matters to it."""
    forget = False
    for row in rows:
        state["n"] += 1
        state["mix"] = (state["mix"] * 31 + row["v"]) % 1_000_003
        if row["do"] == "event":
            context.set_timer(EPOCH + (row["at"] + 3 * row["when"]) * MICRO)
        elif row["do"] == "clock":
            context.set_processing_timer(row["when"] * dt.timedelta(seconds=1))
        elif row["do"] == "clear":
            context.clear_timer()
            context.clear_processing_timer()
        forget = row["do"] == "forget"
    fired = "event" * context.fired_event + "clock" * context.fired_processing
    if context.fired_event and state["n"] % 2:
        context.set_timer(context.watermark + 7 * MICRO)
    if forget:
        context.forget()
    return {"word": key, "n": state["n"], "mix": state["mix"], "fired": fired, "new": context.is_new}


class Watching(Model):
    """A function per key with timers of both kinds, and expiry."""

    ttl: int | None = TTL
    program = Program(
        name="watching",
        inputs=(Input("in", ROWS, (ToOperator(0),)),),
        steps=(
            Step(
                PerKey.of(
                    watch, name="watch", input_schema=ROWS, key_names=["word"], state={"n": 0, "mix": 0},
                    output="word string, n long, mix long, fired string, new boolean",
                ),
                1, (ToOutput("out"),), ttl_micros=TTL, timers=True,
            ),
        ),
        outputs={
            "out": pa.schema(
                [("word", pa.string()), ("n", pa.int64()), ("mix", pa.int64()), ("fired", pa.string()),
                 ("new", pa.bool_())]
            )
        },
        groups=GROUPS, event_time="at",
    )  # fmt: skip

    def keyed(self) -> list[Keyed]:
        def call(call: Call) -> Iterable[Row]:
            yield watch(call.key, call.rows, call.state, call)

        return [Keyed(lambda row: row["word"], {"n": 0, "mix": 0}, call, TTL)]

    def flow(self, rows: list[Row], now: int) -> Outputs:
        return {"out": self.operators[0].batch(rows, now, self.watermark)}


# -- aggregates whose keys are split -----------------------------------------------------------------------------------


class Adding(Model):
    """Running aggregates with two key columns; rows are combined early or keys are split over slots."""

    ttl: int | None = None

    def __init__(self, combine_early: bool = False, ttl: int | None = None) -> None:
        self.ttl = ttl
        operator = Aggregation(
            "add", ROWS, ("word", "do"),
            {"n": count(), "total": sum_("v"), "low": min_("at"), "high": max_("at")},
        )  # fmt: skip
        self.program = Program(
            name="adding",
            inputs=(Input("in", ROWS, (ToOperator(0),)),),
            steps=(
                Step(operator, 1, (ToOutput("out"),), ttl_micros=ttl, combine_early=combine_early, splits=True),
            ),
            outputs={"out": operator.output_schema},
            groups=GROUPS, event_time="at",
        )  # fmt: skip
        super().__init__()

    def keys(self, operator: int, numbers: Iterable[int]) -> Any:
        chosen = list(numbers)
        return key_hash(
            pa.array([WORDS[number] for number in chosen for _ in ("", "event")], pa.string()),
            pa.array(["", "event"] * len(chosen), pa.string()),
        )

    def keyed(self) -> list[Keyed]:
        def call(call: Call) -> Iterable[Row]:
            state, values, times = call.state, [row["v"] for row in call.rows], [row["at"] for row in call.rows]
            state["n.count"] += len(values)
            state["total.sum"] += sum(values)
            state["low.min"] = min(times if call.is_new else [*times, state["low.min"]])
            state["high.max"] = max(times if call.is_new else [*times, state["high.max"]])
            yield {"word": call.key[0], "do": call.key[1]} | {name.split(".")[0]: at for name, at in state.items()}

        initial = {"n.count": 0, "total.sum": 0, "low.min": 0, "high.max": 0}
        return [Keyed(lambda row: (row["word"], row["do"]), initial, call, self.ttl)]

    def flow(self, rows: list[Row], now: int) -> Outputs:
        return {"out": self.operators[0].batch(rows, now, self.watermark)}


# -- two operators, one after the other --------------------------------------------------------------------------------


def tally(batch: Any) -> Update:
    """Counts and adds per key over whole columns; forgets at multiples of seven, and wakes up after quiet keys."""
    values = batch.rows["v"].to_numpy()
    added = np.bincount(batch.key_of_row, values, minlength=len(batch)).astype(np.int64)
    total = batch.state["total"].to_numpy() + added
    seen = batch.state["seen"].to_numpy() + batch.counts
    timer = np.where(batch.counts > 0, max(batch.watermark, 0) + 10 + total, NO_TIMER)
    return Update(
        {"word": batch.keys["word"], "total": total, "woken": batch.fired_event},
        {"seen": seen, "total": total},
        forget=(seen % 7 == 0) & (batch.counts > 0),
        event_timer=timer,
    )


def by_ending(rows: Any) -> Any:
    """From either feeder to the columns of the second operator."""
    value = rows["total"] if "total" in rows.column_names else rows["v"]
    ending = pc.utf8_slice_codeunits(rows["word"], 0, 1)
    return pa.table({"letter": ending, "value": value})


def more_than_one(rows: Any) -> Any:
    return pc.greater(rows["v"], 1)


LETTERS = pa.schema([("letter", pa.string()), ("value", pa.int64())])


class Chained(Model):
    """Whole columns per slot, then an aggregate one stage deeper that the input feeds too; and an output on the way."""

    first = Vectorised.of(
        tally, name="tally", input_schema=ROWS, key_names=["word"],
        state={"seen": 0, "total": 0}, output="word string, total long, woken boolean",
    )  # fmt: skip
    second = Aggregation("letters", LETTERS, ("letter",), {"n": count(), "sum": sum_("value")})
    program = Program(
        name="chained",
        inputs=(
            Input(
                "in",
                ROWS,
                (
                    ToOperator(0),
                    Filtered("few", more_than_one, "arrow", (ToOutput("few"),)),
                    Mapped("by_ending", by_ending, "arrow", LETTERS, (ToOperator(1),)),
                ),
            ),
        ),
        steps=(
            Step(
                first, 1,
                (ToOutput("tallies"), Mapped("by_ending", by_ending, "arrow", LETTERS, (ToOperator(1),))),
                timers=True,
            ),
            Step(second, 2, (ToOutput("letters"),), combine_early=True, splits=True),
        ),
        outputs={"few": ROWS, "tallies": first.output_schema, "letters": second.output_schema},
        groups=GROUPS, event_time="at",
    )  # fmt: skip

    def keys(self, operator: int, numbers: Iterable[int]) -> Any:
        words = [WORDS[number] for number in numbers]
        return key_hash(pa.array(sorted({word[:1] for word in words} if operator else words), pa.string()))

    def keyed(self) -> list[Keyed]:
        def tallied(call: Call) -> Iterable[Row]:
            state = call.state
            state["total"] += sum(row["v"] for row in call.rows)
            state["seen"] += len(call.rows)
            call.event = None
            if call.rows:
                call.event = max(NO_WATERMARK if call.watermark_micros is None else call.watermark_micros, 0)
                call.event += 10 + state["total"]
                call.keep = state["seen"] % 7 != 0
            yield {"word": call.key, "total": state["total"], "woken": call.fired_event}

        def letters(call: Call) -> Iterable[Row]:
            call.state["n.count"] += len(call.rows)
            call.state["sum.sum"] += sum(row["value"] for row in call.rows)
            yield {"letter": call.key, "n": call.state["n.count"], "sum": call.state["sum.sum"]}

        return [
            Keyed(lambda row: row["word"], {"seen": 0, "total": 0}, tallied),
            Keyed(lambda row: row["letter"], {"n.count": 0, "sum.sum": 0}, letters),
        ]

    def batch(self, rows: list[Row], now: int) -> Outputs:
        # Late rows are in these two: a filter and rows without a time know nothing of it.
        self.direct = [{"letter": row["word"][:1], "value": row["v"]} for row in rows]
        few = [row for row in rows if row["v"] > 1]
        return {**super().batch(rows, now), "few": few}

    def flow(self, rows: list[Row], now: int) -> Outputs:
        tallies = self.operators[0].batch(rows, now, self.watermark)
        deeper = [{"letter": row["word"][:1], "value": row["total"]} for row in tallies]
        return {"tallies": tallies, "letters": self.operators[1].batch(deeper + self.direct, now, self.watermark)}


# -- the run -----------------------------------------------------------------------------------------------------------


class Schedule:
    """Runs the turns on the engine and on the model, and compares after each."""

    def __init__(self, engine: Any, root: Any, model: Model, slots: int) -> None:
        self.engine, self.model = engine, model
        self.bench = engine.Bench(root, model.program, slots, {"slack_micros": SLACK, "keep_versions": 2})
        self.splits = any(step.splits for step in model.program.steps)

    def run(self, turns: Sequence[Turn]) -> None:
        for number, turn in enumerate(turns):
            following = turns[number + 1].split if number + 1 < len(turns) else None
            self.turn(number, turn, following)

    def turn(self, number: int, turn: Turn, following: frozenset[int] | None) -> None:
        bench = self.bench
        bench.seconds += turn.pause
        migration = "copy" if turn.copies else "manifest"
        if turn.restart:
            bench.restart(migration=migration)
        bench.option(migration=migration)
        bench.change(*(self.moved(move) for move in turn.moves))
        if turn.slots is not None:
            slots = turn.slots
            bench.change(lambda assignment: control.resized(assignment, slots))
        if self.splits and following is not None:
            empty = np.empty(0, dtype=np.int64)
            bench.script.split = tuple(
                np.unique(self.model.keys(at, sorted(following))) if step.splits else empty
                for at, step in enumerate(self.model.program.steps)
            )
        rows = [[self.row(number, drawn) for drawn in part] for part in turn.parts]
        for point, at in turn.crashes:
            bench.driver.crash = self.engine.Crash(point=point, turn=at)
            try:
                self.attempt(number, rows, turn.seed)
            except self.engine.Crashed:
                bench.restart(migration=migration)
            bench.driver.crash = CrashPoints()
        self.attempt(number, rows, turn.seed)
        if turn.retain:
            bench.driver.checkpoint.retain(2)
        expected = self.model.batch([row for part in rows for row in part], bench.last.now)
        self.compare(number, expected)

    def attempt(self, number: int, rows: list[list[Row]], seed: int | None) -> None:
        if seed is not None:
            self.bench.driver.run_tasks = self.engine.scrambled(seed)
        self.bench.run(self.bench.frame(*rows), number)

    def row(self, number: int, drawn: tuple[int, int, int, str, int]) -> Row:
        word, at, value, do, when = drawn
        return {"word": WORDS[word], "at": 10 * number + at, "v": value, "do": do, "when": when}

    def moved(self, move: Move) -> Callable[[Assignment], Assignment]:
        operator = move.operator % len(self.model.program.steps)
        keys = self.model.keys(operator, sorted(move.what)) if move.kind == "keys" else ()
        groups = {number % GROUPS for number in move.what} if move.kind == "groups" else ()
        return lambda assignment: control.moved(
            assignment, move.to % assignment.slots, keys=keys, groups=groups, operator=operator
        )

    def compare(self, number: int, expected: Outputs) -> None:
        bench = self.bench
        for output, rows in expected.items():
            assert bench.results(output, number) == self.engine.in_order(rows), output
        assert bench.last.watermark == self.model.watermark
        for operator, keyed in enumerate(self.model.operators):
            assert bench.state(operator) == {key: kept.state for key, kept in keyed.kept.items()}
            places = Places(bench.last.assignment, operator, bench.last.shared[operator])
            keys = [key if isinstance(key, tuple) else (key,) for key in keyed.kept]
            columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
            assert bench.counted(operator) == Counter(places.of(key_hash(*columns)).tolist() if columns else [])


def play(engine: Any, root: Any, model: Model, slots: int, turns: Sequence[Turn], sizes: Any) -> None:
    """A schedule with these sizes of everything that is done in pieces."""
    modules = sys.modules
    with ExitStack() as stack:
        for module, name, value in (
            ("state.merge", "CHUNK_ROWS", sizes[0]),
            ("state.writer", "BLOCK_ROWS", sizes[0]),
            ("engine.keyed", "ROWS_PER_CALL", sizes[1]),
            ("engine.route", "CHUNK_BYTES", sizes[2]),
            ("state.merge", "MAX_REFS", sizes[3]),
            ("engine.driver", "RETAIN_EVERY", 2),
        ):
            stack.enter_context(patch.object(modules[f"headgate.{module}"], name, value))
        Schedule(engine, root, model, slots).run(turns)


JOBS: dict[str, Callable[[], Model]] = {
    "a function per key with timers and expiry": Watching,
    "aggregates whose keys are split over slots": Adding,
    "aggregates combined early, split and expiring": lambda: Adding(combine_early=True, ttl=TTL),
    "whole columns, then an aggregate one stage deeper": Chained,
}


@pytest.mark.parametrize("make", JOBS.values(), ids=JOBS.keys())
@settings(max_examples=25)
@given(slots=st.integers(1, 4), turns=st.lists(TURN, min_size=1, max_size=6), sizes=SIZES)
def test_a_job_gives_what_a_dictionary_gives(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[], Model],
    slots: int,
    turns: list[Turn],
    sizes: Any,
) -> None:
    play(engine, tmp_path_factory.mktemp("schedule"), make(), slots, turns, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("make", JOBS.values(), ids=JOBS.keys())
@settings(max_examples=100)
@given(slots=st.integers(1, 4), turns=st.lists(TURN, min_size=1, max_size=10), sizes=SIZES)
def test_long_schedules_too(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[[], Model],
    slots: int,
    turns: list[Turn],
    sizes: Any,
) -> None:
    play(engine, tmp_path_factory.mktemp("schedule"), make(), slots, turns, sizes)
