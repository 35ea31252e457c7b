"""The random jobs of enorm 7.6 as topologies, ready to be fused.

``random_job`` draws operators, attributes and flows; here each operator becomes a compute over its attributes, with the
flows as measured rates. Which kind it is does not matter to fusion.
"""

from __future__ import annotations

from headgate.topology import Edge, Kind, Operator, Topology
from headgate.workloads.jobs import ATTRIBUTES, RandomJob, random_job


def random_topology(operators: int, *, attributes: int = ATTRIBUTES, seed: int = 0) -> Topology:
    """A random job of this many operators (at least 4) over this many attributes; the same seed gives the same job."""
    return topology_of(random_job(operators, attributes=attributes, seed=seed), f"random {operators}, seed {seed}")


def topology_of(job: RandomJob, name: str) -> Topology:
    """A random job as a topology: operator ``o7`` over the attributes ``a0``, ``a12``, ..."""
    listed = [
        Operator(f"o{one.number}", Kind.COMPUTE, frozenset(f"a{attribute}" for attribute in one.attributes))
        for one in job.operators
    ]
    edges = [Edge(f"o{flow.source}", f"o{flow.target}", flow.tuples) for flow in job.flows]
    return Topology(name, tuple(listed), tuple(edges))
