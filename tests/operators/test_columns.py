"""Declarations of columns: what each form means, and what is said about those that mean nothing."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from headgate.errors import InputError
from headgate.operators import Pickled, StateColumns, output_columns, type_name, type_of
from headgate.operators.columns import PICKLED_COLUMN, check_names

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("byte", pa.int8()),
        ("SMALLINT", pa.int16()),
        ("int", pa.int32()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal( 18 , 2 )", pa.decimal128(18, 2)),
        ("array<array<long>>", pa.list_(pa.list_(pa.int64()))),
        ("map<string, double>", pa.map_(pa.string(), pa.float64())),
        ("struct<a: int, b: array<string>>", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ],
)
def test_ddl_types_are_those_of_spark(text: str, expected: pa.DataType) -> None:
    assert type_of(text) == expected


@pytest.mark.parametrize("text", ["long", "timestamp", "decimal(18,2)", "array<string>", "boolean", "timestamp_ntz"])
def test_a_type_is_named_as_it_is_written(text: str) -> None:
    assert type_name(type_of(text)) == text


def test_a_type_that_ddl_has_no_word_for_has_its_arrow_name() -> None:
    assert type_name(pa.uint16()) == "uint16"


def test_ddl_text() -> None:
    state = StateColumns.of("count long, `the total` decimal(18,2), seen: array<timestamp>")
    assert state.schema == pa.schema(
        [("count", pa.int64()), ("the total", pa.decimal128(18, 2)), ("seen", pa.list_(UTC))]
    )
    assert (state.initial, state.kind) == ((None, None, None), "dict")


def test_a_mapping_of_types_and_defaults() -> None:
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    naive = dt.datetime(2026, 1, 2)
    day = dt.date(2026, 1, 2)
    state = StateColumns.of(
        {"a": 0, "b": 0.5, "c": True, "d": b"x", "e": now, "f": naive, "g": day, "h": "string", "i": pa.int8()}
    )
    assert state.schema.types == [
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.binary(),
        UTC,
        pa.timestamp("us"),
        pa.date32(),
        pa.string(),
        pa.int8(),
    ]
    assert state.initial == (0, 0.5, True, b"x", now, naive, day, None, None)


def test_a_schema_is_taken_as_it_is() -> None:
    schema = pa.schema([("a", pa.uint8())])
    assert StateColumns.of(schema).schema == schema
    assert output_columns(schema) == schema


@dataclass
class Visit:
    count: int = 0
    last: dt.datetime | None = None
    pages: list[str] = field(default_factory=list)
    paid: Annotated[Decimal, "decimal(18,2)"] = Decimal("0.00")


def test_a_dataclass_gives_types_and_defaults() -> None:
    state = StateColumns.of(Visit)
    assert state.schema == pa.schema(
        [("count", pa.int64()), ("last", UTC), ("pages", pa.list_(pa.string())), ("paid", pa.decimal128(18, 2))]
    )
    assert state.initial == (0, None, [], Decimal("0.00"))
    assert (state.kind, state.make) == ("dataclass", Visit)
    assert output_columns(Visit) == state.schema


def test_pickled_state_is_one_column() -> None:
    state = StateColumns.of(Pickled(list))
    assert state.schema == pa.schema([(PICKLED_COLUMN, pa.large_binary())])
    assert (state.kind, state.make) == ("pickled", list)
    assert StateColumns.of(state) is state


@dataclass(frozen=True)
class Frozen:
    count: int = 0


@dataclass
class Required:
    count: int


@dataclass
class Hidden:
    count: int = field(default=0, init=False)


@dataclass
class Odd:
    count: complex = 0


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        pytest.param("count lang", "got 'count lang': 'lang' is no type; types are byte, short", id="an unknown type"),
        pytest.param("count", "expected a type, got the end", id="a name without a type"),
        pytest.param("count long total long", "expected a comma or the end, got 'total'", id="a comma left out"),
        pytest.param("count array<long", "expected '>', got the end", id="an open bracket"),
        pytest.param("count decimal(x)", "expected a number, got 'x'", id="a word for a number"),
        pytest.param("count decimal(39,2)", "a decimal has 1 to 38 digits", id="a decimal too wide"),
        pytest.param("< long", "expected a column's name, got '<'", id="a sign for a name"),
        pytest.param("a long, a long", "may be declared once, declared more than once: a", id="a column twice"),
        pytest.param("", "at least one state column must be declared, got ''", id="no column"),
        pytest.param({"a": None}, "state column 'a' must be given a type .* got None", id="no type"),
        pytest.param({"a": Decimal(1)}, "'a' has a Decimal as its default", id="a decimal without precision"),
        pytest.param({1: "long"}, "names of state columns must be strings, got 1", id="a number for a name"),
        pytest.param(7, r"must be declared as text .* got 7 \(int\)", id="a number"),
        pytest.param(int, "must be declared as text .* got <class 'int'>", id="a class that is no dataclass"),
        pytest.param(Frozen, "state is changed in place, and Frozen is frozen", id="a frozen dataclass"),
        pytest.param(Required, "must have a default.* field 'count' has none", id="a field without a default"),
        pytest.param(Hidden, "count has init=False", id="a field outside the constructor"),
        pytest.param(Odd, "field 'count' of Odd must be annotated with bool, int", id="an annotation without a column"),
    ],
)
def test_what_cannot_be_used_is_refused(declared: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        StateColumns.of(declared)


def test_output_cannot_be_pickled() -> None:
    with pytest.raises(InputError, match="output columns must be declared as text"):
        output_columns(Pickled())


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        pytest.param(("x",), "unknown: x: the input has k, v", id="a key that is no column"),
        pytest.param(("k", "v"), "but v is both: the key is kept with the state anyway", id="a state column is a key"),
    ],
)
def test_keys_and_state_must_fit(keys: tuple[str, ...], text: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with pytest.raises(InputError, match=text):
        check_names("op", schema, keys, pa.schema([("v", pa.int64())]))
