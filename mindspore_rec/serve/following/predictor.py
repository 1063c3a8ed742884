# SPDX-License-Identifier: Apache-2.0
"""Predictor: predict with the newest state of a training run, and follow the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from mindspore_rec.common.checks import check_number
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.digests.digest import check_parts
from mindspore_rec.common.digests.state import RowDigests, StateDigests
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.rows.quantise import check_rows
from mindspore_rec.common.run.chain import Entry, entry_at
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.serve.following.catalog import ChainError
from mindspore_rec.serve.following.features import InputMaker
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.following.served_in_process import ServedInProcess
from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.following.tiers import check_tiers
from mindspore_rec.serve.network.opening import NetworkOpener

__all__ = ["Predictor"]

_MOST_SECONDS = 1e9
_ROWS_AT_ONCE = 64  # with one thread of ONNX Runtime, more rows at once do not make a row cheaper


class Predictor:
    """Predictor that uses the newest state of a run and applies new checkpoints as they appear.

    Predictions continue while files are read, checked and decoded. All tables and dense parameters
    change together, between two predictions, so no answer mixes two states. A checkpoint is never
    applied if its checksum is wrong or if it does not start from the present state. If a checkpoint
    is rejected, the last good state still answers requests, and `status().error` says why. The next
    valid checkpoint is applied as soon as it appears. If a delta that is needed was removed, a
    newer full checkpoint and the deltas after it replace the whole state. Predictions wait while
    the rows of a full checkpoint are copied. During the copy, the rows need twice as much memory as
    usual.

    The predictor's tables have values but no optimizer state. Any number of threads may predict.
    ONNX Runtime computes several predictions in parallel; MindSpore computes only one prediction at
    a time. `status().runtime` names the library in use, and `docs/serving.md` explains the choice.

    Args:
        path: a directory written by `RecCheckpoint` or by `save_checkpoint`.
        network: the Cell that computes predictions from inputs, or a function that makes the Cell.
            The Cell's tables and parameters must have the same names as in training. Default: the
            `builder` of `RecCheckpoint`.
        inputs: inputs of the network, `TensorSpec` objects or texts such as 'ids:INT64:-1,26'. If
            `inputs` is set, or the network calls `set_inputs`, one graph for all batch sizes is
            compiled at the start. Default: the inputs that were passed to the network's
            `set_inputs`. If the builder makes the network without `set_inputs`, the default is the
            `builder_inputs` of `RecCheckpoint`. If neither `inputs` nor `set_inputs` nor
            `builder_inputs` is set, the predictor accepts all inputs.
        follow: whether a thread applies new deltas. Default: True.
        poll_seconds: seconds between two checks for new deltas, above 0. Default: 0.1.
        wait_seconds: maximum time in seconds to wait for a first checkpoint, at least 0. Default:
            60.
        features: the FeaturePipeline, or the Schema, that makes the network's inputs from raw
            columns, as in training. The predictor copies the pipeline; the copy has the statistics
            of the served checkpoint. Default: the pipeline that `network` or the builder returns in
            the tuple `(cell, pipeline)`. Without a pipeline, the inputs are arrays.
        rows: number type of the tables' rows: 'float32', 'int8' or 'int4'. For 'int8' and 'int4',
            rows are quantized when a checkpoint or a delta is loaded. During training, the tables
            may have any number type. With 'int8' or 'int4', the network's tables must have no rows,
            no optimizer and no tiers. Default: 'float32'.
        tiers: `CacheConfig` with the tiers `remote` or `ssd`, which store each table's rows beyond
            `host_rows` or `host_bytes`. At the start, the predictor creates a new directory or new
            keys in Redis. At the end, the predictor removes the directory or the keys. A lookup
            does not move rows between tiers. Default: all rows are in host memory.
        scrub_seconds: target duration of a round in seconds. In a round, a thread compares each row
            once with the row's digest. The digests need 15 to 23 bytes per row, in addition to the
            rows. Damaged rows are logged as an error, and `status().scrub` contains the count of
            damaged rows. Default: 0, which means never.

    Attributes:
        inputs: a `TensorSpec` for each input of the network; None if the inputs are not known.
        outputs: outputs of the network, if `inputs` is known; a first dimension of -1 is the batch
            size.

    Raises:
        TypeError, ValueError: an argument is invalid; a file is damaged; tables or parameters do
            not match the checkpoint.
        TimeoutError: no checkpoint appeared within `wait_seconds`.
        OSError, ImportError, RemoteError: a directory cannot be read, or a tier cannot be opened.

    Example:
        >>> import tempfile
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> def network():
        ...     rows = HashEmbeddingLookup(4, ms.int64, name="doc.predictor")
        ...     return nn.SequentialCell(rows, nn.Flatten(), nn.Dense(8, 1))
        >>> net = network()
        >>> model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))
        >>> batch = np.array([[1, 2], [3, 4]]), np.array([[0], [1]], np.float32)
        >>> directory = tempfile.mkdtemp()
        >>> checkpoint = RecCheckpoint(directory, every_steps=2)
        >>> summary = model.online_train([batch] * 3, checkpoint, progress=False)
        >>> expected = model.predict(batch[0]).asnumpy()
        >>> with Predictor(directory, network, inputs=["input_data:INT64:-1,2"]) as predictor:
        ...     print(predictor.status().version)
        ...     print(np.allclose(predictor.predict(batch[0]), expected))
        3
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        network: Any = None,
        *,
        inputs: Sequence[TensorSpec | str] | None = None,
        follow: bool = True,
        poll_seconds: float = 0.1,
        wait_seconds: float = 60.0,
        features: FeaturePipeline | Schema | None = None,
        rows: str = "float32",
        tiers: CacheConfig | None = None,
        scrub_seconds: float = 0.0,
    ) -> None:
        poll_seconds = _seconds("poll_seconds", poll_seconds)
        if poll_seconds == 0:
            raise ValueError("poll_seconds must be above 0, got 0")
        wait_seconds = _seconds("wait_seconds", wait_seconds)
        if not isinstance(follow, bool):
            raise TypeError(f"follow must be a bool, got {follow!r}")
        if network is not None and not callable(network):  # a Cell is
            raise TypeError(f"network must be a Cell or a function, got {type(network).__name__}")
        if isinstance(features, Schema):
            features = features.pipeline
        if features is not None and not isinstance(features, FeaturePipeline):
            raise TypeError(f"features must be a FeaturePipeline, got {type(features).__name__}")
        check_rows(rows)
        tiers = check_tiers(tiers, rows)
        scrub_seconds = _seconds("scrub_seconds", scrub_seconds)
        opener = NetworkOpener(Path(path), network, inputs, features)
        served = ServedInProcess(opener, features, rows, tiers)
        run = FollowedRun(Path(path), served, wait_seconds, poll_seconds, scrub_seconds)
        self._begin(run, poll_seconds, follow)

    @classmethod
    def _of(cls, run: Any, poll_seconds: float) -> Predictor:
        """Return a predictor that answers from `run`, which has the methods of `FollowedRun`."""
        predictor = cls.__new__(cls)
        predictor._begin(run, poll_seconds, follow=True)
        return predictor

    def _begin(self, run: Any, poll_seconds: float, follow: bool) -> None:
        self._run = run
        self._poll_seconds = poll_seconds
        self._closed = threading.Event()
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._runner: Runner = run.runner
            self.inputs = self._runner.inputs
            self.outputs = self._runner.specs_of_outputs()
            self._maker = self._input_maker()
        except BaseException:
            run.close()
            raise
        if follow:
            events = poll_seconds, self._awake, self._closed
            self._thread = threading.Thread(
                target=run.follow, args=events, name="predictor", daemon=True
            )
            self._thread.start()

    @property
    def network(self) -> Any:
        """MindSpore's Cell that computes the predictions; None with ONNX Runtime."""
        return self._runner.network

    @property
    def features(self) -> FeaturePipeline | None:
        """Feature pipeline with the statistics of the served state; None without a pipeline."""
        return self._run.features

    @property
    def at_once(self) -> int:
        """Recommended number of parallel predictions; 1 with MindSpore."""
        return self._run.at_once

    @property
    def rows_at_once(self) -> int:
        """Maximum useful number of rows per prediction; more rows do not cut the time per row."""
        return 1 << 30 if self._runner.network is not None else _ROWS_AT_ONCE

    @property
    def raw_columns(self) -> list[str] | None:
        """Raw columns that the features read; None without features, or if the function `prepare`
        chooses the columns.
        """
        return None if self._maker is None else self._maker.columns

    # ---- predictions

    def predict(self, *inputs: Any) -> Any:
        """Return the network's output: an array, or a tuple of arrays if there are several outputs.

        Args:
            *inputs: arrays or Tensors, in the order of the network's arguments. For a key without a
                row, a lookup returns the table's default value. With `features`, the only input is
                the raw columns, as a dict of lists or arrays, a DataFrame or an Arrow RecordBatch.
                The label column may be missing.

        Raises:
            TypeError, ValueError: the network or a feature does not accept the inputs.
            RuntimeError: the network fails on the inputs, the predictor is closed, or an update was
                interrupted, so that the served state is incomplete.
        """
        outputs, _ = self.predict_versioned(*inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def predict_versioned(self, *inputs: Any) -> tuple[list[np.ndarray], int]:
        """Return all outputs, and the version (`Status.version`) of the state that was used.

        Args and Raises are the same as for `predict`.
        """
        if len(inputs) == 1 and _are_rows(inputs[0]):
            return self._predict_rows(inputs[0])
        arrays = self._runner.arrays(inputs)
        return self._run.run(lambda: self._start(arrays))

    def _predict_rows(self, inputs: Any) -> tuple[list[np.ndarray], int]:
        if self._maker is None:
            raise TypeError("inputs must be arrays, got raw columns: give the predictor features=")
        make, rows = self._maker, to_record_batch(inputs)

        def start() -> Callable[[], list[np.ndarray]]:
            features = self._run.features  # of the state that answers: nothing changes meanwhile
            assert features is not None
            return self._start(self._runner.arrays(make(features, rows, self._runner.tables)))

        return self._run.run(start)

    def _start(self, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        if self._closed.is_set():
            raise RuntimeError("the predictor is closed")
        return self._runner.start(arrays)

    # ---- checkpoints

    def apply(self, entry: Entry | str | os.PathLike[str]) -> None:
        """Apply a checkpoint: a delta that follows the present state, or a newer full checkpoint.

        Args:
            entry: the checkpoint, or its directory.

        Raises:
            ChainError: (a ValueError) the checkpoint is damaged, belongs to a different run, was
                already applied, is older than the served state, or does not start from the served
                state. The message names the file. Nothing has changed.
            FileNotFoundError: there is no checkpoint.
        """
        if not isinstance(entry, Entry):
            path = Path(entry)
            try:
                entry = entry_at(path)
            except ValueError as error:
                raise ChainError(path, str(error)) from error
        self._run.apply(entry)

    def wake(self) -> None:
        """Check for new checkpoints at once, in the thread that follows the run."""
        self._awake.set()

    def status(self) -> Status:
        """Return the status of the served state, including the state's age."""
        following = self._thread is not None and self._thread.is_alive()
        if not following:
            self._run.look()
        return self._run.status(following, self._poll_seconds)

    def digests(self, parts: int = 1) -> StateDigests:
        """Return each table's digest, which covers the table's rows in memory and in tiers.

        `digests` reads every row. Predictions from a table wait while the table's rows are read,
        and new checkpoints wait until all digests are complete.
        `python -m mindspore_rec.checkpoint verify --live` compares the digests of the served rows
        with the digests of the checkpoint's files. Digests of int8 and int4 rows cover the rows'
        scale, offset and codes.

        Args:
            parts: number of digests per table, 1 to 65,536. Each digest covers one part of the
                table's rows. Default: 1.

        Raises:
            ValueError: `parts` is out of range.
            NoStateError: (a RuntimeError) the served state is incomplete. NoStateError is also
                raised if several processes share the rows and a newer state arrives while rows are
                read.
        """
        check_parts(parts)
        return self._run.digests(parts)

    def row_digests(self, table: str, part: int = 0, parts: int = 1) -> RowDigests:
        """Return the keys in one part of a table, and the digest of each key's row.

        Args:
            table: name of the table.
            part: index of the part. Default: 0.
            parts: number of parts, see `digests`. Default: 1, which means one part with all rows.

        Raises:
            ValueError: there is no such table or part.
            NoStateError: see `digests`.
        """
        check_parts(parts, part)
        if table not in self._runner.tables:
            raise ValueError(f"table must be one of {sorted(self._runner.tables)}, got {table!r}")
        return self._run.row_digests(table, part, parts)

    def table_stats(self) -> dict[str, dict[str, Any]]:
        """Return each table's counts of rows, bytes and operations, from its `stats`."""
        return self._run.table_stats()

    @property
    def shared_bytes(self) -> int | None:
        """Bytes of the rows that a server's processes share; None if no rows are shared."""
        return self._run.shared_bytes

    def close(self) -> None:
        """Stop following the run; free the tiers, and the tables if the predictor created them."""
        self._closed.set()
        self._awake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._run.close()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- inside

    def _input_maker(self) -> InputMaker | None:
        features = self._run.features
        if features is None:
            return None
        if self.inputs is None:
            raise ValueError(
                "inputs must be known if there are features: pass inputs= (--input), or train with "
                "Publication(builder_inputs=), or let the network's builder call set_inputs"
            )
        return InputMaker(features, self.inputs)


def _are_rows(inputs: Any) -> bool:
    return isinstance(inputs, (Mapping, pa.RecordBatch, pa.Table, pd.DataFrame))


def _seconds(name: str, value: float) -> float:
    number = check_number(name, value)
    if not 0 <= number <= _MOST_SECONDS:
        raise ValueError(f"{name} must be in [0, {_MOST_SECONDS:.0f}] seconds, got {value}")
    return float(number)
