"""References: which places of which runs a slot reads.

A **layout** gives every (operator, slot) its references, oldest run first. The newest version of a key wins, so the
order matters per place only: all versions of a place's rows are in the references of one slot, the owner of the place.

                          place 0   1   2   3
    slot 0   run of batch 4   x     x   .   .         what moves when place 1 goes to slot 1:
             run of batch 7   x     x   .   .         its column, from every reference, and no file
    slot 1   run of batch 5   .     .   x   x

Two references of one slot whose runs have the same batch never share a place: in a batch a place has one owner, who
writes one run.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headgate.arrays import I32
from headgate.routing.places import SHARED
from headgate.state.bitmap import Bitmap
from headgate.state.runs import RunInfo

Owner = tuple[int, int]
"""An operator and a slot (or the driver, ``routing.places.SHARED``)."""


@dataclass(frozen=True, slots=True)
class Ref:
    """One slot's claim on these places of a run."""

    run: RunInfo
    places: Bitmap

    def __reduce__(self) -> tuple[type[Ref], tuple[RunInfo, Bitmap]]:
        return Ref, (self.run, self.places)

    @property
    def rows(self) -> int:
        """About how many rows it claims: the run's, by its share of the places. Exact when it claims all of them."""
        if self.places == self.run.places:
            return self.run.rows
        return -(-self.run.rows * len(self.places) // max(1, len(self.run.places)))


class PackedRefs(Mapping[Owner, tuple[Ref, ...]]):
    """(operator, slot) -> references, as they travel: a task unpacks those that it asks for, and no others.

    After many moves a job has hundreds of references, and to make objects of all of them takes milliseconds in every
    task of every batch.
    """

    __slots__ = ("_packed",)

    def __init__(self, packed: Mapping[Owner, bytes]) -> None:
        self._packed = packed

    @classmethod
    def of(cls, owners: Mapping[Owner, tuple[Ref, ...]]) -> PackedRefs:
        return cls({owner: pickle.dumps(refs, protocol=5) for owner, refs in owners.items()})

    def __getitem__(self, owner: Owner) -> tuple[Ref, ...]:
        refs: tuple[Ref, ...] = pickle.loads(self._packed[owner])
        return refs

    def __contains__(self, owner: object) -> bool:
        return owner in self._packed

    def __iter__(self) -> Iterator[Owner]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


@dataclass(frozen=True, slots=True)
class Layout:
    """(operator, slot) -> references, by ascending batch of their runs. Immutable; slots without any are left out."""

    owners: Mapping[Owner, tuple[Ref, ...]] = field(default_factory=dict)

    def packed(self) -> Layout:
        """The same, to travel."""
        return Layout(PackedRefs.of(self.owners))

    def refs(self, operator: int, slot: int) -> tuple[Ref, ...]:
        """What a slot reads, oldest first."""
        return self.owners.get((operator, slot), ())

    def of_operator(self, operator: int) -> dict[int, tuple[Ref, ...]]:
        """The references of every slot of an operator."""
        return {slot: refs for (number, slot), refs in self.owners.items() if number == operator}

    def differing(self, other: Layout) -> dict[Owner, tuple[Ref, ...]]:
        """What slots have here that have something else in the other; nothing at all is given as ``()``."""
        owners = sorted(self.owners.keys() | other.owners.keys())
        return {owner: self.refs(*owner) for owner in owners if self.refs(*owner) != other.refs(*owner)}

    def with_run(self, operator: int, slot: int, run: RunInfo | None, kept: int) -> Layout:
        """The layout after a slot wrote a run: its ``kept`` oldest references, then the run with all its places.

        ``run`` is None where nothing was left to write.
        """
        refs = self.refs(operator, slot)[:kept]
        if run is not None and run.places:
            refs = (*refs, Ref(run, run.places))
        return self._with({(operator, slot): refs})

    def runs(self) -> dict[str, RunInfo]:
        """Every run that is referred to, by name."""
        return {ref.run.name: ref.run for refs in self.owners.values() for ref in refs}

    def __iter__(self) -> Iterator[tuple[int, int, Ref]]:
        return ((operator, slot, ref) for (operator, slot), refs in self.owners.items() for ref in refs)

    def _with(self, changed: Mapping[Owner, tuple[Ref, ...]]) -> Layout:
        owners = {**self.owners, **changed}
        return Layout({owner: owners[owner] for owner in sorted(owners) if owners[owner]})

    def to_json(self) -> dict[str, Any]:
        """Runs once, by column; references by the run's number, where null stands for all places of the run."""
        runs = self.runs()
        rows = [run.to_json() for run in runs.values()]
        numbers = {name: number for number, name in enumerate(runs)}
        return {
            # A list per field: a manifest has hundreds of runs, and names repeated per run would be most of its bytes.
            "runs": {name: [row[name] for row in rows] for name in (rows[0] if rows else ())},
            "owners": [
                [operator, slot, [[numbers[ref.run.name], _places_text(ref)] for ref in refs]]
                for (operator, slot), refs in self.owners.items()
            ],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Layout:
        """What ``to_json`` gave, after a trip through JSON."""
        columns = fields["runs"]
        rows = zip(*columns.values(), strict=True)
        runs = [RunInfo.from_json(dict(zip(columns, row, strict=True))) for row in rows]
        return cls(
            {
                (operator, slot): tuple(_ref(runs[number], places) for number, places in refs)
                for operator, slot, refs in fields["owners"]
            }
        )


def moved(layout: Layout, operator: int, owners: I32, held: Mapping[int, Bitmap] | None = None) -> Layout:
    """The layout in which every place of an operator belongs to its new owner, but for those that slots hold on to:
    ``held`` has the places of a slot whose references stay although somebody else owns the place.

    ``owners`` has one slot per place (``Places.owners()`` of the new assignment). Bits whose place has that owner
    already stay, and references without a change stay the same objects. Places beyond the end of ``owners``, or with
    owner ``NOBODY``, are those of slots taken away: their rows have been copied elsewhere, and the bits are dropped.
    """
    before = layout.of_operator(operator)
    slots, inverse = np.unique(owners, return_inverse=True)
    wanted = {int(slot): Bitmap.of_mask(inverse == at) for at, slot in enumerate(slots) if slot >= SHARED}
    for slot, places in (held or {}).items():
        wanted[slot] = wanted.get(slot, Bitmap()).union(places)
    if all(not ref.places.minus(wanted.get(slot, Bitmap())) for slot, refs in before.items() for ref in refs):
        return layout
    after: dict[int, list[Ref]] = {slot: [] for slot in before}
    for slot, refs in before.items():
        for ref in refs:
            stays = ref.places.intersect(wanted.get(slot, Bitmap()))
            if stays == ref.places:
                after[slot].append(ref)
                continue
            if stays:
                after[slot].append(Ref(ref.run, stays))
            for target, goes in _leaving(ref.places.minus(stays), owners):
                after.setdefault(target, []).append(Ref(ref.run, goes))
    return layout._with({(operator, slot): _united(refs) for slot, refs in after.items()})


def astray(layout: Layout, operator: int, owners: I32) -> int:
    """About how many rows of an operator are with slots that do not own their place."""
    rows = 0
    for slot, refs in layout.of_operator(operator).items():
        own = Bitmap.of_mask(owners == slot)
        for ref in refs:
            away = ref.places.minus(own)
            if away:
                rows += Ref(ref.run, away).rows
    return rows


def _leaving(places: Bitmap, owners: I32) -> Iterator[tuple[int, Bitmap]]:
    """Who gets these places, and which; those that nobody owns any more are left out."""
    numbers = places.indices()
    numbers = numbers[numbers < len(owners)]
    targets = owners[numbers]
    for target in np.unique(targets[targets >= SHARED]):
        yield int(target), Bitmap.of(numbers[targets == target])


def _united(refs: Sequence[Ref]) -> tuple[Ref, ...]:
    """By ascending batch, one reference per run."""
    united: dict[str, Ref] = {}
    for ref in refs:
        other = united.get(ref.run.name)
        united[ref.run.name] = ref if other is None else Ref(ref.run, other.places.union(ref.places))
    return tuple(sorted(united.values(), key=lambda ref: (ref.run.batch, ref.run.name)))


def _places_text(ref: Ref) -> str | None:
    return None if ref.places == ref.run.places else ref.places.to_text()


def _ref(run: RunInfo, places: str | None) -> Ref:
    return Ref(run, run.places if places is None else Bitmap.from_text(places))
