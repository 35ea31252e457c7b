"""Local workers: started and stopped.

A worker is a fresh Python, not a fork: it shares no lock, thread or descriptor with this process. It inherits one end
of a loopback connection, gets its secret through a pipe, and ends by itself when this process does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headgate.errors import RegionError
from headgate.regions import tcp, worker

GRACE = 1.0
"""Seconds for a worker to end by itself once its connection is closed, and again once it is terminated."""

LAST_BREATH = 0.05
"""Seconds for a process whose connection broke to have ended, so that its own exit code can be told."""

SECRET_BYTES = 32

_PROGRAM = """\
import sys
sys.path[:] = {path!r}
import headgate.regions.worker as _headgate_worker
_headgate_worker.main({descriptor}, {parent})
"""
"""The main module of a worker has next to no names, so that none hides one of the user's main script."""


class Process:
    """One local worker, its secret, and our end of the connection to it."""

    def __init__(self, send_buffer: int | None, receive_buffer: int | None) -> None:
        if worker.importing_main:
            raise RegionError.unguarded()
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.sock, far = tcp.pair()
        try:
            tcp.tune(self.sock)
            tcp.tune(far)
            tcp.buffers(self.sock, send=send_buffer)
            tcp.buffers(far, receive=receive_buffer)
            self._child = _spawn(far, self.secret)
        except BaseException:
            self.sock.close()
            raise
        finally:
            far.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> int:
        """End the process at once, also where it is stopped. Returns its exit code, its own where it had ended."""
        self.sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(LAST_BREATH)
        self._child.kill()
        return self._child.wait()

    def wait(self, until: float) -> bool:
        """Whether the process has ended by then."""
        try:
            self._child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        self._child.terminate()


def end(processes: Sequence[Process], grace: float) -> None:
    """See several processes out together: let them end, then ask them to, then make them. None is left."""
    for process in processes:
        process.sock.close()
    until = time.monotonic() + grace
    left = [process for process in processes if not process.wait(until)]
    for process in left:
        process.terminate()
    until = time.monotonic() + GRACE
    for process in [process for process in left if not process.wait(until)]:
        process.kill()


def _spawn(far: socket.socket, secret: bytes) -> subprocess.Popen[bytes]:
    program = _PROGRAM.format(path=sys.path, descriptor=far.fileno(), parent=os.getpid())
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, pass_fds=[far.fileno()])
    try:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:  # closing writes too
            child.stdin.write(secret)
    except BaseException:
        child.kill()
        child.wait()
        raise
    return child


def main_script() -> dict[str, str] | None:
    """How a local worker can import this process's main script; None where it has none, as in a notebook."""
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name:
        return None if spec.name.endswith("__main__") else {"init_main_from_name": spec.name}
    path = getattr(module, "__file__", None)
    if path is None or not Path(path).is_file():
        return None
    return {"init_main_from_path": str(Path(path).resolve())}
