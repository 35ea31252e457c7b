"""Count words in a stream of lines: Parquet files in, a running count per word out, exactly once.

Run it: python examples/word_count.py
"""

import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headgate as hg

WORDS = ("the", "of", "and", "water", "gate", "river", "lock", "weir", "sluice", "canal")


def write_lines(folder: Path, files: int = 3, lines: int = 400) -> Counter[str]:
    """Files of lines in which the first words are much more frequent than the last; returns the true counts."""
    dice = random.Random(1)
    counts: Counter[str] = Counter()
    for number in range(files):
        words = [dice.choices(WORDS, [1 / (rank + 1) for rank in range(len(WORDS))], k=8) for _ in range(lines)]
        counts.update(word for line in words for word in line)
        pq.write_table(pa.table({"line": [" ".join(line) for line in words]}), folder / f"{number}.parquet")
    return counts


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines, results = Path(folder, "lines"), Path(folder, "counts")
        lines.mkdir()
        expected = write_lines(lines)

        stream = spark.readStream.schema("line string").option("maxFilesPerTrigger", 1).parquet(str(lines))
        job = hg.Job("word count")
        words = job.source(stream).map("explode(split(line, ' ')) as word")
        words.key_by("word").aggregate(n=hg.count()).write_to(hg.sinks.parquet(str(results)))
        query = job.start(spark, checkpoint=f"{folder}/checkpoint", slots=4, trigger="available now")
        query.await_termination()

        # A batch emits the words it touched with their new counts, so the greatest count of a word is the last one.
        latest = pq.read_table(results).group_by("word").aggregate([("n", "max")])
        counted = dict(zip(latest["word"].to_pylist(), latest["n_max"].to_pylist(), strict=True))
        assert counted == expected, (counted, expected)

        progress = query.recent_progress
        print(f"{sum(one['rows'] for one in progress)} words in {len(progress)} batches, {len(counted)} distinct")
        for word, count in expected.most_common(3):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("word count").getOrCreate())
