"""Routing: from a key to the slot that has it. Pure."""

from headgate.routing.assignment import Assignment, Difference, Pins, difference, pins_from
from headgate.routing.groups import GROUPS, group_of, home_slots
from headgate.routing.handover import Handover, Handovers
from headgate.routing.keyhash import key_hash, row_hash
from headgate.routing.places import NOBODY, SHARED, Places, Relocation
from headgate.routing.splitting import PKG, DChoices, WChoices, slots_per_key
from headgate.routing.together import Together

__all__ = [
    "GROUPS",
    "NOBODY",
    "PKG",
    "SHARED",
    "Assignment",
    "DChoices",
    "Difference",
    "Handover",
    "Handovers",
    "Pins",
    "Places",
    "Relocation",
    "Together",
    "WChoices",
    "difference",
    "group_of",
    "home_slots",
    "key_hash",
    "pins_from",
    "row_hash",
    "slots_per_key",
]
