"""Reports of slots become the statistics of an interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control import Interval, OperatorLoad, heaviest
from headgate.errors import AssignmentError, LimitsError, SnapshotError
from headgate.routing import Assignment, Pins, key_hash
from headgate.routing.groups import group_of
from headgate.stats import measure

GROUPS = 8
KEYS = key_hash(np.arange(100))


def report(slot: int, keys: list[int], cost: list[float], *, limit: int = 2, operator: int = 0) -> OperatorLoad:
    return OperatorLoad.of_keys(
        operator,
        slot,
        sum(cost),
        hashes=KEYS[keys],
        tuples=np.array([10 * value for value in cost], dtype=np.int64),
        cost=np.array(cost),
        state_bytes=np.array(keys, dtype=np.float64) * 10,
        groups=GROUPS,
        limit=limit,
        label=lambda rows: [keys[row] for row in rows],
    )


class TestHeaviest:
    @pytest.mark.parametrize(
        ("cost", "limit", "pinned", "rows"),
        [
            pytest.param([5, 1, 9, 3], 2, [], [0, 2], id="the costliest, in the order of the rows"),
            pytest.param([5, 1, 9, 3], 9, [], [0, 1, 2, 3], id="all of them if the limit allows"),
            pytest.param([5, 0, 9, 0], 9, [], [0, 2], id="not those that cost nothing"),
            pytest.param([5, 0, 9, 3], 1, [1, 3], [1, 2, 3], id="pinned keys besides the limit, whatever they cost"),
            pytest.param([5, 5, 5, 9], 2, [], [0, 3], id="of equal cost the smaller hash"),
            pytest.param([5, 1, 9, 3], 0, [], [], id="a limit of zero lists nothing"),
            pytest.param([], 3, [], [], id="no keys"),
        ],
    )
    def test_which_keys_are_listed(self, cost: list[float], limit: int, pinned: list[int], rows: list[int]) -> None:
        hashes = np.arange(len(cost), dtype=np.int64)
        assert heaviest(hashes, np.array(cost, dtype=float), limit, np.array(pinned, dtype=np.int64)).tolist() == rows

    def test_a_negative_limit_is_refused(self) -> None:
        with pytest.raises(LimitsError, match="heaviest: limit must be zero or more keys, got -1"):
            heaviest(np.array([1]), np.array([1.0]), -1)

    @given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 10))
    def test_the_order_of_the_rows_makes_no_difference(self, cost: list[int], limit: int) -> None:
        hashes, values = np.arange(len(cost), dtype=np.int64), np.array(cost, dtype=float)
        other = np.random.default_rng(0).permutation(len(cost))
        one = hashes[heaviest(hashes, values, limit)]
        two = hashes[other][heaviest(hashes[other], values[other], limit)]
        assert sorted(one) == sorted(two)


class TestReport:
    def test_costs_add_up_per_group_and_the_heavy_keys_are_among_them(self) -> None:
        load = report(3, [0, 1, 2, 3], [4.0, 1.0, 7.0, 2.0])
        assert load.cost.sum() == 14.0
        assert load.tuples.sum() == 140
        assert load.heavy_label == (0, 2)
        assert load.heavy_cost.tolist() == [4.0, 7.0]
        assert load.heavy_bytes.tolist() == [0.0, 20.0]
        assert load.group.tolist() == sorted(set(group_of(KEYS[:4], GROUPS).tolist()))

    def test_without_costs_the_busy_seconds_are_shared_out_by_tuples(self) -> None:
        load = OperatorLoad.of_keys(
            0, 0, 3.0, hashes=KEYS[:2], tuples=np.array([10, 20]), state_bytes=np.zeros(2), groups=GROUPS
        )
        assert sorted(load.heavy_cost.tolist()) == [1.0, 2.0]
        assert load.heavy_label == ()

    @pytest.mark.parametrize("column", ["tuples", "heavy_cost", "heavy_label"])
    def test_columns_of_unequal_length_are_refused(self, column: str) -> None:
        values: dict[str, object] = {
            "group": np.array([1], dtype=np.int32),
            "tuples": np.array([1]),
            "cost": np.array([1.0]),
            "heavy_hash": np.array([1]),
            "heavy_tuples": np.array([1]),
            "heavy_cost": np.array([1.0]),
            "heavy_bytes": np.array([1.0]),
            "heavy_label": ("a",),
            column: np.zeros(3) if column != "heavy_label" else ("a", "b", "c"),
        }
        with pytest.raises(SnapshotError, match=f"expected 1 {column}, got 3"):
            OperatorLoad(operator=0, slot=0, seconds=1.0, **values)  # type: ignore[arg-type]


class TestInterval:
    def test_batches_add_up_and_what_is_not_listed_stays_with_the_group(self) -> None:
        """
        batch   slot 0: key 0, 1, 2      listed
        1               6  1  2          0, 2
        2               6  5  2          0, 1
        """
        interval = Interval(GROUPS)
        interval.add(1, [report(0, [0, 1, 2], [6.0, 1.0, 2.0])], [np.full(GROUPS, 100.0)])
        interval.add(2, [report(0, [0, 1, 2], [6.0, 5.0, 2.0])], [np.full(GROUPS, 300.0)])
        snapshot = interval.tally().snapshot(Assignment.hashed(2, GROUPS))
        costs = dict(zip(snapshot.labels or (), snapshot.cost.tolist(), strict=True))
        assert costs == {0: 12.0, 1: 5.0, 2: 2.0}
        assert snapshot.rest_cost.sum() == pytest.approx(1.0 + 2.0)
        assert snapshot.total_cost == pytest.approx(22.0)
        assert snapshot.tuples.sum() + snapshot.rest_tuples.sum() == 220
        assert snapshot.total_state_bytes == pytest.approx(300.0 * GROUPS)
        assert snapshot.interval == 2
        assert interval.batches == 2

    def test_the_state_of_a_pinned_key_is_not_part_of_its_group(self) -> None:
        group = int(group_of(KEYS[5:6], GROUPS)[0])
        home = Assignment.hashed(2, GROUPS)
        away = 1 - int(home.groups[group])
        pinned = home.next(pins=Pins.of([0], KEYS[5:6], [away]))
        interval = Interval(GROUPS)
        interval.add(0, [report(0, [5], [1.0])], [np.full(GROUPS, 70.0)])
        tally = interval.tally()
        assert tally.snapshot(home).rest_state_bytes[group] == 20.0
        assert tally.snapshot(pinned).rest_state_bytes[group] == 70.0

    def test_state_counted_by_place_may_be_longer_than_the_groups(self) -> None:
        interval = Interval(GROUPS)
        interval.add(0, [], [np.arange(GROUPS + 3)])
        assert interval.tally().group_state.tolist() == list(range(GROUPS))

    def test_the_next_interval_starts_from_the_state_and_nothing_else(self) -> None:
        interval = Interval(GROUPS)
        interval.add(0, [report(1, [1, 2], [1.0, 2.0])], [np.full(GROUPS, 70.0)])
        following = interval.next().tally()
        assert following.total_cost == 0
        assert len(following) == 0
        assert following.group_state.tolist() == [70.0] * GROUPS

    def test_split_keys_are_left_out_with_their_cost(self) -> None:
        interval = Interval(GROUPS)
        interval.add(0, [report(0, [0, 1], [6.0, 1.0]), report(1, [0, 2], [6.0, 2.0])])
        tally = interval.tally()
        everything = tally.snapshot(Assignment.hashed(2, GROUPS))
        rest = tally.snapshot(Assignment.hashed(2, GROUPS), split=[KEYS[:1]])
        assert everything.total_cost == pytest.approx(15.0)
        assert rest.total_cost == pytest.approx(3.0)
        assert set(rest.labels or ()) == {1, 2}

    def test_operators_are_kept_apart(self) -> None:
        interval = Interval(GROUPS, operators=2)
        interval.add(0, [report(0, [0], [6.0]), report(0, [0], [2.0], operator=1)])
        snapshot = interval.tally().snapshot(Assignment.hashed(2, GROUPS, operators=2), names=("count", "join"))
        assert snapshot.operator.tolist() == [0, 1]
        assert snapshot.cost.tolist() == [6.0, 2.0]
        assert snapshot.group.tolist() == [int(group_of(KEYS[:1], GROUPS)[0]) + offset for offset in (0, GROUPS)]
        assert snapshot.operators == ("count", "join")
        assert snapshot.busy_seconds is not None
        assert snapshot.busy_seconds.tolist() == [8.0]

    @pytest.mark.parametrize(
        ("load", "error", "text"),
        [
            pytest.param(
                OperatorLoad(0, 0, 1.0, np.array([9], np.int32), np.array([1]), np.array([1.0])),
                SnapshotError,
                "key groups are numbered 0 to 7, got 9",
                id="a group that does not exist",
            ),
            pytest.param(
                OperatorLoad(3, 0, 1.0, np.array([1], np.int32), np.array([1]), np.array([1.0])),
                AssignmentError,
                "operators are numbered 0 to 0, got 3",
                id="an operator that does not exist",
            ),
        ],
    )
    def test_a_report_that_does_not_fit_adds_nothing(
        self, load: OperatorLoad, error: type[Exception], text: str
    ) -> None:
        interval = Interval(GROUPS)
        with pytest.raises(error, match=text):
            interval.add(0, [report(0, [0], [6.0]), load])
        assert interval.tally().total_cost == 0
        assert interval.batches == 0

    def test_too_few_state_values_are_refused(self) -> None:
        with pytest.raises(SnapshotError, match="expected 8 state_bytes, got 3"):
            Interval(GROUPS).add(0, [], [np.zeros(3)])

    def test_an_assignment_of_other_groups_is_refused(self) -> None:
        with pytest.raises(AssignmentError, match="counts 8 key groups and the assignment places 16"):
            Interval(GROUPS).tally().snapshot(Assignment.hashed(2, 16))

    @given(st.lists(st.lists(st.integers(0, 99), unique=True, max_size=20), max_size=6), st.integers(0, 5))
    def test_no_cost_is_lost_however_few_keys_are_listed(self, batches: list[list[int]], limit: int) -> None:
        assignment = Assignment.hashed(3, GROUPS)
        interval, total = Interval(GROUPS), np.zeros(3)
        for number, keys in enumerate(batches):
            slots = assignment.route(KEYS[keys])
            for slot in range(3):
                mine = [key for key, place in zip(keys, slots, strict=True) if place == slot]
                interval.add(number, [report(slot, mine, [key + 1.0 for key in mine], limit=limit)])
                total[slot] += sum(mine) + len(mine)
        snapshot = interval.tally().snapshot(assignment)
        assert measure(snapshot, assignment).loads == pytest.approx(total)


class TestBlending:
    def blend(self, old: list[float], new: list[float], *, limit: int = 9) -> dict[object, float]:
        tallies = []
        for cost in (old, new):
            interval = Interval(GROUPS)
            interval.add(0, [report(0, list(range(len(cost))), cost, limit=limit)])
            tallies.append(interval.tally())
        blended = tallies[1].blended(tallies[0], 0.5, 0.3)
        return dict(zip(blended.label, np.round(blended.cost, 6).tolist(), strict=True))

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            pytest.param([100, 100], [110, 90], {0: 105.0, 1: 95.0}, id="small changes are averaged"),
            pytest.param([100, 100, 10], [10, 100, 100], {0: 10.0, 1: 100.0, 2: 100.0}, id="a shift counts at once"),
            pytest.param([100, 100], [220, 180], {0: 210.0, 1: 190.0}, id="twice the input is no shift"),
            pytest.param([100, 0], [50, 50], {0: 50.0, 1: 50.0}, id="a key without history keeps its cost"),
            pytest.param([100, 50], [150, 0], {0: 150.0}, id="a key that is gone is not listed"),
        ],
    )
    def test_what_is_smoothed(self, old: list[float], new: list[float], expected: dict[object, float]) -> None:
        assert self.blend(old, new) == expected

    @given(
        st.lists(st.integers(0, 50), min_size=1, max_size=30),
        st.lists(st.integers(0, 50), min_size=1, max_size=30),
        st.integers(0, 5),
        st.floats(0.05, 1.0),
    )
    def test_costs_stay_sound(self, old: list[int], new: list[int], limit: int, weight: float) -> None:
        tallies = []
        for cost in (old, new):
            interval = Interval(GROUPS)
            interval.add(0, [report(0, list(range(len(cost))), [float(value) for value in cost], limit=limit)])
            tallies.append(interval.tally())
        blended = tallies[1].blended(tallies[0], weight, 0.3)
        assert blended.hash.tolist() == tallies[1].hash.tolist()
        snapshot = blended.snapshot(Assignment.hashed(2, GROUPS))
        assert (snapshot.cost >= 0).all()
        # A value is smoothed only where it changed by a share of 0.3 or less, so no total is far from the new one.
        assert snapshot.total_cost == pytest.approx(tallies[1].total_cost, rel=0.5)
