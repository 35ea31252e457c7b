"""Remote workers over the loopback interface: served, cut off, lied to, attacked."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import operator
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.cli.worker import command
from headgate.errors import GreetingError, InputError, WorkersLostError
from headgate.regions import Progress, Region, frames, ordered_map, tcp
from headgate.regions.frames import Kind
from headgate.regions.greeting import MAGIC, VERSION, Role

sys.path.append(str(Path(__file__).parent))
labour: Any = importlib.import_module("labour")

SECRET = "the secret of these tests"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with labour.no_leaks():
        yield


class Remote:
    """A running ``headgate worker``."""

    def __init__(self, folder: Path, port: int = 0, limit: int = 8, tls: tuple[Path, Path] | None = None) -> None:
        secret = folder / "secret"
        secret.write_text(SECRET + "\n")
        cert, key = (str(tls[0]), str(tls[1])) if tls else (None, None)
        words = command(f"127.0.0.1:{port}", str(secret), cert, key, limit)
        self.log = folder / "worker.log"
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.process.stdout.close()
        assert line.startswith("listening on 127.0.0.1:"), self.log.read_text()
        self.port = int(line.rpartition(":")[2])
        self.address = f"127.0.0.1:{self.port}"

    def connections(self) -> list[int]:
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        return self.process.wait(10)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Remote]]:
    running: list[Remote] = []

    def begin(**options: Any) -> Remote:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        running.append(Remote(folder, **options))
        return running[-1]

    yield begin
    for remote in running:
        if remote.process.poll() is None:
            assert remote.stop() == 0


def remotely(workers: list[str], items: Any = range(300), **options: Any) -> list[int]:
    return list(ordered_map(labour.square, items, workers, **({"secret": SECRET} | options)))


def test_two_workers_serve_two_regions_one_after_another_and_at_once(start: Callable[..., Remote]) -> None:
    addresses = [start().address, start().address]
    wanted = [x * x for x in range(300)]
    assert remotely(addresses) == wanted
    first = ordered_map(labour.slow_square, range(300), addresses, secret=SECRET)
    assert next(first) == 0
    assert remotely(addresses) == wanted
    assert list(first) == wanted[1:]


def test_one_worker_named_twice_serves_two_connections(start: Callable[..., Remote]) -> None:
    remote = start()
    with Region(labour.slow_square, [remote.address] * 2, secret=SECRET) as region:
        stream = region.run(itertools.count())
        assert [next(stream) for _ in range(100)] == [x * x for x in range(100)]
        assert len(remote.connections()) == 2
        assert (region.counters().sent > 0).all()
        stream.close()
    assert labour.until(lambda: not remote.connections()), "connections end with their region"


def test_a_worker_that_dies_and_comes_back_is_used_again(start: Callable[..., Remote]) -> None:
    staying, leaving = start(), start()
    seen: list[Progress] = []
    options = {"secret": SECRET, "period": 0.1, "listener": seen.append}
    with Region(labour.slow_square, [staying.address, leaving.address], **options) as region:
        stream = region.run(itertools.count())
        assert [next(stream) for _ in range(50)] == [x * x for x in range(50)]
        leaving.process.send_signal(signal.SIGTERM)
        leaving.process.wait()
        assert [next(stream) for _ in range(300)] == [x * x for x in range(50, 350)]
        assert seen[-1].alive.tolist() == [True, False]
        assert "Connection refused" in (seen[-1].troubles[1] or "")
        start(port=leaving.port)
        position = 350
        while not (seen[-1].alive.all() and seen[-1].counters.restarts[1] == 1 and seen[-1].weights[1] > 0):
            assert next(stream) == position**2
            position += 1
            assert position < 20_000
        stream.close()


def test_a_killed_connection_process_is_connected_again(start: Callable[..., Remote]) -> None:
    remote = start()
    found = []
    with Region(labour.slow_square, [remote.address], secret=SECRET) as region:
        for result in region.run(range(300)):
            found.append(result)
            if len(found) == 100:
                os.kill(remote.connections()[0], signal.SIGKILL)
        assert region.counters().resent > 0
        assert region.counters().restarts.tolist() == [1]
    assert found == [x * x for x in range(300)]


@pytest.mark.slow
def test_a_remote_worker_that_is_stopped_is_left_alone_until_it_answers(start: Callable[..., Remote]) -> None:
    stopped, other = start(), start()
    with Region(labour.slow_square, [stopped.address, other.address], secret=SECRET, hang=0.8) as region:
        found = []
        for result in region.run(range(1_000)):
            found.append(result)
            if len(found) == 50:
                for pid in [*stopped.connections(), stopped.process.pid]:
                    os.kill(pid, signal.SIGSTOP)
    for pid in [*stopped.connections(), stopped.process.pid]:
        os.kill(pid, signal.SIGCONT)
    assert found == [x * x for x in range(1_000)]


class Wire:
    """A network between a region and a worker: it can be cut, so that nothing arrives and nobody is told."""

    def __init__(self, port: int) -> None:
        self._port, self._whole = port, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.mend()

    def __enter__(self) -> Wire:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                self._whole.wait()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets.append(far)
                self._start(self._carry, near, far)
                self._start(self._carry, far, near)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                target.sendall(data)
            self._whole.wait()
            target.shutdown(socket.SHUT_WR)


def test_a_network_that_is_cut_in_silence_loses_and_doubles_nothing(start: Callable[..., Remote]) -> None:
    near, far = start(), start()
    seen: list[Progress] = []
    options = {"secret": SECRET, "period": 0.1, "hang": 1.0, "listener": seen.append}
    with Wire(far.port) as wire, Region(labour.slow_square, [near.address, wire.address], **options) as region:
        stream = region.run(itertools.count())
        position = 0

        def read_until(reached: Callable[[], bool]) -> None:
            nonlocal position
            while not reached():
                assert next(stream) == position**2
                position += 1
                assert position < 50_000

        read_until(lambda: position >= 50 and region.counters().answered[1] > 0)
        assert region.counters().resent == 0
        wire.cut()
        read_until(lambda: bool(seen) and seen[-1].alive.tolist() == [True, False])
        assert "no sign of life for 1 seconds" in (seen[-1].troubles[1] or "")
        assert region.counters().resent > 0, "what was on its way went to the other worker"
        away = position
        read_until(lambda: position >= away + 200)
        assert not seen[-1].alive[1], "a cut wire greets nobody"
        wire.mend()
        read_until(lambda: bool(seen[-1].alive.all()) and seen[-1].counters.restarts[1] == 1)
        answered = region.counters().answered[1]
        read_until(lambda: region.counters().answered[1] > answered)
        stream.close()


def test_no_worker_within_the_deadline_says_how_far_it_came(start: Callable[..., Remote]) -> None:
    remote = start()
    found: list[int] = []

    def note(result: int) -> None:
        found.append(result)
        if len(found) == 50:
            remote.stop()

    stream = ordered_map(labour.slow_square, itertools.count(), [remote.address], secret=SECRET, deadline=1.0)
    with pytest.raises(WorkersLostError, match="none came back within 1 seconds") as caught:
        list(map(note, stream))
    assert found == [x * x for x in range(len(found))]
    assert caught.value.position == len(found)
    resumed = list(ordered_map(labour.square, range(caught.value.position, 500), workers=1))
    assert found + resumed == [x * x for x in range(500)]


# Secrets.


def test_a_wrong_secret_is_told_at_once_and_hurts_nobody(start: Callable[..., Remote]) -> None:
    remote = start()
    with pytest.raises(WorkersLostError, match="must know the same secret") as caught:
        remotely([remote.address], secret="some other secret, long enough")
    assert caught.value.position == 0
    assert remotely([remote.address]) == [x * x for x in range(300)]
    assert "connection from 127.0.0.1" in remote.log.read_text()


def test_one_worker_with_another_secret_is_left_out(start: Callable[..., Remote], tmp_path: Path) -> None:
    remote = start()
    with false_worker(lambda sock: tcp.greet(sock, Role.WORKER, b"a secret of its own", lambda: False)) as address:
        seen: list[Progress] = []
        assert remotely([remote.address, address], period=0.01, listener=seen.append) == [x * x for x in range(300)]
    with contextlib.suppress(IndexError):
        assert "must know the same secret" in (seen[-1].troubles[1] or "")


def test_a_worker_that_is_full_says_so(start: Callable[..., Remote]) -> None:
    remote = start(limit=1)
    stream = ordered_map(labour.square, itertools.count(), [remote.address], secret=SECRET)
    assert next(stream) == 0
    with pytest.raises(WorkersLostError, match="already serves as many connections as it may"):
        remotely([remote.address], deadline=1.0)
    stream.close()


# Peers that are none: against the worker.


def connect(remote: Remote) -> socket.socket:
    return socket.create_connection(("127.0.0.1", remote.port), timeout=5)


def dropped(sock: socket.socket) -> bool:
    """Whether the other side hangs up."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_the_worker_drops_garbage_and_goes_on(start: Callable[..., Remote]) -> None:
    remote = start()
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), MAGIC + bytes([VERSION]) + bytes(64), b"\x80\x05."):
        with connect(remote) as sock:
            sock.sendall(garbage.ljust(200, b"\0"))
            assert dropped(sock)
    assert remotely([remote.address]) == [x * x for x in range(300)]
    assert "must greet as a headgate region" in remote.log.read_text()


def test_peers_that_say_nothing_keep_nobody_waiting(start: Callable[..., Remote]) -> None:
    remote = start()
    with contextlib.ExitStack() as open_sockets:
        for _ in range(50):
            open_sockets.enter_context(connect(remote)).sendall(MAGIC[:2])
        assert remotely([remote.address]) == [x * x for x in range(300)]
        assert labour.until(lambda: len(remote.connections()) <= 33)


@pytest.mark.slow
def test_a_peer_that_says_nothing_is_dropped_in_time(start: Callable[..., Remote]) -> None:
    remote = start()
    with connect(remote) as sock:
        sock.settimeout(15)
        assert dropped(sock)
    assert "must greet within 10 seconds" in remote.log.read_text()


def test_what_follows_a_greeting_must_be_a_frame(start: Callable[..., Remote]) -> None:
    remote = start()
    oversized = frames.HEADER.pack(Kind.SETUP, 0, 0, 0, 0, 0, 2**50)
    unasked = frames.encode(Kind.TUPLES, [b"x"], count=1)
    for data, complaint in ((b"\xff" * 64, "is none"), (oversized, "was announced"), (unasked, "before SETUP")):
        with connect(remote) as sock:
            tcp.greet(sock, Role.DRIVER, SECRET.encode(), lambda: False)
            sock.setblocking(True)
            sock.settimeout(5)
            sock.sendall(data)
            assert dropped(sock)
        assert labour.until(lambda text=complaint: text in remote.log.read_text())
    assert remotely([remote.address]) == [x * x for x in range(300)]


# Peers that are none: against the driver.


@contextlib.contextmanager
def false_worker(behave: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something that listens where a worker should. Keeps the connections it was left with open until the end."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                kept.append(sock)
                with contextlib.suppress(OSError, GreetingError):
                    behave(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for sock in kept:
                sock.close()
            thread.join()


def garbage(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(100))


def hang_up(sock: socket.socket) -> None:
    sock.close()


def greeted(sock: socket.socket) -> None:
    tcp.greet(sock, Role.WORKER, SECRET.encode(), lambda: False)
    sock.setblocking(True)
    sock.settimeout(5)


def ready(sock: socket.socket) -> None:
    greeted(sock)
    header = sock.recv(frames.HEADER.size, socket.MSG_WAITALL)
    size = frames.HEADER.unpack(header)[-1]
    sock.recv(size, socket.MSG_WAITALL)
    sock.sendall(frames.encode(Kind.READY))


def frame_garbage(sock: socket.socket) -> None:
    ready(sock)
    sock.sendall(b"\xee" * 100)


def frame_oversized(sock: socket.socket) -> None:
    ready(sock)
    sock.sendall(frames.HEADER.pack(Kind.RESULT, 0, 0, 1, 0, 0, 2**60))


def result_unasked(sock: socket.socket) -> None:
    ready(sock)
    sock.sendall(frames.encode(Kind.RESULT, [b"x"], count=1, first=10**9))


def silent(sock: socket.socket) -> None:
    """Half open: the connection stands, and nothing ever comes."""


def silent_when_ready(sock: socket.socket) -> None:
    ready(sock)


@pytest.mark.parametrize(
    ("behave", "complaint"),
    [
        (garbage, "must greet as a headgate region"),
        (hang_up, "closed the connection before the greeting was over|reset"),
        (frame_garbage, "a frame starts with its kind|refused"),
        (frame_oversized, "was announced"),
        (result_unasked, "which it does not have"),
        (silent_when_ready, "no sign of life for 0.5 seconds"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_false_worker_hurts_nobody(behave: Any, complaint: str, start: Callable[..., Remote]) -> None:
    with false_worker(behave) as address:
        options = {"period": 0.02, "hang": 0.5, "deaths": 100}
        seen: list[Progress] = []
        stream = ordered_map(
            labour.slow_square, range(600), [address, start().address], secret=SECRET, listener=seen.append, **options
        )
        assert list(stream) == [x * x for x in range(600)]
    troubles = {each.troubles[0] for each in seen}
    assert any(re.search(complaint, trouble) for trouble in troubles if trouble), troubles


def test_a_false_worker_that_never_greets_does_not_hold_up_the_end(start: Callable[..., Remote]) -> None:
    with false_worker(silent) as address:
        begun = time.monotonic()
        assert remotely([address, start().address]) == [x * x for x in range(300)]
        assert time.monotonic() - begun < 8


# TLS.


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=worker", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_tls(start: Callable[..., Remote], certificate: tuple[Path, Path]) -> None:
    remote = start(tls=certificate)
    cafile = str(certificate[0])
    assert remotely([remote.address], range(20_000), tls=cafile) == [x * x for x in range(20_000)]
    large = [bytes(300_000)] * 40
    assert list(ordered_map(len, large, [remote.address] * 2, secret=SECRET, tls=cafile)) == [300_000] * 40
    assert list(ordered_map(bytes, [300_000] * 40, [remote.address] * 2, secret=SECRET, tls=cafile)) == large


def test_tls_checks_who_is_there(
    start: Callable[..., Remote], certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "GREETING_SECONDS", 0.5)  # here, not at the worker
    remote = start(tls=certificate)
    with pytest.raises(WorkersLostError, match="CERTIFICATE_VERIFY_FAILED"):
        remotely([remote.address], tls=ssl.create_default_context(), deadline=1.0)
    with pytest.raises(WorkersLostError, match="and that both sides use TLS or neither"):
        remotely([remote.address], deadline=1.0)
    assert remotely([remote.address], tls=str(certificate[0])) == [x * x for x in range(300)]


def test_tls_against_a_worker_without(start: Callable[..., Remote], certificate: tuple[Path, Path]) -> None:
    remote = start()
    with pytest.raises(WorkersLostError, match="SSL"):
        remotely([remote.address], tls=str(certificate[0]), deadline=1.0)


# The command.


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--listen", "7070"], 'must be "host:port"'),
        (["--listen", "127.0.0.1:0"], "runs code for whoever knows its secret, and there is none"),
        (["--secret-file", "nowhere"], "nowhere must be a file"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--tls-cert", "c.pem"], "belong together"),
    ],
    ids=["no port", "no secret", "a secret that is not there", "no connections", "a certificate without its key"],
)
def test_the_command_refuses(words: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_SECRET", raising=False)
    result = CliRunner().invoke(app, ["worker", *words])
    assert result.exit_code == 2
    assert text in result.output


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short\n")
    words = command("127.0.0.1:0", str(tmp_path / "secret"), None, None, None)
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "a secret must have at least 16 bytes, got 5" in ended.stderr


def test_the_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SECRET", SECRET)
    words = command("127.0.0.1:0", None, None, None, 3)
    assert words[-3:] == ["127.0.0.1", "0", "3"]
    assert SECRET not in " ".join(words)


def test_options_of_tls_belong_together() -> None:
    with pytest.raises(InputError, match="--tls-cert and --tls-key belong together"):
        command("127.0.0.1:0", None, "cert", None, None)


def test_a_function_that_the_worker_cannot_load(start: Callable[..., Remote], tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("def work(x):\n    return x\n")
    sys.path.insert(0, str(tmp_path))
    try:
        function = importlib.import_module("only_here").work
    finally:
        sys.path.pop(0)
    with pytest.raises(WorkersLostError, match=r"(?s)must be able to load the function.*No module named 'only_here'"):
        list(ordered_map(function, [1], [start().address], secret=SECRET))


def test_operator_neg_needs_nothing(start: Callable[..., Remote]) -> None:
    assert list(ordered_map(operator.neg, range(3), [start().address], secret=SECRET)) == [0, -1, -2]
