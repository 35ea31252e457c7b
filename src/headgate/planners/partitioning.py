"""Balanced graph partitioning: parts of about equal weight that exchange little. What COLA and ALBIC share.

The partitioner is METIS (Karypis and Kumar, "Multilevel algorithms for multi-constraint graph partitioning", SC 1998),
which takes whole numbers only; weights are scaled to them.
"""

from __future__ import annotations

import numpy as np
import pymetis
from scipy import sparse

from headgate.arrays import F64, I32, I64
from headgate.stats.snapshot import Traffic

WHOLE = 10_000_000
"""What all vertex weights, and all edge weights, add up to at most once scaled: METIS adds them up in 32 bits."""


class Graph:
    """Units and the traffic between them, whichever way it goes; traffic of a unit with itself is left out."""

    def __init__(self, size: int, traffic: Traffic) -> None:
        apart = traffic.source != traffic.target
        ends = (traffic.source[apart], traffic.target[apart])
        one_way = sparse.csr_array((traffic.rate[apart], ends), shape=(size, size))
        self._edges = sparse.csr_array(one_way + one_way.T)

    def split(self, members: I64, weight: F64, parts: int, seed: int) -> I32:
        """The part, 0 to ``parts`` - 1, of each member, cutting little traffic; ``weight`` has one value per member.

        Parts may be empty where a few members have most of the weight. The same seed gives the same parts.
        """
        if parts <= 1:
            return np.zeros(len(members), dtype=np.int32)
        if len(members) <= parts:
            return np.arange(len(members), dtype=np.int32)
        inner = sparse.csr_array(self._edges[members][:, members])
        if inner.nnz == 0:
            return _dealt(weight, parts)
        options = pymetis.Options(seed=seed)
        _, part_of = pymetis.part_graph(
            parts,
            pymetis.CSRAdjacency(inner.indptr.astype(np.int32), inner.indices.astype(np.int32)),
            vweights=_whole(weight, least=0),
            eweights=_whole(inner.data, least=1),
            # Bisecting over and over is the better of METIS's two ways for few parts, as its manual says.
            recursive=parts <= 8,
            options=options,
        )
        return np.asarray(part_of, dtype=np.int32)


def _whole(values: F64, least: int) -> I32:
    """Whole numbers in proportion to the values, none below ``least``."""
    total = float(values.sum())
    scaled = values * (WHOLE / total) if total > 0 else np.ones(len(values))
    return np.maximum(np.rint(scaled), least).astype(np.int32)


def _dealt(weight: F64, parts: int) -> I32:
    """Without traffic: the heaviest first, each to the part with the least weight."""
    part_of = np.empty(len(weight), dtype=np.int32)
    held = np.zeros(parts)
    for member in np.argsort(-weight, kind="stable"):
        part_of[member] = np.argmin(held)
        held[part_of[member]] += weight[member]
    return part_of
