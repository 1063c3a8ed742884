# SPDX-License-Identifier: Apache-2.0
"""Configuration and statistics of a model, in the format that Triton's clients read.

Source: https://github.com/triton-inference-server/server, docs/protocol, extensions
model_configuration and statistics; https://github.com/triton-inference-server/common,
protobuf/model_config.proto.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mindspore_rec.common.columns.tensors import TensorSpec
    from mindspore_rec.serve.server.served_model import ServedModel

__all__ = ["Statistics", "configuration", "statistics"]


class Statistics:
    """Counts of a model's requests, and sums of their durations in nanoseconds. Any thread may call
    the methods.

    Example:
        >>> counted = Statistics()
        >>> counted.executed([1000, 3000], 7, 500)
        >>> counted.answered(4500, failed=False)
        >>> found = counted.to_json()
        >>> found["inference_count"], found["execution_count"]
        (7, 1)
        >>> found["inference_stats"]["queue"]
        {'count': 2, 'ns': 4000}
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = {name: [0, 0] for name in ("success", "fail", "queue", "compute_infer")}
        self._rows = self._executions = 0
        self._last: float = 0.0

    def executed(self, waited: list[int], rows: int, took: int) -> None:
        """Count a call of the network.

        Args:
            waited: for each request of the call, nanoseconds that the request waited.
            rows: number of rows in all requests of the call together.
            took: duration of the call in nanoseconds.
        """
        with self._lock:
            self._last = time.time()
            self._executions += 1
            self._rows += rows
            of_all = {"queue": sum(waited), "compute_infer": took * len(waited)}
            for name, nanoseconds in of_all.items():
                self._sums[name][0] += len(waited)
                self._sums[name][1] += nanoseconds

    def answered(self, took: int, failed: bool) -> None:
        """Count a request.

        Args:
            took: nanoseconds from request to answer, without the time to read the request and to
                write the response.
            failed: whether the answer is an error.
        """
        with self._lock:
            sums = self._sums["fail" if failed else "success"]
            sums[0] += 1
            sums[1] += took

    def to_json(self) -> dict[str, Any]:
        """Return the counters in the format of Triton's statistics extension."""
        with self._lock:
            return {
                "last_inference": int(self._last * 1000),
                "inference_count": self._rows,
                "execution_count": self._executions,
                "inference_stats": {
                    name: {"count": count, "ns": ns} for name, (count, ns) in self._sums.items()
                },
            }


def statistics(model: ServedModel) -> dict[str, Any]:
    """Return the statistics that this process has counted for a model since it was loaded."""
    version = str(model.status().version)
    return {"name": model.name, "version": version, **model.statistics.to_json()}


def configuration(model: ServedModel) -> dict[str, Any]:
    """Return the configuration of a model, with the field names of `ModelConfig`.

    `max_batch_size` is the maximum number of rows in a request, and `dims` is the shape of one row.
    If the number of rows has no limit, or the first dimension of an input or output is not the
    number of rows, `max_batch_size` is 0 and `dims` is the shape of a whole array.
    """
    specs = (*model.inputs, *model.outputs)
    batched = model.max_rows > 0 and all(
        spec.shape[0] == -1 and spec.offsets is None for spec in specs
    )
    offsets = {spec.offsets for spec in model.inputs}
    batched = batched and not offsets - {None}

    def described(spec: TensorSpec) -> dict[str, Any]:
        dims = spec.shape[1:] if batched else spec.shape
        return {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": list(dims)}

    return {
        "name": model.name,
        "platform": "mindspore_rec",
        "backend": model.status().runtime,
        "max_batch_size": model.max_rows if batched else 0,
        "input": [described(spec) for spec in model.inputs],
        "output": [described(spec) for spec in model.outputs],
    }
