"""A region: a function, its workers, and one ordered stream through them."""

from __future__ import annotations

import pickle
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from headgate.errors import FunctionError, GreetingError, LimitsError, RegionError, ShippingError, WorkersLostError
from headgate.regions import cargo
from headgate.regions.balance import View
from headgate.regions.blocking import BlockingRate
from headgate.regions.ends import Bell, Inlet, Outlet
from headgate.regions.frames import FAULTY
from headgate.regions.greeting import SHORTEST_SECRET
from headgate.regions.ledger import Entry
from headgate.regions.options import Counters, Options, Skipped, options_of
from headgate.regions.processes import main_script
from headgate.regions.pump import Pump
from headgate.regions.roster import LocalSite, RemoteSite, Roster, Shipment, Site
from headgate.regions.worker import Fault, Setup

T = TypeVar("T")
R = TypeVar("R")

MOST_WORKERS = 1_000
"""Each worker must be able to have a unit of weight (section 5.1: the load is split into 1,000 units)."""

SIGNS_PER_HANG = 6
"""Signs of life a worker sends in the time after which it counts as hanging: some may be late."""

JOIN_SECONDS = 1.0
"""How long a closing region waits for the user's iterator. One that waits for something cannot be interrupted; its
thread ends when it next has an item, and does not keep the program from ending."""


class Region(Generic[T, R]):
    """Runs ``function`` on the items of one stream in many processes, and gives the results back in order.

    Workers start, or are connected to, when ``run`` is first asked for a result. Use it as a context manager: when the
    block is left, whatever happened, no process, thread or descriptor stays behind. ``options`` are the fields of
    :class:`headgate.regions.options.Options`.
    """

    def __init__(self, function: Callable[[T], R], workers: int | Sequence[str | Site] = 8, **options: Any) -> None:
        self._options = options_of(options)
        self._sites = _sites(workers, self._options)
        main = main_script() if isinstance(workers, int) else None
        setup = Setup(
            heartbeat=self._options.hang / SIGNS_PER_HANG,
            stop_at_fault=self._options.on_error != "skip",
            retries=self._options.attempts_again,
            most_bytes=self._options.max_frame_bytes,
            receive_buffer=self._options.receive_buffer,
            main=main,
        )
        function_bytes = cargo.dump_function(function, main=main is not None)
        self._shipment = Shipment(function_bytes, setup, self._options.hang)
        self._balancer = self._options.balance if self._options.balance is not None else BlockingRate()
        self._pump: Pump | None = None
        self._used = False
        self._delivered = 0
        self._stop: Callable[[], object] = lambda: None

    def __enter__(self) -> Region[T, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, items: Iterable[T]) -> Generator[R, None, None]:
        """The results of the items, in their order. Items are read as they are needed, by a thread of the region.

        Once per region. Raises ``FunctionError`` where the function raised, ``WorkersLostError`` where no worker is
        left, ``ShippingError`` for what cannot be pickled, each behind all results before that position; and whatever
        ``items`` raises, behind the results of the items before.
        """
        if self._used:
            raise RegionError.used()
        self._used = True
        return self._run(items)

    def _run(self, items: Iterable[T]) -> Generator[R, None, None]:
        outlet = self._begin(items)
        try:
            while (entry := self._taken(outlet)) is not None:
                assert entry.answer is not None
                if entry.answer.flags & FAULTY:
                    yield from self._faulty(entry)
                else:
                    yield from self._results(entry)
                self._delivered = entry.first + entry.count
        finally:
            self.close()

    def _begin(self, items: Iterable[T]) -> Outlet:
        bell = Bell()
        inlet, outlet = Inlet(items, bell), Outlet(bell)
        roster = Roster(self._sites, self._shipment, self._options.restarts, bell.ring)
        pump = self._pump = Pump(self._options, roster, self._balancer, inlet, outlet, bell)
        self._stop = weakref.finalize(self, _stop, pump, inlet)
        inlet.thread.start()
        pump.thread.start()
        return outlet

    def _taken(self, outlet: Outlet) -> Entry | None:
        try:
            return outlet.take()
        except WorkersLostError as error:
            raise error.reached(self._delivered) from None

    def _results(self, entry: Entry) -> list[R]:
        assert entry.answer is not None
        try:
            results: list[R] = cargo.load(entry.answer.payload, entry.answer.buffers)
        except Exception as error:
            raise ShippingError.result(entry.first, error) from error
        return results

    def _faulty(self, entry: Entry) -> Generator[R, None, None]:
        """The results of a frame in which the function raised, up to there or around it."""
        assert entry.answer is not None
        try:
            results, told = cargo.load(entry.answer.payload, entry.answer.buffers)
        except Exception as error:
            raise ShippingError.result(entry.first, error) from error
        faults = {fault.offset: fault for fault in (Fault(*each) for each in told)}
        for offset in range(entry.count):
            fault = faults.get(offset)
            if fault is None:
                yield results[offset]
            elif self._options.on_error != "skip":
                self._delivered = entry.first + offset
                raised = _loaded(fault.error)
                raise FunctionError.raised(entry.first + offset, fault.name, fault.traceback, raised)
            elif self._options.report is not None:
                self._options.report(Skipped(entry.first + offset, fault.name, fault.traceback))

    def view(self) -> View:
        """What the balancer believes now."""
        return self._balancer.view()

    def counters(self) -> Counters:
        """What the region has done so far. Raises ``RegionError`` before the first result was asked for."""
        if self._pump is None:
            raise RegionError("a region counts from its first result on: ask run() for one first")
        return self._pump.counters()

    def processes(self) -> list[int | None]:
        """The process id of each local worker; None for a worker that is remote, or not alive now."""
        return self._pump.pids() if self._pump is not None else []

    def close(self) -> None:
        """End the region. May be called again, and from any thread."""
        self._used = True
        self._stop()


def _stop(pump: Pump, inlet: Inlet) -> None:
    inlet.close()
    pump.close()
    here = threading.current_thread()  # the collector of garbage may call from any thread, also from one of these two
    if here is not pump.thread:
        pump.thread.join()
    if here is not inlet.thread:
        inlet.thread.join(JOIN_SECONDS)


def _loaded(packed: bytes | None) -> BaseException | None:
    """The exception of a worker; None where it is of a class that is not here."""
    if packed is None:
        return None
    try:
        error = pickle.loads(packed)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _sites(workers: int | Sequence[str | Site], options: Options) -> list[Site]:
    if isinstance(workers, int):
        if isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
            raise LimitsError.parameter(
                "region", "workers", f"a number from 1 to {MOST_WORKERS}, or addresses", workers
            )
        send, receive = options.send_buffer, options.receive_buffer
        return [LocalSite(f"local worker {number}", send, receive) for number in range(workers)]
    if isinstance(workers, str) or not 1 <= len(workers) <= MOST_WORKERS:
        raise LimitsError.parameter(
            "region", "workers", f'a number, or 1 to {MOST_WORKERS} addresses "host:port"', workers
        )
    made = [each for each in workers if not isinstance(each, str)]
    if len(made) == len(workers):
        return made
    if len(options.key) < SHORTEST_SECRET:
        raise GreetingError.secret(SHORTEST_SECRET, len(options.key))
    tls = options.context()
    return [
        RemoteSite(each, *address_of(each), options.key, tls, options.send_buffer) if isinstance(each, str) else each
        for each in workers
    ]


def address_of(text: str) -> tuple[str, int]:
    """``host:port`` or ``[::1]:port`` in two parts. Raises ``LimitsError`` for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise LimitsError.parameter("region", "an address of a worker", '"host:port" with a port from 0 to 65535', text)
    return host.strip("[]"), int(port)
