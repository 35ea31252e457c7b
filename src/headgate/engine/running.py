"""The running program as a layout of ``headgate.topology``: what the table of migrations and ``Migrate`` look at.

operator   a step of the program
map        a Python function between two steps, in the component of the step whose rows it gets
map        an output: what a compute sends there is merged by nobody
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate.control import Entry
from headgate.engine.fusing import kind_of, longest_window
from headgate.engine.program import Branch, Mapped, Program, Step, ToOperator, ToOutput
from headgate.errors import JobError
from headgate.operators import PerKey, Vectorised
from headgate.state import BatchPlan
from headgate.topology import ALL, Component, Edge, Kind, Layout, Migrate, Operator, Topology

AS_BEFORE = "as was decided before the query was started again"
"""Why components, or windows, are not as the job has them."""


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


def migrated(program: Program, operator: int, target: int | None) -> tuple[tuple[int, ...], str]:
    """Enorm's Migrate on a running program: the components with an operator in that of another one, or in one of its
    own (None), and in words what became of it.

    State stays in its key groups, so what joins must be placed by the same columns already. Raises ``JobError`` where
    that is not so, where rows may lose these columns on their way, where keys are split over slots, where components
    would wait for each other, and where there is nothing to change.
    """
    layout = layout_of(program)
    step = program.steps[operator]
    name = step.operator.name
    home = layout.component(name)
    mates = program.together.components[program.together.component(operator)]
    if target is None and len(mates) == 1:
        raise JobError.not_movable(name, "it is a component of its own already: leave it")
    along = tuple(one for one in home.operators if one.startswith(_below(name)))
    other = None if target is None else program.steps[target]
    after = Migrate(name, name, None if other is None else other.operator.name, along).applied(layout).component(name)
    left, makes = _label(program, home), _label(program, after)
    components = list(program.components)
    if other is None or target is None:
        components[operator] = len(components)
        return program.arranged(components).components, f"{name} left {left} for a component of its own"
    _check_mates(step, other, after, makes)
    components[operator] = components[target]
    return program.arranged(components).components, f"{name} joined {other.operator.name}, which makes {makes}"


def as_before(job: Program, before: BatchPlan) -> tuple[Program, list[Entry]]:
    """A job with the components that it last had, as far as it wants what it wanted then, and what to say of it. With
    its own where it has changed so that those cannot be any more."""
    wishes, components = job.wishes, before.coming or before.components
    told: list[Entry] = []
    program = job
    try:
        for pair in job.pairs if components else ():
            wish = f"split {pair.compute} {pair.consolidate}"
            apart = components[pair.compute] != components[pair.consolidate]
            if before.wishes.get(wish) != wishes[wish] or apart == program.apart(pair):
                continue
            program = program.arranged(program.taken_apart(pair) if apart else program.put_together(pair))
            what = "taken apart" if apart else "put together"
            told.append(Entry(0, "fused", f"{what}, {AS_BEFORE}", job.steps[pair.consolidate].operator.name))
        wanted = {name: wish for name, wish in wishes.items() if not name.startswith("share ")}
        if components and components != program.components and wanted.items() <= before.wishes.items():
            program = program.arranged(components)  # what was migrated by hand
            names = ", ".join(program.component_names)
            told.append(Entry(0, "fused", f"components are {names}, {AS_BEFORE}"))
        if program is not job:
            check_components(program)
    except JobError as error:
        return job, [Entry(0, "refused", f"components are those of the job again: {error}")]
    return program, told


def check_components(program: Program) -> None:
    """Raises ``JobError`` where operators are in one component that ``migrated`` would not put together."""
    layout = layout_of(program)
    for members in program.together.components:
        first, *others = (program.steps[member] for member in members)
        for step in others:
            own = layout.component(step.operator.name)
            _check_mates(step, first, own, _label(program, own))


def _check_mates(step: Step, other: Step, component: Component, label: str) -> None:
    """Whether two operators can be in this component, by what places their keys."""
    name, own, theirs = step.operator.name, _placed(step), _placed(other)
    if step.splits or other.splits:
        raise JobError.not_movable(
            name, "hot keys are split over slots, which no other operator could follow: leave it"
        )
    if own != theirs:
        raise JobError.not_movable(
            name,
            f"it is placed by {_told(own)} and {other.operator.name!r} by {_told(theirs)}, and state stays in its key "
            "groups: fuse them in the job, and start it on a new checkpoint",
        )
    lost = [column for column, _ in own if component.attributes is not ALL and column not in component.attributes]
    if lost:
        raise JobError.not_movable(
            name,
            f"rows may lose {', '.join(lost)} on their way within {label}: say keeps= if they do not",
        )


def _label(program: Program, component: Component) -> str:
    """A component by its operators, without the functions between them."""
    return " + ".join(step.operator.name for step in program.steps if step.operator.name in component)


def _placed(step: Step) -> tuple[tuple[str, str], ...]:
    """The columns that key groups of an operator go by, in order, with their types."""
    schema = step.operator.input_schema
    return tuple((column, str(schema.field(column).type)) for column in step.placed_by or step.operator.key_names)


def _told(placed: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{column} ({kind})" for column, kind in placed) or "no column"


def _below(name: str) -> str:
    """How the names of functions on an operator's rows begin."""
    return f"{name} / "


def _operator(step: Step) -> Operator:
    operator = step.operator
    keys = frozenset(operator.key_names)
    kept = frozenset(step.keeps) if isinstance(operator, PerKey | Vectorised) else keys
    longest = longest_window(operator, alone=step.may_be_alone)
    return Operator(operator.name, kind_of(operator), keys, outputs=kept, window_micros=longest)


def _edges(program: Program, source: str, branches: tuple[Branch, ...]) -> Iterator[tuple[str, str, Operator | None]]:
    """What flows below a producer: from, to, and the function that is there, if it is one that was not yet told of."""
    for at, branch in enumerate(branches):
        if isinstance(branch, ToOperator):
            yield source, program.steps[branch.operator].operator.name, None
        elif isinstance(branch, ToOutput):
            yield source, _sink(branch.output), None
        else:
            # A name that no operator has: functions may have equal ones.
            name = f"{_below(source)}{branch.name} #{at}"
            outputs = branch.keeps if isinstance(branch, Mapped) else None
            yield source, name, Operator(name, Kind.MAP, ALL, outputs=outputs)
            yield from _edges(program, name, branch.branches)


def _sink(output: str) -> str:
    return f"output {output}"
