# SPDX-License-Identifier: Apache-2.0
"""The step of an optimizer's dense parameters as one operator of the native core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import signature

from mindspore_rec.train.graph.operators import custom_op

__all__ = ["DenseNorm", "DenseStep", "as_float32", "require_tensor"]

# The numbers of `RuleKind` in csrc/rows/rule.h.
_RULES = {
    "sgd": 1,
    "momentum": 2,
    "adagrad": 3,
    "row_wise_adagrad": 4,
    "adam": 5,
    "adamw": 6,
    "ftrl": 7,
    "rmsprop": 8,
}
# Constants in the order of csrc/ops/dense_step_ops.cc; a rule that lacks one does not use it.
_CONSTANTS = ("beta1", "beta2", "epsilon", "momentum", "decay", "l1", "l2", "lr_power")


class DenseStep(nn.Cell):
    """Cell that updates dense parameters in place: scale, decay and rule in one pass over memory.

    The formulas of tables' rows (`csrc/rows/kernels.inl`) are applied, with the same bits for
    the same numbers, whatever the number of threads. RowWiseAdagrad keeps an accumulator for each
    element.

    Args:
        rule: name of the native rule.
        constants: its constants.
        parameters: float32 Parameters.
        states: for each parameter its states, Parameters of its shape, in the rule's order.
        decayed: for each parameter whether its weight decays.
        own_rates: whether each parameter has a learning rate of its own, or all have the first's.
        own_decays: the same for weight decays.
    """

    def __init__(
        self,
        rule: str,
        constants: Mapping[str, Any],
        parameters: Sequence[Parameter],
        states: Sequence[Sequence[Parameter]],
        decayed: Sequence[bool],
        *,
        own_rates: bool,
        own_decays: bool,
    ) -> None:
        super().__init__(auto_prefix=False)
        # Past __setattr__: they are the optimizer's parameters, under its names.
        self.__dict__["_parameters_of"] = tuple(parameters)
        self.__dict__["_states_of"] = tuple(tuple(each) for each in states)
        count = len(parameters)
        decaying = [j for j in range(count) if decayed[j]]
        # The parameters whose learning rates, and then weight decays, are the numbers of a step.
        self.rates_of = tuple(range(count if own_rates else 1))
        self.decays_of = tuple(decaying if own_decays else decaying[:1])
        numbers = len(self.rates_of) + len(self.decays_of)
        nesterov, centered = constants.get("nesterov", False), constants.get("centered", False)
        plan = [_RULES[rule], int(nesterov), int(centered), count, numbers]
        for j in range(count):
            place = self.decays_of.index(j) if own_decays and decayed[j] else 0
            plan += [j if own_rates else 0, len(self.rates_of) + place if decayed[j] else -1]
        self._plan = Tensor(np.array(plan, np.int64))
        values = [constants.get(name, 0.0) for name in _CONSTANTS]
        self._constants = Tensor(np.array(values, np.float32))
        self._step = _writing_op("MsrDenseStep")

    def construct(self, gradients: Any, scale: Tensor, step: Tensor, numbers: Any) -> Tensor:
        """Do the step.

        Args:
            gradients: a raw gradient for each parameter, of its shape.
            scale: what to multiply them by, float32, one number.
            step: number of the step, int32, one number, from 1.
            numbers: learning rates of the parameters `rates_of`, then weight decays of the
                parameters `decays_of`, float32, one number each.

        Returns:
            A Tensor to make later operators depend on.
        """
        inputs: Any = ()
        for j in range(len(self._parameters_of)):
            inputs += (self._parameters_of[j], as_float32(gradients[j]))
            inputs += self._states_of[j]
        return self._step(self._plan, self._constants, scale, step, *numbers, *inputs)


class DenseNorm(nn.Cell):
    """Cell that returns the squared norm of dense gradients.

    Natively, partial sums of fixed pieces are float64 and are added in order, so that the bits do
    not depend on the number of threads.

    Args:
        native: whether the native core adds, or MindSpore's operators.
    """

    def __init__(self, native: bool) -> None:
        super().__init__(auto_prefix=False)
        self._native = native
        self._sum = custom_op("MsrDenseGradNorm", ms.float32)

    def construct(self, gradients: Any, scale: Tensor) -> Tensor:
        """Return the sum of squares of all gradients times `scale`, all of them float32, 0-d."""
        inputs: Any = ()
        for gradient in gradients:
            inputs += (as_float32(gradient),)
        if self._native and len(inputs) > 0:
            return self._sum(scale, *inputs).reshape(())
        total = ops.zeros_like(scale)
        for gradient in inputs:
            scaled = gradient * scale
            total = total + (scaled * scaled).sum()
        return total


def _writing_op(name: str) -> Any:
    """Return an operator of the native core that writes Parameters among its inputs."""
    op = custom_op(name, ms.float32)
    # One signature for any number of inputs: PyNative keeps the signature of the first Custom
    # operator it sees for all of them, and checks that a call has no fewer inputs than signatures.
    written = signature.sig_rw.RW_WRITE
    many = signature.sig_kind.KIND_VAR_POSITIONAL
    op.set_signatures([signature.make_sig("inputs", written, many)])
    return op


def as_float32(gradient: Any) -> Any:
    """Return a dense gradient as float32; of a sparse one raise TypeError."""
    gradient = require_tensor(gradient)
    return gradient if gradient.dtype == ms.float32 else ops.cast(gradient, ms.float32)


require_tensor = ops.MultitypeFuncGraph("require_tensor")


@require_tensor.register("Tensor")
def _require_tensor_of_tensor(gradient):  # type: ignore[no-untyped-def]
    return gradient


@require_tensor.register("RowTensor")
def _require_tensor_of_rows(gradient):  # type: ignore[no-untyped-def]
    raise TypeError(
        "a dense parameter has a sparse gradient, of a MindSpore embedding with sparse=True: use a "
        "lookup of mindspore_rec.nn, or sparse=False"
    )
