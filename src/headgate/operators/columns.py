"""Declarations of columns: what users write, and the Arrow schema and initial values it means.

    "count long, total decimal(18,2)"        DDL text, with Spark's names of types
    {"count": 0, "seen": "timestamp"}        name -> default value, DDL type or Arrow type
    pa.schema([("count", pa.int64())])       an Arrow schema
    a dataclass                              annotations give the types, defaults the initial values
    Pickled(list)                            any Python object (state only), at a price

A column without a default starts out as None.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from headgate.errors import InputError, listing

PICKLED_COLUMN = "pickled"
"""The one state column of an operator whose state is a pickled object."""

MICROSECONDS = pa.timestamp("us", tz="UTC")
"""What ``timestamp`` means: an instant, as in Spark."""

MAX_DIGITS = 38
"""The greatest precision of a decimal, in Spark and in Arrow's decimal128."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """State that is one Python object per key, whatever it is. ``make`` makes the object of a new key.

    The object is pickled after every call and unpickled before it. That costs: several times the time of typed columns
    per key; state that cannot be read without Python and the classes it was made of, which must stay importable under
    the same names for as long as the checkpoint is used; no check of what it holds. Change it in place: a function
    cannot put another object in its stead. Prefer typed columns wherever they do.
    """

    make: Callable[[], object] = dict


Declaration: TypeAlias = "str | Mapping[str, object] | pa.Schema | type | Pickled"

Kind = Literal["dict", "dataclass", "pickled"]


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The state of a key, by column: its schema, the values of a new key, and the form a per-key function sees it in.

    ``make`` is the dataclass or, for pickled state, what makes a new object; a dict needs none.
    """

    schema: pa.Schema
    initial: tuple[object, ...]
    kind: Kind = "dict"
    make: Callable[..., object] | None = None

    @classmethod
    def of(cls, declared: Declaration | StateColumns) -> StateColumns:
        """Read a declaration. Raises ``InputError`` that names the column and what can be written instead."""
        if isinstance(declared, StateColumns):
            return declared
        if declared is Pickled:
            declared = Pickled()
        if isinstance(declared, Pickled):
            schema = pa.schema([pa.field(PICKLED_COLUMN, pa.large_binary())])
            return cls(schema, (None,), "pickled", declared.make)
        schema, initial = _columns(declared, "state")
        if isinstance(declared, type):
            _check_dataclass(declared)
            return cls(schema, initial, "dataclass", declared)
        return cls(schema, initial)


def output_columns(declared: Declaration) -> pa.Schema:
    """The schema of declared output columns. A default value in the declaration gives the type and nothing else."""
    if isinstance(declared, Pickled):
        raise _unusable("output", declared)
    return _columns(declared, "output")[0]


def check_names(operator: str, input_schema: pa.Schema, key_names: tuple[str, ...], state: pa.Schema) -> None:
    """Check that the keys of an operator are columns of its input, and that state columns are not among them.

    Raises ``InputError``.
    """
    missing = [name for name in key_names if name not in input_schema.names]
    if missing:
        raise InputError(
            f"operator {operator!r} must be keyed by columns of its input, unknown: {listing(missing)}: the input has "
            f"{listing(input_schema.names)}"
        )
    both = [name for name in state.names if name in key_names]
    if both:
        raise InputError(
            f"operator {operator!r} must have state columns that are not key columns, but {listing(both)} is both: the "
            "key is kept with the state anyway; drop the column from the state or rename it"
        )


def type_of(text: str) -> pa.DataType:
    """The Arrow type of a DDL type: ``type_of("array<decimal(18,2)>")``."""
    reader = _Reader(text)
    found = reader.type()
    reader.end()
    return found


def type_name(kind: pa.DataType) -> str:
    """An Arrow type as users write it: ``long`` for int64; Arrow's own name where DDL has none."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return _NAME_OF.get(kind, str(kind))


_SIMPLE: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": MICROSECONDS,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAME_OF = {kind: name for name, kind in _SIMPLE.items()}
_ALIASES = {
    "tinyint": "byte",
    "smallint": "short",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
}
_OF_PYTHON: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.datetime: MICROSECONDS,
    dt.date: pa.date32(),
}


def _columns(declared: Declaration, what: str) -> tuple[pa.Schema, tuple[object, ...]]:
    """The columns that any declaration but a pickled one means, with their initial values."""
    defaults: dict[str, object] = {}
    if isinstance(declared, str):
        fields = _Reader(declared).columns()
    elif isinstance(declared, pa.Schema):
        fields = list(zip(declared.names, declared.types, strict=True))
    elif isinstance(declared, type) and dataclasses.is_dataclass(declared):
        fields = _annotated(declared)
        defaults = _defaults(declared, what)
    elif isinstance(declared, Mapping):
        fields = []
        for name, value in declared.items():
            kind, default = _declared(name, value, what)
            fields.append((name, kind))
            defaults[name] = default
    else:
        raise _unusable(what, declared)
    names = [name for name, _ in fields]
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise InputError(f"every {what} column may be declared once, declared more than once: {listing(twice)}")
    if not names:
        raise InputError(f"at least one {what} column must be declared, got {declared!r}: for example 'count long'")
    schema = pa.schema([pa.field(name, kind) for name, kind in fields])
    return schema, tuple(defaults.get(name) for name in names)


def _declared(name: object, value: object, what: str) -> tuple[pa.DataType, object]:
    """Type and default of one entry of a mapping."""
    if not isinstance(name, str):
        raise InputError(f"the names of {what} columns must be strings, got {name!r} ({type(name).__name__})")
    if isinstance(value, pa.DataType):
        return value, None
    if isinstance(value, str):
        return type_of(value), None
    if isinstance(value, decimal.Decimal):
        raise InputError(
            f"{what} column {name!r} has a Decimal as its default, which does not say a precision and scale: write the "
            f"type, {name!r}: 'decimal(18,2)'"
        )
    for python, kind in _OF_PYTHON.items():  # bool before int, datetime before date: each is a kind of the other
        if isinstance(value, python):
            if isinstance(value, dt.datetime) and value.tzinfo is None:
                return pa.timestamp("us"), value
            return kind, value
    raise InputError(
        f"{what} column {name!r} must be given a type ('long', pa.int64()) or a default value (a bool, int, float, "
        f"bytes, datetime or date), got {value!r} ({type(value).__name__})"
    )


def _annotated(declared: type) -> list[tuple[str, pa.DataType]]:
    hints = typing.get_type_hints(declared, include_extras=True)
    return [
        (field.name, _of_annotation(declared, field.name, hints[field.name])) for field in dataclasses.fields(declared)
    ]


def _of_annotation(owner: type, name: str, hint: Any) -> pa.DataType:
    """The type of an annotation: a Python type, ``X | None``, ``list[X]``, ``Annotated[X, "decimal(18,2)"]``."""
    if hasattr(hint, "__metadata__"):
        for note in hint.__metadata__:
            if isinstance(note, pa.DataType):
                return note
            if isinstance(note, str):
                return type_of(note)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return _of_annotation(owner, name, others[0])
    elif origin is list:
        return pa.list_(_of_annotation(owner, name, arguments[0]))
    elif isinstance(hint, type) and hint in _OF_PYTHON:
        return _OF_PYTHON[hint]
    raise InputError(
        f"field {name!r} of {owner.__name__} must be annotated with bool, int, float, str, bytes, datetime, date, a "
        f"list of them, or one of them and None, got {hint!r}: write Annotated[..., 'decimal(18,2)'] to name the "
        "column's type, or use Pickled for arbitrary objects"
    )


def _defaults(declared: type, what: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(declared):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
        elif what == "state":
            raise InputError(
                f"every field of the state {declared.__name__} must have a default, which is what a new key starts "
                f"with; field {field.name!r} has none: write {field.name}: ... = ..."
            )
    return found


def _check_dataclass(declared: type) -> None:
    if declared.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # every dataclass has it
        raise InputError(
            f"state is changed in place, and {declared.__name__} is frozen: declare it without frozen=True"
        )
    hidden = [field.name for field in dataclasses.fields(declared) if not field.init]
    if hidden:
        raise InputError(
            f"every field of the state {declared.__name__} must be an argument of its constructor, which restores it; "
            f"{listing(hidden)} has init=False: drop that, or make it a property"
        )


def _unusable(what: str, declared: object) -> InputError:
    return InputError(
        f"{what} columns must be declared as text ('count long, total double'), a mapping, an Arrow schema or a "
        f"dataclass, got {declared!r} ({type(declared).__name__})"
    )


_TOKEN = re.compile(r"\s*(?:(`[^`]+`)|(\w+)|(\S))")


class _Reader:
    """Reads DDL: ``name type, name type``; a colon between name and type is allowed, names may be in backticks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [next(part for part in match.groups() if part) for match in _TOKEN.finditer(text)]
        self._at = 0

    def columns(self) -> list[tuple[str, pa.DataType]]:
        if not self._tokens:
            return []
        found = [self._column()]
        while self._took(","):
            found.append(self._column())
        self.end()
        return found

    def type(self) -> pa.DataType:
        word = self._next("a type").lower()
        word = _ALIASES.get(word, word)
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word == "array":
            self._expect("<")
            inner = self.type()
            self._expect(">")
            return pa.list_(inner)
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            fields = [self._column()]
            while self._took(","):
                fields.append(self._column())
            self._expect(">")
            return pa.struct(fields)
        raise self._wrong(
            f"{word!r} is no type; types are {', '.join(_SIMPLE)}, decimal(p,s), array<...>, map<...>, struct<...>"
        )

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._wrong(f"expected a comma or the end, got {self._tokens[self._at]!r}")

    def _column(self) -> tuple[str, pa.DataType]:
        name = self._next("a column's name")
        name = name[1:-1] if name.startswith("`") else name
        if not re.fullmatch(r"\w+", name) and self._tokens[self._at - 1] == name:
            raise self._wrong(f"expected a column's name, got {name!r}")
        self._took(":")
        return name, self.type()

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0  # as in Spark
        if self._took("("):
            precision = self._number()
            scale = self._number() if self._took(",") else 0
            self._expect(")")
        if not 1 <= precision <= MAX_DIGITS or scale > precision:
            raise self._wrong(
                f"a decimal has 1 to {MAX_DIGITS} digits, of which no more than all after the point, got "
                f"({precision},{scale})"
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdigit():
            raise self._wrong(f"expected a number, got {word!r}")
        return int(word)

    def _next(self, what: str) -> str:
        if self._at == len(self._tokens):
            raise self._wrong(f"expected {what}, got the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _took(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._took(token):
            got = repr(self._tokens[self._at]) if self._at < len(self._tokens) else "the end"
            raise self._wrong(f"expected {token!r}, got {got}")

    def _wrong(self, reason: str) -> InputError:
        return InputError(f"columns must be declared as 'name type, name type', got {self._text!r}: {reason}")
