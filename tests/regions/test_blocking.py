"""What the balancer achieves in a simulated region: times and throughputs are those of a fake clock (simulated.py)."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.arrays import F64
from headgate.errors import InputError
from headgate.regions.balance import RESOLUTION, Balancer, Fixed, RoundRobin, Sample, Schedule
from headgate.regions.blocking import NEWS, PROBE, BlockingRate

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from tests.regions.simulated import Region, Run, simulate  # noqa: E402 (found by the line above)

ON_REQUEST = pytest.mark.skipif(
    os.environ.get("HEADGATE_GRID") != "1", reason="the rest of the grid takes a minute or two: HEADGATE_GRID=1"
)
"""The balancer over many buffers and windows."""

PERIODS = 200
STATIC_PERIODS, DYNAMIC_PERIODS = 60, 80
GRID = [(2, 64), (2, 1024), (8, 64), (8, 1024), (64, 64), (64, 1024)]
"""Buffers and windows in frames."""


def region(times: Sequence[float], *, then: float | None = None, periods: int = PERIODS, **options: Any) -> Region:
    """Workers that take these times for a frame; from an eighth of the run on all take ``then``."""
    period = options.setdefault("period", 1000.0)
    phases: list[tuple[float, Sequence[float]]] = [(0.0, times)]
    if then is not None:
        phases.append((periods * period / 8, [then] * len(times)))
    return Region(phases, **options)


def oracles(of: Region) -> list[Balancer]:
    """Who knows every time: in proportion to speed, or without the slow, whom a small window makes not worth it."""
    speeds = [(at, 1 / np.asarray(times, dtype=np.float64)) for at, times in of.phases]
    without = [(at, np.where(speed < speed.max() / 5, 0.0, speed)) for at, speed in speeds]
    return [Schedule([(at, speed.tolist()) for at, speed in parts]) for parts in (speeds, without)]


def best(of: Region, periods: int = PERIODS) -> tuple[float, float]:
    """Oracle*: the throughput over the run, and at its end."""
    runs = [simulate(of, oracle, periods=periods) for oracle in oracles(of)]
    return max(run.throughput() for run in runs), max(run.final_throughput() for run in runs)


def half(workers: int, slower: float) -> list[float]:
    return [1.0] * (workers // 2) + [slower] * (workers // 2)


def throughput_of(of: Region, weights: Sequence[int]) -> float:
    """What a split can sustain."""
    return simulate(of, Fixed(weights), periods=20).final_throughput()


# Three workers, one of them 100 times slower, until an eighth of the run (section 6.1).


@pytest.mark.parametrize(("buffer", "window"), [(2, 1024), (8, 1024)])
def test_three_with_one_100_times_slower_settle_within_20_periods(buffer: int, window: int) -> None:
    where = region([1, 1, 100], buffer=buffer, window=window)
    run = simulate(where, BlockingRate(), periods=60)
    settled = run.throughput(20 * 1000.0)
    assert settled >= 0.75 * best(where, 60)[1]
    assert (run.weights[20:, 2] <= 20).all()


@pytest.mark.parametrize(("buffer", "window"), GRID)
def test_they_recover_when_the_load_is_gone(buffer: int, window: int) -> None:
    where = region([1, 1, 100], then=1, buffer=buffer, window=window)
    run = simulate(where, BlockingRate(), periods=PERIODS)
    assert run.final_throughput() >= 0.95 * best(where)[1]


def test_lb_static_never_finds_out() -> None:
    where = region([1, 1, 100], then=1)
    run = simulate(where, BlockingRate(decay=None), periods=PERIODS)
    assert run.final_throughput() <= 0.75 * best(where)[1]


# Equal workers (section 6.2).


@pytest.mark.parametrize(("period", "jitter", "counts"), [(100.0, 0.5, False), (1000.0, 0.0, True)])
@pytest.mark.parametrize(("buffer", "window"), GRID)
def test_equal_workers_do_as_well_as_round_robin_from_the_start(
    buffer: int, window: int, period: float, jitter: float, counts: bool
) -> None:
    where = region([1, 1, 1], buffer=buffer, window=window, period=period, jitter=jitter)
    plain = simulate(where, RoundRobin(), periods=PERIODS)
    run = simulate(where, BlockingRate(), periods=PERIODS, counts=counts)
    assert run.throughput() >= 0.95 * plain.throughput()
    assert run.throughput(until=20 * period) >= 0.93 * plain.throughput(until=20 * period)
    assert run.weights.min() > 200  # nobody drops to 0, as the paper's draft leader does


def test_where_nothing_blocks_nothing_changes() -> None:
    where = region([1, 1, 1, 1], sending=0.5)
    run = simulate(where, BlockingRate(), periods=50)
    assert run.blocked[-1].sum() == 0
    assert (run.weights == 250).all()


# Half of the workers slow (sections 6.3 and 6.4).


SETTLED_WITHIN = 20
"""Periods after which throughput must be near Oracle*'s."""


def settings_of_the_grid() -> list[Any]:
    """All workers with buffers of 8 frames and a large window, and few workers with all of them; others on request."""
    found = []
    for buffer, window in GRID:
        for workers in (2, 4, 8, 16):
            for slower in (10.0, 100.0):
                usual = workers <= 4 or (buffer, window) == (8, 1024)
                name = f"{workers} workers, {slower:g} times, buffer {buffer}, window {window}"
                found.append(
                    pytest.param(workers, slower, buffer, window, id=name, marks=() if usual else (ON_REQUEST,))
                )
    return found


@pytest.mark.parametrize(("workers", "slower", "buffer", "window"), settings_of_the_grid())
def test_half_slow_over_the_grid(workers: int, slower: float, buffer: int, window: int) -> None:
    """At most 1.5 times Oracle*'s time, settled in 20 periods; and all of it back once the load is gone."""
    where = region(half(workers, slower), buffer=buffer, window=window)
    run = simulate(where, BlockingRate(), periods=STATIC_PERIODS)
    total, final = best(where, STATIC_PERIODS)
    assert run.throughput() >= total / 1.5
    if window > slower:  # a frame of a slow worker does not fill the window alone
        assert run.throughput(SETTLED_WITHIN * where.period) >= 0.9 * final
    where = region(half(workers, slower), then=1, periods=DYNAMIC_PERIODS, buffer=buffer, window=window)
    run = simulate(where, BlockingRate(), periods=DYNAMIC_PERIODS)
    assert run.final_throughput() >= 0.95 * best(where, DYNAMIC_PERIODS)[1]


@pytest.mark.parametrize("workers", [4, 16])
@pytest.mark.parametrize(("period", "jitter", "latency"), [(150.0, 0.0, 0.0), (1000.0, 0.5, 0.3)])
def test_half_100_times_slower_settle_also_with_little_or_noisy_data(
    workers: int, period: float, jitter: float, latency: float
) -> None:
    """In a period of 150 a slow worker answers once or twice; or its times vary by half, and frames travel."""
    where = region(half(workers, 100.0), period=period, jitter=jitter, latency=latency)
    run = simulate(where, BlockingRate(), periods=STATIC_PERIODS)
    total, final = best(where, STATIC_PERIODS)
    assert run.throughput() >= total / 1.2
    assert run.throughput(SETTLED_WITHIN * period) >= 0.9 * final


@pytest.mark.parametrize("workers", [4, 16])
@pytest.mark.parametrize(("buffer", "latency"), [(8, 5.0), (64, 20.0)])
def test_a_long_way_to_the_workers_is_not_taken_for_work(workers: int, buffer: int, latency: float) -> None:
    """A fast worker with one frame in hand is busy for as long as that travels; with more, nobody notices."""
    where = region(half(workers, 100.0), then=1, periods=DYNAMIC_PERIODS, buffer=buffer, window=4096, latency=latency)
    run = simulate(where, BlockingRate(), periods=DYNAMIC_PERIODS)
    total, final = best(where, DYNAMIC_PERIODS)
    assert run.throughput() >= 0.85 * total
    assert run.final_throughput() >= 0.95 * final


@pytest.mark.parametrize(("workers", "period"), [(32, 10.0), (64, 10.0), (64, 27.0)])
def test_who_rests_is_found_out_by_one_probe_though_its_turn_takes_periods_to_come(workers: int, period: float) -> None:
    """So few frames in a period that a weight of 1 of 1000 may get none of them."""
    periods = 170
    where = region(half(workers, 100.0), then=1, periods=periods, period=period)
    run = simulate(where, BlockingRate(), periods=periods)
    assert (run.weights[periods // 8] == 0).any(), "somebody rests when the load leaves"
    assert (run.weights[periods // 8 + PROBE + 2 * NEWS :] > 0).all()
    assert run.final_throughput() >= 0.95 * best(where, periods)[1]


def test_round_robin_is_at_least_10_times_slower() -> None:
    where = region(half(16, 100.0))
    plain = simulate(where, RoundRobin(), periods=STATIC_PERIODS)
    run = simulate(where, BlockingRate(), periods=STATIC_PERIODS)
    assert run.throughput() >= 10 * plain.throughput()


# With waits alone: the transport does not count, or is not listened to.


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("slower", [10.0, 100.0])
def test_waits_alone_do_for_half_slow(workers: int, slower: float) -> None:
    where = region(half(workers, slower))
    run = simulate(where, BlockingRate(completions=False), periods=PERIODS)
    assert run.throughput() >= best(where)[0] / 1.5


def test_without_completions_they_make_no_difference() -> None:
    where = region(half(4, 100.0))
    deaf = simulate(where, BlockingRate(completions=False), periods=20)
    static = simulate(where, BlockingRate(decay=None), periods=20)
    both = simulate(where, BlockingRate(decay=None, completions=False), periods=20)
    heard = simulate(where, BlockingRate(), periods=20)
    assert (static.weights == both.weights).all()
    assert (deaf.weights != heard.weights).any()


def test_workers_that_differ_by_less_than_half_get_what_each_can_do() -> None:
    speeds = np.linspace(1.0, 2.0, 8)
    where = region((1 / speeds).tolist())
    run = simulate(where, BlockingRate(), periods=40)
    assert np.abs(run.weights[-10:].mean(axis=0) - RESOLUTION * speeds / speeds.sum()).max() <= 5
    assert run.final_throughput() >= 0.97 * best(where, 40)[1]


def test_one_of_many_slow_ones_recovers_alone() -> None:
    where = Region([(0, half(8, 100.0)), (20_000, [*half(8, 100.0)[:7], 1.0])], period=1000.0)
    run = simulate(where, BlockingRate(), periods=60)
    assert run.weights[19, 7] <= 10
    assert run.weights[30:, 7].min() >= 180
    assert run.weights[30:, 4:7].max() <= 10


def test_workers_at_rest_are_probed() -> None:
    """A window of 64 makes slow workers not worth it, and they rest at 0 when the load leaves."""
    where = region(half(16, 100.0), then=1, periods=400, buffer=2, window=64)
    run = simulate(where, BlockingRate(), periods=400)
    assert (run.weights[40:50, 8:] == 0).mean() > 0.9
    assert run.final_throughput() >= 0.95 * best(where, 400)[1]


# Different hosts (section 6.5).


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_65_to_35_is_found(jitter: float) -> None:
    run = simulate(region([35, 65], period=10_000.0, sending=0.1, jitter=jitter), BlockingRate(), periods=PERIODS)
    late = run.weights[-100:, 0]
    assert abs(late.mean() - 650) <= 5
    assert np.abs(late - 650).max() <= 30


# Many workers (section 6.6).


@pytest.mark.parametrize(
    ("sizes", "periods"),
    [
        pytest.param((5, 5, 6), 200, id="16 workers"),
        pytest.param((20, 20, 24), 300, id="64 workers", marks=pytest.mark.slow),
    ],
)
def test_three_classes_are_told_apart(sizes: tuple[int, int, int], periods: int) -> None:
    classes = np.repeat([0, 1, 2], sizes)
    where = region(np.array([100.0, 5.0, 1.0])[classes].tolist())
    run = simulate(where, BlockingRate(), periods=periods, keep_clusters=True)
    members = run.clusters[-1]
    for cluster in set(members.tolist()):
        assert len(set(classes[members == cluster])) == 1
    total, final = best(where, periods)
    assert run.throughput() >= 0.65 * total
    assert run.final_throughput() >= 0.9 * final
    last = run.weights[-1]
    assert last[classes == 0].max() < last[classes == 1].min() <= last[classes == 1].max() < last[classes == 2].min()


# How much was sent.


def told(samples: Sequence[tuple[float, int]]) -> list[list[int]]:
    """The weights of two connections after periods in which the first blocked for so long and so much was sent."""
    balancer = BlockingRate()
    balancer.start(2)
    at, blocked, sent, weights = 0.0, 0.0, 0, []
    for waited, count in samples:
        at, blocked, sent = at + 1.0, blocked + waited, sent + count
        weights.append(balancer.observe(Sample(at, np.array([blocked, 0.0]), np.ones(2, bool), sent)).tolist())
    return weights


def test_a_disturbed_period_says_the_same_where_as_much_is_sent_per_wait() -> None:
    quiet = told([(0.9, 1000), (0.9, 1000), (0.9, 1000)])
    disturbed = told([(0.9, 1000), (0.45, 500), (0.9, 1000)])  # half of the second belongs to other programs
    assert disturbed == quiet


# Death and return.


def test_a_worker_that_dies_and_returns_is_explored_again() -> None:
    def alive(at: float) -> Sequence[bool]:
        return [True, True, not 20_000 <= at < 40_000]

    run = simulate(region([1, 1, 1], alive=alive), BlockingRate(), periods=100)
    assert (run.weights.sum(axis=1) == RESOLUTION).all()
    assert (run.weights[20:40, 2] == 0).all()
    assert run.weights[40, 2] > 0
    assert run.weights[50, 2] > 250
    assert run.throughput(50_000) >= 0.97 * 3


def test_a_worker_that_returns_slower_is_not_overrun() -> None:
    where = Region(
        [(0, [1, 1, 1]), (30_000, [1, 1, 10])],
        period=1000.0,
        alive=lambda at: [True, True, not 20_000 <= at < 40_000],
    )
    run = simulate(where, BlockingRate(), periods=150)
    assert run.final_throughput() >= 0.93 * 2.1


# What holds whatever comes.


FEW = settings(max_examples=25)
"""A story is many samples."""


@st.composite
def stories(draw: Any) -> list[Sample]:
    count = draw(st.sampled_from([1, 2, 3, 5, 20]))
    at, blocked, samples = 0.0, np.zeros(count), []
    for _ in range(draw(st.integers(1, 15))):
        at += draw(st.sampled_from([0.0, 0.5, 1.0]))
        blocked = blocked + np.array(draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
        alive = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        samples.append(Sample(at, blocked, alive))
    return samples


def weights_of(samples: Sequence[Sample], **options: Any) -> list[list[int]]:
    balancer = BlockingRate(**options)
    balancer.start(len(samples[0].alive))
    return [balancer.observe(sample).tolist() for sample in samples]


@pytest.mark.parametrize("decay", [0.1, None])
@FEW
@given(samples=stories())
def test_weights_are_whole_and_never_on_the_dead(samples: list[Sample], decay: float | None) -> None:
    for sample, weights in zip(samples, weights_of(samples, decay=decay), strict=True):
        assert sum(weights) == (RESOLUTION if sample.alive.any() else 0)
        assert min(weights) >= 0
        assert not np.array(weights)[~sample.alive].any()


@FEW
@given(stories())
def test_the_same_samples_give_the_same_weights(samples: list[Sample]) -> None:
    assert weights_of(samples) == weights_of(samples)


@FEW
@given(stories())
def test_steps_keep_to_their_limits_while_the_same_live(samples: list[Sample]) -> None:
    everyone = np.ones(len(samples[0].alive), dtype=np.bool_)
    before = BlockingRate().start(len(everyone))
    for weights in weights_of([Sample(sample.at, sample.blocked, everyone) for sample in samples]):
        now = np.array(weights)
        assert (now >= before // 4).all()
        assert (now <= 2 * before + 10).all()
        before = now


def test_the_view_tells_rates_and_weights() -> None:
    balancer = BlockingRate()
    balancer.start(2)
    weights = balancer.observe(Sample(2.0, np.array([1.0, 0.0]), np.array([True, True])))
    view = balancer.view()
    assert view.weights.tolist() == weights.tolist()
    assert view.rates.tolist() == [0.5, 0.0]
    assert view.clusters.tolist() == [0, 1]


def test_what_is_handed_out_is_not_the_balancers_own() -> None:
    balancer = BlockingRate()
    weights = balancer.start(2)
    weights[:] = 0
    assert balancer.view().weights.tolist() == [500, 500]


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0])
def test_messages(decay: float) -> None:
    with pytest.raises(InputError, match=r"decay must be between 0 and 1, or None to explore nothing twice, got"):
        BlockingRate(decay=decay)
    with pytest.raises(InputError, match=r"able to halve and to double in a period, got fall=1 and rise=2"):
        BlockingRate(fall=1)


@pytest.mark.parametrize("name", ["balance", "turns", "functions", "allocation", "clusters", "blocking"])
def test_the_model_is_pure(name: str) -> None:
    tree = ast.parse((ROOT / f"src/headgate/regions/{name}.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"socket", "time", "os", "threading", "io", "pathlib", "random", "datetime"}


# The simulator itself, by hand.


def test_the_simulator_charges_a_full_buffer_to_its_connection() -> None:
    """Buffers of 1 and no window to speak of; sending takes 1, worker 0 takes 1 a frame, worker 1 takes 10.

    frame   0    1    2    3    4    5             frame 5 is for worker 1, whose buffer holds frame 3 until worker 1
    sent    1    2    3    4    5   12 + 1         begins it at 2 + 10
    """
    blocked = _charges(Region([(0, [1, 10])], buffer=1, window=100, sending=1, period=13), 1)
    assert blocked.tolist() == [[0.0, 7.0]]


def test_the_simulator_charges_a_full_window_to_the_oldest_frame() -> None:
    """A window of 2: frame 0 is merged at 2, so that frame 2 need not wait; frame 3 waits for frame 1, merged at 12."""
    blocked = _charges(Region([(0, [1, 10])], buffer=9, window=2, sending=1, period=12), 1)
    assert blocked.tolist() == [[0.0, 9.0]]


def _charges(where: Region, periods: int) -> F64:
    run: Run = simulate(where, RoundRobin(), periods=periods)
    return run.blocked
