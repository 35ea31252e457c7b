"""Ordered regions in a job: rows keep their order through workers on Spark, also where one dies or a query fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Row = dict[str, Any]
Feed = Callable[..., Path]

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

WORKERS = 2
PERIOD = 0.1


def _numbers(first: int, count: int = 300) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def _doubled(row: Row) -> Row:
    return {"id": row["id"], "twice": 2 * row["id"]}


def _stream(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))


def _ran(job: hg.Job, spark: Any, checkpoint: Path, **options: Any) -> list[Row]:
    told: list[Row] = []
    query = job.start(
        spark, checkpoint=str(checkpoint), slots=2, trigger="available now", listeners=[told.append], **options
    )
    query.await_termination()
    return told


def test_rows_keep_their_order_and_go_on_to_sinks_and_keyed_operators(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(_numbers(0), _numbers(300), _numbers(600))
    job = hg.Job("ordered")
    rows, counts = hg.sinks.memory(), hg.sinks.memory()
    made = job.source(_stream(spark, folder)).ordered_map(
        _doubled, workers=WORKERS, schema="id long, twice long", period=PERIOD
    )
    made.write_to(rows)
    made.map(lambda table: table.append_column("last", pc.bit_wise_and(table["id"], 7))).key_by("last").aggregate(
        n=hg.count()
    ).write_to(counts)
    assert "in order from 'input0', by 2 workers" in job.explain()
    told = _ran(job, spark, tmp_path / "ck")
    assert rows.to_arrow().to_pylist() == [{"id": n, "twice": 2 * n} for n in range(900)]
    assert sum({row["last"]: row["n"] for row in counts.to_arrow().to_pylist()}.values()) == 900
    assert len(told) == 3
    assert [each["regions"][0]["rows"] for each in told] == [300, 300, 300]
    assert all(sum(each["regions"][0]["weights"]) == 1000 for each in told)
    assert told[0]["inputs"] == {"_doubled": 300}


def test_maps_and_filters_of_python_and_spark_before_a_region(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(_numbers(0))
    job = hg.Job("steps")
    kept, beside = hg.sinks.memory(), hg.sinks.memory()
    source = job.source(_stream(spark, folder)).map("id + 1 as id").filter(lambda rows: pc.less(rows["id"], 50))
    source.map(lambda rows: pa.table({"id": pc.multiply(rows["id"], 10)})).ordered_map(
        _doubled, workers=WORKERS, schema="id long, twice long"
    ).filter(lambda rows: pc.greater(rows["twice"], 100)).write_to(kept)
    source.write_to(beside)
    _ran(job, spark, tmp_path / "ck")
    assert kept.to_arrow().to_pylist() == [{"id": n, "twice": 2 * n} for n in range(60, 500, 10)]
    assert sorted(row["id"] for row in beside.to_arrow().to_pylist()) == list(range(1, 50))


def test_a_region_behind_a_region_over_files_that_tasks_read(spark: Any, feed: Feed, tmp_path: Path) -> None:
    folder = feed(_numbers(0), _numbers(300))
    job = hg.Job("twice")
    sink = hg.sinks.memory()
    source = job.source(hg.sources.files(spark, str(folder), max_files_per_trigger=1))
    first = source.ordered_map(_doubled, workers=WORKERS, schema="id long, twice long", name="first")
    first.ordered_map(
        lambda row: {"four": 2 * row["twice"]}, workers=WORKERS, schema="four long", name="second"
    ).write_to(sink)
    told = _ran(job, spark, tmp_path / "ck")
    assert [row["four"] for row in sink.to_arrow().to_pylist()] == [4 * n for n in range(600)]
    assert [each["name"] for each in told[0]["regions"]] == ["first", "second"]


def test_a_static_source_is_processed_once(spark: Any, feed: Feed, tmp_path: Path) -> None:
    job = hg.Job("static")
    sink = hg.sinks.memory()
    job.source(spark.read.parquet(str(feed(_numbers(0))))).ordered_map(
        _doubled, workers=WORKERS, schema="id long, twice long"
    ).write_to(sink)
    job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2).await_termination()
    assert [row["id"] for row in sink.to_arrow().to_pylist()] == list(range(300))


def test_a_worker_that_dies_is_made_up_for(spark: Any, feed: Feed, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    def deadly(row: Row) -> Row:
        if row["id"] == 150:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return _doubled(row)
            os._exit(9)
        return _doubled(row)

    job = hg.Job("deadly")
    sink = hg.sinks.memory()
    job.source(_stream(spark, feed(_numbers(0), _numbers(300)))).ordered_map(
        deadly, workers=WORKERS, schema="id long, twice long", period=PERIOD
    ).write_to(sink)
    told = _ran(job, spark, tmp_path / "ck")
    assert Path(marker).exists()
    assert sink.to_arrow().to_pylist() == [{"id": n, "twice": 2 * n} for n in range(600)]
    assert told[0]["regions"][0]["resent"] > 0


def test_a_query_that_failed_goes_on_where_it_was_and_gives_nothing_twice(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"

    def fragile(row: Row) -> Row:
        if row["id"] == 450 and not mended.exists():
            raise ValueError("not yet")
        return _doubled(row)

    def job() -> hg.Job:
        made = hg.Job("fragile")
        made.source(_stream(spark, feed())).ordered_map(
            fragile, workers=WORKERS, schema="id long, twice long"
        ).write_to(hg.sinks.parquet(str(tmp_path / "out")))
        return made

    feed(_numbers(0), _numbers(300), _numbers(600))
    with pytest.raises(hg.HeadgateError) as raised:
        _ran(job(), spark, tmp_path / "ck")
    assert "fragile" in str(raised.value)
    assert "position 150" in str(raised.value)
    assert "ValueError: not yet" in str(raised.value)
    mended.touch()
    _ran(job(), spark, tmp_path / "ck")
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().column("id").to_pylist()
    assert sorted(found) == list(range(900))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (3, "must return a dict with id, twice, got a int for row 0 of the batch"),
        ({"id": 1}, "must return a dict with id, twice, got a dict with id for row 0 of the batch"),
        ({"id": 1, "twice": "x"}, "must give values that fit id int64, twice int64, and did not"),
    ],
    ids=["not a row", "a column is missing", "a wrong type"],
)
def test_what_is_no_row_is_refused(spark: Any, feed: Feed, tmp_path: Path, result: Any, text: str) -> None:
    job = hg.Job("wrong")
    job.source(_stream(spark, feed(_numbers(0, 5)))).ordered_map(
        lambda row: result, workers=1, schema="id long, twice long", name="wrong"
    ).write_to(hg.sinks.memory())
    with pytest.raises(hg.HeadgateError) as raised:
        _ran(job, spark, tmp_path / "ck")
    assert text in str(raised.value)


def test_more_workers_than_cores_are_refused_at_once(spark: Any, feed: Feed, tmp_path: Path) -> None:
    job = hg.Job("crowd")
    job.source(_stream(spark, feed(_numbers(0)))).ordered_map(
        _doubled, workers=9, schema="id long, twice long"
    ).write_to(hg.sinks.memory())
    with pytest.raises(hg.JobError) as raised:
        job.start(spark, checkpoint=str(tmp_path / "ck"))
    assert str(raised.value) == (
        "the ordered map '_doubled' needs a core for each of its 9 workers at once, and Spark can run 2 tasks here: "
        "ask for fewer workers, or give the application more cores"
    )


def test_behind_an_operator_there_is_no_order_to_keep(spark: Any, feed: Feed) -> None:
    job = hg.Job("lost")
    counted = job.source(_stream(spark, feed(_numbers(0)))).key_by("id").aggregate(n=hg.count())
    with pytest.raises(hg.JobError) as raised:
        counted.ordered_map(_doubled, workers=1, schema="id long")
    assert str(raised.value) == (
        "the rows of the ordered map '_doubled' must still be in the order of their source, and a keyed operator or a "
        "union before it gives rows in no order: put it between the source and that step"
    )
