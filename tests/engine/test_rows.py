"""Which rows get in: late ones, null keys, the watermark over several inputs."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.engine.program import REJECTED, REJECTED_SCHEMA, Input, Mapped, Program, Step, ToOperator, ToOutput
from headgate.engine.route import TAG
from headgate.errors import RowError
from headgate.operators import Aggregation, PerKey, count

SCHEMA = pa.schema([("word", pa.string()), ("at", pa.int64())])


def counting(schema: pa.Schema = SCHEMA) -> Aggregation:
    return Aggregation("words", schema, ("word",), {"n": count()})


def program(engine: Any, **rules: Any) -> Program:
    made: Program = engine.one_operator(
        counting(), schema=SCHEMA, outputs={REJECTED: REJECTED_SCHEMA}, event_time="at", **rules
    )
    return made


def rows(*pairs: tuple[str | None, int | None]) -> list[dict[str, Any]]:
    return [{"word": word, "at": at} for word, at in pairs]


#   event time   0 ........ 90 ... 100
#   batch 0                         a        greatest 100
#   batch 1                 |       b        watermark 90: 89 is late, 90 is not
@pytest.mark.parametrize(
    ("rule", "counted", "rejected"),
    [
        pytest.param("drop", 2, [], id="dropped rows are only counted"),
        pytest.param("side", 2, ['{"word": "a", "at": 89}', '{"word": "b", "at": 0}'], id="side rows are kept as text"),
    ],
)
def test_late_rows(engine: Any, tmp_path: Path, rule: str, counted: int, rejected: list[str]) -> None:
    bench = engine.Bench(tmp_path, program(engine, late=rule), 2, {"slack_micros": 10})
    bench.batch(rows(("a", 100)))
    outputs = bench.batch(rows(("a", 89), ("a", 90)), rows(("b", 0), ("b", None)))
    assert outputs["out"] == [{"word": "a", "n": 2}, {"word": "b", "n": 1}], "at the watermark, or no time: not late"
    assert bench.told[-1]["late_rows"] == counted
    assert bench.told[-1]["rejected_rows"] == 0
    assert [row["row"] for row in outputs[REJECTED]] == rejected
    assert {(row["batch"], row["input"], row["reason"]) for row in outputs[REJECTED]} <= {(1, "in", "late for 'words'")}


def test_rows_of_the_side_output_are_json(engine: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("word", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("price", pa.decimal128(5, 2)),
            ("measured", pa.list_(pa.float64())),
            ("where", pa.struct([("x", pa.float64()), ("sure", pa.bool_())])),
        ]
    )
    made = engine.one_operator(
        counting(schema), schema=schema, outputs={REJECTED: REJECTED_SCHEMA}, bad_keys="side", event_time="at"
    )
    bench = engine.Bench(tmp_path, made, 2)
    row = {
        "word": None,
        "at": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        "raw": b"\xff\x00",
        "price": Decimal("1.50"),
        "measured": [1.5, float("nan"), float("-inf"), None],
        "where": {"x": 2.0, "sure": True},
    }
    (told,) = bench.batch([row])[REJECTED]

    def never(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    assert json.loads(told["row"], parse_constant=never) == {
        "word": None,
        "at": "2026-01-01 12:00:00+00:00",
        "raw": "ff00",
        "price": "1.50",
        "measured": [1.5, None, "-inf", None],
        "where": {"x": 2.0, "sure": True},
    }


def test_late_rows_that_fail_name_the_first(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, program(engine, late="fail"), 2)
    bench.batch(rows(("a", 100)))
    with pytest.raises(RowError) as raised:
        bench.batch(rows(("a", 100), ("b", 7), ("c", 8)))
    assert str(raised.value) == (
        "2 row(s) of 'in' cannot be used (late for 'words'), the first being {'word': 'b', 'at': 7}: mend the source, "
        'or start the job with bad_keys="drop" (counts them) or "side" (keeps them in job.rejected()); late="drop" and '
        '"side" do the same for late rows'
    )
    assert bench.last.batch == 0, "nothing was committed"
    assert bench.state() == {"a": {"n.count": 1}}


@pytest.mark.parametrize(
    ("rule", "rejected"),
    [
        pytest.param("drop", [], id="dropped rows are only counted"),
        pytest.param(
            "side", ["null, or no string, in key column 'word' of 'words'"] * 2, id="side rows have their reason"
        ),
    ],
)
def test_null_keys(engine: Any, tmp_path: Path, rule: str, rejected: list[str]) -> None:
    bench = engine.Bench(tmp_path, program(engine, bad_keys=rule), 2)
    outputs = bench.batch(rows(("a", 1), (None, 2)), rows((None, 3)))
    assert outputs["out"] == [{"word": "a", "n": 1}]
    assert bench.told[-1]["rejected_rows"] == 2
    assert bench.told[-1]["late_rows"] == 0
    assert [row["reason"] for row in outputs[REJECTED]] == rejected


def test_null_keys_that_fail_name_column_and_operator(engine: Any, tmp_path: Path) -> None:
    bench = engine.Bench(tmp_path, program(engine, bad_keys="fail"), 2)
    with pytest.raises(RowError) as raised:
        bench.batch(rows(("a", 1), (None, 2)))
    assert str(raised.value).startswith(
        "1 row(s) of 'in' cannot be used (null, or no string, in key column 'word' of 'words'), the first being "
        "{'word': None, 'at': 2}: mend the source"
    )


@pytest.mark.parametrize(
    ("kind", "values", "watermark"),
    [
        pytest.param(pa.int64(), [5, 9], 9, id="whole numbers are microseconds"),
        pytest.param(pa.timestamp("us"), [5, 9], 9, id="microseconds"),
        pytest.param(pa.timestamp("ns", "UTC"), [5999, 9999], 9, id="nanoseconds are cut off"),
        pytest.param(pa.timestamp("s", "Europe/Berlin"), [5, 9], 9_000_000, id="seconds with a zone"),
        pytest.param(pa.date32(), [0, 2], 2 * 86_400_000_000, id="dates are midnights"),
    ],
)
def test_event_times_of_every_type(engine: Any, tmp_path: Path, kind: pa.DataType, values: Any, watermark: int) -> None:
    schema = pa.schema([("word", pa.string()), ("at", kind)])
    job = engine.one_operator(counting(schema), schema=schema, event_time="at")
    bench = engine.Bench(tmp_path, job, 2)
    times = pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    bench.driver.batch([pa.table({"word": ["a"] * len(values), "at": times})], 0)
    bench.driver.batch([], 1)
    assert bench.last.watermark == watermark


@pytest.mark.parametrize("at", [-(10**18), 10**18], ids=["before the year 1", "after the year 9999"])
def test_a_watermark_that_no_date_can_say_does_not_stop_the_query(engine: Any, tmp_path: Path, at: int) -> None:
    bench = engine.Bench(tmp_path, program(engine), 2)
    bench.batch(rows(("a", at)))
    bench.batch(rows(("a", at)))
    assert (bench.told[-1]["watermark"], bench.told[-1]["watermark_micros"]) == (None, at)


class TestKeysOneStageDeeper:
    """What an operator gives to the next one may have no key for it, and the rule is the same."""

    @staticmethod
    def program(rule: Any) -> Program:
        first = PerKey.of(
            lambda key, rows, state: (None if key == "bad" else key, len(rows)),
            name="first", input_schema=SCHEMA, key_names=["word"], state={"n": 0}, output="word string, n long",
        )  # fmt: skip
        second = counting(first.output_schema)
        return Program(
            name="deeper",
            inputs=(Input("in", SCHEMA, (ToOperator(0),)),),
            steps=(Step(first, 1, (ToOperator(1),)), Step(second, 2, (ToOutput("out"),))),
            outputs={"out": second.output_schema, REJECTED: REJECTED_SCHEMA},
            groups=4,
            bad_keys=rule,
        )

    @pytest.mark.parametrize(("rule", "sources"), [("drop", []), ("side", ["first"])])
    def test_it_is_counted(self, engine: Any, tmp_path: Path, rule: str, sources: list[str]) -> None:
        bench = engine.Bench(tmp_path, self.program(rule), 2)
        outputs = bench.batch(rows(("good", 1), ("bad", 1)))
        assert outputs["out"] == [{"word": "good", "n": 1}]
        assert bench.told[-1]["rejected_rows"] == 1
        assert [row["input"] for row in outputs[REJECTED]] == sources

    def test_or_it_fails(self, engine: Any, tmp_path: Path) -> None:
        bench = engine.Bench(tmp_path, self.program("fail"), 2)
        with pytest.raises(
            RowError, match=r"^1 row\(s\) of 'first' cannot be used \(null, or no string, in key column"
        ):
            bench.batch(rows(("good", 1), ("bad", 1)))


class TestSeveralInputs:
    """Two inputs with times and one without, in a tagged union."""

    @staticmethod
    def program() -> Program:
        bare = pa.schema([("word", pa.string())])
        wordy = Mapped("words", lambda rows: rows.select(["word"]), "arrow", bare, (ToOperator(1),))  # type: ignore[attr-defined]
        timeless = counting(bare)
        return Program(
            name="several",
            inputs=(
                Input("left", SCHEMA, (ToOperator(0),)),
                Input("right", SCHEMA, (ToOperator(0), wordy)),
                Input("bare", bare, (ToOperator(1),)),
            ),
            steps=(Step(counting(), 1, (ToOutput("out"),)), Step(timeless, 1, (ToOutput("bare"),))),
            outputs={"out": counting().output_schema, "bare": timeless.output_schema},
            groups=4,
            event_time="at",
        )

    @staticmethod
    def frame(*tagged: tuple[int, str, int | None]) -> list[pa.Table]:
        """Rows as the union of the sources has them: a tag, and a struct per input."""
        columns: dict[str, Any] = {TAG: pa.array([tag for tag, _, _ in tagged], pa.int32())}
        for number, given in enumerate(TestSeveralInputs.program().inputs):
            own = [
                {"word": word, "at": at} if tag == number and "at" in given.schema.names
                else ({"word": word} if tag == number else None)
                for tag, word, at in tagged
            ]  # fmt: skip
            columns[f"{TAG}{number}"] = pa.array(own, pa.struct(list(given.schema)))
        return [pa.table(columns)]

    def test_the_watermark_waits_for_the_slowest_input_that_has_times(self, engine: Any, tmp_path: Path) -> None:
        bench = engine.Bench(tmp_path, self.program(), 2)
        watermarks = []
        batches: list[list[tuple[int, str, int | None]]] = [
            [(0, "a", 50), (2, "x", None)],  #  left 50
            [(0, "a", 60)],  #                  left 60, right unknown
            [(1, "a", 20)],  #                  right 20
            [(1, "a", 40), (0, "b", 19)],  #    right 40; b is late
            [],
            [(1, "a", 10)],  #                  late, and the watermark does not go back
            [],
        ]
        for number, tagged in enumerate(batches):
            bench.driver.batch(self.frame(*tagged), number)
            watermarks.append(bench.last.watermark)
        assert watermarks == [None, None, None, 20, 40, 40, 40]
        assert bench.state(0) == {"a": {"n.count": 4}}
        assert bench.state(1) == {"x": {"n.count": 1}, "a": {"n.count": 3}}, "rows without a time are never late"
        assert bench.told[0]["inputs"] == {"left": 1, "bare": 1}
        assert [progress["late_rows"] for progress in bench.told] == [0, 0, 0, 1, 0, 1, 0]
