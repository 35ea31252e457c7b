"""Why two operators are in one component, or are not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Why(Enum):
    """The reason behind a verdict."""

    SCORE = "score"
    """Their edge had the best score of all that could be fused."""
    THROUGH = "through"
    """Fused because of other edges."""
    MANUAL = "manual"
    """The user said so."""
    NO_EDGE = "no edge"
    """Nothing flows between them."""
    IDLE = "idle"
    """The edge was measured and nothing flows along it."""
    NOTHING_COMMON = "nothing common"
    """No column both can be partitioned by."""
    LOST = "lost"
    """The common columns do not survive on the way."""
    NARROWED = "narrowed"
    """They have columns in common, but not with what they were fused with before."""
    CYCLE = "cycle"
    """The component would have to wait for another that waits for it."""
    PASSED_OVER = "passed over"
    """The baseline does not come back to what it could not, or was not to, fuse when it came by."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """On two operators: fused or not, and why; ``rate`` is that of their edge, if it has one and was measured."""

    source: str
    target: str
    fused: bool
    why: Why
    text: str
    rate: float | None = None

    def __str__(self) -> str:
        how = "fused" if self.fused else "not fused"
        return f"{self.source} -> {self.target}: {how}: {self.text}"
