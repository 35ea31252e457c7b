"""Who runs a checkpoint: one process at a time.

The owner writes its name into ``owner.json`` and looks before every commit whether it still stands there. Another
process takes a checkpoint over only from an owner that is gone:

    same host     the process is dead, or its number now belongs to another process
    another host  the owner has not been heard of for ``LEASE_SECONDS``
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headgate.errors import CheckpointError, StateError
from headgate.state.files import Files

LEASE_SECONDS = 60.0
"""How long an owner on another host is taken to be alive after its last sign of life. A clock that is off by some
seconds, or a pause of the machine, must not make two owners; a crash of a host costs this long a wait."""

HEARTBEAT_SECONDS = 10.0
"""An owner gives a sign of life when its last one is older than this: several per lease, and cheap."""

FILE = "owner.json"
LOCK = ".owner.lock"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that runs a checkpoint. ``started`` tells it from a later process of the same number."""

    run_id: str
    host: str
    pid: int
    started: str | None
    heartbeat: float


class Ownership:
    """One run's claim on a checkpoint."""

    __slots__ = ("_clock", "_files", "_owner")

    def __init__(self, files: Files, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._owner: Owner | None = None

    def take(self, *, run_id: str, host: str, pid: int, takeover: bool = False) -> None:
        """Become the owner. ``CheckpointError`` when another one is alive, unless ``takeover`` says it is not."""
        owner = Owner(run_id, host, pid, process_start(pid), self._clock())
        with self._files.locked(LOCK):
            current = self.current()
            if current is not None and current.run_id != run_id and not takeover:
                evidence = self._evidence(current, host)
                if evidence is not None:
                    raise CheckpointError.in_use(self._files.root, current.host, current.pid, evidence)
            for left_over in self._files.stale("."):  # of a process that died while it wrote
                self._files.delete(left_over)
            self._write(owner)
        self._owner = owner
        self.confirm()  # on a remote root another one may have written at the same moment

    def confirm(self) -> None:
        """``CheckpointError`` unless this run is still the owner; also a sign of life when one is wanted."""
        owner = self._owner
        if owner is None:
            raise CheckpointError.not_claimed(self._files.root)
        with self._files.locked(LOCK):
            current = self.current()
            if current is None or current.run_id != owner.run_id:
                who = (
                    "nobody owns it"
                    if current is None
                    else (f"it is owned by run {current.run_id}, process {current.pid} on host {current.host}")
                )
                raise CheckpointError.lost(self._files.root, owner.run_id, who)
            now = self._clock()
            if now - owner.heartbeat >= HEARTBEAT_SECONDS:
                self._owner = replace(owner, heartbeat=now)
                self._write(self._owner)

    def release(self) -> None:
        """Give the checkpoint free, if it is still ours."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        with self._files.locked(LOCK), suppress(StateError):
            current = self.current()
            if current is not None and current.run_id == owner.run_id:
                self._files.delete(FILE)

    def current(self) -> Owner | None:
        """Who owns the checkpoint; None if nobody does. ``StateError`` for a damaged file."""
        if not self._files.exists(FILE):
            return None
        try:
            fields: Mapping[str, Any] = json.loads(self._files.read_bytes(FILE))
            return Owner(**fields)
        except (ValueError, TypeError) as error:
            raise StateError.damaged(self._files.join(FILE), f"it does not name an owner: {error}") from error

    def _write(self, owner: Owner) -> None:
        self._files.write_bytes(FILE, json.dumps(asdict(owner), sort_keys=True).encode())

    def _evidence(self, owner: Owner, host: str) -> str | None:
        """Why the owner is taken to be alive; None if it is not."""
        if owner.host == host:
            return "it is running" if is_running(owner.pid, owner.started) else None
        age = self._clock() - owner.heartbeat
        if age >= LEASE_SECONDS:
            return None
        return f"last heard of {max(0.0, age):.0f} seconds ago, and it is waited for {LEASE_SECONDS:.0f} seconds"


def process_start(pid: int) -> str | None:
    """Tells a process from any other that had or will have its number; None where the system does not say."""
    state = _process(pid)
    return None if state is None else state[1]


def is_running(pid: int, started: str | None) -> bool:
    """Whether the process that began then still runs; by its number alone where the beginning is not known."""
    state = _process(pid)
    if state is not None and started is not None:
        return state[0] not in "ZX" and state[1] == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return state is None or state[0] not in "ZX"


def _process(pid: int) -> tuple[str, str] | None:
    """The state of a process (Z and X: dead), and the boot and tick it was started at; None where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    return fields[0], f"{boot}:{fields[19]}"
