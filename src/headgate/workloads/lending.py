"""The example of enorm, figures 1 to 4: a peer-to-peer lending company.

    figure 1   op1 (any) --> op2 (area) --> op4 (all areas)        interest rate against income
                        \\-> op3 (area) --> op5 (all areas)        approvals
    figure 3   op2 and op3 each as a compute, cp2 and cp3, and a consolidate, cs2 and cs3

Rates are made up; the paper gives none.
"""

from __future__ import annotations

from headgate.topology import Edge, Kind, Operator, Topology

COLUMNS = frozenset({"user", "area", "date", "approval", "amount", "return", "lendingTime", "income"})
"""Section 2: the schema of the input."""

DAY = 24 * 3_600_000_000
"""The longest of the windows of 10 minutes, 30 minutes, 1 hour, 6 hours and 24 hours."""

AREA, NONE = frozenset({"area"}), frozenset[str]()


def lending_job() -> Topology:
    """Figure 1: op1 is the interest rate of a row, op2 and op3 are per area, op4 and op5 for all areas."""
    return Topology(
        "lending",
        (
            Operator("op1", Kind.MAP, COLUMNS, inputs=COLUMNS, outputs=COLUMNS | {"rate"}),
            Operator("op2", Kind.COMPUTE, AREA, window_micros=DAY),
            Operator("op3", Kind.COMPUTE, AREA, window_micros=DAY),
            Operator("op4", Kind.COMPUTE, NONE, window_micros=DAY),
            Operator("op5", Kind.COMPUTE, NONE, window_micros=DAY),
        ),
        (Edge("op1", "op2", 100), Edge("op1", "op3", 100), Edge("op2", "op4", 10), Edge("op3", "op5", 10)),
    )


def lending_windows() -> Topology:
    """Figure 3: windows of op2 and op3 are made of partials that a consolidate merges."""
    return Topology(
        "lending",
        (
            Operator("op1", Kind.MAP, COLUMNS, inputs=COLUMNS, outputs=COLUMNS | {"rate"}),
            Operator("cp2", Kind.COMPUTE, AREA, window_micros=DAY),
            Operator("cp3", Kind.COMPUTE, AREA, window_micros=DAY),
            Operator("cs2", Kind.CONSOLIDATE, AREA),
            Operator("cs3", Kind.CONSOLIDATE, AREA),
            Operator("op4", Kind.COMPUTE, NONE, window_micros=DAY),
            Operator("op5", Kind.COMPUTE, NONE, window_micros=DAY),
        ),
        (
            Edge("op1", "cp2", 100),
            Edge("op1", "cp3", 100),
            Edge("cp2", "cs2", 10),
            Edge("cp3", "cs3", 10),
            Edge("cs2", "op4", 5),
            Edge("cs3", "op5", 5),
        ),
    )
