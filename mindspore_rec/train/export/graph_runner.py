# SPDX-License-Identifier: Apache-2.0
"""Run a network with MindSpore: one graph for all batch sizes, recompiled after an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.tensors import TensorSpec, datatype_of
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.checkpoint.load import load_chain
from mindspore_rec.train.export.fair_lock import FairLock
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.graph.network_inputs import dynamic_tensor
from mindspore_rec.train.graph.spread import spread
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["GraphRunner", "Served"]


class GraphRunner(Runner):
    """Runs a network in evaluation mode with MindSpore, in one thread at a time.

    If an operator raises an error, for example for an id outside a vocabulary, a MindSpore graph
    can no longer return outputs. If an operator has raised an error, the runner recompiles the
    graph for the next call.

    Args:
        network: the network.
        inputs: inputs of the network. A size of -1 makes a dimension dynamic, so that one graph
            serves all sizes. If `inputs` is None, the inputs are unknown, and `CellCaller` decides
            which graphs to compile.
        features: see `Runner.features`. Default: None.
        owned: True if `close` frees the network's tables. Default: False.

    Example:
        >>> run = GraphRunner(nn.Dense(3, 2), (TensorSpec("x", "FP32", (-1, 3)),))
        >>> [run(np.ones((rows, 3)))[0].shape for rows in (1, 5)]
        [(1, 2), (5, 2)]
    """

    name = "mindspore"

    def __init__(
        self,
        network: nn.Cell,
        inputs: Sequence[TensorSpec] | None,
        features: FeaturePipeline | None = None,
        owned: bool = False,
    ) -> None:
        self.network = network
        self.inputs = None if inputs is None else tuple(inputs)
        self.features = features
        self.lock = FairLock()
        self.tables = {table.name: table for table in tables_of(network)}
        self.parameters = dense_parameters(network)
        self._owned = owned
        self._caller = self._new_caller()

    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Run the network immediately, and return a function that returns the outputs."""
        tensors = [Tensor.from_numpy(_writable(each)) for each in arrays]
        try:
            outputs = self._caller(False, *tensors)
        except Exception:
            self._caller = self._new_caller()
            raise
        together = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        copies = [np.array(each.asnumpy()) for each in together]
        return lambda: copies

    def specs_of_outputs(self) -> tuple[TensorSpec, ...] | None:
        """Compile the graph, and return the specs of its outputs."""
        if self.inputs is None:
            return None
        specs = self.inputs
        with self.lock.reading():
            one, three = (self(*(spec.zeros(rows) for spec in specs)) for rows in (1, 3))
        names = ["output"] if len(one) == 1 else [f"output_{i}" for i in range(len(one))]
        return tuple(
            TensorSpec(
                name,
                datatype_of(a.dtype),
                tuple(m if m == n else -1 for m, n in zip(a.shape, b.shape, strict=True)),
            )
            for name, a, b in zip(names, one, three, strict=True)
        )

    def load(self, chain: Sequence[Entry]) -> None:
        """Load the state of a checkpoint chain into the network."""
        with self.lock.writing():
            load_chain(self.network, chain)

    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Overwrite Parameters in place, because the compiled graph still uses their memory."""
        for parameter, array in values:
            memory = parameter.asnumpy()
            memory[...] = array
            if not np.shares_memory(memory, parameter.asnumpy()):
                parameter.set_data(Tensor(array))

    def _new_caller(self) -> CellCaller:
        cell = Served(self.network)
        if self.inputs is not None:
            cell.set_inputs(*map(dynamic_tensor, self.inputs))
        return CellCaller(cell, self.network)


class Served(nn.Cell):
    """Cell that contains a network; `set_inputs` of the cell does not change the network's inputs.

    Args:
        network: the network; its parameters keep their names.
    """

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs: Any) -> Any:
        """Return the network's outputs."""
        return spread(self.network, inputs)


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()
