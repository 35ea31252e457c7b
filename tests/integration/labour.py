"""What the tests of regions have their workers do, and how they look for what was left behind."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 5.0
"""Seconds for what ends by itself, such as a thread on its last lines, to be gone."""


def square(x: int) -> int:
    return x * x


def slow_square(x: int) -> int:
    time.sleep(0.002)
    return x * x


def random_square(x: int) -> int:
    time.sleep(random.random() * 0.004)
    return x * x


def long_square(x: int) -> int:
    time.sleep(0.5)
    return x * x


def fail_on_sevens(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"no {x} here")
    return x * x


def refuse_100(x: int) -> float:
    return 1 // (x - 100)


def leave(x: int) -> int:
    if x == 5:
        os._exit(9)
    return x


def unpicklable(x: int) -> object:
    return x if x < 3 else threading.Lock()


def once_bad(marks: tuple[str, int]) -> int:
    """Fails the first time for each number; the folder remembers."""
    folder, x = marks
    mark = Path(folder) / str(x)
    if not mark.exists():
        mark.touch()
        raise OSError("not yet")
    return x


def spin(x: int) -> int:
    """Keeps a core busy for some milliseconds."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    return x


def children() -> set[int]:
    """The processes that this one started, but for the Java of a Spark that other tests started."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except OSError:
            continue
    return {pid for pid in found if not _is_java(pid)}


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False


def descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue
    return found


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fails where a process, a thread or a descriptor is left that was not there before."""
    before = children(), set(threading.enumerate()), descriptors()

    def left() -> tuple[set[int], set[threading.Thread], set[str]]:
        return children() - before[0], set(threading.enumerate()) - before[1], descriptors() - before[2]

    yield
    assert until(lambda: not any(left())), f"left behind: {left()}"
