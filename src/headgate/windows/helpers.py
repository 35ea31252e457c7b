"""Helper windows: sums over blocks of slices that no user asked for, so that long windows take few pieces.

Windows of one length have no window inside them to be made of: with length 60 and hop 1 every window merges 60 slices,
and two neighbours merge 59 of them twice. Helpers are tumbling windows of ``radix ** j`` slices:

        slices       | | | | | | | | | | | | | | | | |
        helpers, 2   |---|---|---|---|---|---|---|---|
        helpers, 4   |-------|-------|-------|-------|
        a window         |=======|=======|===|=|            4 pieces instead of 11

They close, are made and are dropped like other windows, by the same planner, and are never emitted. A helper costs
``radix`` merges and at most as many keys as its slices have together. Not in the paper, which has windows of different
lengths only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from headgate.windows.consolidation import Consolidation
from headgate.windows.kinds import Hop
from headgate.windows.slices import Slicing

RADICES = (2, 3)
"""Sizes of blocks that are tried. Length 60, hop 1 takes 7.7 merges a slice with 2, 8.4 with 3, 10 with 4, 13.8 with 8:
larger ones never win."""

SAMPLED = 12
"""Windows per hop that merges are counted on. Counts differ by one or two between windows of a hop."""

STRIDE = 7
"""Between sampled windows, in hops: prime, so that samples meet blocks at every phase."""

WORTHWHILE = 0.8
"""Helpers are taken only below this share of the merges without: they also take memory."""


@lru_cache(maxsize=64)
def with_helpers(slicing: Slicing) -> Slicing:
    """The same slicing with the helpers that need fewest merges, or as it is where none gain enough."""
    bare = tuple(hop for hop in slicing.hops if not hop.helper)
    plain = replace(slicing, hops=bare)
    if len(bare) == 1 and bare[0].length <= bare[0].every:
        return plain  # a slice is in one window, and merged once
    best, least = plain, WORTHWHILE * merges_per_slice(plain)
    for radix in RADICES:
        helped = replace(slicing, hops=(*bare, *_blocks(plain, radix)))
        merges = merges_per_slice(helped) if len(helped.hops) > len(bare) else least
        if merges < least:
            best, least = helped, merges
    return best


def merges_per_slice(slicing: Slicing) -> float:
    """How many pieces are merged per slice of time, every piece having as many keys, from a sample of the windows."""
    consolidation = Consolidation(slicing)
    total = 0.0
    for number, hop in enumerate(slicing.hops):
        windows = [consolidation.window(number, hop.offset + at * STRIDE * hop.every) for at in range(SAMPLED)]
        total += sum(map(consolidation.fewest, windows)) / SAMPLED * slicing.width / hop.every
    return total


def _blocks(slicing: Slicing, radix: int) -> tuple[Hop, ...]:
    taken = {(hop.length, hop.every, hop.offset) for hop in slicing.hops}
    blocks = []
    length = slicing.width * radix
    while length < slicing.longest:
        block = Hop(length, length, slicing.anchor, helper=True)
        if (block.length, block.every, block.offset) not in taken:
            blocks.append(block)
        length *= radix
    return tuple(blocks)
