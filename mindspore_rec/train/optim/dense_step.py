# SPDX-License-Identifier: Apache-2.0
"""The native operator that does an optimizer's step for all dense parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import signature

from mindspore_rec.train.graph.operators import custom_op

__all__ = ["DenseNorm", "DenseStep", "as_float32", "require_tensor"]

# Numbers of the rules in the native core (`RuleKind` in csrc/rows/rule.h).
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
# Names of the rules' constants, in the order of csrc/ops/dense_step_ops.cc. A constant that a rule
# does not use is 0.
_CONSTANTS = ("beta1", "beta2", "epsilon", "momentum", "decay", "l1", "l2", "lr_power")


class DenseStep(nn.Cell):
    """Cell that updates dense parameters in place, in one pass over memory.

    A step scales the gradients, and decays and updates the parameters. Dense parameters are updated
    by the same formulas as rows of tables (`csrc/rows/kernels.inl`). Equal inputs give
    bit-identical results with any number of threads. RowWiseAdagrad has one accumulator per element
    of a dense parameter.

    Args:
        rule: name of the native rule.
        constants: constants of the rule.
        parameters: float32 Parameters.
        states: for each parameter, the parameter's states in the rule's order. A state is a
            Parameter of the same shape as the parameter that the state belongs to.
        decayed: a flag per parameter, True if the parameter decays.
        own_rates: True if each parameter has its own learning rate, False if all parameters share
            one rate.
        own_decays: True if each parameter has its own weight decay, False if all parameters share
            one decay.
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
        # Bypass Cell.__setattr__, because the Parameters belong to the optimizer, not to this cell.
        self.__dict__["_parameters_of"] = tuple(parameters)
        self.__dict__["_states_of"] = tuple(tuple(each) for each in states)
        count = len(parameters)
        decaying = [j for j in range(count) if decayed[j]]
        # For each step, one array contains the learning rates of the parameters in `rates_of`,
        # followed by the weight decays of the parameters in `decays_of`.
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
            gradients: one raw gradient per parameter, of the parameter's shape.
            scale: factor by which the gradients are multiplied, one float32 number.
            step: the step number, from 1, as one int32.
            numbers: the learning rates of the parameters in `rates_of`, followed by the weight
                decays of the parameters in `decays_of`, all float32.

        Returns:
            A Tensor on which later operators can depend.
        """
        inputs: Any = ()
        for j in range(len(self._parameters_of)):
            inputs += (self._parameters_of[j], as_float32(gradients[j]))
            inputs += self._states_of[j]
        return self._step(self._plan, self._constants, scale, step, *numbers, *inputs)


class DenseNorm(nn.Cell):
    """Cell that returns the squared norm of dense gradients.

    The native core adds float64 sums of fixed pieces in a fixed order, so that the result is
    identical bit for bit for any number of threads.

    Args:
        native: True to sum in the native core, False to sum with MindSpore's operators.
    """

    def __init__(self, native: bool) -> None:
        super().__init__(auto_prefix=False)
        self._native = native
        self._sum = custom_op("MsrDenseGradNorm", ms.float32)

    def construct(self, gradients: Any, scale: Tensor) -> Tensor:
        """Multiply all gradients by `scale`, and return the sum of their squares: float32, 0-d."""
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
    """Return an operator of the native core that may write to its inputs."""
    op = custom_op(name, ms.float32)
    # A single signature describes all inputs, however many there are. In PyNative mode, MindSpore
    # applies the signatures of the first Custom operator to every Custom operator, so every
    # operator needs at least as many inputs as there are signatures.
    written = signature.sig_rw.RW_WRITE
    many = signature.sig_kind.KIND_VAR_POSITIONAL
    op.set_signatures([signature.make_sig("inputs", written, many)])
    return op


def as_float32(gradient: Any) -> Any:
    """Return a dense gradient as float32; raise TypeError for a sparse gradient."""
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
