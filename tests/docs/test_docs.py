"""The documentation is true: links lead somewhere, cards are complete, what a page shows is what happens.

A page is followed from top to bottom in an empty folder. A fenced block of

    csv NAME    is written to the file NAME
    console     holds commands behind "$ ", each followed by lines of its output; "..." stands for lines left out
    python      is run in a namespace of its own
    text        right after a python block is what the block prints; "..." stands for lines left out

Folders start with the files that the pages share: those of docs/start.md and docs/planning.md.

A python or console block with the word ``spark`` behind its language is followed where there is a Spark: its page is
then gone through a second time, and the ``python spark`` blocks of a page share one namespace, in which ``spark`` is
the session. Without Spark they are compiled, and the options of their commands are checked.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, get_args

import pytest
import typer
from typer.testing import CliRunner

from headgate import errors, metrics
from headgate.cli import app
from headgate.control import Policy
from headgate.control.journal import Kind
from headgate.engine.starting import start
from headgate.errors import HeadgateError
from headgate.planners import PLANNERS

ROOT = Path(__file__).resolve().parents[2]
README, START, PLANNING = (ROOT / name for name in ("README.md", "docs/start.md", "docs/planning.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPERATIONS = ROOT / "docs/operations.md"
CARDS = sorted(page for page in (ROOT / "docs/algorithms").glob("*.md") if page.name != "README.md")

CARD_OF = {"dlb-l": "dlb", "dlb-h": "dlb"}
"""Planners that share a card; every other card has the planner's name."""

SECTIONS = (
    "Problem",
    "Inputs",
    "Guarantee",
    "Time and space",
    "First appeared",
    "How it works",
    "Where ours deviates, and why",
    "When it backfires",
    "How to turn it off, or use another",
    "Use it",
)

SLOW = ("demo", "race")
"""Commands that are checked for their options but not run."""

SPARK = "spark"
"""The word behind the language of blocks that need Spark."""

BLOCK = re.compile(r"^( *)```(\w+)?[ ]?(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CONSTANT = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)\.(_?[A-Z][A-Z_]*)`\s\(([0-9.,e-]+)[ )]")
SECONDS = re.compile(r"\d+\.\d+ s\b|(?<=\w) +\d+\.\d{3}(?= \d+\.\d{3} )")
"""How long something took: "planned in 0.004 s", and the first number of a row that compares planners."""


class Block(NamedTuple):
    """A fenced block: its language, the word after it, its text."""

    language: str
    name: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    found = (match.groups("") for match in BLOCK.finditer(page.read_text(encoding="utf-8")))
    return [Block(language, name, textwrap.dedent(text)) for _, language, name, text in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


WITH_SPARK = [page for page in PAGES if any(block.name == SPARK for block in blocks_of(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for page in (START, PLANNING):
        for block in blocks_of(page):
            if block.language == "csv":
                _write(block)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads], link


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_every_planner_has_a_card(planner: str) -> None:
    card = ROOT / "docs/algorithms" / f"{CARD_OF.get(planner, planner)}.md"
    assert card.exists(), f"write {name_of(card)}"
    assert f"--planner {planner}" in card.read_text(encoding="utf-8")


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_a_card_has_every_section_in_order(card: Path) -> None:
    heads = re.findall(r"^## (.+)$", card.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(heads) == SECTIONS


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_the_list_of_cards_names_it(card: Path) -> None:
    assert f"({card.name})" in (card.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_numbers_are_those_of_the_code(page: Path) -> None:
    """`module.CONSTANT` (value): the value is the constant's."""
    for module, constant, value in CONSTANT.findall(page.read_text(encoding="utf-8")):
        actual = getattr(importlib.import_module(f"headgate.{module}"), constant)
        assert float(value.replace(",", "")) == actual, f"{module}.{constant} is {actual}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_the_page_shows_happens(page: Path, folder: Path) -> None:
    _go_through(page, None)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SPARK, ids=name_of)
def test_what_the_page_shows_happens_on_spark(page: Path, folder: Path, spark: Any, work_in: Any) -> None:
    work_in(folder)
    query = _go_through(page, spark).get("query")
    for field in query.progress() if query is not None else ():
        assert f"`{field}`" in OPERATIONS.read_text(encoding="utf-8"), f"describe the field {field} of progress"


def _go_through(page: Path, spark: Any) -> dict[str, Any]:
    shared: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    printed = ""
    for block in blocks_of(page):
        runs = spark is not None or block.name != SPARK
        if block.language == "csv":
            _write(block)
        elif block.language == "console":
            _follow(block.text, runs)
        elif block.language == "python":
            program = compile(block.text, str(page), "exec")
            printed = _run(program, shared if block.name == SPARK else {"__name__": "__main__"}) if runs else ""
        elif block.language == "text" and printed:
            _compare(block.text, printed)
        if block.language != "python":
            printed = ""
    return shared


def _write(block: Block) -> None:
    Path(block.name).parent.mkdir(exist_ok=True)
    Path(block.name).write_text(block.text, encoding="utf-8")


def _run(program: CodeType, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, namespace)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _compare(shown: str, printed: str) -> None:
    if "\n...\n" not in f"\n{shown}\n":
        assert shown.rstrip() == printed.rstrip()
        return
    parts = [part.strip("\n") for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    at = 0
    for part in parts:
        assert part in printed[at:], f"{part}\nis not in\n{printed}"
        at = printed.index(part, at) + len(part)


def _follow(text: str, runs: bool = True) -> None:
    """Run each headgate command and look for the lines shown, in their order."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        words = shlex.split(command, comments=True)
        if words[0] != "headgate":
            continue
        _check_options(words[1:])
        if words[1] in SLOW or not runs:
            continue
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
        actual = [_untimed(line) for line in result.output.splitlines()]
        at = 0
        for line in map(_untimed, shown):
            if line in ("", "..."):
                continue
            assert line in actual[at:], f"{command}\ndoes not print\n{line}\nbut\n{result.output}"
            at = actual.index(line, at) + 1


def _untimed(line: str) -> str:
    return SECONDS.sub(" S", line.rstrip(), count=1)


def _check_options(words: list[str]) -> None:
    group = typer.main.get_command(app)
    if not words[0].startswith("-"):
        group.commands[words[0]].make_context(words[0], words[1:])  # type: ignore[attr-defined]


def _errors() -> set[str]:
    return {name for name in vars(errors) if name.endswith("Error") and issubclass(vars(errors)[name], HeadgateError)}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("an option of start", set(inspect.signature(start).parameters) - {"job", "spark"}),
        ("a field of the policy", {each.name for each in dataclasses.fields(Policy)}),
        ("a kind of journal entry", set(get_args(Kind))),
        ("a metric", set(re.findall(r"^headgate_\w+(?:{\w+})?", str(metrics.__doc__), re.MULTILINE))),
        ("an error", _errors() - {"HeadgateError"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_page_on_operations_describes(what: str, names: set[str]) -> None:
    described = OPERATIONS.read_text(encoding="utf-8")
    assert names
    assert not [name for name in sorted(names) if f"`{name}`" not in described], f"describe {what}"


def test_texts_of_errors_are_those_of_the_code() -> None:
    """`SomeError`: "text ... text" in the table of errors: the pieces are in one text of the code, in this order."""
    texts = [text for path in sorted((ROOT / "src").rglob("*.py")) for text in _texts(path)]
    table = OPERATIONS.read_text(encoding="utf-8").partition("## Troubleshooting")[2]
    rows = [row for row in table.splitlines() if re.match(r"\| `\w+Error`", row)]
    assert len(rows) > 20
    for shown in (text for row in rows for text in re.findall(r'"([^"]+)"', row.split("|")[1])):
        pattern = re.compile(".*".join(re.escape(piece.strip()) for piece in shown.split("...")), re.DOTALL)
        assert any(pattern.search(text) for text in texts), f"no error says {shown}"


def _texts(path: Path) -> Iterator[str]:
    """The texts with values in a module, with dots for the values."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)


def test_the_page_on_json_names_every_field(folder: Path) -> None:
    described = PLANNING.read_text(encoding="utf-8")
    for planners in ("mixed", "mixed,flux"):
        result = CliRunner().invoke(app, ["plan", "stats.csv", "--slots", "3", "--planner", planners, "--json", "-"])
        for field in _fields(json.loads(result.output)):
            assert f"`{field}`" in described, field


def _fields(part: object) -> set[str]:
    """Every name in a report but those that are keys of the user's."""
    if isinstance(part, list):
        return set().union(*map(_fields, part)) if part else set()
    if not isinstance(part, dict):
        return set()
    return set(part).union(*(_fields(value) for name, value in part.items() if name != "pins"))
