"""Statistics: what one interval showed. Pure."""

from headgate.stats.compact import Compact, Records, discretise
from headgate.stats.heavy import HeavyKeys
from headgate.stats.measures import (
    Balance,
    balance_of,
    collocation_factor,
    delta,
    in_turn,
    load_index,
    measure,
    measure_operators,
    slot_costs,
)
from headgate.stats.snapshot import Snapshot, Traffic
from headgate.stats.window import StateWindow

__all__ = [
    "Balance",
    "Compact",
    "HeavyKeys",
    "Records",
    "Snapshot",
    "StateWindow",
    "Traffic",
    "balance_of",
    "collocation_factor",
    "delta",
    "discretise",
    "in_turn",
    "load_index",
    "measure",
    "measure_operators",
    "slot_costs",
]
