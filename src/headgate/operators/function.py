"""What the two styles of keyed function share: the declarations, and that nothing can be done before the shuffle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from headgate.arrays import I64
from headgate.operators.columns import Declaration, StateColumns, check_names, output_columns


@dataclass(frozen=True, slots=True, eq=False)
class KeyedFunction:
    """A keyed operator made of a user's function, which needs all rows of a key together."""

    name: str
    function: Callable[..., Any]
    input_schema: pa.Schema
    key_names: tuple[str, ...]
    state: StateColumns
    output_schema: pa.Schema

    def __post_init__(self) -> None:
        check_names(self.name, self.input_schema, self.key_names, self.state.schema)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str,
        input_schema: pa.Schema,
        key_names: Sequence[str],
        state: Declaration | StateColumns,
        output: Declaration,
    ) -> Self:
        """Make one from declarations as users write them. Raises ``InputError`` for what cannot be used."""
        return cls(name, function, input_schema, tuple(key_names), StateColumns.of(state), output_columns(output))

    @property
    def state_schema(self) -> pa.Schema:
        return self.state.schema

    @property
    def combines(self) -> bool:
        return False

    @property
    def partial_schema(self) -> pa.Schema:
        return self.input_schema

    def early(self, rows: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are: a function cannot be applied early."""
        return rows, hashes

    def combine(self, partials: pa.Table, hashes: I64) -> tuple[pa.Table, I64]:
        """The rows as they are."""
        return partials, hashes
