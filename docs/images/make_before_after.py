"""Draw docs/images/before-after.png: one plan by Mixed for the papers' synthetic stream, drawn by ``headgate plan``.

The stream has the defaults of mixed-routing (a million keys, z = 0.85, f = 1). Fifteen slots follow plain hashing for
five intervals; the plan is made from the last of them, with the state of all five.

    python docs/images/make_before_after.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from headgate.cli import app
from headgate.routing import Assignment, key_hash
from headgate.stats import StateWindow
from headgate.workloads import ZipfStream

SLOTS = 15
INTERVALS = 5
BYTES_PER_TUPLE = 100
TUPLES_PER_UNIT = 1000  # costs are drawn in thousands of tuples
PICTURE = Path(__file__).with_name("before-after.png")


def main() -> None:
    """Make the statistics, plan, draw."""
    stream = ZipfStream(seed=0)
    hashes = key_hash(np.arange(stream.keys))
    slot_of_key = Assignment.hashed(SLOTS).route(hashes)
    window = StateWindow(INTERVALS)
    counts = np.zeros(stream.keys, dtype=np.int64)
    for _ in range(INTERVALS):
        counts = stream.next(slot_of_key, SLOTS)
        window = window.push(hashes, BYTES_PER_TUPLE * counts.astype(np.float64))
    table = pa.table(
        {
            "key": np.arange(stream.keys),
            "cost": counts / TUPLES_PER_UNIT,
            "state_bytes": window.state_of(hashes),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder, "stats.parquet")
        pq.write_table(table, stats)
        command = ["plan", str(stats), "--slots", str(SLOTS), "--moves", "0", "--plot", str(PICTURE)]
        result = CliRunner().invoke(app, command)
    print(result.output)
    if result.exit_code:
        raise SystemExit(result.exit_code)


if __name__ == "__main__":
    main()
