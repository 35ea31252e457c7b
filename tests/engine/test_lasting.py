"""A balancer that serves a region which comes again with every batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.engine.ordered import Lasting
from headgate.regions.balance import Sample, View, even


class Watcher:
    """Gives the connection that blocked most since the last sample all the weight, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[float], int | None]] = []
        self.started: list[int] = []
        self._weights: NDArray[np.int64] = np.zeros(0, np.int64)

    def start(self, connections: int) -> NDArray[np.int64]:
        self.started.append(connections)
        self._weights = even(np.ones(connections, np.bool_))
        return self._weights

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        self.seen.append((sample.at, sample.blocked.tolist(), sample.sent))
        self._weights = np.zeros(len(sample.blocked), np.int64)
        self._weights[int(np.argmax(sample.blocked))] = 1000
        return self._weights

    def view(self) -> View:
        zeros = np.zeros(len(self._weights))
        return View(self._weights, zeros, np.arange(len(self._weights)))


def _sample(at: float, *blocked: float, sent: int | None = None) -> Sample:
    return Sample(at, np.array(blocked), np.ones(len(blocked), np.bool_), sent)


def test_weights_and_clocks_go_on_from_batch_to_batch() -> None:
    inside = Watcher()
    lasting = Lasting(inside)
    assert lasting.start(2).tolist() == [500, 500]
    lasting.observe(_sample(1.0, 0.0, 0.0, sent=10))
    assert lasting.observe(_sample(2.0, 0.5, 1.5, sent=30)).tolist() == [0, 1000]
    assert lasting.start(2).tolist() == [0, 1000], "what was learnt"
    assert lasting.observe(_sample(1.0, 2.0, 0.25, sent=7)).tolist() == [1000, 0]
    lasting.start(2)
    lasting.observe(_sample(0.5, 0.0, 0.0))
    assert inside.started == [2]
    assert inside.seen == [
        (1.0, [0.0, 0.0], 10),
        (2.0, [0.5, 1.5], 30),
        (3.0, [2.5, 1.75], 37),
        (3.5, [2.5, 1.75], None),
    ]


def test_another_number_of_workers_begins_anew() -> None:
    inside = Watcher()
    lasting = Lasting(inside)
    lasting.start(2)
    lasting.observe(_sample(1.0, 0.0, 1.0, sent=5))
    assert lasting.start(4).tolist() == [250, 250, 250, 250]
    lasting.observe(_sample(7.0, 0.0, 0.0, 0.0, 1.0, sent=3))
    assert inside.started == [2, 4]
    assert inside.seen[-1] == (7.0, [0.0, 0.0, 0.0, 1.0], 3)
