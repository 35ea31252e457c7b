"""Enorm's composite operations on a running query: Migrate and RePartition, alone and one after the other."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.engine.program import Filtered, Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.engine.query import Query
from headgate.engine.running import layout_of, migrated
from headgate.errors import AssignmentError, JobError, QueryError
from headgate.operators import Aggregation, Compute, Consolidate
from headgate.routing import Assignment
from headgate.windows import Slicing, window, with_helpers

SCHEMA = pa.schema([("k", pa.string()), ("j", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
KEYS = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
AGGREGATES = {"n": hg.count(), "total": hg.sum("v")}


def _slicing(length: int, every: int) -> Slicing:
    return Slicing(window(dt.timedelta(microseconds=length), every=dt.timedelta(microseconds=every)).hops)


def _simple(component: int | None = 0) -> Program:
    """Enorm's simple job: a compute and its consolidate, in one component or apart."""
    compute = Compute("compute", SCHEMA, ("k",), AGGREGATES, _slicing(10, 10), "at")
    windows = Consolidate("windows", SCHEMA, ("k",), AGGREGATES, with_helpers(_slicing(20, 10)), "at")
    return Program(
        name="simple",
        inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
        steps=(
            Step(compute, 1, (ToOperator(1),), combine_early=True, component=component),
            Step(windows, 1 if component == 0 else 2, (ToOutput("out"),), combine_early=True, component=component),
        ),
        outputs={"out": windows.output_schema},
        groups=8,
        event_time="at",
    )


def _every(rows: Any) -> list[bool]:
    return [True] * int(rows.num_rows)


def _chain() -> Program:
    """Three running aggregates by k, fused, behind one another, and one by j; a function between the first two keeps k,
    a filter between the next."""
    first = Aggregation("first", SCHEMA, ("k",), {"v": hg.sum("v"), "j": hg.max("j")})
    second = Aggregation("second", first.output_schema, ("k",), {"v": hg.max("v")})
    third = Aggregation("third", second.output_schema, ("k",), {"v": hg.count()})
    other = Aggregation("other", SCHEMA, ("j",), {"v": hg.count()})
    lossy = Aggregation("lossy", first.output_schema, ("k",), {"v": hg.count()})
    same = Mapped("same", lambda rows: rows, "arrow", first.output_schema, (ToOperator(1),), keeps=frozenset("k"))
    lost = Mapped("lost", lambda rows: rows, "arrow", first.output_schema, (ToOperator(4),))
    every = Filtered("every", _every, "arrow", (ToOperator(2),))
    return Program(
        name="chain",
        inputs=(Input("in", SCHEMA, (ToOperator(0), ToOperator(3))),),
        steps=(
            Step(first, 1, (same, lost), component=0),
            Step(second, 1, (every,), component=0),
            Step(third, 1, (ToOutput("third"),), component=0),
            Step(other, 1, (ToOutput("other"),), component=1),
            Step(lossy, 2, (ToOutput("lossy"),), component=2),
        ),
        outputs={"third": third.output_schema, "other": other.output_schema, "lossy": lossy.output_schema},
        groups=8,
        event_time="at",
    )


def _query(bench: Any) -> Query:
    """A query on the driver of a bench."""
    told = bench.driver.on_progress
    query = Query(SimpleNamespace(name="job"), bench.driver)  # type: ignore[arg-type]
    query.add_listener(told)
    return query


def _rows(at: int, keys: list[str] = KEYS) -> list[dict[str, Any]]:
    return [{"k": key, "j": key[:1], "v": number, "at": at + number % 3} for number, key in enumerate(keys)]


def _slots(bench: Any, operator: int) -> set[int]:
    return set(bench.last.assignment.groups[8 * operator : 8 * operator + 8].tolist())


def _told(query: Query, kind: str) -> list[str]:
    return [entry.describe() for entry in query.journal() if entry.kind == kind]


def test_one_more_slot_the_way_of_the_paper_migrate_then_repartition(engine: Any, tmp_path: Path) -> None:
    """In the middle of windows: the consolidate leaves, so the compute is flexible, and then gets a third slot."""
    still = engine.Bench(tmp_path / "still", _simple(), slots=1)
    bench = engine.Bench(tmp_path / "moving", _simple(), options={"migration": "instant"})
    query = _query(bench)
    query.repartition("windows", slots=[0, 1])
    for at in (0, 4, 12, 15, 17, 24, 33, 41, 55):
        if at == 15:
            assert (_slots(bench, 0), _slots(bench, 1)) == ({0, 1}, {0, 1})
            query.migrate("windows")
            query.repartition("compute", slots=[0, 1, 2])
        assert bench.batch(_rows(at)) == still.batch(_rows(at))
    assert bench.batch([], flush=True) == still.batch([], flush=True)
    assert bench.driver.program.depth == 2
    assert (_slots(bench, 0), _slots(bench, 1)) == ({0, 1, 2}, {0, 1})
    assert _told(query, "fused") == [
        "batch 3: fused: windows: migrated by hand: windows left compute + windows for a component of its own"
    ]
    assert _told(query, "hand")[1] == (
        "batch 3: hand: compute: scale out by hand: from slots 0, 1 to 0, 1, 2, 2 key groups move"
    )
    ways = [entry.details["way"] for entry in query.journal() if entry.kind == "migrated" and entry.batch > 2]
    assert ways == ["instant"], "the compute alone moves, and without its state"


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        pytest.param(
            lambda query: query.move("anna", to=1, operator="windows"),
            "keys must be a list of keys, got 'anna'",
            id="a text, which is a list of letters",
        ),
        pytest.param(
            lambda query: query.move(groups=[1], to=1.5, operator="windows"),
            "to must be a whole number, at least 0, got 1.5",
            id="between two slots",
        ),
        pytest.param(
            lambda query: query.move(groups=5, to=1, operator="windows"),
            "groups must be a list of key groups, got 5",
            id="one group, not a list",
        ),
        pytest.param(
            lambda query: query.repartition("windows", slots="01"),
            "slots must be a list of slots, got '01'",
            id="slots in a text",
        ),
        pytest.param(
            lambda query: query.set_slots(True), "slots must be a whole number, at least 1, got True", id="yes slots"
        ),
        pytest.param(
            lambda query: query.set_slots(2.5), "slots must be a whole number, at least 1, got 2.5", id="half a slot"
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    ask: Callable[[Query], None], text: str, engine: Any, tmp_path: Path
) -> None:
    query = _query(engine.Bench(tmp_path, _simple()))
    with pytest.raises(JobError) as refused:
        ask(query)
    assert str(refused.value) == text


def test_an_operator_joins_the_component_of_another_with_its_state(engine: Any, tmp_path: Path) -> None:
    still = engine.Bench(tmp_path / "still", _simple(), slots=1)
    bench = engine.Bench(tmp_path / "moving", _simple(None))
    query = _query(bench)
    query.repartition("compute", slots=[2])
    query.repartition("windows", slots=[0, 1])
    for at in (0, 4, 12, 15, 24, 33, 41, 55):
        if at == 15:
            query.migrate("windows", to="compute")
        assert bench.batch(_rows(at)) == still.batch(_rows(at))
    assert bench.driver.program.depth == 1
    assert _slots(bench, 0) == _slots(bench, 1) == {2}
    assert "windows joined compute, which makes compute + windows" in _told(query, "fused")[0]


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["", "migrate", "together", "repartition", "restart", "move"]),
        st.sets(st.integers(0, 2), min_size=1),
    ),
    min_size=3,
    max_size=9,
)


@settings(max_examples=20)
@given(turns=TURNS, migration=st.sampled_from(["auto", "instant", "smooth", "copy"]), seed=st.integers(0, 9))
def test_composite_operations_lose_and_double_nothing(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, turns: Any, migration: str, seed: int
) -> None:
    still = engine.Bench(tmp_path_factory.mktemp("still"), _simple(), slots=1)
    bench = engine.Bench(tmp_path_factory.mktemp("moving"), _simple(), options={"migration": migration})
    for number, (event, slots) in enumerate([*turns, ("", {0}), ("", {0})]):
        if event in ("restart", "move"):
            bench.disturb(event, min(slots), seed + number)
        query = _query(bench)
        apart = len(set(bench.driver.program.components)) == 2
        if event == "repartition":
            query.repartition("compute", slots=sorted(slots))
        elif event == "migrate" and not apart:
            query.migrate("windows")
        elif event == "together" and apart:
            query.migrate("compute", to="windows")
        rows = _rows(7 * number)
        assert bench.batch(rows[:3], rows[3:]) == still.batch(rows)
    assert bench.batch([], flush=True) == still.batch([], flush=True)


def test_functions_on_the_rows_of_an_operator_go_with_it(engine: Any, tmp_path: Path) -> None:
    still = engine.Bench(tmp_path / "still", _chain(), slots=1)
    bench = engine.Bench(tmp_path / "moving", _chain())
    query = _query(bench)
    names = ["first + second + third", "other", "lossy"]
    assert [one.label for one in layout_of(_chain()).components[:1]] == [
        "first + first / same #0 + first / lost #1 + second + second / every #0 + third"
    ]
    for at, (operator, to) in enumerate([("third", None), ("first", None), ("first", "second"), ("third", "second")]):
        query.migrate(operator, to=to)
        assert bench.batch(_rows(10 * at)) == still.batch(_rows(10 * at))
        names.append(" | ".join(bench.driver.program.component_names))
    assert names[3:] == [
        "first + second | third | other | lossy",
        "first | second | third | other | lossy",
        "first + second | third | other | lossy",
        "first + second + third | other | lossy",
    ]


def test_what_was_migrated_stays_so_when_the_query_is_started_again(engine: Any, tmp_path: Path) -> None:
    still = engine.Bench(tmp_path / "still", _chain(), slots=1)
    bench = engine.Bench(tmp_path / "moving", _chain())
    _query(bench).migrate("third")
    for at in range(2):
        assert bench.batch(_rows(10 * at)) == still.batch(_rows(10 * at))
    apart = ["first + second", "third", "other", "lossy"]
    assert bench.driver.program.component_names == apart
    for at in range(2, 4):
        bench.restart()
        assert bench.batch(_rows(10 * at)) == still.batch(_rows(10 * at))
        assert bench.driver.program.component_names == apart
    assert _told(_query(bench), "fused")[1:] == [
        f"batch {batch}: fused: components are first + second, third, other, lossy, as was decided before the query "
        "was started again"
        for batch in (2, 3)
    ]


def _apart() -> Program:
    """The chain, built with every operator by itself."""
    return replace(_chain().arranged(range(5)), built=())


def _with_branches(program: Program, number: int, *branches: Any) -> Program:
    steps = list(program.steps)
    steps[number] = replace(steps[number], branches=branches)
    return replace(program, steps=tuple(steps))


def _forgetful() -> Program:
    """The function between the first two no longer says that it keeps k."""
    program = _apart()
    same, *others = program.steps[0].branches
    assert isinstance(same, Mapped)
    return _with_branches(program, 0, replace(same, keeps=frozenset()), *others)


def _rewired() -> Program:
    """The second, which was between the first and the third, is behind the third."""
    program = _apart()
    same, *others = program.steps[0].branches
    assert isinstance(same, Mapped)

    def with_j(rows: Any) -> Any:
        return rows.append_column("j", rows["k"])

    back = Mapped("back", with_j, "arrow", program.steps[1].operator.input_schema, (ToOperator(1),))
    program = _with_branches(program, 0, replace(same, branches=(ToOperator(2),)), *others)
    program = _with_branches(program, 2, back, *program.steps[2].branches)
    return replace(_with_branches(program, 1).arranged(range(5)), built=())


@pytest.mark.parametrize(
    ("migrate", "job", "names", "text"),
    [
        pytest.param(
            ("second", "first"), replace(_chain().arranged([0, 1, 1, 2, 3]), built=()),
            ["first", "second + third", "other", "lossy"], "", id="built with others",
        ),
        pytest.param(
            ("second", "first"), replace(_apart(), kept_apart=(("first", "second"),)),
            ["first", "second", "third", "other", "lossy"], "", id="keep_apart",
        ),
        pytest.param(
            ("second", "first"), _forgetful(), ["first", "second", "third", "other", "lossy"],
            r"rows may lose k on their way within first \+ second", id="rows may lose a column now",
        ),
        pytest.param(
            ("second", "first"),
            replace(_apart(), steps=(replace(_apart().steps[0], splits=True), *_apart().steps[1:])),
            ["first", "second", "third", "other", "lossy"], "hot keys are split over slots", id="splits keys now",
        ),
        pytest.param(
            ("second", "first"), _rewired(), ["first", "second", "third", "other", "lossy"],
            "wait for each other|circle", id="components would wait for each other now",
        ),
    ],
)  # fmt: skip
def test_a_job_that_has_changed_when_it_is_started_again_has_its_own_components(
    engine: Any, tmp_path: Path, migrate: tuple[str, str], job: Program, names: list[str], text: str
) -> None:
    bench = engine.Bench(tmp_path, _apart())
    _query(bench).migrate(migrate[0], to=migrate[1])
    bench.batch(_rows(0))
    assert bench.driver.program.component_names[0] == "first + second"
    bench.program = job
    bench.restart()
    assert sum(row["v"] for row in bench.batch(_rows(10))["other"]) == 2 * len(KEYS)
    assert bench.driver.program.component_names == names
    refused = _told(_query(bench), "refused")
    assert len(refused) == bool(text)
    assert all(re.search(f"components are those of the job again: .*({text})", one) for one in refused)


@pytest.mark.parametrize(
    ("operator", "target", "text"),
    [
        pytest.param(
            3, None, "operator 'other' cannot change its component: it is a component of its own already: leave it",
            id="nothing to leave",
        ),
        pytest.param(
            1, 2, "operator 'second' cannot change its component: it is with 'third' already: name another component",
            id="there already",
        ),
        pytest.param(
            3, 0, "operator 'other' cannot change its component: it runs by j and the rigid first + first / same #0 + "
            "first / lost #1 + second + second / every #0 + third by k: leave it, or give it a component of its own",
            id="other keys",
        ),
        pytest.param(
            4, 0, "operator 'lossy' cannot change its component: rows may lose k on their way within first + "
            "second + third + lossy: say keeps= if they do not",
            id="a function may change the key",
        ),
        pytest.param(
            1, None, "operator 'second' cannot change its component: components would wait for each other: first + "
            "first / same #0 + first / lost #1 + third -> second + second / every #0 -> first + first / same #0 + "
            "first / lost #1 + third: move what is between them first",
            id="a circle",
        ),
    ],
)  # fmt: skip
def test_operators_that_cannot_migrate(operator: int, target: int | None, text: str) -> None:
    with pytest.raises(JobError) as raised:
        migrated(_chain(), operator, target)
    assert str(raised.value) == text


def test_what_is_placed_by_a_part_of_its_key_stays_with_its_like() -> None:
    chain = _chain()
    both = Aggregation("both", SCHEMA, ("k", "j"), {"v": hg.count()})
    steps = [*chain.steps[:3], Step(both, 1, (ToOutput("other"),), component=1), chain.steps[4]]
    wide = replace(chain, steps=tuple(steps), outputs={**chain.outputs, "other": both.output_schema})
    with pytest.raises(JobError) as raised:
        migrated(wide, 3, 0)
    assert str(raised.value) == (
        "operator 'both' cannot change its component: it is placed by k (string), j (string) and 'first' by k "
        "(string), and state stays in its key groups: fuse them in the job, and start it on a new checkpoint"
    )
    steps[3] = replace(steps[3], placed_by=("k",))
    components, _ = migrated(replace(wide, steps=tuple(steps)), 3, 0)
    assert components == (0, 0, 0, 0, 1)
    steps[3] = replace(steps[3], splits=True)
    with pytest.raises(JobError, match="hot keys are split over slots, which no other operator could follow"):
        migrated(replace(wide, steps=tuple(steps)), 3, 0)


def test_a_query_refuses_at_once_what_makes_no_sense(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, _simple())
    query = _query(bench)
    with pytest.raises(JobError, match="operator must be one of compute, windows, got 'nobody'"):
        query.migrate("nobody")
    with pytest.raises(JobError, match="operator must be one of compute, windows, got 'nobody'"):
        query.repartition("nobody", slots=[0])
    with pytest.raises(AssignmentError, match="slots are numbered 0 to 2, but a repartition names slot 3"):
        query.repartition("windows", slots=[0, 3])
    with pytest.raises(AssignmentError, match="an assignment needs at least one slot, got 0"):
        query.repartition("windows", slots=[])
    bench.batch(_rows(0))
    query.migrate("windows")
    query.migrate("windows")
    query.repartition("compute", slots=[2])
    query.set_slots(2)
    bench.batch(_rows(1))
    assert "migrated by hand, but no longer possible: operator 'windows' cannot change" in _told(query, "refused")[0]
    query.repartition("compute", slots=[1])
    query.set_slots(1)
    bench.driver._changes.reverse()
    bench.batch(_rows(2))
    assert "repartitioned by hand, but no longer possible: slots are numbered" in _told(query, "refused")[1]
    query._ended.set()
    with pytest.raises(QueryError, match="has ended, so migrate is not possible"):
        query.migrate("windows")
    with pytest.raises(QueryError, match="has ended, so repartition is not possible"):
        query.repartition("windows", slots=[0])


@given(
    groups=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    wanted=st.sets(st.integers(0, 4), min_size=1),
)
def test_a_repartition_is_even_and_moves_as_few_groups_as_that_takes(groups: list[int], wanted: set[int]) -> None:
    before = Assignment(groups=np.array(groups, dtype=np.int32), slots=5)
    after = control.repartitioned(before, wanted)
    counts = np.bincount(after.groups, minlength=5)
    assert counts.sum() == len(groups)
    assert all(counts[slot] == 0 for slot in range(5) if slot not in wanted)
    held = sorted(int(counts[slot]) for slot in wanted)
    assert held[-1] - held[0] <= 1
    have = sorted((groups.count(slot) for slot in wanted), reverse=True)
    kept = sum(min(had, may) for had, may in zip(have, reversed(held), strict=True))
    assert int(np.count_nonzero(after.groups != before.groups)) == len(groups) - kept


def test_pins_to_slots_that_are_left_are_dropped_and_draining_slots_refused() -> None:
    before = control.moved(Assignment.hashed(3, 8), 2, groups=[0])
    pinned = control.moved(control.moved(before, 1, keys=[11]), 2, keys=[12, 13])
    after = control.repartitioned(pinned, [0, 1])
    assert set(after.pins.slot.tolist()) <= {0, 1}
    assert after.version == pinned.version + 1
    with pytest.raises(AssignmentError, match="slot 1 is draining, so nothing may move there"):
        control.repartitioned(replace(before, draining=frozenset({1})), [0, 1])
