"""A worker: loads the function once, runs it on every tuple it is sent, sends the results back.

    greeting -> SETUP -> READY -> TUPLES -> RESULT -> TUPLES -> RESULT ... until the region closes the connection

One process serves one connection. It reads a frame only when it is done with the one before, so that what it cannot do
in time stays in the kernel's buffers, where the region feels it. A side thread sends signs of life: a long function is
not taken for a hang, a stopped process is. The same thread ends the process when its parent or its region is gone.

This module is what a worker loads before it knows its function, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from headgate.errors import FrameError
from headgate.regions import cargo, tcp
from headgate.regions.frames import FAULTY, Decoder, Frame, Kind, encode
from headgate.regions.greeting import Role

FIRST_FRAME_BYTES = 1 << 40
"""The function may be as large as the region likes: by then it has proved who it is. Afterwards its own limit holds."""

ORPHANED = 3
"""The exit code of a worker whose region or parent is gone."""

_kept: dict[bytes, Callable[[Any], Any]] = {}
"""The function that this process loaded last, by its bytes, where the process outlives its regions."""

importing_main = False
"""Whether this process is a worker that imports the main script right now: nothing may start regions meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a region wants its function to be run. Travels with the function."""

    heartbeat: float
    """Seconds between two signs of life."""
    stop_at_fault: bool
    """Whether what follows a tuple that failed is of no use any more."""
    retries: int
    """How often a tuple that failed is tried again, here and at once."""
    most_bytes: int
    """The largest frame either side may send."""
    receive_buffer: int | None
    main: dict[str, str] | None
    """Where the main script of the region is, for local workers."""


class Fault(NamedTuple):
    """One tuple for which the function raised: which in its frame, and what."""

    offset: int
    name: str
    traceback: str
    error: bytes | None


class Line:
    """A socket that two threads share: one reads and writes, the other sends signs of life.

    The lock is never held while waiting to read, and TLS never reads and writes at once.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._lock = threading.Lock()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)

    def receive(self, most: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        while True:
            try:
                with self._lock:
                    return self._sock.recv(most)
            except OSError as error:
                if not tcp.would_block(error):
                    raise
            self._readable.poll()

    def send(self, data: bytes) -> None:
        """All of it, in one piece."""
        view = memoryview(data)
        with self._lock:
            while view:
                try:
                    view = view[self._sock.send(view) :]
                except OSError as error:
                    if not tcp.would_block(error):
                        raise
                    self._writable.poll()


def serve(sock: socket.socket, parent: int, *, stays: bool = False) -> None:
    """Serve a region that has been greeted, until it closes the connection or is gone.

    ``stays``: the process has more to do afterwards, so it does not end with its region; and a function that it has
    loaded before is used again, with whatever that keeps in its module.
    """
    line = Line(sock)
    decoder = Decoder(FIRST_FRAME_BYTES)
    try:
        frame = _next(line, decoder)
        if frame is None:
            return
        if frame.kind is not Kind.SETUP:
            raise FrameError.unexpected(f"{frame.kind.name} before SETUP")
        settings, function = cargo.load(frame.payload, frame.buffers)
        setup = Setup(**settings)
        threading.Thread(target=_show_life, args=(line, setup.heartbeat, parent, stays), daemon=True).start()
        tcp.buffers(sock, receive=setup.receive_buffer)
        loader = Loader(setup.main)
        try:
            run = _kept.get(function) or loader.load(bytearray(function), 0)
            if stays:
                _kept.clear()
                _kept[function] = run
        except BaseException:
            line.send(encode(Kind.REFUSED, [traceback.format_exc().encode()]))
            return
        line.send(encode(Kind.READY))
        decoder = Decoder(setup.most_bytes)
        while (frame := _next(line, decoder)) is not None:
            if frame.kind is not Kind.TUPLES:
                raise FrameError.unexpected(frame.kind.name)
            line.send(_answer(frame, run, setup, loader))
    except OSError:
        return  # the region is gone, and so is what it wanted


def _next(line: Line, decoder: Decoder) -> Frame | None:
    """The next frame, without reading a byte beyond it; None at the end."""
    while True:
        data = line.receive(min(decoder.wants, tcp.READ))
        if not data:
            return None
        for frame in decoder.feed(data):
            return frame


def _show_life(line: Line, every: float, parent: int, stays: bool) -> None:
    """Signs of life, until there is nobody to see them: then the process ends, whatever it was doing; or it stays."""
    sign = encode(Kind.ALIVE)
    try:
        while os.getppid() == parent:
            line.send(sign)
            time.sleep(every)
    except OSError:
        pass
    if not stays:
        os._exit(ORPHANED)


class Loader:
    """Unpickles, and imports the main script of the region the first time that something of it is named."""

    def __init__(self, main: dict[str, str] | None) -> None:
        self._main = main

    def load(self, payload: bytearray, buffers: int) -> Any:
        try:
            return cargo.load(payload, buffers)
        except AttributeError:
            if self._main is None or cargo.MAIN not in payload:
                raise
        main, self._main = self._main, None
        import_main(main)
        return cargo.load(payload, buffers)


def import_main(main: dict[str, str]) -> None:
    """Import the script that started the region, as multiprocessing does: what is below its guard does not run."""
    global importing_main
    from multiprocessing import spawn  # only where it is needed: it is not light

    importing_main = True
    try:
        spawn.prepare(main)
    finally:
        importing_main = False


def _answer(frame: Frame, run: Callable[[Any], Any], setup: Setup, loader: Loader) -> bytes:
    """The result frame for a frame of tuples."""
    begun = time.perf_counter_ns()
    try:
        items = loader.load(frame.payload, frame.buffers)
        if len(items) != frame.count:
            raise FrameError.torn(f"{len(items)} tuples where the header says {frame.count}")
        results, faults = perform(run, items, setup)
    except Exception as error:  # the tuples cannot be loaded here: a class is missing, a module raises
        results, faults = [None] * frame.count, [fault_of(at, error) for at in range(frame.count)]
    parts, buffers = _packed(results, faults)
    size = sum(map(len, parts))
    if size > setup.most_bytes:
        too_large = FrameError.too_large(size, setup.most_bytes)
        faults = [fault_of(at, too_large) for at in range(frame.count)]
        parts, buffers = cargo.dump(([None] * frame.count, faults))
    return encode(
        Kind.RESULT,
        parts,
        flags=FAULTY if faults else 0,
        buffers=buffers,
        count=frame.count,
        first=frame.first,
        nanoseconds=time.perf_counter_ns() - begun,
    )


def perform(run: Callable[[Any], Any], items: list[Any], setup: Setup) -> tuple[list[Any], list[Fault]]:
    """The results of the items, and the faults. A result of None holds the place of a fault.

    Where the first fault ends the stream, what follows it is not run and has no result.
    """
    results: list[Any] = []
    faults: list[Fault] = []
    left = setup.retries
    while len(results) < len(items):
        at = len(results)
        try:
            results.extend(map(run, islice(items, at, None)))  # what was done before a fault stays
            if len(results) < len(items):
                raise RuntimeError("the function raised StopIteration")
        except (Exception, SystemExit) as error:
            if len(results) > at:
                left = setup.retries
            if left:
                left -= 1
                continue
            left = setup.retries
            faults.append(fault_of(len(results), error))
            if setup.stop_at_fault:
                break
            results.append(None)
    return results, faults


def fault_of(offset: int, error: BaseException) -> Fault:
    """What is told of an error: its text always, itself where it can be pickled and loaded again."""
    trace = error.__traceback__
    text = "".join(traceback.format_exception(type(error), error, trace.tb_next if trace else None))
    try:
        packed: bytes | None = pickle.dumps(error, cargo.PROTOCOL)
        pickle.loads(packed or b"")
    except Exception:
        packed = None
    return Fault(offset, type(error).__name__, text, packed)


def _packed(results: list[Any], faults: list[Fault]) -> tuple[cargo.Parts, int]:
    """Results and faults as a payload. Results that cannot be pickled are added to the faults."""
    try:
        return cargo.dump((results, faults) if faults else results)
    except Exception:
        known = {fault.offset for fault in faults}
    for at, result in enumerate(results):
        bad = cargo.first_unpicklable([result]) if at not in known else None
        if bad is not None:
            results[at] = None
            faults.append(fault_of(at, bad[1]))
    faults.sort(key=lambda fault: fault.offset)
    return cargo.dump((results, faults))


def main(descriptor: int, parent: int) -> None:
    """A local worker: its connection is inherited, its secret comes by stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the region, which then ends its workers
    with open(0, "rb", closefd=False) as pipe:
        secret = pipe.read()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as sock:
        try:
            tcp.greet(sock, Role.WORKER, secret, lambda: os.getppid() != parent)
        except OSError:
            return
        serve(sock, parent)
        sys.stdout.flush()
