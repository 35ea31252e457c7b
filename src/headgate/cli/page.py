"""The page of the demonstration: one HTML file that needs nothing else, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headgate.cli.comparison import WARM_UP, Row, RunRecord
from headgate.planners.plan import THETA_MAX

WIDTH = 960
"""Units across of every drawing; the browser scales them."""

STYLE = """
:root{color-scheme:light dark;--paper:#ffffff;--ink:#1d2430;--soft:#5c6675;--line:#dfe3e8;--card:#f5f7f9;
--hot:#c8483f;--level:#3b8f5a;--cold:#7aa6d6;--one:#8a8f98;--two:#2a6fbb}
@media (prefers-color-scheme:dark){:root{--paper:#14181e;--ink:#e6e9ee;--soft:#9aa4b2;--line:#2c333d;--card:#1c222a;
--hot:#e8756c;--level:#5fb981;--cold:#5d8cc0;--one:#a3a9b3;--two:#6aa9f0}}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:64rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .4rem}
h2{font-size:1.15rem;margin:2.4rem 0 .4rem}
p{margin:.3rem 0 .8rem;max-width:46rem}
.soft,figcaption{color:var(--soft);font-size:.9rem}
figure{margin:.6rem 0 1.2rem}
.wide{overflow-x:auto}
.wide svg{min-width:40rem}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}
.figures td:not(:first-child),.figures th:not(:first-child){text-align:right}
.journal{max-height:28rem;overflow:auto;border:1px solid var(--line);border-radius:.4rem;padding:0 .8rem;
font-size:.88rem}
.journal th{position:sticky;top:0;background:var(--paper)}
.plan td{font-weight:600}
.key{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin:0 .35em 0 1em;vertical-align:-.05em}
.key:first-child{margin-left:0}
.pick{display:flex;gap:.8rem;align-items:center;margin:.4rem 0}
.pick input{flex:1;max-width:28rem}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:1.5rem}
@media (max-width:40rem){.pair{grid-template-columns:1fr}}
"""

SCRIPT = """
const pick=document.getElementById("batch"),name=document.getElementById("which");
function show(){
  const at=pick.value;
  name.textContent="batch "+at;
  for(const each of document.querySelectorAll("[data-batch]"))each.hidden=each.dataset.batch!==at;
}
pick.addEventListener("input",show);
show();
"""


def page(
    title: str, told: str, finding: str, first: RunRecord, second: RunRecord, rows: Sequence[Row], shifts: Sequence[int]
) -> str:
    """The whole document."""
    batches = max(len(first.progress), len(second.progress))
    longest = max((max(loads, default=0.0) for run in (first, second) for loads in run.loads[WARM_UP:]), default=0.0)
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body><main>",
        f'<h1>{escape(title)}</h1><p class="soft">{escape(told)}</p><p>{escape(finding)}</p>',
        _table(rows, first, second),
        "<h2>Batch time</h2><figure class=wide>",
        times(first, second, shifts),
        f"<figcaption>{_key('one', first.title)}{_key('two', second.title)} &nbsp; Dashed: other words become popular. "
        "Batch 0 of each run does not count in the table.</figcaption></figure>",
        "<h2>Load per slot, batch by batch</h2>",
        f"<p class=soft>A bar is the time one slot was busy; {_key('hot', 'above the mean by more than theta')}"
        f"{_key('level', 'level')}{_key('cold', 'below')}</p>",
    ]
    parts += [
        *(
            f"<figure class=wide>{strip(run, longest)}<figcaption>{escape(run.title)}</figcaption></figure>"
            for run in (first, second)
        ),
        "<h2>One batch</h2><div class=pick><label for=batch>Batch</label><input id=batch type=range min=0 "
        f"max={max(batches - 1, 0)} value={max(batches - 1, 0)}><span id=which></span></div>",
        *(_pair(first, second, batch, longest) for batch in range(batches)),
        f"<h2>Decisions with {escape(second.title)}</h2>",
        "<p class=soft>Every plan, move and refusal with its reason, as the query's journal has it.</p>",
        journal(second),
        f"<script>{SCRIPT}</script></main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _key(colour: str, text: str) -> str:
    return f'<span class=key style="background:var(--{colour})"></span>{escape(text)}'


def _table(rows: Sequence[Row], first: RunRecord, second: RunRecord) -> str:
    heads = ("", first.title, second.title, "ratio")
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table class=figures><tr>{head}</tr>{body}</table></div>"


def times(first: RunRecord, second: RunRecord, shifts: Sequence[int]) -> str:
    """Batch times of both runs as lines."""
    height, left, bottom = 240, 40, 24
    batches = max(len(first.progress), len(second.progress), 2)
    highest = max([*first.batch_seconds[WARM_UP:], *second.batch_seconds[WARM_UP:], 0.001]) * 1.08
    step = (WIDTH - left - 10) / (batches - 1)

    def at(batch: float, seconds: float) -> tuple[float, float]:
        return left + step * batch, (height - bottom) - (height - bottom - 6) * min(seconds / highest, 1.0)

    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="batch time of both runs">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = at(0, highest * share)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}" stroke="var(--line)"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * share:.1f} s</text>')
    for batch in shifts:
        x, _ = at(batch - 0.5, 0)
        parts.append(
            f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - bottom}" stroke="var(--soft)" '
            'stroke-dasharray="4 4"/>'
        )
    parts += [
        f'<text x="{at(batch, 0)[0]:.1f}" y="{height - 6}" text-anchor="middle">{batch}</text>'
        for batch in range(0, batches, max(1, batches // 16))
    ]
    for run, colour in ((first, "one"), (second, "two")):
        points = [at(batch, seconds) for batch, seconds in enumerate(run.batch_seconds)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="var(--{colour})" stroke-width="2.5"/>')
        for (x, y), progress, seconds in zip(points, run.progress, run.batch_seconds, strict=True):
            note = f"{run.title}, batch {progress['batch']}: {seconds:.2f} s, {progress['moves']} moves"
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var(--{colour})"><title>{escape(note)}</title></circle>'
            )
    return "".join([*parts, "</svg>"])


def strip(run: RunRecord, longest: float) -> str:
    """A small chart per batch side by side, each with a bar per slot."""
    height, bottom = 120, 18
    batches = max(len(run.loads), 1)
    each = WIDTH / batches
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="load per slot and batch, {escape(run.title)}">'
    ]
    for batch, loads in enumerate(run.loads):
        parts.append(_bars(loads, batch * each + each * 0.06, each * 0.88, height - bottom, longest))
        if batch % max(1, batches // 20) == 0:
            parts.append(f'<text x="{(batch + 0.5) * each:.1f}" y="{height - 4}" text-anchor="middle">{batch}</text>')
    return "".join([*parts, "</svg>"])


def _bars(loads: Sequence[float], left: float, width: float, height: float, longest: float) -> str:
    """Bars from the bottom up, and a line at the mean."""
    if not loads:
        return ""
    mean = sum(loads) / len(loads)
    each = width / len(loads)
    parts = []
    for slot, load in enumerate(loads):
        tall = (height - 4) * min(load / longest, 1.0) if longest > 0 else 0.0
        note = f"slot {slot}: {load:.2f} s"
        parts.append(
            f'<rect x="{left + slot * each:.1f}" y="{height - tall:.1f}" width="{max(each * 0.82, 0.5):.1f}" '
            f'height="{tall:.1f}" fill="var(--{colour_of(load, mean)})"><title>{note}</title></rect>'
        )
    at = height - ((height - 4) * min(mean / longest, 1.0) if longest > 0 else 0.0)
    parts.append(
        f'<line x1="{left:.1f}" y1="{at:.1f}" x2="{left + width:.1f}" y2="{at:.1f}" stroke="var(--ink)" '
        'stroke-opacity=".55"/>'
    )
    return "".join(parts)


def colour_of(load: float, mean: float) -> str:
    """The colour of a bar: hot above the mean by more than theta, cold below by more, else level."""
    off = load / mean - 1 if mean > 0 else 0.0
    return "hot" if off > THETA_MAX else "cold" if off < -THETA_MAX else "level"


def _pair(first: RunRecord, second: RunRecord, batch: int, longest: float) -> str:
    figures = []
    for run in (first, second):
        if batch >= len(run.progress):
            figures.append(f"<figure><figcaption>{escape(run.title)}: no such batch</figcaption></figure>")
            continue
        progress = run.progress[batch]
        told = f"{run.title}: {run.batch_seconds[batch]:.2f} s, skew {progress['skew']:.2f}, {progress['moves']} moves"
        loads = run.loads[batch]
        wide = 460 / max(len(loads), 1)
        names = "".join(
            f'<text x="{(slot + 0.41) * wide:.1f}" y="194" text-anchor="middle">{slot}</text>'
            for slot in range(0, len(loads), max(1, len(loads) // 16))
        )
        figures.append(
            f'<figure><svg viewBox="0 0 460 200" role="img" aria-label="{escape(told)}">'
            f"{_bars(loads, 0, 460, 178, longest)}{names}</svg><figcaption>{escape(told)}</figcaption></figure>"
        )
    return f'<div class=pair data-batch="{batch}">{"".join(figures)}</div>'


def journal(run: RunRecord) -> str:
    """Every entry of the journal as a table."""
    if not run.entries:
        return "<p>Nothing was decided.</p>"
    rows = []
    for entry in run.entries:
        text = entry.describe().removeprefix(f"batch {entry.batch}: {entry.kind}: ")
        mark = " class=plan" if entry.kind == "plan" else ""
        rows.append(f"<tr{mark}><td>{entry.batch}</td><td>{escape(entry.kind)}</td><td>{escape(text)}</td></tr>")
    head = "<tr><th>batch</th><th>what</th><th>why</th></tr>"
    return f"<div class=journal tabindex=0><table>{head}{''.join(rows)}</table></div>"
