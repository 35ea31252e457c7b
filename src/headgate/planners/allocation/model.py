"""The mixed-integer program of albic 4.3.1, for HiGHS: exact where the problem is small.

    minimise    d, then (d - d_u) + (d - d_l)
    (1)  every item is on one slot
    (2)  the prices of the items that move add up to the budget at most
    (3)  load_i <= mean + (d - d_u)     for every slot
    (4)  load_i >= mean - (d - d_l)     for every slot that is not draining
    (5)  mean - d >= 0                  where places are known that hold it
    caps on other resources, one row per slot and resource

Items that cannot be told apart (same slot, cost, price, state and resources) share one integer variable per slot: how
many of them go there. That leaves no two solutions that differ only in which twin went where.

With places known that hold it, (5) cuts off nothing that could be the best. Where one item is more than twice the mean,
no places hold it, and it would only make the model infeasible: then it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from headgate.arrays import F64, I32, I64
from headgate.errors import SolverError
from headgate.planners.allocation.problem import Problem

SCALE = 100.0
"""The mean in the unit of the model: loads are percentages there, as in albic, and HiGHS' tolerances small to them."""

TOLERANCE = 1e-9
"""How far HiGHS may violate a row, in the unit of the model; its least."""

SAFETY = 1e-8
"""What is taken off a bound that HiGHS reports, as a share of the mean: more than its tolerances add up to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exact:
    """What HiGHS found: places (None if it found none in time), a bound on the distance, whether it is the optimum."""

    places: I32 | None
    bound: float
    is_proven: bool


@dataclass(slots=True, eq=False)
class _Model:
    """The program in columns; ``slot_of`` and ``class_of`` name what each of the first columns stands for."""

    problem: Problem
    members: list[I64]
    slot_of: I64
    class_of: I64
    highs: highspy.Highs

    @property
    def d(self) -> int:
        return len(self.slot_of)


def solve_exactly(
    problem: Problem, *, seconds: float | None = None, nodes: int | None = None, warm: I32 | None = None
) -> Exact:
    """Minimise the distance, then the spread, each in about so many seconds or nodes of the search tree at the most.

    ``problem`` has no pins. ``warm``: places to start from. The bound holds whether or not HiGHS finished; with a limit
    in nodes the result is the same every time. Raises ``SolverError`` where HiGHS does not take the model.
    """
    known = problem.current if warm is None else warm
    score = problem.score(known)
    model = _build(problem, within_mean=problem.admits(known) and score.excess == 0 and score.distance <= problem.mean)
    if seconds is not None:
        model.highs.setOptionValue("time_limit", float(seconds))
    if nodes is not None:
        model.highs.setOptionValue("mip_max_nodes", int(nodes))
    highs, d = model.highs, model.d
    if warm is not None:
        _offer(model, warm)
    highs.changeColCost(d, 1.0)
    highs.run()
    status = highs.getModelStatus()
    info = highs.getInfo()
    unit = SCALE / problem.mean
    if status == highspy.HighsModelStatus.kInfeasible:
        return Exact(places=None, bound=0.0, is_proven=False)
    bound = max(0.0, float(info.mip_dual_bound) / unit - SAFETY * problem.mean)
    if not np.isfinite(bound):
        bound = 0.0
    places = _read(model)
    if status != highspy.HighsModelStatus.kOptimal or places is None:
        return Exact(places=places, bound=bound, is_proven=False)
    reached = problem.score(places).distance
    highs.changeColBounds(d, 0.0, reached * unit + 10 * TOLERANCE)
    highs.changeColCost(d, 0.0)
    highs.changeColCost(d + 1, 1.0)
    highs.changeColCost(d + 2, 1.0)
    _offer(model, places)
    highs.run()
    narrow = _read(model)
    if narrow is not None and problem.is_better(problem.score(narrow), problem.score(places)):
        places = narrow
    return Exact(places=places, bound=bound, is_proven=True)


def _classes(problem: Problem) -> list[I64]:
    """Items that cannot be told apart, together."""
    columns = [problem.current, problem.cost, problem.price, problem.state]
    columns += [resource.used for resource in problem.resources.values()]
    table = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    _, where = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(where.ravel(), kind="stable")
    return [part for part in np.split(order, np.cumsum(np.bincount(where.ravel()))[:-1]) if len(part)]


def _build(problem: Problem, *, within_mean: bool) -> _Model:
    """``within_mean``: with (5)."""
    members = _classes(problem)
    unit = SCALE / problem.mean
    slot_of, class_of = [], []
    for number, items in enumerate(members):
        home = int(problem.current[items[0]])
        allowed = np.flatnonzero(problem.is_open | (np.arange(problem.slots) == home))
        slot_of.append(allowed)
        class_of.append(np.full(len(allowed), number))
    slots, classes = np.concatenate(slot_of), np.concatenate(class_of)
    first = np.array([items[0] for items in members])
    sizes = np.array([len(items) for items in members], dtype=np.float64)
    columns = len(slots)
    d, above, below = columns, columns + 1, columns + 2
    rows = _Rows()
    starts = np.searchsorted(classes, np.arange(len(members) + 1))
    for number in range(len(members)):
        own = np.arange(starts[number], starts[number + 1])
        rows.add(sizes[number], sizes[number], own, np.ones(len(own)))
    by_slot = [np.flatnonzero(slots == slot) for slot in range(problem.slots)]
    for slot in range(problem.slots):
        mine = by_slot[slot]
        capacity = float(problem.capacity[slot])
        load = problem.cost[first[classes[mine]]] * (unit / capacity)
        room = SCALE - float(problem.fixed_cost[slot]) * unit / capacity
        rows.add(-highspy.kHighsInf, room, np.append(mine, above), np.append(load, -1.0))
        if problem.is_open[slot]:
            rows.add(room, highspy.kHighsInf, np.append(mine, below), np.append(load, 1.0))
        for resource in problem.resources.values():
            if np.isposinf(resource.cap[slot]):
                continue
            spare = float(resource.cap[slot] - resource.fixed[slot])
            size = max(1.0, float(resource.cap[slot]))
            # One item of twice the cap is one too many as well, and HiGHS takes no numbers that are much larger.
            used = np.minimum(resource.used[first[classes[mine]]], 2 * size)
            rows.add(-highspy.kHighsInf, spare / size * SCALE, mine, used / size * SCALE)
    if within_mean:
        rows.add(-highspy.kHighsInf, SCALE, np.array([d]), np.array([1.0]))
    for side in (above, below):
        rows.add(-highspy.kHighsInf, 0.0, np.array([side, d]), np.array([1.0, -1.0]))
    if problem.budget is not None:
        moving = np.flatnonzero(slots != problem.current[first[classes]])
        price = problem.price[first[classes[moving]]]
        size = max(1.0, float(price.max(initial=0.0)))
        rows.add(-highspy.kHighsInf, problem.budget / size, moving, price / size)
    lp = highspy.HighsLp()
    lp.num_col_ = columns + 3
    lp.num_row_ = len(rows.lower)
    lp.col_cost_ = np.zeros(columns + 3)
    lp.col_lower_ = np.zeros(columns + 3)
    lp.col_upper_ = np.append(sizes[classes], np.full(3, highspy.kHighsInf))
    lp.row_lower_ = np.array(rows.lower)
    lp.row_upper_ = np.array(rows.upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0] + [len(part) for part in rows.index]).astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate(rows.index).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate(rows.value)
    kinds = [highspy.HighsVarType.kInteger] * columns + [highspy.HighsVarType.kContinuous] * 3
    lp.integrality_ = kinds
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": TOLERANCE,
        "mip_feasibility_tolerance": TOLERANCE,
        "primal_feasibility_tolerance": TOLERANCE,
    }.items():
        highs.setOptionValue(option, value)
    status = highs.passModel(lp)
    if status == highspy.HighsStatus.kError:
        raise SolverError.status("HiGHS", status)
    return _Model(problem, members, slots, classes, highs)


class _Rows:
    """Rows of a constraint matrix, as they are added."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.index: list[I64] = []
        self.value: list[F64] = []

    def add(self, lower: float, upper: float, index: I64, value: F64) -> None:
        self.lower.append(lower)
        self.upper.append(upper)
        self.index.append(index)
        self.value.append(value)


def _offer(model: _Model, places: I32) -> None:
    """Hand HiGHS places as a first solution."""
    problem = model.problem
    values = np.zeros(model.d + 3)
    for column, (slot, number) in enumerate(zip(model.slot_of, model.class_of, strict=True)):
        values[column] = np.count_nonzero(places[model.members[number]] == slot)
    off = (problem.loads(places) - problem.mean) * (SCALE / problem.mean)
    above, below = max(0.0, float(off.max())), max(0.0, float(-off[problem.is_open].min()))
    values[model.d :] = max(above, below), above, below
    solution = highspy.HighsSolution()
    solution.col_value = values.tolist()
    model.highs.setSolution(solution)


def _read(model: _Model) -> I32 | None:
    """The places of HiGHS' best solution; None where it has none."""
    problem = model.problem
    if model.highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    values = np.rint(np.array(model.highs.getSolution().col_value)[: model.d]).astype(np.int64)
    places = np.array(problem.current, dtype=np.int32)
    for number, items in enumerate(model.members):
        mine = np.flatnonzero(model.class_of == number)
        # Twins that stay are the first of the class: which of them moves makes no difference, but must be settled.
        order = mine[np.argsort(model.slot_of[mine] != problem.current[items[0]], kind="stable")]
        spread = np.repeat(model.slot_of[order], values[order])
        if len(spread) != len(items):
            return None
        places[items] = spread
    return places if problem.admits(places) else None
