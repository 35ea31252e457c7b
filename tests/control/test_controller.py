"""What the controller decides, interval by interval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from headgate.control import MOVES_SHOWN, Controller, OperatorLoad, Policy, Verdict, hot_keys
from headgate.control.stages import Stages
from headgate.errors import AssignmentError, LimitsError
from headgate.planners import LLFD, Hash, Limits, Mixed, Planner
from headgate.planners.base import Decision
from headgate.planners.items import Items
from headgate.routing import Assignment, Pins, key_hash

GROUPS = 64
KEYS = key_hash(np.arange(200))
HOME = Assignment.hashed(2, GROUPS)
PER_SLOT = 20
OF_SLOT = [np.flatnonzero(HOME.route(KEYS) == slot)[:PER_SLOT] for slot in range(2)]


def reports(
    costs: dict[int, float], assignment: Assignment, *, limit: int = 100, operator: int = 0
) -> list[OperatorLoad]:
    """What slots report when these keys have these costs."""
    keys = np.array(sorted(costs), dtype=np.int64)
    cost = np.array([costs[int(key)] for key in keys], dtype=np.float64)
    slots = assignment.route(KEYS[keys], operator)
    loads = []
    for slot in range(assignment.slots):
        mine = np.flatnonzero(slots == slot)
        loads.append(
            OperatorLoad.of_keys(
                operator,
                slot,
                float(cost[mine].sum()),
                hashes=KEYS[keys[mine]],
                tuples=np.ones(len(mine), dtype=np.int64),
                cost=cost[mine],
                state_bytes=np.full(len(mine), 10.0),
                groups=GROUPS,
                limit=limit,
                pinned=assignment.pins.of_operator(operator)[0],
                label=lambda rows, mine=mine: [int(keys[mine[row]]) for row in rows],  # type: ignore[misc]
            )
        )
    return loads


def spread(first: float, second: float) -> dict[int, float]:
    """Costs that add up to these two on the slots where plain hashing has the keys."""
    costs = {int(key): first / PER_SLOT for key in OF_SLOT[0]}
    return costs | {int(key): second / PER_SLOT for key in OF_SLOT[1]}


def play(
    controller: Controller, timeline: Sequence[tuple[float, float]], assignment: Assignment = HOME
) -> tuple[list[Verdict], Assignment]:
    """Each interval: observe, decide, apply at the boundary."""
    verdicts = []
    for batch, loads in enumerate(timeline):
        controller.observe(batch, reports(spread(*loads), assignment))
        assert controller.due()
        verdict = controller.decide(assignment)
        assert not controller.due()
        if verdict.assignment is not None:
            assignment = verdict.assignment
            controller.applied(verdict)
        verdicts.append(verdict)
    return verdicts, assignment


EVEN, LEFT, RIGHT = (100.0, 100.0), (160.0, 80.0), (80.0, 160.0)


@pytest.mark.parametrize(
    ("policy", "timeline", "kinds"),
    [
        pytest.param({}, [EVEN], ["balanced"], id="nothing to do"),
        pytest.param({}, [LEFT, LEFT, LEFT], ["plan", "balanced", "balanced"], id="acts at once, then rests"),
        pytest.param({}, [(104, 96)], ["balanced"], id="theta 0.04 is within 0.08"),
        pytest.param({}, [(110, 90)], ["plan"], id="theta 0.10 is not"),
        pytest.param({"patience": 2}, [LEFT, LEFT], ["skipped", "plan"], id="patience: the second interval"),
        pytest.param(
            {"patience": 2, "smoothing": 1.0},
            [LEFT, EVEN, LEFT],
            ["skipped", "balanced", "skipped"],
            id="patience starts anew after rest",
        ),
        pytest.param(
            {"cooldown": 2},
            [LEFT, RIGHT, RIGHT, RIGHT],
            ["plan", "skipped", "skipped", "plan"],
            id="cooling down for two intervals",
        ),
        pytest.param({}, [LEFT, RIGHT, RIGHT], ["plan", "plan", "balanced"], id="a shift right after a plan"),
        pytest.param({}, [EVEN, (112, 88), EVEN], ["balanced"] * 3, id="a small wave passes: costs are smoothed"),
        pytest.param({}, [EVEN, *[(112, 88)] * 4], [*["balanced"] * 4, "plan"], id="one that stays does not"),
        pytest.param({"min_gain": 0.3}, [LEFT], ["skipped"], id="a plan can win a quarter at most"),
        pytest.param({"limits": Limits(theta_max=0.5)}, [LEFT], ["balanced"], id="a wide tolerance"),
    ],
)
def test_timelines(policy: dict[str, object], timeline: list[tuple[float, float]], kinds: list[str]) -> None:
    verdicts, _ = play(Controller(Mixed(), Policy(**policy), groups=GROUPS), timeline)  # type: ignore[arg-type]
    assert [verdict.entries[0].kind for verdict in verdicts] == kinds


@pytest.mark.parametrize(
    ("policy", "timeline", "text"),
    [
        ({}, [EVEN], "theta 0.000 <= 0.08"),
        ({"patience": 3}, [LEFT], r"theta 0.333 > 0.08 for 1 interval\(s\): acts after 3"),
        ({"cooldown": 2}, [LEFT, RIGHT], r"theta 0.\d+ > 0.08, but cooling down after the last plan: 2 more interval"),
        ({"min_gain": 0.3}, [LEFT], "no placement can win more than 25.0% of the highest load, .* from 30.0% on"),
        ({}, [LEFT], r"mixed moves \d+ key\(s\) and 0 key group\(s\) with \d+ bytes of state: theta 0.333 to 0.0"),
    ],
)
def test_the_reason_is_told(policy: dict[str, object], timeline: list[tuple[float, float]], text: str) -> None:
    verdicts, _ = play(Controller(Mixed(), Policy(**policy), groups=GROUPS), timeline)  # type: ignore[arg-type]
    assert re.search(text, verdicts[-1].entries[0].reason)


def test_a_plan_is_told_move_by_move() -> None:
    (verdict,), assignment = play(Controller(Mixed(), groups=GROUPS, names=("count",)), [LEFT])
    plan, *moves = verdict.entries
    assert verdict.made_for == 0
    assert assignment.version == 1
    assert verdict.changes
    assert plan.details["planner"] == "mixed"
    assert verdict.moved_keys == len(moves) == len(assignment.pins)
    assert verdict.moved_bytes == 10.0 * len(moves)
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.before.max_over_mean == pytest.approx(4 / 3)
    assert verdict.after.theta_max <= 0.02 + 1e-9
    for move in moves:
        assert (move.kind, move.operator, move.source, move.target) == ("move", "count", 0, 1)
        assert move.key in OF_SLOT[0]
        assert "slot 0 is 33.3% over the mean" in move.reason


def test_a_long_plan_names_the_costliest_moves_only() -> None:
    everything = {key: 1.0 + key / 1000 for key in range(200)}
    alone = Assignment(np.zeros(GROUPS, dtype=np.int32), 2)
    controller = Controller(Mixed(), groups=GROUPS)
    controller.observe(0, reports(everything, alone, limit=500))
    verdict = controller.decide(alone)
    moves = [entry for entry in verdict.entries if entry.kind == "move"]
    assert verdict.moved_keys > MOVES_SHOWN == len(moves)
    costs = [float(str(entry.details["cost"])) for entry in moves]
    assert costs == sorted(costs, reverse=True)


def test_a_key_too_hot_for_any_slot_is_left_alone() -> None:
    controller = Controller(Mixed(), groups=GROUPS)
    hottest = int(OF_SLOT[0][0])
    costs = {hottest: 200.0} | {int(key): 1.0 for key in OF_SLOT[1]}
    controller.observe(0, reports(costs, HOME))
    entry = controller.decide(HOME).entries[0]
    assert entry.kind == "skipped"
    assert "no placement can win more than 0.0% of the highest load" in entry.reason


def test_groups_leave_the_slot_of_a_key_too_hot_for_it() -> None:
    """The hot key has 1.5 times a slot's share; the keys beside it are not listed, so no plan for keys moves them."""
    hottest = int(OF_SLOT[0][0])
    costs = {hottest: 120.0} | {int(key): 1.0 for key in np.concatenate(OF_SLOT)[1:]}
    results = {}
    for level in (False, True):
        controller = Controller(Mixed(), Policy(level_groups=level), groups=GROUPS)
        controller.observe(0, reports(costs, HOME, limit=1))
        results[level] = controller.decide(HOME)
    assert results[False].assignment is None
    levelled = results[True]
    assert levelled.assignment is not None
    assert levelled.assignment.version == 1
    assert levelled.moved_groups == np.count_nonzero(levelled.assignment.groups == 1) - np.count_nonzero(
        HOME.groups == 1
    )
    assert levelled.assignment.route(KEYS[[hottest]])[0] == 0
    others = levelled.assignment.route(KEYS[OF_SLOT[0][1:]])
    assert others.tolist() == [1] * (PER_SLOT - 1)
    assert levelled.after is not None
    assert levelled.after.loads.tolist() == pytest.approx([120.0, 39.0])
    assert {entry.key is None for entry in levelled.entries if entry.kind == "move"} == {True}


@pytest.mark.parametrize(
    "limits", [Limits(max_migrations=3), Limits(max_migration_cost=25.0)], ids=["three moves", "25 bytes"]
)
def test_limits_on_migration_hold_and_what_they_refuse_is_told(limits: Limits) -> None:
    controller = Controller(Mixed(), Policy(limits=limits), groups=GROUPS)
    controller.observe(0, reports(spread(*LEFT), HOME))
    verdict = controller.decide(HOME)
    assert verdict.moved_keys + verdict.moved_groups <= 3
    assert verdict.moved_bytes <= 30.0
    assert verdict.assignment is not None
    refused = [entry for entry in verdict.entries if entry.kind == "refused"]
    assert refused
    assert {entry.reason for entry in refused} == {"would help, but the limit on migration is reached"}


def test_a_draining_slot_is_emptied_without_waiting() -> None:
    controller = Controller(Mixed(), Policy(patience=5, min_gain=0.9), groups=GROUPS)
    draining = HOME.drain(0)
    controller.observe(0, reports(spread(*EVEN), draining))
    verdict = controller.decide(draining)
    assert verdict.assignment is not None
    assert verdict.assignment.route(KEYS[:200]).tolist() == [1] * 200
    assert verdict.made_for == draining.version
    controller.observe(1, reports(spread(*EVEN), verdict.assignment))
    assert controller.decide(verdict.assignment).entries[0].kind == "balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Planner):
    """Raises what it is given."""

    name: ClassVar[str] = "broken"
    error: Exception

    def decide(self, items: Items, limits: Limits) -> Decision:
        raise self.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ZeroDivisionError("by zero"), "broken failed, everything stays: ZeroDivisionError: by zero"),
        (LimitsError("caps"), "broken could not plan, everything stays: caps"),
    ],
)
def test_a_planner_that_fails_is_an_entry_and_no_crash(error: Exception, text: str) -> None:
    (first, second), assignment = play(Controller(Broken(error=error), groups=GROUPS), [LEFT, LEFT])
    assert assignment is HOME
    assert first.entries[0].kind == second.entries[0].kind == "failed"
    assert first.entries[0].reason == text
    assert not first.changes


def test_a_late_plan_is_stale() -> None:
    controller = Controller(Mixed(), groups=GROUPS)
    controller.observe(4, reports(spread(*LEFT), HOME))
    verdict = controller.decide(HOME)
    entry = controller.stale(verdict, 3)
    assert (entry.kind, entry.batch) == ("stale", 4)
    assert entry.reason.startswith("the plan was made for version 0 of the assignment and 3 is in use by now")


def test_an_interval_may_be_several_batches() -> None:
    """Three batches, each one-sided, are level together."""
    controller = Controller(Mixed(), Policy(every=3), groups=GROUPS)
    due = []
    for batch, loads in enumerate([(150, 50), (50, 150), (100, 100)]):
        controller.observe(batch, reports(spread(*loads), HOME))
        due.append(controller.due())
    assert due == [False, False, True]
    verdict = controller.decide(HOME)
    assert (verdict.entries[0].kind, verdict.batch) == ("balanced", 2)
    assert not controller.due()


def test_empty_batches_keep_the_last_statistics() -> None:
    controller = Controller(Mixed(), groups=GROUPS)
    assert controller.tally is None
    assert controller.balance(HOME) is None
    controller.observe(0, [])
    assert not controller.due()
    controller.observe(1, reports(spread(*LEFT), HOME))
    controller.observe(2, [])
    balance = controller.balance(HOME)
    assert balance is not None
    assert balance.max_over_mean == pytest.approx(4 / 3)


def test_without_a_planner_nothing_is_due_and_nothing_said() -> None:
    controller = Controller(None, groups=GROUPS)
    controller.observe(0, reports(spread(*LEFT), HOME))
    assert not controller.due()
    assert controller.decide(HOME).entries == ()
    entry = controller.set_planner(LLFD(), 7)
    assert (entry.kind, entry.batch, entry.reason) == ("balance", 7, "llfd plans from now on")
    assert controller.decide(HOME).entries[0].kind == "plan"
    assert controller.set_planner(None, 8).reason == "nobody plans from now on: everything stays"


def test_a_planner_with_another_aim_is_asked_even_if_all_is_level() -> None:
    """Hash sends everything home; that gains nothing, so it is told and not done."""
    away = HOME.next(pins=Pins.of([0], KEYS[OF_SLOT[0][:1]], [1]))
    controller = Controller(Hash(), groups=GROUPS)
    controller.observe(0, reports({int(OF_SLOT[0][0]): 1.0, int(OF_SLOT[0][1]): 1.0}, away))
    verdict = controller.decide(away)
    assert verdict.assignment is None
    assert verdict.entries[0].reason.startswith("gain too small: the plan would win -100.0%")


class TestSplitting:
    def decide(self, cost: float, split: Sequence[np.ndarray] = (), combines: bool = True) -> Verdict:
        controller = Controller(Mixed(), groups=GROUPS, names=("count",), combines=(combines,))
        costs = spread(100.0, 100.0) | {199: cost}
        controller.observe(0, reports(costs, HOME))
        return controller.decide(HOME, split=split)

    @pytest.mark.parametrize(
        ("cost", "is_split", "kind"),
        [
            pytest.param(30.0, False, "split", id="above a fifth of a slot's share it is split"),
            pytest.param(15.0, False, None, id="below it is not"),
            pytest.param(15.0, True, None, id="a split key stays split above a tenth"),
            pytest.param(5.0, True, "joined", id="and is joined below"),
        ],
    )
    def test_hot_keys_are_split_with_hysteresis(self, cost: float, is_split: bool, kind: str | None) -> None:
        verdict = self.decide(cost, [KEYS[199:]] if is_split else [KEYS[:0]])
        entries = [entry for entry in verdict.entries if entry.kind == "split"]
        if kind is None:
            assert verdict.split is None
            assert entries == []
        else:
            assert verdict.split is not None
            assert verdict.split[0].tolist() == (KEYS[199:].tolist() if kind == "split" else [])
            assert entries[0].key == 199
            assert ("spread over all slots" if kind == "split" else "back in one slot") in entries[0].reason

    def test_the_plan_leaves_split_keys_out(self) -> None:
        verdict = self.decide(500.0)
        assert verdict.before is not None
        assert verdict.before.loads.tolist() == pytest.approx([100.0, 100.0])
        assert [entry.kind for entry in verdict.entries] == ["split", "balanced"]

    def test_keys_of_other_operators_stay_whole(self) -> None:
        assert self.decide(500.0, combines=False).split is None

    def test_hot_keys_are_those_above_the_share(self) -> None:
        controller = Controller(Mixed(), groups=GROUPS)
        controller.observe(0, reports({0: 50.0, 1: 30.0, 2: 20.0}, HOME))
        assert controller.tally is not None
        snapshot = controller.tally.snapshot(HOME)
        (mean,), (bar,) = Stages.at_once(1).hot_bars(snapshot, HOME, 0.5, 0.08)
        assert (mean, bar) == (50.0, 25.0)
        assert hot_keys(snapshot, 0, bar).tolist() == sorted(KEYS[[0, 1]].tolist())
        assert hot_keys(snapshot, 0, mean).tolist() == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"every": 0}, "Policy: every must be at least 1 micro-batch, got 0"),
        ({"target": 0}, "Policy: target must be above 0 and at most 1, got 0"),
        ({"min_gain": 1}, "Policy: min_gain must be at least 0 and below 1, got 1"),
        ({"cooldown": -1}, "Policy: cooldown must be zero or more intervals, got -1"),
        ({"patience": 0}, "Policy: patience must be at least 1 interval, got 0"),
        ({"smoothing": 0}, "Policy: smoothing must be above 0 and at most 1, got 0"),
        ({"shift": -0.1}, "Policy: shift must be zero or more, got -0.1"),
        ({"split_share": 0}, "Policy: split_share must be above 0, or None, got 0"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(values: dict[str, float], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        Policy(**values)  # type: ignore[arg-type]


def test_combines_must_name_every_operator() -> None:
    with pytest.raises(AssignmentError, match="for each of 2 operators whether its keys may be split, got 1 values"):
        Controller(Mixed(), names=("a", "b"), combines=(True,))
