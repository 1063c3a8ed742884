# SPDX-License-Identifier: Apache-2.0
"""TableStats: statistics of tables during training, for TensorBoard and Prometheus.

All numbers from `table.stats()` are published. `_METRICS` describes the numbers that have a fixed
help text. A number that `_METRICS` does not describe is published as a gauge under its own name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.extras import pip_install
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["TableStats"]

_PREFIX = "mindspore_rec_table_"
_RATE = "inserts_per_second"

# Maps each key of stats() to two values: True if the number never falls, and a description of the
# number.
_METRICS: dict[str, tuple[bool, str]] = {
    "rows": (False, "Rows in memory."),
    "candidates": (False, "Keys that are counted and not admitted yet."),
    "row_bytes": (False, "Bytes of rows: metadata, values, optimizer state, room for growth."),
    "metadata_bytes": (False, "Bytes of row_bytes that are metadata."),
    "index_bytes": (False, "Bytes of the index from keys to rows."),
    "candidate_bytes": (False, "Bytes of the counters of keys that are not admitted yet."),
    "change_log_bytes": (False, "Bytes of the log of changed keys."),
    "digest_bytes": (False, "Bytes of the digests that are kept of rows."),
    "buffer_bytes": (False, "Bytes of buffers for batches and gradients."),
    "load_factor": (False, "Rows divided by entries of the index, between 0 and 1."),
    "state_width": (False, "Floats of optimizer state in a row."),
    "step": (False, "Optimizer steps of the table."),
    "event_time": (False, "Greatest event time so far, in seconds since the epoch."),
    "inserted": (True, "Rows inserted, those inserted again after eviction included."),
    "admitted": (True, "Keys that were admitted."),
    "rejected": (True, "Keys that were not admitted, counted once per batch."),
    "evicted": (True, "Rows evicted, for whatever reason."),
    "evicted_by_age": (True, "Rows evicted because they were not seen for too long."),
    "evicted_by_capacity": (True, "Rows evicted because the table was over its capacity."),
    "evicted_by_norm": (True, "Rows evicted because their norm was too small."),
    "erased": (True, "Rows removed by erase or clear."),
    "host_rows": (False, "Rows in host memory."),
    "host_capacity_rows": (False, "Capacity of host memory in rows."),
    "host_hits": (True, "Keys of training lookups found in host memory."),
    "host_misses": (True, "Keys of training lookups found in a lower tier."),
    "looked_up_keys": (True, "Distinct keys of training lookups."),
    "prefetched_rows": (True, "Rows promoted by prefetch before the step that looks them up."),
    "prefetch_wait_seconds": (True, "Time that steps waited for prefetched rows."),
    "lookup_wait_seconds": (True, "Time that lookups waited for rows of lower tiers."),
    "evaluated_keys": (True, "Distinct keys of lookups outside training."),
    "evaluated_host_hits": (True, "Keys of lookups outside training found in host memory."),
    "evaluated_below_hits": (True, "Keys of lookups outside training found in a lower tier."),
    "evaluation_wait_seconds": (True, "Time that lookups outside training waited for rows."),
    "written_down_rows": (True, "Rows demoted from host memory to lower tiers."),
    "queued_rows": (False, "Rows in the queue for demotion."),
    "below_rows": (False, "Rows that are only in lower tiers."),
    "failed_evictions": (True, "Parts of evictions that were postponed because a tier failed."),
    **{
        f"{tier}_{key}": (grows, text.format(where))
        for tier, where in (("remote", "the remote tier"), ("ssd", "the SSD tier"))
        for key, grows, text in (
            ("rows", False, "Rows in {}, stale copies of rows in higher tiers included."),
            ("hits", True, "Rows found in {}."),
            ("written_rows", True, "Rows written to {}."),
            ("spilled_rows", True, "Rows demoted from {} to the next tier."),
            ("read_bytes", True, "Bytes read from {}."),
            ("written_bytes", True, "Bytes written to {}."),
            ("disk_bytes", False, "Bytes of the files of {}."),
            ("index_bytes", False, "Bytes of memory of the index of {}."),
            ("buffer_bytes", False, "Bytes of buffers of {}."),
        )
    },
    _RATE: (False, "Rows inserted per second since the last report."),
}

# Metric names that differ from the keys of `stats()`. By Prometheus' convention, the name of a
# metric must contain the unit.
_NAMES = {"event_time": "event_time_seconds"}

_Numbers = dict[str, float]


class TableStats(Callback):
    """Callback that publishes the statistics of every table of the network during training.

    The statistics are the values of `table.stats()` and the number of rows inserted per second.
    `table.stats()` returns the numbers of rows, admissions, rejections and evictions, the bytes of
    each kind of memory, and the load factor. If the table has a cache, `table.stats()` also returns
    the number of rows and the traffic of each tier. At least one of `log_dir`, `prometheus_file`
    and `prometheus_port` is needed.

    * TensorBoard: scalars `<table>/<key of stats()>` over the training step. TensorBoard's format
      stores float32.
    * Prometheus: metrics such as `mindspore_rec_table_rows{table="..."}`. A number that never falls
      is published as a counter `..._total`, for use with Prometheus' `rate()`.

    The statistics are read between two training steps. During the training, the HTTP endpoint
    returns the latest statistics. The Prometheus file is not removed when the training ends.

    Args:
        every_steps: steps between two reports, at least 1. When the training ends, the callback
            reports once more. Default: 100.
        log_dir: directory for TensorBoard. Needs tensorboardX.
        prometheus_file: path of a `.prom` file in an existing directory, for the textfile collector
            of Prometheus' node exporter. Each report atomically replaces the previous file. Needs
            prometheus_client.
        prometheus_port: TCP port in [0, 65535] at which `/metrics` is served; 0 for any free port.
            Needs prometheus_client.
        prometheus_address: address that the server listens on. Default: '0.0.0.0', which means all
            interfaces.

    Attributes:
        port: port of the server; None while the server does not run.

    Raises:
        ImportError: an optional package is missing.
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range; also raised during training if the network has no
            table.
        OSError: raised during training if the server cannot listen on the port or the file cannot
            be written.

    Example:
        >>> import tempfile
        >>> callback = TableStats(every_steps=50, log_dir=tempfile.mkdtemp())
        >>> callback.every_steps
        50
    """

    def __init__(
        self,
        every_steps: int = 100,
        log_dir: str | os.PathLike[str] | None = None,
        prometheus_file: str | os.PathLike[str] | None = None,
        prometheus_port: int | None = None,
        prometheus_address: str = "0.0.0.0",
    ) -> None:
        super().__init__()
        self.every_steps = check_int("every_steps", every_steps, 1, (1 << 63) - 1)
        if log_dir is None and prometheus_file is None and prometheus_port is None:
            raise ValueError("one of log_dir, prometheus_file and prometheus_port must be given")
        self._log_dir = _path("log_dir", log_dir)
        self._make_writer = None if self._log_dir is None else _summary_writer()
        self._file = _prom_file(prometheus_file)
        self._requested_port = prometheus_port
        if prometheus_port is not None:
            self._requested_port = check_int("prometheus_port", prometheus_port, 0, 65535)
        self._address = prometheus_address
        if self._file is not None or prometheus_port is not None:
            _need_prometheus()
        self.port: int | None = None
        self._writer: Any = None
        self._server: Any = None
        self._latest: dict[str, _Numbers] = {}
        self._inserted: dict[str, float] = {}
        self._taken = 0.0
        self._reported_step = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Open the outputs, and store the initial values of the counters."""
        self._close()
        run = run_context.original_args()
        self._tables = tables_of(run.get("network") or run.train_network)
        if not self._tables:
            raise ValueError("TableStats: the network has no table of mindspore_rec")
        self._inserted.clear()
        self._take()
        self._reported_step = run.cur_step_num
        if self._make_writer is not None:
            self._writer = self._make_writer(str(self._log_dir))
        if self._requested_port is not None:
            self._serve(self._requested_port)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Report every `every_steps` steps."""
        step = run_context.original_args().cur_step_num
        if step % self.every_steps == 0:
            self._report(step)

    def on_train_end(self, run_context: RunContext) -> None:
        """Report the last step if it has not been reported yet, and close the outputs."""
        step = run_context.original_args().cur_step_num
        if step != self._reported_step:
            self._report(step)
        self._close()

    def __exit__(self, *error: Any) -> None:
        """If the training failed, close the outputs."""
        self._close()

    def _take(self) -> None:
        """Read the statistics of every table."""
        now = time.perf_counter()
        latest = {}
        for table in self._tables:
            numbers = {
                key: float(value)
                for key, value in table.stats().items()
                if isinstance(value, (int, float)) and not isinstance(value, bool)
            }
            inserted = numbers.get("inserted", 0.0)
            if table.name in self._inserted:
                seconds = max(now - self._taken, 1e-9)
                numbers[_RATE] = (inserted - self._inserted[table.name]) / seconds
            self._inserted[table.name] = inserted
            latest[table.name] = numbers
        self._taken = now
        self._latest = latest  # a new dict: the server's thread reads the old or the new dict

    def _report(self, step: int) -> None:
        self._take()
        self._reported_step = step
        if self._writer is not None:
            for table, numbers in self._latest.items():
                for key, value in numbers.items():
                    self._writer.add_scalar(f"{table}/{key}", value, step)
            self._writer.flush()
        if self._file is not None:
            from prometheus_client import write_to_textfile

            write_to_textfile(str(self._file), self._registry())

    def _registry(self) -> Any:
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self))
        return registry

    def _serve(self, port: int) -> None:
        from prometheus_client import start_http_server

        try:
            self._server = start_http_server(port, self._address, self._registry())
        except OSError as error:
            raise OSError(
                f"TableStats: prometheus_port {port} on {self._address} cannot be listened on: "
                f"{error}"
            ) from error
        self.port = self._server[0].server_port

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = self.port = None


class _Collector:
    """Collector for prometheus_client: the latest statistics, one metric family per key."""

    def __init__(self, owner: TableStats) -> None:
        self._owner = owner

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        latest = self._owner._latest
        for key in dict.fromkeys(key for numbers in latest.values() for key in numbers):
            grows, text = _METRICS.get(key, (False, f"'{key}' of the table's stats()."))
            family = (CounterMetricFamily if grows else GaugeMetricFamily)(
                _PREFIX + _NAMES.get(key, key), text, labels=["table"]
            )
            for table, numbers in latest.items():
                if key in numbers:
                    family.add_metric([table], numbers[key])
            yield family


def _path(argument: str, value: Any) -> Path | None:
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{argument} must be a path, got {value!r}")
    return None if value is None else Path(value)


def _prom_file(value: Any) -> Path | None:
    path = _path("prometheus_file", value)
    if path is None:
        return None
    if path.suffix != ".prom":
        raise ValueError(
            f"prometheus_file must end in .prom, or the node exporter passes it over, got {value}"
        )
    if not path.absolute().parent.is_dir():
        raise ValueError(f"prometheus_file must be in a directory that exists, got {value}")
    return path


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"log_dir needs tensorboardX: {pip_install('tensorboard')}") from error
    return SummaryWriter


def _need_prometheus() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "prometheus_file and prometheus_port need prometheus_client: "
            f"{pip_install('prometheus')}"
        ) from error
