"""A heavy step in the middle of a stream whose order matters: readings are smoothed by a slow function on two workers,
and come out in the order in which they came in.

Run it: python examples/ordered_scores.py
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg


def scored(row: dict[str, Any]) -> dict[str, Any]:
    """Stands for a model that takes a millisecond, and more for every tenth reading."""
    time.sleep(0.005 if row["reading"] % 10 == 0 else 0.001)
    return {"reading": row["reading"], "score": row["value"] ** 2}


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "readings")
        source.mkdir()
        for number in range(3):
            readings = list(range(200 * number, 200 * (number + 1)))
            table = pa.table({"reading": readings, "value": [float(reading % 7) for reading in readings]})
            pq.write_table(table, source / f"{number}.parquet")

        job = hg.Job("scores")
        sink = hg.sinks.memory()
        stream = spark.readStream.schema("reading long, value double").option("maxFilesPerTrigger", 1)
        job.source(stream.parquet(str(source))).ordered_map(
            scored, workers=2, schema="reading long, score double", period=0.1
        ).write_to(sink)
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", trigger="available now")
        query.await_termination()

        scores = sink.to_arrow().to_pylist()
        for batch in range(3):  # Spark may take the files in any order, and keeps that of their rows
            rows = scores[200 * batch : 200 * (batch + 1)]
            assert [row["reading"] - rows[0]["reading"] for row in rows] == list(range(200))
        assert all(row["score"] == float(row["reading"] % 7) ** 2 for row in scores)
        region = query.recent_progress[-1]["regions"][0]
        print(f"{len(scores)} scores in {len(query.recent_progress)} batches, in order")
        print(f"weights of the workers at the end: {region['weights']}")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("scores").getOrCreate())
