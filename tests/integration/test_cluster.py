"""Two executors as processes of their own: one is killed, a task fails, a slow one gets a duplicate; nothing shows."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.state import Checkpoint, Files, open_run, scan

pytest.importorskip("pyspark", reason="PySpark is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("cluster.py")
PATIENCE = 900.0


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cluster = _program()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[pa.Table], dict[str, Any]]]:
    """The folder of a run in which everything has gone wrong, its input and its report."""
    folder = tmp_path_factory.mktemp("cluster")
    tables = cluster.make_input(folder)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder,
        )  # fmt: skip
    try:
        code = process.wait(PATIENCE)
        assert code == 0, (folder / "log").read_text()[-4000:]
        yield folder, tables, json.loads((folder / "report.json").read_text())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_an_executor_dies_a_task_fails_a_slow_one_is_doubled_and_the_results_are_those_of_plain_python(
    run: tuple[Path, list[pa.Table], dict[str, Any]],
) -> None:
    folder, tables, report = run
    attempts = Counter(int(line) for line in (folder / "seen" / "attempts").read_text().split())
    assert report["killed"], "an executor was killed while its task slept"
    for trouble, name in ((cluster.KILLED, "killed"), (cluster.FAILED, "failed"), (cluster.SLOW, "slow")):
        assert attempts[trouble] >= 2, f"the task that {name} was tried again"
    assert report["batches"] == [0, 1, 2, 3]
    got = [
        (int(path.name.split("-")[1]), *row.values())
        for path in (folder / "out").glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert sorted(got) == cluster.expected(tables)
    store = Checkpoint(Files.at(folder / "ck" / "headgate"))
    assert [finding for finding in store.verify() if finding.problem] == []
    manifest = store.latest()
    assert manifest is not None
    state = []
    for refs in manifest.layout.owners.values():
        for _, table in scan(store.files, refs, open_run(store.files, refs[0].run).schema):
            state += [tuple(row.values()) for row in table.select(table.column_names[5:]).to_pylist()]
    last = [row[1:] for row in cluster.expected(tables) if row[0] == len(tables) - 1]
    assert sorted(state) == last
