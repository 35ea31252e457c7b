"""Both sides of a greeting against each other, and each against what it must not accept."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import GreetingError
from headgate.regions.greeting import MAGIC, NONCE_BYTES, VERSION, Greeting, Role

SECRET = b"a secret of some length"
HERE, THERE = b"h" * NONCE_BYTES, b"t" * NONCE_BYTES


def both(worker_secret: bytes = SECRET, driver_secret: bytes = SECRET, full: bool = False) -> tuple[Greeting, Greeting]:
    return Greeting(Role.WORKER, worker_secret, HERE, full=full), Greeting(Role.DRIVER, driver_secret, THERE)


@given(st.integers(1, 40))
def test_who_knows_the_secret_is_welcome_however_the_bytes_are_cut(cut: int) -> None:
    worker, driver = both()
    to_driver, to_worker = worker.start(), driver.start()
    while not (worker.done and driver.done):
        to_worker += driver.feed(to_driver[: min(cut, driver.wants)])
        to_driver = to_driver[min(cut, len(to_driver)) :]
        to_driver += worker.feed(to_worker[:cut])
        to_worker = to_worker[cut:]
    assert worker.wants == driver.wants == 0
    assert not to_driver
    assert not to_worker


def test_a_driver_with_another_secret_is_told_so() -> None:
    worker, driver = both(driver_secret=b"some other secret entirely")
    proof = driver.feed(worker.start())
    with pytest.raises(GreetingError, match="must know the same secret, and the driver's is another") as at_worker:
        worker.feed(proof)
    assert at_worker.value.final
    assert not worker.done
    with pytest.raises(GreetingError, match="and the worker's is another"):
        driver.feed(worker.last_words)
    assert not driver.done


def test_a_false_worker_that_just_says_welcome_is_found_out() -> None:
    worker, driver = both()
    driver.feed(worker.start())
    with pytest.raises(GreetingError, match="must know the same secret"):
        driver.feed(bytes(33))


def test_a_proof_cannot_be_sent_back() -> None:
    """A false worker uses the driver's own nonce and proof as its answer."""
    driver = Greeting(Role.DRIVER, SECRET, THERE)
    answer = driver.feed(MAGIC + bytes([VERSION]) + THERE)
    with pytest.raises(GreetingError, match="must know the same secret"):
        driver.feed(bytes([0]) + answer[-32:])


def test_a_proof_cannot_be_used_twice() -> None:
    worker, driver = both()
    proof = driver.feed(worker.start())
    worker.feed(proof)
    later = Greeting(Role.WORKER, SECRET, b"another nonce".ljust(NONCE_BYTES))
    with pytest.raises(GreetingError, match="must know the same secret"):
        later.feed(proof)


def test_a_worker_that_is_full_says_so_only_to_who_knows_the_secret() -> None:
    worker, driver = both(full=True)
    proof = driver.feed(worker.start())
    with pytest.raises(GreetingError, match="already serves as many connections"):
        worker.feed(proof)
    with pytest.raises(GreetingError, match="raise its --limit") as told:
        driver.feed(worker.last_words)
    assert not told.value.final


@pytest.mark.parametrize("role", list(Role))
def test_something_else_is_told_at_its_first_bytes(role: Role) -> None:
    with pytest.raises(GreetingError, match="must greet as a headgate region, and this one sent b'GET"):
        Greeting(role, SECRET, HERE).feed(b"GET /")


def test_another_version() -> None:
    with pytest.raises(GreetingError, match="the peer speaks 9 where this side speaks 1"):
        Greeting(Role.DRIVER, SECRET, HERE).feed(MAGIC + bytes([9]) + HERE)
    worker = Greeting(Role.WORKER, SECRET, HERE)
    with pytest.raises(GreetingError, match="the peer speaks 9"):
        worker.feed(MAGIC + bytes([9]) + HERE + bytes(32))


@given(st.binary(max_size=120))
def test_garbage_is_refused_or_waits(data: bytes) -> None:
    for role in Role:
        greeting = Greeting(role, SECRET, HERE)
        with contextlib.suppress(GreetingError):
            greeting.feed(data)
        assert not greeting.done


def test_a_short_secret_is_none() -> None:
    with pytest.raises(GreetingError, match="must have at least 16 bytes, got 5: make one with"):
        Greeting(Role.WORKER, b"short", HERE)
