"""Sockets: how a region's connections are made, watched and written to.

Whatever waits here waits in short slices, so that a region that is closed meanwhile is closed at once.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.errors import GreetingError
from headgate.regions.frames import Decoder, Frame
from headgate.regions.greeting import NONCE_BYTES, Greeting, Role

if TYPE_CHECKING:
    import ssl

GREETING_SECONDS = 10.0
"""How long a peer may take to connect and greet: a few round trips, also on a busy machine. Who is slower on purpose
holds a connection for this long and no longer."""

SLICE = 0.1
"""Seconds between two looks at whether a wait is still wanted."""

UNACKNOWLEDGED = 30.0
"""Seconds after which the kernel gives up on a peer that acknowledges nothing: its host is off or cut away."""

READ = 1 << 18
"""Bytes read at once: some frames, and little beside the window."""

READS = 4
"""Reads from one connection before the others have their turn."""


def would_block(error: OSError) -> bool:
    """Whether an operation must wait. By name, so that workers without TLS need not load ssl."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and notice a peer that has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNACKNOWLEDGED * 1000))


def buffers(sock: socket.socket, *, send: int | None = None, receive: int | None = None) -> None:
    """Ask for kernel buffers of these sizes; Linux doubles what it is asked for, down to a few KB."""
    if send is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send)
    if receive is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection over the loopback interface, both ours: nobody else can have slipped in."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        listener.settimeout(GREETING_SECONDS)
        near = socket.create_connection(listener.getsockname(), timeout=GREETING_SECONDS)
        while True:
            far, peer = listener.accept()
            if peer == near.getsockname():
                return near, far
            far.close()


def connect(
    host: str, port: int, tls: ssl.SSLContext | None, send_buffer: int | None, stopping: Callable[[], bool]
) -> socket.socket:
    """A connection to a worker, encrypted where ``tls`` says how to check its certificate. Raises ``OSError``."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
        until = time.monotonic() + GREETING_SECONDS
        sock = socket.socket(family, kind, protocol)
        try:
            buffers(sock, send=send_buffer)
            _reach(sock, address, until, stopping)
            tune(sock)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                shake(sock, until, stopping)
        except BaseException as error:
            sock.close()
            if number == len(addresses) or not isinstance(error, OSError) or stopping():
                raise
        else:
            return sock
    raise AssertionError("a name that resolves has addresses")


def _reach(sock: socket.socket, address: Any, until: float, stopping: Callable[[], bool]) -> None:
    sock.setblocking(False)
    try:
        sock.connect(address)
    except BlockingIOError:
        _wait(sock, select.POLLOUT, until, stopping)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None


def shake(sock: ssl.SSLSocket, until: float, stopping: Callable[[], bool]) -> None:
    """The TLS handshake of a socket that does not block, with a deadline."""
    while True:
        try:
            return sock.do_handshake()
        except OSError as error:
            if not would_block(error):
                raise
            want = select.POLLIN if type(error).__name__ == "SSLWantReadError" else select.POLLOUT
        _wait(sock, want, until, stopping)


def greet(sock: socket.socket, role: Role, secret: bytes, stopping: Callable[[], bool], *, full: bool = False) -> None:
    """The greeting, to its end. Raises ``GreetingError`` or ``OSError``; the socket is then of no more use."""
    sock.setblocking(False)
    greeting = Greeting(role, secret, os.urandom(NONCE_BYTES), full=full)
    until = time.monotonic() + GREETING_SECONDS
    write(sock, greeting.start(), until, stopping)
    while not greeting.done:
        data = read(sock, greeting.wants, until, stopping)
        if not data:
            raise GreetingError.ended()
        try:
            answer = greeting.feed(data)
        except GreetingError:
            write(sock, greeting.last_words, until, stopping)
            raise
        write(sock, answer, until, stopping)


def read(sock: socket.socket, most: int, until: float, stopping: Callable[[], bool]) -> bytes:
    """The next bytes, at most so many; none at the end. Raises ``GreetingError`` when the time is up."""
    while True:
        try:
            return sock.recv(most)
        except OSError as error:
            if not would_block(error):
                raise
        _wait(sock, select.POLLIN, until, stopping)


def write(sock: socket.socket, data: bytes, until: float, stopping: Callable[[], bool]) -> None:
    """Write all of it, within the time. Raises ``GreetingError`` when the time is up."""
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except OSError as error:
            if not would_block(error):
                raise
            _wait(sock, select.POLLOUT, until, stopping)


def _wait(sock: socket.socket, events: int, until: float, stopping: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(sock, events)
    while not poll.poll(SLICE * 1000):
        if stopping():
            raise ConnectionAbortedError("the region was closed")
        if time.monotonic() > until:
            raise GreetingError.late(GREETING_SECONDS)


class Connection:
    """The region's end of a connection to a worker that is ready: writes and reads, and never waits.

    Raises ``OSError`` where the connection is gone and ``FrameError`` where the peer sends what it may not.
    """

    def __init__(self, sock: socket.socket, most_bytes: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder = Decoder(most_bytes)
        self._rest = memoryview(b"")
        self._inbox = memoryview(bytearray(READ))

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def clear(self) -> bool:
        """Whether everything offered so far is with the kernel."""
        return not self._rest

    def offer(self, data: bytes) -> bool:
        """Send a frame, or none of it. False where the very first byte would have to wait.

        Once a part is with the kernel the frame is this connection's; ``flush`` brings the rest on its way.
        """
        self._rest = memoryview(data)
        size = len(data)
        self.flush()
        if len(self._rest) < size:
            return True
        self._rest = memoryview(b"")
        return False

    def flush(self) -> bool:
        """Send what is left of a frame, as far as it goes now. True where nothing is left."""
        try:
            while self._rest:
                self._rest = self._rest[self._sock.send(self._rest) :]
        except OSError as error:
            if not would_block(error):
                raise
        return not self._rest

    def receive(self) -> list[Frame]:
        """The frames that have arrived by now. Raises ``ConnectionResetError`` at the end of the stream."""
        frames: list[Frame] = []
        for _ in range(READS):
            try:
                size = self._sock.recv_into(self._inbox)
            except OSError as error:
                if would_block(error):
                    break
                raise
            if not size:
                raise ConnectionResetError("the worker closed the connection")
            frames.extend(self._decoder.feed(self._inbox[:size]))
            if size < READ and not self._pending():
                break
        return frames

    def _pending(self) -> int:
        """Bytes that TLS has decrypted and poll does not know of."""
        pending = getattr(self._sock, "pending", None)
        return pending() if pending is not None else 0

    def close(self) -> None:
        self._sock.close()
