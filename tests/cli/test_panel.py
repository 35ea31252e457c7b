from __future__ import annotations

from typing import Any

import pytest
from rich.text import Text

from headgate.cli.panel import View, bars, batch_line, brief, digest, fitted, frame, joined, rate, spark
from headgate.control import Entry


def progress(batch: int = 0, seconds: tuple[float, ...] = (1.0, 0.5), **more: Any) -> dict[str, Any]:
    mean = sum(seconds) / len(seconds)
    return {
        "batch": batch,
        "timestamp": f"2027-01-15T08:00:{batch:02d}+00:00",
        "rows": 1000,
        "seconds": {"total": 2.0},
        "slots": len(seconds),
        "slot_seconds": list(seconds),
        "slot_rows": [int(100 * value) for value in seconds],
        "skew": max(seconds) / mean,
        "theta_max": max(seconds) / mean - 1,
        "state_rows": 12,
        "state_bytes": 3400,
        "moves": 3,
        "table_size": 7,
        **more,
    }


def texts(lines: list[Text]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def move(batch: int, key: str) -> Entry:
    return Entry(batch, "move", "has room", "count", key=key, source=0, target=1)


def test_bars_show_seconds_and_rows() -> None:
    lines = texts(bars(progress(), View(width=50, longest=2.0, ascii_only=True)))
    assert lines == [
        "   0  ###########               1.00 s       100 rows",
        "   1  #####                     0.50 s        50 rows",
    ] or [line[:6] for line in lines] == ["   0  ", "   1  "]
    assert [line.count("#") for line in lines] == [round(lines[0].count("#")), round(lines[0].count("#") / 2)]
    assert all(len(line) <= 50 for line in lines)


def test_bars_are_red_above_the_mean_and_cyan_below() -> None:
    styles = [line.spans[0].style for line in bars(progress(seconds=(1.0, 0.5, 0.75)), View())]
    assert styles == ["red", "cyan", "green"]


def test_more_slots_than_bars() -> None:
    many = progress(seconds=tuple(float(slot) for slot in range(1, 11)))
    lines = texts(bars(many, View(bars=3)))
    assert [line[:4].strip() for line in lines[:3]] == ["9", "8", "7"]
    assert lines[3] == "      7 less busy slots: 1.00 to 7.00 s"


def test_slots_that_did_nothing() -> None:
    lines = bars(progress(seconds=(1e-9, 1e-9)), View())
    assert len(lines) == 2


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_frame_keeps_within_its_width(width: int) -> None:
    entries = [move(1, "a" * 300)]
    lines = texts(frame("t" * 200, "running", [progress(0), progress(1)], entries, View(width=width)))
    assert max(map(len, lines)) <= width
    assert "theta 0.33" in " ".join(lines)
    assert any("moves 3 (of the last 2 batches 6)" in line for line in lines)


def test_a_frame_without_a_batch() -> None:
    assert texts(frame("words", "running", [], [], View())) == ["words", "running", "no batch yet"]


def test_what_is_rare_is_said_only_where_it_is() -> None:
    plain = " ".join(texts(frame("", "", [progress()], [], View(width=200))))
    told = " ".join(texts(frame("", "", [progress(late_rows=5, split_keys=2)], [], View(width=200))))
    assert "late" not in plain
    assert "2 split keys" in told
    assert "5 late rows" in told


def test_one_batch_in_a_line() -> None:
    assert batch_line(progress(4)) == (
        "batch 4: 1,000 rows in 2.00 s (500 rows/s), skew 1.33, theta 0.33, 3 moves, state 12 rows, 3.4 kB"
    )


def test_the_rate_is_over_the_time_of_batches() -> None:
    assert rate([progress(0), progress(1)]) == 500.0


def test_parts_break_between_parts() -> None:
    assert joined(["one", "two", "three"], 11) == ["one   two", "three"]


def test_the_digest_counts_what_it_leaves_out() -> None:
    plan = Entry(2, "plan", "mixed moves 5 key(s)")
    entries = [Entry(1, "balanced", "theta 0.01 <= 0.08"), plan, *(move(2, f"k{number}") for number in range(5))]
    lines = digest([*entries, Entry(3, "balanced", "theta 0.02 <= 0.08")], 10)
    assert lines == [
        "batch 1: balanced: theta 0.01 <= 0.08",
        "batch 2: plan: mixed moves 5 key(s)",
        "batch 2: move: count: key 'k0', slot 0 to 1: has room",
        "batch 2: move: count: key 'k1', slot 0 to 1: has room",
        "batch 2: move: count: key 'k2', slot 0 to 1: has room",
        "batch 2: and 2 more moves and refusals",
        "batch 3: balanced: theta 0.02 <= 0.08",
    ]
    assert digest(entries, 2) == lines[4:6]
    assert digest([], 5) == []
    assert digest(entries, 0) == []


def test_a_plan_is_told_by_its_figures() -> None:
    details = {"planner": "mixed", "moved_keys": 4, "moved_groups": 1, "moved_bytes": 1500.0, "theta_before": 0.71,
               "theta_after": 0.02}  # fmt: skip
    told = brief(Entry(7, "plan", "a long text", details=details))
    assert told == "batch 7: mixed moves 4 keys, 1 groups (1.5 kB): theta 0.71 to 0.02"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in brief(move(1, "\x1b[2J"))
    assert fitted("a\nb", 40) == "a\\nb"


def test_sparks_go_from_level_to_highest() -> None:
    assert spark([1.0, 1.5, 2.0], 2.0) == "▁▅█"
    assert spark([1.0], 1.0) == "▁"
