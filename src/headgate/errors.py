"""Every error headgate raises.

    HeadgateError
    ├── InputError (ValueError)      what was handed in cannot be used
    │   ├── KeyTypeError (TypeError) a key column of a type that has no stable hash
    │   ├── SnapshotError            statistics that contradict themselves
    │   ├── AssignmentError          slots, groups or pins that do not exist
    │   └── LimitsError              limits that no plan can hold
    └── SolverError                  a solver failed for a reason of its own

A message says what must hold, what came, and what to do. Messages are built by the class methods here, so that the
same fault reads the same wherever it is found.
"""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5
"""How many offending values a message lists before it says how many more there are."""


def listing(values: Sequence[object]) -> str:
    """The first few values, and how many were left out: ``a, b, c, d, e (and 12 more)``."""
    shown = ", ".join(str(value) for value in values[:SHOWN])
    left = len(values) - SHOWN
    return f"{shown} (and {left} more)" if left > 0 else shown


class HeadgateError(Exception):
    """The root: catch this to catch everything that headgate raises on purpose."""


class InputError(HeadgateError, ValueError):
    """Something handed to headgate cannot be used as it is."""


class KeyTypeError(InputError, TypeError):
    """A key column has a type without a stable hash."""

    @classmethod
    def unhashable(cls, column: object, dtype: object) -> KeyTypeError:
        return cls(
            f"key column {column} has type {dtype}, which has no stable hash; keys may be integers, strings, dates, "
            "timestamps, decimals, booleans or bytes: cast the column first (a float to a decimal, a struct to its "
            "fields)"
        )

    @classmethod
    def mixed(cls, column: object, reason: object) -> KeyTypeError:
        return cls(
            f"key column {column} must hold values of one type that Arrow knows, and does not ({reason}): cast them "
            "first, or pass an Arrow array"
        )

    @classmethod
    def untyped_decimal(cls, column: object) -> KeyTypeError:
        return cls(
            f"key column {column} holds Python decimals, whose hash depends on a precision and scale that they do not "
            "carry: pass an Arrow array of a decimal type"
        )

    @classmethod
    def lengths(cls, lengths: Sequence[int]) -> KeyTypeError:
        return cls(f"key columns must have equal lengths, got {listing(lengths)}: pass columns of one table")


class SnapshotError(InputError):
    """Statistics that contradict themselves."""

    @classmethod
    def length(cls, name: str, expected: int, got: int) -> SnapshotError:
        return cls(f"every column of a snapshot must have one value per key: expected {expected} {name}, got {got}")

    @classmethod
    def negative(cls, name: str, keys: Sequence[object], value: float) -> SnapshotError:
        return cls(
            f"{name} must be zero or more, got {value} for key {listing(keys)}: drop the rows or mend the measurement"
        )

    @classmethod
    def not_finite(cls, name: str, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"{name} must be a finite number, got NaN or infinity for key {listing(keys)}: drop the rows or mend the "
            "measurement"
        )

    @classmethod
    def key_twice(cls, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"every key may be listed once per operator, listed more than once: {listing(keys)}: add their rows up "
            "first"
        )

    @classmethod
    def group_range(cls, group: int, groups: int) -> SnapshotError:
        return cls(f"key groups are numbered 0 to {groups - 1}, got {group}: use one number of groups throughout")

    @classmethod
    def capacity(cls, capacity: object) -> SnapshotError:
        return cls(f"a slot's capacity must be a finite number above zero, got {capacity}: drain the slot instead")

    @classmethod
    def traffic_unknown(cls, side: str, keys: Sequence[object]) -> SnapshotError:
        return cls(
            f"traffic may only name keys that the statistics list, unknown {side}: {listing(keys)}: add the keys (a "
            "cost of 0 will do) or drop the rows"
        )

    @classmethod
    def too_large(cls, name: str) -> SnapshotError:
        return cls(f"the values of {name} must add up to a finite number, and overflow: use a larger unit")

    @classmethod
    def traffic_range(cls, what: str, count: int, got: int) -> SnapshotError:
        return cls(f"traffic is between {what}s 0 to {count - 1}, got {got}: number them as the snapshot does")

    @classmethod
    def mismatch(cls, what: str, left: object, right: object) -> SnapshotError:
        return cls(f"snapshots can be merged only when they agree on {what}: one has {left}, another {right}")

    @classmethod
    def traffic_missing(cls, planner: str, grain: str) -> SnapshotError:
        return cls(
            f"{planner} at the grain of a {grain} needs traffic between {grain}s, and the snapshot has none at that "
            f"grain: measure it, or plan at the other grain"
        )


class AssignmentError(InputError):
    """Slots, groups or pins that do not exist."""

    @classmethod
    def no_slot(cls, slots: int) -> AssignmentError:
        return cls(f"an assignment needs at least one slot, got {slots}")

    @classmethod
    def unknown_slot(cls, what: str, slot: int, slots: int) -> AssignmentError:
        return cls(f"slots are numbered 0 to {slots - 1}, but {what} names slot {slot}: raise slots or mend the input")

    @classmethod
    def all_draining(cls, slots: int) -> AssignmentError:
        return cls(
            f"all {slots} slots are draining, so there is nowhere to move anything: keep at least one slot that is "
            "not draining"
        )

    @classmethod
    def groups(cls, expected: int, got: int) -> AssignmentError:
        return cls(
            f"the snapshot counts {expected} key groups and the assignment places {got}: build both with the same "
            "number of groups and operators"
        )

    @classmethod
    def pinned_twice(cls, operator: int, key_hash: int) -> AssignmentError:
        return cls(f"a key may be pinned once, key hash {key_hash} of operator {operator} is pinned more than once")

    @classmethod
    def unknown_operator(cls, operator: int, operators: int) -> AssignmentError:
        return cls(f"operators are numbered 0 to {operators - 1}, got {operator}")

    @classmethod
    def capacity_count(cls, slots: int, got: int) -> AssignmentError:
        return cls(f"there must be one capacity per slot: expected {slots}, got {got}")


class LimitsError(InputError):
    """Limits that no plan can hold."""

    @classmethod
    def negative(cls, name: str, value: float, unit: str) -> LimitsError:
        return cls(f"{name} must be zero or more ({unit}), got {value}")

    @classmethod
    def both_migration_limits(cls, count: int, cost: float) -> LimitsError:
        return cls(
            f"give max_migrations or max_migration_cost, not both: got {count} migrations and a cost of {cost}; the "
            "first counts moves, the second adds up the state they carry"
        )

    @classmethod
    def unknown_resource(cls, name: str, known: Sequence[str]) -> LimitsError:
        have = listing(sorted(known)) if known else "none"
        return cls(f"a cap names the resource {name!r}, which the snapshot does not measure (it has: {have})")

    @classmethod
    def cap_count(cls, name: str, slots: int, got: int) -> LimitsError:
        return cls(f"the cap on {name!r} must be one number or one per slot: expected {slots}, got {got}")

    @classmethod
    def parameter(cls, owner: str, name: str, must: str, got: object) -> LimitsError:
        return cls(f"{owner}: {name} must be {must}, got {got}")


class SolverError(HeadgateError):
    """A solver stopped for a reason of its own."""

    @classmethod
    def status(cls, solver: str, status: object) -> SolverError:
        return cls(f"{solver} ended with status {status!r} and no plan: this is a fault of headgate, please report it")
