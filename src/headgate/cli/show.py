"""Plans for people: bars per slot, measures before and after, moves with their reasons, planners side by side.

Everything fits in 80 columns; what has no room is put on lines of its own rather than cut. Nothing but plain text is
written where the output is not a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headgate.cli.placement import Placement
from headgate.cli.report import group_keys, key_name
from headgate.cli.runs import Outcome, relative_loads
from headgate.planners import Limits, Move, Plan
from headgate.stats import Balance

NARROWEST = 60
"""Below this many columns lines are wrapped by the terminal rather than squeezed further."""

LONGEST_KEY = 24
"""A key's name is cut to this many characters in the list of moves; JSON has it whole."""

LONGEST_GROUP = 32
"""The same for a key group with some of its keys."""

KEYS_OF_GROUP = 3
"""How many keys of a key group are named in the list of moves."""

WIDEST_TABLE = 1_000
"""More than any table of figures needs."""

WIDEST_BAR = 40
"""Longer bars show no more: an eighth of a character is already 0.3% of the longest."""

EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The few characters beyond ASCII, and what stands for them on a terminal that has none."""

    arrow: str
    full: str
    eighths: str

    @classmethod
    def of(cls, console: Console) -> Glyphs:
        return cls.plain() if console.options.ascii_only else cls.rich()

    @classmethod
    def plain(cls) -> Glyphs:
        return cls("->", "#", "")

    @classmethod
    def rich(cls) -> Glyphs:
        return cls("→", "█", EIGHTHS)

    def bar(self, share: float, width: int) -> str:
        """A bar of ``share`` of the width; something wherever there is anything."""
        share = min(max(share, 0.0), 1.0)
        if not self.eighths:
            return self.full * max(round(share * width), 1 if share > 0 else 0)
        eighths = max(round(share * width * 8), 1 if share > 0 else 0)
        return self.full * (eighths // 8) + (self.eighths[eighths % 8] if eighths % 8 else "")


def number(value: float) -> str:
    """Four significant digits, thousands apart, never in powers of ten: 12,345  123.4  0.01234."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}" if size < 1e9 else f"{value:.3g}"
    return f"{value:.4g}" if size >= 1e-4 else f"{value:.1e}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size_of(count: float) -> str:
    """Bytes in the unit that leaves one to three digits: 950 B, 1.5 kB, 20.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def plain(text: str, longest: int = LONGEST_KEY) -> str:
    """A name that cannot disturb the terminal: control characters spelled out, long names cut."""
    shown = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def show_plan(console: Console, outcome: Outcome, placement: Placement, limits: Limits, *, moves: int) -> None:
    """One plan: slots, measures, costs, warnings, and the first ``moves`` moves."""
    if outcome.plan is None:
        return
    plan, figures = outcome.plan, outcome.plan.figures
    glyphs = Glyphs.of(console)
    slots, rows = placement.assignment.slots, len(placement.snapshot)
    _say(console, f"{outcome.planner}: {rows:,} keys on {slots:,} slots, planned in {outcome.seconds:.3f} s", "bold")
    console.print()
    _show_slots(console, plan, placement, limits, glyphs)
    console.print()
    _show_measures(console, figures.before, figures.after, limits, glyphs)
    _say(console, _costs(outcome, plan, placement))
    for warning in outcome.warnings:
        _say(console, f"warning: {warning}", "yellow")
    members = group_keys(outcome, placement.snapshot)
    _show_moves(console, plan.moves[:moves], len(plan.moves), "moves", members, glyphs)
    if len(plan.refused):
        _show_moves(console, plan.refused[:moves], len(plan.refused), "refused moves", members, glyphs)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _show_slots(console: Console, plan: Plan, placement: Placement, limits: Limits, glyphs: Glyphs) -> None:
    before, after = plan.figures.before, plan.figures.after
    off_before, off_after = relative_loads(before), relative_loads(after)
    longest = max([*before.loads, *after.loads, 1e-300])
    texts = [(number(one), number(two)) for one, two in zip(before.loads, after.loads, strict=True)]
    wide = [max(len("before"), *(len(pair[side]) for pair in texts)) for side in (0, 1)]
    draining = placement.assignment.draining
    fixed = len("slot ") + 2 + sum(wide) + 4 + 2 * len(" +100.0%") + (len(" draining") if draining else 0)
    width = min(WIDEST_BAR, max(6, (max(console.width, NARROWEST) - fixed - 2) // 2))
    head = f"slot {'before':<{width}}  {'after':<{width}} {'before':>{wide[0]}}  {'after':>{wide[1]}}"
    _line(console, Text(f"{head}  {'off the mean':>15}", style="dim"))
    for slot, (one, two) in enumerate(texts):
        line = Text(f"{slot:>4} ")
        line.append(f"{glyphs.bar(before.loads[slot] / longest, width):<{width}}  ", _style(off_before[slot], limits))
        line.append(f"{glyphs.bar(after.loads[slot] / longest, width):<{width}}", _style(off_after[slot], limits))
        line.append(f" {one:>{wide[0]}}  {two:>{wide[1]}} {_percent(off_before[slot])} {_percent(off_after[slot])}")
        if slot in draining:
            line.append(" draining", "dim")
        _line(console, line)


def _line(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _percent(share: float) -> str:
    text = f"{share:+.1%}" if abs(share) < 100 else f"{share:+.0%}"
    return f"{text:>7}"


def _style(off: float, limits: Limits) -> str:
    return "red" if off > limits.theta_max else "cyan" if off < -limits.theta_max else "green"


def _show_measures(console: Console, before: Balance, after: Balance, limits: Limits, glyphs: Glyphs) -> None:
    pairs = [
        ("theta", f"{before.theta_max:.3f}", f"{after.theta_max:.3f}"),
        ("max/mean", f"{before.max_over_mean:.3f}", f"{after.max_over_mean:.3f}"),
        ("load distance", number(before.load_distance), number(after.load_distance)),
        ("RSD", f"{before.rsd:.1f}%", f"{after.rsd:.1f}%"),
    ]
    if before.collocation is not None and after.collocation is not None:
        pairs.append(("collocation", f"{before.collocation:.1%}", f"{after.collocation:.1%}"))
    _say_parts(console, [f"{name} {one} {glyphs.arrow} {two}" for name, one, two in pairs], "bold")


def _say_parts(console: Console, parts: Sequence[str], style: str) -> None:
    """Parts side by side, three spaces apart, broken between parts only."""
    line = ""
    for part in parts:
        if line and len(line) + 3 + len(part) > max(console.width, NARROWEST):
            _line(console, Text(line, style=style))
            line = ""
        line = f"{line}   {part}" if line else part
    if line:
        _line(console, Text(line, style=style))


def _costs(outcome: Outcome, plan: Plan, placement: Placement) -> str:
    figures = plan.figures
    parts = [
        f"{_counted(len(plan.moves), 'move')} with {size_of(figures.migrated_state)}, {figures.migrated_share:.1%} of "
        "the state",
        f"routing table {figures.table_before:,} entries before, {figures.table_size:,} after",
    ]
    if len(plan.refused):
        parts.append(f"{_counted(len(plan.refused), 'move')} refused")
    if figures.gap is not None:
        parts.append(
            "proven best" if figures.is_proven else f"the best load distance is at most {figures.gap:.1%} lower"
        )
    if placement.home == "slot":
        parts.append("the keys' places are taken from the file as another system's hash")
    if outcome.grain == "group":
        parts.append("whole key groups move")
    return "; ".join(parts)


def _with_keys(name: str, keys: Sequence[str]) -> str:
    """``group 7: a, b, c, ...``, where the keys are known; with names that leave room for each other."""
    if not keys:
        return name
    more = [", ..."] if len(keys) > KEYS_OF_GROUP else []
    return "".join([f"{name}: ", ", ".join(keys[:KEYS_OF_GROUP]), *more])


def _show_moves(
    console: Console,
    shown: Sequence[Move],
    total: int,
    title: str,
    members: Mapping[int, Sequence[str]],
    glyphs: Glyphs,
) -> None:
    console.print()
    if not total:
        _say(console, f"no {title}")
        return
    if not shown:
        return
    _say(console, f"{title}:", "bold")
    several = len({move.operator for move in shown}) > 1
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis", max_width=LONGEST_GROUP if members else LONGEST_KEY)
    for name in ("slots", "cost", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why")
    for move in shown:
        name = f"{move.operator}/{key_name(move)}" if several else key_name(move)
        whole = move.key is None
        table.add_row(
            Text(plain(_with_keys(name, members.get(move.group, ())), LONGEST_GROUP) if whole else plain(name)),
            f"{move.source} {glyphs.arrow} {move.target}",
            number(move.cost),
            size_of(move.state_bytes),
            Text(move.reason),
        )
    console.print(table)
    left = total - len(shown)
    if left:
        _say(console, f"and {left:,} more {title} (--moves {total} shows all)", "dim")


def show_comparison(console: Console, outcomes: Sequence[Outcome], placement: Placement, limits: Limits) -> None:
    """Every planner on the same input, one line each; what there is to note stands below, said once."""
    planned = [outcome for outcome in outcomes if outcome.plan is not None]
    if not planned or planned[0].plan is None:
        return
    before = planned[0].plan.figures.before
    slots, rows = placement.assignment.slots, len(placement.snapshot)
    _say(
        console,
        f"{len(outcomes)} planners: {rows:,} keys on {slots:,} slots, theta at most {limits.theta_max:g}",
        "bold",
    )
    console.print()
    traffic = before.collocation is not None
    notes: dict[str, int] = {}
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("\nplanner", no_wrap=True)
    heads = ["\nsec", "\ntheta", "max/\nmean", "load\ndistance", "RSD\n%", *(["coll.\n%"] if traffic else [])]
    for head in [*heads, "\ntable", "\nmoves", "moved\n%", "\ngap", "\nnote"]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("(now)", "", *_measures(before, traffic), *[""] * 5, style="dim")
    for outcome in outcomes:
        said = [outcome.fault] if outcome.fault else list(outcome.notes)
        marks = ",".join(str(notes.setdefault(text, len(notes) + 1)) for text in said if text)
        if outcome.plan is None:
            table.add_row(outcome.planner, *["-"] * (len(heads) + 4), marks, style="dim")
            continue
        figures = outcome.plan.figures
        table.add_row(
            outcome.planner,
            f"{outcome.seconds:.3f}" if outcome.seconds < 10 else f"{outcome.seconds:.1f}",
            *_measures(figures.after, traffic),
            f"{figures.table_size:,}",
            f"{len(outcome.plan.moves):,}",
            f"{100 * figures.migrated_share:.1f}",
            "" if figures.gap is None else f"{figures.gap:.0%}",
            marks,
            style="green" if figures.after.theta_max <= limits.theta_max else "",
        )
    show_whole(console, table)
    keys = ["moved: share of the state that moves", "gap: how much lower the best load distance may be"]
    _say_parts(console, [*(["coll.: traffic within a slot"] if traffic else []), *keys], "dim")
    for text, mark in notes.items():
        _say(console, f"{mark}: {text}", "yellow")
    if placement.home == "slot":
        _say(console, "the keys' places are taken from the file as another system's hash", "dim")
    _say(console, "one plan in full, with its moves and why: --planner NAME", "dim")


def show_whole(console: Console, table: Table) -> None:
    """Print a table of figures uncut: on a terminal too narrow for it lines wrap, but no figure loses its digits."""
    needed = Measurement.get(console, console.options.update(max_width=WIDEST_TABLE), table).maximum
    shown = console.width
    console.width = max(shown, needed)
    console.print(table)
    console.width = shown


def _measures(balance: Balance, traffic: bool) -> list[str]:
    measures = [
        f"{balance.theta_max:.3f}",
        f"{balance.max_over_mean:.3f}",
        number(balance.load_distance),
        f"{balance.rsd:.1f}",
    ]
    if traffic:
        measures.append("" if balance.collocation is None else f"{100 * balance.collocation:.1f}")
    return measures
