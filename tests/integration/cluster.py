"""A job on two executors, each a process of its own, in which things go wrong: run as a program on a folder.

    python cluster.py FOLDER MASTER

The value of a row says what is to go wrong in the batch it comes in: its task sleeps until its executor is killed, it
fails, or it is slow. Each happens once, marked by a file. What the tasks saw is in FOLDER/seen, what Spark made of it
in FOLDER/report.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headgate as hg

KILLED, FAILED, SLOW = 1_001, 2_001, 3_001
KEYS = 12
LONG = 120.0
"""Seconds that a task sleeps that is to be killed, or at most waits for its duplicate: far more than it takes."""

OTHERS = 2.0
"""Seconds for the other tasks to end first: then Spark has to make rows again that some have used already."""


def make_input(folder: Path, *troubles: int) -> list[pa.Table]:
    """A batch without trouble, and one for each; one of its rows brings it."""
    (folder / "in").mkdir(parents=True)
    (folder / "seen").mkdir()
    tables = []
    for number, trouble in enumerate((None, *troubles)):
        keys = [*range(KEYS), *range(KEYS)]
        values = [number * 10 + key for key in keys]
        if trouble is not None:
            values[number] = trouble
        tables.append(pa.table({"k": pa.array(keys), "v": pa.array(values)}))
        path = folder / "in" / f"{number}.parquet"
        pq.write_table(tables[-1], path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    return tables


def expected(tables: list[pa.Table]) -> list[tuple[int, int, int, int]]:
    """The results in plain Python: batch, key, count and sum, sorted."""
    made, totals = [], dict.fromkeys(range(KEYS), (0, 0))
    for number, table in enumerate(tables):
        for row in table.to_pylist():
            n, total = totals[row["k"]]
            totals[row["k"]] = n + 1, total + row["v"]
        made += [(number, key, *totals[key]) for key in range(KEYS)]
    return sorted(made)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_executor(folder: Path, java: int, report: dict[str, Any]) -> None:
    """Wait until the task sleeps, then kill the executor that it runs on: the child of Spark's driver."""
    mark = folder / "seen" / str(KILLED)
    while not mark.exists() or not mark.read_text():
        time.sleep(0.05)
    pid = int(mark.read_text())
    while parent_of(pid) != java:
        pid = parent_of(pid)
    time.sleep(OTHERS)
    os.kill(pid, signal.SIGKILL)
    report["killed"] = pid


def main(folder: Path, master: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.efficiency.enabled": "false",
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    seen = str(folder / "seen")

    def once(value: int) -> bool:
        """Whether this is the first attempt; the mark holds the number of its process."""
        try:
            with open(f"{seen}/{value}", "x") as mark:
                mark.write(str(os.getpid()))
            return True
        except FileExistsError:
            return False

    def wait_for_duplicate() -> None:
        """Then both go on together."""
        ends = time.monotonic() + LONG
        while time.monotonic() < ends:
            with open(f"{seen}/attempts") as file:
                if file.read().split().count(str(SLOW)) > 1:
                    return
            time.sleep(0.02)

    def troubled(key: int, rows: Any, state: dict[str, int]) -> dict[str, int]:
        for value in rows["v"]:
            if value in (KILLED, FAILED, SLOW):
                with open(f"{seen}/attempts", "a") as file:
                    file.write(f"{value}\n")
                if value == FAILED and once(value):
                    raise RuntimeError("the first attempt fails")
                if value == KILLED and once(value):
                    time.sleep(LONG)
                if value == SLOW and once(value):
                    wait_for_duplicate()
        state["n"] += len(rows)
        state["total"] += sum(rows["v"])
        return {"k": key, "n": state["n"], "total": state["total"]}

    job = hg.Job("cluster", groups=64)
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    step = job.source(rows).key_by("k").process(
        troubled, state={"n": 0, "total": 0}, output="k long, n long, total long"
    )  # fmt: skip
    step.write_to(hg.sinks.parquet(str(folder / "out")))
    jvm: Any = spark._jvm
    java = jvm.java.lang.ProcessHandle.current().pid()
    report: dict[str, Any] = {}
    threading.Thread(target=kill_executor, args=(folder, java, report), daemon=True).start()
    query = job.start(spark, checkpoint=str(folder / "ck"), slots=4, balance=None, trigger="available now")
    query.await_termination()
    report["batches"] = [progress["batch"] for progress in query.recent_progress]
    (folder / "report.json").write_text(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
