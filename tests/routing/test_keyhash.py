"""The key hash never changes: state on disk is laid out by it. The values here are Spark's."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import KeyTypeError
from headgate.routing import key_hash

# What Spark answers to SELECT xxhash64(k), integers as bigint; tests/integration/test_spark_hash.py asks Spark itself.
GOLDEN = [
    pytest.param(
        pa.array([0, 1, -1, 2**63 - 1, -(2**63)]),
        [-5252525462095825812, -7001672635703045582, 3858142552250413010, -3246596055638297850, -8619748838626508300],
        id="integers",
    ),
    pytest.param(
        pa.array(["", "a", "headgate", "é" * 20, "x" * 100]),
        [-7444071767201028348, -8582455328737087284, -7623008765717524830, -8542241973752629332, 365730103971579591],
        id="strings short and long, UTF-8",
    ),
    pytest.param(pa.array([True, False]), [-6698625589789238999, 3614696996920510707], id="booleans"),
    pytest.param(
        pa.array([dt.date(1970, 1, 1), dt.date(2026, 11, 15), dt.date(1900, 1, 1)]),
        [3614696996920510707, -6290839230035919275, 87636426632586988],
        id="dates before and after 1970",
    ),
    pytest.param(
        pa.array([dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 15, 1, 2, 3, 456789)], pa.timestamp("us")),
        [-5252525462095825812, -2152435222620897114],
        id="timestamps",
    ),
    pytest.param(
        pa.array([Decimal("0.00"), Decimal("1.50"), Decimal("-1.50")], pa.decimal128(10, 2)),
        [-5252525462095825812, -6873856301616164681, -3700955262752989823],
        id="decimals of up to 18 digits",
    ),
    pytest.param(
        pa.array([Decimal(0), Decimal(-1), Decimal(123456789012345678901234567890), Decimal(-128)], pa.decimal128(38)),
        [-8959994473701255385, -4006032525457443936, 7467050800690399880, -7898411661632158123],
        id="decimals of more than 18 digits",
    ),
    pytest.param(
        pa.array([b"", b"\x00", b"\xff" * 33]),
        [-7444071767201028348, -8959994473701255385, -1855291848129454215],
        id="bytes",
    ),
    pytest.param(pa.array([None, None], pa.string()), [42, 42], id="nulls leave the seed"),
]


@pytest.mark.parametrize(("column", "expected"), GOLDEN)
def test_golden_values(column: pa.Array, expected: list[int]) -> None:
    assert key_hash(column).tolist() == expected


@pytest.mark.parametrize(("column", "expected"), GOLDEN)
def test_slices_of_an_array_hash_like_the_whole(column: pa.Array, expected: list[int]) -> None:
    assert key_hash(column[1:]).tolist() == expected[1:]


def test_several_columns_are_hashed_left_to_right() -> None:
    assert key_hash([1], ["a"]).tolist() == [-8527884376001292090]
    assert key_hash(["a"], [1]).tolist() == [-1010403264180844141]
    assert key_hash(pa.array([None], pa.string()), ["a"]).tolist() == key_hash(["a"]).tolist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_integers_of_every_width_hash_alike(kind: pa.DataType) -> None:
    values = [0, 1, 100, None, 127]
    assert key_hash(pa.array(values, kind)).tolist() == key_hash(pa.array(values, pa.int64())).tolist()


def test_the_same_text_hashes_alike_in_every_form() -> None:
    words = ["the", "quick", None, "the", ""]
    plain = key_hash(pa.array(words)).tolist()
    assert key_hash(pa.array(words, pa.large_string())).tolist() == plain
    assert key_hash(pa.array(words).dictionary_encode()).tolist() == plain
    assert key_hash(pa.chunked_array([words[:2], words[2:]])).tolist() == plain
    assert key_hash(words).tolist() == plain
    assert key_hash(np.array(["the", "quick"])).tolist() == plain[:2]


def test_fixed_size_bytes_hash_like_bytes() -> None:
    values = [b"abcd", b"efgh"]
    assert key_hash(pa.array(values, pa.binary(4))).tolist() == key_hash(pa.array(values)).tolist()


def test_another_process_computes_the_same() -> None:
    program = "from headgate.routing import key_hash; print(key_hash(['headgate'])[0])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "-7623008765717524830"


@given(st.lists(st.text(), min_size=1, max_size=30))
def test_a_key_hashes_alike_whatever_is_beside_it(words: list[str]) -> None:
    together = key_hash(pa.array(words)).tolist()
    assert together == [int(key_hash(pa.array([word]))[0]) for word in words]


few = st.one_of(st.none(), st.sampled_from([0, 1, 2**63 - 1, -(2**63)]))


@given(st.lists(st.tuples(few, few), min_size=1, max_size=30))
def test_keys_that_come_again_hash_alike(pairs: list[tuple[int | None, int | None]]) -> None:
    """Neighbours are equal in one column, in both or in none."""
    ones, others = (pa.array(column, pa.int64()) for column in zip(*pairs, strict=True))
    together = key_hash(ones, others).tolist()
    assert together == [int(key_hash(ones.slice(row, 1), others.slice(row, 1))[0]) for row in range(len(pairs))]


def test_a_million_keys_do_not_collide() -> None:
    assert len(np.unique(key_hash(np.arange(1_000_000)))) == 1_000_000


@pytest.mark.parametrize("column", [pa.array([0.5]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_types_without_a_stable_hash_are_refused_with_advice(column: pa.Array) -> None:
    with pytest.raises(KeyTypeError, match=r"key column 1 has type .*cast the column first"):
        key_hash([1], column)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(KeyTypeError, match=r"equal lengths, got 2, 1: pass columns of one table"):
        key_hash([1, 2], [3])


def test_python_decimals_without_a_type_are_refused() -> None:
    with pytest.raises(KeyTypeError, match=r"column 0 holds Python decimals.*pass an Arrow array of a decimal type"):
        key_hash([Decimal("1.5")])


@pytest.mark.parametrize("values", [[1, "a"], [2**64]], ids=["mixed types", "beyond 64 bits"])
def test_values_that_arrow_cannot_hold_are_refused(values: list[object]) -> None:
    with pytest.raises(KeyTypeError, match="key column 0 must hold values of one type"):
        key_hash(values)
