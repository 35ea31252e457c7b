"""Random jobs as topologies, and the lending job of the paper."""

from __future__ import annotations

from headgate.topology import ALL, Kind
from headgate.workloads import lending_job, lending_windows, random_job, random_topology


def test_a_topology_has_the_operators_attributes_and_flows_of_the_job() -> None:
    job, topology = random_job(50, seed=3), random_topology(50, seed=3)
    assert len(topology.operators) == 50
    for drawn, made in zip(job.operators, topology.operators, strict=True):
        assert made.attributes is not ALL
        assert {int(name.removeprefix("a")) for name in made.attributes} == drawn.attributes
    assert [(f"o{f.source}", f"o{f.target}", f.tuples) for f in job.flows] == [
        (edge.source, edge.target, edge.rate) for edge in topology.edges
    ]
    assert topology.measured
    assert random_topology(50, seed=3) == topology


def test_the_lending_job() -> None:
    assert [one.name for one in lending_job().operators] == ["op1", "op2", "op3", "op4", "op5"]
    consolidates = [one.name for one in lending_windows().operators if one.kind is Kind.CONSOLIDATE]
    assert consolidates == ["cs2", "cs3"]
