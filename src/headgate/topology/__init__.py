"""The job as a graph: operators, how they are fused into components, how components may move. Pure."""

from headgate.topology.adaptation import Migrate, RePartition, combine, scale_out, split
from headgate.topology.components import Component, Layout
from headgate.topology.fusion import PAPER, Fusion, Rules, Score, baseline, fuse
from headgate.topology.graph import Edge, Flow, Topology
from headgate.topology.migration import Allowed, Bounds, Migration, Moving, Pick, Price, allowed, cheapest, pick, taken
from headgate.topology.operators import ALL, Attributes, Kind, Operator, cardinality, intersect
from headgate.topology.verdicts import Verdict, Why

__all__ = [
    "ALL",
    "PAPER",
    "Allowed",
    "Attributes",
    "Bounds",
    "Component",
    "Edge",
    "Flow",
    "Fusion",
    "Kind",
    "Layout",
    "Migrate",
    "Migration",
    "Moving",
    "Operator",
    "Pick",
    "Price",
    "RePartition",
    "Rules",
    "Score",
    "Topology",
    "Verdict",
    "Why",
    "allowed",
    "baseline",
    "cardinality",
    "cheapest",
    "combine",
    "fuse",
    "intersect",
    "pick",
    "scale_out",
    "split",
    "taken",
]
