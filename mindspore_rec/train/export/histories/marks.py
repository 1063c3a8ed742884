# SPDX-License-Identifier: Apache-2.0
"""Marks: placeholder nodes of an exported model; ONNX nodes that read lists replace the marks."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn

__all__ = ["Build", "Mark", "Marks"]

Build = Callable[..., str]
"""Function that builds the nodes of a mark from `Nodes` and the names of the mark's inputs."""


class Mark(nn.Cell):
    """Placeholder that depends on all inputs; `insert_histories` replaces it by ONNX nodes.

    The names of the Parameters identify the inputs. Integers and float32 numbers are multiplied by
    different Parameters, so `insert_histories` knows which inputs were converted from integers.

    Args:
        number: index of the mark in the network. The names of the mark's Parameters contain
            `number`.
        inputs: number of inputs.
        build: function that builds the nodes which replace the mark.

    Inputs:
        - **like** (Tensor): any Tensor with the shape of the output.
        - **inputs** (Tensor): the inputs of the nodes, float32 or integers.

    Outputs:
        float32 Tensor with the same shape as `like`.
    """

    def __init__(self, number: int, inputs: int, build: Build) -> None:
        super().__init__(auto_prefix=False)
        self.build = build
        self.output = _one(f"history:{number}")
        names = [f"history:{number}:{k}" for k in range(inputs)]
        self.factors = ParameterTuple([_one(name) for name in names])
        self.whole_factors = ParameterTuple([_one(f"{name}:whole") for name in names])

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Leave the names of the parameters unchanged, because the names identify the mark."""

    def construct(self, like: Tensor, *inputs: Tensor) -> Tensor:
        """Return the sum."""
        total = like.astype(ms.float32) * self.output
        for k in range(len(inputs)):
            if inputs[k].dtype == ms.float32:
                product = inputs[k] * self.factors[k]
            else:
                product = inputs[k].astype(ms.float32) * self.whole_factors[k]
            total = total + product.sum()
        return total


class Marks:
    """All marks of a network during an export.

    Attributes:
        made: the marks in the order of their numbers.
    """

    def __init__(self) -> None:
        self.made: list[Mark] = []

    def new(self, inputs: int, build: Build) -> Mark:
        """Return a new mark."""
        self.made.append(Mark(len(self.made), inputs, build))
        return self.made[-1]


def _one(name: str) -> Parameter:
    return Parameter(Tensor(np.ones(1, np.float32)), name=name, requires_grad=False)
