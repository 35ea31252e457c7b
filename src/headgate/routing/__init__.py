"""Routing: from a key to the slot that has it. Pure."""

from headgate.routing.assignment import Assignment, Difference, Pins, difference, pins_from
from headgate.routing.groups import GROUPS, group_of, home_slots
from headgate.routing.keyhash import key_hash

__all__ = [
    "GROUPS",
    "Assignment",
    "Difference",
    "Pins",
    "difference",
    "group_of",
    "home_slots",
    "key_hash",
    "pins_from",
]
