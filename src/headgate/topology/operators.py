"""Operators and their partition attributes. Enorm 4.2, 4.3 and table 1.

    operator      state       partitioner      why
    map           stateless   flexible         no state
    compute       stateful    flexible         partial states of one key on two slots are merged later
    consolidate   stateless   rigid            what it buffers can be sent again; all partials of a key must meet
    aggregate     stateful    rigid            a compute and its consolidate in one
    join          stateful    rigid            both sides of a key must meet
    keyed         stateful    rigid            any function of a key: its state cannot be merged
    detect        stateful    rigid            a match is a matter of one key's whole history

The first three are the paper's, the rest are ours, put where the paper's definitions put them: **flexible** if the
partitioner may change without moving state, **stateful** if there is state that cannot be sent again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.errors import JobError


class Kind(Enum):
    """What an operator does."""

    MAP = "map"
    COMPUTE = "compute"
    CONSOLIDATE = "consolidate"
    AGGREGATE = "aggregate"
    JOIN = "join"
    KEYED = "keyed"
    DETECT = "detect"

    @property
    def stateful(self) -> bool:
        return self not in (Kind.MAP, Kind.CONSOLIDATE)

    @property
    def flexible(self) -> bool:
        return self in (Kind.MAP, Kind.COMPUTE)


class Everything(Enum):
    """The type of ``ALL``."""

    ALL = "all"

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = Everything.ALL
"""Partition attributes of an operator that is indifferent to how its rows are spread: enorm's <all>, PA = IS."""

Attributes = frozenset[str] | Everything
"""Columns that an operator may be partitioned by: names, none of them (it runs in one place), or ``ALL``."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of a job.

    ``attributes`` are its partition attributes: rows that agree in *any non-empty subset* of them may be kept together
    without splitting what the operator keeps together, so a component may be partitioned by fewer of them. None at all
    means one place for everything.

    An attribute is a name with a meaning: where an operator puts out another value under the same name, list it in
    ``rewrites``, and where it drops a column leave it out of ``outputs`` (None: it passes on what it gets). A
    component cannot be partitioned by what does not survive inside it.

    ``window_micros`` is the length of its longest window of time, None for state without an end.
    """

    name: str
    kind: Kind
    attributes: Attributes = ALL
    inputs: frozenset[str] | None = None
    outputs: frozenset[str] | None = None
    rewrites: frozenset[str] = frozenset()
    window_micros: int | None = None

    def __post_init__(self) -> None:
        for field in ("attributes", "inputs", "outputs", "rewrites"):
            value = getattr(self, field)
            if isinstance(value, str):
                raise JobError.option(f"{field} of operator {self.name!r}", "a collection of column names", value)
            if value is not None and value is not ALL:
                object.__setattr__(self, field, frozenset(value))
        if not self.name:
            raise JobError.option("the name of an operator", "a text that is not empty", self.name)
        if self.attributes is ALL and self.kind is not Kind.MAP:
            raise JobError.option(
                f"attributes of operator {self.name!r}",
                f"column names, since a {self.kind.value} keeps keys together",
                ALL,
            )
        if self.inputs is not None and self.attributes is not ALL:
            for missing in sorted(self.attributes - self.inputs):
                raise JobError.unknown_column(self.name, missing, sorted(self.inputs))

    @property
    def stateful(self) -> bool:
        return self.kind.stateful

    @property
    def flexible(self) -> bool:
        return self.kind.flexible

    @property
    def windowed(self) -> bool:
        """Whether its state ends with a window of time."""
        return self.window_micros is not None

    @property
    def unbounded(self) -> bool:
        """PA = IS: the paper's infinite partition cardinality."""
        return self.attributes is ALL or (self.inputs is not None and self.attributes == self.inputs)

    def carries(self, attribute: str) -> bool:
        """Whether rows leave with the value of this column that they came with."""
        return attribute not in self.rewrites and (self.outputs is None or attribute in self.outputs)


def intersect(*several: Attributes) -> Attributes:
    """The attributes that all have; ``ALL`` stands for every one."""
    common: Attributes = ALL
    for attributes in several:
        if attributes is not ALL:
            common = attributes if common is ALL else common & attributes
    return common


def carried(attributes: Attributes, through: Iterable[Operator]) -> Attributes:
    """Those attributes that all these operators pass on unchanged."""
    if attributes is ALL:
        return ALL
    kept = attributes
    for operator in through:
        kept = frozenset(attribute for attribute in kept if operator.carries(attribute))
    return kept


def cardinality(attributes: Attributes, distinct: Mapping[str, int]) -> float:
    """PA^c: the most partitions there can be, from the number of distinct values of each column.

    Infinite for ``ALL`` and where a column's number is unknown, 1 for no attributes. An upper bound: combinations that
    never occur count too.
    """
    if attributes is ALL:
        return math.inf
    return math.prod((distinct.get(attribute, math.inf) for attribute in attributes), start=1.0)


def named(attributes: Attributes) -> str:
    """For messages: ``area, user``, ``any``, or ``none``."""
    if attributes is ALL:
        return "any"
    return told(attributes) if attributes else "none"


def told(names: Collection[str]) -> str:
    """Names in alphabetical order, with commas."""
    return ", ".join(sorted(names))
