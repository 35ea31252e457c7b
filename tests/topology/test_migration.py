"""How components may move: the table of section 5, what is picked, split and combine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.errors import JobError
from headgate.topology import (
    Allowed,
    Bounds,
    Component,
    Edge,
    Kind,
    Layout,
    Migrate,
    Migration,
    Moving,
    Operator,
    RePartition,
    Topology,
    allowed,
    combine,
    fuse,
    pick,
    scale_out,
    split,
)
from headgate.topology.migration import price
from headgate.workloads.lending import AREA, lending_windows

MINUTE = 60_000_000
K = frozenset("k")


def simple(window: int | None = 10 * MINUTE, compute: Kind = Kind.COMPUTE) -> Topology:
    """Section 7, the simple job, behind a map: one compute and one consolidate."""
    operators = (
        Operator("map", Kind.MAP, K),
        Operator("compute", compute, K, window_micros=window),
        Operator("consolidate", Kind.CONSOLIDATE, K),
    )
    return Topology("simple", operators, (Edge("map", "compute", 100), Edge("compute", "consolidate", 10)))


def paper(layout: Layout, component: Component) -> tuple[Allowed, ...]:
    """The paper's table: its slots do not read each other's state."""
    return allowed(layout, component, shared_store=False)


def table(topology: Topology, groups: list[list[str]], operator: str) -> str:
    layout = Layout.of(topology, groups)
    return " ".join(way.migration.value for way in paper(layout, layout.component(operator)) if way.allowed)


def keyed(kind: Kind, window: int | None = None) -> Topology:
    return Topology("j", (Operator("one", kind, K, window_micros=window),))


@pytest.mark.parametrize(
    ("topology", "groups", "operator", "ways"),
    [
        pytest.param(simple(), [["map"], ["compute"], ["consolidate"]], "map", "instant", id="flexible, stateless"),
        pytest.param(
            simple(), [["map", "compute"], ["consolidate"]], "compute", "instant disruptive smooth",
            id="flexible, stateful, windowed",
        ),
        pytest.param(
            simple(None), [["map", "compute"], ["consolidate"]], "compute", "instant disruptive",
            id="flexible, stateful, state without an end",
        ),
        pytest.param(
            simple(), [["map", "compute"], ["consolidate"]], "consolidate", "instant", id="rigid, stateless",
        ),
        pytest.param(
            simple(), [["map", "compute", "consolidate"]], "map", "disruptive smooth", id="rigid, stateful, windowed",
        ),
        pytest.param(
            simple(None), [["map", "compute", "consolidate"]], "map", "disruptive",
            id="rigid, stateful, state without an end",
        ),
        pytest.param(
            lending_windows(), [["op1", "cp2", "cp3"], ["cs2", "op4"], ["cs3", "op5"]], "op1",
            "instant disruptive smooth", id="figure 4: only computes are left",
        ),
        pytest.param(
            lending_windows(), [["op1"], ["cp2"], ["cp3"], ["cs2"], ["cs3"], ["op4"], ["op5"]], "op4",
            "disruptive smooth", id="a compute that nobody consolidates",
        ),
        pytest.param(keyed(Kind.KEYED), [["one"]], "one", "disruptive", id="keyed function"),
        pytest.param(keyed(Kind.JOIN, MINUTE), [["one"]], "one", "disruptive smooth", id="join within a time bound"),
        pytest.param(keyed(Kind.AGGREGATE, MINUTE), [["one"]], "one", "disruptive smooth", id="windowed aggregate"),
    ],
)  # fmt: skip
def test_the_table_of_section_5(topology: Topology, groups: list[list[str]], operator: str, ways: str) -> None:
    assert table(topology, groups, operator) == ways


def test_reasons_of_the_table() -> None:
    layout = Layout.of(simple(None), [["map", "compute", "consolidate"]])
    assert [way.reason for way in allowed(layout, layout.components[0])] == [
        "rigid: consolidate needs all of a key in one place",
        "state can always be moved while nothing runs",
        "the state of compute does not end with a window",
        "state changes owner in a store that all slots read",
    ]
    assert paper(layout, layout.components[0])[3].reason == "no slot reads another's state"
    eager = Layout.apart(Topology("j", (Operator("one", Kind.COMPUTE, K),)))
    assert allowed(eager, eager.components[0])[0].reason == "no consolidate merges what one sends"


SPLIT = Layout.of(simple(), [["map", "compute"], ["consolidate"]])
WHOLE = Layout.of(simple(), [["map", "compute", "consolidate"]])
LARGE = Moving(state_bytes=1e9, byte_seconds=1e-8, rows_per_second=1000, row_seconds=1e-5, hop_micros=MINUTE)
PARTS = Moving(state_bytes=1e9, byte_seconds=1e-8, state_rows=2e7, merge_seconds=3e-7)


@pytest.mark.parametrize(
    ("layout", "moving", "bounds", "stored", "way", "reason"),
    [
        pytest.param(
            SPLIT, PARTS, None, True, Migration.REFERENCE,
            "by reference: state changes owner in a store that all slots read; 0 s of CPU and a pause of 0 s, against "
            "instant 6 s of CPU and a pause of 0 s, disruptive 10 s of CPU and a pause of 10 s, smooth 0 s of CPU and "
            "a pause of 0 s",
            id="by reference costs nothing and is over at once",
        ),
        pytest.param(
            SPLIT, replace(PARTS, fetch_seconds=1e-8), Bounds(max_completion_seconds=60), True, Migration.INSTANT,
            "instant: a consolidate downstream merges the parts of a key; 6 s of CPU and a pause of 0 s, against "
            "disruptive 20 s of CPU and a pause of 20 s, smooth 0 s of CPU and a pause of 0 s, by reference 10 s of "
            "CPU and a pause of 0 s; not smooth: its 600 s until it is over are beyond 60 s",
            id="instant where state has to be fetched",
        ),
        pytest.param(
            SPLIT, PARTS, None, False, Migration.SMOOTH,
            "smooth: all its state ends with windows; 0 s of CPU and a pause of 0 s, against instant 6 s of CPU and a "
            "pause of 0 s, disruptive 10 s of CPU and a pause of 10 s; not by reference: no slot reads another's state",
            id="the paper's slots: windows that do not overlap need no row twice, if there is time",
        ),
        pytest.param(
            SPLIT, PARTS, Bounds(max_completion_seconds=60), False, Migration.INSTANT,
            "instant: a consolidate downstream merges the parts of a key; 6 s of CPU and a pause of 0 s, against "
            "disruptive 10 s of CPU and a pause of 10 s, smooth 0 s of CPU and a pause of 0 s; not by reference: no "
            "slot reads another's state; not smooth: its 600 s until it is over are beyond 60 s",
            id="the paper's slots: instant where smooth takes too long",
        ),
        pytest.param(
            WHOLE, LARGE, Bounds(max_completion_seconds=60), False, Migration.DISRUPTIVE,
            "disruptive: state can always be moved while nothing runs; 10 s of CPU and a pause of 10 s, against smooth "
            "5.4 s of CPU and a pause of 0 s; not instant: rigid: consolidate needs all of a key in one place; not by "
            "reference: no slot reads another's state; not smooth: its 600 s until it is over are beyond 60 s",
            id="the paper's slots: disruptive where smooth takes too long",
        ),
        pytest.param(
            WHOLE, LARGE, Bounds(max_pause_seconds=1, max_completion_seconds=60), False, Migration.SMOOTH,
            "smooth: all its state ends with windows; 5.4 s of CPU and a pause of 0 s, against disruptive 10 s of CPU "
            "and a pause of 10 s; no way is within the bounds, and this one pauses least; not instant: rigid: "
            "consolidate needs all of a key in one place; not by reference: no slot reads another's state; not "
            "disruptive: a pause of 10 s is beyond 1 s",
            id="the least pause where nothing is within the bounds",
        ),
        pytest.param(
            Layout.apart(keyed(Kind.MAP)), Moving(), None, True, Migration.INSTANT,
            "instant: it has no state; not disruptive: there is no state to move; not smooth: there is no state to "
            "move; not by reference: there is no state to move",
            id="nothing to move",
        ),
    ],
)  # fmt: skip
def test_the_cheapest_allowed_way(
    layout: Layout, moving: Moving, bounds: Bounds | None, stored: bool, way: Migration, reason: str
) -> None:
    picked = pick(layout, layout.components[0], moving, bounds, shared_store=stored)
    assert (picked.migration, picked.reason) == (way, reason)
    assert {one.migration for one in picked.prices} | {one.migration for one in picked.refused} == set(Migration)


def test_what_moves_cost() -> None:
    """7.2 to 7.4: the pause follows the state, completion of smooth the longest window, instant is paid for later."""
    whole = WHOLE.components[0]
    instant, disruptive, smooth, reference = (
        price(way, whole, replace(LARGE, state_rows=2e7, merge_seconds=3e-7)) for way in Migration
    )
    assert [one.pause_seconds for one in (instant, disruptive, smooth, reference)] == pytest.approx([0, 10, 0, 0])
    assert [one.cpu_seconds for one in (instant, disruptive, smooth, reference)] == pytest.approx([6, 10, 5.4, 0])
    assert [one.completion_seconds for one in (instant, disruptive, smooth, reference)] == pytest.approx(
        [600, 10, 600, 0]
    )
    tumbling = price(Migration.SMOOTH, whole, Moving(rows_per_second=1000, row_seconds=1e-5))
    assert tumbling.cpu_seconds == 0, "windows that do not overlap need no row twice"


def test_split_turns_figure_3_into_figure_4() -> None:
    layout = fuse(lending_windows()).layout
    change = split(layout, layout.components[0])
    assert change.operations == (Migrate("cs3", "op1", "op5"), Migrate("cs2", "op1", "op4"))
    assert [one.operators for one in change.layout.components] == [
        ("op1", "cp2", "cp3"), ("cs2", "op4"), ("cs3", "op5")
    ]  # fmt: skip
    first, second, _ = change.layout.components
    assert (first.flexible, first.stateful, first.attributes) == (True, True, AREA)
    assert second.attributes == frozenset(), "what the next one runs by: one place"
    assert change.migrations == (Migration.INSTANT,)
    assert change.reason == "cs2, cs3 left, so op1 + cp2 + cp3 is flexible, stateful, by area"


def test_combine_turns_figure_4_into_figure_3() -> None:
    layout = fuse(lending_windows()).layout
    halves = split(layout, layout.components[0])
    change = combine(halves.layout, ["cs2", "cs3"])
    assert change.layout == layout
    assert change.operations == (Migrate("cs2", "cs2", "cp2"), Migrate("cs3", "cs3", "cp3"))
    assert change.migrations == (Migration.DISRUPTIVE, Migration.SMOOTH)


def test_the_simple_job_splits_into_two_components_of_its_own() -> None:
    change = split(WHOLE, WHOLE.components[0])
    assert [one.operators for one in change.layout.components] == [("map", "compute"), ("consolidate",)]
    assert change.operations == (Migrate("consolidate", "map", None),)
    first, second = change.layout.components
    assert (first.described, second.described) == ("flexible, stateful, by k", "rigid, stateless, by k")


def test_one_more_slot_is_a_migrate_and_a_repartition() -> None:
    change = scale_out(WHOLE, WHOLE.components[0], {0, 1}, 2)
    assert change.operations == (
        Migrate("consolidate", "map", None),
        RePartition("map", frozenset({0, 1}), frozenset({0, 1, 2})),
    )
    assert Migration.INSTANT in change.migrations
    stuck = Layout.apart(keyed(Kind.KEYED))
    change = scale_out(stuck, stuck.components[0], {0}, 1)
    assert change.operations == (RePartition("one", frozenset({0}), frozenset({0, 1})),)
    assert change.migrations == (Migration.DISRUPTIVE, Migration.REFERENCE)


@pytest.mark.parametrize(
    ("before", "after", "purpose"),
    [({0, 1}, {0, 1}, "level"), ({0}, {0, 1}, "scale out"), ({0, 1}, {0}, "scale in"), ({0, 1}, {1, 2}, "move")],
)
def test_what_a_repartition_is_for(before: set[int], after: set[int], purpose: str) -> None:
    assert RePartition("one", frozenset(before), frozenset(after)).purpose == purpose


def wide() -> Topology:
    """a by x and y, b by x, and a rigid consolidate by y behind a compute by y."""
    operators = (
        Operator("a", Kind.COMPUTE, frozenset("xy")),
        Operator("b", Kind.COMPUTE, frozenset("x")),
        Operator("c", Kind.COMPUTE, frozenset("y")),
        Operator("d", Kind.CONSOLIDATE, frozenset("y")),
    )
    return Topology("wide", operators, (Edge("a", "b"), Edge("a", "c"), Edge("c", "d")))


def test_migrate_cuts_one_set_of_attributes_down_and_lets_the_other_grow() -> None:
    layout = Layout.of(wide(), [["a", "b"], ["c"], ["d"]])
    after = Migrate("b", "a", None).applied(layout)
    assert after.component("a").attributes == frozenset("xy")
    after = Migrate("c", "c", "a").applied(after)
    assert after.component("a").attributes == frozenset("y")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda: Migrate("b", "c", "d").applied(Layout.apart(wide())),
            "operator 'b' cannot change its component: it is not in the component of 'c': look again",
            id="not there",
        ),
        pytest.param(
            lambda: Migrate("b", "b", "d").applied(Layout.apart(wide())),
            "operator 'b' cannot change its component: it runs by x and the rigid d by y: leave it, or give it a "
            "component of its own",
            id="nothing in common with a rigid component",
        ),
        pytest.param(
            lambda: Migrate("a", "a", "b").applied(Layout.of(wide(), [["a", "b"], ["c"], ["d"]])),
            "operator 'a' cannot change its component: it is with 'b' already: name another component",
            id="there already",
        ),
        pytest.param(
            lambda: Migrate("a", "a", "d").applied(Layout.apart(wide())),
            "operator 'a' cannot change its component: components would wait for each other: a + d -> c -> a + d: "
            "move what is between them first",
            id="a circle",
        ),
        pytest.param(
            lambda: split(SPLIT, SPLIT.components[1]),
            "operators consolidate cannot be one component: there is no compute and consolidate to split: leave it",
            id="nothing to split",
        ),
        pytest.param(
            lambda: RePartition("a", frozenset(), frozenset({1})),
            "before of a repartition must be at least one slot, got frozenset()",
            id="no slots",
        ),
        pytest.param(
            lambda: Moving(state_bytes=-1),
            "state_bytes of a move must be a finite number from zero, got -1: measure again",
            id="less than nothing to move",
        ),
        pytest.param(
            lambda: Layout(wide(), ()),
            "operators a, b, c, d cannot be one component: every operator must be in exactly one component",
            id="operators without a component",
        ),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(JobError) as raised:
        make()
    assert str(raised.value) == text


def test_a_component_with_another_rigid_operator_cannot_be_split() -> None:
    operators = (
        Operator("f", Kind.KEYED, K),
        Operator("p", Kind.COMPUTE, K),
        Operator("s", Kind.CONSOLIDATE, K),
    )
    layout = fuse(Topology("j", operators, (Edge("f", "p"), Edge("p", "s")))).layout
    with pytest.raises(JobError, match="it cannot be split so that it is flexible, since f is rigid: leave it"):
        split(layout, layout.components[0])
