"""Sketches: their bounds, their bytes, and that DataSketches reads what we write."""

from __future__ import annotations

import datetime as dt
import itertools
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
from headgate.operators.binaries import binary_of
from headgate.operators.compaction import HEAD, merged_summaries, summaries_of_rows
from headgate.operators.folds import UnfitError
from headgate.operators.hyperloglog import merged_sketches, sketches_of_rows, sparse_room
from headgate.routing import key_hash

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
        found = operator.finished(pa.table([[1], lists], schema=operator.partial_schema))
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


PARTS = [0.01, 0.1, 0.5, 0.77, 0.99]

KLL_KINDS = {
    "doubles": (pa.float64(), datasketches.kll_doubles_sketch),
    "floats": (pa.float32(), datasketches.kll_floats_sketch),
}


def kll(values: pa.Array, size: int = 200, chunks: int = 1) -> dict[str, Any]:
    """The sketch and the quantiles of values that come in so many chunks, merged one after the other."""
    rows = pa.table({"k": np.zeros(len(values), np.int64), "v": values})
    wanted = {"sketch": quantile("v", sketch=True, size=size), "values": quantile("v", PARTS, size=size)}
    operator = Aggregation("op", rows.schema, ("k",), wanted)
    cuts = np.linspace(0, len(rows), chunks + 1).astype(int)
    partials = None
    for start, stop in itertools.pairwise(cuts.tolist()):
        part = operator.early(rows.slice(start, stop - start), key_hash(rows["k"].slice(start, stop - start)))[0]
        partials = part if partials is None else pa.concat_tables([partials, part])
        partials = operator.combine(partials, key_hash(partials["k"]))[0]
    made: dict[str, Any] = operator.finished(partials).to_pylist()[0]
    return made


def levels_of(data: bytes) -> list[Any]:
    """The values of each level of a sketch of doubles; DataSketches' own iterator is wrong where level 0 is empty."""
    if data[0] == 2:
        return [np.frombuffer(data, np.float64, -1, 8)]
    starts = np.frombuffer(data, np.int32, data[18], 20)
    return np.split(np.frombuffer(data, np.float64, -1, 20 + 4 * len(starts) + 16), starts[1:] - starts[0])


def stood_for(levels: list[Any]) -> int:
    """How many values the values of some levels stand for."""
    return sum(len(level) << height for height, level in enumerate(levels))


@pytest.mark.parametrize("kind", KLL_KINDS.values(), ids=list(KLL_KINDS))
@pytest.mark.parametrize("size", [8, 50, 200])
@pytest.mark.parametrize("chunks", [1, 7])
def test_datasketches_reads_our_quantiles_and_writes_the_same_bytes(kind: Any, size: int, chunks: int) -> None:
    for count in (1, 2, size, size + 1, 3 * size, 100_000):
        values = pa.array(np.random.default_rng(count).normal(size=count)).cast(kind[0])
        got = kll(values, size, chunks)
        read = kind[1].deserialize(got["sketch"])
        assert read.serialize() == got["sketch"]
        assert (read.n, read.k) == (count, size)
        assert read.get_min_value() == min(values.to_pylist())
        assert read.get_max_value() == max(values.to_pylist())
        assert read.get_quantiles(PARTS, True) == got["values"]


@pytest.mark.parametrize("count", [1, 2, 200])
def test_a_sketch_of_few_ascending_values_has_the_bytes_of_datasketches(count: int) -> None:
    other = datasketches.kll_doubles_sketch(200)
    for value in reversed(range(count)):  # it puts every value before the last one
        other.update(float(value))
    own, expected = kll(pa.array(np.arange(count, dtype=np.float64)))["sketch"], other.serialize()
    assert own[:3] + own[4:] == expected[:3] + expected[4:]
    assert (own[3], expected[3]) == ((4, 4) if count == 1 else (2, 0))  # ours say that they are ascending


def test_sketches_of_integers_have_the_layout_of_those_of_doubles() -> None:
    """DataSketches has sketches of longs in Java only."""
    values = np.random.default_rng(3).permutation(20_000) - 10_000
    longs, doubles = kll(pa.array(values))["sketch"], kll(pa.array(values.astype(np.float64)))["sketch"]
    head = 20 + 4 * longs[18]
    assert longs[:head] == doubles[:head]
    assert np.frombuffer(longs, np.int64, 2, head).tolist() == [-10_000, 9_999]
    levels = [level.view(np.int64) for level in levels_of(longs)]
    assert stood_for(levels) == 20_000
    for level in levels:
        assert (np.diff(level) > 0).all()
        assert np.isin(level, values).all()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32()], ids=str)
def test_integers_of_every_width_make_sketches_of_longs(kind: pa.DataType) -> None:
    assert kll(pa.array([5, 3, 9], kind))["sketch"] == kll(pa.array([5, 3, 9], pa.int64()))["sketch"]


@settings(max_examples=60)
@given(
    st.sampled_from([8, 9, 31, 200]),
    st.lists(st.integers(1, 900), min_size=1, max_size=5),
    st.lists(st.integers(1, 900), max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_datasketches_goes_on_with_our_sketches(size: int, ours: list[int], others: list[int], seed: int) -> None:
    """It updates them, merges ours with its own and its own with ours, and counts every value."""
    random = np.random.default_rng(seed)
    first, second = datasketches.kll_doubles_sketch(size), datasketches.kll_doubles_sketch(size)
    seen = []
    for at, count in enumerate(ours):
        seen.append(random.normal(size=count))
        read = datasketches.kll_doubles_sketch.deserialize(kll(pa.array(seen[-1]), size, 1 + at)["sketch"])
        first.merge(read)
        read.merge(second)
        second = read
    for count in others:
        seen.append(random.normal(size=count))
        first.update(seen[-1])
        second.update(seen[-1])
    values = np.concatenate(seen)
    for whole in (first, second):
        assert whole.n == len(values)
        assert (whole.get_min_value(), whole.get_max_value()) == (values.min(), values.max())
        assert datasketches.kll_doubles_sketch.deserialize(whole.serialize()).serialize() == whole.serialize()
        assert stood_for(levels_of(whole.serialize())) == len(values)
        if len(values) <= size:
            assert whole.get_quantiles(PARTS, True) == [exact_quantile(values.tolist(), part) for part in PARTS]


@pytest.mark.parametrize("chunks", [1, 50])
def test_ranks_that_datasketches_tells_are_within_the_bound(chunks: int) -> None:
    values = np.random.default_rng(8).exponential(size=100_000)
    read = datasketches.kll_doubles_sketch.deserialize(kll(pa.array(values), 200, chunks)["sketch"])
    parts = np.arange(1, 100) / 100
    assert np.quantile(rank_errors(values, np.array(read.get_quantiles(parts.tolist(), True)), parts), 0.99) < 0.0135
    read.merge(datasketches.kll_doubles_sketch.deserialize(kll(pa.array(values + 1), 200, chunks)["sketch"]))
    both = np.concatenate([values, values + 1])
    assert rank_errors(both, np.array(read.get_quantiles(parts.tolist(), True)), parts).max() < 2 * 0.0135


def test_a_sketch_has_no_nan_and_is_null_without_values(driver: Any) -> None:
    nan = float("nan")
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    run = driver(Aggregation("op", schema, ("k",), {"s": quantile("v", sketch=True)}))
    rows = {"k": [1, 1, 1, 1, 2, 2, 3], "v": pa.array([2.0, nan, None, -0.0, nan, None, 7.0], from_pandas=False)}
    got = {row["k"]: row["s"] for row in run.batch(pa.table(rows, schema=schema), cuts=[2])}
    assert got[2] is None
    read = {key: datasketches.kll_doubles_sketch.deserialize(got[key]) for key in (1, 3)}
    assert {key: list(each) for key, each in read.items()} == {1: [(0.0, 1), (2.0, 1)], 3: [(7.0, 1)]}
    assert (read[1].get_min_value(), read[1].get_max_value()) == (0.0, 2.0)
    after = run.batch(pa.table({"k": [2], "v": [1.5]}, schema=schema))
    assert list(datasketches.kll_doubles_sketch.deserialize(after[0]["s"])) == [(1.5, 1)]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_and_merges_our_sketches(spark: Any) -> None:
    kinds = {"double": pa.float64(), "float": pa.float32(), "bigint": pa.int64()}
    values = np.random.default_rng(4).permutation(50_000)
    parts = [values[:1], values[1:3], values[3:300], values[300:20_000], values[20_000:]]
    for name, kind in kinds.items():
        made = [kll(pa.array(part).cast(kind), 200, 3) for part in parts]
        frame = spark.createDataFrame(
            [(number, bytearray(each["sketch"])) for number, each in enumerate(made)], "n int, s binary"
        )
        read = frame.selectExpr(
            f"kll_sketch_get_n_{name}(s) n",
            *(f"kll_sketch_get_quantile_{name}(s, {part}D) q{at}" for at, part in enumerate(PARTS)),
            f"kll_sketch_get_quantile_{name}(s, 0D) least",
            f"kll_sketch_get_quantile_{name}(s, 1D) greatest",
            f"kll_sketch_get_n_{name}(kll_sketch_merge_{name}(s, s)) twice",
        )
        for row, part, each in zip(read.collect(), parts, made, strict=True):
            assert (row["n"], row["twice"]) == (len(part), 2 * len(part))
            assert [row[f"q{at}"] for at in range(len(PARTS))] == each["values"]
            assert (row["least"], row["greatest"]) == (part.min(), part.max())
        merged = frame.selectExpr(f"kll_merge_agg_{name}(s) s").selectExpr(
            f"kll_sketch_get_n_{name}(s) n", f"kll_sketch_get_quantile_{name}(s, 0.5D) median"
        )
        whole = merged.collect()[0]
        assert whole["n"] == 50_000
        assert whole["median"] / 50_000 == pytest.approx(0.5, abs=2 * 0.0135)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: approx_distinct("v", precision=3), "precision must be a whole number from 7 to 21, got 3"),
        (lambda: quantile("v", 1.5), "q must be from 0 to 1, 0.5 for the median, got 1.5"),
        (lambda: quantile("v", [0.5, -1]), "q must be from 0 to 1, 0.5 for the median, got -1"),
        (lambda: quantile("v", []), "q must be a number or a list with at least one, got an empty list"),
        (lambda: quantile("v", 0.5, size=4), "size must be at least 8, got 4"),
        (lambda: quantile("v"), "q must be given, 0.5 for the median; or sketch=True for the sketch itself"),
        (lambda: quantile("v", 0.5, sketch=True), "q must be left out with sketch=True, got 0.5: the result is the"),
        (lambda: quantile("v", sketch=True, size=65_536), "size must be at most 65535 with sketch=True, got 65536"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_text_has_no_quantiles() -> None:
    text = r"the quantile 'q' needs a column of numbers \(decimals of up to 18 digits\), dates, .* got string"
    with pytest.raises(InputError, match=text):
        Aggregation("op", ROWS, ("k",), {"q": quantile("s", 0.5)})


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.uint64(), pa.date32(), pa.timestamp("us"), pa.decimal128(9, 2)], ids=str
)
def test_what_has_no_sketch_of_quantiles_is_refused(kind: pa.DataType) -> None:
    text = r"the quantile 's' needs a column of integers that fit long, floats or doubles for a sketch, got .*: cast it"
    with pytest.raises(InputError, match=text):
        Aggregation("op", pa.schema([("k", pa.int64()), ("v", kind)]), ("k",), {"s": quantile("v", sketch=True)})


def test_more_bytes_than_a_column_holds_are_refused() -> None:
    text = (
        "has sketches of 2147483648 bytes in one task, which must be no more than 2147483647: take a lower precision or"
    )
    with pytest.raises(UnfitError, match=text):
        binary_of(np.array([0, 2**31]), np.empty(0, np.uint8))


def test_datasketches_is_never_loaded() -> None:
    program = (
        "import sys, numpy as np, pyarrow as pa, headgate.operators as o; "
        "s = pa.schema([('k', pa.int64()), ('v', pa.int64())]); "
        "a = o.Aggregation('op', s, ('k',), {'n': o.approx_distinct('v'), 'q': o.quantile('v', sketch=True)}); "
        "a.finished(a.early(pa.table({'k': [1], 'v': [2]}), np.array([7]))[0]); "
        "print(any('datasketches' in name for name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_state_of_another_precision_size_or_type_has_another_column() -> None:
    """A checkpoint is refused by the columns of its state, and what one of these has means nothing in another."""

    double = pa.float64()

    def columns(aggregate: Any, kind: pa.DataType = double) -> list[str]:
        return [field.name for field in aggregate.fold([kind]).fields]

    assert columns(approx_distinct("v")) == ["hll_12"]
    assert columns(approx_distinct("v", precision=11)) == ["hll_11"]
    assert columns(quantile("v", sketch=True)) == ["kll_200_double"]
    assert columns(quantile("v", sketch=True, size=64)) == ["kll_64_double"]
    assert columns(quantile("v", sketch=True), pa.int32()) == ["kll_200_int64"]
    assert columns(quantile("v", 0.5)) == ["summary_double"]
    assert columns(quantile("v", 0.5), pa.date32()) == ["summary_date32[day]"]
