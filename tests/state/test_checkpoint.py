from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import CheckpointError, StateError
from headgate.routing import Assignment
from headgate.state import BatchPlan, Checkpoint, Files, Finding, Layout, Manifest, journal
from headgate.state.checkpoint import PROGRESS_KEPT
from headgate.state.ownership import HEARTBEAT_SECONDS, LEASE_SECONDS, is_running, process_start

Row = Callable[..., Any]
IDENTITY: dict[str, Any] = {
    "name": "words",
    "operators": [{"name": "count", "groups": 8, "keys": {"word": "string"}, "state": {"count": "int64"}}],
}
ASSIGNMENT = Assignment.hashed(2, 8)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["local", "remote"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return Files.at(
        tmp_path / "ckpt" if request.param == "local" else f"mock:///{tmp_path.name}/c", cache=str(tmp_path)
    )


@pytest.fixture
def checkpoint(files: Files, clock: Clock) -> Checkpoint:
    checkpoint = Checkpoint(files, clock=clock)
    checkpoint.claim(IDENTITY, run_id="first", host="here", pid=os.getpid())
    return checkpoint


def manifest(batch: int, layout: Layout | None = None, **fields: Any) -> Manifest:
    return Manifest("job", batch, ASSIGNMENT, layout or Layout(), **fields)


def plan(batch: int, now: int = 0) -> BatchPlan:
    return BatchPlan(batch, ASSIGNMENT, None, now)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_a_new_checkpoint_is_empty(checkpoint: Checkpoint) -> None:
    assert (checkpoint.versions(), checkpoint.latest(), checkpoint.plan(0), checkpoint.journal()) == (
        [],
        None,
        None,
        [],
    )
    assert checkpoint.progress(5) == []
    checkpoint.retain(1)


def test_the_last_commit_counts(checkpoint: Checkpoint) -> None:
    for batch in (0, 9, 10):
        checkpoint.write_plan(plan(batch))
        checkpoint.commit(manifest(batch, now=batch))
    assert checkpoint.versions() == [0, 9, 10]
    latest = checkpoint.latest()
    assert latest is not None
    assert (latest.batch, latest.now) == (10, 10)
    assert checkpoint.manifest(9).now == 9
    assert checkpoint.plan(10) == plan(10)
    with pytest.raises(CheckpointError, match=r"has no version 4 \(it has: 0, 9, 10\): choose one of those"):
        checkpoint.manifest(4)


def test_committing_again_changes_nothing_and_something_else_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.write_plan(plan(3, now=1))
    checkpoint.write_plan(plan(3, now=1))
    with pytest.raises(CheckpointError, match="already has another plan for batch 3: two runs wrote to it"):
        checkpoint.write_plan(plan(3, now=2))
    checkpoint.commit(manifest(3, now=1))
    checkpoint.commit(manifest(3, now=1))
    with pytest.raises(CheckpointError, match="already has another manifest for batch 3"):
        checkpoint.commit(manifest(3, now=2))
    assert checkpoint.manifest(3).now == 1
    assert checkpoint.plan(3) == plan(3, now=1)


def test_a_damaged_or_swapped_manifest_is_named(checkpoint: Checkpoint) -> None:
    checkpoint.commit(manifest(1))
    checkpoint.files.write_bytes("manifests/2.json", checkpoint.files.read_bytes("manifests/1.json"))
    with pytest.raises(StateError, match=r"manifests/2.json must be the manifest of batch 2"):
        checkpoint.latest()
    checkpoint.files.write_bytes("manifests/2.json", b"torn")
    with pytest.raises(StateError, match=r"manifests/2.json is damaged"):
        checkpoint.latest()
    checkpoint.files.write_bytes("plans/2.json", b"")
    with pytest.raises(StateError, match=r"plans/2.json is damaged"):
        checkpoint.plan(2)


# -- journal and progress --------------------------------------------------------------------------------------------


def test_a_replay_leaves_the_journal_as_it_was(checkpoint: Checkpoint) -> None:
    checkpoint.append_journal(10, [{"kind": "plan", "n": 1}])
    checkpoint.append_journal(9, [{"kind": "balanced"}])
    checkpoint.append_journal(10, [{"n": 1, "kind": "plan"}, {"kind": "move"}])
    checkpoint.append_journal(11, [])
    assert checkpoint.journal() == [{"kind": "balanced"}, {"kind": "plan", "n": 1}, {"kind": "move"}]
    checkpoint.files.write_bytes("journal/9.jsonl", b"{")
    with pytest.raises(StateError, match=r"journal/9.jsonl is damaged"):
        checkpoint.journal()


def test_the_journal_of_versions_that_are_gone_is_kept_in_volumes(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "VOLUME", 4)
    for batch in range(10):
        checkpoint.append_journal(batch, [{"batch": batch}])
        checkpoint.commit(manifest(batch))
        checkpoint.retain(2)
    assert checkpoint.files.list("journal") == ["0-3.jsonl", "4-7.jsonl", "8.jsonl", "9.jsonl"]
    assert checkpoint.journal() == [{"batch": batch} for batch in range(10)]
    assert checkpoint.last_journal(3) == [{"batch": batch} for batch in (7, 8, 9)]


def test_the_last_progress_is_kept(checkpoint: Checkpoint) -> None:
    for batch in range(PROGRESS_KEPT + 5):
        checkpoint.write_progress(batch, {"batch": batch})
    assert len(checkpoint.files.list("progress")) == PROGRESS_KEPT
    assert [entry["batch"] for entry in checkpoint.progress(3)] == [102, 103, 104]
    checkpoint.files.write_bytes("progress/104.json", b"")
    assert [entry["batch"] for entry in checkpoint.progress(2)] == [103]
    assert checkpoint.progress(0) == []


# -- retention -------------------------------------------------------------------------------------------------------
#
#     version   runs it names
#     1         a
#     2         a b
#     3           b c         x: a failed attempt of batch 2, y: an attempt of batch 4, which runs now


@pytest.fixture
def filled(checkpoint: Checkpoint, make_bench: Any, row: Row) -> Checkpoint:
    bench = make_bench(checkpoint.files)
    a, b, c = (
        bench.run([row(0, number)], f"runs/0/{number}-0-{name}.run", number) for number, name in enumerate("abc", 1)
    )
    bench.run([row(0, 1)], "runs/0/000000000002-0-x.run", 2)
    bench.run([row(0, 1)], "runs/0/4-0-y.run", 4)
    for batch, runs in ((1, [a]), (2, [a, b]), (3, [b, c])):
        layout = Layout()
        for number, run in enumerate(runs):
            layout = layout.with_run(0, 0, run, number)
        checkpoint.write_plan(plan(batch))
        checkpoint.files.write_bytes(f"outbox/areas/{batch}-0-z.parquet", b"")
        checkpoint.commit(manifest(batch, layout))
    checkpoint.write_plan(plan(4))
    return checkpoint


@pytest.mark.parametrize(
    ("keep", "versions", "runs"),
    [
        (1, [3], ["2-0-b.run", "3-0-c.run", "4-0-y.run"]),
        (2, [2, 3], ["1-0-a.run", "2-0-b.run", "3-0-c.run", "4-0-y.run"]),
        (9, [1, 2, 3], ["1-0-a.run", "2-0-b.run", "3-0-c.run", "4-0-y.run"]),
        (0, [3], ["2-0-b.run", "3-0-c.run", "4-0-y.run"]),
    ],
    ids=["the last version", "two versions", "more than there are", "at least one"],
)
@pytest.mark.parametrize("process", ["the one that committed", "a new one"])
def test_what_no_kept_version_needs_is_deleted(
    filled: Checkpoint, keep: int, versions: list[int], runs: list[str], process: str
) -> None:
    checkpoint = filled if process == "the one that committed" else Checkpoint(filled.files)
    for _ in range(2):
        checkpoint.retain(keep)
        assert checkpoint.versions() == versions
        assert checkpoint.files.list("plans") == [f"{batch}.json" for batch in [*versions, 4]]
        assert checkpoint.files.list("runs/0") == runs
        assert checkpoint.files.list("outbox/areas") == ["3-0-z.parquet"]
    assert [finding for finding in checkpoint.verify() if finding.problem] == []


def test_no_run_is_deleted_while_a_kept_manifest_cannot_be_read(filled: Checkpoint) -> None:
    filled.files.write_bytes("manifests/2.json", b"torn")
    before = filled.files.list("runs/0")
    checkpoint = Checkpoint(filled.files)
    checkpoint.retain(2)
    assert checkpoint.files.list("runs/0") == before


def test_what_a_dead_process_left_half_written_is_deleted_once_its_batch_is_committed(tmp_path: Path, row: Row) -> None:
    files = Files.at(tmp_path)
    checkpoint = Checkpoint(files)
    checkpoint.claim(IDENTITY, run_id="r", host="here", pid=1)
    (tmp_path / "runs/0").mkdir(parents=True)
    for name in ("runs/0/.3-0-aa.run.1f.tmp", "runs/0/.4-0-aa.run.1f.tmp", "runs/0/notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    checkpoint.commit(manifest(3))
    (tmp_path / "manifests/.3.json.ab.tmp").write_bytes(b"x")
    checkpoint.retain(1)
    assert sorted(os.listdir(tmp_path / "runs/0")) == [".4-0-aa.run.1f.tmp", "notes.txt"]
    assert os.listdir(tmp_path / "manifests") == ["3.json"]


def test_verify_lists_every_file_and_what_is_wrong_with_it(filled: Checkpoint) -> None:
    assert filled.verify() == [
        *(Finding(f"manifests/{batch}.json", "manifest", None) for batch in (1, 2, 3)),
        *(Finding(f"plans/{batch}.json", "plan", None) for batch in (1, 2, 3, 4)),
        *(Finding(f"runs/0/{name}.run", "run", None) for name in ("1-0-a", "2-0-b", "3-0-c")),
    ]
    filled.files.write_bytes("manifests/3.json", b"torn")
    filled.files.write_bytes("plans/1.json", b"torn")
    filled.files.write_bytes("runs/0/1-0-a.run", b"torn")
    for name in ("1-0-a", "2-0-b"):
        filled.files.forget_copy(f"runs/0/{name}.run")
    filled.files.delete("runs/0/2-0-b.run")
    wrong = {finding.file: finding.problem for finding in filled.verify() if finding.problem}
    assert sorted(wrong) == ["manifests/3.json", "plans/1.json", "runs/0/1-0-a.run", "runs/0/2-0-b.run"]
    assert "and has 4: restore" in str(wrong["runs/0/1-0-a.run"])
    assert "it is not there" in str(wrong["runs/0/2-0-b.run"])


# -- identity and ownership ------------------------------------------------------------------------------------------


def test_the_same_job_goes_on_under_the_same_id(files: Files) -> None:
    one = Checkpoint(files)
    job = one.claim(IDENTITY, run_id="a", host="here", pid=os.getpid())
    one.release()
    assert Checkpoint(files).claim(IDENTITY, run_id="b", host="here", pid=os.getpid()) == job


def test_another_job_is_refused_field_by_field(checkpoint: Checkpoint) -> None:
    checkpoint.release()
    other = json.loads(json.dumps(IDENTITY))
    other["name"] = "letters"
    other["operators"][0]["state"] = {"count": "int32", "total": "double"}
    other["operators"][0]["keys"] = {}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.claim(other, run_id="b", host="here", pid=os.getpid())
    assert str(caught.value).splitlines() == [
        f"the checkpoint {checkpoint.files.root} belongs to a job that differs from this one: use another checkpoint "
        "directory, or change the job back:",
        "  name: the checkpoint has 'words', this job has 'letters'",
        "  operators[0].keys.word: the checkpoint has 'string', this job does not have it",
        "  operators[0].state.count: the checkpoint has 'int64', this job has 'int32'",
        "  operators[0].state.total: the checkpoint does not have it, this job has 'double'",
    ]
    assert not checkpoint.files.exists("owner.json")
    with pytest.raises(CheckpointError, match=r"operators: the checkpoint has \[\{.*\}\], this job has \[\]"):
        checkpoint.claim({**IDENTITY, "operators": []}, run_id="b", host="here", pid=1)


def test_a_newer_or_foreign_job_file_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.release()
    job = json.loads(checkpoint.files.read_bytes("job.json"))
    checkpoint.files.write_bytes("job.json", json.dumps({**job, "format": 5}).encode())
    with pytest.raises(CheckpointError, match="has format version 5, and this headgate reads up to version 1"):
        checkpoint.claim(IDENTITY, run_id="b", host="here", pid=1)
    for content, message in ((b"{", "job.json is damaged"), (b"{}", "must be the identity of a headgate job")):
        checkpoint.files.write_bytes("job.json", content)
        with pytest.raises(StateError, match=message):
            checkpoint.claim(IDENTITY, run_id="b", host="here", pid=1)


def test_a_living_process_keeps_its_checkpoint(checkpoint: Checkpoint, clock: Clock) -> None:
    clock.now += 10 * LEASE_SECONDS
    second = Checkpoint(checkpoint.files, clock=clock)
    with pytest.raises(CheckpointError, match=rf"in use by process {os.getpid()} on host here \(it is running\): stop"):
        second.claim(IDENTITY, run_id="second", host="here", pid=os.getpid())
    checkpoint.assert_owner()
    checkpoint.release()
    second.claim(IDENTITY, run_id="second", host="here", pid=os.getpid())


def test_a_dead_process_loses_its_checkpoint(files: Files) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    Checkpoint(files).claim(IDENTITY, run_id="dead", host="here", pid=done.pid)
    Checkpoint(files).claim(IDENTITY, run_id="next", host="here", pid=os.getpid())


def test_a_process_that_got_the_number_of_a_dead_one_is_another(files: Files) -> None:
    assert is_running(os.getpid(), process_start(os.getpid()))
    assert not is_running(os.getpid(), "another boot:17")
    assert is_running(os.getpid(), None)
    Checkpoint(files).claim(IDENTITY, run_id="dead", host="here", pid=os.getpid())
    owner = json.loads(files.read_bytes("owner.json"))
    files.write_bytes("owner.json", json.dumps({**owner, "started": "another boot:17"}).encode())
    Checkpoint(files).claim(IDENTITY, run_id="next", host="here", pid=os.getpid())


def test_an_owner_on_another_host_is_waited_for(checkpoint: Checkpoint, clock: Clock) -> None:
    second = Checkpoint(checkpoint.files, clock=clock)
    clock.now += LEASE_SECONDS - 1
    with pytest.raises(CheckpointError, match=r"on host here \(last heard of 59 seconds ago, and it is waited for 60"):
        second.claim(IDENTITY, run_id="second", host="there", pid=1)
    checkpoint.assert_owner()  # gives a sign of life
    clock.now += LEASE_SECONDS - 1
    with pytest.raises(CheckpointError, match="last heard of 59"):
        second.claim(IDENTITY, run_id="second", host="there", pid=1)
    clock.now += 1
    second.claim(IDENTITY, run_id="second", host="there", pid=1)


def test_a_sign_of_life_is_not_given_more_often_than_needed(checkpoint: Checkpoint, clock: Clock) -> None:
    before = checkpoint.files.read_bytes("owner.json")
    clock.now += HEARTBEAT_SECONDS - 1
    checkpoint.assert_owner()
    assert checkpoint.files.read_bytes("owner.json") == before
    clock.now += 1
    checkpoint.assert_owner()
    assert json.loads(checkpoint.files.read_bytes("owner.json"))["heartbeat"] == clock.now


def test_one_that_was_taken_over_commits_nothing_more(checkpoint: Checkpoint, clock: Clock) -> None:
    second = Checkpoint(checkpoint.files, clock=clock)
    second.claim(IDENTITY, run_id="second", host="there", pid=7, takeover=True)
    lost = r"run first no longer owns the checkpoint .* \(it is owned by run second, process 7 on host there\)"
    with pytest.raises(CheckpointError, match=lost):
        checkpoint.commit(manifest(0))
    with pytest.raises(CheckpointError, match=lost):
        checkpoint.write_plan(plan(0))
    assert (second.versions(), second.plan(0)) == ([], None)
    checkpoint.release()
    second.commit(manifest(0))
    second.release()
    with pytest.raises(CheckpointError, match="must be claimed before anything is written"):
        second.commit(manifest(1))


def test_a_checkpoint_nobody_owns_any_more_is_lost(checkpoint: Checkpoint) -> None:
    checkpoint.files.delete("owner.json")
    with pytest.raises(CheckpointError, match=r"no longer owns .* \(nobody owns it\)"):
        checkpoint.assert_owner()
    checkpoint.files.write_bytes("owner.json", b"?")
    with pytest.raises(StateError, match=r"owner.json is damaged \(it does not name an owner"):
        checkpoint.assert_owner()


def test_names_say_operator_batch_and_slot() -> None:
    assert Checkpoint.run_name(2, 17, 3).startswith("runs/2/17-3-")
    assert Checkpoint.outbox_name("areas", 17, -1).startswith("outbox/areas/17--1-")


def test_a_manifest_is_compared_whole() -> None:
    assert manifest(1) == dataclasses.replace(manifest(1))
    assert manifest(1) != manifest(2)
