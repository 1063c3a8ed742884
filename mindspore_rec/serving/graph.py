# SPDX-License-Identifier: Apache-2.0
"""Call a network with arrays: one graph for all batch sizes, compiled anew after an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.graph.cell_caller import CellCaller
from mindspore_rec.serving.tensors import TensorSpec, as_input

__all__ = ["GraphRunner"]


class GraphRunner:
    """Caller of a network in evaluation mode, by one thread at a time.

    An operator's error, an id outside a vocabulary for example, leaves a MindSpore graph that
    answers nothing any more. It is then compiled anew for the next call.

    Args:
        network: the network.
        inputs: what it takes. Sizes of -1 are dynamic dimensions of one graph. None: unknown, and
            graphs are as `CellCaller` makes them.

    Example:
        >>> run = GraphRunner(nn.Dense(3, 2), (TensorSpec("x", "FP32", (-1, 3)),))
        >>> [run(np.ones((rows, 3)))[0].shape for rows in (1, 5)]
        [(1, 2), (5, 2)]
    """

    def __init__(self, network: nn.Cell, inputs: Sequence[TensorSpec] | None) -> None:
        self.network = network
        self.inputs = None if inputs is None else tuple(inputs)
        self._caller = self._new_caller()

    def arrays(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Return the inputs as arrays, checked where it is known what they must be.

        Raises:
            TypeError, ValueError: they are not what the network takes.
        """
        if self.inputs is None:
            return [
                each.asnumpy() if isinstance(each, Tensor) else np.ascontiguousarray(each)
                for each in given
            ]
        if len(given) != len(self.inputs):
            names = [spec.name for spec in self.inputs]
            raise ValueError(f"inputs must be {len(names)}, {names}, got {len(given)}")
        return [as_input(spec, each) for spec, each in zip(self.inputs, given, strict=True)]

    def __call__(self, *given: Any) -> list[np.ndarray]:
        """Return the outputs.

        Raises:
            TypeError, ValueError: the inputs are not what the network takes.
            RuntimeError: the network fails on them.
        """
        tensors = [Tensor.from_numpy(_writable(each)) for each in self.arrays(given)]
        try:
            outputs = self._caller(False, *tensors)
        except Exception:
            self._caller = self._new_caller()
            raise
        together = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return [np.array(each.asnumpy()) for each in together]

    def _new_caller(self) -> CellCaller:
        cell = _Served(self.network)
        if self.inputs is not None:
            cell.set_inputs(*(spec.dynamic() for spec in self.inputs))
        return CellCaller(cell, self.network)


class _Served(nn.Cell):
    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs: Any) -> Any:
        return self.network(*inputs)


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()
