"""Rows on their way: who gets what, in which order, and through which functions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.outbox import Outbox
from headgate.engine.payload import HASH, REPORT, Sender, by_slot, decode, encode, received, rows_of
from headgate.engine.program import Filtered, Mapped, ToOutput, conform, flow, leaves, returned_schema
from headgate.engine.route import spread
from headgate.engine.staterows import row_bytes
from headgate.errors import UserFunctionError
from headgate.state import Files

SCHEMA = pa.schema([("word", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"word": ["a", "b", None, "d"], "v": [1, 2, 3, 4]}, schema=SCHEMA)


# -- payloads ----------------------------------------------------------------------------------------------------------


@given(slots=st.lists(st.integers(0, 4), max_size=40))
def test_rows_by_slot_keep_their_order(slots: list[int]) -> None:
    position, starts = by_slot(np.array(slots, dtype=np.int32), 5)
    order = np.argsort(position)
    assert [order[starts[slot] : starts[slot + 1]].tolist() for slot in range(5)] == [
        [row for row, own in enumerate(slots) if own == slot] for slot in range(5)
    ]


@given(
    sent=st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), min_size=1, max_size=6), max_size=8),
    seed=st.integers(0, 99),
)
def test_payloads_arrive_in_the_order_they_were_sent_whoever_is_first(
    sent: list[list[tuple[int, int]]], seed: int
) -> None:
    """Three senders; each list is one call of a sender, for operator 0 or 1."""
    senders = [Sender(part) for part in range(3)]
    wanted: dict[tuple[int, int], dict[int, list[int]]] = {}
    rows: list[pa.RecordBatch] = []
    for number, pairs in enumerate(sent):
        sender, operator = number % 3, number % 2
        slots = np.array([slot for slot, _ in pairs], dtype=np.int32)
        values = np.array([value for _, value in pairs], dtype=np.int64)
        rows += senders[sender].rows(operator, pa.table({"v": values}), values * 7, slots, 3)
        for slot, value in pairs:
            wanted.setdefault((slot, operator), {}).setdefault(sender, []).append(value)
    random.Random(seed).shuffle(rows)
    for slot in range(3):
        parcels = received(row for row in rows if row.column(0)[0].as_py() == slot)
        for operator in range(2):
            expected = [value for _, values in sorted(wanted.get((slot, operator), {}).items()) for value in values]
            found = rows_of(parcels, operator)
            if found is None:
                assert expected == []
                continue
            table, hashes = found.rows, found.hashes
            assert table.column_names == ["v"]
            assert table["v"].to_pylist() == expected
            assert hashes.tolist() == [value * 7 for value in expected]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_payloads_that_come_together_are_told_apart_without_a_copy(kind: pa.DataType) -> None:
    """Spark puts several into one batch, and gives large ones where ``useLargeVarTypes`` is set."""
    rows = [Sender(part).row(0, REPORT, pa.py_buffer(text)) for part, text in enumerate([b"skipped", b"", b"a", b"bc"])]
    batch = pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
    batch = batch.set_column(4, "payload", batch.column("payload").cast(kind)).slice(1)
    parcels = received(iter([batch, batch.slice(0, 0)]))
    assert [(parcel.part, parcel.payload.to_pybytes()) for parcel in parcels] == [(1, b""), (2, b"a"), (3, b"bc")]
    held = batch.column("payload").buffers()[2]
    assert all(held.address <= parcel.payload.address <= held.address + held.size for parcel in parcels)


def test_a_payload_is_an_arrow_stream_and_reports_are_set_apart() -> None:
    assert decode(encode(ROWS)).equals(ROWS)
    assert decode(encode(ROWS.slice(0, 0))).schema == SCHEMA
    row = Sender(5).row(2, REPORT, pa.py_buffer(b"report"))
    assert row.to_pylist() == [{"slot": 2, "operator": -1, "part": 5, "seq": 1, "payload": b"report"}]
    assert HASH not in row.schema.names


def test_rows_of_split_keys_go_where_least_was_sent() -> None:
    slots = np.array([0, 0, 0, 1, 0, 0, 0], dtype=np.int32)
    shared = np.array([False, False, True, False, True, True, True])
    loads = np.zeros(3)
    spread(slots, shared, loads)
    #         own own  2  own  1  2  1   after which the loads are
    assert slots.tolist() == [0, 0, 1, 1, 2, 2, 0]
    assert loads.tolist() == [3.0, 2.0, 2.0]


# -- maps and filters --------------------------------------------------------------------------------------------------


def arrow_map(rows: Any) -> Any:
    return rows.append_column("double", pc.multiply(rows["v"], 2))


def pandas_map(rows: Any) -> Any:
    return rows.assign(double=rows["v"] * 2)


def polars_map(rows: Any) -> Any:
    return rows.with_columns((rows["v"] * 2).alias("double"))


FORMS = [("arrow", arrow_map), ("pandas", pandas_map), ("polars", polars_map)]
WIDER = pa.schema([*SCHEMA, ("double", pa.int64())])


@pytest.mark.parametrize(("kind", "function"), FORMS)
def test_a_map_gives_the_declared_columns_whatever_form_it_works_on(kind: Any, function: Any) -> None:
    pytest.importorskip(kind if kind != "arrow" else "pyarrow")
    made = Mapped("twice", function, kind, WIDER, ()).apply(ROWS)
    assert made.schema.equals(WIDER, check_metadata=False)
    assert made["double"].to_pylist() == [2, 4, 6, 8]
    assert made["word"].to_pylist() == ["a", "b", None, "d"]


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        pytest.param("arrow", lambda rows: pc.greater(rows["v"], 2), id="arrow"),
        pytest.param("pandas", lambda rows: rows["v"] > 2, id="a pandas series"),
        pytest.param("polars", lambda rows: rows["v"] > 2, id="a polars series"),
        pytest.param("arrow", lambda rows: rows["v"].to_numpy() > 2, id="an array of numpy"),
        pytest.param("arrow", lambda rows: [False, None, True, True], id="a list: null is not true"),
    ],
)
def test_a_filter_keeps_the_rows_that_are_true(kind: Any, function: Any) -> None:
    pytest.importorskip(kind if kind != "arrow" else "pyarrow")
    assert Filtered("some", function, kind, ()).apply(ROWS).to_pylist() == ROWS.to_pylist()[2:]


def test_columns_are_found_out_by_a_call_without_rows() -> None:
    assert returned_schema("twice", arrow_map, "arrow", SCHEMA).equals(WIDER)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        pytest.param(
            lambda rows: rows["nothing"],
            "the function 'f' raised KeyError: 'Field \"nothing\" does not exist in schema'; it was given 4 rows, the "
            "first being {'word': 'a', 'v': 1}: mend the function and start the job again, it goes on from its last "
            "commit",
            id="it raises",
        ),
        pytest.param(
            lambda rows: 5,
            "the function 'f' must return rows as an Arrow table or record batch, or a pandas or polars DataFrame, got "
            "int",
            id="it returns something else",
        ),
        pytest.param(
            lambda rows: rows.select(["v"]),
            "'f' must give the columns word, v, got v: 'word' is missing",
            id="a column is missing",
        ),
    ],
)
def test_what_a_map_may_not_do(function: Any, text: str) -> None:
    with pytest.raises(UserFunctionError) as raised:
        Mapped("f", function, "arrow", SCHEMA, ()).apply(ROWS)
    assert str(raised.value) == text


def test_a_column_that_cannot_be_cast_without_loss_is_refused() -> None:
    with pytest.raises(
        UserFunctionError, match=r"^'f' must give column 'v' as int64, got double, which cannot be cast"
    ):
        conform(pa.table({"word": ["a"], "v": [1.5]}), SCHEMA, "f")
    assert conform(pa.table({"v": [1.0], "word": ["a"], "more": [0]}), SCHEMA, "f").to_pylist() == [
        {"word": "a", "v": 1}
    ]


def test_a_filter_must_return_one_boolean_per_row() -> None:
    with pytest.raises(UserFunctionError) as raised:
        Filtered("f", lambda rows: [1, 2], "arrow", ()).apply(ROWS)
    assert str(raised.value) == (
        "the filter 'f' must return one boolean per row (4), got 2 of type int64: return a boolean array, series or "
        "column"
    )


def test_rows_flow_to_every_leaf_and_nothing_to_a_leaf_without_rows() -> None:
    calls = []

    def counted(rows: Any) -> Any:
        calls.append(rows.num_rows)
        return rows

    nothing = Filtered("nothing", lambda rows: [False] * rows.num_rows, "arrow", (ToOutput("never"),))  # type: ignore[attr-defined]
    tree = (ToOutput("all"), Mapped("counted", counted, "arrow", SCHEMA, (ToOutput("mapped"), nothing)))
    assert list(leaves(tree)) == [ToOutput("all"), ToOutput("mapped"), ToOutput("never")]
    got: list[tuple[Any, int]] = []
    flow(tree, ROWS, lambda leaf, rows: got.append((leaf, rows.num_rows)))
    assert got == [(ToOutput("all"), 4), (ToOutput("mapped"), 4)]
    assert calls == [4], "branches share the work above them"
    flow(tree, ROWS.slice(0, 0), lambda leaf, rows: got.append((leaf, rows.num_rows)))
    assert calls == [4]
    assert len(got) == 2


# -- the outbox and sizes ----------------------------------------------------------------------------------------------


def test_the_outbox_writes_a_file_per_output_when_it_is_finished(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("headgate.engine.outbox.BUFFER_BYTES", 40)
    box = Outbox(Files.at(tmp_path), 7, 3)
    for _ in range(3):
        box.add("out", ROWS)
    box.add("side", ROWS.slice(0, 1))
    assert not list(tmp_path.rglob("*.parquet")), "nothing is seen before it is whole"
    written = {one.output: one for one in box.finish()}
    assert {output: one.rows for output, one in written.items()} == {"out": 12, "side": 1}
    assert written["out"].file.startswith("outbox/out/7-3-")
    assert pq.read_table(tmp_path / written["out"].file)["v"].to_pylist() == [1, 2, 3, 4] * 3
    assert Outbox(Files.at(tmp_path), 7, 3).finish() == ()


def test_an_outbox_given_up_leaves_no_trace(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("headgate.engine.outbox.BUFFER_BYTES", 1)
    box = Outbox(Files.at(tmp_path), 7, 3)
    box.add("out", ROWS)
    box.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("column", "sizes"),
    [
        pytest.param(pa.array([1, None], pa.int64()), [8, 8], id="numbers by their width"),
        pytest.param(pa.array([True, False]), [1, 1], id="booleans by a byte"),
        pytest.param(pa.array(["abc", None]), [7, 4], id="texts by their length"),
        pytest.param(pa.array([[1, 2], None], pa.list_(pa.int32())), [12, 4], id="lists by their values"),
    ],
)
def test_how_much_a_row_takes(column: pa.Array, sizes: list[int]) -> None:
    assert row_bytes(pa.table({"x": column})).tolist() == sizes
