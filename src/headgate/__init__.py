"""headgate: load balancing for stateful stream processing on Apache Spark.

The names here are the public ones; everything else may change. They are looked up when first used, so that a Python
worker of Spark loads only what its task needs, and planning works without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate import sinks, sources, windows
    from headgate.control import Entry, Policy
    from headgate.engine.job import Job
    from headgate.engine.query import Query
    from headgate.engine.stream import KeyedStream, Stream
    from headgate.errors import (
        AssignmentError,
        CheckpointError,
        FrameError,
        FunctionError,
        GreetingError,
        HeadgateError,
        InputError,
        JobError,
        KeyCollisionError,
        KeyTypeError,
        LimitsError,
        QueryError,
        RegionError,
        RowError,
        ShippingError,
        SinkError,
        SnapshotError,
        SolverError,
        SourceError,
        StateError,
        UserFunctionError,
        WorkersLostError,
    )
    from headgate.operators import (
        Batch,
        Context,
        Pickled,
        Rows,
        Update,
        aggregate,
        approx_distinct,
        collect,
        count,
        distinct,
        first,
        last,
        mean,
        quantile,
        stddev,
        top_k,
        variance,
    )
    from headgate.operators import max_ as max
    from headgate.operators import min_ as min
    from headgate.operators import sum_ as sum
    from headgate.planners import (
        ALBIC,
        COLA,
        DLBH,
        DLBL,
        LLFD,
        LPTF,
        MILP,
        Figures,
        Flux,
        Hash,
        Limits,
        MinMig,
        MinTable,
        Mixed,
        MixedBF,
        Move,
        Plan,
        Planner,
        Readj,
        Simple,
    )
    from headgate.regions import Region, ordered_map
    from headgate.routing import Assignment, Pins, key_hash
    from headgate.stats import Balance, Snapshot, StateWindow, Traffic, delta, measure

__version__ = "0.1.0"

_HOMES = {
    "headgate.control": ("Entry", "Policy"),
    "headgate.engine.job": ("Job",),
    "headgate.engine.query": ("Query",),
    "headgate.engine.stream": ("KeyedStream", "Stream"),
    "headgate.errors": (
        "AssignmentError", "CheckpointError", "FrameError", "FunctionError", "GreetingError", "HeadgateError",
        "InputError", "JobError", "KeyCollisionError", "KeyTypeError", "LimitsError", "QueryError", "RegionError",
        "RowError", "ShippingError", "SinkError", "SnapshotError", "SolverError", "SourceError", "StateError",
        "UserFunctionError", "WorkersLostError",
    ),
    "headgate.operators": (
        "Batch", "Context", "Pickled", "Rows", "Update", "aggregate", "approx_distinct", "collect", "count", "distinct",
        "first", "last", "max", "mean", "min", "quantile", "stddev", "sum", "top_k", "variance",
    ),
    "headgate.planners": (
        "ALBIC", "COLA", "DLBH", "DLBL", "LLFD", "LPTF", "MILP", "Figures", "Flux", "Hash", "Limits", "MinMig",
        "MinTable", "Mixed", "MixedBF", "Move", "Plan", "Planner", "Readj", "Simple",
    ),
    "headgate.regions": ("Region", "ordered_map"),
    "headgate.routing": ("Assignment", "Pins", "key_hash"),
    "headgate.stats": ("Balance", "Snapshot", "StateWindow", "Traffic", "delta", "measure"),
}  # fmt: skip
"""Where each public name lives. Names of built-in functions have an underscore at home."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("sinks", "sources", "windows")
_SHADOWING = ("max", "min", "sum")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"headgate.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    value = getattr(import_module(home), f"{name}_" if name in _SHADOWING else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ALBIC",
    "COLA",
    "DLBH",
    "DLBL",
    "LLFD",
    "LPTF",
    "MILP",
    "Assignment",
    "AssignmentError",
    "Balance",
    "Batch",
    "CheckpointError",
    "Context",
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
    "KeyCollisionError",
    "KeyTypeError",
    "KeyedStream",
    "Limits",
    "LimitsError",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "Move",
    "Pickled",
    "Pins",
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
    "Snapshot",
    "SnapshotError",
    "SolverError",
    "SourceError",
    "StateError",
    "StateWindow",
    "Stream",
    "Traffic",
    "Update",
    "UserFunctionError",
    "WorkersLostError",
    "__version__",
    "aggregate",
    "approx_distinct",
    "collect",
    "count",
    "delta",
    "distinct",
    "first",
    "key_hash",
    "last",
    "max",
    "mean",
    "measure",
    "min",
    "ordered_map",
    "quantile",
    "sinks",
    "sources",
    "stddev",
    "sum",
    "top_k",
    "variance",
    "windows",
]
