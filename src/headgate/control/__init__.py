"""Control: from what slots report to a new assignment, with every decision explained. Pure."""

from headgate.control.controller import MOVES_SHOWN, Controller, Verdict, hot_keys
from headgate.control.journal import Entry, Kind, from_line, to_line
from headgate.control.levelling import level_groups
from headgate.control.policy import Policy
from headgate.control.scaling import moved, repartitioned, resized
from headgate.stats.loads import HEAVY_KEYS, Interval, OperatorLoad, Tally, heaviest

__all__ = [
    "HEAVY_KEYS",
    "MOVES_SHOWN",
    "Controller",
    "Entry",
    "Interval",
    "Kind",
    "OperatorLoad",
    "Policy",
    "Tally",
    "Verdict",
    "from_line",
    "heaviest",
    "hot_keys",
    "level_groups",
    "moved",
    "repartitioned",
    "resized",
    "to_line",
]
