"""The Flink side of windows_flink.py: runs of Flink SQL, one after the other, in one process.

Run by the Python of an environment of its own, with PyFlink and nothing else. A plan comes in on standard input, a list
of runs in JSON; for each run a line of JSON goes out when it has ended. A run has

    name      comes back with the times
    what      "windows": count and sum per key and window; of a few keys the time at which they came out is written
              "reading": the source alone; of a few rows the time at which they were read is written
              "results": as "windows", and all results are written
    input     a folder with one CSV file per reader, rows of k, v, microseconds, ascending by time
    output    where the results go, or the folder for the times
    length    minutes of a window; a window begins every minute
    until     the last window that "results" writes, in minutes of the stream
    settings  of Flink, for this run

and comes back as ``name``, ``output``, ``seconds`` (the whole job, as Flink counts it) and ``passed``: by minute of the
stream, the seconds since 1970 at which the window that ends with it came out, or the first rows after it were read, the
last of those that were written.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.version import __version__

# Flink's event times are milliseconds, and a watermark says that no row of its millisecond follows: one that is not a
# millisecond behind would make rows late that come after another of the last millisecond of a window.
SOURCE = """
CREATE TABLE given (
    k BIGINT, v BIGINT, micros BIGINT,
    happened AS TO_TIMESTAMP_LTZ(micros / 1000, 3),
    WATERMARK FOR happened AS happened - INTERVAL '0.001' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{input}', 'format' = 'csv')
"""

WINDOWS = """
SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(HOP(TABLE given, DESCRIPTOR(happened), INTERVAL '1' MINUTE, INTERVAL '{length}' MINUTES))
GROUP BY k, window_start, window_end
"""

SINK = "CREATE TABLE made ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{output}', 'format' = 'csv')"

# Keys 0 to 7, so that both tasks have one. Were it said as k < 8, the planner would drop the other keys before they are
# counted: the count is not known until then.
A_FEW = "n > (k - 7) * 1000000000"

COLUMNS = {
    "windows": "at_minute TIMESTAMP(3), n BIGINT, total BIGINT, passed TIMESTAMP_LTZ(3)",
    "reading": "at_minute TIMESTAMP(3), k BIGINT, v BIGINT, passed TIMESTAMP_LTZ(3)",
    "results": "k BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total BIGINT",
}

QUERIES = {
    "windows": f"SELECT window_end, n, total, CURRENT_ROW_TIMESTAMP() FROM ({WINDOWS}) WHERE {A_FEW}",
    "reading": "SELECT CAST(happened AS TIMESTAMP(3)), k, v, CURRENT_ROW_TIMESTAMP() FROM given "
    "WHERE MOD(micros, 60000000) < 300000",
    "results": f"SELECT * FROM ({WINDOWS}) WHERE window_end <= TO_TIMESTAMP('{{until}}')",
}


def instant(text: str) -> float:
    """Seconds since 1970 of a time as Flink writes it: with or without a fraction, in UTC."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def written(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.rglob("part-*")):
        with path.open(newline="") as lines:
            yield from csv.reader(lines)


def passed(folder: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for row in written(folder):
        minute = int(instant(row[0]) // 60)
        found[minute] = max(instant(row[-1]), found.get(minute, 0.0))
    return found


def run(given: dict[str, Any]) -> dict[str, Any]:
    what = given["what"]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in given["settings"].items():
        tables.get_config().set(name, value)
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(SOURCE.format(**given))
    tables.execute_sql(SINK.format(columns=COLUMNS[what], **given))
    until = datetime.fromtimestamp(given["until"] * 60, UTC)
    query = QUERIES[what].format(**given | {"until": f"{until:%Y-%m-%d %H:%M:%S}"})
    job = tables.execute_sql(f"INSERT INTO made {query}")
    job.wait()
    client = job.get_job_client()
    assert client is not None
    seconds = client.get_job_execution_result().result().get_net_runtime() / 1e3
    times = {} if what == "results" else passed(Path(given["output"]))
    return {"name": given["name"], "output": given["output"], "seconds": seconds, "passed": times}


def main() -> None:
    print(json.dumps({"flink": __version__}), flush=True)
    for given in json.load(sys.stdin):
        print(json.dumps(run(given)), flush=True)


if __name__ == "__main__":
    main()
