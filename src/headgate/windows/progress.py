"""How far a window has come: what the watermark makes of its end. Enorm 6.2, with boundaries for punctuations.

    watermark      ......... end ................. end + lateness .........
    stage            OPEN     |       EMITTED        |         GONE
    enorm 6.2        active   |       processing     |         completed

The watermark of a batch holds for the whole batch, so every slot sees a window in the same stage: that is what the
paper's modification punctuation is for.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from headgate.arrays import I8, I64

NO_WATERMARK = -(2**63)
"""The watermark before any event time was seen; the engine's value."""


class Stage(IntEnum):
    """Where a window stands. Each value's rows: on time; late but allowed; too late."""

    OPEN = 0
    EMITTED = 1
    GONE = 2


def watermark_of(greatest: int, slack: int) -> int:
    """The time that all later rows are expected to have passed: the greatest event time seen, less the slack.

    A window ``[start, end)`` is complete once the watermark is ``end`` or more (enorm 4.2: t >= ts_j + s).
    """
    return greatest if greatest == NO_WATERMARK else max(greatest - slack, NO_WATERMARK)


def stages(ends: I64, watermark: int, lateness: int = 0) -> I8:
    """The stage of windows that end at ``ends``, as numbers of ``Stage``."""
    closed = ends <= watermark
    gone = ends <= max(watermark - lateness, NO_WATERMARK)
    found: I8 = closed.astype(np.int8) + gone.astype(np.int8)
    return found
