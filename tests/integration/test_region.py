"""Ordered regions over local processes: order, laziness, errors, and nothing left behind."""

from __future__ import annotations

import gc
import importlib
import itertools
import operator
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate
from headgate.errors import FunctionError, GreetingError, LimitsError, RegionError, ShippingError, WorkersLostError
from headgate.regions import Counters, Fixed, Progress, Region, RoundRobin, Skipped, ordered_map

sys.path.append(str(Path(__file__).parent))  # workers get this path too, and import the functions from there
labour: Any = importlib.import_module("labour")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with labour.no_leaks():
        yield


@pytest.mark.parametrize("workers", [1, 3], ids=["one worker", "three workers"])
def test_results_come_in_order(workers: int) -> None:
    assert list(headgate.ordered_map(labour.square, range(5_000), workers)) == [x * x for x in range(5_000)]


def test_no_items_no_results() -> None:
    assert list(ordered_map(operator.neg, [], workers=2)) == []


def test_order_is_kept_where_tuples_take_random_times() -> None:
    assert list(ordered_map(labour.random_square, range(300), workers=3)) == [x * x for x in range(300)]


def test_a_generator_that_is_never_started_starts_nothing() -> None:
    stream = ordered_map(operator.neg, range(10), workers=2)
    assert not labour.children()
    stream.close()


def test_arrays_and_tables_arrive_whole() -> None:
    arrays = [np.full(50_000, number) for number in range(20)]
    for number, total in enumerate(ordered_map(np.sum, arrays, workers=2)):
        assert total == number * 50_000
    tables = [pa.table({"x": range(number)}) for number in range(5)]
    assert [each.num_rows for each in ordered_map(operator.itemgetter(slice(2)), tables, workers=1)] == [0, 1, 2, 2, 2]


def test_closures_travel_by_value() -> None:
    pytest.importorskip("pyspark.cloudpickle", reason="no cloudpickle here")
    by = 3
    assert list(ordered_map(lambda x: x * by, range(5), workers=1)) == [0, 3, 6, 9, 12]


# Input and output that are slow, endless, or stop.


def test_items_are_read_only_as_far_ahead_as_the_window_lets_in() -> None:
    read = 0

    def endless() -> Iterator[int]:
        nonlocal read
        for number in itertools.count():
            read = number + 1
            yield number

    stream = ordered_map(operator.neg, endless(), workers=2, window=100, frame_tuples=10)
    assert [next(stream) for _ in range(50)] == [-number for number in range(50)]
    time.sleep(0.3)
    assert read <= 50 + 10 + 100 + 4 * 10 + 1  # taken, in a frame that is being taken, in the window, at the inlet
    stream.close()


def test_an_item_does_not_wait_for_the_next() -> None:
    """The items depend on the results: each is made when the result before it is there."""
    arrived = threading.Semaphore(1)

    def items() -> Iterator[int]:
        for number in range(20):
            assert arrived.acquire(timeout=10)
            yield number

    found = []
    for result in ordered_map(labour.square, items(), workers=2):
        found.append(result)
        arrived.release()
    assert found == [number * number for number in range(20)]


def test_a_burst_does_not_wait_for_the_next() -> None:
    more = threading.Event()

    def items() -> Iterator[int]:
        yield from range(1_000)
        assert more.wait(10)
        yield 1_000

    stream = ordered_map(operator.neg, items(), workers=2)
    assert [next(stream) for _ in range(1_000)] == [-number for number in range(1_000)]
    more.set()
    assert list(stream) == [-1_000]


def test_what_the_items_raise_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        raise KeyError("the source broke")

    found: list[int] = []
    with pytest.raises(KeyError, match="the source broke"):
        found.extend(ordered_map(operator.neg, items(), workers=2))
    assert found == [-number for number in range(100)]


def test_a_slow_consumer_is_not_charged_to_workers() -> None:
    with Region(labour.square, 2, window=8, balance=RoundRobin()) as region:
        stream = region.run(range(100))
        assert next(stream) == 0
        before, waited = region.counters().blocked.sum(), 0.0
        for number in range(1, 100):
            time.sleep(0.01)
            asked = time.monotonic()
            assert next(stream) == number * number
            waited += time.monotonic() - asked
        charged = region.counters().blocked.sum() - before
    assert charged < waited + 0.1, "what the consumer slept, a second and more, is charged to nobody"


def test_a_slow_worker_is_charged() -> None:
    with Region(labour.slow_square, 1, balance=RoundRobin()) as region:
        assert sum(1 for _ in region.run(range(300))) == 300
        counters = region.counters()
    assert counters.blocked[0] > 0.3  # of some 0.6 seconds


# What a region tells.


def test_counters_and_progress() -> None:
    seen: list[Progress] = []
    with Region(labour.spin, 2, period=0.1, listener=seen.append, balance=Fixed([3, 1])) as region:
        with pytest.raises(RegionError, match="counts from its first result on"):
            region.counters()
        assert list(region.run(range(200))) == list(range(200))
        counters: Counters = region.counters()
        assert region.view().weights.tolist() == [750, 250]
    assert counters.sent.sum() == counters.answered.sum() == counters.delivered == 200
    assert counters.sent[0] / counters.sent[1] == pytest.approx(3, rel=0.4)
    assert (counters.resent, counters.rerouted) == (0, 0)
    assert len(seen) > 2
    assert all(each.weights.sum() == 1000 for each in seen)
    assert max(each.throughput for each in seen) > 0
    assert sum(each.rates.sum() for each in seen) > 0


def test_with_kernel_buffers_only_a_slow_worker_has_much_more_waiting() -> None:
    """The paper's way, ahead=None: the buffers fill before anything blocks, and re-routing hardly helps."""
    most = {}
    for ahead in (2, None):
        seen: list[Progress] = []
        with Region(
            labour.slow_square, 1, ahead=ahead, frame_tuples=1, send_buffer=4096, receive_buffer=4096,
            period=0.05, listener=seen.append, balance=RoundRobin(),
        ) as region:  # fmt: skip
            assert sum(1 for _ in region.run(range(300))) == 300
        most[ahead] = max(int((each.counters.sent - each.counters.answered).max()) for each in seen)
    assert most[2] == 2
    assert most[None] > 10


def test_rerouting_sends_to_who_has_room_and_counts_it() -> None:
    with Region(labour.spin, 2, reroute=True, ahead=1, balance=Fixed([9, 1])) as region:
        assert list(region.run(range(200))) == list(range(200))
        counters = region.counters()
    assert counters.rerouted > 20
    assert counters.sent[1] > 40


# Functions that fail.


def test_an_error_carries_position_traceback_and_cause() -> None:
    found: list[int] = []
    with pytest.raises(FunctionError, match="raised ValueError for the item at position 3") as caught:
        found.extend(ordered_map(labour.fail_on_sevens, range(100), workers=2))
    assert found == [0, 1, 4]
    assert caught.value.position == 3
    assert "in fail_on_sevens" in caught.value.traceback
    assert isinstance(caught.value.__cause__, ValueError)


def test_items_that_fail_are_skipped_and_reported_in_order() -> None:
    skipped: list[Skipped] = []
    found = list(ordered_map(labour.fail_on_sevens, range(200), 2, on_error="skip", report=skipped.append))
    assert found == [x * x for x in range(200) if x % 7 != 3]
    assert [each.position for each in skipped] == [x for x in range(200) if x % 7 == 3]
    assert skipped[0].name == "ValueError"
    assert "no 3 here" in skipped[0].traceback


def test_items_are_tried_again(tmp_path: Path) -> None:
    items = [(str(tmp_path), number) for number in range(30)]
    assert list(ordered_map(labour.once_bad, items, 2, on_error="retry")) == list(range(30))


def test_retries_end_with_the_error() -> None:
    with pytest.raises(FunctionError, match="position 3"):
        list(ordered_map(labour.fail_on_sevens, range(10), 1, on_error="retry", retries=2))


def test_a_result_that_cannot_be_pickled() -> None:
    with pytest.raises(FunctionError, match=r"(?s)position 3.*cannot pickle"):
        list(ordered_map(labour.unpicklable, range(10), workers=1))


def test_an_item_that_cannot_be_pickled() -> None:
    items: list[Any] = [1, 2, threading.Lock(), 4]
    found: list[Any] = []
    with pytest.raises(ShippingError, match="items must be picklable, and the one at position 2 is not") as caught:
        found.extend(ordered_map(operator.truth, items, workers=1))
    assert caught.value.position == 2
    assert found == [True, True]


@pytest.mark.parametrize("at", [0, 1, 2_000], ids=["the first", "the second", "one in the middle of a frame"])
def test_everything_before_an_item_that_cannot_be_pickled_is_delivered(at: int) -> None:
    items: list[Any] = [*range(at), threading.Lock(), *range(5_000)]
    found: list[Any] = []
    with pytest.raises(ShippingError, match="items must be picklable") as caught:
        found.extend(ordered_map(operator.index, items, workers=2))
    assert caught.value.position == at
    assert found == list(range(at))


def test_an_item_that_is_too_large() -> None:
    with pytest.raises(ShippingError, match="may have 10,000 bytes, and the one at position 1 has 20,"):
        list(ordered_map(len, [b"a", b"b" * 20_000], workers=1, max_frame_bytes=10_000))


def test_results_that_are_too_large() -> None:
    with pytest.raises(FunctionError, match="a frame may have 10,000 bytes"):
        list(ordered_map(bytes, [10, 20_000], workers=1, max_frame_bytes=10_000))


def test_items_that_grow_are_split_into_smaller_frames() -> None:
    items = [b"a"] * 5_000 + [b"b" * 100_000] * 50
    assert list(ordered_map(len, items, workers=2, frame_bytes=50_000)) == [len(item) for item in items]


# Options.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers must be a number from 1 to 1000"),
        ({"workers": "host:1"}, "workers must be a number, or 1 to 1000 addresses"),
        ({"workers": ["host"], "secret": "s" * 16}, 'address of a worker must be "host:port"'),
        ({"window": 0}, "window must be a whole number from 1"),
        ({"period": -1.0}, "period must be a finite number of seconds above zero, got -1.0"),
        ({"on_error": "ignore"}, "on_error must be 'fail', 'skip' or 'retry', got ignore"),
        ({"speed": 9}, "an option of a region must be one of secret, tls, .*, got speed"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_options_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LimitsError, match=text):
        ordered_map(operator.neg, [], **options)


def test_remote_workers_need_a_secret() -> None:
    with pytest.raises(GreetingError, match="a secret must have at least 16 bytes, got 0"):
        ordered_map(operator.neg, [], workers=["127.0.0.1:1"])


def test_a_region_runs_once() -> None:
    with Region(labour.square, 1) as region:
        assert list(region.run([3])) == [9]
        with pytest.raises(RegionError, match="runs one stream"):
            region.run([2])


# Ends of all kinds. The fixture above looks for what is left.


def test_closing_in_the_middle_ends_busy_workers_quickly() -> None:
    stream = ordered_map(labour.long_square, itertools.count(), workers=3)
    assert next(stream) == 0
    begun = time.monotonic()
    stream.close()
    assert time.monotonic() - begun < 2


def test_dropping_the_generator_is_closing_it() -> None:
    stream = ordered_map(labour.square, itertools.count(), workers=2)
    assert next(stream) == 0
    del stream
    gc.collect()
    assert labour.until(lambda: not labour.children())


def test_dropping_a_region_that_was_not_closed() -> None:
    region: Region[int, int] = Region(labour.square, 2)
    stream: Iterator[int] = region.run(itertools.count())
    assert next(stream) == 0
    del stream, region
    gc.collect()
    assert labour.until(lambda: not labour.children())


def test_an_error_of_the_consumer_ends_the_region() -> None:
    with pytest.raises(ZeroDivisionError), Region(labour.square, 2) as region:
        list(map(labour.refuse_100, region.run(itertools.count())))


def test_a_listener_that_raises_ends_the_region() -> None:
    def listener(progress: Progress) -> None:
        raise RuntimeError("seen enough")

    with pytest.raises(RuntimeError, match="seen enough"):
        list(ordered_map(labour.slow_square, itertools.count(), 1, period=0.05, listener=listener))


def test_an_iterator_that_blocks_does_not_hold_up_the_end() -> None:
    gate = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        gate.wait(20)

    stream = ordered_map(operator.neg, items(), workers=1)
    assert next(stream) == -1
    begun = time.monotonic()
    stream.close()
    assert time.monotonic() - begun < 4
    gate.set()  # its thread ends now


PROGRAM = """
import itertools, os, signal, sys, threading, time
import headgate

def work(x):
    time.sleep(0.01)
    return x + 1

if __name__ == "__main__":
    stream = headgate.ordered_map(work, itertools.count(), workers=2)
    print(next(stream), flush=True)
    me = os.getpid()
    tasks = [open(f"/proc/self/task/{t}/children").read().split() for t in os.listdir("/proc/self/task")]
    print(*itertools.chain(*tasks), flush=True)
    if sys.argv[1] == "interrupt":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, in the background of a script
        threading.Timer(0.2, os.kill, (me, signal.SIGINT)).start()
        try:
            for _ in stream:
                pass
        except KeyboardInterrupt:
            print("interrupted", len(os.listdir("/proc/self/fd")), threading.active_count(), flush=True)
    else:
        for _ in stream:
            pass
"""


def _gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """The function is defined in the main script, which the workers import, and which starts no region again."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM))
    ended = subprocess.run([sys.executable, str(script), "interrupt"], capture_output=True, text=True, timeout=60)
    first, pids, last = ended.stdout.splitlines()
    assert first == "1"
    word, count, threads = last.split()
    assert word == "interrupted"
    assert int(count) <= 5, "stdin, stdout, stderr, the listing itself, and what Python keeps"
    assert threads in ("1", "2"), "the timer may still be there"
    assert ended.stderr == ""
    assert all(_gone(int(pid)) for pid in pids.split())


def test_workers_of_a_driver_that_is_killed_end_by_themselves(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM))
    driver = subprocess.Popen([sys.executable, str(script), "run"], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "1\n"
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert labour.until(lambda: all(_gone(pid) for pid in pids), 10)


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import headgate\ndef work(x):\n    return x\nprint(list(headgate.ordered_map(work, range(3), workers=1)))\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert 'put what starts it below `if __name__ == "__main__":`' in ended.stderr


def test_a_worker_loads_nothing_heavy() -> None:
    heavy = ["numpy", "pyarrow", "scipy", "numba", "ssl", "pandas", "multiprocessing"]
    program = f"import sys, headgate.regions.worker; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


# Workers that die.


def test_a_killed_worker_is_replaced_and_nothing_is_lost() -> None:
    with Region(labour.slow_square, 2) as region:
        found = []
        for result in region.run(range(600)):
            found.append(result)
            if len(found) in (50, 200):
                os.kill(next(pid for pid in region.processes() if pid is not None), signal.SIGKILL)
        counters = region.counters()
    assert found == [x * x for x in range(600)]
    assert counters.resent > 0
    assert counters.restarts.sum() >= 1


@pytest.mark.slow
def test_a_stopped_worker_is_given_up_and_its_tuples_go_elsewhere() -> None:
    seen: list[Progress] = []
    with Region(labour.slow_square, 2, hang=1.0, period=0.1, listener=seen.append) as region:
        found = []
        for result in region.run(range(1_500)):
            found.append(result)
            if len(found) == 50:
                stopped = region.processes()[0] or 0
                assert stopped
                os.kill(stopped, signal.SIGSTOP)
        assert _gone(stopped)
    assert found == [x * x for x in range(1_500)]
    assert any("no sign of life for 1 seconds" in (each.troubles[0] or "") for each in seen)


def test_a_long_function_is_not_taken_for_a_hang() -> None:
    with Region(labour.long_square, 1, hang=0.2) as region:
        assert list(region.run(range(3))) == [0, 1, 4]
        assert region.counters().resent == 0


def test_an_item_that_kills_every_worker_is_named() -> None:
    found: list[int] = []
    with pytest.raises(RegionError, match=r"3 died one after another at work on items 5 to 5.*code 9") as caught:
        found.extend(ordered_map(labour.leave, range(20), workers=2, frame_tuples=1))
    assert caught.value.position == 5
    assert found == [0, 1, 2, 3, 4], "what came before it is delivered"


def test_workers_that_never_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WorkersLostError, match=r"(?s)all 2 are gone for good.*\n  local worker 0: .*code 1") as caught:
        list(ordered_map(operator.neg, range(5), workers=2, restarts=0))
    assert caught.value.position == 0
    assert "results up to position 0 (exclusive) were delivered" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_order_is_kept_under_random_deaths_and_hangs(seed: int) -> None:
    chance = random.Random(seed)
    stop = threading.Event()
    with Region(labour.random_square, 3, hang=1.0, period=0.1, restarts=20, deaths=50) as region:

        def murder() -> None:
            while not stop.wait(chance.uniform(0.1, 0.4)):
                alive = [pid for pid in region.processes() if pid is not None]
                if len(alive) > 1:
                    with suppress(ProcessLookupError):  # it may have died since of an earlier shot
                        os.kill(chance.choice(alive), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))

        murderer = threading.Thread(target=murder)
        murderer.start()
        try:
            assert list(region.run(range(3_000))) == [x * x for x in range(3_000)]
        finally:
            stop.set()
            murderer.join()
        assert region.counters().resent > 0
