"""The word stream of the demonstration: Zipf frequencies over made-up words, and other words popular now and then.

    batch      0 .. every-1        every .. 2*every-1
    counts     the same multiset of counts, handed out anew: which word is popular is drawn for each period

Every batch has exactly the same number of rows, so batch times compare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.arrays import I64
from headgate.workloads.zipf import apportion, zipf_shares

CONSONANTS = "bdfgklmnprstvz"
VOWELS = "aeiou"

SYLLABLES = len(CONSONANTS) * len(VOWELS)

FIRST_MOMENT = 1_000_000_000
"""The time stamp of the first file: Spark takes files in the order of their times, so each is a second later."""


def word(number: int) -> str:
    """A word that can be spoken, another one for each number from 0 on: two syllables, or more for large numbers."""
    text = ""
    for _ in range(2):
        number, syllable = divmod(number, SYLLABLES)
        text = CONSONANTS[syllable // len(VOWELS)] + VOWELS[syllable % len(VOWELS)] + text
    return text if number == 0 else word(number - 1) + text


@dataclass(frozen=True, slots=True, kw_only=True)
class WordStream:
    """Batches of words. Equal settings give equal batches."""

    words: int
    rows: int
    batches: int
    z: float
    every: int
    seed: int = 0

    def __iter__(self) -> Iterator[I64]:
        """The number of each row's word, batch by batch."""
        random = np.random.default_rng(self.seed)
        counts = apportion(zipf_shares(self.words, self.z), self.rows)
        popular = random.permutation(self.words)
        for batch in range(self.batches):
            if batch and batch % self.every == 0:
                popular = random.permutation(self.words)
            yield random.permutation(np.repeat(popular, counts))

    def vocabulary(self) -> pa.Array:
        return pa.array([word(number) for number in range(self.words)])

    def totals(self) -> dict[str, int]:
        """How often each word comes in all batches, words that do not come left out: what a count must give."""
        counts = np.zeros(self.words, dtype=np.int64)
        for numbers in self:
            counts += np.bincount(numbers, minlength=self.words)
        texts = self.vocabulary().to_pylist()
        return {texts[number]: int(counts[number]) for number in np.flatnonzero(counts)}

    def shifts(self) -> list[int]:
        """The batches at which other words become popular."""
        return list(range(self.every, self.batches, self.every))

    def write(self, directory: Path) -> None:
        """One Parquet file per batch, in the order in which Spark is to take them."""
        directory.mkdir(parents=True, exist_ok=True)
        texts = self.vocabulary()
        for batch, numbers in enumerate(self):
            path = directory / f"{batch:05d}.parquet"
            pq.write_table(pa.table({"word": texts.take(pa.array(numbers))}), path)
            os.utime(path, (FIRST_MOMENT + batch, FIRST_MOMENT + batch))
