"""Statistics from a file: CSV or Parquet, one row per key (and interval), read with Arrow.

Keys of a CSV are integers when every one of them is written as Python would write it, and text otherwise: ``007`` stays
``007``. Keys of other types (dates, decimals) come from Parquet, which knows them. Rows are counted from 1, the header
not counted.

    column          needed   meaning
    key             yes      the key, unique per operator and interval
    cost            yes      c(k), in any one unit
    state_bytes     no       s(k); the cost where it is not measured
    slot            no       where the key is now; by hash where the column or the cell is empty
    operator        no       the operator the key belongs to
    tuples          no       g(k)
    interval        no       numbers, times or text that sort: the last one gives the cost
    other numbers   no       resources, for ``--cap``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from headgate.arrays import F64, I64, sums
from headgate.errors import InputError, LimitsError, SnapshotError, listing
from headgate.routing import key_hash
from headgate.stats import Traffic

CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")

KNOWN = ("key", "cost", "state_bytes", "slot", "operator", "tuples", "interval")
"""Columns with a meaning of their own; every other numeric column is a resource."""

NO_SLOT = -1
"""A cell of the slot column that was left empty: the key is where its hash puts it."""

NULL = "null"
"""What the null key is called, where no other key is."""

MOST_EXACT = 2**53
"""Beyond it, a whole number that was read as a float may be another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What a file of statistics says, one entry per key, intervals already folded together."""

    keys: pa.Array
    cost: F64
    state_bytes: F64
    tuples: F64 | None = None
    slot: I64 | None = None
    operator: tuple[str, ...] | None = None
    resources: Mapping[str, F64] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.cost)

    @classmethod
    def empty(cls) -> Statistics:
        return cls(pa.array([], pa.string()), np.empty(0), np.empty(0))


def text_of(label: object) -> str:
    """What a person calls a key, as text: null for the null key, bytes as the text they spell."""
    if label is None:
        return NULL
    return label.decode("utf-8", "backslashreplace") if isinstance(label, bytes) else str(label)


def names_of(labels: Sequence[object]) -> list[str]:
    """What keys of one column are called: the null key is null, or <null> where a key spells null, and so on."""
    names = [text_of(label) for label in labels]
    if None in labels:
        null, taken = NULL, {name for name, label in zip(names, labels, strict=True) if label is not None}
        while null in taken:
            null = f"<{null}>"
        names = [null if label is None else name for name, label in zip(names, labels, strict=True)]
    return names


def read_statistics(path: Path, *, window: int = 1, caps: Collection[str] = ()) -> Statistics:
    """The statistics in a file. ``window`` counts the intervals whose state is summed; ``caps`` names the resources
    that are needed. Raises ``InputError`` for a file, column or value that cannot be used; an empty file is no key."""
    if window < 1:
        raise LimitsError.parameter("--window", "w", "at least 1 interval", window)
    table = _read(path)
    if not table.num_columns:
        return Statistics.empty()
    _demand(path, table, ("key", "cost"))
    if "interval" not in table.column_names and window != 1:
        raise InputError(
            f"--window {window} sums the state of {window} intervals, and {path} has no column 'interval': add one "
            "that says which interval each row is from, or leave --window out"
        )
    numeric = [name for name in table.column_names if name not in KNOWN and _looks_numeric(table, name)]
    for name in caps:
        if name != "state_bytes" and name not in numeric:
            raise LimitsError.unknown_resource(name, ["state_bytes", *numeric])
    cost = _numbers(path, table, "cost")
    statistics = Statistics(
        keys=_plain(table.column("key")),
        cost=cost,
        state_bytes=_numbers(path, table, "state_bytes") if "state_bytes" in table.column_names else cost,
        tuples=_numbers(path, table, "tuples") if "tuples" in table.column_names else None,
        slot=_slots(path, table) if "slot" in table.column_names else None,
        operator=_names(path, table, "operator") if "operator" in table.column_names else None,
        resources={name: _numbers(path, table, name) for name in caps if name != "state_bytes"},
    )
    if "interval" in table.column_names and len(statistics):
        return _fold(statistics, *_intervals(path, table), window)
    return statistics


def read_traffic(path: Path, statistics: Statistics) -> Traffic:
    """Traffic between the keys of ``statistics``: columns ``src``, ``dst``, ``rate``, and ``src_operator`` and
    ``dst_operator`` where a key's name occurs in several operators."""
    table = _read(path)
    if not table.num_columns:
        return Traffic.of([], [], [])
    _demand(path, table, ("src", "dst", "rate"))
    rows = _RowsByName(statistics)
    source = rows.find(path, table, "src")
    target = rows.find(path, table, "dst")
    rate = _numbers(path, table, "rate")
    if (rate < 0).any():
        row = int(np.argmax(rate < 0))
        raise InputError(
            f"{path}: a traffic rate must be zero or more, row {row + 1} has {rate[row]:g}: mend the value or drop the "
            "row"
        )
    return Traffic.of(source, target, rate)


class _RowsByName:
    """Which row a key's name means, alone or with its operator."""

    def __init__(self, statistics: Statistics) -> None:
        labels = statistics.keys.to_pylist()
        names = names_of(labels)
        self.null = next((name for name, label in zip(names, labels, strict=True) if label is None), NULL)
        operators = statistics.operator or ("",) * len(names)
        self.rows = {pair: row for row, pair in enumerate(zip(operators, names, strict=True))}
        self.alone = {name: row for row, name in enumerate(names)}
        count = Counter(names)
        self.ambiguous = {name for name, times in count.items() if times > 1}

    def find(self, path: Path, table: pa.Table, side: str) -> list[int]:
        labels = _plain(table.column(side)).to_pylist()
        names = [self.null if label is None else text_of(label) for label in labels]
        column = f"{side}_operator"
        if column in table.column_names:
            pairs = list(zip(_names(path, table, column), names, strict=True))
            unknown = [f"{operator}/{name}" for operator, name in pairs if (operator, name) not in self.rows]
            if unknown:
                raise SnapshotError.traffic_unknown(side, unknown)
            return [self.rows[pair] for pair in pairs]
        unclear = [name for name in dict.fromkeys(names) if name in self.ambiguous]
        if unclear:
            raise InputError(
                f"{path}: the {side} of traffic must name one key, and {listing(unclear)} occurs in several operators: "
                f"add a column {column!r}"
            )
        unknown = [name for name in dict.fromkeys(names) if name not in self.alone]
        if unknown:
            raise SnapshotError.traffic_unknown(side, unknown)
        return [self.alone[name] for name in names]


def _read(path: Path) -> pa.Table:
    """The table in a file; no columns at all where a CSV is empty."""
    name = path.name.lower()
    if not name.endswith((*CSV, *PARQUET)):
        raise InputError(
            f"statistics and traffic are read from {', '.join((*CSV, *PARQUET))}, got {path}: rename or convert the "
            "file"
        )
    if not path.exists():
        raise InputError(f"there is no file {path}: check the name and the folder ({Path.cwd()})")
    if path.is_dir() and name.endswith(CSV):
        raise InputError(f"a CSV must be one file, {path} is a folder: name a file in it, or join them into Parquet")
    try:
        table = _read_csv(path) if name.endswith(CSV) else pyarrow.parquet.read_table(path)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:  # OSError: a damaged .gz, without its name
        kind = "CSV" if name.endswith(CSV) else "Parquet"
        raise InputError(
            f"{path} cannot be read as {kind}: {_first_line(error)}: mend or write the file anew"
        ) from None
    twice = [column for column, times in Counter(table.column_names).items() if times > 1]
    if twice:
        raise InputError(f"every column may occur once, {path} has {listing(twice)} more than once: drop one")
    return table


def _read_csv(path: Path) -> pa.Table:
    """Every column as text: what a number is gets decided column by column, so that a fault has a row."""
    if path.stat().st_size == 0:
        return pa.table({})
    read = pa.csv.ReadOptions(use_threads=False)
    with pa.csv.open_csv(path, read_options=read) as reader:
        names = reader.schema.names
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    table = pa.csv.read_csv(path, read_options=read, parse_options=parse, convert_options=convert)
    table = table.rename_columns([name.strip() for name in names])
    at = table.schema.get_field_index("key")
    return table if at < 0 else table.set_column(at, "key", _integers(_plain(table.column(at))))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


def _demand(path: Path, table: pa.Table, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} must have the columns {', '.join(names)}; missing: {', '.join(missing)}, it has: "
            f"{', '.join(table.column_names)}: rename the columns (a CSV starts with a line of names and has commas)"
        )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _looks_numeric(table: pa.Table, name: str) -> bool:
    """Whether a column is numeric, or, as text, starts with a number: a later cell that is none has a row then."""
    column = _plain(table.column(name))
    if not _is_text(column.type):
        return _is_number(column.type)
    cells = (cell.strip() for cell in column.to_pylist() if cell is not None and cell.strip())
    first = next(cells, None)
    return first is not None and _as_float(first) is not None


def _as_float(text: str) -> float | None:
    try:
        return float(pa.scalar(text).cast(pa.float64()).as_py())
    except pa.ArrowInvalid:
        return None


def _numbers(path: Path, table: pa.Table, name: str, missing: float | None = None) -> F64:
    """A column as floats; ``missing`` stands for empty cells, which are a fault where it is None."""
    column = _plain(table.column(name))
    if _is_text(column.type):
        trimmed = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
        column = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            cells = column.to_pylist()
            row = next(row for row, cell in enumerate(cells) if cell is not None and _as_float(cell) is None)
            raise _no_number(path, name, row, repr(cells[row])) from None
    elif not _is_number(column.type):
        raise InputError(f"{path}: column {name!r} must hold numbers, it has the type {column.type}: cast it")
    else:
        column = pc.cast(column, pa.float64(), safe=False)
    if column.null_count:
        if missing is None:
            raise _no_number(path, name, int(np.flatnonzero(_is_null(column))[0]), "nothing")
        column = pc.fill_null(column, missing)
    values: F64 = column.to_numpy(zero_copy_only=False).astype(np.float64)
    wild = np.flatnonzero(~np.isfinite(values))
    if len(wild):
        raise _no_number(path, name, int(wild[0]), str(values[wild[0]]))
    return values


def _is_null(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_null(column).to_numpy(zero_copy_only=False)
    return mask


def _no_number(path: Path, name: str, row: int, got: str) -> InputError:
    return InputError(
        f"{path}: column {name!r} must hold finite numbers, row {row + 1} has {got}: mend the value or drop the row"
    )


def _slots(path: Path, table: pa.Table) -> I64:
    values = _numbers(path, table, "slot", missing=float(NO_SLOT))
    given = np.ones(len(values), dtype=np.bool_)
    given[_is_missing(table, "slot")] = False
    wrong = np.flatnonzero(given & ~((values >= 0) & (values == np.floor(values)) & np.isfinite(values)))
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            f"{path}: column 'slot' must hold whole numbers from 0 on, row {row + 1} has {values[row]:g}: mend it, or "
            "leave the cell empty to say that the key is where its hash puts it"
        )
    beyond = np.flatnonzero(values > MOST_EXACT)
    if len(beyond):
        row = int(beyond[0])
        raise InputError(
            f"{path}: slots are numbered 0 to --slots less one, but row {row + 1} names slot {values[row]:g}: raise "
            "--slots or mend the input"
        )
    return values.astype(np.int64)


def _is_missing(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    column = _plain(table.column(name))
    if _is_text(column.type):
        text = pc.fill_null(pc.cast(column, pa.string()), "")
        column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), pa.scalar(None, pa.string()), text)
    return _is_null(column)


def _names(path: Path, table: pa.Table, name: str) -> tuple[str, ...]:
    column = _plain(table.column(name))
    if pa.types.is_nested(column.type):
        raise InputError(f"{path}: column {name!r} must hold names, it has the type {column.type}: cast it to text")
    return tuple(text_of(label) for label in column.to_pylist())


def _integers(column: pa.Array) -> pa.Array:
    """Text that is integers throughout, each written the one way, as integers; anything else as it is."""
    try:
        numbers = pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        return column
    same = pc.all(pc.equal(pc.cast(numbers, pa.string()), column)).as_py()
    return numbers if same and len(column) else column


def _intervals(path: Path, table: pa.Table) -> tuple[I64, int]:
    """The number of each row's interval, counted from 0 in ascending order, and how many there are."""
    column = _plain(table.column("interval"))
    missing = np.flatnonzero(_is_missing(table, "interval"))
    if len(missing):
        raise InputError(
            f"{path}: column 'interval' must say which interval each row is from, row {int(missing[0]) + 1} has "
            "nothing: mend the value or drop the row"
        )
    if pa.types.is_floating(column.type) or (_is_text(column.type) and _looks_numeric(table, "interval")):
        column = pa.array(_numbers(path, table, "interval"))
    try:
        encoded = column.dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    except (pa.ArrowException, TypeError):
        raise InputError(
            f"{path}: column 'interval' must hold numbers, times or text, which have an order, it has the type "
            f"{column.type}: cast it"
        ) from None
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], len(order)


def _fold(statistics: Statistics, interval: I64, count: int, window: int) -> Statistics:
    """One entry per key: its cost in the last interval, its state over the last ``window``, where it was last seen.

    Keys that were seen in the window and not in the last interval stay, at a cost of 0: they have state to move.
    """
    hashes = key_hash(statistics.keys)
    operator = np.zeros(len(statistics), dtype=np.int64)
    if statistics.operator is not None:
        number = {name: at for at, name in enumerate(dict.fromkeys(statistics.operator))}
        operator = np.array([number[name] for name in statistics.operator], dtype=np.int64)
    order = np.lexsort((interval, hashes, operator))
    same_key = (hashes[order][1:] == hashes[order][:-1]) & (operator[order][1:] == operator[order][:-1])
    twice = same_key & (interval[order][1:] == interval[order][:-1])
    if twice.any():
        labels = statistics.keys.to_pylist()
        raise SnapshotError.key_twice([text_of(labels[row]) for row in order[1:][twice]])
    key_at = np.concatenate([[0], np.cumsum(~same_key)])
    newest = order[np.append(~same_key, True)]
    in_window = interval[order] > count - 1 - window
    state = sums(key_at[in_window], statistics.state_bytes[order][in_window], len(newest))
    kept = np.flatnonzero(interval[newest] > count - 1 - window)
    kept = kept[np.argsort(newest[kept])]
    rows = newest[kept]
    is_current = interval[rows] == count - 1

    def now(values: F64) -> F64:
        return np.where(is_current, values[rows], 0.0)

    notes = statistics.notes
    if count < window:
        notes = (*notes, f"the file has {count} intervals, fewer than --window {window}: their state is summed")
    return Statistics(
        keys=statistics.keys.take(pa.array(rows)),
        cost=now(statistics.cost),
        state_bytes=state[kept],
        tuples=None if statistics.tuples is None else now(statistics.tuples),
        slot=None if statistics.slot is None else statistics.slot[rows],
        operator=None if statistics.operator is None else tuple(statistics.operator[row] for row in rows),
        resources={name: now(values) for name, values in statistics.resources.items()},
        notes=notes,
    )
