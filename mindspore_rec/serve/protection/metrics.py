# SPDX-License-Identifier: Apache-2.0
"""Metrics of a server, in the text format of Prometheus.

Needs prometheus_client (extra `serving`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "Metrics"]

logger = logging.getLogger("mindspore_rec")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (
    0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_ROWS = tuple(float(1 << i) for i in range(14))
_PREFIX = "mindspore_rec_serving_"

# For each statistic of a table, a tuple: name of the metric, whether the metric only grows, help
# text.
_OF_TABLES = {
    "rows": ("table_rows", False, "Rows in all tiers."),
    "row_bytes": ("table_row_bytes", False, "Bytes of memory for rows, room for growth included."),
    "index_bytes": ("table_index_bytes", False, "Bytes of memory for the index of keys."),
    "host_rows": ("table_host_rows", False, "Rows in host memory, where there are tiers below."),
    "evaluated_keys": ("table_keys", True, "Distinct keys of requests, where there are tiers."),
    "evaluation_wait_seconds": ("table_wait_seconds", True, "Time that lookups waited for tiers."),
    "queued_rows": ("table_queued_rows", False, "Rows on their way from host memory to a tier."),
}
_SCRUBBED = (
    ("table_scrubbed_rows", True, "Rows that were compared with their digests."),
    ("table_damaged_rows", False, "Rows that changed by themselves, as /status names them."),
)
_HITS = {"host": "evaluated_host_hits", "remote": "remote_hits", "ssd": "ssd_hits"}


class Metrics:
    """Counters for all protocols of a server, and the current state of the server's models.

    If PROMETHEUS_MULTIPROC_DIR names an empty directory that the processes of one server share, the
    counters are sums over these processes. The metrics of a model come only from the process that
    answers the request for metrics. Any thread may call the methods.

    Raises:
        ValueError: PROMETHEUS_MULTIPROC_DIR does not name a directory.

    Example:
        >>> metrics = Metrics()
        >>> metrics.answered("http", "infer", "200", 0.002)
        >>> print(metrics.text().decode().splitlines()[2])
        mindspore_rec_serving_requests_total{code="200",operation="infer",protocol="http"} 1.0
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if directory is not None and not os.path.isdir(directory):
            raise ValueError(f"PROMETHEUS_MULTIPROC_DIR must be a directory, got {directory!r}")
        self._several = directory is not None
        made: dict[str, Any] = {"registry": self._registry}
        gauge = {**made, "multiprocess_mode": "livesum"}
        self._requests = Counter(
            _PREFIX + "requests", "Requests that were answered, refused ones too.",
            ["protocol", "operation", "code"], **made,
        )  # fmt: skip
        self._seconds = Histogram(
            _PREFIX + "request_seconds", "Time from a request's head to the end of its answer.",
            ["protocol", "operation"], buckets=_SECONDS, **made,
        )  # fmt: skip
        self._refused = Counter(
            _PREFIX + "refused",
            "Requests and connections that were refused by a limit or for want of a token.",
            ["protocol", "reason"], **made,
        )  # fmt: skip
        self._under_way = Gauge(
            _PREFIX + "requests_under_way", "Requests that are not answered yet.", ["protocol"],
            **gauge,
        )  # fmt: skip
        self._waiting = Gauge(
            _PREFIX + "queue_requests", "Requests that wait for the network.", ["model"], **gauge
        )
        self._rows = Histogram(
            _PREFIX + "batch_rows", "Rows of a call of the network.", ["model"], buckets=_ROWS,
            **made,
        )  # fmt: skip
        self._together = Histogram(
            _PREFIX + "batch_requests", "Requests of a call of the network.", ["model"],
            buckets=_ROWS[:11], **made,
        )  # fmt: skip
        self._children: dict[tuple[Any, ...], Any] = {}
        self._models = _Models()

    # ---- reports of the protocols

    def began(self, protocol: str) -> None:
        """Count the beginning of a request; `ended` counts its end."""
        self._child(self._under_way, protocol).inc()

    def answered(self, protocol: str, operation: str, code: str, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            protocol: 'http' or 'grpc'.
            operation: one of a few names such as 'infer' and 'status'.
            code: status of the answer, such as '200' or 'OK'.
            seconds: duration of the request.
        """
        self._child(self._requests, protocol, operation, code).inc()
        self._child(self._seconds, protocol, operation).observe(seconds)

    def ended(self, protocol: str) -> None:
        """Subtract 1 from a protocol's number of requests in progress."""
        self._child(self._under_way, protocol).dec()

    def refused(self, protocol: str, reason: str) -> None:
        """Count a refused request or connection.

        Args:
            protocol: 'http' or 'grpc'.
            reason: 'token', 'role', 'busy', 'draining', 'head', 'time', 'connections' or
                'malformed'.
        """
        self._child(self._refused, protocol, reason).inc()

    def of_batches(self, model: str) -> Callable[[int, int, int], None]:
        """Return a function for the argument `observe` of `Batcher`.

        The function records the requests and rows of each call, and the number of waiting requests.
        """
        waiting, rows = self._waiting.labels(model), self._rows.labels(model)
        together = self._together.labels(model)

        def observe(requests: int, in_rows: int, still_waiting: int) -> None:
            together.observe(requests)
            rows.observe(in_rows)
            waiting.set(still_waiting)

        return observe

    def _child(self, metric: Any, *labels: str) -> Any:
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    # ---- read when metrics are asked for

    def watch(self, model: str, predictor: Any) -> None:
        """Include the state of a predictor in all later metrics, under the name of its model.

        The second version of a model is shown as 'name#2'.
        """
        self._models.add(model, predictor)

    def forget(self, predictor: Any) -> None:
        """Omit the state of a predictor from all later metrics."""
        self._models.remove(predictor)

    def text(self) -> bytes:
        """Return all metrics in the format of `CONTENT_TYPE`."""
        counted = self._registry
        if self._several:
            counted = CollectorRegistry()
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        read = CollectorRegistry()
        read.register(self._models)
        return generate_latest(counted) + generate_latest(read)


class _Models(Collector):
    """Prometheus collector that reads the states of the models' predictors."""

    def __init__(self) -> None:
        self._predictors: dict[str, Any] = {}
        self._lock = threading.Lock()

    def add(self, model: str, predictor: Any) -> None:
        with self._lock:
            name, number = model, 1
            while name in self._predictors:
                number += 1
                name = f"{model}#{number}"
            self._predictors = {**self._predictors, name: predictor}

    def remove(self, predictor: Any) -> None:
        with self._lock:
            rest = {n: each for n, each in self._predictors.items() if each is not predictor}
            self._predictors = rest

    def describe(self) -> Iterator[Metric]:
        return iter(())  # nothing is read to register it

    def collect(self) -> Iterator[Metric]:
        families = _Families()
        for name, predictor in self._predictors.items():
            try:
                _add_model(families, name, predictor)
            except Exception:  # closed meanwhile, or a tier is away: other models are shown
                logger.warning("the metrics of model '%s' cannot be read", name, exc_info=True)
        return iter(families.by_name.values())


class _Families:
    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def add(
        self, name: str, text: str, labels: dict[str, str], value: float, grows: bool = False
    ) -> None:
        """Add a sample."""
        if name not in self.by_name:
            kind = CounterMetricFamily if grows else GaugeMetricFamily
            self.by_name[name] = kind(_PREFIX + name, text, labels=list(labels))
        self.by_name[name].add_metric(list(labels.values()), value)


def _add_model(families: _Families, name: str, predictor: Any) -> None:
    status = predictor.status()
    model = {"model": name}
    for what, text, value, grows in (
        ("version", "Training steps of the state that answers.", status.version, False),
        ("lag_deltas", "Newer deltas in the directory.", status.lag, False),
        ("age_seconds", "Time since the trainer took that state.", status.age_seconds, False),
        ("deltas_applied", "Deltas applied.", status.deltas_applied, True),
        ("fulls_loaded", "Full checkpoints loaded.", status.fulls_loaded, True),
        (
            "following_failed",
            "1 where a newer state cannot be applied or noticed; /status says why.",
            float(status.error is not None),
            False,
        ),
    ):
        families.add(f"model_{what}", text, model, value, grows)
    if status.scrub is not None:
        for table, figures in status.scrub["tables"].items():
            labels = {**model, "table": table}
            for metric, grows, text in _SCRUBBED:
                families.add(metric, text, labels, figures[metric.removeprefix("table_")], grows)
    if status.looked_seconds is not None:
        text = "Time since the run was last looked at."
        families.add("model_looked_seconds", text, model, status.looked_seconds)
    families.add(
        "model_following", "1 where newer states are applied.", model, float(status.following)
    )
    if status.watermark is not None:
        text = "Newest event time in the state, seconds since 1970."
        families.add("model_watermark_seconds", text, model, status.watermark)
    shared = getattr(predictor, "shared_bytes", None)
    if shared is not None:
        families.add("model_shared_bytes", "Memory that all processes share.", model, shared)
    read = getattr(predictor, "table_stats", dict)
    for table, stats in read().items():
        labels = {**model, "table": table}
        for statistic, (metric, grows, text) in _OF_TABLES.items():
            if statistic in stats:
                families.add(metric, text, labels, stats[statistic], grows)
        if "evaluated_keys" not in stats:
            continue
        for tier, statistic in _HITS.items():
            if statistic in stats:
                text = "Rows found in a tier."
                families.add("table_hits", text, {**labels, "tier": tier}, stats[statistic], True)
        for tier in ("remote", "ssd"):
            for part in ("rows", "disk_bytes", "index_bytes"):
                if f"{tier}_{part}" in stats:
                    text = f"{part.replace('_', ' ')} of a tier below host memory.".capitalize()
                    of_tier = {**labels, "tier": tier}
                    families.add(f"table_tier_{part}", text, of_tier, stats[f"{tier}_{part}"])
