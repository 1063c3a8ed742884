# SPDX-License-Identifier: Apache-2.0
"""Run a network without MindSpore: native lookups, and ONNX Runtime for the other operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.network.pooling import pooled
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.network.shared_lock import SharedLock
from mindspore_rec.common.rows.served_table import ServedTable
from mindspore_rec.common.rows.table_scope import own_scope
from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.load_tables import check_tables, check_whole_rows, load_tables
from mindspore_rec.common.run.matching import matched
from mindspore_rec.common.run.network_file import Lookup, NetworkFile

__all__ = ["OnnxRunner"]

_FATAL = 4  # of ONNX Runtime's log, which else warns of each weight that is an input


class OnnxRunner(Runner):
    """Network that ONNX Runtime runs. Any number of threads may call one runner at the same time.

    A call reads rows and dense parameters under a lock that concurrent calls share. The outputs are
    computed after the lock is released. Dense parameters are inputs of the model, so that a delta
    can replace the parameters without compiling the model again.

    Args:
        network: the network.
        tables: dict from name to table of the network. `close` does not close the tables. Default:
            new tables without rows.
        threads: number of threads that compute one call. Default: 1.
        features: as `Runner.features`. Default: None.

    Raises:
        ImportError: ONNX Runtime is not installed.
        CheckpointError: ONNX Runtime refuses the file.
    """

    name = "onnxruntime"

    def __init__(
        self,
        network: NetworkFile,
        tables: Mapping[str, Any] | None = None,
        threads: int = 1,
        features: FeaturePipeline | None = None,
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(f"{error}: {pip_install('serving')}") from error
        self._value = onnxruntime.OrtValue.ortvalue_from_numpy
        self._dense = _session(onnxruntime, network, network.dense, threads)
        self._ids = _session(onnxruntime, network, network.ids, 1) if network.ids else None
        self.lock = SharedLock()
        self.inputs = network.inputs
        self.features = features
        self._outputs = network.outputs
        self.parameters = network.parameters
        self._weights: dict[str, Any] = {}
        self._lookups = network.lookups
        input_names = {each.name for each in self._dense.get_inputs()}
        self._plain = [spec.name for spec in network.inputs if spec.name in input_names]
        self._names = [each.name for each in self._dense.get_outputs()]
        self._ids_inputs: set[str] = set()
        self._ids_names: list[str] = []
        if self._ids is not None:
            self._ids_inputs = {each.name for each in self._ids.get_inputs()}
            self._ids_names = [each.name for each in self._ids.get_outputs()]
        self._owned = tables is None
        if tables is None:
            tables = _tables(network)
        self.tables = tables

    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Look up the rows, and return a function that computes the outputs from the rows."""
        assert self.inputs is not None
        inputs = {spec.name: each for spec, each in zip(self.inputs, arrays, strict=True)}
        if self._ids is not None:
            feeds = {name: inputs[name] for name in self._ids_inputs}
            inputs |= zip(self._ids_names, self._ids.run(self._ids_names, feeds), strict=True)
        values = dict(self.weights())
        for name in self._plain:
            values[name] = self._value(inputs[name])
        for lookup in self._lookups:
            values[lookup.result] = self._value(self._rows(lookup, inputs))

        def compute() -> list[np.ndarray]:
            outputs = self._dense.run_with_ort_values(self._names, values)
            return [each.numpy() for each in outputs]

        return compute

    def weights(self) -> Mapping[str, Any]:
        """Return a dict from each dense parameter's name to its ONNX Runtime value."""
        return self._weights

    def _rows(self, lookup: Lookup, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        ids = inputs[lookup.ids]
        tables = [self.tables[name] for name in lookup.tables]
        if lookup.grouped:
            rows = np.empty((*ids.shape, tables[0].dim), np.float32)
            for column, table in enumerate(tables):
                keys = np.ascontiguousarray(ids[..., column])
                rows[..., column, :] = table.read_rows(keys, lookup.padding_key)
            return rows
        rows = tables[0].read_rows(ids, lookup.padding_key)
        if lookup.combiner is None:
            return rows
        offsets = None if lookup.offsets is None else inputs[lookup.offsets]
        weights = None if lookup.weights is None else inputs[lookup.weights]
        return pooled(rows, ids, lookup, offsets, weights)

    def specs_of_outputs(self) -> tuple[TensorSpec, ...] | None:
        """Return the specs of the network's outputs, as read from the network's file."""
        return self._outputs

    def load(self, chain: Sequence[Entry]) -> None:
        """Load a state into tables and parameters."""
        last = chain[-1]
        check_tables(self.tables, last)
        values = matched(self.parameters, read_arrays(last.path / DENSE), last.path / DENSE)
        check_whole_rows(list(self.tables), chain)
        with self.lock.writing():
            load_tables(self.tables, chain)
            self.set_parameters(values)

    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Replace the values of the parameters. Calls in flight use the old values."""
        self._weights = self.as_weights(values)

    def as_weights(self, values: Sequence[tuple[Any, np.ndarray]]) -> dict[str, Any]:
        """Return a dict from name to ONNX Runtime value, with copies of the values."""
        return {
            spec.name: self._value(np.array(array, spec.dtype, order="C")) for spec, array in values
        }


def _session(onnxruntime: Any, network: NetworkFile, model: bytes, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own kinds, which have no public base
        raise CheckpointError(f"{network.directory}: ONNX Runtime refuses it: {error}") from error


def _tables(network: NetworkFile) -> dict[str, ServedTable]:
    tables: dict[str, ServedTable] = {}
    try:
        with own_scope():
            for name, (arguments, key_dtype) in network.tables.items():
                tables[name] = ServedTable(arguments, key_dtype)
    except Exception as error:
        for table in tables.values():
            table.close()
        raise CheckpointError(f"{network.directory} has a table that cannot be: {error}") from error
    return tables
