from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.cli.panel import spark
from headgate.cli.race import Race, Racer, Setting
from headgate.cli.racing import RACING, findings
from headgate.planners import PLANNERS
from headgate.routing import Assignment

SMALL = Setting(keys=500, slots=4)


def racer(name: str, skew: list[float], migrated: list[float]) -> Racer:
    made = Racer(PLANNERS[name](), Assignment.hashed(2, 4))
    made.skew, made.migrated, made.seconds, made.planned = skew, migrated, [0.001] * len(skew), skew
    return made


def test_plans_are_judged_on_the_next_interval() -> None:
    race = Race(["hash", "simple"], SMALL)
    for _ in range(2):
        race.step()
    hashing, simple = race.racers
    assert simple.skew[0] == hashing.skew[0]  # the first interval is plain hashing for everybody
    assert simple.planned[0] < 1.1  # the plan made from it levels it
    assert simple.skew[1] == simple.planned[0]  # the stream stands still for five intervals


def test_the_stream_changes_when_it_should() -> None:
    race = Race(["hash"], Setting(keys=500, slots=4, every=3))
    for _ in range(7):
        race.step()
    skew = race.racers[0].skew
    assert skew[0] == skew[1] == skew[2] != skew[3]
    assert skew[3] == skew[4] == skew[5] != skew[6]


def test_everybody_can_race() -> None:
    race = Race([name for name in RACING if name in PLANNERS], SMALL)
    for _ in range(7):
        race.step()
    assert [len(racer.skew) for racer in race.racers] == [7] * len(race.racers)
    assert all(racer.planned[0] <= race.racers[0].planned[0] + 1e-9 for racer in race.racers)


def test_equal_seeds_race_alike() -> None:
    races = [Race(["dlb-h"], SMALL) for _ in range(2)]
    for race in races:
        for _ in range(8):
            race.step()
    assert races[0].racers[0].skew == races[1].racers[0].skew
    assert races[0].racers[0].migrated == races[1].racers[0].migrated


@pytest.mark.parametrize(
    ("racers", "said"),
    [
        pytest.param(
            [racer("hash", [2, 2, 2], [0, 0, 0]), racer("simple", [2, 1.1, 1.1], [0.9, 0.9, 0.9])],
            ["2.00 times the mean; simple is the most level with 1.10, and moves 90.0% of the state"],
            id="one planner, most level",
        ),
        pytest.param(
            [
                racer("hash", [2, 2], [0, 0]),
                racer("simple", [2, 1.1], [0.9, 0.9]),
                racer("dlb-h", [2, 1.2], [0.1, 0.1]),
                racer("dlb-l", [2, 1.5], [0, 0]),
            ],
            [
                "simple is the most level",
                "Of the 2 planners that take away 75% or more of hashing's excess, dlb-h moves",
            ],
            id="the most level is not the thriftiest",
        ),
        pytest.param(
            [racer("hash", [1, 1], [0, 0]), racer("simple", [1, 1.1], [0.9, 0.9])],
            ["no planner is more level than plain hashing, whose mean skew is 1.00"],
            id="nothing to gain",
        ),
        pytest.param([racer("simple", [2, 1.1], [0.5, 0.5])], ["simple has the lowest mean skew, 1.10"], id="no hash"),
        pytest.param([racer("hash", [2, 2], [0, 0])], [], id="nobody to compare"),
    ],
)
def test_findings_follow_from_the_figures(racers: list[Racer], said: list[str]) -> None:
    lines = findings(racers)
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert part in line


def test_sparks_go_from_level_to_highest() -> None:
    assert spark([1.0, 1.5, 2.0], 2.0) == "▁▅█"
    assert spark([1.0], 1.0) == "▁"


def test_the_race_prints_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["race", "--intervals", "10", "--keys", "500", "--slots", "4", "--planners", "hash,mixed,dlb-h"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("3 planners spread the same stream, 500 keys")
    assert "interval 10: skew hash " in result.stdout
    assert "picture: demo/planners.png" in result.stdout
    assert "\x1b" not in result.stdout
    assert (tmp_path / "demo" / "planners.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--intervals", "1"), "--intervals must be at least 2, got 1"),
        (("--z", "-1"), "z must be zero or more, got -1.0"),
        (("--planners", "best"), "there is no planner best"),
        (("--out", "none/race.png"), "the folder none does not exist"),
        (("--out", "race.txt"), "--out must end in .png"),
    ],
)
def test_faults_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["race", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []
