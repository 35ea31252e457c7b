"""Sketches: their bounds, their bytes, and that DataSketches reads what we write."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.arrays import F64
from headgate.errors import InputError
from headgate.operators import Aggregation, approx_distinct, quantile
from headgate.operators.compaction import HEAD, merged_summaries, summaries_of_rows
from headgate.operators.hyperloglog import merged_sketches, sketches_of_rows, sparse_room

datasketches = pytest.importorskip("datasketches")


def sketch(values: Any, precision: int = 12) -> bytes:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    made: bytes = sketches_of_rows(array, np.zeros(len(array), np.int32), 1, precision)[0].as_py()
    return made


def theirs(values: Any, precision: int = 12) -> Any:
    made = datasketches.hll_sketch(precision, datasketches.HLL_8)
    for value in values:
        made.update(value)
    return made


def body(data: bytes) -> bytes:
    """Coupons in ascending order, or registers."""
    if data[0] == 10:
        return data[40:]
    return np.sort(np.frombuffer(data[8 if data[0] == 2 else 12 :], np.uint32)).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([5], id="one value"),
        pytest.param([1, -2, 3], id="a list"),
        pytest.param(list(range(100)), id="a set"),
        pytest.param(list(range(384)), id="a full set"),
        pytest.param(list(range(385)), id="one too many for a set"),
        pytest.param(list(range(50_000)), id="registers"),
        pytest.param(["a", "äß", "x" * 8, "x" * 9, "x" * 16, "x" * 17, "x" * 40], id="strings of every length"),
        pytest.param([1.5, -0.0, float("nan"), 1e300], id="doubles"),
    ],
)
def test_a_sketch_has_the_bytes_of_datasketches(values: list[Any]) -> None:
    own, other = sketch(values), theirs(values)
    expected = other.serialize_compact()
    assert own[:5] == expected[:5]
    assert own[6:8] == expected[6:8]
    assert body(own) == body(expected)
    assert own[16:40] == expected[16:40] or own[0] != 10
    read = datasketches.hll_sketch.deserialize(own)
    assert read.get_estimate() == pytest.approx(len(set(values)), rel=0.05)


@pytest.mark.parametrize("precision", [7, 8, 10, 14])
def test_datasketches_unites_our_sketches_with_its_own(precision: int) -> None:
    union = datasketches.hll_union(precision)
    union.update(datasketches.hll_sketch.deserialize(sketch(list(range(3000)), precision)))
    union.update(theirs(range(2000, 6000), precision))
    assert union.get_estimate() == pytest.approx(6000, rel=4 * 1.04 / 2 ** (precision / 2))


@settings(max_examples=60)
@given(
    st.sampled_from([7, 8, 12]),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 600)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_bytes_follow_from_the_set_of_values(precision: int, spans: list[tuple[int, int]], random: Any) -> None:
    parts = [sketch(list(range(start, start + size)), precision) for start, size in spans]
    whole = sketch(sorted({value for start, size in spans for value in range(start, start + size)}), precision)
    while len(parts) > 1:
        random.shuffle(parts)
        take = random.randint(2, len(parts))
        some, parts = parts[:take], parts[take:]
        merged = merged_sketches(pa.array(some, pa.binary()), np.zeros(take, np.int32), 1, precision)
        parts.append(merged[0].as_py())
    assert parts[0] == whole


@pytest.mark.parametrize("precision", [8, 12])
@pytest.mark.parametrize("size", [10, 300, 3000, 100_000])
def test_estimates_are_within_the_stated_error(precision: int, size: int) -> None:
    """Over 200 sets the root mean square error is the standard error, give or take a tenth and a bit of chance."""
    sets = 200 if size < 100_000 else 50
    values = np.arange(sets * size, dtype=np.int64)
    codes = np.repeat(np.arange(sets, dtype=np.int32), size)
    schema = pa.schema([("k", pa.int32()), ("v", pa.int64())])
    operator = Aggregation("op", schema, ("k",), {"n": approx_distinct("v", precision=precision)})
    rows = pa.table({"k": codes, "v": values}, schema=schema)
    got = np.asarray(operator.finished(operator.early(rows, codes.astype(np.int64))[0])["n"])
    errors = got / size - 1
    if size <= sparse_room(precision):
        assert not errors.any()
    else:
        standard = 1.04 / 2 ** (precision / 2)
        assert np.sqrt(np.mean(errors**2)) < 1.25 * standard
        assert abs(errors.mean()) < 4 * standard / np.sqrt(sets)
        assert abs(errors).max() < 4.5 * standard


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array([2**64 - 1, 3, 3], pa.uint64()), id="unsigned longs"),
        pytest.param(pa.array([1, 2, 2], pa.int8()), id="bytes"),
        pytest.param(pa.array([1.5, -0.0, 0.0], pa.float32()), id="floats"),
        pytest.param(pa.array(["", "a", "a"], pa.large_string()), id="large strings, one empty"),
        pytest.param(pa.array([b"", b"a", b"a"], pa.binary()), id="bytes"),
        pytest.param(pa.array([b"ab", b"cd", b"ab"], pa.binary(2)), id="bytes of one length"),
        pytest.param(pa.array([Decimal(1), Decimal(2), Decimal(1)], pa.decimal128(38, 0)), id="wide decimals"),
        pytest.param(pa.array([Decimal(1), Decimal(2), Decimal(1)], pa.decimal128(9, 2)), id="decimals"),
        pytest.param(pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2), dt.date(2024, 1, 1)]), id="dates"),
        pytest.param(pa.array([True, False, True]), id="booleans"),
    ],
)
def test_every_type_is_counted_wherever_it_lies_in_memory(driver: Any, values: pa.Array) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", values.type)])
    run = driver(Aggregation("op", schema, ("k",), {"n": approx_distinct("v")}))
    longer = pa.concat_arrays([values, pa.array([None], values.type), values])
    rows = pa.table({"k": [1] * 6, "v": longer.slice(1)}, schema=schema)
    assert run.batch(rows, cuts=[1, 2, 4])[0]["n"] == 2


def test_a_sketch_as_result_is_read_by_datasketches(driver: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    run = driver(Aggregation("op", schema, ("k",), {"s": approx_distinct("v", sketch=True)}))
    run.batch(pa.table({"k": [1] * 900, "v": range(900)}, schema=schema))
    got = run.batch(pa.table({"k": [1] * 900, "v": range(450, 1350)}, schema=schema))[0]["s"]
    assert datasketches.hll_sketch.deserialize(got).get_estimate() == pytest.approx(1350, rel=0.05)
    assert got == sketch(list(range(1350)))


ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


def exact_quantile(values: list[Any], q: float) -> Any:
    ascending = sorted(values)
    return ascending[max(0, int(np.ceil(q * len(values) - 1e-9)) - 1)]


QUANTILE_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "longs": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "unsigned longs": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "doubles": (pa.float64(), st.floats(allow_nan=False).map(lambda value: value + 0.0)),
    "floats": (pa.float32(), st.floats(allow_nan=False, width=32).map(lambda value: value + 0.0)),
    "decimals": (pa.decimal128(18, 2), st.decimals(-(10**15), 10**15, places=2)),
    "timestamps": (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    "dates": (pa.date32(), st.dates()),
}


@pytest.mark.parametrize("case", QUANTILE_KINDS.values(), ids=list(QUANTILE_KINDS))
@settings(max_examples=25)
@given(data=st.data())
def test_quantiles_of_few_values_are_exact(driver: Any, case: Any, data: Any) -> None:
    kind, values = case
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=30), label="rows")
    q = data.draw(st.floats(0, 1) | st.sampled_from([0.07, 0.5, 0.7]), label="q")
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3), label="cuts")
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    run = driver(Aggregation("op", schema, ("k",), {"one": quantile("v", q), "some": quantile("v", [0, q, 1])}))
    got = run.batch(pa.table({"k": [1] * len(rows), "v": pa.array(rows, kind)}, schema=schema), cuts=cuts)[0]
    filled = [value for value in rows if value is not None]
    if filled:
        assert got["one"] == exact_quantile(filled, q)
        assert got["some"] == [min(filled), got["one"], max(filled)]
    else:
        assert (got["one"], got["some"]) == (None, None)


def rank_errors(values: F64, found: F64, parts: F64) -> F64:
    """How far the part of values that do not exceed what was found is from what was asked for; 0 within ties."""
    ascending = np.sort(values)
    low = np.searchsorted(ascending, found, "left") / len(values)
    high = np.searchsorted(ascending, found, "right") / len(values)
    off: F64 = np.maximum(0, np.maximum(low - parts, parts - high))
    return off


@pytest.mark.parametrize("size", [50, 200])
@pytest.mark.parametrize("chunk", [1, 20, 1000], ids=["a row at a time", "in small batches", "in large batches"])
@pytest.mark.parametrize("shape", ["random", "ascending", "descending", "few values"])
def test_ranks_are_within_the_stated_bound_however_rows_arrive(size: int, chunk: int, shape: str) -> None:
    """Of 99 parts in each of 8 keys, 99 % must be within the bound."""
    random = np.random.default_rng(11)
    count = 3000 if chunk == 1 else 20_000
    errors = []
    parts = np.arange(1, 100) / 100
    for _ in range(8):
        values = random.normal(size=count)
        if shape == "few values":
            values = np.round(values)
        elif shape != "random":
            values = np.sort(values)[:: 1 if shape == "ascending" else -1]
        bits = values.view(np.int64)
        numbers = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
        state = summaries_of_rows(numbers[:chunk], np.zeros(chunk, np.int32), 1, size)
        for start in range(chunk, count, chunk):
            part = numbers[start : start + chunk]
            fresh = summaries_of_rows(part, np.zeros(len(part), np.int32), 1, size)
            bounds = np.concatenate([state[0], fresh[0][1:] + len(state[1])])
            both = np.concatenate([state[1], fresh[1]])
            state = merged_summaries(bounds, both, np.zeros(2, np.int32), 1, size)
        levels = int(state[1][2])
        sizes = state[1][HEAD : HEAD + levels]
        assert int((sizes << np.arange(levels)).sum()) == count  # every value is stood for
        assert len(state[1]) < 3 * size + 8 * levels + HEAD
        operator = Aggregation(
            "op",
            pa.schema([("k", pa.int64()), ("v", pa.float64())]),
            ("k",),
            {"q": quantile("v", list(parts), size=size)},
        )
        lists = pa.ListArray.from_arrays(pa.array([0, len(state[1])], pa.int32()), pa.array(state[1]))
        found = operator.finished(pa.table({"k": [1], "q.summary": lists}, schema=operator.partial_schema))
        errors.append(rank_errors(values, np.array(found["q"][0].as_py()), parts))
    assert np.quantile(np.concatenate(errors), 0.99) < 2.3 / size**0.97


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=40), min_size=2, max_size=6), st.randoms())
def test_summaries_merge_to_the_same_bytes_in_any_order(chunks: list[list[int]], random: Any) -> None:
    def merged(parts: list[list[int]]) -> bytes:
        made = [summaries_of_rows(np.array(part, np.int64), np.zeros(len(part), np.int32), 1, 8) for part in parts]
        bounds = np.concatenate([[0], np.cumsum([len(each[1]) for each in made])])
        both = np.concatenate([each[1] for each in made])
        return merged_summaries(bounds, both, np.zeros(len(parts), np.int32), 1, 8)[1].tobytes()

    shuffled = [random.sample(chunk, len(chunk)) for chunk in chunks]
    random.shuffle(shuffled)
    assert merged(chunks) == merged(shuffled)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: approx_distinct("v", precision=3), "precision must be a whole number from 7 to 21, got 3"),
        (lambda: quantile("v", 1.5), "q must be from 0 to 1, 0.5 for the median, got 1.5"),
        (lambda: quantile("v", [0.5, -1]), "q must be from 0 to 1, 0.5 for the median, got -1"),
        (lambda: quantile("v", []), "q must be a number or a list with at least one, got an empty list"),
        (lambda: quantile("v", 0.5, size=4), "size must be at least 8, got 4"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_text_has_no_quantiles() -> None:
    text = r"the quantile 'q' needs a column of numbers \(decimals of up to 18 digits\), dates, .* got string"
    with pytest.raises(InputError, match=text):
        Aggregation("op", ROWS, ("k",), {"q": quantile("s", 0.5)})


def test_datasketches_is_never_loaded() -> None:
    program = (
        "import sys, numpy as np, pyarrow as pa, headgate.operators as o; "
        "s = pa.schema([('k', pa.int64()), ('v', pa.int64())]); "
        "a = o.Aggregation('op', s, ('k',), {'n': o.approx_distinct('v'), 'q': o.quantile('v', 0.5)}); "
        "a.early(pa.table({'k': [1], 'v': [2]}), np.array([7])); "
        "print(any('datasketches' in name for name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
