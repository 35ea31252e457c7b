"""Fakes that users may use too: places to crash at.

``CrashPoints`` let a test kill the driver at a named point of a micro-batch, as a power cut would. (A laptop stands for
a cluster with the option ``service_time`` of ``Job.start``: every row then takes its time in its slot by sleeping, and
imbalance shows in the time of a batch although there are not enough cores for it.)
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

CRASH_VARIABLE = "HEADGATE_CRASH"
"""Environment variable: ``point@batch`` (several separated by commas) kills the driver when it is reached."""

CRASH_POINTS = (
    "before plan write",
    "after plan write",
    "during tasks",
    "during compaction",
    "in the middle of a move",
    "before manifest commit",
    "after manifest commit",
    "during sink write",
    "after sink write",
)
"""The named points of a micro-batch, in the order in which they are reached."""


@dataclass(frozen=True, slots=True)
class CrashPoints:
    """Where to die. ``points`` holds (name, batch) pairs; ``victim`` is the process to kill, the driver."""

    points: frozenset[tuple[str, int]] = frozenset()
    victim: int = 0

    @classmethod
    def from_environment(cls) -> CrashPoints:
        """What ``HEADGATE_CRASH`` asks for; raises ``ValueError`` for a point that does not exist."""
        text = os.environ.get(CRASH_VARIABLE, "")
        points = set()
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, batch = part.rpartition("@")
            if name not in CRASH_POINTS or not batch.isdigit():
                raise ValueError(f"{CRASH_VARIABLE} must be 'point@batch' with a point of {CRASH_POINTS}, got {part!r}")
            points.add((name, int(batch)))
        return cls(frozenset(points), os.getpid())

    def reach(self, name: str, batch: int) -> None:
        """Kill the victim if this is one of the points. Does nothing at all otherwise."""
        if self.points and (name, batch) in self.points:
            os.kill(self.victim, signal.SIGKILL)
            signal.pause()  # in a task: the driver is gone, and Spark ends this process soon
