"""Options that are more than a word: ranges, lists such as ``3,4`` and ``1,1,0.5``, pairs such as ``memory=100``."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headgate.errors import InputError


def within(option: str, value: int, least: int, most: int) -> None:
    """Raise ``InputError`` for a number outside ``least`` to ``most``, both included."""
    if value < least:
        raise InputError(f"{option} must be at least {least}, got {value}")
    if value > most:
        raise InputError(f"{option} must be at most {most:,}, got {value}")


def finite(option: str, value: float | None) -> None:
    """Raise ``InputError`` for a number that is negative, NaN or infinite; None, an option nobody gave, is fine."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise InputError(f"{option} must be a finite number, zero or more, got {value:g}")


def slot_numbers(text: str | None) -> frozenset[int]:
    """``3,4`` -> {3, 4}. Raises ``InputError`` for anything but whole numbers."""
    try:
        return frozenset(int(part) for part in _parts(text))
    except ValueError:
        raise InputError(
            f"--draining must be slot numbers with commas between them, got {text!r}: write --draining 3,4"
        ) from None


def capacities(text: str | None) -> list[float] | None:
    """``1,1,0.5`` -> one capacity per slot; None where nobody said."""
    if text is None:
        return None
    try:
        return [float(part) for part in _parts(text)]
    except ValueError:
        raise InputError(
            f"--capacity must be one number per slot with commas between them, got {text!r}: write --capacity 1,1,0.5"
        ) from None


def caps(texts: Iterable[str]) -> dict[str, float | list[float]]:
    """``memory=100`` or ``memory=100,100,50`` -> the cap on each resource."""
    found: dict[str, float | list[float]] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        try:
            numbers = [float(part) for part in _parts(value)]
        except ValueError:
            numbers = []
        if not (name and equals and numbers) or any(math.isnan(number) for number in numbers):
            raise InputError(
                f"--cap must be a column's name, an equals sign and one number or one per slot, got {text!r}: "
                "write --cap memory=100"
            )
        if name in found:
            raise InputError(f"--cap may name each resource once, got {name!r} twice: give one number per slot instead")
        found[name] = numbers[0] if len(numbers) == 1 else numbers
    return found


def _parts(text: str | None) -> list[str]:
    return [] if text is None or not text.strip() else text.split(",")
