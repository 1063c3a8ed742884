# SPDX-License-Identifier: Apache-2.0
"""The operator of a target attention, with its gradient; see `csrc/sequence/target_attention.h`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.train.nn.fused.cell import (
    argument_names,
    module_of,
    native_operator,
    refusal_of,
)
from mindspore_rec.train.nn.history.operators import HistoryOperator

__all__ = ["TargetOperator", "target_operator"]

_OF_HISTORY = 3  # candidate, values, offsets
_OF_LAYER = 5  # weight, bias, alpha, moving mean, moving variance
_LEARNED = 3  # the first of them

# The graph compiler refuses a `bprop` with a variable number of arguments.
_SOURCE = '''# SPDX-License-Identifier: Apache-2.0
"""A target attention of {layers} hidden layers; written by mindspore_rec."""

from mindspore_rec.train.nn.history.target import TargetOperator


class TargetOperator{layers}(TargetOperator):
    """Target attention of {layers} hidden layers."""

    def construct(self, {names}):
        """Return the sums and the values for the gradient."""
        return self.outputs_of(({names},))

    def bprop(self, {names}, out, dout):
        """Return the gradients of the inputs."""
        return self.gradients_of(({names},), out, dout)
'''


class TargetOperator(HistoryOperator):
    """Pools each history by weights that a perceptron computes.

    Args:
        layers: number of hidden layers of the perceptron.
        dice: True for Dice activations, False for PReLU activations.
        of_batch: whether Dice normalizes by the moments of the batch.
        softmax: whether the weights are the softmax of the perceptron's outputs.
        rounds: whether the factors of products are rounded to bfloat16.
        numbers: the pair (epsilon, momentum) of Dice.

    Inputs:
        - **candidate** (Tensor): float32 `[B, dim]`.
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.
        - For each hidden layer: weight, bias, alpha, moving mean and moving variance of Dice. For
          PReLU, moving mean and moving variance are constants with one element.
        - Weight and bias of the last layer, which has one column.

    Outputs:
        Tuple: the sums, float32 `[B, dim]`; three Tensors for the gradient; and for each hidden
        layer the new moving mean and the new moving variance.
    """

    def __init__(
        self,
        layers: int,
        dice: bool,
        of_batch: bool,
        softmax: bool,
        rounds: bool,
        numbers: tuple[float, float],
    ) -> None:
        super().__init__()
        self.layers = layers
        form = [of_batch, dice, softmax, rounds, *[0] * layers]
        self.form = Tensor(np.array(form, np.int64))
        kept = np.float32(numbers[1])
        self.numbers = Tensor(np.array([numbers[0], kept, np.float32(1) - kept], np.float32))
        arguments = 2 + _arguments_for(layers)
        self.forward = native_operator("MsrTargetAttention", 4 + 2 * layers, raises_at_once=True)
        self.backward = native_operator(
            "MsrTargetAttentionGradient", 2 + _LEARNED * layers + 3, refusal_of(arguments + 4)
        )

    def outputs_of(self, arguments: Any) -> Any:
        """Return the outputs of the forward operator."""
        return self.forward(self.form, self.numbers, *arguments)

    def gradients_of(self, arguments: Any, out: Any, dout: Any) -> Any:
        """Return a gradient for each input."""
        results = self.backward(
            self.form, self.numbers, *arguments, out[1], out[2], out[3], dout[0]
        )
        gradients: Any = (results[0], results[1], ops.zeros_like(arguments[2]))
        for k in range(self.layers):
            of_layer, layer = 2 + _LEARNED * k, _OF_HISTORY + _OF_LAYER * k
            gradients += (results[of_layer], results[of_layer + 1], results[of_layer + 2])
            mean, variance = arguments[layer + 3], arguments[layer + 4]
            gradients += (ops.zeros_like(mean), ops.zeros_like(variance))
        last = 2 + _LEARNED * self.layers
        return (*gradients, results[last], results[last + 1])


def target_operator(layers: int, *settings: Any) -> TargetOperator:
    """Return a `TargetOperator`; `settings` are the constructor's arguments after `layers`.

    Example:
        >>> target_operator(2, True, True, False, False, (1e-8, 0.9)).layers
        2
    """
    return _class_of(layers)(layers, *settings)


def _arguments_for(layers: int) -> int:
    return _OF_HISTORY + _OF_LAYER * layers + 2


@functools.cache
def _class_of(layers: int) -> type[TargetOperator]:
    source = _SOURCE.format(layers=layers, names=argument_names(_arguments_for(layers)))
    module = module_of(f"mindspore_rec_target_operator_{layers}", source)
    cell_class: type[TargetOperator] = getattr(module, f"TargetOperator{layers}")
    return cell_class
