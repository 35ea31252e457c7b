"""The driver: replays, gaps, crashes, decisions, versions and statistics."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate import control
from headgate.errors import CheckpointError, UserFunctionError
from headgate.operators import Aggregation, PerKey, count, sum_
from headgate.routing import Places, key_hash, pins_from
from headgate.testing import CRASH_POINTS

SCHEMA = pa.schema([("word", pa.string()), ("v", pa.int64())])
WORDS = [f"w{number}" for number in range(12)]


def hashes(*words: str) -> Any:
    return np.unique(key_hash(pa.array(words, pa.string())))


def rows(*words: str) -> list[dict[str, Any]]:
    return [{"word": word, "v": len(word)} for word in words]


@pytest.fixture
def adding(engine: Any, tmp_path: Path) -> Any:
    """Counts words; keys may be split."""
    operator = Aggregation("words", SCHEMA, ("word",), {"n": count(), "sum": sum_("v")})
    return engine.Bench(tmp_path, engine.one_operator(operator, schema=SCHEMA, splits=True), 3)


def test_a_committed_batch_that_comes_again_is_delivered_again_and_changes_nothing(adding: Any) -> None:
    adding.batch(rows("a", "b", "a"))
    first = adding.batch(rows("a", "c"))
    manifest, state = adding.last.to_bytes(), adding.state()
    files = sorted(path.name for path in adding.root.rglob("*.*"))
    for sink in adding.sinks.values():
        sink._batches.clear()
    assert adding.batch(rows("something", "else"), number=1) == first, "from the files, not computed anew"
    adding.restart()
    assert adding.batch(rows(), number=1) == first
    assert adding.last.to_bytes() == manifest
    assert adding.state() == state
    assert {name for name in files if name.endswith(".run")} == {path.name for path in adding.root.rglob("*.run")}


@pytest.mark.parametrize("number", [0, 3, 7])
def test_batches_that_do_not_follow_each_other_are_refused(adding: Any, number: int) -> None:
    adding.batch(rows("a"))
    adding.batch(rows("a"))
    with pytest.raises(CheckpointError) as raised:
        adding.batch(rows("a"), number=number)
    assert str(raised.value) == (
        f"the next batch of the checkpoint {adding.root} must be 2, got {number}: the checkpoints of Spark and of "
        "headgate do not belong together; restore both from one moment"
    )
    assert adding.state() == {"a": {"n.count": 2, "sum.sum": 2}}


IN_BATCH_2 = ("during compaction",)
"""A slot that gains or loses keys puts merging off."""

AFTER_COMMIT = ("after manifest commit", "during sink write", "after sink write")


@pytest.mark.parametrize("migration", ["manifest", "copy"])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_is_not_seen_in_the_end(engine: Any, adding: Any, point: str, migration: str) -> None:
    """Batch 1 moves groups, pins keys and splits one; batch 2 merges what that brought together; the driver dies in the
    middle of one of them. Batch 3 loses a slot."""
    adding.option(migration=migration)
    adding.script.split = (hashes("w3"),)
    adding.script.place = lambda assignment: control.moved(
        control.moved(assignment, 1, groups=[0, 1, 2]), 0, keys=hashes("w5", "w6", "w7")
    )
    adding.batch(rows(*WORDS), rows(*WORDS))
    adding.driver.crash = engine.Crash(point=point)
    if point in IN_BATCH_2:
        adding.batch(rows(*WORDS[:6]), number=1)
    with pytest.raises(engine.Crashed, match=point):
        adding.batch(rows(*WORDS[:6]), number=adding.next)
    assert adding.next == (2 if point in IN_BATCH_2 or point in AFTER_COMMIT else 1)
    adding.restart()
    for number in range(max(1, adding.next - 1), 3):  # the last one that was committed may be asked for again
        adding.batch(rows(*WORDS[:6]), number=number)
    adding.change(lambda assignment: control.resized(assignment, 2))
    adding.batch(rows("w0"), number=3)
    assert adding.state() == {
        word: {"n.count": n, "sum.sum": n * len(word)}
        for word, n in Counter([*WORDS, *WORDS, *WORDS[:6], *WORDS[:6], "w0"]).items()
    }
    assert [row["n"] for row in adding.results("out", 1)] == [3] * 6
    assert [row["n"] for row in adding.results("out", 2)] == [4] * 6
    if point != "before plan write":  # what was decided before the crash holds after it
        pinned, _ = adding.last.assignment.pins.of_operator(0)
        assert set(pinned.tolist()) <= set(hashes("w5", "w6", "w7").tolist())
        assert adding.last.shared[0].tolist() == hashes("w3").tolist()


def test_a_split_key_lies_with_the_driver_and_comes_back(adding: Any) -> None:
    adding.script.split = (hashes("w1", "w2"),)
    adding.batch(rows(*WORDS))
    adding.script.split = (hashes(),)
    both = adding.batch(rows("w1", "w1"), rows("w1", "w3"))["out"]
    assert both == [{"word": "w1", "n": 4, "sum": 8}, {"word": "w3", "n": 2, "sum": 4}]
    assert adding.counted()[8] == 2, "the shared place has w1, and w2 that had no rows"
    assert adding.told[-1]["split_keys"] == 2
    adding.batch(rows("w2"))
    assert 8 not in adding.counted()
    assert adding.state()["w1"] == {"n.count": 4, "sum.sum": 8}
    assert adding.state()["w2"] == {"n.count": 2, "sum.sum": 4}


def test_a_verdict_for_another_version_is_stale(adding: Any) -> None:
    adding.script.place = lambda assignment: control.moved(assignment, 2, groups=range(8))
    adding.batch(rows("a"))
    adding.change(lambda assignment: control.moved(assignment, 1, groups=[0]))
    adding.batch(rows("a"))
    assert len(adding.script.told_stale) == 1
    assert not adding.script.taken
    assert set(adding.last.assignment.groups.tolist()) != {2}
    assert [entry["kind"] for entry in adding.driver.checkpoint.journal()] == ["stale", "migration", "migrated"]
    adding.script.place = lambda assignment: control.moved(assignment, 2, groups=range(8))
    adding.batch(rows("a"))
    adding.batch(rows("a"))
    assert len(adding.script.taken) == 1
    assert set(adding.last.assignment.groups.tolist()) == {2}


def test_decisions_are_in_the_journal_even_if_the_crash_came_before_it_was_written(engine: Any, adding: Any) -> None:
    def told(assignment: Any, batch: int) -> Any:
        return control.resized(assignment, 2), [control.Entry(batch, "slots", "3 to 2")]

    adding.batch(rows("a"))
    adding.driver.change(told)
    written = adding.driver.checkpoint.append_journal
    adding.driver.checkpoint.append_journal = lambda *_: (_ for _ in ()).throw(engine.Crashed("between the two"))
    with pytest.raises(engine.Crashed):
        adding.batch(rows("a"))
    del adding.driver.checkpoint.append_journal
    assert adding.driver.checkpoint.append_journal == written
    adding.restart()
    assert adding.driver.checkpoint.journal() == []
    adding.batch(rows("a"))
    assert [entry["kind"] for entry in adding.driver.checkpoint.journal()] == ["slots", "migration", "migrated"]
    assert adding.last.assignment.slots == 2


def test_what_somebody_asks_for_before_a_replay_happens_after_it(engine: Any, adding: Any) -> None:
    adding.driver.crash = engine.Crash(point="after plan write")
    with pytest.raises(engine.Crashed):
        adding.batch(rows("a"))
    adding.restart()
    adding.change(lambda assignment: control.resized(assignment, 2))
    adding.batch(rows("a"))
    assert adding.last.assignment.slots == 3, "the batch runs as it was planned"
    adding.batch(rows("a"))
    assert adding.last.assignment.slots == 2


def test_the_last_versions_stay_readable(adding: Any) -> None:
    adding.option(keep_versions=4)
    states = []
    for number in range(20):
        adding.change(lambda assignment, number=number: control.moved(assignment, number % 3, groups=[0, 1, 2, 3]))
        adding.batch(rows(*WORDS[: number % 12 + 1]))
        states.append(adding.state())
    adding.restart()
    versions = adding.driver.checkpoint.versions()
    assert versions == [16, 17, 18, 19]
    assert not [finding for finding in adding.driver.checkpoint.verify() if finding.problem]
    for version in versions:
        adding.driver.last = adding.driver.checkpoint.manifest(version)
        assert adding.state() == states[version]
    assert {int(path.name.split("-")[0]) for path in adding.root.glob("outbox/out/*")} == {19}


# -- timers and expiry, where keys change place ------------------------------------------------------------------------


def wake(key: str, rows: Any, state: dict[str, int], context: Any) -> tuple[str, int, str]:
    state["n"] += len(rows)
    if len(rows):
        context.set_processing_timer(dt.timedelta(seconds=rows["v"][0]))
    return key, state["n"], context.fired or ""


@pytest.fixture
def waking(engine: Any, tmp_path: Path) -> Any:
    """A timer v seconds after each row; state expires 10 seconds after it was last used."""
    operator = PerKey.of(
        wake,
        name="wake",
        input_schema=SCHEMA,
        key_names=["word"],
        state={"n": 0},
        output="word string, n long, why string",
    )
    job = engine.one_operator(operator, schema=SCHEMA, timers=True, ttl_micros=10_000_000)
    return engine.Bench(tmp_path, job, 3)


@pytest.mark.parametrize("pinned", [False, True], ids=["where it is", "while it moves"])
@pytest.mark.parametrize("joined", [False, True], ids=["without rows", "with rows"])
def test_a_timer_fires_in_the_batch_in_which_it_is_due(waking: Any, pinned: bool, joined: bool) -> None:
    waking.batch([{"word": word, "v": 2} for word in WORDS])
    waking.seconds += 2
    if pinned:
        for slot in range(3):
            waking.change(lambda assignment, slot=slot: control.moved(assignment, slot, keys=hashes(*WORDS[slot::3])))
    fired = waking.batch([{"word": "w1", "v": 50}] if joined else [])["out"]
    assert fired == sorted(
        ({"word": word, "n": 2 if joined and word == "w1" else 1, "why": "processing"} for word in WORDS), key=repr
    )
    assert waking.told[-1]["timers_fired"] == 12
    assert waking.batch()["out"] == [], "once"
    assert sum(waking.counted().values()) == 12


@pytest.mark.parametrize("pinned", [False, True], ids=["where it is", "while it moves"])
def test_state_expires_in_the_batch_in_which_it_is_due(waking: Any, pinned: bool) -> None:
    waking.batch([{"word": word, "v": 50} for word in WORDS])
    waking.seconds += 10
    if pinned:
        for slot in range(3):
            waking.change(lambda assignment, slot=slot: control.moved(assignment, slot, keys=hashes(*WORDS[slot::3])))
    assert waking.batch([{"word": "w1", "v": 50}])["out"] == [{"word": "w1", "n": 1, "why": ""}], "it is new again"
    assert waking.state() == {"w1": {"n": 1}}
    assert waking.told[-1]["expired_keys"] == 11
    assert sum(waking.counted().values()) == 1
    waking.seconds += 100
    assert waking.batch()["out"] == [], "an expired key has no timer"
    assert waking.counted() == {}


def test_expired_split_keys_go_although_nothing_comes_for_them(engine: Any, tmp_path: Path) -> None:
    operator = Aggregation("words", SCHEMA, ("word",), {"n": count()})
    job = engine.one_operator(operator, schema=SCHEMA, splits=True, ttl_micros=1_000_000)
    bench = engine.Bench(tmp_path, job, 2)
    bench.script.split = (hashes("a"),)
    bench.batch(rows("a", "b"))
    bench.batch(rows("a", "b"))
    bench.seconds += 5
    bench.batch()
    assert bench.state() == {}
    assert bench.counted() == {}


def test_keys_of_several_groups_can_be_moved_when_nothing_else_happens(adding: Any) -> None:
    adding.batch(rows(*WORDS))
    adding.change(lambda assignment: control.moved(assignment, 2, keys=hashes(*WORDS)))
    adding.batch()
    places = Places(adding.last.assignment, 0, adding.last.shared[0])
    assert adding.counted() == Counter(places.of(hashes(*WORDS)).tolist())
    assert len(adding.state()) == 12


# -- errors and statistics ---------------------------------------------------------------------------------------------


def test_a_function_that_raises_names_everything_and_the_batch_can_be_tried_again(engine: Any, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def picky(key: str, rows: Any, state: dict[str, int]) -> tuple[str, int]:
        if key == "bad" and not mended.exists():
            raise ValueError("no such thing")
        state["n"] += len(rows)
        return key, state["n"]

    operator = PerKey.of(
        picky, name="picky", input_schema=SCHEMA, key_names=["word"], state={"n": 0}, output="word string, n long"
    )
    bench = engine.Bench(tmp_path, engine.one_operator(operator, schema=SCHEMA), 3)
    bench.batch(rows("a"))
    slot = int(bench.last.assignment.route(hashes("bad"))[0])
    with pytest.raises(UserFunctionError) as raised:
        bench.batch(rows("bad", "a"))
    assert str(raised.value) == (
        f"the function of operator 'picky' raised ValueError: no such thing for key 'bad' on slot {slot} (its first "
        "row is {'word': 'bad', 'v': 3}): mend the function and start the job again, it goes on from its last commit"
    )
    assert bench.last.batch == 0
    mended.touch()
    assert bench.batch(rows("bad", "a"))["out"] == [{"word": "a", "n": 2}, {"word": "bad", "n": 1}]


@pytest.mark.parametrize(
    ("service", "given"),
    [(0.0, 0.0), (0.0005, 0.0005), (0.0005, {"words": 0.0005}), (0.0, {"other": 0.5})],
    ids=["measured", "with a service time", "of its own", "of another operator"],
)
def test_the_loads_that_are_reported_add_up_to_the_busy_time(adding: Any, service: float, given: Any) -> None:
    adding.option(service_seconds=given)
    adding.script.split = (hashes("w0"),)
    adding.batch(rows(*WORDS))
    adding.batch(rows(*WORDS, *["w0"] * 40), rows(*["w1"] * 10))
    number, loads, state_bytes = adding.script.observed[-1]
    assert number == 1
    assert [load.slot for load in loads] == [0, 1, 2]
    for load in loads:
        assert load.cost.sum() == pytest.approx(load.seconds)
        assert load.heavy_cost.sum() <= load.seconds * (1 + 1e-9)
        assert service * load.tuples.sum() <= load.seconds
    assert sum(int(load.tuples.sum()) for load in loads) == 62
    named: Counter[Any] = Counter()
    for load in loads:
        for label, tuples in zip(load.heavy_label, load.heavy_tuples, strict=True):
            named[label] += int(tuples)
    split = f"{int(hashes('w0')[0]) & (2**64 - 1):016x}"
    assert named == Counter({**dict.fromkeys(WORDS[2:], 1), split: 41, "w1": 11}), "a split key goes by its hash"
    assert len({load.slot for load in loads if int(hashes("w0")[0]) in load.heavy_hash}) == 3, "spread over all slots"
    assert [len(sizes) for sizes in state_bytes] == [8]


def test_without_statistics_nothing_is_measured_per_key(adding: Any) -> None:
    adding.option(statistics=False)
    adding.batch(rows(*WORDS))
    assert adding.script.observed == []
    assert adding.told[-1]["rows"] == 12


def test_a_key_that_is_pinned_where_it_is_changes_place_and_has_not_moved(adding: Any) -> None:
    adding.batch(rows(*WORDS))
    key = hashes("w1")
    stays = int(adding.last.assignment.route(key)[0])
    adding.change(lambda assignment: assignment.next(pins=pins_from({int(key[0]): stays})))
    adding.batch(rows("w2"))
    assert (adding.told[-1]["moved_keys"], adding.told[-1]["table_size"]) == (0, 1)
    adding.change(lambda assignment: assignment.next(pins=pins_from({int(key[0]): (stays + 1) % assignment.slots})))
    adding.batch(rows("w1"))
    assert (adding.told[-1]["moved_keys"], adding.told[-1]["moves"]) == (1, 1)
    assert adding.state()["w1"]["n.count"] == 2


def test_progress_says_what_the_batch_did(adding: Any) -> None:
    adding.seconds = 86_400.0
    adding.batch(rows("a", "b"), rows("a"))
    told = adding.told[-1]
    assert {name: told[name] for name in ("job", "batch", "timestamp", "rows", "inputs", "slots", "state_rows")} == {
        "job": "job", "batch": 0, "timestamp": "1970-01-02T00:00:00+00:00", "rows": 3, "inputs": {"in": 3}, "slots": 3,
        "state_rows": 2,
    }  # fmt: skip
    assert sum(told["slot_rows"]) == 3
    assert told["state_bytes"] == int(adding.last.counts[0].bytes.sum()) > 0
    assert told["watermark"] is None
    assert adding.driver.checkpoint.progress() == [told]


def test_in_the_first_batch_of_a_run_the_time_that_workers_take_to_start_is_not_the_keys_cost(adding: Any) -> None:
    adding.warm = False
    adding.restart()
    adding.batch(rows(*WORDS))
    adding.batch(rows(*WORDS))
    costs = {number: sum(float(load.cost.sum()) for load in loads) for number, loads, _ in adding.script.observed}
    busy = {number: sum(load.seconds for load in loads) for number, loads, _ in adding.script.observed}
    assert sorted(costs) == [0, 1]
    assert 0 < costs[0] < 1e-6 < busy[0]
    assert costs[1] == pytest.approx(busy[1])
