"""The array types that the core speaks in, and the few helpers that keep them immutable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
Bool = NDArray[np.bool_]

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a hot loop with Numba; the machine code is kept beside the module for the next process."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def frozen_f64(values: ArrayLike) -> F64:
    """A read-only float array; copies only when it must."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    return _read_only(array, values)


def frozen_i64(values: ArrayLike) -> I64:
    """A read-only 64-bit integer array; copies only when it must."""
    array = np.ascontiguousarray(values, dtype=np.int64)
    return _read_only(array, values)


def frozen_i32(values: ArrayLike) -> I32:
    """A read-only 32-bit integer array; copies only when it must."""
    array = np.ascontiguousarray(values, dtype=np.int32)
    return _read_only(array, values)


def sums(index: NDArray[np.integer], values: ArrayLike, size: int) -> F64:
    """What the values add up to per index: ``size`` numbers, 0 where an index does not occur."""
    # Of nothing, bincount makes integers.
    return np.bincount(index, np.asarray(values, dtype=np.float64), minlength=size).astype(np.float64, copy=False)


def among(values: I64, those: I64) -> Bool:
    """Which values are among those. Free where either is empty, which NumPy's ``isin`` is not."""
    if not len(values) or not len(those):
        return np.zeros(len(values), dtype=np.bool_)
    ascending = np.sort(those)
    found: Bool = ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)] == values
    return found


Array = TypeVar("Array", bound=NDArray[np.generic])


def _read_only(array: Array, source: object) -> Array:
    ours = array.copy() if array is source and array.flags.writeable else array
    ours.setflags(write=False)
    return ours


@compiled
def word_at(data: NDArray[np.uint8], at: int, width: int) -> np.uint64:
    """The number in up to 8 bytes, least first."""
    word = np.uint64(0)
    for index in range(width):
        word |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return word


def by_place(place: I32, hashes: I64) -> I64:
    """The order of rows by place and within a place by hash; which of two that are equal comes first is not said.

    As ``np.lexsort((hashes, place))``, in less than half the time: hashes are sorted by NumPy's fast unstable sort, and
    places, of which there are few, by radix.
    """
    order = np.argsort(hashes)
    few = place[order]
    if len(few) and few.max() <= np.iinfo(np.uint16).max:
        few = few.astype(np.uint16)
    return order[np.argsort(few, kind="stable")]
