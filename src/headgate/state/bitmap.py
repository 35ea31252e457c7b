"""Bitmap: an immutable set of places, packed eight to a byte."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headgate.arrays import I32, Bool


@dataclass(frozen=True, slots=True)
class Bitmap:
    """A set of places (numbers from 0). Equal sets compare equal; hashable, small to pickle.

    A place beyond the last bit is simply not in the set, so bitmaps of different numbers of places go together.
    """

    packed: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", self.packed.rstrip(b"\0"))  # one form per set

    def __reduce__(self) -> tuple[type[Bitmap], tuple[bytes]]:
        return Bitmap, (self.packed,)  # references pickle often: shorter, and quicker

    @classmethod
    def of(cls, places: ArrayLike) -> Bitmap:
        """The set of these places, in any order, repeated or not."""
        numbers = np.asarray(places, dtype=np.int64)
        if not len(numbers):
            return cls()
        mask = np.zeros(int(numbers.max()) + 1, dtype=np.bool_)
        mask[numbers] = True
        return cls.of_mask(mask)

    @classmethod
    def of_mask(cls, mask: Bool) -> Bitmap:
        """The places at which the mask is true."""
        return cls(np.packbits(mask, bitorder="little").tobytes())

    @classmethod
    def from_text(cls, text: str) -> Bitmap:
        """What ``to_text`` wrote. ``ValueError`` for anything else."""
        return cls(base64.b64decode(text, validate=True))

    def to_text(self) -> str:
        """Base64, the form it has in a manifest."""
        return base64.b64encode(self.packed).decode("ascii")

    def mask(self, size: int) -> Bool:
        """One truth value per place 0 to size - 1."""
        mask = np.zeros(size, dtype=np.bool_)
        # Not by its argument `count`, which gives memory as it was found when there are no bytes at all.
        bits = np.unpackbits(np.frombuffer(self.packed, dtype=np.uint8), bitorder="little")[:size]
        mask[: len(bits)] = bits
        return mask

    def contains(self, places: I32) -> Bool:
        """Whether each of these places is in the set."""
        if not len(places):
            return np.zeros(0, dtype=np.bool_)
        return self.mask(max(int(places.max()) + 1, 8 * len(self.packed)))[places]

    def indices(self) -> I32:
        """The places in the set, ascending."""
        return np.flatnonzero(self.mask(8 * len(self.packed))).astype(np.int32)

    def union(self, other: Bitmap) -> Bitmap:
        return Bitmap(_bytes(_number(self) | _number(other)))

    def intersect(self, other: Bitmap) -> Bitmap:
        return Bitmap(_bytes(_number(self) & _number(other)))

    def minus(self, other: Bitmap) -> Bitmap:
        return Bitmap(_bytes(_number(self) & ~_number(other)))

    def __bool__(self) -> bool:
        return bool(self.packed)

    def __len__(self) -> int:
        return _number(self).bit_count()

    def __contains__(self, place: int) -> bool:
        at, bit = divmod(place, 8)
        return 0 <= at < len(self.packed) and bool(self.packed[at] >> bit & 1)


def _number(bitmap: Bitmap) -> int:
    return int.from_bytes(bitmap.packed, "little")


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "little")
