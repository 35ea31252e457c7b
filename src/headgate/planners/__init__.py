"""Planners: (snapshot, assignment, limits) -> plan. One algorithm per file, one interface. Pure."""

from headgate.planners.base import Planner
from headgate.planners.dlb import DLBH, DLBL
from headgate.planners.hash import Hash
from headgate.planners.lptf import LPTF
from headgate.planners.plan import Figures, Grain, Limits, Move, Moves, Plan, Reason
from headgate.planners.simple import Simple

PLANNERS: dict[str, type[Planner]] = {planner.name: planner for planner in (Hash, Simple, LPTF, DLBL, DLBH)}
"""Every planner by the name a person calls it."""

__all__ = [
    "DLBH",
    "DLBL",
    "LPTF",
    "PLANNERS",
    "Figures",
    "Grain",
    "Hash",
    "Limits",
    "Move",
    "Moves",
    "Plan",
    "Planner",
    "Reason",
    "Simple",
]
