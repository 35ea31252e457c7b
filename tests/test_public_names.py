"""The public surface is a list, and changing it is a decision."""

from __future__ import annotations

import subprocess
import sys

import headgate
from headgate.planners import PLANNERS

PUBLIC = [
    "ALBIC",
    "Assignment",
    "AssignmentError",
    "Balance",
    "Batch",
    "CheckpointError",
    "COLA",
    "Context",
    "count",
    "delta",
    "DLBH",
    "DLBL",
    "Entry",
    "Figures",
    "Flux",
    "FrameError",
    "FunctionError",
    "GreetingError",
    "Hash",
    "HeadgateError",
    "InputError",
    "Job",
    "JobError",
    "key_hash",
    "KeyCollisionError",
    "KeyedStream",
    "KeyTypeError",
    "Limits",
    "LimitsError",
    "LLFD",
    "LPTF",
    "max",
    "mean",
    "measure",
    "MILP",
    "min",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "Move",
    "Pickled",
    "Pins",
    "ordered_map",
    "Plan",
    "Planner",
    "Policy",
    "Query",
    "QueryError",
    "Readj",
    "Region",
    "RegionError",
    "RowError",
    "Rows",
    "ShippingError",
    "Simple",
    "SinkError",
    "sinks",
    "Snapshot",
    "SnapshotError",
    "SolverError",
    "SourceError",
    "sources",
    "windows",
    "StateError",
    "StateWindow",
    "Stream",
    "sum",
    "Traffic",
    "Update",
    "UserFunctionError",
    "WorkersLostError",
    "__version__",
    "aggregate",
    "approx_distinct",
    "collect",
    "distinct",
    "first",
    "last",
    "quantile",
    "stddev",
    "top_k",
    "variance",
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


def test_nothing_of_spark_is_loaded_before_it_is_used() -> None:
    program = "import sys, headgate; headgate.Mixed; print(any(name.startswith('pyspark') for name in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
