"""What is dumped is loaded: plain values, arrays, Arrow data; and functions, by name or by value."""

from __future__ import annotations

import operator
import pickle
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import FrameError, ShippingError
from headgate.regions import cargo

values = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=20),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=10,
)


def through(value: Any) -> Any:
    parts, buffers = cargo.dump(value)
    return cargo.load(bytearray(b"".join(parts)), buffers)


@given(st.lists(values, max_size=5))
def test_plain_values(items: list[Any]) -> None:
    assert through(items) == items


def test_arrays_travel_beside_the_pickle_and_come_back_writable() -> None:
    array = np.arange(1000.0)
    assert cargo.dump([array, array * 2])[1] == 2
    first, second = through([array, array * 2])
    np.testing.assert_array_equal(first, array)
    np.testing.assert_array_equal(second, array * 2)
    first[0] = 7.0
    assert first[0] == 7.0


def test_an_array_that_is_not_contiguous() -> None:
    array = np.arange(100).reshape(10, 10)[::2, ::3]
    np.testing.assert_array_equal(through([array])[0], array)


def test_a_slice_of_a_table_travels_as_a_slice_also_within_a_tuple() -> None:
    table = pa.table({"x": range(100_000)})
    parts, _ = cargo.dump([("key", table.slice(10, 5))])
    assert sum(map(len, parts)) < 2_000
    ((key, found),) = through([("key", table.slice(10, 5))])
    assert (key, found.to_pydict()) == ("key", {"x": [10, 11, 12, 13, 14]})


def test_record_batches_also_without_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2]})
    full, empty = through([batch, batch.slice(0, 0)])
    assert full.equals(batch)
    assert empty.num_rows == 0
    assert empty.schema == batch.schema


@pytest.mark.parametrize(
    ("payload", "buffers"),
    [(bytearray(4), 1), (bytearray(b"\xff" * 16), 2), (bytearray(b"\x00" * 7 + b"\x20" + b"x" * 8), 1)],
    ids=["no room for the table", "lengths beyond the payload", "a buffer longer than what is left"],
)
def test_lengths_that_do_not_fit(payload: bytearray, buffers: int) -> None:
    with pytest.raises(FrameError, match="must be whole and agree with itself"):
        cargo.load(payload, buffers)


def test_a_function_with_a_name_goes_by_name() -> None:
    data = cargo.dump_function(operator.neg, main=False)
    assert pickle.loads(data) is operator.neg
    assert len(data) < 60


def test_a_lambda_without_cloudpickle_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cargo, "CLOUDPICKLES", ())
    with pytest.raises(ShippingError, match=r"define it at the top level of a module .* or install cloudpickle"):
        cargo.dump_function(lambda x: x, main=True)


def test_a_lambda_with_cloudpickle_goes_by_value() -> None:
    pytest.importorskip("pyspark.cloudpickle", reason="no cloudpickle here")
    by = 3
    assert pickle.loads(cargo.dump_function(lambda x: x * by, main=False))(5) == 15


def test_what_cannot_be_pickled_even_by_value() -> None:
    pytest.importorskip("pyspark.cloudpickle", reason="no cloudpickle here")
    handle = threading.Lock()
    with pytest.raises(ShippingError, match="must be one that another process can load"):
        cargo.dump_function(lambda x: handle, main=False)


def test_which_value_cannot_be_pickled() -> None:
    found = cargo.first_unpicklable([1, 2, threading.Lock(), 4])
    assert found is not None
    assert found[0] == 2
    assert cargo.first_unpicklable([1, "a"]) is None
