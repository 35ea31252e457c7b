from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.planners import PLANNERS

CONTRACT = {
    "planner",
    "seconds",
    "slots",
    "before",
    "after",
    "table_size",
    "migrated_state",
    "moves",
    "refused",
    "assignment",
    "gap",
}
MEASURES = {"loads", "theta_max", "max_over_mean", "load_distance", "rsd"}
MOVE = {"key", "from", "to", "cost", "state_bytes", "reason"}
AT_KEYS = [name for name, planner in PLANNERS.items() if name not in ("albic", "cola")]

Headgate = Callable[..., Any]


@pytest.fixture
def headgate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headgate:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def skewed(tmp_path: Path) -> Path:
    """300 keys with places of another system: every seventh slot of ten gets most of the load."""
    random = np.random.default_rng(3)
    rows = ["key,cost,state_bytes,slot,memory"]
    for number in range(300):
        cost = 100 / (number + 1) ** 0.5
        rows.append(f"k{number},{cost:.3f},{random.integers(1, 1000)},{number * number % 7},{number % 3}")
    path = tmp_path / "skewed.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def read(path: Path) -> dict[str, Any]:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    report: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return report


def table_of(path: Path) -> dict[str, dict[str, str]]:
    head, *rows = (line.split(",") for line in path.read_text().splitlines())
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


@pytest.mark.parametrize("planner", AT_KEYS)
def test_the_report_adds_up(headgate: Headgate, skewed: Path, planner: str, tmp_path: Path) -> None:
    result = headgate("plan", skewed, "--planner", planner, "--slots", 10, "--json", "plan.json", "--time-limit", 0.2)
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "plan.json")
    assert set(report) >= CONTRACT
    assert report["planner"] == planner
    assert report["home"] == "slot"
    table = table_of(skewed)
    places = {key: int(row["slot"]) for key, row in table.items()}
    for side in ("before", "after"):
        loads = np.zeros(10)
        for key, slot in places.items():
            loads[slot] += float(table[key]["cost"])
        measures = report[side]
        assert set(measures) >= MEASURES
        assert measures["loads"] == pytest.approx(loads.tolist())
        assert measures["theta_max"] == pytest.approx(np.abs(loads - loads.mean()).max() / loads.mean())
        assert measures["max_over_mean"] == pytest.approx(loads.max() / loads.mean())
        assert measures["load_distance"] == pytest.approx(np.abs(loads - loads.mean()).max())
        assert measures["rsd"] == pytest.approx(100 * loads.std() / loads.mean())
        for move in report["moves"] if side == "before" else ():
            assert set(move) >= MOVE
            assert places[move["key"]] == move["from"]
            places[move["key"]] = move["to"]
    moved = sum(float(table[move["key"]]["state_bytes"]) for move in report["moves"])
    assert report["migrated_state"] == pytest.approx(moved)
    pins = report["assignment"]["pins"]
    assert report["table_size"] == len(pins)
    groups = report["assignment"]["groups"]
    assert {key: pins.get(key, groups[row]) for row, key in enumerate(places)} == places


def test_one_plan_shows_slots_measures_and_moves(headgate: Headgate, skewed: Path) -> None:
    result = headgate("plan", skewed, "--planner", "mixed", "--slots", 10, "--moves", 2)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("mixed: 300 keys on 10 slots")
    slots = [line for line in lines if line[:5].strip().isdigit() and "%" in line]
    assert len(slots) == 10
    assert any(line.startswith("theta ") and "max/mean " in line and "load distance " in line for line in lines)
    assert any("RSD " in line for line in lines)
    assert any("of the state" in line and "routing table" in line for line in lines)
    assert any("more moves (--moves" in line for line in lines)
    assert any("% over the mean" in line for line in lines)
    assert "\x1b" not in result.stdout
    assert max(map(len, (line for line in lines if "routing table" not in line))) <= 80


def test_all_planners_side_by_side(headgate: Headgate, skewed: Path, tmp_path: Path) -> None:
    result = headgate("plan", skewed, "--planner", "all", "--slots", 10, "--json", "all.json", "--time-limit", 0.2)
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "all.json")
    assert report["planner"] == "all"
    assert set(report["before"]) >= MEASURES
    ran = {each["planner"] for each in report["results"]}
    assert ran >= set(AT_KEYS)
    assert ran | {each["planner"] for each in report["skipped"]} == set(PLANNERS)
    for each in report["results"]:
        assert set(each) >= CONTRACT
        assert each["before"]["loads"] == report["before"]["loads"]
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    for name in PLANNERS:
        assert name in rows
        assert len(rows[name]) <= 80
    assert "…" not in result.stdout


def test_traffic_shows_collocation(headgate: Headgate, skewed: Path, tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text("src,dst,rate\nk0,k7,3\nk1,k2,1\n")
    result = headgate(
        "plan", skewed, "--planner", "simple", "--slots", 10, "--traffic", "flows.csv", "--json", "p.json"
    )
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "p.json")
    assert report["before"]["collocation"] == pytest.approx(0.75)  # k0 and k7 are both in slot 0
    assert "collocation 75.0%" in result.stdout


def test_draining_slots_are_emptied_and_weak_ones_get_less(headgate: Headgate, skewed: Path, tmp_path: Path) -> None:
    capacity = "1,1,1,1,0.5,1,1,1,1,1"
    arguments = ("--slots", 10, "--draining", "0,3", "--capacity", capacity, "--json", "p.json")
    result = headgate("plan", skewed, *arguments)
    assert result.exit_code == 0, result.output
    loads = read(tmp_path / "p.json")["after"]["loads"]
    assert loads[0] == loads[3] == 0
    assert loads[4] == pytest.approx(loads[5], rel=0.17)  # load is cost / capacity, level to within theta each
    assert sum("draining" in line for line in result.stdout.splitlines() if line[:5].strip() in ("0", "3")) >= 2


def test_limits_on_migration_are_held_and_refusals_told(headgate: Headgate, skewed: Path, tmp_path: Path) -> None:
    result = headgate("plan", skewed, "--slots", 10, "--max-migrations", 3, "--json", "p.json")
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "p.json")
    assert len(report["moves"]) <= 3
    assert report["refused"]
    assert set(report["refused"][0]) >= MOVE
    assert "refused moves:" in result.stdout
    assert "warning: theta is" in result.stdout
    assert any("theta is" in text for text in report["warnings"])


def test_exceeded_caps_are_told(headgate: Headgate, skewed: Path) -> None:
    result = headgate("plan", skewed, "--planner", "dlb-h", "--slots", 10, "--cap", "memory=1")
    assert result.exit_code == 0, result.output
    assert "slots use more memory than their cap" in result.stdout


def test_pins_are_named_with_their_operator(headgate: Headgate, tmp_path: Path) -> None:
    rows = [f"k{number},{100 / (number + 1)},{name}" for name in ("map", "join") for number in range(40)]
    (tmp_path / "stats.csv").write_text("\n".join(["key,cost,operator", *rows]))
    result = headgate("plan", "stats.csv", "--planner", "simple", "--slots", 4, "--json", "p.json")
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "p.json")
    assert report["home"] == "hash"
    assert {move["operator"] for move in report["moves"]} == {"map", "join"}
    moved = {f"{move['operator']}/{move['key']}": move["to"] for move in report["moves"]}
    assert report["assignment"]["pins"] == moved


def test_whole_groups_can_be_moved(headgate: Headgate, tmp_path: Path) -> None:
    (tmp_path / "stats.csv").write_text("key,cost\n" + "".join(f"k{i},{1 + (i < 9) * 50}\n" for i in range(200)))
    arguments = ("--planner", "lptf", "--slots", 4, "--grain", "group", "--groups", 16, "--json", "p.json")
    result = headgate("plan", "stats.csv", *arguments)
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "p.json")
    assert report["grain"] == "group"
    assert report["moves"]
    for move in report["moves"]:
        assert move["key"] == f"group {move['group']}"
        assert report["assignment"]["groups"][move["group"]] == move["to"]


def test_json_to_standard_output_is_nothing_but_json(headgate: Headgate, skewed: Path) -> None:
    result = headgate("plan", skewed, "--slots", 10, "--json", "-")
    assert set(json.loads(result.stdout)) >= CONTRACT


@pytest.mark.parametrize("text", ["", "key,cost\n"], ids=["no byte at all", "a header and no row"])
@pytest.mark.parametrize("planner", ["mixed", "all"])
def test_no_key_is_a_plan_without_moves(headgate: Headgate, tmp_path: Path, text: str, planner: str) -> None:
    (tmp_path / "stats.csv").write_text(text)
    result = headgate("plan", "stats.csv", "--planner", planner, "--slots", 2, "--json", "p.json", "--plot", "p.png")
    assert result.exit_code == 0, result.output
    report = read(tmp_path / "p.json")
    for each in report.get("results", [report]):
        assert each["moves"] == []
        assert each["after"]["loads"] == [0.0, 0.0]


@pytest.mark.parametrize("planner", ["mixed", "mixed,dlb-h"])
def test_pictures_are_written(headgate: Headgate, skewed: Path, tmp_path: Path, planner: str) -> None:
    result = headgate("plan", skewed, "--planner", planner, "--slots", 10, "--plot", "loads.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "loads.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote loads.png" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--planner", "best"), "there is no planner best: choose all or one of hash, simple"),
        (("--slots", "0"), "--slots must be at least 1, got 0"),
        (("--slots", "many"), "--slots"),
        (("--capacity", "1,x"), "--capacity must be one number per slot with commas between them, got '1,x'"),
        (("--capacity", "1,1"), "there must be one capacity per slot: expected 10, got 2"),
        (("--draining", "a"), "--draining must be slot numbers with commas between them, got 'a'"),
        (("--draining", "12"), "the list of draining slots names slot 12"),
        (("--cap", "memory"), "--cap must be a column's name, an equals sign and one number or one per slot"),
        (("--cap", "memory=1", "--cap", "memory=2"), "got 'memory' twice"),
        (("--cap", "disk=1"), "a cap names the resource 'disk'"),
        (("--cap", "memory=1,2"), "the cap on 'memory' must be one number or one per slot: expected 10, got 2"),
        (("--max-migrations", "1", "--max-migration-cost", "1"), "give --max-migrations or --max-migration-cost, not"),
        (("--window", "3"), "no column 'interval': add one"),
        (("--theta", "-1"), "--theta must be a finite number, zero or more, got -1"),
        (("--theta", "inf"), "--theta must be a finite number, zero or more, got inf"),
        (("--table-max", "-1"), "--table-max must be a finite number, zero or more, got -1"),
        (("--beta", "-1"), "--beta must be a finite number, zero or more, got -1"),
        (("--time-limit", "-1"), "--time-limit must be a finite number, zero or more, got -1"),
        (("--max-migrations", "-1"), "--max-migrations must be a finite number, zero or more, got -1"),
        (("--max-migration-cost", "inf"), "--max-migration-cost must be a finite number, zero or more, got inf"),
        (("--cap", "memory=nan"), "--cap must be a column's name, an equals sign and one number or one per slot"),
        (("--seed", "-1", "--planner", "all"), "--seed must be at least 0, got -1"),
        (("--planner", "all,mixed"), "all stands for every planner and alone, got 'all,mixed': write all"),
        (("--planner", "albic"), "ALBIC needs traffic between keys, and none was given: give --traffic FILE"),
        (("--planner", "cola", "--grain", "group"), "COLA needs traffic between keys, and none was given: give --tr"),
        (("--plot", "-"), "--plot must name a file, got '-', which is standard output to --json alone"),
        (("--json", "x.png", "--plot", "./x.png"), "--json and --plot must name two files, both name x.png"),
        (("--traffic", "none.csv"), "there is no file none.csv"),
        (("--plot", "loads.gif"), "--plot must end in .png"),
        (("--plot", "none/loads.png"), "the folder none does not exist: create it first"),
        (("--what",), "see headgate plan --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_faults_are_one_line(
    headgate: Headgate, skewed: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    result = headgate("plan", skewed, "--slots", 10, "--json", "out.json", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert result.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_write_leaves_the_old_file(headgate: Headgate, skewed: Path, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("old")
    assert headgate("plan", skewed, "--slots", 10, "--json", "p.json", "--draining", "99").exit_code == 2
    assert (tmp_path / "p.json").read_text() == "old"


def test_help_and_version(headgate: Headgate) -> None:
    assert headgate("--version").stdout.startswith("headgate 0.")
    assert "headgate demo" in headgate().stdout
    for command in ("plan", "demo", "race", "state", "top"):
        result = headgate(command, "--help")
        assert result.exit_code == 0
        assert "Examples:" in result.stdout


def test_the_installed_program(skewed: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("headgate")
    done = subprocess.run(
        [program, "plan", skewed.name, "--slots", "10", "--json", "plan.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert read(tmp_path / "plan.json")["after"]["theta_max"] <= 0.08 + 1e-9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "skewed.csv"]
