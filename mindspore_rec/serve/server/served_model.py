# SPDX-License-Identifier: Apache-2.0
"""One model of a server, for all protocols."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.digests.state import RowDigests, StateDigests
from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import InferRequest, RawColumns
from mindspore_rec.serve.protocol.request_error import RequestError
from mindspore_rec.serve.server.batcher import Answer, Answers, Batcher
from mindspore_rec.serve.server.model_reports import Statistics

if TYPE_CHECKING:
    from mindspore_rec.serve.protection.metrics import Metrics

__all__ = ["Served", "ServedModel"]

_AGE_SECONDS = 1.0


class Served(Answers, Protocol):
    """Protocol for the predictors of a server; `Predictor` implements this protocol."""

    @property
    def features(self) -> Any:
        """Feature pipeline of the predictor; None if the predictor does not accept raw columns."""

    @property
    def raw_columns(self) -> list[str] | None:
        """Names of the raw columns that the predictor reads; None if any columns are allowed."""

    def status(self) -> Status:
        """Return the status of the served state."""

    def digests(self, parts: int = 1) -> StateDigests:
        """Return the digest of each table."""

    def row_digests(self, table: str, part: int = 0, parts: int = 1) -> RowDigests:
        """Return the digests of the rows in one part of a table."""

    def table_stats(self) -> dict[str, dict[str, Any]]:
        """Return statistics of each table, including the table's number of rows."""

    def close(self) -> None:
        """Stop."""


class ServedModel:
    """A model that answers requests of limited size.

    Args:
        name: name of the model in requests.
        predictor: predictor that answers the requests.
        max_rows: see `Batcher`; `max_rows` also limits the rows of one request. 0: no limit.
        metrics: object that publishes the model's metrics until the model is closed. Default: none.

    Attributes:
        inputs, outputs: inputs and outputs of the model's network.
        max_rows: the argument `max_rows`.
        statistics: counters of the model's requests.
        limits: size limits of a request.
        raw: raw columns that a request may contain instead of inputs; None if no raw columns are
            accepted.

    Raises:
        ValueError: the inputs of the predictor's network are not known.
    """

    def __init__(
        self, name: str, predictor: Served, max_rows: int, metrics: Metrics | None = None
    ) -> None:
        if predictor.inputs is None:
            raise ValueError(
                "the inputs of the network must be known: give --input name:datatype:shape for "
                "each, or builder_inputs to Publication, or let the network's builder call "
                "set_inputs"
            )
        self.name = name
        self.inputs: Sequence[TensorSpec] = predictor.inputs
        self.outputs: Sequence[TensorSpec] = predictor.outputs or ()
        self.limits = Limits.of(predictor.inputs, max_rows)
        self.raw: RawColumns | None = None
        if predictor.features is not None:
            self.raw = RawColumns(predictor.raw_columns, predictor.features.list_columns)
            names = self.raw.names
            self.limits = self.limits.with_columns(None if names is None else len(names))
        self._saved: tuple[float, float] | None = None  # time of the last reading, and its result
        self._predictor = predictor
        self._metrics = metrics
        observe = None
        if metrics is not None:
            observe = metrics.of_batches(name)
            metrics.watch(name, predictor)
        self.max_rows = max_rows
        self.statistics = Statistics()
        self.batcher = Batcher(predictor, max_rows, observe, self.statistics)

    def status(self) -> Status:
        """Return the status of the served state."""
        return self._predictor.status()

    @property
    def age_seconds(self) -> float:
        """Age of the served state in seconds since its checkpoint was saved.

        Clients such as load balancers often read `age_seconds`. Reading the status takes much
        longer than returning a stored age, so the status is read at most once per second.
        """
        now = time.monotonic()
        if self._saved is None or now - self._saved[0] > _AGE_SECONDS:
            self._saved = now, time.time() - self.status().age_seconds
        return time.time() - self._saved[1]

    def digests(self, parts: int = 1) -> StateDigests:
        """Return the digest of each table; for arguments and errors, see `Predictor`."""
        return self._predictor.digests(parts)

    def row_digests(self, table: str, part: int, parts: int) -> RowDigests:
        """Return the digests of the rows in one part of a table; see `Predictor.row_digests`."""
        return self._predictor.row_digests(table, part, parts)

    def rows_of(self, table: str) -> int:
        """Return the number of rows of a table; 0 for an unknown table."""
        return int(self._predictor.table_stats().get(table, {"rows": 0})["rows"])

    def metadata(self) -> dict[str, Any]:
        """Return the model metadata of the Open Inference Protocol."""
        status = self.status()
        more: dict[str, Any] = {} if self.raw is None else {"columns": self.raw.names}
        ragged = {spec.name: spec.offsets for spec in self.inputs if spec.offsets is not None}
        if ragged:
            more["offsets"] = ragged
        return {
            "name": self.name,
            "versions": [str(status.version)],
            "platform": "mindspore_rec",
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "parameters": {"lag": status.lag, "age_seconds": status.age_seconds, **more},
        }

    async def infer(self, asked: InferRequest) -> Answer:
        """Return all outputs, and the version of the state from which the outputs were computed.

        Raises:
            BusyError: too many requests are waiting already, or the model is being closed.
            RequestError: a column is of a type that no feature reads.
            ValueError, RuntimeError: the same errors as from `Predictor.predict`.
        """
        begin, failed = time.perf_counter_ns(), True
        try:
            answer = await self.batcher.submit_from_loop(asked.inputs)
            failed = False
            return answer
        except TypeError as error:
            if not isinstance(asked.inputs, pa.RecordBatch):
                raise
            raise RequestError(str(error)) from None
        finally:
            self.statistics.answered(time.perf_counter_ns() - begin, failed)

    def close(self) -> None:
        """Answer all requests that were received, and then close the predictor."""
        self.batcher.close()
        if self._metrics is not None:
            self._metrics.forget(self._predictor)
        self._predictor.close()
