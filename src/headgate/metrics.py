"""Prometheus metrics of a running query, as an option: ``pip install headgate[prometheus]``.

``PrometheusListener`` takes the progress of every batch and answers scrapes on a port of its own.

=====================================  =======  ======================================================================
metric                                 type     meaning
=====================================  =======  ======================================================================
headgate_batches_total                 counter  batches committed since the listener started
headgate_rows_total                    counter  rows read
headgate_late_rows_total               counter  rows behind the watermark
headgate_rejected_rows_total           counter  rows with a null or wrongly typed key
headgate_moves_total                   counter  key groups and single keys that changed slot
headgate_moved_groups_total            counter  key groups that changed slot
headgate_moved_keys_total              counter  single keys that changed slot
headgate_copied_bytes_total            counter  bytes of state copied for moved key groups
headgate_phase_seconds_total{phase}    counter  seconds spent per phase of a batch
headgate_batch                         gauge    the last batch committed
headgate_batch_rows                    gauge    its rows
headgate_batch_seconds{phase}          gauge    its seconds, per phase
headgate_state_rows                    gauge    keys with state
headgate_state_bytes                   gauge    bytes of state
headgate_skew                          gauge    highest load of a slot / mean load
headgate_theta_max                     gauge    greatest distance of a slot's load from the mean, as a share of it
headgate_slots                         gauge    slots
headgate_slot_seconds{slot}            gauge    seconds a slot was busy in the last batch
headgate_slot_rows{slot}               gauge    rows a slot had in the last batch
headgate_table_size                    gauge    entries of the routing table
headgate_migrations                    gauge    moves that are not over
headgate_left_behind_rows              gauge    rows of state with a slot that no longer owns them
headgate_watermark_seconds             gauge    the watermark, in seconds since 1970 (UTC)
=====================================  =======  ======================================================================

All of them have a label ``job``. Slots that are gone are no longer reported. What a batch's progress does not say stays
as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from headgate.errors import InputError

ADDRESS = "127.0.0.1"
"""Where scrapes are answered unless told otherwise: this machine only, because the numbers need no password."""

MICROSECONDS = 1_000_000
"""Progress has the watermark in microseconds, Prometheus wants seconds."""

_COUNTERS = {
    "rows": "rows read",
    "late_rows": "rows behind the watermark",
    "rejected_rows": "rows with a null or wrongly typed key",
    "moves": "key groups and single keys that changed slot",
    "moved_groups": "key groups that changed slot",
    "moved_keys": "single keys that changed slot",
    "copied_bytes": "bytes of state copied for moved key groups",
}

_GAUGES = {
    "batch": "the last batch committed",
    "state_rows": "keys with state",
    "state_bytes": "bytes of state",
    "skew": "highest load of a slot / mean load",
    "theta_max": "greatest distance of a slot's load from the mean, as a share of it",
    "slots": "slots",
    "table_size": "entries of the routing table",
    "migrations": "moves that are not over",
    "left_behind_rows": "rows of state with a slot that no longer owns them",
}


class PrometheusListener:
    """Serves the progress of a query to Prometheus, from when it is made until ``close``.

    ``port`` 0 takes a free one; ``port`` of the listener says which. Without a ``registry`` of the caller's the
    listener has one of its own, so several queries of one process can each have a listener. It may be
    called from any thread.

    Raises ``InputError`` where ``prometheus_client`` is not installed or the port cannot be had.
    """

    def __init__(self, port: int, addr: str = ADDRESS, registry: Any = None, *, job: str = "") -> None:
        client = _client()
        self.registry = client.CollectorRegistry() if registry is None else registry
        self._job = job
        self._slots = 0
        self._counters = {name: self._counter(client, name, text) for name, text in _COUNTERS.items()}
        self._batches = self._counter(client, "batches", "batches committed since the listener started")
        self._phases = self._counter(client, "phase_seconds", "seconds spent per phase of a batch", "phase")
        self._gauges = {name: self._gauge(client, name, text) for name, text in _GAUGES.items()}
        self._batch_rows = self._gauge(client, "batch_rows", "rows of the last batch")
        self._batch_seconds = self._gauge(client, "batch_seconds", "seconds of the last batch, per phase", "phase")
        self._slot_gauges = {
            "slot_seconds": self._gauge(client, "slot_seconds", "seconds a slot was busy in the last batch", "slot"),
            "slot_rows": self._gauge(client, "slot_rows", "rows a slot had in the last batch", "slot"),
        }
        self._watermark = self._gauge(client, "watermark_seconds", "the watermark, in seconds since 1970 (UTC)")
        try:
            self._server, self._thread = client.start_http_server(port, addr=addr, registry=self.registry)
        except OSError as error:
            raise InputError(
                f"metrics need a free port, and {addr}:{port} cannot be had ({error}): choose another, or 0 for any"
            ) from error
        self.addr = addr
        self.port = int(self._server.server_port)

    def _counter(self, client: ModuleType, name: str, text: str, *labels: str) -> Any:
        return client.Counter(f"headgate_{name}", text, ("job", *labels), registry=self.registry)

    def _gauge(self, client: ModuleType, name: str, text: str, *labels: str) -> Any:
        return client.Gauge(f"headgate_{name}", text, ("job", *labels), registry=self.registry)

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Take over what the progress of a batch says; keys that are missing or None are passed over."""
        job = self._job
        self._batches.labels(job).inc()
        for name, counter in self._counters.items():
            if progress.get(name) is not None:
                counter.labels(job).inc(progress[name])
        for name, gauge in self._gauges.items():
            if progress.get(name) is not None:
                gauge.labels(job).set(progress[name])
        if progress.get("rows") is not None:
            self._batch_rows.labels(job).set(progress["rows"])
        for phase, seconds in (progress.get("seconds") or {}).items():
            self._phases.labels(job, phase).inc(max(seconds, 0.0))
            self._batch_seconds.labels(job, phase).set(seconds)
        self._per_slot(progress)
        if progress.get("watermark_micros") is not None:
            self._watermark.labels(job).set(progress["watermark_micros"] / MICROSECONDS)

    def _per_slot(self, progress: Mapping[str, Any]) -> None:
        held = 0
        for name, gauge in self._slot_gauges.items():
            values: Sequence[float] = progress.get(name) or ()
            held = max(held, len(values))
            for slot, value in enumerate(values):
                gauge.labels(self._job, str(slot)).set(value)
        if not held:
            return
        for slot in range(held, self._slots):
            for gauge in self._slot_gauges.values():
                if (self._job, str(slot)) in gauge._metrics:
                    gauge.remove(self._job, str(slot))
        self._slots = held

    def close(self) -> None:
        """Stop answering, and give the port back. Closing twice does no harm."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> PrometheusListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _client() -> ModuleType:
    try:
        import prometheus_client
    except ImportError as error:
        raise InputError(
            "metrics need the package prometheus_client, which is not installed: pip install headgate[prometheus]"
        ) from error
    return prometheus_client
