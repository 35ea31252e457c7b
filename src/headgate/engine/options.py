"""What options, lists and columns that a user gives must be, and what is said where they are not."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

from headgate.errors import JobError


def check_whole(option: str, value: object, least: int = 1) -> None:
    """Raises ``JobError`` unless the option is a whole number, at least so much."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise JobError.option(option, f"a whole number, at least {least}", value)


def check_list(option: str, value: object, of: str) -> None:
    """Raises ``JobError`` unless the option is a list or the like: a text would be taken for its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise JobError.option(option, f"a list of {of}", value)


def check_columns(what: str, names: list[str]) -> None:
    """Raises ``JobError`` for two columns of one name."""
    for number, name in enumerate(names):
        if name in names[:number]:
            raise JobError.option(f"columns of {what}", f"different ones, and {name!r} is there twice", names)
