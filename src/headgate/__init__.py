"""headgate: load balancing for stateful stream processing on Apache Spark.

The names here are the public ones; everything else may change.
"""

from headgate.errors import (
    AssignmentError,
    HeadgateError,
    InputError,
    KeyTypeError,
    LimitsError,
    SnapshotError,
    SolverError,
)
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
from headgate.routing import Assignment, Pins, key_hash
from headgate.stats import Balance, Snapshot, StateWindow, Traffic, delta, measure

__version__ = "0.1.0"

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
    "Figures",
    "Flux",
    "Hash",
    "HeadgateError",
    "InputError",
    "KeyTypeError",
    "Limits",
    "LimitsError",
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
