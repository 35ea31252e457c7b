"""A balancer that serves a region which comes again with every batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.engine.ordered import Lasting
from headgate.regions.balance import Sample, View, even


class Watcher:
    """Gives the connection that blocked most since the last sample all the weight, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[float]]] = []
        self.started: list[int] = []
        self._weights: NDArray[np.int64] = np.zeros(0, np.int64)

    def start(self, connections: int) -> NDArray[np.int64]:
        self.started.append(connections)
        self._weights = even(np.ones(connections, np.bool_))
        return self._weights

    def observe(self, sample: Sample) -> NDArray[np.int64]:
        self.seen.append((sample.at, sample.blocked.tolist()))
        self._weights = np.zeros(len(sample.blocked), np.int64)
        self._weights[int(np.argmax(sample.blocked))] = 1000
        return self._weights

    def view(self) -> View:
        zeros = np.zeros(len(self._weights))
        return View(self._weights, zeros, np.arange(len(self._weights)))


def _sample(at: float, *blocked: float) -> Sample:
    return Sample(at, np.array(blocked), np.ones(len(blocked), np.bool_))


def test_weights_go_on_from_batch_to_batch_and_time_stands_still_between_them() -> None:
    # batch 1:  at 10 .. 12, clocks of the region from 0     batch 2: at 500 .. 501, clocks from 0 again
    inside = Watcher()
    lasting = Lasting(inside)
    assert lasting.start(2).tolist() == [500, 500]
    lasting.observe(_sample(10.0, 0.0, 0.0))
    assert lasting.observe(_sample(12.0, 0.5, 1.5)).tolist() == [0, 1000]
    assert lasting.start(2).tolist() == [0, 1000], "what was learnt"
    assert lasting.observe(_sample(500.0, 0.0, 0.0)).tolist() == [0, 1000]
    lasting.observe(_sample(501.0, 2.0, 0.25))
    assert inside.started == [2]
    assert inside.seen == [(0.0, [0.0, 0.0]), (2.0, [0.5, 1.5]), (3.0, [2.5, 1.75])]


def test_another_number_of_workers_begins_anew() -> None:
    inside = Watcher()
    lasting = Lasting(inside)
    lasting.start(2)
    lasting.observe(_sample(1.0, 0.0, 1.0))
    assert lasting.start(4).tolist() == [250, 250, 250, 250]
    lasting.observe(_sample(7.0, 0.0, 0.0, 0.0, 1.0))
    assert inside.started == [2, 4]
    assert inside.seen[-1] == (0.0, [0.0, 0.0, 0.0, 1.0])
