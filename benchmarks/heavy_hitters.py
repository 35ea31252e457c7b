"""Heavy hitters: a batch of a million rows through ``HeavyKeys`` and through the DataSketches Python binding.

Prints rows per second of both and the ratio, and checks that both find every key above the share asked for. The binding
takes one Python call per row, which is what the ratio shows: its C++ core is not the slow part.

    python benchmarks/heavy_hitters.py [--rows 1000000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import time

import datasketches
import numpy as np

from headgate.routing import key_hash
from headgate.stats.heavy import HeavyKeys
from headgate.workloads import zipf_shares

KEYS = 1_000_000
COUNTERS = 3072
"""What 2^12 places of a DataSketches sketch hold, three quarters being in use at most."""
SHARE = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    drawn = np.random.default_rng(options.seed).choice(KEYS, size=options.rows, p=zipf_shares(KEYS, 1.1))
    hashes = key_hash(drawn)
    weights = np.ones(len(hashes))
    start = time.perf_counter()
    names = [str(key) for key in hashes.tolist()]  # the binding takes text
    naming = time.perf_counter() - start
    ours_seconds, theirs_seconds = [], []
    for _ in range(options.repeat):
        start = time.perf_counter()
        ours = HeavyKeys(COUNTERS).add(hashes, weights)
        ours_seconds.append(time.perf_counter() - start)
        theirs = datasketches.frequent_strings_sketch(12)
        start = time.perf_counter()
        for name in names:
            theirs.update(name, 1)
        theirs_seconds.append(time.perf_counter() - start)
    exact_keys, exact = np.unique(hashes, return_counts=True)
    truth = set(exact_keys[exact > SHARE * options.rows].tolist())
    rows = theirs.get_frequent_items(
        datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, int(SHARE * options.rows)
    )
    found = ours.above(SHARE)
    assert set(found.guaranteed.tolist()) <= truth <= set(found.possible.tolist()), "HeavyKeys missed a key"
    assert truth <= {int(name) for name, *_ in rows}, "DataSketches missed a key"
    assert ours.error <= options.rows / (COUNTERS + 1)
    promised = theirs.epsilon * options.rows
    mine, other = min(ours_seconds), min(theirs_seconds)
    print(f"rows {options.rows:,}, distinct keys {len(exact_keys):,}, heavy keys {len(truth)}, seed {options.seed}")
    print(f"HeavyKeys     {options.rows / mine / 1e6:6.2f} M rows/s   error at most {ours.error:,.0f} rows")
    print(f"DataSketches  {options.rows / other / 1e6:6.2f} M rows/s   error at most {promised:,.0f} rows")
    print(f"ratio         {other / mine:6.2f} times faster; {(other + naming) / mine:.2f} with the making of its texts")


if __name__ == "__main__":
    main()
