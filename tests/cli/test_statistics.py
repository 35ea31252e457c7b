from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.cli.statistics import NO_SLOT, Statistics, read_statistics, read_traffic
from headgate.errors import InputError


def written(folder: Path, text: str, name: str = "stats.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_read_by_name_and_state_defaults_to_cost(tmp_path: Path) -> None:
    read = read_statistics(written(tmp_path, "cost,key\n2.5,a\n1,b\n"))
    assert read.keys.to_pylist() == ["a", "b"]
    assert read.cost.tolist() == [2.5, 1.0]
    assert read.state_bytes.tolist() == [2.5, 1.0]
    assert read.slot is None
    assert read.operator is None


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        pytest.param(("1", "-20"), [1, -20], id="all integers: integers"),
        pytest.param(("7", "007"), ["7", "007"], id="a leading zero means something: text"),
        pytest.param(("1", "b"), ["1", "b"], id="one word among them: text"),
        pytest.param(("NA", "null"), ["NA", "null"], id="words for nothing are names all the same"),
        pytest.param(("2024-01-01", "2024-01-02"), ["2024-01-01", "2024-01-02"], id="dates of a CSV: text"),
    ],
)
def test_keys_of_a_csv(tmp_path: Path, cells: tuple[str, str], keys: list[object]) -> None:
    read = read_statistics(written(tmp_path, f"key,cost\n{cells[0]},1\n{cells[1]},2\n"))
    assert read.keys.to_pylist() == keys


def test_parquet_keeps_the_type_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "stats.parquet"
    pq.write_table(pa.table({"key": ["1", "2"], "cost": [1, 2], "slot": pa.array([0, None], pa.int32())}), path)
    read = read_statistics(path)
    assert read.keys.to_pylist() == ["1", "2"]
    assert read.slot is not None
    assert read.slot.tolist() == [0, NO_SLOT]


def test_csv_and_parquet_say_the_same(tmp_path: Path) -> None:
    text = "key,cost,state_bytes,slot,operator,tuples,memory\n1,2,30,0,map,4,5\n2,3,40,1,join,5,6\n"
    table = pa.table(
        {
            "key": [1, 2],
            "cost": [2.0, 3.0],
            "state_bytes": [30, 40],
            "slot": [0, 1],
            "operator": pa.array(["map", "join"]).dictionary_encode(),
            "tuples": [4, 5],
            "memory": [5, 6],
        }
    )
    pq.write_table(table, tmp_path / "stats.parquet")
    one = read_statistics(written(tmp_path, text), caps=["memory"])
    two = read_statistics(tmp_path / "stats.parquet", caps=["memory"])
    assert one.keys.equals(two.keys)
    assert one.operator == two.operator == ("map", "join")
    for name in ("cost", "state_bytes", "slot", "tuples"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(one.resources["memory"], two.resources["memory"])


#   interval     1        2        3
#   a         cost 5    cost 6   cost 7      state 50, 60, 70
#   b         cost 1    cost 2      -        state 10, 20
#   c            -         -     cost 9      state 90
INTERVALS = """key,cost,state_bytes,interval,slot
a,5,50,1,0
b,1,10,1,1
a,6,60,2,0
b,2,20,2,2
a,7,70,3,0
c,9,90,3,1
"""


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        pytest.param(1, {"a": (7, 70, 0), "c": (9, 90, 1)}, id="the last interval alone"),
        pytest.param(2, {"a": (7, 130, 0), "b": (0, 20, 2), "c": (9, 90, 1)}, id="two: b has state and no cost"),
        pytest.param(3, {"a": (7, 180, 0), "b": (0, 30, 2), "c": (9, 90, 1)}, id="all three"),
    ],
)
def test_window_sums_state_and_the_last_interval_gives_the_cost(
    tmp_path: Path, window: int, expected: dict[str, tuple[float, float, int]]
) -> None:
    read = read_statistics(written(tmp_path, INTERVALS), window=window)
    assert read.slot is not None
    rows = zip(read.cost.tolist(), read.state_bytes.tolist(), read.slot.tolist(), strict=True)
    assert dict(zip(read.keys.to_pylist(), rows, strict=True)) == expected
    assert read.notes == ()


def test_a_window_longer_than_the_file_is_noted(tmp_path: Path) -> None:
    read = read_statistics(written(tmp_path, INTERVALS), window=9)
    assert read.notes == ("the file has 3 intervals, fewer than --window 9: their state is summed",)


def test_intervals_are_ordered_as_numbers_not_as_text(tmp_path: Path) -> None:
    read = read_statistics(written(tmp_path, "key,cost,interval\na,1,9\na,2,10\n"))
    assert read.cost.tolist() == [2.0]


def test_intervals_may_be_times(tmp_path: Path) -> None:
    read = read_statistics(written(tmp_path, "key,cost,interval\na,1,2024-01-01T09:00\na,2,2024-01-01T10:00\n"))
    assert read.cost.tolist() == [2.0]


@pytest.mark.parametrize("text", ["", "key,cost\n"], ids=["no byte at all", "a header and no row"])
def test_an_empty_file_is_no_key(tmp_path: Path, text: str) -> None:
    assert len(read_statistics(written(tmp_path, text))) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("key,cost\na,1\nb,x\n", "column 'cost' must hold finite numbers, row 2 has 'x'", id="text"),
        pytest.param("key,cost\na,1\nb,\n", "column 'cost' must hold finite numbers, row 2 has nothing", id="nothing"),
        pytest.param("key,cost\na,nan\n", "column 'cost' must hold finite numbers, row 1 has nan", id="not a number"),
        pytest.param("key,load\na,1\n", "missing: cost, it has: key, load", id="no cost column"),
        pytest.param("key;cost\na;1\n", "missing: key, cost, it has: key;cost", id="semicolons"),
        pytest.param("key,cost\na,1,2\n", "cannot be read as CSV: CSV parse error", id="a cell too many"),
        pytest.param("key,cost,cost\na,1,2\n", "has cost more than once", id="a column twice"),
        pytest.param("key,cost,slot\na,1,0.5\n", "column 'slot' must hold whole numbers", id="half a slot"),
        pytest.param("key,cost,slot\na,1,-1\n", "row 1 has -1", id="a negative slot"),
        pytest.param("key,cost,slot\na,1,1e30\n", "row 1 names slot 1e+30: raise --slots or mend", id="no such slot"),
        pytest.param("key,cost,interval\na,1,nan\n", "column 'interval' must hold finite numbers, row 1", id="NaN"),
        pytest.param("key,cost,interval\na,1,\n", "column 'interval' must say which interval", id="no interval"),
        pytest.param("key,cost,interval\na,1,1\na,2,1\n", "listed more than once: a", id="a key twice an interval"),
    ],
)
def test_faults_name_the_column_and_the_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as fault:
        read_statistics(written(tmp_path, text))
    assert message in str(fault.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nothing\.csv: check the name"):
        read_statistics(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match=r"read from \.csv, \.csv\.gz, \.parquet, \.pq, got .*stats\.txt"):
        read_statistics(written(tmp_path, "key,cost\n", "stats.txt"))
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_statistics(written(tmp_path, "key,cost\n", "stats.parquet"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_statistics(tmp_path / "folder.csv")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"interval": [[1], [2]]},
            "column 'interval' must hold numbers, times or text, which have an order, it has the",
        ),
        ({"interval": [{"a": 1}, {"a": 2}]}, "it has the type struct<a: int64>: cast it"),
        ({"interval": [1.0, float("nan")]}, "column 'interval' must hold finite numbers, row 2 has nan"),
        ({"interval": [1, None]}, "column 'interval' must say which interval each row is from, row 2 has nothing"),
        ({"operator": [["map"], ["join"]]}, "column 'operator' must hold names, it has the type list<"),
        ({"slot": [0, -3]}, "column 'slot' must hold whole numbers from 0 on, row 2 has -3"),
        ({"slot": [0, 2.0**80]}, "row 2 names slot 1.20893e+24"),
    ],
    ids=["list", "struct", "NaN", "null", "operator", "negative slot", "no such slot"],
)
def test_parquet_of_types_that_do_not_fit(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    pq.write_table(pa.table({"key": ["a", "b"], "cost": [1, 2], **columns}), tmp_path / "stats.parquet")
    with pytest.raises(InputError) as fault:
        read_statistics(tmp_path / "stats.parquet")
    assert message in str(fault.value)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_archive_is_named(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(b"key,cost\n" + b"".join(b"k%d,%d\n" % (n, n * n) for n in range(5000)))
    half = len(whole) // 2
    path = tmp_path / "stats.csv.gz"
    path.write_bytes(whole[:half] if damage == "cut" else whole[:half] + b"\xff" * 40 + whole[half + 40 :])
    with pytest.raises(InputError, match=r"stats\.csv\.gz cannot be read as CSV: .*: mend or write the file anew"):
        read_statistics(path)


def test_traffic_tells_the_null_key_from_the_text_null(tmp_path: Path) -> None:
    statistics = Statistics(pa.array(["null", None, "a"]), np.ones(3), np.ones(3))
    pq.write_table(pa.table({"src": [None, "null"], "dst": ["a", "a"], "rate": [5, 1]}), tmp_path / "t.parquet")
    traffic = read_traffic(tmp_path / "t.parquet", statistics)
    pairs = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.rate.tolist(), strict=True)
    assert sorted(pairs) == [(0, 2, 1.0), (1, 2, 5.0)]


def test_a_window_needs_intervals(tmp_path: Path) -> None:
    path = written(tmp_path, "key,cost\na,1\n")
    with pytest.raises(InputError, match="no column 'interval': add one"):
        read_statistics(path, window=2)
    with pytest.raises(InputError, match="at least 1 interval, got 0"):
        read_statistics(path, window=0)


def test_only_capped_resources_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "key,cost,latitude,memory,name\na,1,-5,7,x\n")
    assert dict(read_statistics(path).resources) == {}
    assert read_statistics(path, caps=["memory"]).resources["memory"].tolist() == [7.0]
    with pytest.raises(InputError, match=r"resource 'name'.*it has: latitude, memory, state_bytes"):
        read_statistics(path, caps=["name"])


def two_operators() -> Statistics:
    keys = pa.array(["a", "b", "a"])
    return Statistics(keys, np.ones(3), np.ones(3), operator=("map", "map", "join"))


def test_traffic_names_keys(tmp_path: Path) -> None:
    statistics = Statistics(pa.array([10, 20, 30]), np.ones(3), np.ones(3))
    traffic = read_traffic(written(tmp_path, "src,dst,rate\n10,30,5\n20,10,1\n10,30,2\n"), statistics)
    pairs = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.rate.tolist(), strict=True)
    assert sorted(pairs) == [(0, 2, 7.0), (1, 0, 1.0)]


def test_traffic_names_operators_where_keys_are_not_enough(tmp_path: Path) -> None:
    text = "src,src_operator,dst,dst_operator,rate\na,map,a,join,3\n"
    traffic = read_traffic(written(tmp_path, text), two_operators())
    assert (traffic.source.tolist(), traffic.target.tolist()) == ([0], [2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "src,dst,rate\nb,a,1\n", "a occurs in several operators: add a column 'dst_operator'", id="unclear"
        ),
        pytest.param("src,dst,rate\nz,b,1\n", "unknown src: z", id="nobody's key"),
        pytest.param("src,src_operator,dst,rate\nb,join,b,1\n", "unknown src: join/b", id="not of that operator"),
        pytest.param("src,dst,rate\nb,b,-1\n", "a traffic rate must be zero or more, row 1 has -1", id="negative"),
        pytest.param("src,dst\nb,b\n", "missing: rate", id="no rate"),
    ],
)
def test_faults_of_traffic(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as fault:
        read_traffic(written(tmp_path, text), two_operators())
    assert message in str(fault.value)
