"""Mean and standard deviation per sensor, running, with one call for all sensors of a batch.

The vectorised style: the function sees the rows and the state of many keys as Arrow tables, and NumPy does the work.
The state of a sensor is three numbers (count, mean, sum of squared deviations), merged as Chan, Golub and LeVeque do
(1979), which does not lose digits as sums of squares would.

Run it: python examples/running_statistics.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg


def statistics(batch: hg.Batch) -> tuple[pa.Table, pa.Table]:
    """Results and new state, one row per sensor of the batch."""
    value = batch.rows["value"].to_numpy()
    key, count = batch.key_of_row, batch.counts
    mean = np.bincount(key, value, len(batch)) / count
    squares = np.bincount(key, (value - mean[key]) ** 2, len(batch))

    before, old_mean, old_squares = (batch.state[name].to_numpy() for name in ("n", "mean", "squares"))
    n = before + count
    apart = mean - old_mean
    mean = old_mean + apart * count / n
    squares = old_squares + squares + apart**2 * before * count / n

    results = batch.keys.append_column("n", pa.array(n)).append_column("mean", pa.array(mean))
    deviation = np.sqrt(squares / n)
    return results.append_column("deviation", pa.array(deviation)), pa.table({"n": n, "mean": mean, "squares": squares})


def make_readings(sensors: int = 500, rows: int = 6_000) -> pa.Table:
    """Readings of sensors, of which the first report much more often than the last."""
    dice = np.random.default_rng(3)
    weight = 1 / np.arange(1, sensors + 1)
    sensor = dice.choice(sensors, rows, p=weight / weight.sum())
    return pa.table({"sensor": sensor, "value": 1_000_000 + sensor + dice.normal(0, 2, rows)})


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder, "readings")
        incoming.mkdir()
        readings = make_readings()
        for number in range(3):
            pq.write_table(readings.slice(number * 2_000, 2_000), incoming / f"{number}.parquet")

        job = hg.Job("running statistics")
        table = hg.sinks.memory()
        (
            job.source(hg.sources.files(spark, str(incoming), max_files_per_trigger=1))
            .key_by("sensor")
            .process_arrow(
                statistics,
                state={"n": 0, "mean": 0.0, "squares": 0.0},
                output="sensor long, n long, mean double, deviation double",
            )
            .write_to(table)
        )
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=4, trigger="available now")
        query.await_termination()

        latest: dict[Any, dict[str, Any]] = {row["sensor"]: row for row in table.to_pylist()}  # later batches come last
        expected = readings.to_pandas().groupby("sensor")["value"].agg(["count", "mean", "std"])
        assert set(latest) == set(expected.index)
        for sensor, row in latest.items():
            n = expected["count"][sensor]
            assert row["n"] == n
            np.testing.assert_allclose(row["mean"], expected["mean"][sensor], rtol=1e-12)
            deviation = expected["std"][sensor] * np.sqrt((n - 1) / n) if n > 1 else 0.0  # pandas divides by n - 1
            np.testing.assert_allclose(row["deviation"], deviation, rtol=1e-6, atol=1e-9)

        print(f"{readings.num_rows} readings of {len(latest)} sensors in {len(query.recent_progress)} batches")
        first = latest[0]
        print(f"sensor 0: n {first['n']}, mean {first['mean']:.2f}, deviation {first['deviation']:.2f}")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("running statistics").getOrCreate())
