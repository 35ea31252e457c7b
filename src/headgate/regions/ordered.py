"""``ordered_map``: map over many processes, in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

from headgate.regions.region import Region

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(
    fn: Callable[[T], R], items: Iterable[T], workers: int | Sequence[str] = 8, **options: Any
) -> Generator[R, None, None]:
    """``fn`` of every item, in the order of the items: ``map`` over many processes.

    ``workers`` is a number of processes, started here at the first ``next`` and gone with the generator, or the
    addresses ``"host:port"`` of running ``headgate worker``. Items are read as needed, and so many are in work that no
    worker waits; slow workers get fewer. ``fn`` must be stateless, since an item may run twice where a worker dies.
    Items must not be changed once they were handed over. ``options``: the fields of
    :class:`headgate.regions.options.Options`.

    Raises ``FunctionError`` with the position where ``fn`` raised, after all results before it, and others of the
    family of ``RegionError`` where it cannot go on. Closing the generator, or losing the last reference to it, ends
    everything.
    """
    return Region(fn, workers, **options).run(items)
