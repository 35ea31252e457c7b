from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headgate.cli import app, report
from headgate.errors import InputError
from headgate.stats import Snapshot

Headgate = Callable[..., Any]


@pytest.fixture
def headgate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headgate:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def stats(tmp_path: Path) -> str:
    """60 keys that another system keeps in slots 0 and 1 of 3."""
    rows = [f"k{number},{1 + 900 // (number + 1)},{number % 2}" for number in range(60)]
    (tmp_path / "stats.csv").write_text("\n".join(["key,cost,slot", *rows]))
    return "stats.csv"


def test_a_link_stays_and_its_target_is_replaced(headgate: Headgate, stats: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/plan.json").write_text("old")
    (tmp_path / "plan.json").symlink_to("there/plan.json")
    assert headgate("plan", stats, "--slots", 3, "--json", "plan.json").exit_code == 0
    assert (tmp_path / "plan.json").is_symlink()
    assert json.loads((tmp_path / "there/plan.json").read_text())["planner"] == "mixed"
    (tmp_path / "lost.json").symlink_to("nowhere/plan.json")
    result = headgate("plan", stats, "--slots", 3, "--json", "lost.json")
    assert result.exit_code == 2
    assert "nowhere does not exist: create it first" in result.stderr


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_pipe_is_written_to(headgate: Headgate, stats: str, tmp_path: Path, option: str) -> None:
    pipe = tmp_path / "pipe.png"
    got: list[bytes] = []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    result = headgate("plan", stats, "--slots", 3, option, "pipe.png")
    reader.join(30)
    assert result.exit_code == 0, result.output
    assert pipe.is_fifo()
    assert got[0].startswith(b'{"planner"' if option == "--json" else b"\x89PNG")


def test_devices_are_written_to() -> None:
    report.check_target(Path("/dev/null"), "--json", allow_stdout=True)
    report.write_json("{}\n", Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_an_open_file_goes_on_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("wb", buffering=0) as out:
        out.write(b"before\n")
        report.write_json("{}\n", Path(f"/dev/fd/{out.fileno()}"))
        out.write(b"after\n")
    assert (tmp_path / "out.txt").read_text() == "before\n{}\nafter\n"


def test_groups_of_another_system_are_told_by_their_keys(headgate: Headgate, stats: str, tmp_path: Path) -> None:
    arguments = ("--slots", 3, "--planner", "lptf", "--grain", "group", "--json", "p.json")
    result = headgate("plan", stats, *arguments)
    assert result.exit_code == 0, result.output
    plan = json.loads((tmp_path / "p.json").read_text())
    assert plan["home"] == "slot"
    assert set(plan["group_of"]) == {f"k{number}" for number in range(60)}
    assert plan["moves"]
    for move in plan["moves"]:
        assert move["keys"] == [key for key, group in plan["group_of"].items() if group == move["group"]]
        assert plan["assignment"]["groups"][plan["group_of"][move["keys"][0]]] == move["to"]
    first = plan["moves"][0]
    assert f"group {first['group']}: {first['keys'][0]}" in result.stdout
    headgate("plan", stats, "--slots", 3, "--json", "p.json")
    plan = json.loads((tmp_path / "p.json").read_text())
    assert "group_of" not in plan
    assert all("keys" not in move for move in plan["moves"])


def test_at_most_three_keys_of_a_group_are_printed(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "stats.csv").write_text("key,cost\n" + "".join(f"k{i},{1 + (i < 9) * 50}\n" for i in range(200)))
    arguments = ("--planner", "lptf", "--slots", 4, "--grain", "group", "--groups", 16, "--json", "p.json")
    result = headgate("plan", "stats.csv", *arguments)
    move = json.loads((tmp_path / "p.json").read_text())["moves"][0]
    assert len(move["keys"]) > 3
    assert f"group {move['group']}: {', '.join(move['keys'][:3])}, ..." in result.stdout


def test_figures_that_are_not_finite_are_no_json() -> None:
    with pytest.raises(InputError, match="the costs are too large to add up: give cost"):
        report.json_text({"rsd": float("nan")})


def test_costs_beyond_all_numbers_are_one_line(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "stats.csv").write_text("key,cost\n" + "".join(f"k{number},1e308\n" for number in range(20)))
    result = headgate("plan", "stats.csv", "--slots", 3, "--json", "p.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: the sum of cost must be a finite number, and is not: the costs are too")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize("planner", ["milp", "albic"])
def test_repeatable_plans_repeat(headgate: Headgate, stats: str, tmp_path: Path, planner: str) -> None:
    (tmp_path / "flows.csv").write_text("src,dst,rate\n" + "".join(f"k{n},k{n + 1},{n}\n" for n in range(59)))
    plans = []
    for _ in range(2):
        arguments = ("--planner", planner, "--traffic", "flows.csv", "--max-migrations", 9, "--time-limit", 0.3)
        result = headgate("plan", stats, "--slots", 3, *arguments, "--repeatable", "--seed", 5, "--json", "p.json")
        assert result.exit_code == 0, result.output
        plan = json.loads((tmp_path / "p.json").read_text())
        plans.append({name: value for name, value in plan.items() if name != "seconds"})
    assert plans[0] == plans[1]


def test_the_null_key_and_the_text_null_have_two_names(headgate: Headgate, tmp_path: Path) -> None:
    keys = [None, "null", *(f"k{number}" for number in range(30))]
    pq.write_table(
        pa.table({"key": keys, "cost": [500, 500, *range(30)], "slot": [0] * 32}), tmp_path / "stats.parquet"
    )
    arguments = ("--slots", 2, "--planner", "lptf", "--grain", "group", "--json", "p.json")
    result = headgate("plan", "stats.parquet", *arguments)
    assert result.exit_code == 0, result.output
    assert list(json.loads((tmp_path / "p.json").read_text())["group_of"])[:2] == ["<null>", "null"]


def test_keys_that_would_share_a_name_have_their_hash_behind_it() -> None:
    snapshot = Snapshot.of_keys(["b/c", "c", "d"], [1, 1, 1], operator=("a", "a/b", "a"))
    names = report.row_names(snapshot)
    assert len(set(names)) == 3
    assert [name.partition(" #")[0] for name in names] == ["a/b/c", "a/b/c", "a/d"]
    assert names[2] == "a/d"


def test_warnings_speak_of_options(headgate: Headgate, stats: str) -> None:
    result = headgate("plan", stats, "--slots", 3, "--planner", "simple", "--table-max", 0)
    assert "entries, more than --table-max 0" in result.stdout
