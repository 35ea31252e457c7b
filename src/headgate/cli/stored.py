"""Reading a checkpoint from outside: nothing is claimed, nothing is written, and the query may be running meanwhile."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headgate.control import Entry
from headgate.errors import CheckpointError, HeadgateError, InputError, StateError
from headgate.state import Checkpoint, Files
from headgate.state.checkpoint import FORMAT, JOB
from headgate.state.ownership import FILE as OWNER
from headgate.state.ownership import LEASE_SECONDS, Ownership, is_running

STORE = "headgate"
"""The subdirectory of the checkpoint that is ours; the other one is Spark's."""


def open_checkpoint(path: str) -> Checkpoint:
    """The checkpoint that was given to ``start``, or its ``headgate`` subdirectory.

    Raises ``InputError`` where there is none, ``StateError`` where it cannot be read, and ``CheckpointError`` for a
    newer format.
    """
    place = Files.at(path)
    for files in (place, Files.at(f"{place.root}/{STORE}")):
        if files.exists(JOB):
            checkpoint = Checkpoint(files)
            job = checkpoint.job()
            if job is not None and job["format"] > FORMAT:
                raise CheckpointError.newer(files.root, job["format"], FORMAT)
            return checkpoint
    what = f"there is no {JOB} in it, nor in its subdirectory {STORE!r}"
    if place.is_local and not os.path.exists(place.root):
        what = "it does not exist"
    raise InputError(
        f"{path} must be a checkpoint of headgate, and {what}: give the directory that start(checkpoint=...) was given"
    )


def operators(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The operators of the job: name, key columns and state columns, each column as "name type"."""
    job = checkpoint.job()
    found: list[dict[str, Any]] = job["identity"].get("operators", []) if job is not None else []
    return found


def job_name(checkpoint: Checkpoint) -> str:
    """The name of the job that the checkpoint belongs to."""
    job = checkpoint.job()
    return str(job["identity"].get("job", "?")) if job is not None else "?"


@dataclass(frozen=True, slots=True)
class Runner:
    """Who runs a query, as far as can be told from outside. ``running`` is False when nobody does."""

    running: bool
    text: str


def runner(checkpoint: Checkpoint, *, clock: Callable[[], float] = time.time, host: str | None = None) -> Runner:
    """Who runs the query of a checkpoint: by the process where it is on this host, else by its last sign of life."""
    try:
        owner = Ownership(checkpoint.files, clock).current()
    except StateError:
        if checkpoint.files.exists(OWNER):
            raise
        owner = None  # it was released between two looks
    if owner is None:
        return Runner(False, "stopped: no process runs this query")
    who = f"process {owner.pid} on host {owner.host}"
    if owner.host == (host or socket.gethostname()):
        if is_running(owner.pid, owner.started):
            return Runner(True, f"running: {who}")
        return Runner(False, f"stopped without a farewell: {who} is gone; start the job again to go on")
    age = max(0.0, clock() - owner.heartbeat)
    if age < LEASE_SECONDS:
        return Runner(True, f"running: {who}, last heard of {age:.0f} s ago")
    return Runner(False, f"perhaps stopped: {who}, last heard of {age:,.0f} s ago")


def last_entries(checkpoint: Checkpoint, count: int) -> list[Entry]:
    """The last entries of the journal, oldest first. Lines that cannot be read are left out."""
    entries: list[Entry] = []
    for line in checkpoint.last_journal(count):
        with contextlib.suppress(HeadgateError):
            entries.append(Entry.from_json(line))
    return entries
