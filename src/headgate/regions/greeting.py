"""Greeting: both sides prove that they know the secret before anything is loaded. Pure.

    worker -> driver   MAGIC version nonce(worker)
    driver -> worker   MAGIC version nonce(driver) HMAC(secret, "driver" version both nonces)
    worker -> driver   verdict HMAC(secret, "worker" version both nonces)

The driver proves itself first, so that who merely connects to a worker learns nothing to guess the secret from. The
role within each HMAC keeps one side's proof from being sent back to it. Every message has a fixed length, and nothing
beyond them is read before the greeting is over. The secret itself never travels.

The greeting says who is there, not that nobody listens or meddles: across a network that others share, add TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum, StrEnum

from headgate.errors import GreetingError

MAGIC = b"HGRG"
"""The first bytes of either side: an HTTP client, a port scanner or TLS on one side only are told apart by it."""

VERSION = 1
"""Of the greeting and the frames together; both sides must have the same."""

NONCE_BYTES = 32
"""Random bytes from each side: never the same twice."""

PROOF_BYTES = hashlib.sha256().digest_size

SHORTEST_SECRET = 16
"""Bytes: a driver's proof can be tried against guesses offline by a false worker, so a secret must not be guessable."""

_OPENING = len(MAGIC) + 1 + NONCE_BYTES


class Role(StrEnum):
    """Which side one is on."""

    DRIVER = "driver"
    WORKER = "worker"


class Verdict(IntEnum):
    """What a worker answers to the driver's proof."""

    WELCOME = 0
    WRONG_SECRET = 1
    WRONG_VERSION = 2
    FULL = 3


class Greeting:
    """One side of a greeting. Send what ``start`` and ``feed`` return; it is over when ``done``.

    Raises ``GreetingError`` as soon as the other side cannot be right. A worker then still has ``last_words`` to send,
    which tell the driver why. ``nonce`` must be fresh random bytes.
    """

    def __init__(self, role: Role, secret: bytes, nonce: bytes, *, full: bool = False) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise GreetingError.secret(SHORTEST_SECRET, len(secret))
        self._role, self._secret, self._nonce = role, secret, nonce
        self._full = full
        self._held = b""
        self._theirs = b""
        self._wanted = _OPENING + (PROOF_BYTES if role is Role.WORKER else 0)
        self.done = False
        self.last_words = b""

    @property
    def wants(self) -> int:
        """How many bytes to read at most: none beyond the greeting."""
        return 0 if self.done else self._wanted - len(self._held)

    def start(self) -> bytes:
        return self._opening() if self._role is Role.WORKER else b""

    def feed(self, data: bytes) -> bytes:
        """What to answer to these bytes; nothing while a message is incomplete."""
        self._held += data
        expected = MAGIC[: len(self._held)]
        if not self._theirs and self._held[: len(MAGIC)] != expected:
            raise GreetingError.foreign(self._held)
        if self.done or len(self._held) < self._wanted:
            return b""
        message, self._held = self._held[: self._wanted], self._held[self._wanted :]
        if self._role is Role.WORKER:
            return self._judge(message)
        return self._prove(message) if not self._theirs else self._accept(message)

    def _opening(self) -> bytes:
        return MAGIC + bytes([VERSION]) + self._nonce

    def _proof(self, role: Role) -> bytes:
        nonces = (self._nonce, self._theirs) if self._role is Role.WORKER else (self._theirs, self._nonce)
        return hmac.digest(self._secret, role.encode() + bytes([VERSION]) + b"".join(nonces), "sha256")

    def _judge(self, message: bytes) -> bytes:
        """The worker looks at the driver's proof."""
        version, self._theirs = message[len(MAGIC)], message[len(MAGIC) + 1 : _OPENING]
        if version != VERSION:
            self.last_words = _refusal(Verdict.WRONG_VERSION)
            raise GreetingError.version(version, VERSION)
        if not hmac.compare_digest(message[_OPENING:], self._proof(Role.DRIVER)):
            self.last_words = _refusal(Verdict.WRONG_SECRET)
            raise GreetingError.wrong_secret("driver")
        if self._full:
            self.last_words = _refusal(Verdict.FULL)
            raise GreetingError.full()
        self.done = True
        return bytes([Verdict.WELCOME]) + self._proof(Role.WORKER)

    def _prove(self, message: bytes) -> bytes:
        """The driver answers the worker's nonce with its own and a proof."""
        version, self._theirs = message[len(MAGIC)], message[len(MAGIC) + 1 :]
        if version != VERSION:
            raise GreetingError.version(version, VERSION)
        self._wanted = 1 + PROOF_BYTES
        return self._opening() + self._proof(Role.DRIVER)

    def _accept(self, message: bytes) -> bytes:
        """The driver looks at the worker's verdict and proof."""
        verdict = message[0]
        if verdict == Verdict.WRONG_VERSION:
            raise GreetingError.version(0, VERSION)
        if verdict == Verdict.FULL:
            raise GreetingError.full()
        if verdict != Verdict.WELCOME or not hmac.compare_digest(message[1:], self._proof(Role.WORKER)):
            raise GreetingError.wrong_secret("worker")
        self.done = True
        return b""


def _refusal(verdict: Verdict) -> bytes:
    return bytes([verdict]) + bytes(PROOF_BYTES)
