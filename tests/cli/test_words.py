from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from headgate.cli.words import WordStream, word

SMALL = WordStream(words=50, rows=200, batches=6, z=1.0, every=2, seed=3)


def test_every_number_has_a_word_of_its_own() -> None:
    words = [word(number) for number in range(20_000)]
    assert len(set(words)) == 20_000
    assert words[:3] == ["baba", "babe", "babi"]


def test_batches_have_the_same_counts_and_popularity_shifts() -> None:
    counts = [np.bincount(numbers, minlength=50) for numbers in SMALL]
    assert all(count.sum() == 200 for count in counts)
    assert all(sorted(count) == sorted(counts[0]) for count in counts)
    same = [np.array_equal(before, after) for before, after in pairwise(counts)]
    assert same == [True, False, True, False, True]
    assert SMALL.shifts() == [2, 4]


def test_equal_seeds_give_equal_streams() -> None:
    assert [numbers.tolist() for numbers in SMALL] == [numbers.tolist() for numbers in SMALL]
    other = replace(SMALL, seed=4)
    assert [numbers.tolist() for numbers in SMALL] != [numbers.tolist() for numbers in other]


def test_the_files_hold_what_the_totals_say(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    files = sorted(tmp_path.iterdir(), key=lambda path: os.stat(path).st_mtime)
    assert [path.name for path in files] == [f"{batch:05d}.parquet" for batch in range(6)]
    counted = Counter(text for path in files for text in pq.read_table(path)["word"].to_pylist())
    assert dict(counted) == SMALL.totals()
    assert sum(counted.values()) == 1200
