"""What Prometheus sees of a query."""

from __future__ import annotations

import re
import sys
import urllib.request

import pytest

import headgate.metrics
from headgate.errors import InputError
from headgate.metrics import PrometheusListener

pytest.importorskip("prometheus_client")

PROGRESS = {
    "batch": 7,
    "rows": 1000,
    "seconds": {"plan": 0.5, "tasks": 2.0},
    "state_rows": 300,
    "state_bytes": 4096,
    "skew": 1.25,
    "theta_max": 0.25,
    "moves": 1,
    "moved_groups": 3,
    "moved_keys": 5,
    "copied_bytes": 300,
    "migrations": 2,
    "left_behind_rows": 17,
    "late_rows": 2,
    "rejected_rows": 4,
    "slots": 2,
    "slot_seconds": [1.5, 2.0],
    "slot_rows": [400, 600],
    "table_size": 12,
    "watermark_micros": 1_700_000_000_500_000,
}


def scraped(listener: PrometheusListener) -> dict[str, float]:
    """The samples by name and labels, as a scrape over the loopback gets them."""
    with urllib.request.urlopen(f"http://{listener.addr}:{listener.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line.startswith("headgate_"))
    return {name: float(value) for name, value in samples if "_created" not in name}


def test_a_scrape_shows_the_progress() -> None:
    with PrometheusListener(0, job="words") as listener:
        listener.on_progress(PROGRESS)
        listener.on_progress({**PROGRESS, "batch": 8, "rows": 500, "moves": 0})
        samples = scraped(listener)
    expected = {
        "headgate_batches_total": 2,
        "headgate_rows_total": 1500,
        "headgate_late_rows_total": 4,
        "headgate_rejected_rows_total": 8,
        "headgate_moves_total": 1,
        "headgate_moved_groups_total": 6,
        "headgate_moved_keys_total": 10,
        "headgate_copied_bytes_total": 600,
        "headgate_migrations": 2,
        "headgate_left_behind_rows": 17,
        "headgate_batch": 8,
        "headgate_batch_rows": 500,
        "headgate_state_rows": 300,
        "headgate_state_bytes": 4096,
        "headgate_skew": 1.25,
        "headgate_theta_max": 0.25,
        "headgate_slots": 2,
        "headgate_table_size": 12,
        "headgate_watermark_seconds": 1_700_000_000.5,
    }
    for name, value in expected.items():
        assert samples[f'{name}{{job="words"}}'] == value
    assert samples['headgate_phase_seconds_total{job="words",phase="tasks"}'] == 4.0
    assert samples['headgate_batch_seconds{job="words",phase="plan"}'] == 0.5
    assert samples['headgate_slot_seconds{job="words",slot="1"}'] == 2.0
    assert samples['headgate_slot_rows{job="words",slot="0"}'] == 400


def test_every_metric_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"^(headgate_\w+)", headgate.metrics.__doc__ or "", re.MULTILINE))
    with PrometheusListener(0) as listener:
        listener.on_progress(PROGRESS)
        seen = {name.split("{")[0] for name in scraped(listener)}
    assert seen == documented


def test_slots_that_are_gone_are_not_reported() -> None:
    with PrometheusListener(0) as listener:
        listener.on_progress(PROGRESS)
        listener.on_progress({"slots": 1, "slot_seconds": [1.0], "slot_rows": [9]})
        slots = {name for name in scraped(listener) if "slot=" in name}
    assert slots == {'headgate_slot_seconds{job="",slot="0"}', 'headgate_slot_rows{job="",slot="0"}'}


def test_what_is_missing_stays_as_it_was() -> None:
    with PrometheusListener(0) as listener:
        listener.on_progress(PROGRESS)
        listener.on_progress({"batch": 8, "watermark_micros": None})
        samples = scraped(listener)
    assert samples['headgate_batch{job=""}'] == 8
    assert samples['headgate_state_rows{job=""}'] == 300
    assert samples['headgate_watermark_seconds{job=""}'] == 1_700_000_000.5


def test_two_queries_of_one_process_do_not_mix() -> None:
    with PrometheusListener(0) as one, PrometheusListener(0) as two:
        one.on_progress(PROGRESS)
        two.on_progress({"rows": 1})
        assert scraped(one)['headgate_rows_total{job=""}'] == 1000
        assert scraped(two)['headgate_rows_total{job=""}'] == 1


def test_a_port_in_use_is_refused() -> None:
    with (
        PrometheusListener(0) as listener,
        pytest.raises(InputError, match=r"127\.0\.0\.1:\d+ cannot be had .* 0 for any"),
    ):
        PrometheusListener(listener.port)


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"not installed: pip install headgate\[prometheus\]"):
        PrometheusListener(0)
