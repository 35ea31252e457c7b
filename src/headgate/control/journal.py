"""The journal: every decision and every refusal, with its reason, in a form that lasts.

An entry is plain data: it goes through JSON and comes back equal. What it says is complete without the program that
wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from headgate.errors import InputError

Kind = Literal[
    "plan", "move", "refused", "balanced", "skipped", "slots", "hand", "split", "failed", "stale", "balance", "fused",
    "shared", "migration", "migrated",
]  # fmt: skip
"""What an entry tells of.

plan      a plan was made and is to be applied; its moves follow
move      one key or key group changes slot
refused   one that a plan wanted to move and a limit kept
balanced  nothing to do
skipped   something to do, and a reason to wait or leave it
slots     the number of slots changed
hand      somebody moved keys or groups by hand
split     a key is now spread over all slots, or no longer
failed    the planner failed; the assignment stays
fused     operators that had been apart are in the same slots now, or no longer
shared    windows of an operator share slices now, or are computed one by one
stale     a plan came too late: the assignment it was made for is no longer the one in use
balance   another planner was chosen
migration key groups begin to move, in which way and why
migrated  nothing of them is left where they were: pause, bytes copied and time it took
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal.

    ``batch`` is the last batch whose statistics were looked at. ``key`` and ``details`` are made plain (numbers, texts,
    lists) when the entry is made: a date or a decimal becomes its text. Raises ``InputError`` for an unknown kind.
    """

    batch: int
    kind: Kind
    reason: str
    operator: str | None = None
    key: object | None = None
    group: int | None = None
    source: int | None = None
    target: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise InputError(f"a journal entry must be one of {known}; got {self.kind!r}: write one of these")
        object.__setattr__(self, "key", _plain(self.key))
        object.__setattr__(self, "details", {str(name): _plain(value) for name, value in self.details.items()})

    def to_json(self) -> dict[str, object]:
        """A mapping that ``json.dumps`` takes; fields without a value are left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None and value != {}}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Entry:
        """The entry of ``to_json``. Fields that a later version added are passed over; raises ``InputError`` where one
        is missing."""
        missing = [name for name in ("batch", "kind", "reason") if name not in values]
        if missing:
            raise InputError(
                f"a journal entry needs batch, kind and reason; {', '.join(missing)} missing in {dict(values)}: the "
                "line is damaged, leave it out"
            )
        known: dict[str, Any] = {name: values[name] for name in cls.__slots__ if name in values}
        return cls(**known)

    def at(self, batch: int) -> Entry:
        """The same entry under another batch, say the one from which on it holds."""
        return replace(self, batch=batch)

    def describe(self) -> str:
        """One line for people: ``batch 12: move: count: key 'the', slot 3 to 7: slot 3 is 41.0% over the mean ...``."""
        parts = [f"batch {self.batch}", self.kind]
        if self.operator:
            parts.append(self.operator)
        what = []
        if self.key is not None:
            what.append(f"key {self.key!r}")
        elif self.group is not None:
            what.append(f"key group {self.group}")
        if self.source is not None and self.target is not None:
            what.append(f"slot {self.source} to {self.target}")
        elif self.target is not None:
            what.append(f"to slot {self.target}")
        if what:
            parts.append(", ".join(what))
        parts.append(self.reason)
        return ": ".join(" ".join(part.split()) for part in parts)


def _plain(value: object) -> object:
    """What JSON can carry and give back equal: other values become their text, bytes hexadecimal."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [_plain(each) for each in value]
    return str(value)


def to_line(entry: Entry) -> str:
    """The entry as one line of JSON, without the line's end."""
    return json.dumps(entry.to_json(), ensure_ascii=False, sort_keys=True)


def from_line(line: str) -> Entry:
    """The entry of ``to_line``; raises ``InputError`` for a line that is no entry."""
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise InputError(
            f"a line of the journal must be a JSON object, got {line[:60]!r}: the line is damaged, leave it out"
        )
    return Entry.from_json(values)
