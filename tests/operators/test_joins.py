"""Joins within a time bound: timelines by hand, every type of column, then random rows against all pairs, however they
are cut into batches."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import JobError
from headgate.operators import LEFT, NO_TIMER, NO_WATERMARK, RIGHT, How, IntervalJoin, KeyedInput

VIEWS = pa.schema([("user", pa.string()), ("at", pa.int64()), ("v", pa.int64())])
CLICKS = pa.schema([("who", pa.string()), ("v", pa.int64()), ("at", pa.int64()), ("note", pa.string())])
END_OF_INPUT = 253_402_300_799_999_999

View = tuple[str, int | None, int]
Click = tuple[str, int, int | None, str]


def join(
    before: int = 5, after: int = 10, how: How = "inner", lateness: int = 0, suffixes: tuple[str, str] = ("", "_right")
) -> IntervalJoin:
    return IntervalJoin(
        "pairs", VIEWS, CLICKS, ("user",), ("who",), "at", before, after, how, lateness, suffixes
    )  # fmt: skip


def rows(operator: IntervalJoin, views: Sequence[View] = (), clicks: Sequence[Click] = ()) -> pa.Table:
    """A batch: rows of both sides as they reach the operator."""
    sides = []
    for side, given_rows, schema in ((LEFT, views, VIEWS), (RIGHT, clicks, CLICKS)):
        named = [dict(zip(schema.names, row, strict=True)) for row in given_rows]
        sides.append(operator.side(side)(pa.Table.from_pylist(named, schema=schema)))
    return pa.concat_tables(sides)


def plain(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in results]


def test_bounds_are_inclusive_on_both_sides(driver: Any) -> None:
    # a view at 20 matches clicks in [20 - 5, 20 + 10]
    #              14 15             20                   30 31
    # clicks        x  x              x                    x  x
    # view             |<-----------  v ------------------>|
    operator = join()
    clicks: list[Click] = [("a", at, at, "") for at in (14, 15, 20, 30, 31)]
    made = driver(operator).batch(rows(operator, [("a", 20, 1)], [*clicks, ("b", 0, 20, "")]))
    assert operator.output_schema.names == ["user", "at", "v", "v_right", "at_right", "note"]
    assert plain(made) == [("a", 20, 1, at, at, "") for at in (15, 20, 30)]


def test_every_pair_comes_out_once_whichever_row_comes_first(driver: Any) -> None:
    # batch 0   view 1 and click 1      their pair
    # batch 1   view 2                  with click 1
    # batch 2   click 2                 with views 1 and 2
    # batch 3   view 3 and click 3      with each other, and with all before
    operator = join()
    run = driver(operator)
    batches: list[tuple[list[View], list[Click]]] = [
        ([("a", 0, 1)], [("a", 1, 0, "")]), ([("a", 1, 2)], []), ([], [("a", 2, 1, "")]),
        ([("a", 2, 3)], [("a", 3, 2, "")]),
    ]  # fmt: skip
    made = [{(row["v"], row["v_right"]) for row in run.batch(rows(operator, *batch))} for batch in batches]
    assert made == [{(1, 1)}, {(2, 1)}, {(1, 2), (2, 2)}, {(3, 1), (3, 2), (3, 3), (1, 3), (2, 3)}]


def test_a_row_is_dropped_when_the_watermark_has_passed_its_last_partner(driver: Any) -> None:
    # view at 0, after 10: clicks up to 10; click at 20, before 5: views up to 25
    operator = join()
    run = driver(operator)
    run.batch(rows(operator, [("a", 0, 1)], [("b", 1, 20, "")]))
    assert dict(zip(run.state, run.last.event_timer.tolist(), strict=True)) == {"a": 11, "b": 26}
    run.batch(rows(operator), watermark=10)
    assert set(run.state) == {"a", "b"}, "a click at 10 is not late at watermark 10, and would match"
    run.batch(rows(operator), watermark=11)
    assert set(run.state) == {"b"}
    run.batch(rows(operator), watermark=26)
    assert run.state == {}


def test_an_inner_join_wakes_a_key_for_its_last_row_and_tidies_it_when_rows_come(driver: Any) -> None:
    operator = join()
    run = driver(operator)
    run.batch(rows(operator, [("a", 0, 1), ("a", 6, 2)]))
    assert run.last.event_timer.tolist() == [17]
    run.batch(rows(operator), watermark=12)
    assert run.state["a"]["left.at"] == [0, 6], "not woken for the row at 0"
    run.batch(rows(operator, [("a", 13, 3)]), watermark=12)
    assert run.state["a"]["left.at"] == [6, 13]
    assert run.last.event_timer.tolist() == [24]


def test_a_left_row_without_a_partner_comes_out_once_and_at_the_right_time(driver: Any) -> None:
    # before 5, after 10     0         10        20
    # views                  v1     v2                   v1 at 0 has a click, v2 at 7 has none from 2 on
    # clicks                  x
    # watermark                               |17 |18    a click for v2 could come up to 17
    operator = join(how="left")
    run = driver(operator)
    assert plain(run.batch(rows(operator, [("a", 0, 1), ("a", 7, 2)], [("a", 9, 1, "x")]))) == [("a", 0, 1, 9, 1, "x")]
    assert run.state["a"]["matched"] == [True, False]
    assert run.last.event_timer.tolist() == [18], "woken when v2 has to come out"
    assert run.batch(rows(operator), watermark=17) == []
    assert plain(run.batch(rows(operator), watermark=18)) == [("a", 7, 2, None, None, None)]
    assert run.state == {}


def test_a_partner_in_the_batch_in_which_a_left_row_ends_still_counts(driver: Any) -> None:
    """Results of another operator may be behind the watermark; they are matched before rows are dropped."""
    operator = join(how="left")
    run = driver(operator)
    run.batch(rows(operator, [("a", 0, 1)]))
    assert plain(run.batch(rows(operator, [], [("a", 7, 3, "x")]), watermark=100)) == [("a", 0, 1, 7, 3, "x")]
    assert run.state == {}


def test_rows_without_a_time_match_nothing_and_left_ones_come_out_at_once(driver: Any) -> None:
    views: list[View] = [("a", None, 1), ("a", 0, 2)]
    clicks: list[Click] = [("a", 3, None, "x")]
    inner, outer = join(), join(how="left")
    run = driver(inner)
    assert run.batch(rows(inner, views, clicks)) == []
    assert run.state["a"]["left.v"] == [2]
    run = driver(outer)
    assert plain(run.batch(rows(outer, views, clicks))) == [("a", None, 1, None, None, None)]
    assert run.state["a"] == {"left.at": [0], "left.v": [2], "matched": [False], "right.v": [], "right.at": [],
                              "right.note": []}  # fmt: skip


def test_lateness_keeps_rows_that_much_longer(driver: Any) -> None:
    operator = join(how="left", lateness=100)
    run = driver(operator)
    run.batch(rows(operator, [("a", 0, 1)]))
    assert run.batch(rows(operator), watermark=110) == []
    assert plain(run.batch(rows(operator), watermark=111)) == [("a", 0, 1, None, None, None)]


def test_the_end_of_the_input_ends_every_row_however_long_the_bounds_are(driver: Any) -> None:
    far = 9_000 * 365 * 86_400_000_000
    operator = join(before=far, after=far, how="left")
    run = driver(operator)
    at = [-(2**62), 0, END_OF_INPUT, 2**63 - 1]
    assert run.batch(rows(operator, [("a", each, number) for number, each in enumerate(at)])) == []
    made = run.batch(rows(operator), watermark=END_OF_INPUT)
    assert sorted(row["v"] for row in made) == [0, 1, 2, 3]
    assert run.state == {}


def test_times_at_the_ends_of_64_bits_match_only_what_is_near(driver: Any) -> None:
    operator = join(before=5, after=5)
    ends = [-(2**63) + 2, 2**63 - 3]
    made = driver(operator).batch(rows(operator, [("a", at, 0) for at in ends], [("a", 0, at + 1, "") for at in ends]))
    assert [(row["at"], row["at_right"]) for row in made] == [(at, at + 1) for at in ends]


def test_a_key_is_told_what_its_rows_and_pairs_cost(driver: Any) -> None:
    operator = join()
    run = driver(operator)
    ticks = itertools.count()
    views: list[View] = [*[("hot", 0, 1)] * 10, ("cold", 0, 1)]
    run.batch(rows(operator, views, [("hot", 1, 0, "")] * 9), clock=lambda: float(next(ticks)))
    cost = dict(zip(run.state, run.last.seconds.tolist(), strict=True))
    assert cost == pytest.approx({"hot": (10 + 9 + 90) / 110, "cold": 1 / 110})


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["x", None, ""]),
    "decimal": (pa.decimal128(38, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-3.25")]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None]),
    "list": (pa.list_(pa.string()), [["a", None], None, []]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]), [{"a": 1, "b": [2]}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
    "bool": (pa.bool_(), [True, None, False]),
    "date": (pa.date32(), [dt.date(2026, 1, 1), None]),
    "float": (pa.float64(), [0.5, None, -1.0]),
    "bytes": (pa.binary(), [b"\0x", None]),
    "null": (pa.null(), [None]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("shared", [True, False], ids=["one name on both sides", "two names"])
def test_every_type_of_column_goes_through_state_and_results(driver: Any, kind: str, shared: bool) -> None:
    kept, values = VALUES[kind]
    left = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", kept)])
    right = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x" if shared else "y", kept)])
    operator = IntervalJoin("pairs", left, right, ("k",), ("k",), "at", 10, 10, "left")
    assert ("y" in operator.input_schema.names) == (not shared)
    run = driver(operator)
    count = len(values)
    lefts = pa.table([[1] * count + [2] * count, [0] * count * 2, [*values, *values]], schema=left)
    rights = pa.table([[1] * count, [1] * count, values], schema=right)
    assert run.batch(operator.side(LEFT)(lefts)) == []
    made = run.batch(operator.side(RIGHT)(rights))
    other = "x_right" if shared else "y"
    assert [(row["x"], row[other]) for row in made] == list(itertools.product(values, values))
    alone = run.batch(operator.input_schema.empty_table(), watermark=50)
    assert [(row["k"], row["x"], row[other]) for row in alone] == [(2, value, None) for value in values]
    assert run.state == {}


def test_columns_of_one_name_and_two_types_are_two_columns(driver: Any) -> None:
    left = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("x", pa.string()), ("x_right", pa.int64())])
    right = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("x", pa.float64()), ("k", pa.string())])
    operator = IntervalJoin("pairs", left, right, ("k",), ("id",), "at", 1, 1, suffixes=("_l", "_r"))
    assert operator.output_schema.names == ["k", "at", "x_l", "x_right", "at_r", "x_r", "k_r"]
    lefts = operator.side(LEFT)(pa.table([[1], [0], ["a"], [7]], schema=left))
    rights = operator.side(RIGHT)(pa.table([[1], [1], [0.5], ["other"]], schema=right))
    assert plain(driver(operator).batch(pa.concat_tables([rights, lefts]))) == [(1, 0, "a", 7, 1, 0.5, "other")]


def test_times_may_be_timestamps_and_keys_several_columns(driver: Any) -> None:
    schema = pa.schema([("u", pa.string()), ("d", pa.int32()), ("at", pa.timestamp("ms", tz="Europe/Athens"))])
    operator = IntervalJoin("pairs", schema, schema, ("u", "d"), ("u", "d"), "at", 0, 60_000_000)
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    times = [start, start + dt.timedelta(seconds=60), start + dt.timedelta(seconds=121)]
    both = pa.table([["x", "x", "x"], [1, 1, 2], times], schema=schema)
    made = driver(operator).batch(pa.concat_tables([operator.side(side)(both) for side in (LEFT, RIGHT)]))
    assert sorted((row["d"], row["at"], row["at_right"]) for row in made) == [
        (1, times[0], times[0]), (1, times[0], times[1]), (1, times[1], times[1]), (2, times[2], times[2]),
    ]  # fmt: skip


def test_an_operator_and_its_sides_travel() -> None:
    operator = pickle.loads(pickle.dumps(join(how="left")))
    assert operator.output_schema.equals(join().output_schema)
    tagged = pickle.loads(pickle.dumps(operator.side(RIGHT)))
    assert tagged(CLICKS.empty_table()).schema.equals(operator.input_schema)
    assert operator.windows == "left join with right rows from 0:00:00.000005 before to 0:00:00.000010 after"
    assert join(7, 7).windows == "inner join with right rows up to 0:00:00.000007 before or after"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"how": "outer"}, 'how must be "inner" or "left", got \'outer\''),
        ({"suffixes": ("_right",)}, "suffixes must be two texts, one per side, got ('_right',)"),
        ({"suffixes": "_r"}, "suffixes must be two texts, one per side, got '_r'"),
        ({"before_micros": 2**62}, f"before of a join must be at most ten thousand years, got {2**62}"),
        (
            {"right_keys": ("who", "note")},
            "both sides of the join 'pairs' must have equally many key columns, which are paired by position, got user "
            "and who, note: give key_by the same number of columns",
        ),
        (
            {"right_keys": ("v",)},
            "columns that the join 'pairs' compares must have one type, and 'user' is string on the left and 'v' int64 "
            "on the right: cast one of them in a map before key_by",
        ),
        (
            {"left_keys": ("at",), "right_keys": ("v",)},
            "the keys of a join must be other columns than the event time 'at', which bounds it, got ('at',)",
        ),
        ({"time": "noon"}, "'join' needs the column 'noon', and its rows have user, at, v: check the name"),
        (
            {"suffixes": ("", "")},
            "the join 'pairs' would have two columns named 'at' with the suffixes ('', ''): pass other suffixes=, or "
            "rename a column in a map before key_by",
        ),
        (
            {"left": VIEWS.append(pa.field("__side", pa.int8()))},
            "a column of a joined stream must be named other than the side that travels along, got '__side'",
        ),
    ],
    ids=[
        "how",
        "suffixes",
        "suffixes in a text",
        "too long",
        "number of keys",
        "types of keys",
        "time as key",
        "no time",
        "names twice",
        "reserved",
    ],
)
def test_what_joins_are_refused(changed: dict[str, Any], text: str) -> None:
    made: dict[str, Any] = {
        "name": "pairs", "left": VIEWS, "right": CLICKS, "left_keys": ("user",), "right_keys": ("who",), "time": "at",
        "before_micros": 1, "after_micros": 1,
    }  # fmt: skip
    with pytest.raises(JobError) as refused:
        IntervalJoin(**made | changed)
    assert str(refused.value) == text


class AllPairs:
    """The same join in plain Python, by looking at every pair of rows that were taken."""

    def __init__(self, before: int, after: int, how: How, lateness: int = 0) -> None:
        self.before, self.after, self.how, self.lateness = before, after, how, lateness
        self.views: list[View] = []
        self.clicks: list[Click] = []
        self.out: Counter[tuple[Any, ...]] = Counter()
        self.ended: set[int] = set()

    def batch(self, views: Sequence[View], clicks: Sequence[Click], watermark: int) -> Counter[tuple[Any, ...]]:
        """What the batch adds. Rows behind the watermark are not given."""
        self.views += views
        self.clicks += clicks
        pairs: Counter[tuple[Any, ...]] = Counter()
        alone: Counter[tuple[Any, ...]] = Counter()
        for number, (user, at, value) in enumerate(self.views):
            found = [
                (user, at, value, other, time, note)
                for who, other, time, note in self.clicks
                if who == user and at is not None and time is not None and at - self.before <= time <= at + self.after
            ]
            pairs.update(found)
            ends = at is None or at + self.after + self.lateness < watermark
            if self.how == "left" and not found and ends and number not in self.ended:
                self.ended.add(number)
                alone[user, at, value, None, None, None] += 1
        new = pairs - self.out
        self.out = pairs
        return new + alone


TIMES = st.one_of(st.none(), *[st.integers(0, 60)] * 6)
USERS = st.sampled_from(["a", "b", "c"])
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(USERS, TIMES, st.integers(0, 2)), max_size=8),
        st.lists(st.tuples(USERS, st.integers(0, 2), TIMES, st.sampled_from(["x", "y"])), max_size=8),
        st.integers(0, 25),
    ),
    max_size=8,
)


@given(
    bounds=st.tuples(st.sampled_from([0, 3, 15, 100]), st.sampled_from([0, 4, 20, 100])),
    how=st.sampled_from(["inner", "left"]),
    lateness=st.sampled_from([0, 9]),
    batches=BATCHES,
)
def test_any_rows_give_all_pairs_once_batch_by_batch(
    driver: Any, bounds: tuple[int, int], how: How, lateness: int, batches: Any
) -> None:
    operator = join(*bounds, how=how, lateness=lateness)
    run, model = driver(operator), AllPairs(*bounds, how, lateness)
    watermark = NO_WATERMARK
    for views, clicks, ahead in [*batches, ([], [], None)]:
        if ahead is None:
            watermark = END_OF_INPUT
        elif ahead:
            watermark = max(watermark, 0) + ahead
        bar = watermark - lateness
        on_time = [row for row in views if row[1] is None or row[1] >= bar]
        clicked = [row for row in clicks if row[2] is None or row[2] >= bar]
        made = Counter(plain(run.batch(rows(operator, on_time, clicked), watermark=watermark)))
        assert made == model.batch(on_time, clicked, watermark)
    assert run.state == {}


@given(batches=BATCHES, how=st.sampled_from(["inner", "left"]), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_results_do_not_depend_on_how_rows_are_cut_into_batches(
    driver: Any, batches: Any, how: How, cuts: list[int]
) -> None:
    operator = join(how=how)
    table = pa.concat_tables([rows(operator, views, clicks) for views, clicks, _ in [*batches, ([], [], 0)]])
    found = []
    for bounds in ([], sorted(cuts)):
        run = driver(operator)
        made: Counter[tuple[Any, ...]] = Counter()
        for start, stop in itertools.pairwise([0, *(min(cut, len(table)) for cut in bounds), len(table)]):
            made.update(plain(run.batch(table.slice(start, stop - start))))
        made.update(plain(run.batch(table.slice(0, 0), watermark=END_OF_INPUT)))
        found.append(made)
    assert found[0] == found[1]


def test_a_large_batch_gives_what_a_table_join_gives(driver: Any) -> None:
    chance = np.random.default_rng(5)
    operator = join(before=50, after=80)
    views: list[View] = [(f"u{k}", int(at), n) for n, (k, at) in enumerate(chance.integers(0, (40, 2000), (3000, 2)))]
    clicks: list[Click] = [
        (f"u{k}", n, int(at), "") for n, (k, at) in enumerate(chance.integers(0, (40, 2000), (3000, 2)))
    ]
    made = {(row["v"], row["v_right"]) for row in driver(operator).batch(rows(operator, views, clicks))}
    wanted = {
        (v, n)
        for (user, at, v), (who, n, time, _) in itertools.product(views, clicks)
        if user == who and time is not None and at is not None and at - 50 <= time <= at + 80
    }
    assert made == wanted
    assert len(made) > 10_000


def test_a_key_without_rows_or_state_gives_nothing() -> None:
    operator = join(how="left")
    none = np.zeros(0, np.int64)
    empty = operator.input_schema.empty_table()
    given_keys = KeyedInput(
        empty, np.zeros(1, np.int64), none, empty.select(["user"]), operator.state_schema.empty_table(),
        np.zeros(0, np.bool_), none, none, np.zeros(0, np.bool_), np.zeros(0, np.bool_), 0, NO_WATERMARK,
    )  # fmt: skip
    made = operator.process(given_keys, None)
    assert made.results.num_rows == made.state.num_rows == 0
    assert NO_TIMER not in made.event_timer.tolist()
