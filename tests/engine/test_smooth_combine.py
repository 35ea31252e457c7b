"""Enorm's smooth combine: the consolidate goes to where its compute is, window by window, and then both are one task.

minutes    0    5    10   15   20   25   30
windows    |---------|---------|---------|         10 minutes, side by side
asked for       ^
old slot   =====|====|                             finishes the window that has begun
new slot        |    |=========|=========|         has those that begin later
in one task                    ^                   when nothing of the old slot can be left
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate import control
from headgate.engine.query import Query

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
KEYS = ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal"]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
COMPUTE, WINDOWS = 0, 1


def _bench(
    engine: Any, path: Path, *windows: str, every: str | None = None, split: Any = True, share: Any = True, **how: Any
) -> Any:
    job = hg.Job("halves", event_time="at", groups=8)
    keyed = engine.source(job, SCHEMA).key_by("k")
    kind = keyed.window(*(windows or ("10 minutes",)), every=every)
    kind.aggregate(split=split, share=share, name="sums", n=hg.count(), total=hg.sum("v")).write_to(hg.sinks.memory())
    return engine.of_job(path, job, {"migration": "smooth", **how.pop("options", {})}, **how)


def _query(bench: Any) -> Query:
    return Query(SimpleNamespace(name="job"), bench.driver)  # type: ignore[arg-type]


def _rows(minute: float, keys: list[str] = KEYS) -> list[dict[str, Any]]:
    at = START + dt.timedelta(minutes=minute)
    return [{"k": key, "v": number, "at": at} for number, key in enumerate(keys)]


def _apart(bench: Any) -> None:
    """All that the consolidate has goes to slot 2, all of the compute to slot 0, before the first batch."""
    for operator, slot in ((COMPUTE, 0), (WINDOWS, 2)):
        bench.change(
            lambda assignment, slot=slot, operator=operator: control.moved(
                assignment, slot, groups=range(8), operator=operator
            )
        )


def _journal(bench: Any, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in bench.driver.checkpoint.journal() if entry["kind"] == kind]


def _slots(bench: Any, operator: int) -> set[int]:
    return set(bench.last.assignment.groups[8 * operator : 8 * operator + 8].tolist())


def _emitting(bench: Any) -> set[int]:
    """The slots that the results of the last batch are from: their files are named after batch and slot."""
    return {int(Path(file).name.split("-")[1]) for files in bench.last.outputs.values() for file in files}


def test_windows_that_have_begun_are_finished_where_they_are_and_then_both_are_one_task(
    engine: Any, tmp_path: Path
) -> None:
    still = _bench(engine, tmp_path / "still", slots=1)
    bench = _bench(engine, tmp_path / "moving")
    _apart(bench)
    seen = []
    for minute in (1, 3, 6, 8, 11, 13, 18, 21, 24, 26):
        if minute == 6:
            _query(bench).combine("sums")
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
        seen.append((minute, bench.driver.program.depth, len(bench.last.handovers), _emitting(bench)))
    assert _slots(bench, COMPUTE) == _slots(bench, WINDOWS) == {0}
    assert seen == [
        (1, 2, 0, set()),
        (3, 2, 0, set()),
        (6, 2, 8, set()),  # asked for: slot 2 has the window from 0 to 10, slot 0 those that begin later
        (8, 2, 8, set()),
        (11, 2, 8, set()),
        (13, 2, 8, {2}),  # the watermark is beyond 10
        (18, 2, 0, set()),  # what slot 2 has left is let go
        (21, 1, 0, set()),
        (24, 1, 0, {0}),
        (26, 1, 0, set()),
    ]
    assert bench.batch([], flush=True) == still.batch([], flush=True)
    (moved,) = _journal(bench, "migrated")
    details = moved["details"]
    assert (moved["operator"], details["way"], details["groups"]) == ("sums", "smooth", 8)
    assert (details["copied_bytes"], details["completion_batches"]) == (0, 5)
    assert [entry["reason"] for entry in _journal(bench, "fused")] == [
        "put together by hand",
        "what lies apart goes ahead, smoothly: components change when the windows that have begun are over",
        "nothing is handed over any more: components are as was decided",
    ]


@pytest.mark.parametrize("migration", ["auto", "manifest", "copy", "instant"])
def test_other_ways_put_both_into_one_task_at_the_next_boundary(engine: Any, tmp_path: Path, migration: str) -> None:
    still = _bench(engine, tmp_path / "still", slots=1)
    bench = _bench(engine, tmp_path / "moving", options={"migration": migration})
    _apart(bench)
    for minute in (1, 3, 6, 8, 11, 13, 24):
        if minute == 6:
            _query(bench).combine("sums")
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
        assert bench.driver.program.depth == (1 if minute >= 6 else 2)
    assert len(_journal(bench, "fused")) == 2, "decided, and what moved for it"


def test_without_a_watermark_nothing_has_begun(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path / "moving")
    _apart(bench)
    still = _bench(engine, tmp_path / "still", slots=1)
    for minute in (1, 2, 3, 15, 16):
        if minute == 2:
            _query(bench).combine("sums")
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
        assert not bench.last.handovers
        assert bench.driver.program.depth == (1 if minute > 2 else 2)


def test_halves_that_lie_together_are_combined_at_once(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path)
    for minute in (1, 3):
        bench.batch(_rows(minute))
    _query(bench).repartition("sums.compute", slots=[0])
    _query(bench).repartition("sums", slots=[0])
    for minute in (4, 15, 28, 32, 35):
        bench.batch(_rows(minute))
    assert not bench.last.handovers
    assert _slots(bench, COMPUTE) == _slots(bench, WINDOWS)
    _query(bench).combine("sums")
    bench.batch(_rows(36))
    assert bench.driver.program.depth == 1


@pytest.mark.parametrize("point", ["before plan write", "after plan write", "before manifest commit", None])
@pytest.mark.parametrize("minute", [6, 8, 18, 21])
def test_a_combine_that_is_under_way_goes_on_after_a_crash(
    engine: Any, tmp_path: Path, point: str | None, minute: int
) -> None:
    """In the batch in which key groups set out, in the next one, when the old slot lets go, and when both become one
    task; None: after the batch, twice."""
    still = _bench(engine, tmp_path / "still", slots=1)
    bench = _bench(engine, tmp_path / "moving")
    _apart(bench)
    for at in (1, 3, 6, 8, 11, 13, 18, 21, 24, 26):
        if at == 6:
            _query(bench).combine("sums")
        if at == minute and point is not None:
            bench.driver.crash = engine.Crash(point=point)
            with pytest.raises(engine.Crashed):
                bench.batch(_rows(at))
            bench.restart()
            if at == 6 and point == "before plan write":
                _query(bench).combine("sums")  # it was in memory only, as every wish before its boundary
        assert bench.batch(_rows(at)) == still.batch(_rows(at))
        if at == minute and point is None:
            bench.restart()
            bench.restart()
    assert bench.driver.program.depth == 1
    assert _slots(bench, COMPUTE) == _slots(bench, WINDOWS) == {0}
    assert {entry["details"]["way"] for entry in _journal(bench, "migrated")} == {"smooth"}
    assert bench.batch([], flush=True) == still.batch([], flush=True)


def test_a_wish_after_a_crash_comes_after_what_was_decided_before(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path)
    _apart(bench)
    for minute in (1, 3):
        bench.batch(_rows(minute))
    _query(bench).combine("sums")
    bench.driver.crash = engine.Crash(point="after plan write")
    with pytest.raises(engine.Crashed):
        bench.batch(_rows(6))
    bench.restart()
    _query(bench).split("sums")
    for minute in (6, 8, 11, 13, 18, 21, 24):
        bench.batch(_rows(minute))
        assert bench.driver.program.depth == 2


@pytest.mark.parametrize("crash", ["in the first batch", "in a later one", "between two"])
@pytest.mark.parametrize(("before", "after", "depth"), [("auto", True, 2), (True, "auto", 1)])
def test_a_job_that_wants_otherwise_finishes_what_is_handed_over_first(
    engine: Any, tmp_path: Path, before: Any, after: Any, depth: int, crash: str
) -> None:
    """The plan of a batch that is run again was made for the components of the job as it was."""
    still = _bench(engine, tmp_path / "still", slots=1)
    bench = _bench(engine, tmp_path / "moving", split=before)
    if before == "auto":
        _query(bench).split("sums")
    _apart(bench)
    for minute in (1, 3, 6, 8, 11, 13, 18, 21, 24, 26):
        if minute == 6:
            _query(bench).combine("sums")
        if (minute, crash) in ((6, "in the first batch"), (8, "in a later one"), (8, "between two")):
            if crash != "between two":
                bench.driver.crash = engine.Crash(point="before manifest commit")
                with pytest.raises(engine.Crashed):
                    bench.batch(_rows(minute))
                assert bench.driver.checkpoint.plan(bench.next).coming == (0, 0)
            changed = _bench(engine, tmp_path / "other", split=after)
            bench.program, bench.identity = changed.program, f"split={after}"
            bench.restart()
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
    assert bench.batch([], flush=True) == still.batch([], flush=True)
    assert bench.driver.program.depth == depth


def test_wishes_of_one_boundary_are_taken_one_after_the_other(engine: Any, tmp_path: Path) -> None:
    bench = _bench(engine, tmp_path)
    _apart(bench)
    for minute in (1, 3):
        bench.batch(_rows(minute))
    for wish in ("combine", "combine", "split"):
        getattr(_query(bench), wish)("sums")
    bench.batch(_rows(6))
    assert not bench.last.handovers, "taken apart last: nothing is to be done"
    for wish in ("split", "combine", "combine"):
        getattr(_query(bench), wish)("sums")
    bench.batch(_rows(7))
    assert bench.last.handovers, "smoothly, although it was asked for twice"
    _query(bench).split("sums")
    for minute in (8, 11, 13, 18, 21):
        bench.batch(_rows(minute))
        assert bench.driver.program.depth == 2, "the combine that was under way has been taken back"
    assert not bench.last.handovers


def test_two_pairs_are_combined_together_and_a_restart_forgets_none(engine: Any, tmp_path: Path) -> None:
    def bench_of(path: Path, **how: Any) -> Any:
        job = hg.Job("halves", event_time="at", groups=8)
        keyed = engine.source(job, SCHEMA).key_by("k")
        for name, length in (("sums", "10 minutes"), ("long", "20 minutes")):
            keyed.window(length).aggregate(split=True, name=name, n=hg.count()).write_to(hg.sinks.memory(), name)
        return engine.of_job(path, job, {"migration": "smooth"}, **how)

    still, bench = bench_of(tmp_path / "still", slots=1), bench_of(tmp_path / "moving")
    for operator in range(4):
        bench.change(
            lambda assignment, operator=operator: control.moved(
                assignment, operator % 2, groups=range(8), operator=operator
            )
        )
    for minute in (1, 3, 6, 8, 11, 13, 18, 21, 24, 26, 31):
        if minute == 6:
            _query(bench).combine("sums")
            _query(bench).combine("long")
        if minute == 11:
            bench.restart()
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
    assert bench.driver.program.components == (0, 0, 1, 1)
    assert {entry["details"]["way"] for entry in _journal(bench, "migrated")} == {"smooth"}


def test_nothing_else_begins_to_move_smoothly_while_components_wait(engine: Any, tmp_path: Path) -> None:
    """Else a planner that moves key groups at every boundary would put the change off for ever."""
    still = _bench(engine, tmp_path / "still", slots=1)
    bench = _bench(engine, tmp_path / "moving")
    _apart(bench)
    for number, minute in enumerate((1, 3, 6, 8, 11, 13, 18, 21, 24, 26)):
        if minute == 6:
            _query(bench).combine("sums")
        if minute > 6:
            bench.change(
                lambda assignment, number=number: control.moved(assignment, number % 3, groups=range(8), operator=0)
            )
        assert bench.batch(_rows(minute)) == still.batch(_rows(minute))
    assert bench.driver.program.depth == 1
    waiting = [entry for entry in _journal(bench, "migration") if 3 <= entry["batch"] <= 6]
    assert {entry["details"]["way"] for entry in waiting} == {"manifest"}
    assert "components are about to change, and would have to wait for its end" in waiting[0]["reason"]


def test_what_auto_takes_for_a_consolidate_is_over_within_a_minute(engine: Any, tmp_path: Path) -> None:
    """Where state has to be fetched smooth is cheaper, but not for windows of ten minutes."""
    for windows, way in (("10 minutes", "manifest"), ("50 seconds", "smooth")):
        job = hg.Job("halves", event_time="at", groups=8, fusion="off")
        partials = engine.source(job, SCHEMA).key_by("k").compute("10 seconds", n=hg.count(), total=hg.sum("v"))
        partials.consolidate(windows, name="sums").write_to(hg.sinks.memory())
        bench = engine.of_job(tmp_path / windows, job, {"migration": "auto"})
        bench.driver.migrations.remote = True
        _apart(bench)
        for second in (101, 111, 121):  # slices of ten seconds: one is with the consolidate
            bench.batch(_rows(second / 60))
        assert bench.last.counts[WINDOWS].bytes.sum() > 0
        bench.change(lambda assignment: control.moved(assignment, 1, groups=range(8), operator=WINDOWS))
        bench.batch(_rows(122 / 60))
        (told,) = _journal(bench, "migration")
        assert (told["operator"], told["details"]["way"]) == ("sums", way)


TURNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-6, 6)), max_size=8),
        st.sampled_from(["", "move", "move last", "move last", "resize", "restart", "crash", "rearrange"]),
        st.sampled_from([None, "combine", "combine", "split"]),
        st.integers(0, 2),
    ),
    min_size=3,
    max_size=16,
)
KINDS = st.sampled_from(
    [(("10 minutes",), None), (("20 minutes",), "5 minutes"), (("10 minutes", "30 minutes"), "10 minutes")]
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    turns=TURNS,
    kind=KINDS,
    share=st.sampled_from([True, "auto", "per window"]),
    migration=st.sampled_from(["smooth", "smooth", "auto"]),
    seed=st.integers(0, 99),
)
def test_windows_come_out_once_and_whole_however_halves_come_together(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    turns: Any,
    kind: tuple[tuple[str, ...], str | None],
    share: Any,
    migration: str,
    seed: int,
) -> None:
    lengths, every = kind
    paths = [tmp_path_factory.mktemp(name) for name in ("still", "moving")]
    still = _bench(engine, paths[0], *lengths, every=every, split=True, slots=1)
    bench = _bench(engine, paths[1], *lengths, every=every, split="auto", share=share, options={"migration": migration})
    bench.driver.run_tasks = engine.scrambled(seed)
    for number, (drawn, event, wish, slot) in enumerate([*turns, ([], "", None, 0)]):
        bench.disturb(event, slot, seed + number)
        if wish is not None:
            getattr(_query(bench), wish)("sums")
        rows = [
            {"k": key, "v": at, "at": START + dt.timedelta(minutes=4 * number + ahead)}
            for at, (key, ahead) in enumerate(drawn)
        ]
        flush, batch = number == len(turns), bench.next
        bench.survived(bench.frame(rows[:3], rows[3:]), batch, seed + number, flush=flush)
        assert {"output0": bench.results("output0", batch)} == still.batch(rows, flush=flush)
