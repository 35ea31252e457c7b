"""The roster of a region: its workers, whether each can be given work, and how those that are gone come back.

    dialling --ready--> alive --lost--> waiting --(after a pause)--> dialling
        |                                  |
        +------failed----------------------+--(too often, or no use)--> gone

Starting a process, connecting and greeting take their time, so each attempt has a thread of its own that lives for the
attempt only. Everything else here is done by the pump's thread.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from headgate.errors import FrameError, GreetingError, HeadgateError, RegionError, ShippingError
from headgate.regions import cargo, tcp
from headgate.regions.frames import Decoder, Kind, encode
from headgate.regions.greeting import Role
from headgate.regions.processes import Process, end
from headgate.regions.tcp import Connection
from headgate.regions.worker import Setup

if TYPE_CHECKING:
    import socket
    import ssl

PAUSE = 0.25
"""Seconds before the second attempt to reach a worker; doubled with each further one."""

LONGEST_PAUSE = 5.0
"""Seconds between attempts at the most: a worker that comes back is noticed about as soon."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """What every worker gets first, and how long it may be silent."""

    function: bytes
    setup: Setup
    hang: float


class Site(Protocol):
    """Where a worker is, and how it is reached."""

    @property
    def name(self) -> str: ...

    @property
    def persistent(self) -> bool:
        """Whether failing often is no reason to give up: others start it, and it may come back."""

    def open(self, stopping: Callable[[], bool]) -> tuple[socket.socket, Process | None]: ...


@dataclass(frozen=True, slots=True)
class LocalSite:
    """A worker process on this machine, started anew for each attempt."""

    name: str
    send_buffer: int | None
    receive_buffer: int | None
    persistent: bool = False

    def open(self, stopping: Callable[[], bool]) -> tuple[socket.socket, Process | None]:
        process = Process(self.send_buffer, self.receive_buffer)
        try:
            tcp.greet(process.sock, Role.DRIVER, process.secret, stopping)
        except Exception as error:
            raise RegionError(f"{error}; {_exit_text(process.kill())}") from error
        return process.sock, process


@dataclass(frozen=True, slots=True)
class RemoteSite:
    """A worker that listens somewhere."""

    name: str
    host: str
    port: int
    secret: bytes
    tls: ssl.SSLContext | None
    send_buffer: int | None
    persistent: bool = True

    def open(self, stopping: Callable[[], bool]) -> tuple[socket.socket, Process | None]:
        sock = tcp.connect(self.host, self.port, self.tls, self.send_buffer, stopping)
        try:
            tcp.greet(sock, Role.DRIVER, self.secret, stopping)
        except BaseException:
            sock.close()
            raise
        return sock, None


class State(Enum):
    """Where a worker stands."""

    DIALLING = "dialling"
    ALIVE = "alive"
    WAITING = "waiting"
    GONE = "gone"


class Member:
    """One worker of the region, through all its deaths and returns."""

    def __init__(self, number: int, site: Site) -> None:
        self.number, self.site = number, site
        self.state = State.WAITING
        self.connection: Connection | None = None
        self.process: Process | None = None
        self.loading = False
        """Whether it has greeted and loads the function, which may take long; set by the thread that dials."""
        self.heard = 0.0
        """When it last gave a sign of life."""
        self.failures = 0
        """Attempts and lives in a row that ended without a result."""
        self.again_at = 0.0
        self.trouble: str | None = None
        """What went wrong last; None while all is well."""
        self.returns = -1
        """How often it came to life again."""

    def describe(self) -> str:
        return f"{self.site.name}: {self.trouble or self.state.value}"


@dataclass(frozen=True, slots=True)
class _Reached:
    member: Member
    connection: Connection | None
    process: Process | None
    error: Exception | None


class Roster:
    """All members, and the threads that try to reach them."""

    def __init__(self, sites: list[Site], shipment: Shipment, restarts: int, ring: Callable[[], None]) -> None:
        self.members = [Member(number, site) for number, site in enumerate(sites)]
        self._shipment, self._restarts, self._ring = shipment, restarts, ring
        self._reached: queue.SimpleQueue[_Reached] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def alive(self) -> list[bool]:
        return [member.state is State.ALIVE for member in self.members]

    def awaited(self) -> bool:
        """Whether somebody is still on the way for the first time."""
        return any(member.returns < 0 and not member.failures for member in self.members)

    def due(self, now: float) -> float:
        """Reach for everybody whose pause is over. Returns when the next pause will be, infinity where none is."""
        for member in self.members:
            if member.state is State.WAITING and member.again_at <= now:
                member.state = State.DIALLING
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                thread = threading.Thread(target=self._dial, args=(member,), name="headgate-dial", daemon=True)
                self._threads.append(thread)
                thread.start()
        waits = [member.again_at for member in self.members if member.state is State.WAITING]
        return min(waits, default=float("inf"))

    def arrivals(self, now: float) -> list[Member]:
        """Who came to life since the last call."""
        fresh = []
        while not self._reached.empty():
            found = self._reached.get()
            member = found.member
            if found.connection is None:
                self._failed(member, found.error, now)
                continue
            member.connection, member.process = found.connection, found.process
            member.state, member.heard, member.trouble = State.ALIVE, now, None
            member.returns += 1
            fresh.append(member)
        return fresh

    def lose(self, member: Member, why: str, now: float) -> None:
        """The connection is broken: close it, end its process, and try again after a pause."""
        if member.connection is not None:
            member.connection.close()
        member.connection = None
        if member.process is not None:
            code = member.process.kill()
            why = f"{why}; {_exit_text(code)}"
            member.process = None
        self._failed(member, RegionError(why), now)

    def _failed(self, member: Member, error: Exception | None, now: float) -> None:
        member.trouble = str(error)
        member.failures += 1
        final = isinstance(error, ShippingError) or (isinstance(error, GreetingError) and error.final)
        if final or (member.failures > self._restarts and not member.site.persistent):
            member.state = State.GONE
            return
        member.state = State.WAITING
        pause = 0.0 if member.failures == 1 else PAUSE * 2.0 ** min(member.failures - 2, 10)
        member.again_at = now + min(pause, LONGEST_PAUSE)

    def _dial(self, member: Member) -> None:
        process: Process | None = None
        sock: socket.socket | None = None
        try:
            sock, process = member.site.open(self._is_stopping)
            member.loading = True
            set_up(sock, self._shipment, self._is_stopping)
            found = _Reached(member, Connection(sock, self._shipment.setup.most_bytes), process, None)
        except Exception as error:
            if sock is not None:
                sock.close()
            told: Exception = error
            if process is not None:
                code = process.kill()
                if not isinstance(error, HeadgateError):
                    told = RegionError(f"{error}; {_exit_text(code)}")
            found = _Reached(member, None, None, told)
        self._reached.put(found)
        member.loading = False
        self._ring()

    def _is_stopping(self) -> bool:
        return self._stopping

    def close(self, grace: float) -> None:
        """Close every connection and see every process out, the idle ones by themselves. Nothing is left afterwards."""
        self._stopping = True
        for member in self.members:
            if member.connection is not None:
                member.connection.close()
        for thread in self._threads:
            thread.join()
        processes = [member.process for member in self.members]
        while not self._reached.empty():
            found = self._reached.get()
            if found.connection is not None:
                found.connection.close()
            processes.append(found.process)
        end([process for process in processes if process is not None], grace)
        for member in self.members:
            member.connection = member.process = None


def set_up(sock: socket.socket, shipment: Shipment, stopping: Callable[[], bool]) -> None:
    """Send the function and wait until the worker has loaded it, as long as it shows signs of life."""
    parts, buffers = cargo.dump((asdict(shipment.setup), shipment.function))
    tcp.write(sock, encode(Kind.SETUP, parts, buffers=buffers), time.monotonic() + shipment.hang, stopping)
    decoder = Decoder(shipment.setup.most_bytes)
    while True:
        data = tcp.read(sock, decoder.wants, time.monotonic() + shipment.hang, stopping)
        if not data:
            raise ConnectionResetError("the worker closed the connection while it loaded the function")
        for frame in decoder.feed(data):
            if frame.kind is Kind.READY:
                return
            if frame.kind is Kind.REFUSED:
                text = bytes(frame.payload).decode(errors="replace")
                raise ShippingError.unloadable(text)
            if frame.kind is not Kind.ALIVE:
                raise FrameError.unexpected(f"{frame.kind.name} before READY")


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code}"
    name = str(-code)
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
    return f"its process was ended by {name}"
