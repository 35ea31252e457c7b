"""Journal entries go through JSON and come back, and read well."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control import Entry, from_line, to_line
from headgate.errors import InputError

MOVE = Entry(12, "move", "slot 3 is 41.0% over the mean", "count", "the", 5, 3, 7, {"cost": 1.5})


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        pytest.param(
            MOVE, "batch 12: move: count: key 'the', slot 3 to 7: slot 3 is 41.0% over the mean", id="a key moves"
        ),
        pytest.param(
            Entry(3, "move", "drains", group=5, source=0, target=1),
            "batch 3: move: key group 5, slot 0 to 1: drains",
            id="a key group moves",
        ),
        pytest.param(Entry(1, "balanced", "theta 0.050 <= 0.08"), "batch 1: balanced: theta 0.050 <= 0.08", id="idle"),
        pytest.param(
            Entry(1, "hand", "by hand", key=("a", 1), target=2),
            "batch 1: hand: key ['a', 1], to slot 2: by hand",
            id="a key of two columns",
        ),
        pytest.param(Entry(1, "failed", "boom\n  twice"), "batch 1: failed: boom twice", id="always one line"),
    ],
)
def test_an_entry_reads_as_one_line(entry: Entry, line: str) -> None:
    assert entry.describe() == line


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.int64(7), 7),
        (b"\x01\xff", "01ff"),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (("a", np.int32(1)), ["a", 1]),
        (float("nan"), "nan"),
        (True, True),
    ],
)
def test_keys_of_any_type_become_plain(key: object, plain: object) -> None:
    entry = Entry(1, "move", "why", key=key)
    assert entry.key == plain
    assert from_line(to_line(entry)) == entry


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates()


@given(values | st.tuples(values, values), st.dictionaries(st.text(), values | st.lists(values)), st.text())
def test_every_entry_comes_back_equal(key: object, details: dict[str, object], reason: str) -> None:
    entry = Entry(4, "refused", reason, key=key, group=1, details=details)
    assert from_line(to_line(entry)) == entry
    assert "\n" not in to_line(entry)
    assert "\n" not in entry.describe()


def test_fields_without_a_value_are_left_out() -> None:
    assert Entry(1, "balanced", "fine").to_json() == {"batch": 1, "kind": "balanced", "reason": "fine"}


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert Entry.from_json({**MOVE.to_json(), "colour": "blue"}) == MOVE


def test_an_entry_can_be_told_of_another_batch() -> None:
    assert MOVE.at(14).batch == 14
    assert MOVE.at(14).reason == MOVE.reason


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (json.dumps({"batch": 1}), "needs batch, kind and reason; kind, reason missing"),
        ("{half a li", "must be a JSON object, got '{half a li': the line is damaged, leave it out"),
        ("[1]", "must be a JSON object"),
        (json.dumps({"batch": 1, "kind": "guess", "reason": ""}), "must be one of plan, move, .*; got 'guess'"),
    ],
)
def test_a_damaged_line_is_refused(line: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        from_line(line)
