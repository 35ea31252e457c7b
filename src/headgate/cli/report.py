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

Keys are text throughout, as object names in JSON must be; with several operators a pin is called "operator/key". A move
of a whole key group has the key "group N".
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
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


def report_one(outcome: Outcome, placement: Placement) -> dict[str, Any]:
    """The plan of one planner."""
    if outcome.plan is None:
        raise ValueError(f"{outcome.planner} made no plan")
    plan, figures = outcome.plan, outcome.plan.figures
    return {
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
        "moves": [_move(move) for move in plan.moves],
        "refused": [_move(move) for move in plan.refused],
        "assignment": _assignment(plan, placement.snapshot),
        "bound": figures.bound,
        "gap": figures.gap,
        "warnings": list(outcome.warnings),
    }


def report_all(outcomes: Sequence[Outcome], placement: Placement) -> dict[str, Any]:
    """The plans of several planners on one input; those that could not run are under "skipped" with the reason."""
    planned = [outcome for outcome in outcomes if outcome.plan is not None]
    return {
        "planner": ALL,
        "slots": placement.assignment.slots,
        "home": placement.home,
        "before": _balance(planned[0].plan.figures.before) if planned and planned[0].plan else {},
        "results": [report_one(outcome, placement) for outcome in planned],
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


def _move(move: Move) -> dict[str, Any]:
    return {
        "key": key_name(move),
        "operator": move.operator,
        "group": move.group,
        "from": move.source,
        "to": move.target,
        "cost": move.cost,
        "state_bytes": move.state_bytes,
        "reason": move.reason,
    }


def _assignment(plan: Plan, snapshot: Snapshot) -> dict[str, Any]:
    pins = plan.assignment.pins
    several = len(snapshot.operators) > 1
    rows: dict[tuple[int, int], int] = {}
    if len(pins):
        pinned = np.flatnonzero(np.isin(snapshot.hash, pins.hash))
        rows = {(int(snapshot.operator[row]), int(snapshot.hash[row])): int(row) for row in pinned}
    names: dict[str, int] = {}
    for operator, key_hash, slot in zip(pins.operator.tolist(), pins.hash.tolist(), pins.slot.tolist(), strict=True):
        row = rows.get((operator, key_hash))
        name = text_of(snapshot.label(row)) if row is not None else f"{key_hash & (2**64 - 1):016x}"
        names[f"{snapshot.operators[operator]}/{name}" if several else name] = slot
    return {"pins": names, "groups": plan.assignment.groups.tolist()}


def check_target(path: Path | None, option: str, suffixes: tuple[str, ...] = ()) -> None:
    """Raise ``InputError`` now, before any work, where the file could not be written later."""
    if path is None or path == STDOUT:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"{option} must end in {' or '.join(suffixes)}, got {path}: rename it")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: the folder {path.parent} does not exist: create it first")
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder: name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option} {path}: the folder {path.parent} cannot be written to: choose another")


def write_json(report: dict[str, Any], path: Path) -> None:
    """Write the report; to standard output for ``-``. Never writes NaN or infinity."""
    text = json.dumps(report, allow_nan=False, ensure_ascii=path == STDOUT) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        return
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path`` and rename it once it is whole; on failure nothing is left behind."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        write(part)
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
