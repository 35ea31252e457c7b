"""Blocking rate: find from what the splitter sees how much each worker can take.

Problem         share out an ordered parallel region's load so that no worker holds up the others, with nothing to look
                at but the time for which the splitter waited for each connection and, where the transport counts, what
                came back from each
Inputs          one sample per period: cumulative waiting time and life per connection; how much was sent in all; how
                much each connection answered, and for how long it was at that by the splitter's and its own clock
Guarantee       weights sum to 1000 over the living and are 0 for the dead; deterministic; as long as the same live, a
                weight falls at most to a quarter and rises at most to its double and 1 % in a period. No guarantee of
                throughput: docs/algorithms/blocking-rate.md has figures
Time, space     O(N R) a sample, R = 1000, and O(N^2); O(N R) memory
First appeared  Schneider et al., blocking-rate, section 5 (Middleware 2016)
Deviations      functions are of the drag b / (1 - b), a straight line beyond the knee, and one value is used at all
                weights by that line (functions.py). Whether there is anything to do is told by waiting alone, as in the
                paper; but a connection that answered tells its own line by the time it took, whether it blocked or not
                (service.py; not in the paper, whose splitter does not see answers; completions=False leaves it out).
                One that did neither is at worst what the region was: that bound, not 0, is what a draftee learns, so
                that equal workers stay equal where the paper's draft leader drops to 0. Exploration, for those who did
                not answer, scales a whole function down and takes that back when it fails, where the paper wears down
                the data beyond the weight; it slows down where it failed and starts afresh where it paid; who rests at
                0 is probed now and then. Blame goes by what is known of a connection, then by the clock
Backfires       a load that leaves a worker at weight 0 is found out with the next probe. Without completions: with any
                weight late where exploring failed often, at worst 32 times as late; waits for frames sent at old
                weights are blamed on the new ones, so that with buffers worth many periods of a slow worker's time its
                weight falls too low at first; and members of a cluster that recover alone are held back by the others

One sample goes through these steps:

    waits --> blame ------> learn ------> explore -------> share out
              who made      lines and     what may be      minimax over the functions (5.2),
    answers ------------->  bounds (5.1)  better (5.4)     of clusters where there are many (5.3)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.arrays import F64, I64, Bool
from headgate.errors import InputError
from headgate.regions.allocation import select
from headgate.regions.balance import RESOLUTION, Sample, Service, View, even, shares
from headgate.regions.clusters import APART, clusters, pooled
from headgate.regions.functions import FADING, FAINT, Functions

DECAY = 0.10
"""Section 5.4: how much less is believed each period of a connection that does not lead."""

POOLING = 32
"""From so many connections on, those that are alike learn together (section 6.6). Where completions are known, every
connection that works tells of itself, and pooling fewer only levels out what differs by less than half: of eight
workers between 1 and 2 in speed it costs 7 to 28 percent."""

POOLING_BLIND = 4
"""The same where completions are not known. Then it is what makes slow workers explore together rather than one after
the other, each at the cost of all: eight workers, four of them slow, settle in 15 periods rather than in 30 to 50."""

FALL = 4
"""A weight falls at most to this part of itself in a period: one odd sample cannot take a worker out, and a worker that
is 100 times slower is at its share in four periods once the others are known."""

RISE = 2
"""A weight at most doubles in a period, and gets STEP more: a wrong guess costs half the throughput of one period."""

STEP = RESOLUTION // 100
"""What a weight may rise beyond its double, so that a worker at 0 gets somewhere: one per cent of the load."""

CALM = 0.01
"""Below this fraction of time spent waiting there is nothing to win, and nothing is learnt: the splitter or the source
is the bottleneck (footnote 2)."""

LEAST_OPEN = 1e-6
"""The least fraction of a period in which the splitter is taken to have sent: a region that stands still has a finite
drag."""

LEAST_KNOWN = 1e-3
"""The least fraction of a period in which the splitter did not wait that is taken for what sending costs: below that it
is the clock's resolution and the scheduler's whim."""

BLAMED = 0.05
"""A connection is blamed only from this share of the waiting on: less is jitter."""

LEADING = 0.5
"""With the connection most waited for, all are blamed that were waited for at least this much of that: the draft leader
may change within a period (figure 5d)."""

OWN = 0.7
"""A connection is blamed only where at least this much of the region's drag is its own (see ``_own_drag``)."""

SATURATED = 0.9
"""A connection that is at work for this part of a period is taken to do what it can. The rest is the way to it and back
and what its times vary by."""

LONGEST = 0.95
"""Where nobody is saturated, all are blamed whose frames were waited for this much of the longest (by own drag)."""

BURST = 4.0
"""Waits per frame of a connection up to so many times another's are a matter of drafting, not of bursts: equal workers
share the waiting unevenly, but seldom by more."""

SLOWEST = 1 / 32
"""The slowest pace of exploration, after five failures in a row. A try of one unit at weight 5 costs a sixth of the
throughput while it lasts: at this pace 0.3 % on the whole."""

PAID = 1.05
"""A connection that carries so much more than ever before without being blamed has become faster, or was
underestimated: buffers that fill up for once make some percent, too."""

BETTER = 0.99
"""What the drag must fall to for a rise to have paid for the region; smaller differences are made by sampling."""

DESPAIR = 0.5
"""The least hope for a connection that has weight: its share grows at most by the inverse in a period, and the leader's
falls accordingly."""

PROBE = 64
"""After so many periods with living connections at weight 0, all of these get a unit, for one period; where completions
are known, until they have answered or are waited for, since the turn of a single unit may not come within a period, and
what they answer replaces what was believed of them. Nothing can be learnt at 0, and what was learnt last may be long
out of date; hope alone could take hundreds of periods. Where a unit is too much it may cost more than half of the
throughput while it lasts: one to two percent on the whole."""

NEWS = 8
"""When somebody who rested carries a share again, the others who rest are probed at once, for a load seldom leaves one
worker alone; but not within so many periods of the last probe."""

TRY = 0.9
"""At small weights hope must reach a whole further unit, w / (w + 1), and this much further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a :class:`BlockingRate` works.

    ``decay`` None goes by waits alone and never explores again what it has measured (LB-static). ``completions`` False
    goes by waits alone, too, and explores (LB-adaptive as the paper has it). ``pooling`` None: :data:`POOLING` or
    :data:`POOLING_BLIND`, as the case may be.
    """

    decay: float | None = DECAY
    fall: int = FALL
    rise: int = RISE
    pooling: int | None = None
    apart: float = APART
    completions: bool = True

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 < self.decay < 1:
            raise InputError(
                f"decay must be between 0 and 1, or None to explore nothing twice, got {self.decay}: the paper has 0.1"
            )
        if self.fall < 2 or self.rise < 2:
            raise InputError(
                f"a weight must be able to halve and to double in a period, got fall={self.fall} and rise={self.rise}: "
                "give whole numbers of 2 or more"
            )


class BlockingRate:
    """The balancer of the blocking-rate paper, as far as this module's card says. One object serves one region."""

    def __init__(
        self,
        *,
        decay: float | None = DECAY,
        fall: int = FALL,
        rise: int = RISE,
        pooling: int | None = None,
        apart: float = APART,
        completions: bool = True,
    ) -> None:
        self.tuning = Tuning(decay=decay, fall=fall, rise=rise, pooling=pooling, apart=apart, completions=completions)

    def start(self, connections: int) -> I64:
        self._functions = Functions(connections)
        self._alive: Bool = np.ones(connections, dtype=np.bool_)
        self._weights = even(self._alive)
        self._rose: Bool = np.zeros(connections, dtype=np.bool_)
        self._pace = np.ones(connections)
        self._carried = np.zeros(connections)
        self._rates = np.zeros(connections)
        self._clusters: I64 = np.arange(connections)
        self._blocked = np.zeros(connections)
        self._at = 0.0
        self._sent: int | None = 0
        self._service: Service | None = None
        self._takes = np.full(connections, np.nan)
        self._own_takes = self._takes.copy()
        self._took = np.full(connections, np.inf)
        self._adds = np.ones(connections)
        self._use = np.ones(connections)
        self._rate: float | None = None
        self._send_cost = np.inf
        self._drag = 0.0
        self._resting = 0
        self._rested: Bool = np.zeros(connections, dtype=np.bool_)
        self._probed: Bool = np.zeros(connections, dtype=np.bool_)
        return self._weights.copy()

    def observe(self, sample: Sample) -> I64:
        waits = self._waits(sample)
        if waits is not None:
            self._learn(waits, sample.alive)
        returned = sample.alive & ~self._alive
        self._functions.forget(returned)
        self._pace[returned] = 1.0
        self._carried[returned] = 0.0
        self._took[returned] = np.inf
        self._adds[returned] = 1.0
        self._alive = sample.alive.copy()
        fresh = self._share_out()
        self._rose = fresh > self._weights
        self._weights = fresh
        return fresh.copy()

    def view(self) -> View:
        return View(self._weights.copy(), self._rates.copy(), self._clusters.copy())

    def _waits(self, sample: Sample) -> F64 | None:
        """The fraction of the period waited for each connection; None where no time has passed."""
        lasted = sample.at - self._at
        waited = np.maximum(sample.blocked - self._blocked, 0.0)
        before, self._sent = self._sent, sample.sent
        self._time(sample.service, lasted)
        self._at, self._blocked = sample.at, sample.blocked.copy()
        if lasted <= 0:
            return None
        self._rates = np.minimum(waited / lasted, 1.0)
        if sample.sent is not None and before is not None:
            self._rate = max(sample.sent - before, 1) / lasted
        return self._rates

    def _time(self, service: Service | None, lasted: float) -> None:
        """What a tuple takes on each connection by what came back in the period, and for what part of it each worked.

        A connection that has answered nothing tells something, too, once it is at a frame for longer than its last.
        """
        before, self._service = self._service, service
        self._takes = np.full(len(self._weights), np.nan)
        self._own_takes = self._takes.copy()
        if service is None or lasted <= 0 or not self.tuning.completions or self.tuning.decay is None:
            return
        if before is None:
            nothing = np.zeros(len(self._weights))
            before = Service(np.zeros_like(service.answered), nothing, nothing, nothing)
        answered, served = service.answered - before.answered, service.served - before.served
        came = answered > 0
        self._takes[came] = served[came] / answered[came]
        self._own_takes[came] = np.minimum((service.worked - before.worked)[came] / answered[came], self._takes[came])
        so_far = service.current / service.frame
        late = ~came & (so_far > self._took)
        self._takes[late] = self._own_takes[late] = so_far[late]
        self._use = np.clip((served + service.current - before.current) / lasted, 0.0, 1.0)
        self._took = np.where(np.isfinite(self._takes), self._takes, self._took)

    def _open(self, waiting: float) -> float:
        """The fraction of the period in which the splitter sent.

        The time it did not wait, on a quiet machine. But where it waits nearly always, as behind slow workers, little
        is left, and most of that belongs to the scheduler, or to a source that had nothing to send. So where it is
        known how much was sent, it is that times the least that sending was seen to cost. When that falls, so does the
        unit of the drag, and what was learnt is brought to the new one.
        """
        if self._rate is None:
            return max(1.0 - waiting, LEAST_OPEN)
        cost = max(1.0 - waiting, LEAST_KNOWN) / self._rate
        if cost < self._send_cost:
            by = self._send_cost / cost
            self._send_cost = cost
            if by < np.inf:
                self._functions.rescale(by)
                self._drag = by * (1.0 + self._drag) - 1.0
                self._carried /= by
        return self._rate * self._send_cost

    def _learn(self, waits: F64, alive: Bool) -> None:
        functions, weights = self._functions, self._weights
        working = alive & self._alive & (weights > 0)
        waits = np.where(working, waits, 0.0)
        waiting = min(float(waits.sum()), 1.0)
        if waiting < CALM:
            return
        is_open = self._open(waiting)
        drag = waiting / is_open
        own = _own_drag(waits, weights) / is_open
        leads = self._blame(waits, waiting, own, drag)
        follows = working & ~leads
        share = np.where(leads, waits, 0.0)
        share /= max(float(share.sum()), LEAST_OPEN)
        told = working & np.isfinite(self._takes) & (self._send_cost < np.inf)
        own = np.where(told, self._served_drag(leads, waits), own)
        functions.forget(self._probed & told)  # what it answers now replaces what was believed
        functions.measure(leads | told, weights, own, share)
        self._probed &= ~(leads | told)
        functions.bound(follows & ~told, weights, drag)
        functions.hope[told] = 1.0

        carried = weights * is_open
        paid = follows & (carried > PAID * self._carried)
        self._carried = np.where(leads | paid, carried, self._carried)
        failed = leads & self._rose
        self._pace[failed] = np.maximum(self._pace[failed] / 2, SLOWEST)
        self._pace[paid] = 1.0
        if drag >= BETTER * self._drag:
            functions.hope[follows & self._rose & ~paid] = 1.0
        self._drag = drag
        self._explore(np.where(told, 1.0, share))

    def _served_drag(self, leads: Bool, waits: F64) -> F64:
        """The drag of each connection at its weight by what it answered.

        With t the time of a tuple on a worker and s the splitter's, a worker keeps up with a share s / t of the tuples:
        that is its knee. For who makes the splitter wait, t is what the region sees, and idle time counts as well: it
        is busy but for what the order of the merge keeps from it, so what it does in a period is all it can do here.
        For the others that would count the way there and back, which goes unnoticed where they have enough in hand: t
        is their own, times what the connection was seen to add when it was full.
        """
        full = leads & (self._use >= SATURATED) & (self._own_takes > 0)
        adds = np.divide(self._takes, self._own_takes, out=np.ones_like(self._takes), where=full)
        self._adds += np.where(full, FADING * (adds - self._adds), DECAY * (1.0 - self._adds))
        use = np.maximum(self._use, waits)
        takes = np.where(leads, self._takes / np.where(use > 0, use, 1.0), self._own_takes * self._adds)
        return np.asarray(self._weights * takes / (RESOLUTION * self._send_cost) - 1.0)

    def _blame(self, waits: F64, waiting: float, own: F64, drag: float) -> Bool:
        """Which connections made the splitter wait, and not only happened to be waited for.

        Where some of those waited for may have this drag by what is known of them, the others are not to blame: a
        connection that has given up weight does not slow down the region more than before.

        Where the splitter waits though nobody is at work all the time, it is the order of the merge that holds it up:
        a frame that takes longer than the others need to fill the window. Then those are to blame whose frames were
        waited for longest.
        """
        blamed: Bool = (waits > BLAMED * waiting) & (own >= OWN * drag)
        if np.isfinite(self._takes).any() and self._use.max() < SATURATED:
            return np.asarray(blamed & (own >= LONGEST * np.max(own, where=blamed, initial=0.0)), dtype=np.bool_)
        known = blamed & self._functions.may_have(self._weights, drag)
        if known.any():
            blamed = known
        return blamed & (waits >= LEADING * np.max(waits, where=blamed, initial=0.0))

    def _explore(self, share: F64) -> None:
        """Hope for more of those who do not lead, each at its own pace (section 5.4)."""
        functions, weights = self._functions, self._weights
        decay = self.tuning.decay
        by = 1.0 - (1.0 - (DECAY if decay is None else decay)) ** self._pace
        if decay is None:
            by[functions.measured] = 0.0
        functions.hope *= 1.0 - by * (1.0 - share)
        despair = np.where(weights > 0, np.minimum(DESPAIR, TRY * weights / (weights + 1)), 0.0)
        np.maximum(functions.hope, despair, out=functions.hope)

    def _share_out(self) -> I64:
        alive = self._alive
        if not alive.any():
            return np.zeros_like(self._weights)
        now = shares(self._weights, alive)
        curves = self._functions.curves()
        hope, prefer = self._functions.hope, now
        self._clusters = np.arange(len(now))
        if len(now) >= self._pooling:
            self._clusters = self._grouped(curves)
            curves = pooled(curves, self._functions.evidence + FAINT, self._clusters)
            sizes = np.bincount(self._clusters)
            blamed = np.zeros(len(sizes))
            np.maximum.at(blamed, self._clusters, hope)  # who is to blame is so for all that are alike
            hope = blamed[self._clusters]
            prefer = (np.bincount(self._clusters, now) / sizes).astype(np.int64)[self._clusters]
        least = np.where(alive, now // self.tuning.fall, 0)
        least = np.maximum(least, self._probing(now))
        most = np.where(alive, np.minimum(now * self.tuning.rise + STEP, RESOLUTION), 0)
        if most.sum() < RESOLUTION:  # so few are left that they cannot take all of it in one step
            most = np.where(alive, RESOLUTION, 0)
        if least.sum() > RESOLUTION:  # more connections than units
            least = np.zeros_like(least)
        return select(curves * hope[:, None], RESOLUTION, least, most, prefer)

    def _probing(self, now: I64) -> Bool:
        """Those who must not be without weight, so that something is heard of them."""
        rests = self._alive & (now == 0)
        self._resting = self._resting + 1 if rests.any() else 0
        back = self._rested & self._alive & (2 * now * self._alive.sum() >= RESOLUTION)  # half of an even share
        self._rested = (self._rested | rests) & self._alive & ~back
        self._probed &= self._alive & np.isfinite(self._took).any()
        due = self._resting > PROBE or (back.any() and self._resting > NEWS)
        if due and self.tuning.decay is not None:
            self._resting = 0
            self._probed |= rests
        return self._probed

    @property
    def _pooling(self) -> int:
        if self.tuning.pooling is not None:
            return self.tuning.pooling
        return POOLING if np.isfinite(self._took).any() else POOLING_BLIND

    def _grouped(self, curves: F64) -> I64:
        """Clusters of the connections that were measured; the others, of which only bounds are known, are one more."""
        measured = self._functions.measured & self._alive
        groups = np.empty(len(curves), dtype=np.int64)
        groups[measured] = clusters(curves[measured], self.tuning.apart)
        groups[~measured] = groups[measured].max(initial=-1) + 1
        return groups


def _own_drag(waits: F64, weights: I64) -> F64:
    """How much of the waiting each connection would have made alone.

    While the splitter waits long for a frame of one worker, the others empty their buffers and stand idle; then it
    sends as fast as they can take, and waits for them, too, though they are not the bottleneck. So of the waits for
    others, frame by frame, only what is not much longer than its own waits counts for a connection.
    """
    each = np.divide(waits, weights, out=np.zeros_like(waits), where=weights > 0)
    reach = BURST * each[:, None]
    counts = np.divide(reach, each, out=np.ones((len(waits), len(waits))), where=each > reach)
    return np.asarray(counts @ waits, dtype=np.float64)
