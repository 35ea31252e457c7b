"""A remote worker: listens, and gives every region that connects a process of its own.

    headgate worker --listen host:port

Several regions, or several connections of one, are served at once, up to ``--limit``. Each connection is a fork of this
process, which itself never loads anything of a region: a function that crashes, leaks or changes its process's state
harms its own connection only. TLS and the greeting are done in the fork, within a deadline, so that a peer that says
nothing keeps nobody waiting; of those that have not greeted yet only the newest are kept.

This process must stay single-threaded and light, since it forks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from types import FrameType

from headgate.errors import GreetingError, HeadgateError, InputError
from headgate.regions import tcp, worker
from headgate.regions.greeting import SHORTEST_SECRET, Role

UNGREETED = 32
"""Connections that may be in their greeting at once; the oldest of them makes way for a new one."""

BACKLOG = 128
"""Connections that may wait to be accepted."""

LOOK = 1.0
"""Seconds between two looks for children that have ended, when nothing else happens."""

SECRET_VARIABLE = "HEADGATE_SECRET"

_PID = struct.Struct("=q")


class Listener:
    """Accepts connections and forks. ``run`` returns after SIGTERM or SIGINT, with every child ended."""

    def __init__(self, address: tuple[str, int], secret: bytes, tls: ssl.SSLContext | None, limit: int) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise GreetingError.secret(SHORTEST_SECRET, len(secret))
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.create_server(address, family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self._secret, self._tls, self._limit = secret, tls, limit
        self._greeting: dict[int, None] = {}
        """Children that have not greeted yet, oldest first."""
        self._serving: set[int] = set()
        self._greeted, self._tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = False

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that a child's end interrupts the wait
        wakeup, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake)
        poll = select.poll()
        for descriptor in (self._socket.fileno(), self._greeted, wakeup):
            poll.register(descriptor, select.POLLIN)
        try:
            while not self._stopping:
                ready = [descriptor for descriptor, _ in poll.poll(LOOK * 1000)]
                if wakeup in ready:
                    os.read(wakeup, 4096)
                self._note_greeted()
                self._reap()
                if self._socket.fileno() in ready and not self._stopping:
                    self._accept()
        finally:
            signal.set_wakeup_fd(-1)
            self._socket.close()
            self._end_children()
            for descriptor in (wakeup, wake, self._greeted, self._tell):
                os.close(descriptor)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _note_greeted(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._greeted, _PID.size):
                (pid,) = _PID.unpack(data)
                if pid in self._greeting:
                    del self._greeting[pid]
                    self._serving.add(pid)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._greeting.pop(pid, None)
                self._serving.discard(pid)

    def _accept(self) -> None:
        try:
            sock, peer = self._socket.accept()
        except OSError:  # it hung up while it waited
            return
        if len(self._greeting) >= UNGREETED:
            oldest = next(iter(self._greeting))
            del self._greeting[oldest]
            os.kill(oldest, signal.SIGKILL)
        with sock:
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._in_child(sock, f"{peer[0]}:{peer[1]}", parent)
            self._greeting[pid] = None

    def _in_child(self, sock: socket.socket, peer: str, parent: int) -> None:
        """Serve one connection and end. Never returns: what is above on the stack is the parent's."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._socket.close()
            self._serve(sock, parent)
            code = 0
        except (HeadgateError, OSError) as error:
            print(f"headgate: connection from {peer} dropped: {error}", file=sys.stderr, flush=True)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _serve(self, sock: socket.socket, parent: int) -> None:
        def stopping() -> bool:
            return os.getppid() != parent

        tcp.tune(sock)
        if self._tls is not None:
            sock.setblocking(False)
            sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            tcp.shake(sock, time.monotonic() + tcp.GREETING_SECONDS, stopping)
        tcp.greet(sock, Role.WORKER, self._secret, stopping, full=len(self._serving) >= self._limit)
        os.write(self._tell, _PID.pack(os.getpid()))
        worker.serve(sock, parent)

    def _end_children(self) -> None:
        for pid in [*self._greeting, *self._serving]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def secret_from(file: str | None) -> bytes:
    """The secret, from a file or else from the environment, without the end of its line."""
    if file is not None:
        return Path(file).read_bytes().strip()
    found = os.environ.pop(SECRET_VARIABLE, None)  # popped: functions and their children need not see it
    if found is None:
        raise InputError(
            f"a worker runs code for whoever knows its secret: give --secret-file or set {SECRET_VARIABLE}"
        )
    return found.strip().encode()


def main(arguments: list[str]) -> int:
    """What ``headgate worker`` becomes once its options are checked."""
    parser = argparse.ArgumentParser("headgate worker")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("limit", type=int)
    for name in ("--secret-file", "--tls-cert", "--tls-key"):
        parser.add_argument(name)
    given = parser.parse_args(arguments)
    try:
        tls = None
        if given.tls_cert is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(given.tls_cert, given.tls_key)
        listener = Listener((given.host, given.port), secret_from(given.secret_file), tls, given.limit)
    except (HeadgateError, OSError) as error:
        print(f"headgate: {error}", file=sys.stderr)
        return 2
    host, port = listener.address
    print(f"listening on {host}:{port}", flush=True)
    listener.run()
    return 0
