"""Aggregates of a user's own: what they compute, the laws they must keep, and the errors that say which broke."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError, UserFunctionError
from headgate.operators import Aggregation, Pickled, aggregate
from headgate.operators.laws import same
from headgate.routing import key_hash

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.float64()), ("m", pa.map_(pa.string(), pa.int64()))])


def rows(*given: tuple[int, int | None, float]) -> pa.Table:
    columns = list(zip(*given, strict=True))
    return pa.Table.from_arrays(
        [*(pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=False)),
         pa.nulls(len(given), SCHEMA.types[3])],
        schema=SCHEMA,
    )  # fmt: skip


def operator(**aggregates: Any) -> Aggregation:
    return Aggregation("op", SCHEMA, ("k",), aggregates)


def weighted(state: dict[str, Any], v: pa.Array, w: pa.Array) -> dict[str, Any]:
    return {
        "total": state["total"] + (pc.sum(pc.multiply(v, w)).as_py() or 0.0),
        "weight": state["weight"] + (pc.sum(w).as_py() or 0.0),
    }


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] + other[name] for name in one}


def ratio(state: dict[str, Any]) -> float | None:
    return state["total"] / state["weight"] if state["weight"] else None


WEIGHTED = aggregate(
    "v", "w", state={"total": 0.0, "weight": 0.0}, update=weighted, merge=both, finish=ratio, result="double"
)


@dataclass
class Longest:
    text: str = ""

    def take(self, other: str) -> None:
        self.text = max(self.text, other, key=lambda each: (len(each), each))


def test_a_weighted_mean_over_batches_and_chunks(driver: Any) -> None:
    run = driver(operator(x=WEIGHTED))
    assert run.batch(rows((1, 2, 1.0), (1, 4, 3.0), (2, 5, 0.0)), cuts=[1]) == [
        {"k": key, "x": {1: 3.5, 2: None}[key]} for key in [row["k"] for row in run.last.results.to_pylist()]
    ]
    assert run.batch(rows((1, 6, 4.0))) == [{"k": 1, "x": 4.75}]
    assert run.state[1] == {"x.total": 38.0, "x.weight": 8.0, "x.there": True}


def test_state_may_be_a_dataclass_changed_in_place(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])

    def update(state: Longest, s: pa.Array) -> None:
        for each in s.to_pylist():
            state.take(each)

    def merge(one: Longest, other: Longest) -> None:
        one.take(other.text)

    run = driver(Aggregation("op", schema, ("k",), {"x": aggregate("s", state=Longest, update=update, merge=merge)}))
    assert run.batch(pa.table({"k": [1, 1, 1], "s": ["aa", "b", "ab"]}), cuts=[1]) == [{"k": 1, "x": "ab"}]
    assert run.batch(pa.table({"k": [1], "s": ["b"]})) == [{"k": 1, "x": "ab"}]


def test_state_may_be_any_object(driver: Any) -> None:
    own = aggregate(
        "v",
        state=Pickled(set),
        update=lambda state, v: state | set(v.to_pylist()),
        merge=lambda one, other: one | other,
        finish=lambda state: sorted(state),
        result="array<long>",
    )
    run = driver(operator(x=own))
    assert run.batch(rows((1, 3, 0.0), (1, 1, 0.0), (1, 3, 0.0)), cuts=[2]) == [{"k": 1, "x": [1, 3]}]
    assert run.batch(rows((1, 2, 0.0))) == [{"k": 1, "x": [1, 2, 3]}]


def count_and_sum(codes: Any, keys: int, v: pa.Array) -> dict[str, Any]:
    values = np.asarray(v.fill_null(0))
    return {
        "n": np.bincount(codes, minlength=keys),
        "s": np.bincount(codes, values, keys).astype(np.int64),
    }


def add_columns(codes: Any, keys: int, n: pa.Array, s: pa.Array) -> dict[str, Any]:
    return {
        "n": np.bincount(codes, np.asarray(n), keys).astype(np.int64),
        "s": np.bincount(codes, np.asarray(s), keys).astype(np.int64),
    }


MANY = aggregate(
    "v",
    state="n long, s long",
    update=count_and_sum,
    merge=add_columns,
    finish=lambda n, s: pc.divide(s.cast(pa.float64()), n.cast(pa.float64())),
    result="double",
    vectorised=True,
)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.just(1.0)), min_size=1, max_size=30))
def test_all_keys_at_once_gives_what_one_key_at_a_time_gives(driver: Any, given_rows: list[Any]) -> None:
    run = driver(operator(one=WEIGHTED, many=MANY))
    half = len(given_rows) // 2
    for part in (given_rows[:half], given_rows[half:]):
        if part:
            for row in run.batch(rows(*part), cuts=[len(part) // 3]):
                assert row["many"] == pytest.approx(row["one"], abs=1e-12)


def wrong(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "state": {"total": 0},
        "update": lambda state, v: {"total": state["total"] + pc.sum(v).as_py()},
        "merge": lambda one, other: {"total": one["total"] + other["total"]},
    }
    return aggregate("v", **given | changed)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        pytest.param(
            wrong(merge=lambda one, other: {"total": (one["total"] + other["total"]) // 2}),
            r"must have a merge that agrees with update, but the update of all rows gives 13 and "
            r"merge\(a, b\) gives 6, with a of the made-up sample rows \[3, -1, 4\], b of the made-up sample rows "
            r"\[1, -5, 9, 2\]",
            id="a mean of sums",
        ),
        pytest.param(
            aggregate(
                "v",
                state={"mean": 0.0},
                update=lambda state, v: {"mean": pc.mean(v).as_py()},
                merge=lambda one, other: {"mean": (one["mean"] + other["mean"]) / 2},
            ),
            "must have a merge that agrees with update",
            id="a mean of means",
        ),
        pytest.param(
            wrong(
                update=lambda state, v: {"total": v[-1].as_py()},
                merge=lambda one, other: {"total": other["total"]},
            ),
            r"must have a merge that is commutative, but merge\(a, b\) gives 2 and merge\(b, a\) gives 4",
            id="the last to arrive",
        ),
        pytest.param(
            wrong(
                state={"total": 0.0},
                update=lambda state, v: {"total": 1.0},
                merge=lambda one, other: {"total": 1.0 if one["total"] == other["total"] else 0.0},
            ),
            "must have a merge that changes nothing when one state is zero",
            id="not even zero",
        ),
        pytest.param(wrong(zero={"total": 1}), "must have a merge that agrees with update", id="a zero that counts"),
        pytest.param(
            wrong(update=lambda state, v: {"total": 1 // 0}),
            r"must work on the made-up sample rows \[3, .*\], and raised ZeroDivisionError: .*: mend the function; "
            "where such rows cannot occur, pass sample= with rows that can",
            id="raises",
        ),
        pytest.param(
            wrong(update=lambda state, v: {"total": 1.5}),
            r"does not work on the made-up sample rows .*: state column 'total' must be long, got 1.5 \(float\)",
            id="another type",
        ),
        pytest.param(
            wrong(update=lambda state, v: {"totals": 1}),
            "the state must be a dict with the columns total, got {'totals': 1}",
            id="another column",
        ),
        pytest.param(wrong(sample=[{"v": 1}]), "needs a sample of at least 3 rows, .* got 1", id="one row"),
        pytest.param(wrong(sample=[{"w": 1}] * 3), "needs a sample with the columns v, missing: v", id="no column"),
        pytest.param(wrong(sample=[{"v": "x"}] * 3), "needs a sample that is a table or a list of dicts", id="text"),
        pytest.param(
            aggregate(
                "v", state="n long", update=lambda codes, keys, v: {"n": [1, 2, 3]},
                merge=lambda codes, keys, n: {"n": n}, vectorised=True,
            ),
            "must have its update give state column 'n' one value per key, 1, got 3",
            id="too long",
        ),
        pytest.param(
            aggregate(
                "v", state="n long", update=lambda codes, keys, v: {"m": [1]},
                merge=lambda codes, keys, n: {"n": n}, vectorised=True,
            ),
            "must have its update return a dict with an array for each of n, got a dict with m",
            id="another array",
        ),
    ],
)  # fmt: skip
def test_a_law_that_breaks_is_an_error_when_the_job_is_built(own: Any, text: str) -> None:
    with pytest.raises(InputError, match=f"operator 'op': the aggregate 'x' .*{text}"):
        operator(x=own)


def test_what_is_commutative_but_not_associative_is_found() -> None:
    def merge(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        x, y = one["total"], other["total"]
        return {"total": x + y if x * y > 0 else x * y}

    text = (
        r"a merge that is associative, but merge\(merge\(a, b\), c\) gives -13 and merge\(a, merge\(b, c\)\) gives -42"
    )
    with pytest.raises(InputError, match=text):
        operator(x=wrong(merge=merge))


def test_a_sample_that_is_given_is_the_one_that_is_used() -> None:
    roots = wrong(
        state={"total": 0.0},
        update=lambda state, v: {"total": state["total"] + math.fsum(math.sqrt(each) for each in v.to_pylist())},
    )
    with pytest.raises(InputError, match=r"raised ValueError: .*pass sample= with rows that can"):
        operator(x=roots)
    positive = wrong(
        state={"total": 0.0},
        update=lambda state, v: {"total": state["total"] + math.fsum(math.sqrt(each) for each in v.to_pylist())},
        sample=pa.table({"v": [1, 4, 9, 16], "other": list("abcd")}),
    )
    operator(x=positive)


def test_values_cannot_be_made_up_for_every_type() -> None:
    own = aggregate(
        "m",
        state="n long",
        update=lambda state, m: {"n": len(m)},
        merge=lambda one, other: {"n": one["n"] + other["n"]},
    )
    with pytest.raises(InputError, match=r"needs sample= with at least 3 rows .* for column 'm' of type map"):
        operator(x=own)


def divided(state: dict[str, Any], v: pa.Array) -> dict[str, Any]:
    return {"total": state["total"] + sum(100 // each for each in v.to_pylist())}


def test_what_raises_later_names_the_key_and_the_row(driver: Any) -> None:
    own = wrong(update=divided, sample=[{"v": 1}, {"v": 2}, {"v": 4}])
    text = (
        r"the function of operator 'op.x' raised ZeroDivisionError: .* for key 7 \(its first row is \[{'total': 0}, 5\]"
    )
    with pytest.raises(UserFunctionError, match=text):
        driver(operator(x=own)).batch(rows((1, 2, 0.0), (7, 5, 0.0), (7, 0, 0.0)))


def test_what_does_not_fit_later_names_the_key(driver: Any) -> None:
    own = aggregate(
        "v", state={"n": 0}, update=lambda state, v: {"n": state["n"] + len(v)}, merge=both,
        finish=lambda state: "many" if state["n"] > 50 else float(state["n"]), result="double",
    )  # fmt: skip
    text = r"operator 'op', key 7: 'x': result column 'finish' must be double, got 'many' \(str\)"
    with pytest.raises(InputError, match=text):
        driver(operator(x=own)).batch(rows(*[(7, 1, 0.0)] * 60))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: aggregate(state="n long", update=both, merge=both), "must name at least one column"),
        (lambda: wrong(update=3), r"aggregate: update must be a function, got 3 \(int\)"),
        (lambda: wrong(state="a long, b long"), "finish and result must be given unless the state is one column"),
        (lambda: wrong(zero={"b": 1}), "zero must be a dict with the state columns total, got"),
        (lambda: wrong(state="there long"), "a state column must not be named 'there'"),
        (
            lambda: wrong(vectorised=True, zero={"total": 0}),
            "with vectorised=True the state must be declared by columns",
        ),
        (lambda: wrong(state=Pickled(list)), "finish and result must be given"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_results_are_compared_with_a_tolerance() -> None:
    assert same([1.0, {"a": math.nan}], [1.0 + 1e-12, {"a": math.nan}], 1e-9)
    assert not same([1.0], [1.1], 1e-9)
    assert not same(1.0, None, 1e-9)
    assert not same({"a": 1}, {"b": 1}, 1e-9)


def test_maps_in_the_state_are_dicts_however_many_states_are_merged() -> None:
    """A merge sees what an update returned, what was saved, and what a merge before it returned: all in one form."""

    def counted(state: dict[str, Any], pages: pa.Array) -> dict[str, Any]:
        seen = dict(state["seen"])
        for page in pages.to_pylist():
            seen[page] = seen.get(page, 0) + 1
        return {"seen": dict(sorted(seen.items()))}

    def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        pages = sorted({*one["seen"], *other["seen"]})
        return {"seen": {page: one["seen"].get(page, 0) + other["seen"].get(page, 0) for page in pages}}

    seen = aggregate(
        "page", state={"seen": pa.map_(pa.string(), pa.int64())}, zero={"seen": {}}, update=counted, merge=merged,
        finish=lambda state: sum(state["seen"].values()), result="long",
    )  # fmt: skip
    visited = pa.table({"user": ["a"] * 5, "page": ["x", "y", "x", "z", "x"]})
    visits = Aggregation("visits", visited.schema, ("user",), {"n": seen})
    hashes = key_hash(visited["user"])
    parts = [visits.early(visited.slice(at, 1), hashes[at : at + 1]) for at in range(5)]
    together, _ = visits.combine(pa.concat_tables([part for part, _ in parts]), np.concatenate([h for _, h in parts]))
    assert visits.finished(together).to_pylist() == [{"user": "a", "n": 5}]
