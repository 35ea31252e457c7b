from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headgate.cli import app
from headgate.cli.inspection import parsed_key, shares, span_text, versions
from headgate.errors import InputError
from headgate.state.runs import forget_runs

Headgate = Callable[..., Result]


@pytest.fixture
def headgate(monkeypatch: pytest.MonkeyPatch) -> Headgate:
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


def json_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_versions_and_slots(headgate: Headgate, store: Any) -> None:
    result = headgate("state", store.root)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"job wordcount: {store.root}/headgate"
    assert lines[1] == "stopped: no process runs this query"
    assert lines[2] == "operator words: by word string; keeps n int64, total int64"
    assert "      2  2027-01-15 08:00:02     6" in result.stdout
    assert "words in version 2: 3 rows" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, lines[3:])) <= 80


def test_the_subdirectory_is_taken_too(headgate: Headgate, store: Any) -> None:
    assert headgate("state", store.root / "headgate").stdout == headgate("state", store.root).stdout


def test_sizes_add_up(store: Any) -> None:
    checkpoint = store.checkpoint
    found = versions(checkpoint)
    assert [each.batch for each in found] == [0, 1, 2]
    assert [each.rows for each in found] == [4, 6, 6]
    assert [each.pins for each in found] == [0, 0, 1]
    parts = shares(checkpoint, checkpoint.manifest(2))
    assert sum(part.rows for part in parts) == 6
    assert sum(part.state_bytes for part in parts) == found[-1].state_bytes
    for name in ("words", "pairs"):
        groups = [group for part in parts if part.operator == name for group in part.groups]
        assert sorted(groups) == list(range(64))
    assert [part.pins for part in parts if part.operator == "words"] == [0, 0, 1]


def test_json_has_everything(headgate: Headgate, store: Any) -> None:
    report = json_of(headgate("state", store.root, "--json", "--version", 1, "--operator", "pairs"))
    assert report["job"] == "wordcount"
    assert report["running"] is False
    assert [each["batch"] for each in report["versions"]] == [0, 1, 2]
    assert report["version"] == 1
    assert {each["operator"] for each in report["slots"]} == {"pairs"}
    assert sum(each["rows"] for each in report["slots"]) == 3


@pytest.mark.parametrize(
    ("arguments", "operator", "state"),
    [
        pytest.param(("--key", "the"), "words", {"n.count": 4, "total.sum": 40}, id="pinned, last version"),
        pytest.param(("--key", "the", "--version", "1"), "words", {"n.count": 3, "total.sum": 30}, id="before the pin"),
        pytest.param(("--key", "fox", "--operator", "words"), "words", {"n.count": 1, "total.sum": 10}, id="by name"),
        pytest.param(("--key", "3,the"), "pairs", {"n.count": 4}, id="two columns with a comma"),
        pytest.param(("--key", '[3, "fox"]'), "pairs", {"n.count": 1}, id="two columns as JSON"),
    ],
)
def test_the_state_of_a_key(
    headgate: Headgate, store: Any, arguments: tuple[str, ...], operator: str, state: dict[str, int]
) -> None:
    found = json_of(headgate("state", store.root, "--json", *arguments))["found"]
    assert [(each["operator"], each["state"]) for each in found] == [(operator, state)]


def test_a_key_for_people(headgate: Headgate, store: Any) -> None:
    lines = headgate("state", store.root, "--key", "the").stdout.splitlines()
    assert lines[0] == "words: word = 'the'"
    assert lines[1].startswith("slot 2 (pinned, its key group is ")
    assert lines[2:] == ["  n.count    4", "  total.sum  40"]


def test_an_operator_without_key_columns_has_one_key(headgate: Headgate, make_store: Any) -> None:
    made = make_store(keys=())
    made.batch(["the", "a", "the"])
    made.close()
    assert "operator words: one key; keeps n int64, total int64" in headgate("state", made.root).stdout
    lines = headgate("state", made.root, "--key", "[]").stdout.splitlines()
    assert lines[0] == "words: its only key"
    assert "hash 000000000000002a" in lines[1]
    assert lines[2:] == ["  n.count    3", "  total.sum  30"]
    refused = headgate("state", made.root, "--key", "the", "--operator", "words").stderr
    assert "has 0 columns, and 'the' has 1: give [], its only key" in " ".join(refused.split())


def test_the_end_of_a_key_is_shown(headgate: Headgate, make_store: Any) -> None:
    made = make_store(ttl_micros=60_000_000)
    made.batch(["the"])
    made.close()
    assert "expires    2027-01-15 08:01:00Z" in headgate("state", made.root, "--key", "the").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", "nobody"), "the key nobody has no state in any operator (words, pairs) in version 2"),
        (("--key", "nobody", "--operator", "words"), "the key nobody has no state in operator 'words' in version 2"),
        (("--key", "x,y", "--operator", "pairs"), "the key column 'place' is of type int32, and 'x' is none"),
        (("--key", "the", "--operator", "pairs"), "the key of operator 'pairs' has 2 columns, and 'the' has 1"),
        (("--key", "the", "--operator", "sums"), "there is no operator 'sums' in this job: it has words, pairs"),
        (("--operator", "sums"), "there is no operator 'sums' in this job: it has words, pairs"),
        (("--version", "7"), "there is no version 7 in"),
        (("--version", "7", "--key", "the"), "it has 0-2"),
        (("--key", "the", "--verify"), "--key shows one key, and --verify"),
    ],
)
def test_faults_are_one_line(headgate: Headgate, store: Any, arguments: tuple[str, ...], message: str) -> None:
    result = headgate("state", store.root, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("headgate: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("name", "what"), [("none", "it does not exist"), (".", "there is no job.json in it")])
def test_what_is_no_checkpoint(headgate: Headgate, tmp_path: Path, name: str, what: str) -> None:
    result = headgate("state", tmp_path / name)
    assert result.exit_code == 2
    assert "must be a checkpoint of headgate" in result.stderr
    assert what in result.stderr
    assert "give the directory that start(checkpoint=...) was given" in result.stderr


def test_a_sound_checkpoint_verifies(headgate: Headgate, store: Any) -> None:
    result = headgate("state", store.root, "--verify")
    assert result.exit_code == 0
    assert "everything is sound: 3 manifests, 3 plans, " in result.stdout


def test_damage_is_found_and_named(headgate: Headgate, store: Any) -> None:
    runs = store.checkpoint.manifest(2).layout.runs()
    name = sorted(runs)[0]
    path = store.root / "headgate" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    (store.root / "headgate" / "manifests" / "1.json").write_text("{}")
    forget_runs()
    result = headgate("state", store.root, "--verify")
    assert result.exit_code == 1
    assert f"damaged: {name}: {path} is damaged" in result.stdout
    assert "damaged: manifests/1.json" in result.stdout
    assert "2 damaged, sound: 2 manifests, 3 plans" in result.stdout
    report = json.loads(headgate("state", store.root, "--verify", "--json").stdout)
    assert sorted(each["file"] for each in report["files"] if each["problem"]) == sorted(["manifests/1.json", name])
    listed = headgate("state", store.root)
    assert listed.exit_code == 0
    assert f"version 1: {store.root}/headgate/manifests/1.json is damaged" in listed.stdout


def test_a_damaged_run_of_a_key_is_named(headgate: Headgate, store: Any) -> None:
    for path in (store.root / "headgate" / "runs").rglob("*.run"):
        path.write_bytes(path.read_bytes()[:-1])
    forget_runs()
    result = headgate("state", store.root, "--key", "the")
    assert result.exit_code == 1
    assert ".run must have " in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_checkpoint_without_a_batch(headgate: Headgate, make_store: Any) -> None:
    made = make_store()
    result = headgate("state", made.root)
    assert "no version yet: no batch has been committed" in result.stdout
    assert "running: process " in result.stdout
    assert headgate("state", made.root, "--key", "the").exit_code == 2
    made.close()


@pytest.mark.parametrize(
    ("text", "columns", "values"),
    [
        pytest.param("a,b", 1, ["a,b"], id="one column is the text as it is"),
        pytest.param("a, b", 2, ["a", "b"], id="two with a comma"),
        pytest.param('"a,b",c', 2, ["a,b", "c"], id="a comma in quotes"),
        pytest.param('["a", null]', 2, ["a", None], id="JSON"),
        pytest.param("[]", 0, [], id="no columns"),
        pytest.param("", 0, [], id="no columns and no text"),
        pytest.param("[a", 1, ["[a"], id="begins like JSON and is none"),
        pytest.param('["a", 1]', 1, ['["a", 1]'], id="JSON of another length is text"),
    ],
)
def test_keys_are_parsed(text: str, columns: int, values: list[object]) -> None:
    assert parsed_key(text, columns, "words") == values


def test_too_few_values_are_refused() -> None:
    with pytest.raises(InputError, match="has 3 columns, and 'a,b' has 2: give 3 values"):
        parsed_key("a,b", 3, "words")


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2, 5"), ([1, 3, 4], "1, 3-4")])
def test_spans(numbers: list[int], text: str) -> None:
    assert span_text(numbers) == text
