"""What can be set about a region."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.errors import LimitsError
from headgate.regions.balance import Balancer
from headgate.regions.frames import MOST_TUPLES

FRAME_TUPLES = 16_384
"""Tuples in a frame at the most: beyond some thousands a frame's own cost no longer shows."""

FRAME_BYTES = 256 * 1024
"""Bytes in a frame, about: large enough for the network, small enough to share a window among many workers."""

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Bytes of one frame that either side accepts: one item, or the results of one frame."""

WINDOW_BYTES = 64 * 1024 * 1024
"""Bytes of items and results in the region, beyond which nothing new is let in."""

LEAST_WINDOW = 4_096
"""Tuples in the region at least, where the window is not set: a worker a hundred times slower than eight others holds
them up only after eight hundred tuples."""

RETRIES = 3
"""With ``on_error="retry"``, how often an item is tried again."""


class Skipped(NamedTuple):
    """An item that was left out because the function raised."""

    position: int
    name: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Counters:
    """What a region has done so far: one value per worker, and totals."""

    blocked: NDArray[np.float64]
    """Seconds for which the region could not go on because of each worker."""
    sent: NDArray[np.int64]
    """Tuples sent to each worker, those sent again included."""
    answered: NDArray[np.int64]
    """Tuples that each worker has answered."""
    resent: int
    """Tuples that were sent again because a worker was lost."""
    rerouted: int
    """Tuples that went to another worker because their own would have blocked. Only with ``reroute``."""
    delivered: int
    """Tuples whose results left the region."""
    restarts: NDArray[np.int64]
    """How often each worker came back."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a listener gets at the end of each sampling period."""

    at: float
    """Seconds since the region began."""
    weights: NDArray[np.int64]
    """In force from now on."""
    rates: NDArray[np.float64]
    """Seconds blocked per second and worker in the period that ended, as measured."""
    throughput: float
    """Tuples per second that left the region in that period."""
    frame: int
    """Tuples in a frame at present."""
    alive: NDArray[np.bool_]
    troubles: tuple[str | None, ...]
    """What went wrong last with each worker; None while all is well."""
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What can be set about a region; each is a keyword of ``Region`` and ``ordered_map``."""

    secret: bytes | str | None = None
    """What remote workers know too. Needed for those, not for local ones."""
    tls: ssl.SSLContext | str | None = None
    """Encrypt connections to remote workers: the file of the certificate authority that signed theirs, or a context."""
    balance: Balancer | None = None
    """Who decides on the weights; ``BlockingRate()`` where None."""
    period: float = 1.0
    """Seconds between two samples of the blocking rate (the paper's: one)."""
    frame_tuples: int = FRAME_TUPLES
    frame_bytes: int = FRAME_BYTES
    max_frame_bytes: int = MAX_FRAME_BYTES
    window: int | None = None
    """Tuples in the region, from read to taken, at the most. Where None, as many as keep every worker busy, twice."""
    window_bytes: int = WINDOW_BYTES
    ahead: int | Literal["auto"] | None = "auto"
    """Frames a worker may have unanswered; waiting for one counts as blocking. "auto": as many as it does in a moment
    (``sizing.IN_HAND``), at least two. None or 0: kernel buffers only."""
    send_buffer: int | None = None
    """Bytes of SO_SNDBUF here; the system's choice where None."""
    receive_buffer: int | None = None
    """Bytes of SO_RCVBUF at the workers."""
    reroute: bool = False
    """Send a frame elsewhere when its worker would block: the baseline of section 4.4, not a recommendation."""
    on_error: Literal["fail", "skip", "retry"] = "fail"
    """What happens when the function raises: the stream ends, the item is left out, or it is tried again and only then
    the stream ends."""
    retries: int | None = None
    """How often an item is tried again, at once and by the same worker; also before it is skipped."""
    report: Callable[[Skipped], object] | None = None
    """Is told of every item that is skipped, in order: ``skipped.append``."""
    restarts: int = 3
    """How often in a row, without a result, a local worker is started anew."""
    deaths: int = 3
    """How many workers may die at work on one frame before its items are to blame and the stream ends."""
    deadline: float = 30.0
    """Seconds without any worker after which the region gives up."""
    hang: float = 30.0
    """Seconds without a sign of life after which a worker is given up. A function that holds the interpreter's lock for
    longer, in compiled code, needs more."""
    listener: Callable[[Progress], object] | None = None
    """Is called once per period, by a thread of the region. What it raises ends the region."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if (value is None and name in _MAY_BE_NONE) or (name == "ahead" and value == "auto"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TUPLES:
                wanted = f"a whole number from {least} to {MOST_TUPLES}" + (', or "auto"' if name == "ahead" else "")
                raise LimitsError.parameter("region", name, wanted, value)
        for name in ("period", "deadline", "hang"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise LimitsError.parameter("region", name, "a finite number of seconds above zero", value)
        if self.on_error not in ("fail", "skip", "retry"):
            raise LimitsError.parameter("region", "on_error", "'fail', 'skip' or 'retry'", self.on_error)

    @property
    def attempts_again(self) -> int:
        """How often an item that failed is tried again."""
        if self.retries is not None:
            return self.retries
        return RETRIES if self.on_error == "retry" else 0

    @property
    def key(self) -> bytes:
        """The secret as bytes, without the line end of a file."""
        return self.secret.strip().encode() if isinstance(self.secret, str) else self.secret or b""

    def context(self) -> ssl.SSLContext | None:
        """How the certificates of remote workers are checked."""
        if self.tls is None or isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.tls)


_LEAST = {
    "frame_tuples": 1,
    "frame_bytes": 1,
    "max_frame_bytes": 1024,
    "window": 1,
    "window_bytes": 1,
    "ahead": 0,
    "send_buffer": 1,
    "receive_buffer": 1,
    "retries": 0,
    "restarts": 0,
    "deaths": 1,
}
_MAY_BE_NONE = ("window", "ahead", "send_buffer", "receive_buffer", "retries")


def options_of(changes: dict[str, Any]) -> Options:
    """Options from keywords. Raises ``LimitsError`` for a keyword that is none."""
    known = [field.name for field in fields(Options)]
    for name in changes:
        if name not in known:
            raise LimitsError.parameter("region", "an option of a region", f"one of {', '.join(known)}", name)
    return Options(**changes)
