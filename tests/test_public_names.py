"""The public surface is a list, and changing it is a decision."""

from __future__ import annotations

import headgate
from headgate.planners import PLANNERS

PUBLIC = [
    "ALBIC",
    "Assignment",
    "AssignmentError",
    "Balance",
    "COLA",
    "DLBH",
    "DLBL",
    "Figures",
    "Flux",
    "Hash",
    "HeadgateError",
    "InputError",
    "KeyTypeError",
    "LLFD",
    "LPTF",
    "Limits",
    "LimitsError",
    "MILP",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "Move",
    "Pins",
    "Plan",
    "Planner",
    "Readj",
    "Simple",
    "Snapshot",
    "SnapshotError",
    "SolverError",
    "StateWindow",
    "Traffic",
    "__version__",
    "delta",
    "key_hash",
    "measure",
]


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(headgate.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert hasattr(headgate, name)


def test_every_planner_is_public_and_named_once() -> None:
    assert {planner.__name__ for planner in PLANNERS.values()} <= set(headgate.__all__)
    assert all(planner.name == name for name, planner in PLANNERS.items())


def test_the_version() -> None:
    assert headgate.__version__ == "0.1.0"
