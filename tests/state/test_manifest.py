from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import StateError
from headgate.routing import Assignment, Handover, Pins
from headgate.state import (
    BatchPlan,
    Bitmap,
    Counts,
    Layout,
    Manifest,
    Ref,
    RunInfo,
    assignment_from_json,
    assignment_to_json,
)

ASSIGNMENT = Assignment.hashed(3, 8, operators=2).next(pins=Pins.of([0, 1], [-(2**63), 2**63 - 1], [2, 0])).drain(1)
RUN = RunInfo("runs/0/4-0-aa.run", 4, 10, 900, "ffee", Bitmap.of([1, 7]), 2, {"event": (-(2**62), 5)})
MANIFEST = Manifest(
    job="a1b2",
    batch=12,
    assignment=ASSIGNMENT,
    layout=Layout({(0, -1): (Ref(RUN, Bitmap.of([7])),), (0, 2): (Ref(RUN, Bitmap.of([1])),)}),
    shared=(np.array([5, 9]), np.array([], dtype=np.int64)),
    counts=(Counts(np.array([1, 0, 2**40]), np.array([10, 0, 2**50])),) * 2,
    event_times={0: 1_700_000_000_000_000, 3: -5},
    watermark=1_699_999_999_000_000,
    now=1_700_000_001_000_000,
    outputs={"areas": ("outbox/areas/12-0-aa.parquet",)},
    progress={"rows": 4, "nested": {"list": [1, 2.5, None, "ü"]}},
)
PLAN = BatchPlan(
    13, ASSIGNMENT, None, 7, (np.array([5]),), "copy", (Handover(0, 3, 1, 99),), (0, 0), (1,), ({"kind": "move"},),
    wishes={"share 1": "auto"}, coming=(0, 1),
)  # fmt: skip


@given(
    st.integers(1, 5).flatmap(
        lambda slots: st.tuples(
            st.just(slots),
            st.lists(st.integers(0, slots - 1), min_size=6, max_size=6),
            st.dictionaries(st.tuples(st.integers(0, 1), st.integers(-(2**63), 2**63 - 1)), st.integers(0, slots - 1)),
            st.sets(st.integers(0, slots - 1), max_size=slots - 1),
            st.integers(0, 2**40),
        )
    )
)
def test_an_assignment_comes_back_exactly(
    case: tuple[int, list[int], dict[tuple[int, int], int], set[int], int],
) -> None:
    slots, groups, pins, draining, version = case
    assignment = Assignment(
        np.array(groups, dtype=np.int32),
        slots,
        Pins.of([operator for operator, _ in pins], [key for _, key in pins], list(pins.values())),
        frozenset(draining),
        2,
        version,
    )
    assert assignment_from_json(assignment_to_json(assignment)) == assignment


def test_a_manifest_comes_back_exactly() -> None:
    again = Manifest.from_bytes(MANIFEST.to_bytes(), "m")
    assert again == MANIFEST
    assert again.to_bytes() == MANIFEST.to_bytes()
    assert again.layout == MANIFEST.layout
    assert again.assignment == ASSIGNMENT
    assert [hashes.tolist() for hashes in again.shared] == [[5, 9], []]
    assert again.counts[1].bytes.tolist() == [10, 0, 2**50]
    assert (again.event_times, again.outputs, again.progress) == (
        MANIFEST.event_times, MANIFEST.outputs, MANIFEST.progress,
    )  # fmt: skip
    assert again != dataclasses.replace(MANIFEST, now=1)


def test_a_plan_comes_back_exactly() -> None:
    again = BatchPlan.from_bytes(PLAN.to_bytes(), "p")
    assert again == PLAN
    assert (again.batch, again.watermark, again.now, again.migration) == (13, None, 7, "copy")
    assert again.decisions == ({"kind": "move"},)
    assert again.handovers == (Handover(0, 3, 1, 99),)
    assert again.components == (0, 0)
    assert again.per_window == (1,)
    assert again.coming == (0, 1)


@pytest.mark.parametrize("kind", [Manifest, BatchPlan])
def test_damage_anywhere_is_found(kind: type[Manifest] | type[BatchPlan]) -> None:
    content = (MANIFEST if kind is Manifest else PLAN).to_bytes()
    for at in range(len(content)):
        for damaged in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]):
            with pytest.raises(StateError, match=r"manifests/12.json is damaged \(.*\): restore it from a backup"):
                kind.from_bytes(damaged, "manifests/12.json")


def test_a_newer_format_or_another_file_is_refused() -> None:
    with pytest.raises(StateError, match="x has format version 9, and this headgate reads up to version 1"):
        Manifest.from_bytes(dataclasses.replace(MANIFEST, format=9).to_bytes(), "x")
    with pytest.raises(StateError, match="x must be a manifest of headgate and is something else"):
        Manifest.from_bytes(PLAN.to_bytes(), "x")


def test_counts_follow_the_places() -> None:
    counts = Counts.sized(None, 3).changed(
        np.array([0, 2, 2, 7], np.int32), np.array([1, 2, 3, 9]), np.array([5, 6, 7, 9])
    )
    assert (counts.rows.tolist(), counts.bytes.tolist()) == ([1, 0, 5], [5, 0, 13])
    assert Counts.sized(counts, 5).rows.tolist() == [1, 0, 5, 0, 0]
    assert Counts.sized(counts, 2).bytes.tolist() == [5, 0]
