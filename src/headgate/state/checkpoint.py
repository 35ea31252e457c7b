"""The checkpoint of a job: where everything lies, what commits a batch, and what may be deleted.

    job.json                                    which job it belongs to
    owner.json                                  who runs it now
    plans/N.json                                decided before batch N
    manifests/N.json                            commits batch N
    runs/<operator>/<batch>-<slot>-<8 hex>.run  state; named by attempt, so that no two tasks write one file
    outbox/<output>/<batch>-<slot>-<8 hex>.parquet  results on their way to a sink
    journal/N.jsonl                             decisions; those of old batches in volumes
    progress/N.json                             measurements

A crash at any moment leaves either no manifest N, and then batch N runs again under plan N, or the whole of it. Files
that no manifest names are orphans; ``retain`` deletes them once their batch is committed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import CheckpointError, StateError
from headgate.state.files import Files, unique_name
from headgate.state.journal import JournalFiles
from headgate.state.manifest import BatchPlan, Manifest
from headgate.state.ownership import Ownership
from headgate.state.runs import Run

FORMAT = 1
"""The layout of a checkpoint that is written, and the newest that is used."""

PROGRESS_KEPT = 100
"""Progress files kept: as many as Spark keeps of its own by default."""

JOB = "job.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """What ``verify`` found about one file: ``problem`` is None where it is sound."""

    file: str
    kind: str
    problem: str | None


class Checkpoint:
    """A checkpoint under a root. Reading needs no claim; writing does.

    Not for several threads at once, except that ``assert_owner`` may be called beside everything else.
    """

    def __init__(self, files: Files, *, clock: Callable[[], float] = time.time) -> None:
        self.files = files
        self._ownership = Ownership(files, clock)
        self._journal = JournalFiles(files)
        self._used: dict[int, frozenset[str]] = {}

    # -- who ---------------------------------------------------------------------------------------------------------

    def claim(self, identity: Mapping[str, Any], *, run_id: str, host: str, pid: int, takeover: bool = False) -> str:
        """Become the one run of this checkpoint, and get the id of its job, which is made when it is new.

        ``identity`` is plain JSON: what must not change between runs. ``CheckpointError`` when the checkpoint belongs
        to a job with another identity (all differences are listed), has a newer format, or has a living owner.
        """
        identity = json.loads(json.dumps(identity))
        self._check_job(identity)
        self._ownership.take(run_id=run_id, host=host, pid=pid, takeover=takeover)
        job = {"format": FORMAT, "id": secrets.token_hex(8), "identity": identity}
        try:
            self.files.write_new(JOB, json.dumps(job, indent=1, sort_keys=True).encode())
            return self._check_job(identity) or str(job["id"])
        except Exception:
            self._ownership.release()
            raise

    def assert_owner(self) -> None:
        """``CheckpointError`` unless this run still owns the checkpoint; also its sign of life."""
        self._ownership.confirm()

    def release(self) -> None:
        """Give the checkpoint free for the next run."""
        self._ownership.release()

    def job(self) -> dict[str, Any] | None:
        """The content of job.json: format, id and identity; None for a new checkpoint."""
        if not self.files.exists(JOB):
            return None
        try:
            job = json.loads(self.files.read_bytes(JOB))
            if isinstance(job, dict) and {"format", "id", "identity"} <= job.keys():
                return job
        except ValueError as error:
            raise StateError.damaged(self.files.join(JOB), str(error)) from error
        raise StateError.foreign(self.files.join(JOB), "the identity of a headgate job")

    def _check_job(self, identity: Mapping[str, Any]) -> str | None:
        job = self.job()
        if job is None:
            return None
        if job["format"] > FORMAT:
            raise CheckpointError.newer(self.files.root, job["format"], FORMAT)
        differences = list(_differences("", job["identity"], identity))
        if differences:
            raise CheckpointError.other_job(self.files.root, differences)
        return str(job["id"])

    # -- names -------------------------------------------------------------------------------------------------------

    @staticmethod
    def run_name(operator: int, batch: int, slot: int) -> str:
        """A name for a run that no other attempt has."""
        return unique_name(f"runs/{operator}/{batch}-{slot}", "run")

    @staticmethod
    def outbox_name(output: str, batch: int, slot: int) -> str:
        """A name for a file of results that no other attempt has."""
        return unique_name(f"outbox/{output}/{batch}-{slot}", "parquet")

    # -- batches -----------------------------------------------------------------------------------------------------

    def versions(self) -> list[int]:
        """The batches that are committed and kept, ascending."""
        return self._numbered("manifests", ".json")

    def latest(self) -> Manifest | None:
        """The last committed version; None before the first. ``StateError`` when it is damaged."""
        versions = self.versions()
        return self.manifest(versions[-1]) if versions else None

    def manifest(self, batch: int) -> Manifest:
        """The version after a batch. ``CheckpointError`` when there is none, ``StateError`` when it is damaged."""
        name = f"manifests/{batch}.json"
        if not self.files.exists(name):
            raise CheckpointError.no_version(self.files.root, batch, self.versions())
        manifest = Manifest.from_bytes(self.files.read_bytes(name), self.files.join(name))
        if manifest.batch != batch:
            raise StateError.foreign(self.files.join(name), f"the manifest of batch {batch}")
        return manifest

    def commit(self, manifest: Manifest) -> None:
        """Make a batch count. Once this returns, it does; if it fails, it does not.

        Committing the same again changes nothing. ``CheckpointError`` when this run no longer owns the checkpoint, or
        another manifest of that batch is there.
        """
        self.assert_owner()
        self._write_once(f"manifests/{manifest.batch}.json", manifest.to_bytes(), "manifest", manifest.batch)
        self._used[manifest.batch] = frozenset(manifest.layout.runs())

    def plan(self, batch: int) -> BatchPlan | None:
        """What was decided for a batch; None if nothing was written yet."""
        name = f"plans/{batch}.json"
        if not self.files.exists(name):
            return None
        plan = BatchPlan.from_bytes(self.files.read_bytes(name), self.files.join(name))
        if plan.batch != batch:
            raise StateError.foreign(self.files.join(name), f"the plan of batch {batch}")
        return plan

    def write_plan(self, plan: BatchPlan) -> None:
        """Write what is decided for a batch, before it runs. Fails as ``commit`` does."""
        self.assert_owner()
        self._write_once(f"plans/{plan.batch}.json", plan.to_bytes(), "plan", plan.batch)

    def _write_once(self, name: str, content: bytes, what: str, batch: int) -> None:
        if not self.files.write_new(name, content) and self.files.read_bytes(name) != content:
            raise CheckpointError.conflict(self.files.root, what, batch)

    # -- journal and progress ----------------------------------------------------------------------------------------

    def append_journal(self, batch: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add entries to the journal of a batch. An entry that is there already, word for word, is not added again,
        so a replay leaves the journal as it was."""
        self._journal.append(batch, entries)

    def journal(self) -> list[dict[str, Any]]:
        """Every entry, from the first batch on. ``StateError`` where a file is damaged."""
        return self._journal.entries()

    def last_journal(self, last: int) -> list[dict[str, Any]]:
        """The last so many entries, oldest first. Damaged files are left out."""
        return self._journal.last(last)

    def write_progress(self, batch: int, progress: Mapping[str, Any]) -> None:
        """Keep the measurements of a batch; those of ``PROGRESS_KEPT`` batches before go."""
        self.files.write_bytes(f"progress/{batch}.json", json.dumps(dict(progress), sort_keys=True).encode())
        self.files.delete(f"progress/{batch - PROGRESS_KEPT}.json")

    def progress(self, last: int = 1) -> list[dict[str, Any]]:
        """The measurements of the last so many batches, oldest first. Damaged ones, which matter to nobody, are left
        out."""
        found: list[dict[str, Any]] = []
        for batch in self._numbered("progress", ".json")[-last:] if last > 0 else []:
            try:
                found.append(json.loads(self.files.read_bytes(f"progress/{batch}.json")))
            except (ValueError, StateError):
                continue
        return found

    # -- housekeeping ------------------------------------------------------------------------------------------------

    def retain(self, keep: int) -> None:
        """Delete what the last ``keep`` versions do not need. May run beside the next batch.

        That is: manifests and plans of older versions; runs that no kept manifest names and whose batch is committed,
        so also those of failed attempts; results of batches before the last; progress beyond ``PROGRESS_KEPT``; and
        temporary files of committed batches. While a kept manifest cannot be read no run is deleted, since it is not
        known which it names. Manifests go first, so a crash in between leaves orphans for the next time, never a
        manifest without its runs. Of the journal nothing is deleted: that of older versions goes into volumes.
        """
        versions = self.versions()
        if not versions:
            return
        latest = versions[-1]
        kept = versions[-max(1, keep) :]
        for batch in versions[: -len(kept)]:
            self.files.delete(f"manifests/{batch}.json")
        for batch in self._numbered("plans", ".json"):
            if batch < kept[0]:
                self.files.delete(f"plans/{batch}.json")
        self._used = {batch: names for batch, names in self._used.items() if batch in kept}
        used = self._named_runs(kept)
        for directory in self._below("runs"):
            self._delete_old(directory, lambda name, batch: batch <= latest and used is not None and name not in used)
            self._delete_stale(directory, latest)
        for directory in self._below("outbox"):
            self._delete_old(directory, lambda _, batch: batch < latest)
            self._delete_stale(directory, latest)
        for directory in ("plans", "manifests", "journal", "progress"):
            self._delete_stale(directory, latest)
        for batch in self._numbered("progress", ".json")[:-PROGRESS_KEPT]:
            self.files.delete(f"progress/{batch}.json")
        self._journal.bind(before=kept[0])

    def _named_runs(self, batches: Sequence[int]) -> frozenset[str] | None:
        """The runs that these versions name; None when one of them cannot be read."""
        for batch in batches:
            if batch not in self._used:
                try:
                    self._used[batch] = frozenset(self.manifest(batch).layout.runs())
                except StateError:
                    return None
        return frozenset().union(*(self._used[batch] for batch in batches))

    def _delete_old(self, directory: str, is_old: Callable[[str, int], bool]) -> None:
        for last in self.files.list(directory):
            batch = _leading_number(last)
            if batch is not None and is_old(f"{directory}/{last}", batch):
                self.files.delete(f"{directory}/{last}")

    def _delete_stale(self, directory: str, latest: int) -> None:
        for last in self.files.stale(directory):
            batch = _leading_number(last.lstrip("."))
            if batch is not None and batch <= latest:
                self.files.delete(f"{directory}/{last}")

    def verify(self) -> list[Finding]:
        """Read every file that a kept version needs, and say what is wrong with each; raises nothing for damage."""
        findings: list[Finding] = []
        runs = {}
        for batch in self.versions():
            name = f"manifests/{batch}.json"
            try:
                runs.update(self.manifest(batch).layout.runs())
                findings.append(Finding(name, "manifest", None))
            except StateError as error:
                findings.append(Finding(name, "manifest", str(error)))
        for batch in self._numbered("plans", ".json"):
            name = f"plans/{batch}.json"
            try:
                self.plan(batch)
                findings.append(Finding(name, "plan", None))
            except StateError as error:
                findings.append(Finding(name, "plan", str(error)))
        for name, info in sorted(runs.items()):
            try:
                Run(str(self.files.local_path(name)), self.files.join(name), info)  # opening verifies it
                findings.append(Finding(name, "run", None))
            except StateError as error:
                findings.append(Finding(name, "run", str(error)))
        return findings

    def _numbered(self, directory: str, suffix: str) -> list[int]:
        names = (name.removesuffix(suffix) for name in self.files.list(directory) if name.endswith(suffix))
        return sorted(int(name) for name in names if name.isdecimal())

    def _below(self, directory: str) -> list[str]:
        return [f"{directory}/{name}" for name in self.files.list(directory)]


def _leading_number(name: str) -> int | None:
    """The batch that the name of a run or of results begins with."""
    digits = name.replace(".", "-").partition("-")[0]
    return int(digits) if digits.isdecimal() else None


def _differences(path: str, saved: object, wanted: object) -> Iterable[str]:
    """Where two identities differ, field by field."""
    if isinstance(saved, dict) and isinstance(wanted, dict):
        for name in [*saved, *(name for name in wanted if name not in saved)]:
            inner = f"{path}.{name}" if path else str(name)
            if name not in wanted:
                yield f"{inner}: the checkpoint has {saved[name]!r}, this job does not have it"
            elif name not in saved:
                yield f"{inner}: the checkpoint does not have it, this job has {wanted[name]!r}"
            else:
                yield from _differences(inner, saved[name], wanted[name])
    elif isinstance(saved, list) and isinstance(wanted, list) and len(saved) == len(wanted):
        for number, (left, right) in enumerate(zip(saved, wanted, strict=True)):
            yield from _differences(f"{path}[{number}]", left, right)
    elif saved != wanted:
        yield f"{path}: the checkpoint has {saved!r}, this job has {wanted!r}"
