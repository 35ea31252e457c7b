"""Local search under a budget: simulated annealing towards a distance that is lowered each time it is reached.

Problem         places within the budget whose farthest slot is as near to the mean as can be
Inputs          c(k), prices, the budget, caps; places to start from; a seed
Guarantee       never ends worse than it starts; the same steps for the same seed
Time, space     O(1) a proposal, O(n) where one of a slot's n items is picked to fit; O(K + N C), C the items a slot may
                hold during the search
First appeared  annealing: Kirkpatrick et al. (1983); the penalty with a falling threshold is that of timetabling and
                graph colouring, where one fixes the number of colours and searches for no conflict
Deviations      none to speak of
Backfires       proves nothing: `bound` says how far the result may be from the best

The largest deviation itself is a poor guide: most moves leave it as it is. So the search holds a target tau below the
best distance so far and lowers the sum of squares of what each slot is off the mean beyond tau. When that is 0, the
target is reached: the places are kept, tau is lowered, and so on until the steps are used up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.arrays import F64, I32, I64, Bool, compiled, sums
from headgate.planners.allocation.problem import Problem
from headgate.planners.base import ROUNDING

RESTLESS = 0.3
"""The temperature at the start of a run is the square of this share of an average item's load: items are moved about
freely, slots still keep their order of magnitude. On clusters as in albic 5.1, 0.1 did clearly worse, 0.6 and 1 about
as well."""

CALM = 0.02
"""And at its end of this share of the target: by then only what improves is taken."""

LOWERING = 0.03
"""The next target is this share below the distance reached: small enough to be reached from there, large enough that
a hundred targets lead from any start to a twentieth of its distance."""

CAP_WEIGHT = 10.0
"""A cap exceeded by its whole counts as a slot off by this many means: caps are held before anything else."""

ROOM = 3
"""A slot may hold, during the search, this many times the average number of items beyond the most it holds at the
start."""

ROOM_LEAST = 64
"""And at least this many more."""


Random = NDArray[np.uint64]
"""The state of the generator of random numbers: one number, changed in place."""


@dataclass(slots=True, eq=False)
class Annealing:
    """A search in progress: ``run`` it for some steps, again and again; ``places`` is the best so far."""

    problem: Problem
    places: I32
    random: Random
    used: F64
    fixed: F64
    caps: F64

    @classmethod
    def of(cls, problem: Problem, places: I32, seed: int) -> Annealing:
        """``problem`` has no pins; ``places`` hold the budget."""
        resources = list(problem.resources.values())
        shape = (len(resources), len(problem))
        used = np.array([resource.used for resource in resources]).reshape(shape)
        fixed = np.array([resource.fixed for resource in resources]).reshape(len(resources), problem.slots)
        caps = np.array([resource.cap for resource in resources]).reshape(len(resources), problem.slots)
        # The odd number spreads small seeds over all bits; the generator must not start at 0.
        mixed = ((seed + 1) * 0x9E3779B97F4A7C15) % 2**64 or 1
        return cls(problem, places.copy(), np.array([mixed], dtype=np.uint64), used, fixed, caps)

    def run(self, steps: int, start: I32 | None = None, *, until: float = 0.0, aim: float = np.inf) -> bool:
        """Anneal for this many proposals, from the best places or from others that hold the budget.

        ``aim`` is the first target; the run ends early at a distance of ``until``. Returns whether the best places have
        become better.
        """
        before = self.problem.score(self.places)
        best = before.distance
        if before.excess > 0:
            # Caps first: any distance will do for a beginning.
            best = aim = 2 * (self.problem.mean + before.distance)
        return self._run(steps, self.places if start is None else start, best, 0, 0.0, until, aim)

    def narrow(self, steps: int) -> bool:
        """Anneal from the best places to bring the nearer side closer to the mean, the farther one staying."""
        problem = self.problem
        off = problem.loads(self.places) - problem.mean
        above, below = max(0.0, float(off.max())), max(0.0, float(-off[problem.is_open].min()))
        side = 1 if above < below else -1
        nearer, farther = min(above, below), max(above, below)
        if nearer <= 0:
            return False
        return self._run(steps, self.places, nearer, side, farther * (1 + ROUNDING), 0.0, nearer)

    def _run(self, steps: int, start: I32, best: float, side: int, held: float, until: float, aim: float) -> bool:
        problem = self.problem
        begin = np.array(start, dtype=np.int32)
        count = np.bincount(begin, minlength=problem.slots)
        room = int(count.max()) + max(ROOM_LEAST, ROOM * len(problem) // problem.slots)
        load = max(float(problem.cost.mean() / problem.capacity.mean()), ROUNDING * problem.mean)
        target = min(aim, best)
        found = _anneal(
            problem.cost,
            problem.price,
            problem.current,
            begin,
            problem.loads(begin) * problem.capacity,
            problem.capacity,
            problem.is_open,
            self.used,
            np.array([sums(begin, row, problem.slots) for row in self.used]).reshape(self.fixed.shape) + self.fixed,
            self.caps,
            problem.mean,
            np.inf if problem.budget is None else problem.budget - problem.spent(begin),
            best,
            side,
            held,
            until,
            aim,
            (RESTLESS * load) ** 2,
            (CALM * max(target, CALM * load)) ** 2,
            room,
            steps,
            self.random,
        )
        # What was paid and paid back a million times may be off by a rounding error, hence the second look.
        if problem.admits(found) and problem.is_better(problem.score(found), problem.score(self.places)):
            self.places = found
            return True
        return False


@compiled
def _next(random: Random) -> np.uint64:
    """xorshift64*: the state is passed along, so that a search can be repeated and resumed."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return np.uint64(x * np.uint64(0x2545F4914F6CDD1D))


@compiled
def _below(random: Random, limit: int) -> int:
    """A number from 0 to limit - 1."""
    return int(np.int64((_next(random) >> np.uint64(33)) % np.uint64(limit)))


@compiled
def _unit(random: Random) -> float:
    """A number from 0 to 1, 1 excluded."""
    return np.float64(_next(random) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _strain(load: float, capacity: float, is_open: bool, mean: float, above: float, below: float) -> float:
    """The square of what a slot is off the mean beyond the targets; a draining slot may be below."""
    off = load / capacity - mean
    beyond = off - above
    if off < 0:
        beyond = -off - below if is_open else 0.0
    return beyond * beyond if beyond > 0 else 0.0


@compiled
def _cap_strain(used: F64, caps: F64, slot: int, mean: float) -> float:
    total = 0.0
    for resource in range(len(used)):
        over = used[resource, slot] - caps[resource, slot]
        if over > 1e-9 * abs(used[resource, slot]):
            share = CAP_WEIGHT * mean * over / max(caps[resource, slot], 1e-9)
            total += share * share
    return total


@compiled
def _shift(
    item: int,
    source: int,
    sink: int,
    cost: F64,
    loads: F64,
    capacity: F64,
    is_open: Bool,
    uses: F64,
    used: F64,
    caps: F64,
    mean: float,
    above: float,
    below: float,
) -> float:
    """Take an item's cost from one slot to another; what the strain rises by."""
    before = _strain(loads[source], capacity[source], is_open[source], mean, above, below) + _strain(
        loads[sink], capacity[sink], is_open[sink], mean, above, below
    )
    if len(uses):
        before += _cap_strain(used, caps, source, mean) + _cap_strain(used, caps, sink, mean)
    loads[source] -= cost[item]
    loads[sink] += cost[item]
    after = _strain(loads[source], capacity[source], is_open[source], mean, above, below) + _strain(
        loads[sink], capacity[sink], is_open[sink], mean, above, below
    )
    if len(uses):
        for resource in range(len(uses)):
            used[resource, source] -= uses[resource, item]
            used[resource, sink] += uses[resource, item]
        after += _cap_strain(used, caps, source, mean) + _cap_strain(used, caps, sink, mean)
    return after - before


@compiled
def _fitting(wanted: float, members: I32, count: int, cost: F64) -> int:
    """The place in a slot's list of the item whose cost is nearest to what is wanted."""
    best = 0
    for at in range(1, count):
        if abs(cost[members[at]] - wanted) < abs(cost[members[best]] - wanted):
            best = at
    return best


@compiled
def _farthest(loads: F64, capacity: F64, is_open: Bool, mean: float, side: int) -> float:
    """The farthest off the mean, of both sides or of one."""
    farthest = 0.0
    for slot in range(len(loads)):
        off = loads[slot] / capacity[slot] - mean
        if side >= 0:
            farthest = max(farthest, off)
        if side <= 0 and is_open[slot]:
            farthest = max(farthest, -off)
    return farthest


@compiled
def _paid(first: int, last: int, item_of: I64, sink_of: I64, current: I32, places: I32, price: F64) -> float:
    """What these changes take from the budget."""
    paid = 0.0
    for change in range(first, last):
        item = item_of[change]
        if places[item] != current[item]:
            paid -= price[item]
        if sink_of[change] != current[item]:
            paid += price[item]
    return paid


@compiled
def _shortcut(
    changes: int,
    moved: I32,
    moves: int,
    current: I32,
    places: I32,
    members: I32,
    count: I64,
    is_open: Bool,
    item_of: I64,
    sink_of: I64,
    random: Random,
) -> int:
    """Undo a detour: a moved item goes home, and one that came there goes on in its stead. Adds the changes."""
    back = moved[_below(random, moves)]
    home, away = current[back], places[back]
    if not is_open[home] or count[home] == 0:
        return changes
    first = _below(random, count[home])
    for offset in range(count[home]):
        guest = members[home, (first + offset) % count[home]]
        if current[guest] != home:
            item_of[changes], sink_of[changes] = back, home
            item_of[changes + 1], sink_of[changes + 1] = guest, away
            return changes + 2
    return changes


@compiled
def _anneal(
    cost: F64,
    price: F64,
    current: I32,
    places: I32,
    loads: F64,
    capacity: F64,
    is_open: Bool,
    uses: F64,
    used: F64,
    caps: F64,
    mean: float,
    left: float,
    best: float,
    side: int,
    held: float,
    until: float,
    aim: float,
    restless: float,
    calm: float,
    room: int,
    steps: int,
    random: Random,
) -> I32:
    """``left``: what the budget still pays for. ``best``: what is to be beaten. ``side``: 0 lowers both sides, 1 what
    is above the mean, -1 what is below, the other side then being kept at ``held``. Returns the best places seen,
    those it began with if none was better."""
    slots, total = len(capacity), len(cost)
    found = places.copy()
    members = np.empty((slots, room), dtype=np.int32)
    count = np.zeros(slots, dtype=np.int64)
    at_index = np.empty(total, dtype=np.int64)
    for item in range(total):
        slot = places[item]
        members[slot, count[slot]] = item
        at_index[item] = count[slot]
        count[slot] += 1
    moved = np.empty(total, dtype=np.int32)
    moved_at = np.full(total, -1, dtype=np.int64)
    moves = 0
    for item in range(total):
        if places[item] != current[item]:
            moved[moves] = item
            moved_at[item] = moves
            moves += 1
    open_slots = np.flatnonzero(is_open)
    if len(open_slots) < 2 and is_open.all():
        return found

    bar = best
    target = max(until, min(aim, bar * (1 - LOWERING)))
    above = target if side >= 0 else held
    below = target if side <= 0 else held
    strain = np.empty(slots)
    total_strain = 0.0
    hot = np.empty(slots, dtype=np.int64)
    hot_at = np.full(slots, -1, dtype=np.int64)
    hots = 0
    for slot in range(slots):
        strain[slot] = _strain(loads[slot], capacity[slot], is_open[slot], mean, above, below)
        if len(uses):
            strain[slot] += _cap_strain(used, caps, slot, mean)
        total_strain += strain[slot]
        if strain[slot] > 0:
            hot[hots] = slot
            hot_at[slot] = hots
            hots += 1

    item_of = np.empty(8, dtype=np.int64)
    sink_of = np.empty(8, dtype=np.int64)
    source_of = np.empty(8, dtype=np.int64)
    cooling = (calm / restless) ** (1.0 / max(1, steps // 64))
    heat = restless
    for step in range(steps):
        if step % 64 == 0 and step > 0:
            heat *= cooling
        # Pick the changes of this proposal.
        changes = 0
        slot = _below(random, slots)
        if hots > 0 and _below(random, 8) != 0:
            slot = hot[_below(random, hots)]
        kind = _below(random, 20)
        if kind < 4:
            # One item out of a slot with too much, or into one with too little.
            source, sink = slot, open_slots[_below(random, len(open_slots))]
            if is_open[slot] and loads[slot] / capacity[slot] < mean:
                source, sink = _below(random, slots), slot
            if source == sink or count[source] == 0:
                continue
            item_of[0] = members[source, _below(random, count[source])]
            sink_of[0] = sink
            changes = 1
        elif kind < 8:
            # Two items trade places: one at random, one at random or that fits best.
            other = _below(random, slots)
            if other == slot or count[slot] == 0 or count[other] == 0 or not (is_open[slot] and is_open[other]):
                continue
            item = members[slot, _below(random, count[slot])]
            if kind < 5:
                partner = members[other, _below(random, count[other])]
            else:
                off, off_other = loads[slot] / capacity[slot] - mean, loads[other] / capacity[other] - mean
                shift = (off - off_other) / (1 / capacity[slot] + 1 / capacity[other])
                partner = members[other, _fitting(cost[item] - shift, members[other], count[other], cost)]
            item_of[0], sink_of[0] = item, other
            item_of[1], sink_of[1] = partner, slot
            changes = 2
        elif kind == 8:
            # Three items go round.
            second, third = _below(random, slots), _below(random, slots)
            if slot in (second, third) or second == third:
                continue
            if not (is_open[slot] and is_open[second] and is_open[third]):
                continue
            if count[slot] == 0 or count[second] == 0 or count[third] == 0:
                continue
            item_of[0], sink_of[0] = members[slot, _below(random, count[slot])], second
            item_of[1], sink_of[1] = members[second, _below(random, count[second])], third
            item_of[2], sink_of[2] = members[third, _below(random, count[third])], slot
            changes = 3
        elif moves == 0:
            continue
        elif kind < 12:
            # A moved item goes back and another of the same origin goes in its stead.
            back = moved[_below(random, moves)]
            home, away = current[back], places[back]
            if not is_open[home] or count[home] == 0:
                continue
            if kind == 9:
                item = members[home, _below(random, count[home])]
            else:
                off, off_away = loads[home] / capacity[home] - mean, loads[away] / capacity[away] - mean
                shift = (off - off_away) / (1 / capacity[home] + 1 / capacity[away])
                item = members[home, _fitting(cost[back] + shift, members[home], count[home], cost)]
            item_of[0], sink_of[0] = back, home
            item_of[1], sink_of[1] = item, away
            changes = 2
        elif kind == 12:
            # A moved item goes elsewhere.
            item_of[0] = moved[_below(random, moves)]
            sink_of[0] = open_slots[_below(random, len(open_slots))]
            if sink_of[0] == places[item_of[0]]:
                continue
            changes = 1
        elif kind == 13:
            # A moved item goes back and frees what it was paid.
            item_of[0] = moved[_below(random, moves)]
            sink_of[0] = current[item_of[0]]
            if not is_open[sink_of[0]]:
                continue
            changes = 1
        elif kind == 14:
            # Two moved items trade places.
            item, partner = moved[_below(random, moves)], moved[_below(random, moves)]
            if places[item] == places[partner]:
                continue
            item_of[0], sink_of[0] = item, places[partner]
            item_of[1], sink_of[1] = partner, places[item]
            changes = 2
        elif kind < 19:
            # A detour: a moved item stops at this slot, one of the slot's own goes on in its stead.
            item = moved[_below(random, moves)]
            away = places[item]
            if away == slot or not is_open[slot] or count[slot] == 0:
                continue
            if kind == 15:
                partner = members[slot, _below(random, count[slot])]
            else:
                off = loads[slot] - mean * capacity[slot]
                partner = members[slot, _fitting(cost[item] + off, members[slot], count[slot], cost)]
            item_of[0], sink_of[0] = item, slot
            item_of[1], sink_of[1] = partner, away
            changes = 2
        else:
            changes = _shortcut(0, moved, moves, current, places, members, count, is_open, item_of, sink_of, random)
            if changes == 0:
                continue

        # Can it be paid? If not, moves elsewhere are taken back until it can.
        paid = _paid(0, changes, item_of, sink_of, current, places, price)
        for _ in range(2):
            if paid <= left or moves == 0:
                break
            before = changes
            if _below(random, 2) == 0:
                changes = _shortcut(
                    changes, moved, moves, current, places, members, count, is_open, item_of, sink_of, random
                )
            else:
                back = moved[_below(random, moves)]
                if is_open[current[back]]:
                    item_of[changes], sink_of[changes] = back, current[back]
                    changes += 1
            paid += _paid(before, changes, item_of, sink_of, current, places, price)
        if paid > left:
            continue
        fits = True
        for change in range(changes):
            if count[sink_of[change]] + 2 >= room:
                fits = False
            for earlier in range(change):
                if item_of[earlier] == item_of[change]:
                    fits = False
        if not fits:
            continue
        # Try it; the strain of slots that occur twice comes out right because the changes are made one by one.
        rise = 0.0
        for change in range(changes):
            item, sink = item_of[change], sink_of[change]
            source_of[change] = places[item]
            rise += _shift(
                item, places[item], sink, cost, loads, capacity, is_open, uses, used, caps, mean, above, below
            )
        if rise > 0 and _unit(random) >= np.exp(-rise / heat):
            for back in range(changes):
                change = changes - 1 - back
                item = item_of[change]
                loads[sink_of[change]] -= cost[item]
                loads[source_of[change]] += cost[item]
                for resource in range(len(uses)):
                    used[resource, sink_of[change]] -= uses[resource, item]
                    used[resource, source_of[change]] += uses[resource, item]
            continue
        left -= paid
        total_strain += rise
        for change in range(changes):
            item, source, sink = item_of[change], source_of[change], sink_of[change]
            last = members[source, count[source] - 1]
            members[source, at_index[item]] = last
            at_index[last] = at_index[item]
            count[source] -= 1
            members[sink, count[sink]] = item
            at_index[item] = count[sink]
            count[sink] += 1
            places[item] = sink
            if sink == current[item] and moved_at[item] >= 0:
                moves -= 1
                moved[moved_at[item]] = moved[moves]
                moved_at[moved[moves]] = moved_at[item]
                moved_at[item] = -1
            elif sink != current[item] and moved_at[item] < 0:
                moved[moves] = item
                moved_at[item] = moves
                moves += 1
        for end in range(2 * changes):
            slot = source_of[end // 2] if end % 2 == 0 else sink_of[end // 2]
            strain[slot] = _strain(loads[slot], capacity[slot], is_open[slot], mean, above, below)
            if len(uses):
                strain[slot] += _cap_strain(used, caps, slot, mean)
            if strain[slot] > 0 and hot_at[slot] < 0:
                hot[hots] = slot
                hot_at[slot] = hots
                hots += 1
            elif strain[slot] <= 0 and hot_at[slot] >= 0:
                hots -= 1
                hot[hot_at[slot]] = hot[hots]
                hot_at[hot[hots]] = hot_at[slot]
                hot_at[slot] = -1
        if left < 0 or (hots > 0 and total_strain >= (bar - target) ** 2):
            continue
        # No slot is off by as much as the best so far: keep these places; aim lower where the target is reached.
        found[:] = places
        bar = _farthest(loads, capacity, is_open, mean, side)
        if bar <= until or bar <= 1e-12 * mean:
            break
        if hots > 0:
            continue
        target = max(until, bar * (1 - LOWERING))
        above = target if side >= 0 else held
        below = target if side <= 0 else held
        total_strain = 0.0
        for slot in range(slots):
            strain[slot] = _strain(loads[slot], capacity[slot], is_open[slot], mean, above, below)
            total_strain += strain[slot]
            if strain[slot] > 0 and hot_at[slot] < 0:
                hot[hots] = slot
                hot_at[slot] = hots
                hots += 1
    return found
