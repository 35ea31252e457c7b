from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from headgate.cli import picture
from headgate.cli.comparison import RunRecord, comparison, finding, mistakes
from headgate.cli.page import colour_of, page, strip, times
from headgate.control import Entry


def run(name: str, seconds: list[float], skews: list[float], entries: tuple[Entry, ...] = ()) -> RunRecord:
    """A run whose batches follow each other at once, from second 0 on."""
    progress: list[dict[str, Any]] = []
    clock = 0.0
    for batch, (took, skew) in enumerate(zip(seconds, skews, strict=True)):
        progress.append(
            {
                "batch": batch,
                "timestamp": f"2027-01-15T08:{int(clock // 60):02d}:{clock % 60:09.6f}+00:00",
                "rows": 100,
                "seconds": {"total": took},
                "slot_seconds": [skew, 2 - skew],
                "slot_rows": [60, 40],
                "skew": skew,
                "moves": 2 if entries and batch == 1 else 0,
                "state_bytes": 5000,
            }
        )
        clock += took
    return RunRecord(name, name, tuple(progress), entries, {"a": 3, "b": 1})


PLAN = Entry(1, "plan", "mixed <moves> 2 key(s)", details={"moved_bytes": 1200.0})
FIRST = run("plain hashing", [9.0, 2.0, 2.0, 4.0], [1.9, 1.8, 1.8, 1.8])
SECOND = run("mixed", [9.0, 1.0, 1.0, 2.0], [1.9, 1.2, 1.0, 1.1], (PLAN,))


def test_the_first_batch_does_not_count() -> None:
    assert FIRST.rows == 300
    assert FIRST.seconds == 8.0
    assert FIRST.throughput == 37.5
    assert SECOND.throughput == 75.0


def test_the_table() -> None:
    assert comparison(FIRST, SECOND) == [
        ("throughput, rows/s", "38", "75", "2.00x"),
        ("batch time, median", "2.00 s", "1.00 s", "0.50x"),
        ("batch time, slowest", "4.00 s", "2.00 s", "0.50x"),
        ("skew, mean", "1.80", "1.10", ""),
        ("skew, worst", "1.80", "1.20", ""),
        ("plans applied", "0", "1", ""),
        ("keys and key groups moved", "0", "2", ""),
        ("state moved", "0 B", "1.2 kB", ""),
        ("state held at the end", "5.0 kB", "5.0 kB", ""),
    ]


def test_the_finding_follows_from_the_figures() -> None:
    assert finding(FIRST, SECOND) == (
        "2.00 times the throughput: the busiest slot had 1.80 times the mean load with plain hashing, 1.10 with mixed."
    )
    assert finding(SECOND, FIRST).startswith("No gain in this run (0.50 times the throughput): ")
    assert finding(SECOND, FIRST).endswith("1.80 with plain hashing.")
    lucky = run("hash", [9.0, 1.0, 1.0, 2.0], [1.9, 1.8, 1.8, 1.9])
    assert "2.00 times the throughput, but not by balance, since " in finding(FIRST, lucky)
    slow = run("mixed", [9.0, 2.0, 3.0, 4.0], [1.9, 1.2, 1.0, 1.1])
    assert "the machine was busy with something else" in finding(FIRST, slow)


def test_mistakes_are_named() -> None:
    assert mistakes(FIRST, {"a": 3, "b": 1}) == []
    assert mistakes(FIRST, {"a": 4, "c": 1}) == [
        "'a': 3 instead of 4",
        "'b': 1 instead of 0",
        "'c': 0 instead of 1",
    ]


class Balanced(HTMLParser):
    """Fails where an element is closed that is not the last one open."""

    VOID = ("meta", "input", "rect", "line", "circle", "polyline", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in self.VOID or tag in ("rect", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page("Words & slots", "told", "finding", FIRST, SECOND, comparison(FIRST, SECOND), [2])
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert {"svg", "table", "script", "style"} <= parser.seen
    assert not re.search(r"https?://|src=|@import", text)
    assert "prefers-color-scheme:dark" in text
    assert "Words &amp; slots" in text
    assert "mixed &lt;moves&gt; 2 key(s)" in text
    assert text.count("data-batch=") == 4  # the script asks for [data-batch], without the equals sign


def test_drawings_have_a_mark_per_batch_and_slot() -> None:
    assert times(FIRST, SECOND, [2]).count("<circle") == 8
    assert times(FIRST, SECOND, [2]).count("stroke-dasharray") == 1
    assert strip(FIRST, 2.0).count("<rect") == 8


def test_bars_are_coloured_by_their_distance_from_the_mean() -> None:
    assert [colour_of(load, 1.0) for load in (1.2, 1.05, 0.95, 0.8)] == ["hot", "level", "level", "cold"]
    assert colour_of(0.0, 0.0) == "level"


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    picture.draw_runs(FIRST, SECOND, "title", [2], tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
