"""Changes of a running job's components as descriptions: Migrate, RePartition, split, combine. Enorm 4.5, 5.1.

    combined   [ map  compute  consolidate ] --> [ next ]        rigid, stateful: moves with its state

    split      [ map  compute ] --> [ consolidate  next ]        flexible, stateful: key groups move instantly

A description changes nothing by itself: ``applied`` gives the layout that it leads to, and the engine takes it there at
a boundary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headgate.errors import JobError
from headgate.topology.components import Component, Layout
from headgate.topology.migration import Migration, allowed
from headgate.topology.operators import Kind, intersect, named, told


@dataclass(frozen=True, slots=True)
class Migrate:
    """Migrate(O_i, C_j, C_k): an operator leaves its component for another.

    Components are named by one of their operators: ``source`` and ``target`` stay true while others change. ``target``
    None makes a component of its own. Afterwards PA(C_k) is cut down to what the operator has too, and PA(C_j) may
    have grown.
    """

    operator: str
    source: str
    target: str | None
    along: tuple[str, ...] = field(default=(), repr=False)
    """Maps that go with it, because they run where its rows are made."""

    def applied(self, layout: Layout) -> Layout:
        """The layout after it. Raises ``JobError`` if the operator is not there, or has nothing in common with the
        target although that is rigid (5.1), or components would wait for each other."""
        home = layout.component(self.operator)
        if self.source not in home:
            raise JobError.not_movable(self.operator, f"it is not in the component of {self.source!r}: look again")
        if self.target is None:
            after = layout.moved(self.operator, None)
        else:
            target = layout.component(self.target)
            if target is home:
                raise JobError.not_movable(self.operator, f"it is with {self.target!r} already: name another component")
            own = layout.topology.operator(self.operator).attributes
            alike = own == target.attributes  # maybe both run in one place
            if not target.flexible and not alike and intersect(own, target.attributes) == frozenset():
                raise JobError.not_movable(
                    self.operator,
                    f"it runs by {named(own)} and the rigid {target.label} by {named(target.attributes)}: leave it, "
                    "or give it a component of its own",
                )
            after = layout.moved(self.operator, layout.home[self.target])
        for name in self.along:
            after = after.moved(name, after.home[self.operator])
        cycle = after.cycle()
        if cycle is not None:
            names = " -> ".join(after.components[at].label for at in (*cycle, cycle[0]))
            raise JobError.not_movable(
                self.operator, f"components would wait for each other: {names}: move what is between them first"
            )
        return after


@dataclass(frozen=True, slots=True)
class RePartition:
    """RePartition(C_i, N_j, N_k): the key groups of a component go from some slots to others.

    The component is named by one of its operators. As many slots: the load is levelled; more or fewer: it is scaled.
    """

    component: str
    before: frozenset[int]
    after: frozenset[int]

    def __post_init__(self) -> None:
        for name, slots in (("before", self.before), ("after", self.after)):
            if not slots:
                raise JobError.option(f"{name} of a repartition", "at least one slot", slots)

    @property
    def purpose(self) -> str:
        """``level``, ``scale out``, ``scale in``, or ``move`` where neither set is part of the other."""
        if self.before == self.after:
            return "level"
        if self.before < self.after:
            return "scale out"
        return "scale in" if self.after < self.before else "move"


Operation = Migrate | RePartition


@dataclass(frozen=True, slots=True)
class Change:
    """Operations in order, the layout they lead to, and how state may be treated on the way."""

    operations: tuple[Operation, ...]
    layout: Layout
    migrations: tuple[Migration, ...]
    reason: str


def split(layout: Layout, component: Component) -> Change:
    """Split a rigid stateful component: its consolidates go to the component right downstream, or to one of their own.

    A consolidate goes downstream where exactly one component takes its output, and that is flexible or has a column in
    common with it (5.1). Instant: partial windows are sent from the next one on. Raises ``JobError`` where splitting
    would not make the component flexible.
    """
    topology = layout.topology
    leaving = [name for name in component.operators if topology.operator(name).kind is Kind.CONSOLIDATE]
    stuck = [
        name
        for name in component.operators
        if name not in leaving and not topology.operator(name).flexible
    ]  # fmt: skip
    if not leaving or not component.stateful:
        raise JobError.not_fusable(component.operators, "there is no compute and consolidate to split: leave it")
    if stuck:
        raise JobError.not_fusable(
            component.operators, f"it cannot be split so that it is flexible, since {told(stuck)} is rigid: leave it"
        )
    staying = next(name for name in component.operators if name not in leaving)
    operations: list[Operation] = []
    after = layout
    # From the end of the stream on, so that a consolidate that feeds another one finds it in its new place.
    for name in reversed(leaving):
        migrate = Migrate(name, staying, _downstream(after, name))
        try:
            after = migrate.applied(after)
        except JobError:
            migrate = Migrate(name, staying, None)
            after = migrate.applied(after)
        operations.append(migrate)
    text = f"{told(leaving)} left, so {after.component(staying).label} is {after.component(staying).described}"
    return Change(tuple(operations), after, (Migration.INSTANT,), text)


def combine(layout: Layout, consolidates: Collection[str]) -> Change:
    """Take consolidates back to the computes that feed them: the opposite of ``split``.

    Disruptive, or smooth where windows end: never instant (5.1). Raises ``JobError`` where a consolidate has no single
    component upstream, or the operators have no column in common.
    """
    topology = layout.topology
    operations: list[Operation] = []
    after = layout
    for name in (name for name in topology.order if name in set(consolidates)):
        homes = {after.home[edge.source]: edge.source for edge in topology.upstream(name)}
        if len(homes) != 1:
            raise JobError.not_movable(name, "what feeds it is in several components: fuse these first")
        (target,) = homes.values()
        migrate = Migrate(name, name, target)
        after = migrate.applied(after)
        if after.component(name).attributes == frozenset() and topology.operator(name).attributes != frozenset():
            raise JobError.not_movable(name, "it has no column in common with what feeds it: leave it")
        operations.append(migrate)
    windowed = all(after.component(name).window_micros is not None for name in consolidates)
    ways = (Migration.DISRUPTIVE, Migration.SMOOTH) if windowed else (Migration.DISRUPTIVE,)
    return Change(tuple(operations), after, ways, f"{told(consolidates)} joined what feeds it: nothing is sent between")


def scale_out(layout: Layout, component: Component, before: Collection[int], slot: int) -> Change:
    """One more slot for a component, as the paper composes it: Migrate so that it is flexible, then RePartition.

    A component that cannot be split keeps its operators, and its state moves as the table of migrations allows.
    """
    operations: tuple[Operation, ...] = ()
    after, name = layout, component.operators[0]
    kinds = [layout.topology.operator(one).kind for one in component.operators]
    if Kind.CONSOLIDATE in kinds and component.stateful and all(k.flexible or k is Kind.CONSOLIDATE for k in kinds):
        halved = split(layout, component)
        operations, after = halved.operations, halved.layout
        name = next(one for one in component.operators if layout.topology.operator(one).flexible)
    slots = frozenset(before)
    grown = after.component(name)
    ways = tuple(way.migration for way in allowed(after, grown) if way.allowed)
    return Change(
        (*operations, RePartition(name, slots, slots | {slot})), after, ways, f"{grown.label} gets slot {slot}"
    )


def _downstream(layout: Layout, name: str) -> str | None:
    """An operator of the one component that takes a consolidate's output, if it is one and another."""
    targets = [edge.target for edge in layout.topology.downstream(name)]
    homes = {layout.home[target] for target in targets} - {layout.home[name]}
    return targets[0] if len(homes) == 1 and all(layout.home[t] in homes for t in targets) else None
