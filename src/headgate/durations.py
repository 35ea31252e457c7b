"""Durations as people write them: ``"10 minutes"``, a ``timedelta``, or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from headgate.errors import JobError

UNITS = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 1_000_000, "second": 1_000_000,
    "min": 60_000_000, "m": 60_000_000, "minute": 60_000_000, "h": 3_600_000_000, "hour": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "w": 604_800_000_000, "week": 604_800_000_000,
}  # fmt: skip
"""Microseconds of each unit."""

LONGEST_YEARS = 100_000
"""A third of what 64 bits of microseconds hold, so that a time and a duration can be added up."""

Duration = str | timedelta | int | float

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def micros_of(value: Duration, what: str) -> int:
    """Microseconds; raises ``JobError`` naming ``what`` for anything that is no duration, or is longer than
    ``LONGEST_YEARS``."""
    micros = _micros(value)
    if micros is None:
        raise JobError.option(what, 'a duration such as "10 minutes", a timedelta or a number of seconds', value)
    if micros > LONGEST_YEARS * 365 * UNITS["day"]:
        raise JobError.option(what, f"at most {LONGEST_YEARS:,} years", value)
    return round(micros)


def _micros(value: Duration) -> float | None:
    """Microseconds; None for what is no duration."""
    if isinstance(value, timedelta) and value >= timedelta(0):
        return round(value.total_seconds() * 1e6)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return min(value, 1e18) * 1e6  # a whole number may be beyond all floats
    if isinstance(value, str):
        total, at = 0.0, 0
        text = value.lower()
        while at < len(text):
            part = _PART.match(text, at)
            unit = part.group(2) if part else ""
            unit = unit if unit in UNITS else unit.removesuffix("s")
            if part is None or unit not in UNITS:
                break
            total += float(part.group(1)) * UNITS[unit]
            at = part.end()
        if text.strip() and at == len(text):
            return total
    return None
