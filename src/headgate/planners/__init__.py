"""Planners: (snapshot, assignment, limits) -> plan. One algorithm per file, one interface. Pure."""

from headgate.planners.albic import ALBIC
from headgate.planners.base import Planner
from headgate.planners.cola import COLA
from headgate.planners.dlb import DLBH, DLBL
from headgate.planners.flux import Flux
from headgate.planners.hash import Hash
from headgate.planners.llfd import LLFD
from headgate.planners.lptf import LPTF
from headgate.planners.milp import MILP
from headgate.planners.minmig import MinMig
from headgate.planners.mintable import MinTable
from headgate.planners.mixed import Mixed
from headgate.planners.mixed_bf import MixedBF
from headgate.planners.plan import Figures, Grain, Limits, Move, Moves, Plan, Reason
from headgate.planners.readj import Readj
from headgate.planners.simple import Simple

PLANNERS: dict[str, type[Planner]] = {
    planner.name: planner
    for planner in (
        *(Hash, Simple, LLFD, MinTable, MinMig, Mixed, MixedBF, Readj, LPTF, DLBL, DLBH),
        *(Flux, MILP, ALBIC, COLA),
    )
}
"""Every planner by the name a person calls it."""

__all__ = [
    "ALBIC",
    "COLA",
    "DLBH",
    "DLBL",
    "LLFD",
    "LPTF",
    "MILP",
    "PLANNERS",
    "Figures",
    "Flux",
    "Grain",
    "Hash",
    "Limits",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "Move",
    "Moves",
    "Plan",
    "Planner",
    "Readj",
    "Reason",
    "Simple",
]
