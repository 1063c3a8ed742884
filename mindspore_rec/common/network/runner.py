# SPDX-License-Identifier: Apache-2.0
"""Runner: interface of a served network, which MindSpore or ONNX Runtime runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.columns.finite import check_finite
from mindspore_rec.common.columns.tensors import TensorSpec, as_input, check_starts
from mindspore_rec.common.run.chain import Entry

__all__ = ["Lock", "Runner"]

Outputs = list[np.ndarray]


class Lock(Protocol):
    """Read-write lock of a network: shared by answers, exclusive for a change of the network."""

    def reading(self) -> AbstractContextManager[None]:
        """Hold the lock while an answer reads the network, so that the network does not change."""

    def writing(self) -> AbstractContextManager[None]:
        """Lock the network for a change. During the change, no answer reads the network."""


class Runner(ABC):
    """Network and tables, run by MindSpore (`graph_runner.py`) or ONNX Runtime (`onnx_runner.py`).

    Attributes:
        name: name of the library that computes the answers, as `Status` reports it.
        lock: lock of the network, held during each call of `start` and during each change.
        network: MindSpore's Cell, or None.
        features: feature pipeline that the builder returned together with the network, or None.
        inputs: inputs of the network, or None if the inputs are not known.
        tables: dict from table name to table of the network.
        parameters: the network's dense parameters, each an object with `name`, `shape` and `dtype`.
    """

    name: str
    lock: Lock
    network: Any = None
    features: FeaturePipeline | None = None
    inputs: tuple[TensorSpec, ...] | None
    tables: Mapping[str, Any]
    parameters: Sequence[Any]
    _owned: bool  # whether the tables were made for this object

    def arrays(self, given: Sequence[Any]) -> list[np.ndarray]:
        """Convert inputs to arrays, and check the arrays if the network's inputs are known.

        Raises:
            TypeError, ValueError: the inputs do not have the network's types and shapes, or a
                number is not finite. For an input that is not finite, ONNX Runtime would return
                NaN, but MindSpore would return an ordinary prediction.
        """
        if self.inputs is None:
            made = [
                each.asnumpy() if hasattr(each, "asnumpy") else np.ascontiguousarray(each)
                for each in given
            ]
            for place, each in enumerate(made):
                check_finite(f"input {place}", each)
            return made
        if len(given) != len(self.inputs):
            names = [spec.name for spec in self.inputs]
            raise ValueError(f"inputs must be {len(names)}, {names}, got {len(given)}")
        made = [as_input(spec, each) for spec, each in zip(self.inputs, given, strict=True)]
        check_starts(self.inputs, made)
        for spec, each in zip(self.inputs, made, strict=True):
            if each.dtype.kind == "f":
                check_finite(f"input '{spec.name}'", each)
        return made

    def __call__(self, *given: Any) -> Outputs:
        """Return the outputs.

        Raises:
            TypeError, ValueError: the inputs do not have the network's types and shapes.
            RuntimeError: the network fails on the inputs.
        """
        arrays = self.arrays(given)
        with self.lock.reading():
            finish = self.start(arrays)
        return finish()

    @abstractmethod
    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], Outputs]:
        """Read the rows and parameters for an answer; return a function that computes the answer.

        The caller must hold the read lock during the call of `start`, but not during the call of
        the returned function.

        Args:
            arrays: the network's inputs, as returned by the method `arrays`.
        """

    @abstractmethod
    def specs_of_outputs(self) -> tuple[TensorSpec, ...] | None:
        """Return specs of the network's outputs; None if the network's inputs are not known."""

    @abstractmethod
    def load(self, chain: Sequence[Entry]) -> None:
        """Load a chain (a checkpoint and its deltas) into tables and parameters.

        Call `load` before the network computes an answer.

        Raises:
            CheckpointError: the chain belongs to another network.
        """

    @abstractmethod
    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Set the dense parameters. During the call, no thread may read the parameters.

        Args:
            values: pairs of a parameter and an array, as returned by `matched`.
        """

    def close(self) -> None:
        """Free the tables if this object made the tables."""
        with self.lock.writing():
            if self._owned:
                for table in self.tables.values():
                    table.close()
