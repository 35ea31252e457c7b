"""What a Python worker of Spark does for itself, apart from any batch."""

from __future__ import annotations

import gc

SETTLING = 4
"""Tasks after which a process has imported and compiled what it will need: both stages, with and without state."""

_finished = 0


def settle() -> None:
    """Take what the first tasks of this process loaded out of the garbage collector's sight.

    Spark lets a worker collect garbage after every task, before it takes the next one. Modules and compiled functions
    make that 70 ms, in which the next stage waits; they live as long as the process, so nothing is gained by looking
    at them again. Only the first tasks do this: what later ones leave behind is collected as ever.
    """
    global _finished
    if _finished < SETTLING:
        _finished += 1
        gc.freeze()
