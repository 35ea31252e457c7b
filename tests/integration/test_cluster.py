"""Executors as processes of their own: one is killed, a task fails, a slow one gets a duplicate; nothing shows."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.state import Checkpoint, Files, open_run, scan

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("cluster.py")
PATIENCE = 900.0
"""Seconds after which a program is taken to hang."""

Start = Callable[..., subprocess.Popen[bytes]]


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cluster = _program()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs, each with the processes it starts in a group of its own; ends what is left of them."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent)}
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=tmp_path
            )
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _check(folder: Path, tables: list[pa.Table], *troubles: int) -> None:
    """Each trouble came about, and results and state are those of plain Python."""
    attempts = Counter(int(line) for line in (folder / "seen" / "attempts").read_text().split())
    assert {trouble: attempts[trouble] >= 2 for trouble in troubles} == dict.fromkeys(troubles, True), attempts
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
    assert manifest.batch == len(tables) - 1
    state = []
    for refs in manifest.layout.owners.values():
        for _, table in scan(store.files, refs, open_run(store.files, refs[0].run).schema):
            state += [tuple(row.values()) for row in table.select(table.column_names[5:]).to_pylist()]
    last = [row[1:] for row in cluster.expected(tables) if row[0] == len(tables) - 1]
    assert sorted(state) == last


def test_an_executor_that_dies_in_a_batch_and_a_task_that_fails_leave_no_trace(tmp_path: Path, start: Start) -> None:
    troubles = cluster.KILLED, cluster.FAILED
    tables = cluster.make_input(tmp_path, *troubles)
    code = start(sys.executable, str(PROGRAM), str(tmp_path), "local-cluster[2,1,1024]").wait(PATIENCE)
    assert code == 0, (tmp_path / "log").read_text()[-4000:]
    assert json.loads((tmp_path / "report.json").read_text())["killed"] > 0
    _check(tmp_path, tables, *troubles)


def test_a_duplicate_of_a_slow_task_leaves_no_trace(tmp_path: Path, start: Start) -> None:
    # Spark starts no duplicate on the host of the first attempt, so this takes two workers that seem to be two hosts.
    hosts = ("127.0.0.1", "127.0.0.2")
    try:
        for host in hosts:
            with socket.socket() as free:
                free.bind((host, 0))
                port = free.getsockname()[1]
    except OSError as error:
        pytest.skip(f"there is no second loopback address: {error}")
    launcher = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy, quiet = "org.apache.spark.deploy", ("--webui-port", "0")
    start(launcher, f"{deploy}.master.Master", "-h", hosts[0], "-p", str(port), *quiet)
    master = f"spark://{hosts[0]}:{port}"
    for host in hosts:
        start(launcher, f"{deploy}.worker.Worker", "-h", host, "-c", "1", "-m", "1g", *quiet, master)
    tables = cluster.make_input(tmp_path, cluster.SLOW)
    code = start(sys.executable, str(PROGRAM), str(tmp_path), master).wait(PATIENCE)
    assert code == 0, (tmp_path / "log").read_text()[-4000:]
    _check(tmp_path, tables, cluster.SLOW)
