"""The plan as JSON, and files that are either there whole or not at all.

The names below are a contract: scripts read them. New names may come, none of these goes or changes its unit.

    planner, seconds, slots
    before, after     loads (one per slot), theta_max, max_over_mean, load_distance, rsd (percent), collocation (only
                      with traffic)
    table_size        pins after the plan
    migrated_state    bytes
    moves, refused    key, from, to, cost, state_bytes, reason
    assignment        pins (key -> slot), groups (slot of every key group)
    gap               null where the planner has no bound

Keys are text throughout, as object names in JSON must be; with several operators a pin is called "operator/key". Where
two keys would have one name, each has its hash behind it. A move of a whole key group has the key "group N".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headgate.cli.placement import Placement
from headgate.cli.runs import ALL, Outcome
from headgate.cli.statistics import text_of
from headgate.errors import InputError
from headgate.planners import Move, Plan
from headgate.stats import Balance, Snapshot

STDOUT = Path("-")
"""The file name that stands for standard output."""

DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
"""Paths that mean a file which is open already, wherever it leads: written to where it stands, never replaced."""


def report_one(outcome: Outcome, placement: Placement, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The plan of one planner. ``names`` are those of ``row_names``, where they are known already."""
    if outcome.plan is None:
        raise ValueError(f"{outcome.planner} made no plan")
    plan, figures, snapshot = outcome.plan, outcome.plan.figures, placement.snapshot
    names = row_names(snapshot) if names is None else names
    members = group_keys(outcome, snapshot)
    report = {
        "planner": outcome.planner,
        "seconds": outcome.seconds,
        "slots": placement.assignment.slots,
        "grain": outcome.grain,
        "home": placement.home,
        "before": _balance(figures.before),
        "after": _balance(figures.after),
        "table_size": figures.table_size,
        "migrated_state": figures.migrated_state,
        "migrated_share": figures.migrated_share,
        "moves": [_move(move, members) for move in plan.moves],
        "refused": [_move(move, members) for move in plan.refused],
        "assignment": _assignment(plan, snapshot, names),
        "bound": figures.bound,
        "gap": figures.gap,
        "warnings": list(outcome.warnings),
    }
    if placement.home == "slot" and outcome.grain == "group":
        report["group_of"] = dict(zip(names, snapshot.group.tolist(), strict=True))
    return report


def report_all(outcomes: Sequence[Outcome], placement: Placement) -> dict[str, Any]:
    """The plans of several planners on one input; those that could not run are under "skipped" with the reason."""
    planned = [outcome for outcome in outcomes if outcome.plan is not None]
    names = row_names(placement.snapshot)
    return {
        "planner": ALL,
        "slots": placement.assignment.slots,
        "home": placement.home,
        "before": _balance(planned[0].plan.figures.before) if planned and planned[0].plan else {},
        "results": [report_one(outcome, placement, names) for outcome in planned],
        "skipped": [
            {"planner": outcome.planner, "reason": outcome.fault} for outcome in outcomes if outcome.plan is None
        ],
    }


def _balance(balance: Balance) -> dict[str, Any]:
    measures: dict[str, Any] = {
        "loads": balance.loads.tolist(),
        "mean": balance.mean,
        "theta_max": balance.theta_max,
        "max_over_mean": balance.max_over_mean,
        "load_distance": balance.load_distance,
        "rsd": balance.rsd,
    }
    if balance.collocation is not None:
        measures["collocation"] = balance.collocation
    return measures


def key_name(move: Move) -> str:
    """What a move moves: the key, or "group N"."""
    return f"group {move.group}" if move.key is None else text_of(move.key)


def row_names(snapshot: Snapshot) -> list[str]:
    """What the key of every row is called where names must differ: "operator/key" with several operators, and the hash
    behind it where that is still the name of two keys (key "b/c" of "a" and key "c" of "a/b")."""
    names = [text_of(snapshot.label(row)) for row in range(len(snapshot))]
    if len(snapshot.operators) > 1:
        pairs = zip(snapshot.operator.tolist(), names, strict=True)
        names = [f"{snapshot.operators[operator]}/{name}" for operator, name in pairs]
    while len(set(names)) < len(names):  # again only where a key is called what another has become
        count = Counter(names)
        names = [
            f"{name} #{_hexadecimal(int(snapshot.hash[row]))}.{int(snapshot.operator[row])}"
            if count[name] > 1
            else name
            for row, name in enumerate(names)
        ]
    return names


def _hexadecimal(key_hash: int) -> str:
    return f"{key_hash & (2**64 - 1):016x}"


def group_keys(outcome: Outcome, snapshot: Snapshot) -> dict[int, list[str]]:
    """The listed keys of every key group that moves or was refused to, where whole groups move; else nothing."""
    if outcome.plan is None or outcome.grain != "group":
        return {}
    moving = np.concatenate([outcome.plan.moves.group, outcome.plan.refused.group])
    keys: dict[int, list[str]] = {int(group): [] for group in moving}
    for row in np.flatnonzero(np.isin(snapshot.group, moving)).tolist():
        keys[int(snapshot.group[row])].append(text_of(snapshot.label(row)))
    return keys


def _move(move: Move, members: Mapping[int, list[str]]) -> dict[str, Any]:
    whole = {"keys": members.get(move.group, [])} if move.key is None else {}
    return {
        "key": key_name(move),
        "operator": move.operator,
        "group": move.group,
        "from": move.source,
        "to": move.target,
        "cost": move.cost,
        "state_bytes": move.state_bytes,
        "reason": move.reason,
        **whole,
    }


def _assignment(plan: Plan, snapshot: Snapshot, row_name: Sequence[str]) -> dict[str, Any]:
    pins = plan.assignment.pins
    rows: dict[tuple[int, int], int] = {}
    if len(pins):
        pinned = np.flatnonzero(np.isin(snapshot.hash, pins.hash))
        rows = {(int(snapshot.operator[row]), int(snapshot.hash[row])): int(row) for row in pinned}
    named: dict[str, int] = {}
    for operator, key_hash, slot in zip(pins.operator.tolist(), pins.hash.tolist(), pins.slot.tolist(), strict=True):
        row = rows.get((operator, key_hash))
        named[row_name[row] if row is not None else _hexadecimal(key_hash)] = slot
    return {"pins": named, "groups": plan.assignment.groups.tolist()}


def check_target(path: Path | None, option: str, suffixes: tuple[str, ...] = (), *, allow_stdout: bool = False) -> None:
    """Raise ``InputError`` now, before any work, where the file could not be written later."""
    if path is None or (allow_stdout and path == STDOUT):
        return
    if path == STDOUT:
        raise InputError(f"{option} must name a file, got '-', which is standard output to --json alone: name a file")
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"{option} must end in {' or '.join(suffixes)}, got {path}: rename it")
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder: name a file in it")
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise InputError(f"{option} {path} cannot be written to: choose another")
        return
    folder = path.parent if not path.is_symlink() else _behind_links(path).parent
    if not folder.is_dir():
        raise InputError(f"{option} {path}: the folder {folder} does not exist: create it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {path}: the folder {folder} cannot be written to: choose another")


def check_apart(one: Path | None, two: Path | None, options: str) -> None:
    """Raise ``InputError`` where two options name one file: the second would replace the first. A pipe or a device
    takes both."""
    if one is None or two is None or STDOUT in (one, two) or _is_special(one):
        return
    if _behind_links(one) == _behind_links(two):
        raise InputError(f"{options} must name two files, both name {two}: rename one")


def json_text(report: dict[str, Any], *, ascii_only: bool = False) -> str:
    """The report as JSON. Raises ``InputError`` rather than write NaN or infinity."""
    try:
        return json.dumps(report, allow_nan=False, ensure_ascii=ascii_only) + "\n"
    except ValueError:
        raise InputError(
            "the figures of a plan must be finite numbers, and here some are NaN or infinite: the costs are too large "
            "to add up: give cost, state_bytes and rates in a larger unit"
        ) from None


def write_json(text: str, path: Path) -> None:
    """Write a report that is text already; to standard output for ``-``."""
    if path == STDOUT:
        sys.stdout.write(text)
        return
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path`` and rename it once it is whole; on failure nothing is left behind.

    A link stays a link, and the file it leads to is replaced. What is there and is no file (a pipe, a device) stays as
    well and is written to, once everything is known.
    """
    special = _is_special(path)
    target = path if special else _behind_links(path)
    folder = tempfile.gettempdir() if special else target.parent
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=folder)
    os.close(handle)
    part = Path(name)
    try:
        write(part)
        if special:
            _pour(part, path)
        else:
            part.chmod(0o666 & ~_umask())
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _behind_links(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _descriptor(path: Path) -> int | None:
    """The number of the open file that a path such as /dev/stdout or /dev/fd/63 means."""
    numbered = DESCRIPTOR.fullmatch(str(path))
    return int(numbered[1]) if numbered else STREAMS.get(str(path))


def _is_special(path: Path) -> bool:
    """Whether there is something that is no regular file, or a file that is open already."""
    return path.exists() and (not path.is_file() or _descriptor(path) is not None)


def _pour(part: Path, path: Path) -> None:
    number = _descriptor(path)
    sys.stdout.flush()
    # An open file goes on where it stands: opened anew it would begin at 0, over what was written before.
    with part.open("rb") as source, open(path if number is None else os.dup(number), "wb") as target:
        shutil.copyfileobj(source, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
