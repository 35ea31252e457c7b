"""Operators that run one after another are levelled each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.arrays import F64
from headgate.control import Controller, Policy
from headgate.control.stages import Stages, joined
from headgate.errors import AssignmentError
from headgate.planners import ALBIC, Flux, Limits, Mixed, Planner
from headgate.routing import Assignment, Pins, key_hash
from headgate.stats import Snapshot
from headgate.stats.loads import OperatorLoad
from headgate.stats.measures import measure

SLOTS, GROUPS, KEYS = 3, 12, 60


def home(operators: int) -> Assignment:
    return Assignment.hashed(SLOTS, GROUPS, operators=operators)


def reports(costs: Sequence[F64], assignment: Assignment) -> list[OperatorLoad]:
    """What slots report: for each operator what its keys 0, 1, 2, ... cost."""
    hashes = key_hash(np.arange(KEYS))
    made = []
    for operator, cost in enumerate(costs):
        slots = assignment.route(hashes, operator)
        for slot in range(SLOTS):
            mine = np.flatnonzero(slots == slot)
            made.append(
                OperatorLoad.of_keys(
                    operator,
                    slot,
                    float(cost[mine].sum()),
                    hashes=hashes[mine],
                    tuples=np.ones(len(mine), dtype=np.int64),
                    cost=cost[mine],
                    state_bytes=np.full(len(mine), 10.0),
                    groups=GROUPS,
                    limit=KEYS,
                    pinned=assignment.pins.of_operator(operator)[0],
                )
            )
    return made


def loaded(operator: int, shares: Sequence[float], operators: int = 2) -> F64:
    """Costs of an operator's keys that put these loads on its slots."""
    slots = home(operators).route(key_hash(np.arange(KEYS)), operator)
    return np.array([shares[slot] for slot in slots]) / np.bincount(slots, minlength=SLOTS)[slots]


def decided(
    planner: Planner, costs: Sequence[F64], stages: Sequence[int], policy: Policy | None = None
) -> tuple[Controller, Assignment | None, str]:
    controller = Controller(planner, policy, names=("one", "two"), groups=GROUPS, stages=stages)
    controller.observe(0, reports(costs, home(2)))
    verdict = controller.decide(home(2))
    return controller, verdict.assignment, verdict.entries[0].reason


OPPOSITE = (loaded(0, (90, 60, 30)), loaded(1, (30, 60, 90)))
"""Level in sum, and each by itself a half above the mean."""


@pytest.mark.parametrize("planner", [Mixed(), Flux()])
def test_opposite_loads_are_level_at_once_and_uneven_in_turn(planner: Planner) -> None:
    _, together, reason = decided(planner, OPPOSITE, (0, 0))
    assert together is None
    assert "theta 0.000" in reason
    controller, in_turn, reason = decided(planner, OPPOSITE, (1, 2))
    assert in_turn is not None
    assert "theta 0.500 to 0.0" in reason
    after = controller.balance(in_turn)
    assert after is not None
    # What a batch waits for: 180 before, 120 if both stages are level.
    assert after.max_over_mean * after.mean < 0.7 * 180
    both = controller.stages.measures(_snapshot(OPPOSITE), in_turn)
    assert [part.max_over_mean < 1.1 for part in both] == [True, True]


def test_a_stage_that_is_level_stays_as_it_is() -> None:
    _, after, _ = decided(Flux(), (loaded(0, (90, 60, 30)), loaded(1, (60, 60, 60))), (1, 2))
    assert after is not None
    assert not np.array_equal(after.groups[:GROUPS], home(2).groups[:GROUPS])
    assert np.array_equal(after.groups[GROUPS:], home(2).groups[GROUPS:])


def test_a_stage_that_hardly_counts_does_not_set_anything_in_motion() -> None:
    light = (loaded(0, (600, 600, 600)), loaded(1, (9, 6, 3)))
    _, after, reason = decided(Flux(), light, (1, 2))
    assert after is None
    assert "theta 0.005 <= 0.08" in reason


@pytest.mark.parametrize(
    ("min_load", "stays"),
    [(0.0, False), (17.0, False), (19.0, True)],
    ids=["nothing is too little", "half of it for each of two stages, and 9 is more", "9 is less than half of it"],
)
def test_a_stage_that_is_hardly_busy_stays_while_another_is_levelled(min_load: float, stays: bool) -> None:
    policy = Policy(limits=Limits(theta_max=0.005), min_load=min_load, min_gain=0.0)
    _, after, _ = decided(Flux(), (loaded(0, (900, 600, 300)), loaded(1, (9, 6, 3))), (1, 2), policy)
    assert after is not None
    assert not np.array_equal(after.groups[:GROUPS], home(2).groups[:GROUPS])
    assert np.array_equal(after.groups[GROUPS:], home(2).groups[GROUPS:]) is stays


def test_a_slot_drains_however_little_it_has_to_do() -> None:
    controller = Controller(Flux(), Policy(min_load=1e6), names=("one", "two"), groups=GROUPS, stages=(1, 2))
    draining = home(2).drain(2)
    controller.observe(0, reports(OPPOSITE, draining))
    after = controller.decide(draining).assignment
    assert after is not None
    assert not (after.groups == 2).any()


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_limits_hold_for_all_stages_together(limit: int) -> None:
    policy = Policy(limits=Limits(max_migrations=limit), min_gain=0.0)
    _, after, _ = decided(Flux(), OPPOSITE, (1, 2), policy)
    moved = 0 if after is None else int(np.count_nonzero(after.groups != home(2).groups))
    assert moved == limit


@pytest.mark.parametrize("limit", [0, 3, 8])
def test_the_table_is_shared(limit: int) -> None:
    policy = Policy(limits=Limits(table_max=limit), min_gain=0.0, level_groups=False)
    _, after, _ = decided(Mixed(), OPPOSITE, (1, 2), policy)
    assert len((after or home(2)).pins) <= limit
    assert after is not None or not limit


@pytest.mark.parametrize(
    ("planner", "limits"),
    [(ALBIC(), Limits()), (Flux(), Limits(caps={"state_bytes": 1e9}))],
    ids=["collocates", "caps"],
)
def test_what_is_about_all_operators_sees_them_at_once(planner: Planner, limits: Limits) -> None:
    controller = Controller(planner, Policy(limits=limits), names=("one", "two"), groups=GROUPS, stages=(1, 2))
    controller.observe(0, reports(OPPOSITE, home(2)))
    before = controller.decide(home(2)).before
    assert before is not None
    assert before.theta_max == pytest.approx(0)


def test_a_draining_slot_is_emptied_in_every_stage() -> None:
    controller = Controller(Flux(), names=("one", "two"), groups=GROUPS, stages=(1, 2))
    draining = home(2).drain(2)
    controller.observe(0, reports(OPPOSITE, draining))
    after = controller.decide(draining).assignment
    assert after is not None
    assert not (after.groups == 2).any()
    assert after.draining == {2}
    assert after.version == draining.version + 1


def _with(cost: F64, key: int, own: float) -> F64:
    changed = cost.copy()
    changed[key] = own
    return changed


@pytest.mark.parametrize(
    ("heavy", "light", "own", "stages", "split"),
    [
        pytest.param(600, 150, 40, (1, 2), True, id="hot in its stage, and enough to hold the batch up"),
        pytest.param(600, 150, 40, (0, 0), False, id="not hot beside operators that run at the same time"),
        pytest.param(600, 15, 10, (1, 2), False, id="hot in its stage, but too little to hold the batch up"),
        pytest.param(600, 600, 40, (1, 2), False, id="enough to hold the batch up, but not hot in its stage"),
        pytest.param(0, 150, 40, (1, 2), True, id="nothing else has anything to do"),
    ],
)
def test_a_key_is_hot_by_the_load_of_its_stage(
    heavy: float, light: float, own: float, stages: tuple[int, int], split: bool
) -> None:
    """A fifth of a slot's share of the stage, and theta_max (0.08) of what a slot has to do in all stages."""
    costs = (loaded(0, [heavy / SLOTS] * SLOTS), _with(loaded(1, [light / SLOTS] * SLOTS), 7, own))
    controller = Controller(Flux(), names=("one", "two"), groups=GROUPS, combines=(True, True), stages=stages)
    controller.observe(0, reports(costs, home(2)))
    verdict = controller.decide(home(2), split=[np.empty(0, np.int64)] * 2)
    assert (verdict.split is not None) == split
    if verdict.split is not None:
        assert [keys.tolist() for keys in verdict.split] == [[], [key_hash(np.arange(KEYS))[7]]]
        (entry,) = (entry for entry in verdict.entries if entry.kind == "split")
        assert "of a slot's share of its stage, more than " in entry.reason


@pytest.mark.parametrize("stages", [(0, 0), (1, 2)])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.9])
def test_keys_are_split_no_later_than_by_the_load_of_all_stages(stages: tuple[int, int], share: float) -> None:
    snapshot = _snapshot((loaded(0, (90, 60, 30)), loaded(1, (3, 6, 9))))
    means, bars = Stages(stages).hot_bars(snapshot, home(2), share, 0.08)
    everything = snapshot.total_cost / SLOTS
    assert (bars >= share * means).all()
    assert (bars <= share * everything * (1 + 1e-12)).all()


def test_other_stages_after_a_change_of_components() -> None:
    controller, _, _ = decided(Flux(), OPPOSITE, (1, 2))
    controller.rearranged(("both",), (False,), (1,))
    assert controller.stages.single
    with pytest.raises(AssignmentError, match=r"stages must say for each of 1 operators .* got 2 values"):
        controller.rearranged(("both",), (False,), (1, 2))


def _snapshot(costs: Sequence[F64]) -> Snapshot:
    labels = [str(key) for key in range(KEYS)]
    names = [name for name in ("one", "two", "three")[: len(costs)] for _ in labels]
    hashes = np.tile(np.arange(KEYS), len(costs))
    return Snapshot.of_keys(hashes, np.concatenate(costs), operator=names, groups=GROUPS)


@given(
    stages=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_stages_apart_and_joined_are_the_whole(stages: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = _snapshot([rng.random(KEYS) for _ in range(3)])
    pinned = rng.choice(3 * KEYS, 20, replace=False)
    pins = Pins.of(snapshot.operator[pinned], snapshot.hash[pinned], rng.integers(0, SLOTS, 20))
    whole = replace(home(3), groups=rng.integers(0, SLOTS, 3 * GROUPS).astype(np.int32), pins=pins)
    cut = Stages(tuple(stages))
    parts = list(cut.each(snapshot, whole))
    assert sorted(int(one) for part in parts for one in part.operators) == [0, 1, 2]
    assert sum(part.snapshot.total_cost for part in parts) == pytest.approx(snapshot.total_cost)
    for part, balance in zip(parts, cut.measures(snapshot, whole), strict=True):
        assert measure(part.snapshot, part.assignment).loads == pytest.approx(balance.loads)
    assert joined(whole, [(part, part.assignment) for part in parts]) is whole
    again = joined(whole, [(part, part.assignment.next()) for part in parts])
    assert replace(again, version=whole.version) == whole
    if cut.single:
        assert cut.measure(snapshot, whole).theta_max == measure(snapshot, whole).theta_max
    else:
        highest = sum(part.max_over_mean * part.mean for part in cut.measures(snapshot, whole))
        plain = measure(snapshot, whole)
        assert highest >= plain.max_over_mean * plain.mean - 1e-9
