"""The pump: one thread that splits items over the workers and merges their results.

    Inlet -> cut a frame -> whose turn? -> send -> [workers] -> receive -> in order -> Outlet

One thread of control, as in the paper (section 4.2): a frame goes to the connection whose turn it is, and while that
one cannot take it, nothing else is sent. The time until it can is charged to it. The pump does not sleep meanwhile, it
receives results (section 3.1: it is only necessary to record how long the socket was unable to send). What is charged:

    the connection has no room           to it          the kernel's buffer is full, or it has `ahead` frames unanswered
    the window is full, consumer waits   to whoever has the oldest frame: it holds up the merge (section 4.3)
    the window is full, consumer busy    to nobody
    there is no item                     to nobody
"""

from __future__ import annotations

import select
import threading
import time

import numpy as np
from numpy.typing import NDArray

from headgate.errors import FrameError, RegionError, ShippingError, WorkersLostError
from headgate.regions import cargo
from headgate.regions.balance import Balancer, Sample, shares
from headgate.regions.ends import Bell, Inlet, Outlet
from headgate.regions.frames import Kind, encode
from headgate.regions.ledger import Entry, Ledger
from headgate.regions.options import LEAST_WINDOW, Counters, Options, Progress
from headgate.regions.processes import GRACE, LAST_BREATH
from headgate.regions.roster import Member, Roster, State
from headgate.regions.service import Stopwatch
from headgate.regions.sizing import Sizing
from headgate.regions.turns import Turns

LONGEST_WAIT = 1.0
"""Seconds between two rounds of the loop, where nothing happens: signs of life are looked for at least so often."""

PEEK = 0.002
"""Seconds between two looks at the inlet while the feeder takes many items at once and the pump has none."""

GATHER = 1.0
"""Seconds that the first worker waits for the others, so that a short stream is shared by all. Late ones join later."""

OVERSIZE = 4
"""A frame this many times larger than it should be is cut in two and pickled again: the tuples have grown."""


class Pump:
    """Runs one stream through the region, from the first item to the last result or the first error."""

    def __init__(
        self, options: Options, roster: Roster, balancer: Balancer, inlet: Inlet, outlet: Outlet, bell: Bell
    ) -> None:
        self._options, self._roster, self._balancer = options, roster, balancer
        self._inlet, self._outlet, self._bell = inlet, outlet, bell
        count = len(roster.members)
        most = options.frame_tuples
        if options.window is not None:  # a small window is shared out, or one worker would have it all
            most = max(1, min(most, options.window // (2 * count)))
        self._sizing = Sizing(most, options.frame_bytes)
        self._everybody = range(count)
        self._ledger = Ledger()
        self._weights = balancer.start(count)
        self._turns = Turns(self._weights)
        self._blocked = np.zeros(count)
        self._sent = np.zeros(count, dtype=np.int64)
        self._answered = np.zeros(count, dtype=np.int64)
        self._stopwatch = Stopwatch(count)
        self._rerouted = 0
        self._next: Entry | None = None
        """The frame that waits to be sent."""
        self._turn = -1
        """Whose turn it is; -1 where that has not been decided."""
        self._charged: int | None = None
        """The connection that the present wait is charged to."""
        self._since = 0.0
        """When that wait began: what the pump does between two waits is sending and receiving."""
        self._began = self._sampled = time.monotonic()
        self._sampled_blocked = self._blocked.copy()
        self._sampled_delivered = 0
        self._deserted = self._began
        """When the last worker was lost; the start counts as that."""
        self._epoll = select.epoll()
        self._watched: dict[int, Member] = {}
        self._pending: RegionError | None = None
        self._limit = 0
        """An error that ends the stream at a position, raised once all results before it have left."""
        self._gathered = False
        self._open_at = float("inf")
        self._closing = False
        self.thread = threading.Thread(target=self._run, name="headgate-pump", daemon=True)

    # What other threads may call.

    def close(self) -> None:
        self._closing = True
        self._bell.ring()

    def counters(self) -> Counters:
        return Counters(
            self._blocked.copy(),
            self._sent.copy(),
            self._answered.copy(),
            self._ledger.again,
            self._rerouted,
            self._ledger.released,
            np.array([max(0, member.returns) for member in self._roster.members]),
        )

    def pids(self) -> list[int | None]:
        """The process of each local worker that is alive."""
        processes = [member.process for member in self._roster.members]
        return [None if process is None else process.pid for process in processes]

    # The thread.

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._epoll.register(self._bell.fileno(), select.EPOLLIN)
            self._loop()
            error = self._inlet.error
        except BaseException as raised:  # whatever it is, the consumer must hear of it
            error = raised
        finally:
            self._outlet.end(error)
            self._inlet.close()
            self._epoll.close()
            self._roster.close(LAST_BREATH if self._closing or error is not None else GRACE)
            self._bell.close()

    def _loop(self) -> None:
        last = time.monotonic()
        while not self._closing:
            now = time.monotonic()
            wake_at = min(self._roster.due(now), self._check_desertion(now))
            begin_at = self._begin_at(now)
            if begin_at > now:
                wake_at = min(wake_at, begin_at)
            else:
                wake_at = min(wake_at, self._sampled + self._options.period)
                self._split()
            if self._pending is not None and self._ledger.released >= self._limit:
                raise self._pending
            if self._next is None and self._inlet.ended and self._ledger.empty and self._pending is None:
                return
            if self._inlet.hungry and self._inlet.bulk:
                wake_at = min(wake_at, now + PEEK)
            events = self._epoll.poll(min(max(0.0, wake_at - time.monotonic()), LONGEST_WAIT))
            now = time.monotonic()
            self._charge(now)
            self._handle(events, now)
            if now - last < self._options.hang / 2:  # otherwise it is this process that was stopped
                self._check_hangs(now)
            if self._gathered and now - self._sampled >= self._options.period:
                self._sample(now)
            last = now

    def _begin_at(self, now: float) -> float:
        """When to begin: at once where everybody has come or failed, soon where somebody has come."""
        if not self._gathered:
            self._gathered = now > self._open_at or not self._roster.awaited()
            if self._gathered:
                self._began = self._sampled = now
            if self._open_at == float("inf") and any(self._roster.alive()):
                self._open_at = now + GATHER
        return now if self._gathered else self._open_at

    def _charge(self, now: float) -> None:
        """The wait that ends now belongs to whom it was set down for."""
        if self._charged is not None:
            self._blocked[self._charged] += now - self._since

    def _handle(self, events: list[tuple[int, int]], now: float) -> None:
        for descriptor, _ in events:
            member = self._watched.get(descriptor)
            if member is None:
                self._bell.silence()
                for fresh in self._roster.arrivals(now):
                    self._welcome(fresh)
                continue
            try:
                self._exchange(member, now)
            except (OSError, FrameError) as error:
                self._lose(member, str(error), now)
        ready = self._ledger.release()
        if ready:
            self._outlet.put(ready)

    # Workers that come and go.

    def _welcome(self, member: Member) -> None:
        assert member.connection is not None
        descriptor = member.connection.fileno()
        self._watched[descriptor] = member
        self._epoll.register(descriptor, select.EPOLLIN)
        self._reweigh()

    def _lose(self, member: Member, why: str, now: float) -> None:
        assert member.connection is not None
        descriptor = member.connection.fileno()
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)
        self._roster.lose(member, why, now)
        worked_on = self._ledger.lost(member.number)
        self._sizing.lost(member.number)
        self._stopwatch.lost(member.number)
        if self._turn == member.number:
            self._turn = -1
        if self._charged == member.number:
            self._charged = None
        if worked_on is not None and worked_on.deaths >= self._options.deaths:
            self._end_at(
                worked_on.first,
                RegionError.poisonous(worked_on.first, worked_on.count, worked_on.deaths, member.trouble or why),
            )
        self._reweigh()

    def _reweigh(self) -> None:
        """Take turns among the living only. Who comes back gets weight with the next sample, or if nobody has any."""
        alive = np.array(self._roster.alive())
        if alive.any():
            self._turns.set(shares(list(map(float, self._weights)), alive))
        if self._turn >= 0 and not alive[self._turn]:
            self._turn = -1

    def _check_desertion(self, now: float) -> float:
        """Raise where nobody is left and nobody will come. Returns when to look again."""
        members = self._roster.members
        if any(member.state is State.ALIVE or member.loading for member in members):
            self._deserted = now
            return float("inf")
        reasons = [member.describe() for member in members]
        if all(member.state is State.GONE for member in members):
            raise WorkersLostError.all_gone(reasons)
        if now >= self._deserted + self._options.deadline:
            raise WorkersLostError.too_long(self._options.deadline, reasons)
        return self._deserted + self._options.deadline

    def _check_hangs(self, now: float) -> None:
        for member in self._roster.members:
            if member.state is State.ALIVE and now - member.heard > self._options.hang:
                self._lose(member, f"no sign of life for {self._options.hang:g} seconds", now)

    # Splitting.

    def _split(self) -> None:
        """Send frames until something has to be waited for, and set down whom the wait is charged to."""
        self._charged = None
        while True:
            if self._next is None:
                self._next = self._following()
            if self._next is None:
                return
            if self._turn < 0:
                self._turn = self._turns.next() if any(self._roster.alive()) else -1
            if self._turn < 0:
                return
            member = self._roster.members[self._turn]
            if self._offer(member, self._next) or (self._options.reroute and self._reroute(member)):
                self._next, self._turn = None, -1
            elif self._turn >= 0:
                self._charged = self._turn
                self._since = time.monotonic()
                return

    def _following(self) -> Entry | None:
        """The next frame to send: what is owed before what is new, nothing at or behind the end of the stream."""
        entry = self._ledger.owed()
        if self._pending is None:
            return entry or self._cut()
        return entry if entry is not None and entry.first < self._limit else None

    def _end_at(self, position: int, error: RegionError) -> None:
        """End the stream with this error, behind the results of everything before that position."""
        if self._pending is None or position < self._limit:
            self._pending, self._limit = error, position

    def _cut(self) -> Entry | None:
        """A new frame of the items at hand; None where there is none, or no room for it."""
        wanted = self._sizing.tuples
        tuples, size = self._outlet.taken()
        self._ledger.taken(tuples, size)
        window = self._options.window or max(LEAST_WINDOW, 2 * wanted * sum(map(self._ahead, self._everybody)))
        room = window - self._ledger.tuples
        if room < min(wanted, window) or (self._ledger.size >= self._options.window_bytes and self._ledger.tuples):
            self._outlet.pump_waits = True
            if self._outlet.waiting:
                self._charged = self._ledger.oldest()
                self._since = time.monotonic()
            return None
        self._outlet.pump_waits = False
        items = self._inlet.cut(wanted, self._sizing.at_hand)
        return self._packed(items) if items else None

    def _packed(self, items: list[object]) -> Entry | None:
        """A frame of these items, or of the first of them where the others are far too large or cannot be sent."""
        first = self._ledger.opened
        while True:
            try:
                parts, buffers = cargo.dump(items)
            except Exception as error:
                bad = cargo.first_unpicklable(items)
                at, reason = bad if bad is not None else (0, error)
                self._end_at(first + at, ShippingError.item(first + at, reason))
                if not at:
                    return None
                items = items[:at]
                continue
            size = sum(map(len, parts))
            if len(items) == 1 or size <= OVERSIZE * self._options.frame_bytes:
                break
            half = len(items) // 2
            self._inlet.put_back(items[half:])
            items = items[:half]
        if size > self._options.max_frame_bytes:
            self._end_at(first, ShippingError.too_large(first, size, self._options.max_frame_bytes))
            return None
        self._sizing.sent(len(items), size)
        data = encode(Kind.TUPLES, parts, buffers=buffers, count=len(items), first=first)
        return self._ledger.open(len(items), data)

    def _offer(self, member: Member, entry: Entry) -> bool:
        """Send a frame to this worker. False where it would have to wait, and nothing was sent."""
        connection = member.connection
        if connection is None or not connection.clear:
            return False
        number = member.number
        if self._options.ahead and self._ledger.outstanding(number) >= self._ahead(number):
            return False
        try:
            accepted = connection.offer(entry.data)
        except OSError as error:
            self._lose(member, str(error), time.monotonic())
            return False
        if accepted:
            self._ledger.sent(entry, number)
            self._sent[number] += entry.count
            self._stopwatch.sent(number, time.monotonic())
        if not accepted or not connection.clear:
            self._epoll.modify(connection.fileno(), select.EPOLLIN | select.EPOLLOUT)
        return accepted

    def _ahead(self, number: int) -> int:
        """Frames this worker may have unanswered, where that is limited at all."""
        ahead = self._options.ahead
        return ahead if isinstance(ahead, int) and ahead else self._sizing.ahead(number)

    def _reroute(self, blocked: Member) -> bool:
        """Try the others in their order, once around."""
        assert self._next is not None
        members = self._roster.members
        for step in range(1, len(members)):
            other = members[(blocked.number + step) % len(members)]
            if other.state is State.ALIVE and self._offer(other, self._next):
                self._rerouted += self._next.count
                return True
        return False

    # Merging.

    def _exchange(self, member: Member, now: float) -> None:
        """Read what a worker has sent, and write what it had no room for."""
        connection = member.connection
        assert connection is not None
        if connection.flush():
            self._epoll.modify(connection.fileno(), select.EPOLLIN)
        frames = connection.receive()
        if frames:
            member.heard = now
        for frame in frames:
            if frame.kind is Kind.RESULT:
                if not self._ledger.answered(member.number, frame):
                    raise FrameError.unexpected(f"a result for tuple {frame.first}, which it does not have")
                member.failures = 0
                self._answered[member.number] += frame.count
                more = self._ledger.outstanding(member.number) > 0
                self._stopwatch.answered(member.number, frame.count, frame.nanoseconds / 1e9, now, more=more)
                self._sizing.answered(member.number, frame.count, frame.nanoseconds / 1e9)
            elif frame.kind is not Kind.ALIVE:
                raise FrameError.unexpected(frame.kind.name)

    # Sampling.

    def _sample(self, now: float) -> None:
        alive = np.array(self._roster.alive())
        sent = int(self._sent.sum())
        service = self._stopwatch.read(now, self._sizing.tuples)
        self._weights = self._balancer.observe(Sample(now - self._began, self._blocked.copy(), alive, sent, service))
        self._reweigh()
        elapsed = now - self._sampled
        rates: NDArray[np.float64] = (self._blocked - self._sampled_blocked) / elapsed
        delivered = self._ledger.released
        throughput = (delivered - self._sampled_delivered) / elapsed
        self._sampled, self._sampled_delivered = now, delivered
        self._sampled_blocked = self._blocked.copy()
        if self._options.listener is not None:
            troubles = tuple(member.trouble for member in self._roster.members)
            weights = np.array(self._weights)
            frame = self._sizing.tuples
            self._options.listener(
                Progress(now - self._began, weights, rates, throughput, frame, alive, troubles, self.counters())
            )
