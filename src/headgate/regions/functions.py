"""Blocking-rate functions: how much a connection would hold up the splitter at each share of the load.

A function has a value for each weight 0..R (section 5.1). The value at w is the time for which the splitter waits per
unit of time in which it can go on: with the fraction b of a period spent waiting, b / (1 - b). We call it the drag.

    drag                         Let c be the weight that a worker can just keep up with when the splitter never waits
      |            o new         (its service rate in the splitter's eyes, the knee of figure 7). With more than that
      |          /               the splitter sends a fraction c / w of what it could, so the drag is w / c - 1: a
      |        o                 straight line from the knee on. The blocking rate itself, 1 - c / w, bends, and is
      |      /                   close to 1 for every weight when the splitter is much faster than the workers.
      +-----+-------------- w
      0     c           R

So one value at one weight tells the whole line, and even a connection that did not block tells something: where the
region as a whole had drag X, a connection at weight w that did not block has no more than X there. Nothing more is
known of it. How much one sample says about other weights is :data:`REACH`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import isotonic_regression

from headgate.arrays import F64, I64, Bool, compiled
from headgate.regions.balance import RESOLUTION

FADING = 0.5
"""What is left of old evidence when new data comes. A new value then counts as much as all older ones together: a
load that comes or goes shows in two or three samples, and a single odd sample is halved (section 3.1 only asks for "an
appropriately smoothed" value)."""

REACH = 0.5
"""What a value counts at other weights, by the line through it, relative to what it counts at its own. At 0 only the
measured weight learns, as in the paper, and a changed load must be found out weight by weight; at 1 the shape of what
was measured before is gone with each sample."""

FAINT = 1e-3
"""The evidence of values that no measured value supports, beside 1 for a measured one: they give way to any that one
does."""

TOLERANCE = 0.1
"""How far a drag may lie above what is known and still be put down to noise rather than to a change."""

STEPS: F64 = np.arange(RESOLUTION + 1, dtype=np.float64)
STEPS.setflags(write=False)


def line(weight: F64, drag: F64) -> F64:
    """For each pair the drag at 0..R of a worker that had this drag at this weight: zero up to its knee, then straight.

    At weight 0 nothing can be measured: the line is infinite, save at 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = STEPS * ((1.0 + drag) / weight)[..., None] - 1.0
    steep[..., 0] = 0.0
    np.nan_to_num(steep, copy=False, nan=np.inf, posinf=np.inf)
    return np.maximum(steep, 0.0)


@dataclass(slots=True)
class Functions:
    """What is believed of each connection. ``raw`` is smoothed data, infinite where there is none; a row each.

    ``evidence`` says how much measured data a value rests on; without any, a value is an upper bound. ``hope`` is what
    a function is multiplied by where weights are shared out: exploration makes it fall (section 5.4), being to blame
    brings it back to 1. ``fitted`` keeps the functions, save those that are ``stale``.
    """

    connections: int
    raw: F64 = field(init=False)
    hope: F64 = field(init=False)
    evidence: F64 = field(init=False)
    fitted: F64 = field(init=False)
    stale: Bool = field(init=False)

    def __post_init__(self) -> None:
        self.raw = np.full((self.connections, RESOLUTION + 1), np.inf)
        self.raw[:, 0] = 0.0
        self.hope = np.ones(self.connections)
        self.evidence = np.zeros_like(self.raw)
        self.fitted = np.zeros_like(self.raw)
        self.stale = np.ones(self.connections, dtype=np.bool_)

    @property
    def measured(self) -> Bool:
        """Which connections have blocked: of the others only bounds are known, or nothing."""
        return self.evidence[:, -1] > 0

    def forget(self, which: Bool) -> None:
        """Nothing is known of these any more."""
        self.raw[which, 1:] = np.inf
        self.evidence[which] = 0.0
        self.stale[which] = True
        self.hope[which] = 1.0

    def rescale(self, by: float) -> None:
        """The unit of the drag has become smaller: the splitter could have sent so many times more when not waiting."""
        self.raw[:, 1:] = by * (1.0 + self.raw[:, 1:]) - 1.0
        self.stale[:] = True

    def may_have(self, weights: I64, drag: float) -> Bool:
        """Which connections may have this drag at these weights by what is known of them."""
        at = self.raw[np.arange(self.connections), weights]
        return (weights > 0) & (1.0 + at >= (1.0 - TOLERANCE) * (1.0 + drag))

    def measure(self, which: Bool, weights: I64, drag: F64, share: F64) -> None:
        """These connections blocked at their weights (above 0), with this drag and share of the blame each."""
        if not which.any():
            return
        rows = np.flatnonzero(which)
        at = weights[rows]
        fresh = np.full((len(rows), RESOLUTION + 1), REACH)
        fresh[np.arange(len(rows)), at] = 1.0
        kept = self.evidence[rows] * FADING
        pull = fresh / (fresh + kept)
        told = line(at.astype(np.float64), drag[rows])
        before = np.where(np.isfinite(self.raw[rows]), self.raw[rows], told)
        self.raw[rows] = before + pull * (told - before)
        self.evidence[rows] = kept + fresh
        self.stale[rows] = True
        self.hope[rows] += share[rows] * (1.0 - self.hope[rows])

    def bound(self, which: Bool, weights: I64, drag: float) -> None:
        """These connections did not block at their weights while the region had this drag: they have no more."""
        rows = np.flatnonzero(which & (weights > 0))
        self.stale[rows] |= _lower(self.raw, self.evidence, rows, weights, drag)

    def curves(self) -> F64:
        """The functions, before hope: finite, non-decreasing, zero at 0. The unknown get the mean of the others."""
        unknown = np.isinf(self.raw[:, -1])
        rows = np.flatnonzero(self.stale & ~unknown)
        self.fitted[rows] = monotone(self.raw[rows], self.evidence[rows] + FAINT)
        self.stale[rows] = False
        if unknown.any():
            self.fitted[unknown] = 0.0 if unknown.all() else self.fitted[~unknown].mean(axis=0)
        return self.fitted


def monotone(raw: F64, evidence: F64) -> F64:
    """The non-decreasing rows that are nearest to the rows of ``raw``, by squares weighted with the evidence.

    One regression serves all rows: each is lifted above the one before, so that no two are pooled.
    """
    if not len(raw):
        return raw
    lift = (raw.max() + 1.0) * np.arange(len(raw))[:, None]
    fitted = isotonic_regression((raw + lift).ravel(), weights=evidence.ravel()).x.reshape(raw.shape) - lift
    fitted[:, 0] = 0.0
    return np.maximum.accumulate(np.maximum(fitted, 0.0), axis=1)


@compiled
def _lower(raw: F64, evidence: F64, rows: I64, weights: I64, drag: float) -> Bool:
    """Bring values down towards the line of each row's bound, all the way without evidence; which rows changed."""
    changed = np.zeros(len(rows), dtype=np.bool_)
    for at in range(len(rows)):
        row = rows[at]
        steep = (1.0 + drag) / weights[row]
        for step in range(1, raw.shape[1]):
            told = max(steep * step - 1.0, 0.0)
            before = raw[row, step]
            if told < before:
                kept = evidence[row, step] * FADING
                raw[row, step] = told if kept == 0.0 else before + REACH / (REACH + kept) * (told - before)
                changed[at] = True
    return changed
