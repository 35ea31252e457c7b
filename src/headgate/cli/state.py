"""``headgate state``: what a checkpoint holds, whether it is sound, and the state of one key."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli import inspection, show, stored
from headgate.cli.inspection import KeyState, Share, Version
from headgate.errors import InputError
from headgate.routing import SHARED
from headgate.state import Checkpoint, Finding, Manifest

DAMAGED = 1
"""The exit code where ``--verify`` finds damage."""

LONGEST_VALUE = 2_000
"""A column of state is shown up to this many characters; JSON has it whole."""

MOST_VERSIONS = 20
"""Versions listed; older ones are counted. JSON has all."""


def state(
    checkpoint: Annotated[str, typer.Argument(help="What start(checkpoint=...) was given.", metavar="CHECKPOINT")],
    version: Annotated[int | None, typer.Option(help="Look at the state after this batch; otherwise the last.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Show the state of this key; several columns: values with commas, or a JSON array; none: []."
        ),
    ] = None,
    operator: Annotated[str | None, typer.Option(help="Look into this operator only.")] = None,
    groups: Annotated[bool, typer.Option("--groups", help="List the key groups of each slot by number.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of every version and check it; exit code 1 for damage.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a checkpoint holds: versions, sizes per operator and slot, the state of a key.

    Reads only, so the query may be running meanwhile.

    \b
    Examples:
      headgate state ckpt
      headgate state ckpt --verify
      headgate state ckpt --key the
      headgate state ckpt --key '["Zurich", 17]' --operator rates --version 40 --json
    """
    store = stored.open_checkpoint(checkpoint)
    console = Console(highlight=False)
    if key is not None:
        if verify or groups:
            raise InputError("--key shows one key, and --verify and --groups the whole checkpoint: give one of them")
        found = inspection.state_of(store, inspection.manifest_of(store, version), key, operator)
        if as_json:
            _print_json({"found": [each.to_json() for each in found]})
        else:
            show_keys(console, found)
        return
    findings = store.verify() if verify else None
    problems = [finding for finding in findings or () if finding.problem]
    if as_json:
        _print_json(_report(store, version, operator, findings))
    elif findings is not None:
        show_findings(console, store.files.root, findings)
    else:
        _show(console, store, version, operator, groups=groups)
    if problems:
        raise typer.Exit(DAMAGED)


def _report(
    store: Checkpoint, version: int | None, operator: str | None, findings: Sequence[Finding] | None
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "job": stored.job_name(store),
        "root": store.files.root,
        "running": stored.runner(store).running,
        "operators": stored.operators(store),
        "versions": [asdict(each) for each in inspection.versions(store)],
    }
    if findings is not None:
        report["files"] = [asdict(finding) for finding in findings]
        return report
    if report["versions"] or version is not None:
        manifest = inspection.manifest_of(store, version)
        report["version"] = manifest.batch
        report["slots"] = [asdict(share) for share in _shares(store, manifest, operator)]
    return report


def _shares(store: Checkpoint, manifest: Manifest, operator: str | None) -> list[Share]:
    shares = inspection.shares(store, manifest)
    if operator is None:
        return shares
    names = [each["name"] for each in stored.operators(store)]
    if operator not in names:
        raise InputError(f"there is no operator {operator!r} in this job: it has {', '.join(names) or 'none'}")
    return [share for share in shares if share.operator == operator]


def _show(console: Console, store: Checkpoint, version: int | None, operator: str | None, *, groups: bool) -> None:
    have = inspection.versions(store)
    manifest = inspection.manifest_of(store, version) if have or version is not None else None
    parts = _shares(store, manifest, operator) if manifest is not None else []
    say(console, f"job {show.plain(stored.job_name(store), 60)}: {store.files.root}", "bold")
    say(console, stored.runner(store).text)
    for each in stored.operators(store):
        if operator in (None, each["name"]):
            keys = f"by {', '.join(each['keys'])}" if each["keys"] else "one key"
            say(console, f"operator {each['name']}: {keys}; keeps {', '.join(each['state'])}")
    console.print()
    if manifest is None:
        say(console, "no version yet: no batch has been committed")
        return
    show_versions(console, have, manifest.batch)
    console.print()
    show_shares(console, parts, manifest, groups=groups)


def say(console: Console, text: str, style: str = "") -> None:
    """One line that wraps on a terminal and stays whole in a pipe."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def show_versions(console: Console, versions: Sequence[Version], chosen: int) -> None:
    """One line per version, the last ``MOST_VERSIONS``; the chosen one is marked."""
    table = _table("version", "time (UTC)", "rows", "state", "files", "runs", "slots", "pins", "split")
    damaged = []
    for each in versions[-MOST_VERSIONS:]:
        if each.problem is not None:
            damaged.append(each)
            table.add_row(str(each.batch), "damaged", *["-"] * 7, style="red")
            continue
        table.add_row(
            str(each.batch),
            (each.time or "").removesuffix("Z"),
            f"{each.rows:,}",
            show.size_of(each.state_bytes),
            show.size_of(each.file_bytes),
            f"{each.runs:,}",
            f"{each.slots:,}",
            f"{each.pins:,}",
            f"{each.split_keys:,}",
            style="bold" if each.batch == chosen else "",
        )
    left = len(versions) - MOST_VERSIONS
    if left > 0:
        say(console, f"{left} older versions (--json lists all)", "dim")
    show.show_whole(console, table)
    for each in damaged:
        say(console, f"version {each.batch}: {each.problem}", "red")


def show_shares(console: Console, shares: Sequence[Share], manifest: Manifest, *, groups: bool) -> None:
    """What each slot has, operator after operator."""
    names = list(dict.fromkeys(share.operator for share in shares))
    for name in names:
        parts = [share for share in shares if share.operator == name]
        rows, size = sum(share.rows for share in parts), sum(share.state_bytes for share in parts)
        head = f"{name} in version {manifest.batch}: {rows:,} rows, {show.size_of(size)}"
        say(console, head, "bold")
        draining = any(share.draining for share in parts)
        table = _table("slot", "rows", "state", "share", "key groups", "pins", "runs", *([""] if draining else []))
        for share in parts:
            table.add_row(
                "split" if share.slot == SHARED else str(share.slot),
                f"{share.rows:,}",
                show.size_of(share.state_bytes),
                f"{share.state_bytes / size:.1%}" if size else "",
                f"{len(share.groups):,}",
                f"{share.pins:,}",
                f"{share.runs:,}",
                *(["draining" if share.draining else ""] if draining else []),
            )
        show.show_whole(console, table)
        if groups:
            for share in parts:
                if share.groups:
                    say(console, f"slot {share.slot} has key groups {inspection.span_text(share.groups)}")
        if name != names[-1]:
            console.print()


def show_findings(console: Console, root: str, findings: Sequence[Finding]) -> None:
    """What is wrong, and how many files of each kind are sound."""
    for finding in findings:
        if finding.problem:
            say(console, f"damaged: {finding.file}: {finding.problem}", "red")
    kinds = list(dict.fromkeys(finding.kind for finding in findings))
    sound = {kind: sum(1 for each in findings if each.kind == kind and not each.problem) for kind in kinds}
    bad = sum(1 for finding in findings if finding.problem)
    told = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in sound.items()) or "no files"
    verdict = f"{bad} damaged, sound: {told}" if bad else f"everything is sound: {told}"
    say(console, f"{root}: {verdict}", "red" if bad else "green")


def show_keys(console: Console, found: Sequence[KeyState]) -> None:
    """Where a key is and what is kept for it."""
    for number, each in enumerate(found):
        if number:
            console.print()
        slot = "all slots" if each.slot == SHARED else f"slot {each.slot}"
        key = ", ".join(f"{name} = {_value(value)}" for name, value in each.key.items()) or "its only key"
        say(console, f"{each.operator}: {key}", "bold")
        say(console, f"{slot} ({each.where}), hash {each.hash}, version {each.version}", "dim")
        rows: dict[str, Any] = {**each.state, **{_time_name(kind): text for kind, text in each.times.items()}}
        wide = max((len(name) for name in rows), default=0)
        for name, value in rows.items():
            text = value if name not in each.state else _value(value)
            say(console, f"  {name:<{wide}}  {text}")


def _time_name(kind: str) -> str:
    return "expires" if kind == "expires" else f"{kind} timer"


def _value(value: object) -> str:
    if isinstance(value, bytes):
        shown = value[:32].hex() + ("…" if len(value) > 32 else "")
        return f"{len(value):,} bytes: {shown}"
    return show.plain(repr(value) if isinstance(value, str) else str(value), LONGEST_VALUE)


def _table(*heads: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _print_json(report: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(report, default=_plain, ensure_ascii=False) + "\n")


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)
