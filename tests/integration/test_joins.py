"""Joins through the public API on a local Spark: two streaming sources and a stream with itself, moves, a restart in
between, and results equal to what Spark's SQL gives for the same rows as tables."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Feed = Callable[..., Path]

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
SLACK = 20
KEYS = [f"user {number}" for number in range(7)]
ADS = pa.schema(
    [
        ("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())), ("spot", pa.struct([("page", pa.string()), ("line", pa.int32())])),
    ]
)  # fmt: skip
CLICKS = pa.schema(
    [
        ("who", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32()), ("paid", pa.bool_()),
        ("price", pa.float64()),
    ]
)  # fmt: skip


def _drawn(files: int) -> list[tuple[pa.Table, pa.Table]]:
    """A minute of ads and of clicks per file, out of order by less than the slack."""
    chance = random.Random(11)

    def at(number: int) -> dt.datetime:
        return NOON + dt.timedelta(seconds=60 * number + chance.randrange(60))

    def column(make: Callable[[], Any]) -> list[Any]:
        return [make() if chance.random() < 0.8 else None for _ in range(60)]

    made = []
    for number in range(files):
        users, whos = ([chance.choice(KEYS) for _ in range(60)] for _ in range(2))
        ad_times, click_times = (
            sorted((at(number) for _ in range(60)), key=lambda one: one.timestamp() + chance.uniform(0, SLACK - 2))
            for _ in range(2)
        )
        ads = pa.table(
            [
                users, ad_times, column(lambda: Decimal(chance.randrange(999)) / 100),
                column(lambda: chance.sample(["x", "y", "z"], 2)),
                column(lambda: {"page": "p", "line": chance.randrange(9)}),
            ],
            schema=ADS,
        )  # fmt: skip
        clicks = pa.table(
            [
                whos, click_times, column(lambda: NOON.date() + dt.timedelta(days=chance.randrange(9))),
                column(lambda: chance.random() < 0.5), column(chance.random),
            ],
            schema=CLICKS,
        )  # fmt: skip
        made.append((ads, clicks))
    return made


def _ends(minutes: int) -> tuple[pa.Table, pa.Table]:
    """A row of each side, so much later, that carries the watermark along."""
    later = NOON + dt.timedelta(minutes=minutes)
    return (
        pa.table([["end"], [later], [None], [None], [None]], schema=ADS),
        pa.table([["end"], [later], [None], [None], [None]], schema=CLICKS),
    )


def _bag(rows: Any) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())


def test_two_streams_and_one_with_itself_equal_the_joins_of_spark_sql(spark: Any, feed: Feed, tmp_path: Path) -> None:
    #   files    0   1   2 | 3   4   end   end        a minute of rows each
    #   moves      ^   ^   |   ^                      keys and key groups of the joins, slots
    #                      restart
    drawn = _drawn(5)
    names = ("inner", "left", "self")
    sinks = {name: hg.sinks.memory() for name in names}
    folders = [feed(into=name) for name in ("ads", "clicks")]

    def start() -> hg.Query:
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        ads, clicks = (
            reader.schema(spark.createDataFrame(schema.empty_table()).schema).parquet(str(folder))
            for schema, folder in ((ADS, folders[0]), (CLICKS, folders[1]))
        )
        job = hg.Job("joins", event_time="at", slack=SLACK, groups=32)
        shown, clicked = job.source(ads, "ads"), job.source(clicks, "clicks")
        pairs = {
            "inner": shown.key_by("user").join(clicked.key_by("who"), within="20 seconds", name="inner"),
            "left": shown.key_by("user").join(
                clicked.key_by("who"), before="2 seconds", after="15 seconds", how="left", name="left"
            ),
            "self": shown.key_by("user").join(shown.key_by("user"), after="10 seconds", name="self"),
        }
        for name, stream in pairs.items():
            stream.write_to(sinks[name], name=name)
        return job.start(spark, checkpoint=str(tmp_path / "ck"), slots=2, balance=None)

    def go_on(query: hg.Query, *turns: Any) -> None:
        for (ads, clicks), change in turns:
            change()
            feed(ads, into="ads")
            feed(clicks, into="clicks")
            query.process_all_available()
        query.stop()
        assert query.exception is None

    def spread_out() -> None:
        query.set_slots(3)
        query.move(groups=range(0, 32, 3), to=0, operator="inner")

    query = start()
    go_on(
        query,
        (drawn[0], lambda: None),
        (drawn[1], lambda: query.move(KEYS[:4], to=1, operator="left")),
        (drawn[2], spread_out),
    )
    again = start()
    go_on(
        again,
        (drawn[3], lambda: again.move(KEYS[2:6], to=0, operator="self")),
        (drawn[4], lambda: again.set_slots(2)),
        (_ends(60), lambda: None),
        (_ends(120), lambda: None),
    )
    assert all(progress["late_rows"] == 0 for progress in [*query.recent_progress, *again.recent_progress])
    tables = {
        name: pa.concat_tables([*(one[side] for one in drawn), _ends(60)[side]])
        for side, name in enumerate(("ads", "clicks"))
    }
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    right = "r.at as at_right, r.day, r.paid, r.price as price_right"
    texts = {
        "inner": f"select l.*, {right} from ads l join clicks r on l.user = r.who "
        "and r.at between l.at - interval 20 seconds and l.at + interval 20 seconds",
        "left": f"select l.*, {right} from ads l left join clicks r on l.user = r.who "
        "and r.at between l.at - interval 2 seconds and l.at + interval 15 seconds",
        "self": "select l.*, r.at as at_right, r.price as price_right, r.tags as tags_right, r.spot as spot_right "
        "from ads l join ads r on l.user = r.user and r.at between l.at and l.at + interval 10 seconds",
    }
    for name, text in texts.items():
        wanted = spark.sql(f"select * from ({text}) where user <> 'end'").toArrow()
        got = sinks[name].to_arrow()
        got = got.filter(pa.compute.not_equal(got["user"], "end"))
        assert got.column_names == wanted.column_names, name
        assert _bag(got) == _bag(wanted.cast(got.schema)), name
        assert got.num_rows > 100, name
    assert sinks["left"].to_arrow()["at_right"].null_count > 10
