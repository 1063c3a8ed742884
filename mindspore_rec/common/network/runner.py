# SPDX-License-Identifier: Apache-2.0
"""Runner: interface of a served network, which MindSpore or ONNX Runtime computes."""

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
    """Lock of a network: held to answer, or held alone to change the network."""

    def reading(self) -> AbstractContextManager[None]:
        """Hold the lock to answer: nothing changes meanwhile."""

    def writing(self) -> AbstractContextManager[None]:
        """Hold the lock to change the network: nobody answers meanwhile."""


class Runner(ABC):
    """A network with its tables: run by MindSpore in `graph_runner.py`, else in `onnx_runner.py`.

    Attributes:
        name: name of the library that computes the answers, for `Status`.
        lock: held by `start` and by changes.
        network: MindSpore's Cell, or None.
        features: the pipeline that the network's builder returned beside it, or None.
        inputs: inputs of the network, or None if they are not known.
        tables: its tables by name.
        parameters: its dense parameters, objects with `name`, `shape` and `dtype`.
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
        """Return the inputs as arrays, checked if the network's inputs are known.

        Raises:
            TypeError, ValueError: they are not of the network's types and shapes, or have numbers
                that are not finite, which ONNX Runtime would turn into NaN and MindSpore into
                ordinary predictions.
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
            TypeError, ValueError: the inputs are not of the network's types and shapes.
            RuntimeError: the network fails on them.
        """
        arrays = self.arrays(given)
        with self.lock.reading():
            finish = self.start(arrays)
        return finish()

    @abstractmethod
    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], Outputs]:
        """Read the rows and parameters of an answer; return a function that computes it.

        The lock is held, to read, in this call and not while the returned function is called.

        Args:
            arrays: of `arrays`.
        """

    @abstractmethod
    def specs_of_outputs(self) -> tuple[TensorSpec, ...] | None:
        """Return the network's outputs; None if its inputs are not known."""

    @abstractmethod
    def load(self, chain: Sequence[Entry]) -> None:
        """Set everything to the state that a chain leads to, before the first answer.

        Raises:
            CheckpointError: it is of another network.
        """

    @abstractmethod
    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Set the dense parameters, while nobody answers.

        Args:
            values: each of `parameters` with its array, from `matched`.
        """

    def close(self) -> None:
        """Free its tables, if they were made for it."""
        with self.lock.writing():
            if self._owned:
                for table in self.tables.values():
                    table.close()
