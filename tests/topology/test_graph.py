"""Operators and topologies: what they derive, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headgate.errors import JobError
from headgate.topology import ALL, Edge, Flow, Kind, Operator, Topology, cardinality, intersect
from headgate.workloads.lending import AREA, COLUMNS, lending_job, lending_windows


@pytest.mark.parametrize(
    ("kind", "stateful", "flexible"),
    [
        pytest.param(Kind.MAP, False, True, id="map (table 1)"),
        pytest.param(Kind.COMPUTE, True, True, id="compute (table 1)"),
        pytest.param(Kind.CONSOLIDATE, False, False, id="consolidate (table 1)"),
        pytest.param(Kind.AGGREGATE, True, False, id="aggregate: compute and consolidate in one"),
        pytest.param(Kind.JOIN, True, False, id="join"),
        pytest.param(Kind.KEYED, True, False, id="keyed function"),
        pytest.param(Kind.DETECT, True, False, id="detect"),
    ],
)
def test_properties_of_operators(kind: Kind, stateful: bool, flexible: bool) -> None:
    operator = Operator("one", kind, frozenset({"k"}))
    assert (operator.stateful, operator.flexible) == (stateful, flexible)


@pytest.mark.parametrize(
    ("several", "common"),
    [
        pytest.param([COLUMNS, AREA, AREA], AREA, id="example 2b: the area"),
        pytest.param([ALL, AREA], AREA, id="all stands for every column"),
        pytest.param([ALL, ALL], ALL, id="all and all"),
        pytest.param([AREA, frozenset()], frozenset(), id="one place has nothing in common"),
        pytest.param([{"word"}, {"word"}], {"word"}, id="example 1b: both by word"),
    ],
)
def test_attributes_in_common(several: list[Any], common: Any) -> None:
    assert intersect(*(one if one is ALL else frozenset(one) for one in several)) == common


def test_the_papers_partition_cardinalities() -> None:
    """Example 2a: infinite for op1, |area| for op2, 1 for op4."""
    job = lending_job()
    assert job.operator("op1").unbounded
    assert cardinality(ALL, {}) == math.inf
    assert cardinality(job.operator("op2").attributes, {"area": 98}) == 98
    assert cardinality(job.operator("op4").attributes, {"area": 98}) == 1
    assert cardinality(frozenset({"area", "user"}), {"area": 98, "user": 10}) == 980
    assert cardinality(frozenset({"area"}), {}) == math.inf


def test_what_flows_along_edges_is_that_of_figure_5() -> None:
    kinds = [
        ("a", Kind.MAP),
        ("b", Kind.COMPUTE),
        ("c", Kind.CONSOLIDATE),
        ("d", Kind.CONSOLIDATE),
        ("e", Kind.COMPUTE),
    ]
    operators = tuple(Operator(name, kind, frozenset({"k"})) for name, kind in kinds)
    edges = tuple(Edge(*pair) for pair in ("ab", "bc", "cd", "de", "be"))
    job = Topology("figure 5", operators, edges)
    assert [job.flow(edge) for edge in edges] == [Flow.ROWS, Flow.PARTIALS, Flow.WINDOWS, Flow.ROWS, Flow.EAGER]
    assert not job.makes_partials("b"), "it also sends to a compute (5.2)"
    assert lending_windows().makes_partials("cp2")
    assert not lending_windows().makes_partials("op4"), "nobody merges what the last one sends"


def test_feeders_come_before_what_they_feed() -> None:
    job = lending_windows()
    assert job.order == ("op1", "cp2", "cp3", "cs2", "cs3", "op4", "op5")
    assert [edge.target for edge in job.downstream("op1")] == ["cp2", "cp3"]
    assert [edge.source for edge in job.upstream("op4")] == ["cs2"]


def test_rates_can_be_measured_later() -> None:
    job = lending_job().with_rates([("op1", "op2", 7.0)])
    assert [edge.rate for edge in job.edges] == [7.0, None, None, None]
    assert not job.measured
    assert lending_job().measured


def job(*edges: Edge, **kinds: Kind) -> Topology:
    return Topology("j", tuple(Operator(name, kind, frozenset({"k"})) for name, kind in kinds.items()), edges)


M, P = Kind.MAP, Kind.COMPUTE


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda: Topology("j", (Operator("a", M), Operator("a", M))),
            "every operator of a job must have a name of its own, and 'a' is there twice: pass name= to one of them",
            id="a name twice",
        ),
        pytest.param(
            lambda: job(Edge("a", "x"), a=M),
            "an edge names the operator 'x', and the job has a: check the name",
            id="an unknown operator",
        ),
        pytest.param(
            lambda: job(Edge("a", "b"), Edge("a", "b"), a=M, b=M),
            "what 'a' sends to 'b' must be one edge, and is there twice: add the rates up",
            id="an edge twice",
        ),
        pytest.param(
            lambda: job(Edge("a", "b", math.nan), a=M, b=M),
            "what 'a' sends to 'b' must have a finite rate from zero, got nan: measure again",
            id="a rate that is no number",
        ),
        pytest.param(
            lambda: job(Edge("s", "a"), Edge("a", "b"), Edge("b", "c"), Edge("c", "a"), s=M, a=M, b=M, c=M),
            "the operators of job 'j' must not feed themselves, and a -> b -> c -> a goes round: take one of these "
            "edges out",
            id="a cycle",
        ),
        pytest.param(
            lambda: job(Edge("a", "a"), a=M),
            "the operators of job 'j' must not feed themselves, and a -> a goes round: take one of these edges out",
            id="an operator that feeds itself",
        ),
        pytest.param(
            lambda: job(Edge("a", "b"), a=M, b=Kind.CONSOLIDATE),
            "a consolidate merges partial windows, so only compute and consolidate may feed 'b', and 'a' is a map: put "
            "a compute between them",
            id="a consolidate after a map",
        ),
        pytest.param(
            lambda: job(b=Kind.CONSOLIDATE),
            "a consolidate merges partial windows, so only compute and consolidate may feed 'b', and 'a source' is a "
            "stream of rows: put a compute between them",
            id="a consolidate after a source",
        ),
        pytest.param(
            lambda: Operator("a", P, frozenset({"x"}), inputs=frozenset({"y"})),
            "'a' needs the column 'x', and its rows have y: check the name",
            id="attributes that are no columns",
        ),
        pytest.param(
            lambda: Topology(
                "j",
                (Operator("a", M, outputs=frozenset({"x"})), Operator("b", P, frozenset({"y"}), frozenset({"y"}))),
                (Edge("a", "b"),),
            ),
            "'b' needs the column 'y', and its rows have x: check the name",
            id="columns that no feeder puts out",
        ),
        pytest.param(
            lambda: Operator("a", P),
            "attributes of operator 'a' must be column names, since a compute keeps keys together, got ALL",
            id="a compute without attributes",
        ),
        pytest.param(
            lambda: Operator("a", P, "area"),  # type: ignore[arg-type]
            "attributes of operator 'a' must be a collection of column names, got 'area'",
            id="a text for a set of texts",
        ),
        pytest.param(lambda: Operator("", M), "the name of an operator must be a text that is not empty, got ''",
                     id="no name"),
        pytest.param(
            lambda: lending_job().operator("op9"),
            "a request names the operator 'op9', and the job has op1, op2, op3, op4, op5: check the name",
            id="asking for an unknown operator",
        ),
        pytest.param(
            lambda: lending_job().with_rates([("op2", "op1", 1.0)]),
            "what 'op2' sends to 'op1' was measured, and the job has no such edge: check the names",
            id="measured on no edge",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(JobError) as raised:
        make()
    assert str(raised.value) == text
