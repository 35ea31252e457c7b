from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import StateError
from headgate.state import Bitmap, Files, RunInfo, RunWriter, open_run, row_schema
from headgate.state import runs as module
from headgate.state import writer as writing

Row = Callable[..., Any]
HASHES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5), st.sampled_from([-(2**63), 2**63 - 1]))


@pytest.fixture(params=["one block", "blocks of three rows", "blocks of one row by size"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "blocks of three rows":
        monkeypatch.setattr(writing, "BLOCK_ROWS", 3)
    elif request.param != "one block":
        monkeypatch.setattr(writing, "BLOCK_BYTES", 1)


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize("spool", [1, 1 << 20], ids=["hashes wait in a file", "hashes wait in memory"])
def test_a_run_gives_back_what_was_appended(bench: Any, row: Row, monkeypatch: pytest.MonkeyPatch, spool: int) -> None:
    monkeypatch.setattr(writing, "SPOOL_BYTES", spool)
    rows = [row(place, key, count=place * 100 + key) for place in (0, 2, 3, 15) for key in (-7, -1, 0, 4, 9)]
    place, table = bench.table(rows)
    with RunWriter(bench.files, "runs/x.run", bench.schema, 4, 16) as writer:
        for start in range(0, 20, 7):
            writer.append(place[start : start + 7], table.slice(start, 7))
        assert writer.rows == 20
        info = writer.finish()
    assert (info.batch, info.rows, info.dead, info.timers) == (4, 20, 0, {})
    assert info.places == Bitmap.of([0, 2, 3, 15])
    assert info.bytes == bench.files.size("runs/x.run")
    run = open_run(bench.files, info, bench.schema)
    assert run.table(0, 20).equals(table)
    assert run.table(6, 14).equals(table.slice(6, 8))
    assert run.table(5, 5).num_rows == 0
    some = np.array([0, 3, 4, 11, 19])
    assert run.take(some).equals(table.take(pa.array(some)))
    assert run.take(some, [6, 0]).equals(table.select(["count", "hash"]).take(pa.array(some)))
    assert run.take(np.zeros(0, dtype=np.int64)).equals(table.slice(0, 0))
    assert run.place_of(some).tolist() == [0, 0, 0, 3, 15]
    assert run.places_between(3, 12).tolist() == place[3:12].tolist()
    assert (run.span(2), run.span(1), run.span(99)) == ((5, 10), (5, 5), (20, 20))
    assert run.find(place, np.asarray(table.column(0))).tolist() == list(range(20))


@given(st.sets(st.tuples(st.integers(0, 5), HASHES), max_size=60), st.sets(st.tuples(st.integers(0, 9), HASHES)))
def test_find_gives_the_row_of_every_key_and_of_no_other(
    make_bench: Any, row: Row, tmp_path_factory: pytest.TempPathFactory, have: set[Any], ask: set[Any]
) -> None:
    bench = make_bench(Files.at(tmp_path_factory.mktemp("find")), places=6)
    run = open_run(bench.files, bench.run(row(place, key) for place, key in have))
    numbers = {pair: number for number, pair in enumerate(sorted(have))}
    queries = sorted(have | ask)
    assert run.find(*bench.keys(queries)).tolist() == [numbers.get(pair, -1) for pair in queries]


def test_find_halves_where_hashes_are_not_spread_evenly(bench: Any, row: Row) -> None:
    hashes = [0] + [2**k for k in range(62)] + [-(2**k) for k in range(63)]
    run = open_run(bench.files, bench.run(row(1, key) for key in hashes))
    asked = sorted({near for key in hashes for near in (key - 1, key, key + 1)})
    place = np.ones(len(asked), dtype=np.int32)
    found = run.find(place, np.array(asked, dtype=np.int64))
    assert [key for key, at in zip(asked, found, strict=True) if at >= 0] == sorted(set(hashes))


@given(rows=st.lists(st.integers(0, 3), min_size=9, max_size=9), wanted=st.sets(st.integers(0, 11)))
def test_spans_are_the_rows_of_some_places_in_as_few_stretches_as_can_be(
    make_bench: Any, row: Row, tmp_path_factory: pytest.TempPathFactory, rows: list[int], wanted: set[int]
) -> None:
    bench = make_bench(Files.at(tmp_path_factory.mktemp("spans")), places=9)
    place = np.repeat(np.arange(9), rows).tolist()
    run = open_run(bench.files, bench.run(row(at, key) for key, at in enumerate(place)))
    starts, stops = run.spans(Bitmap.of(sorted(wanted)))
    found = [at for low, high in zip(starts, stops, strict=True) for at in range(low, high)]
    assert found == [number for number, at in enumerate(place) if at in wanted]
    assert (starts < stops).all()
    assert (starts[1:] > stops[:-1]).all(), "spans that meet are one"


@pytest.mark.usefixtures("_blocks")
def test_due_gives_the_rows_with_a_timer_after_and_up_to(bench: Any, row: Row) -> None:
    at = [50, None, 10, 30, 30, None, 20, -5]
    info = bench.run([row(0, key, event=time, expires=7 if key == 3 else None) for key, time in enumerate(at)])
    assert info.timers == {"event": (-5, 50), "expires": (7, 7)}
    run = open_run(bench.files, info)
    assert run.due("event", None, 30).tolist() == [2, 3, 4, 6, 7]
    assert run.due("event", 10, 30).tolist() == [3, 4, 6]
    assert run.due("event", 30, 49).tolist() == []
    assert run.due("event", -5, 10).tolist() == [2]
    assert run.due("processing", None, 100).tolist() == []
    assert run.due("expires", None, 7).tolist() == [3]


def test_an_info_survives_json(bench: Any, row: Row) -> None:
    info = bench.run([row(3, 1, event=5, expires=9), row(3, 2, live=False)], batch=8)
    assert info.dead == 1
    assert RunInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
    assert pickle.loads(pickle.dumps(info)) == info


def test_a_run_without_rows_is_a_run(bench: Any) -> None:
    run = open_run(bench.files, bench.run([]))
    assert run.rows == 0
    assert run.find(*bench.keys([(0, 0), (3, 1)])).tolist() == [-1, -1]


def test_every_type_of_column_comes_back(tmp_path: Path) -> None:
    state = pa.schema(
        [("hash", pa.int64()), ("d", pa.decimal128(20, 3)), ("l", pa.list_(pa.string())), ("b", pa.binary()),
         ("t", pa.timestamp("us", "UTC")), ("s", pa.struct([("x", pa.float32())])), ("f", pa.bool_())]
    )  # fmt: skip
    schema = row_schema(pa.schema([pa.field("live", pa.int32(), nullable=False)]), state)
    row = [None, None, None, 5, 1, None, ["a", None], b"\0x", 17, {"x": 1.5}, None]
    columns = [
        pa.array([1, 2], pa.int64()),
        pa.array([True, False]),
        *(pa.array([value, None], field.type) for value, field in zip(row, list(schema)[2:], strict=False)),
    ]
    table = pa.Table.from_arrays(columns[: len(schema)], schema=schema)
    files = Files.at(tmp_path)
    with RunWriter(files, "x.run", schema, 0, 2) as writer:
        writer.append(np.array([0, 1], dtype=np.int32), table)
        info = writer.finish()
    run = open_run(files, info, schema)
    assert run.table(0, 2).equals(table)
    assert run.take(np.array([1])).equals(table.slice(1))


@pytest.mark.parametrize(
    ("appends", "message"),
    [
        ([[(1, 5), (1, 5)]], "place 1 hash 5 is not"),
        ([[(1, 5), (1, 4)]], "place 1 hash 4 is not"),
        ([[(1, 5), (0, 9)]], "place 0 hash 9 is not"),
        ([[(1, 5)], [(1, 5)]], "place 1 hash 5 is not"),
        ([[(3, 5)], [(16, 1)]], "numbered 0 to 15, got 16"),
    ],
    ids=[
        "a key twice",
        "hashes descend",
        "places descend",
        "a key twice, in two pieces",
        "a place that does not exist",
    ],
)
def test_rows_out_of_order_are_refused(
    bench: Any, row: Row, appends: list[list[tuple[int, int]]], message: str
) -> None:
    writer = RunWriter(bench.files, "runs/x.run", bench.schema, 0, 16)

    def append() -> None:
        for pairs in appends:
            table = pa.concat_tables([bench.table([row(*pair)])[1] for pair in pairs])
            writer.append(np.array([place for place, _ in pairs], dtype=np.int32), table)

    with writer, pytest.raises(StateError, match=message):
        append()
    assert bench.files.list("runs") == bench.files.stale("runs") == []


def test_other_columns_are_refused(bench: Any, row: Row) -> None:
    place, table = bench.table([row(0, 1)])
    with (
        RunWriter(bench.files, "runs/x.run", bench.schema, 0, 16) as writer,
        pytest.raises(StateError, match=r"must have the columns hash int64, .*count int64 and has .*n int64: state of"),
    ):
        writer.append(place, table.rename_columns([*table.column_names[:-1], "n"]))
    info = bench.run([row(0, 1)])
    other = row_schema(pa.schema([("word", pa.string())]), pa.schema([("count", pa.int32())]))
    with pytest.raises(StateError, match=r"count int32 and has .*count int64"):
        open_run(bench.files, info, other)


def test_a_run_is_opened_once(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1)])
    assert open_run(bench.files, info) is open_run(bench.files, info)
    again = bench.run([row(0, 1, count=8)])
    assert open_run(bench.files, again).table(0, 1).column("count").to_pylist() == [8]


def test_deleted_runs_are_let_go_and_what_was_read_stays(bench: Any, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP", 1)
    monkeypatch.setattr(module, "OPEN_RUNS", 2)
    infos = [bench.run([row(0, number)], f"runs/{number}.run") for number in range(4)]
    table = open_run(bench.files, infos[0]).table(0, 1)
    bench.files.delete(infos[0].name)
    for info in infos[1:]:
        open_run(bench.files, info)
    assert [name for _, name in module._cache] == ["runs/2.run", "runs/3.run"]
    assert table.column(0).to_pylist() == [0]


# -- damage ----------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_is_found(bench: Any, row: Row) -> None:
    info = bench.run([row(place, place * 7, event=place) for place in range(6)])
    path = Path(bench.files.join(info.name))
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1 :])
        with pytest.raises(StateError, match=rf"{info.name}.*: restore") as caught:
            open_run(bench.files, info)
        assert caught.value.file == str(path)
    path.write_bytes(sound)
    assert open_run(bench.files, info).rows == 6


def test_a_truncated_file_is_found_at_every_length(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1)])
    path = Path(bench.files.join(info.name))
    sound = path.read_bytes()
    for size in range(0, len(sound), 37):
        path.write_bytes(sound[:size])
        with pytest.raises(StateError, match=rf"must have {len(sound)} bytes and has {size}: restore it from a backup"):
            open_run(bench.files, info)


def test_a_missing_run_is_named(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1)])
    os.unlink(bench.files.join(info.name))
    with pytest.raises(StateError, match=rf"needs the file .*{info.name}, and it is not there"):
        open_run(bench.files, info)


def test_a_foreign_file_is_not_a_run(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1)])
    Path(bench.files.join(info.name)).write_bytes(bytes(info.bytes))
    with pytest.raises(StateError, match="must be a run of headgate and is something else"):
        open_run(bench.files, info)


def test_another_run_under_the_name_is_found(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1, count=1)])
    bench.run([row(0, 1, count=2)])
    with pytest.raises(StateError, match=rf"its checksum is \w+, the manifest says {info.checksum}"):
        open_run(bench.files, info)


def test_a_newer_format_is_refused_with_both_versions(bench: Any, row: Row) -> None:
    info = bench.run([row(0, 1)])
    path = Path(bench.files.join(info.name))
    content = path.read_bytes()
    size = int.from_bytes(content[-20:-16], "little")
    footer = content[-20 - size : -20].replace(b'"format":1', b'"format":7')
    path.write_bytes(content[: -20 - size] + footer + content[-20:-16] + xxhash.xxh3_64_digest(footer) + content[-8:])
    with pytest.raises(
        StateError, match="has format version 7, and this headgate reads up to version 1: use the newer"
    ):
        open_run(bench.files, info)


def test_a_damaged_copy_of_a_remote_run_is_fetched_again(make_bench: Any, row: Row, tmp_path: Path) -> None:
    files = Files.at(f"mock:///{tmp_path.name}/copy", cache=str(tmp_path))
    info = make_bench(files).run([row(0, 1, count=3)])
    files.local_path(info.name).write_bytes(b"junk")
    assert open_run(files, info).table(0, 1).column("count").to_pylist() == [3]
    module.forget_runs()
    files.write_bytes(info.name, b"junk")
    files.forget_copy(info.name)
    with pytest.raises(StateError, match="and has 4: restore"):
        open_run(files, info)
