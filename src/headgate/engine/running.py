"""The running program as a layout of ``headgate.topology``: what the table of migrations and ``Migrate`` look at.

operator   a step of the program
map        a Python function between two steps, in the component of the step whose rows it gets
map        an output: what a compute sends there is merged by nobody
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.engine.fusing import kind_of, longest_window
from headgate.engine.program import Branch, Mapped, Program, Step, ToOperator, ToOutput
from headgate.operators import PerKey, Vectorised
from headgate.topology import ALL, Component, Edge, Kind, Layout, Operator, Topology


def layout_of(program: Program) -> Layout:
    """The components that a program runs with."""
    operators = [_operator(step) for step in program.steps]
    edges: dict[tuple[str, str], None] = {}
    groups = [[program.steps[member].operator.name for member in members] for members in program.together.components]
    homes = program.components
    for number, step in enumerate(program.steps):
        for source, target, between in _edges(program, step.operator.name, step.branches):
            edges[source, target] = None
            if between is not None:
                operators.append(between)
                groups[homes[number]].append(between.name)
    outputs = [_sink(output) for output in program.outputs]
    topology = Topology(
        program.name,
        (*operators, *(Operator(name, Kind.MAP) for name in outputs)),
        tuple(Edge(*edge) for edge in edges),
    )
    return Layout.of(topology, [*groups, *([name] for name in outputs)])


def component_in(layout: Layout, program: Program, operator: int) -> Component:
    """The component of an operator, by its number."""
    return layout.component(program.steps[operator].operator.name)


def _operator(step: Step) -> Operator:
    operator = step.operator
    keys = frozenset(operator.key_names)
    kept = frozenset(step.keeps) if isinstance(operator, PerKey | Vectorised) else keys
    return Operator(
        operator.name, kind_of(operator), keys, outputs=kept, window_micros=longest_window(operator)
    )  # fmt: skip


def _edges(program: Program, source: str, branches: tuple[Branch, ...]) -> Iterator[tuple[str, str, Operator | None]]:
    """What flows below a producer: from, to, and the function that is there, if it is one that was not yet told of."""
    for at, branch in enumerate(branches):
        if isinstance(branch, ToOperator):
            yield source, program.steps[branch.operator].operator.name, None
        elif isinstance(branch, ToOutput):
            yield source, _sink(branch.output), None
        else:
            # A name that no operator has: functions may have equal ones.
            name = f"{source} / {branch.name} #{at}"
            outputs = branch.keeps if isinstance(branch, Mapped) else None
            yield source, name, Operator(name, Kind.MAP, ALL, outputs=outputs)
            yield from _edges(program, name, branch.branches)


def _sink(output: str) -> str:
    return f"output {output}"
