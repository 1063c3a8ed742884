# SPDX-License-Identifier: Apache-2.0
"""Does an optimizer's step on a table's rows in device memory, as a part of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.optim.device_rules import RULES

__all__ = ["DeviceStep"]


class DeviceStep(nn.Cell):
    """Updates table rows on the device: gathers the rows, applies the rule, scatters the rows.

    The graph is compiled only once, although the number of rows with a gradient, and thus the
    shapes of this cell's Tensors, change from step to step.

    Args:
        owner: the table. The device tier of this table is in memory that the host does not share.
        rule: name of the native rule.
        constants: constants of the rule.
        binding: int64 Tensor `[1]`, the number from `bind_table` that identifies the optimizer to
            the table.
    """

    def __init__(
        self, owner: Any, rule: str, constants: Mapping[str, Any], binding: Tensor
    ) -> None:
        super().__init__(auto_prefix=False)
        tier = owner.device
        for name in ("values", "states", "sums"):
            self.__dict__[name] = getattr(tier, name)  # not the optimizer's parameters
        self._descriptor = owner.descriptor
        self._binding = binding
        self._rule = RULES[rule](constants)
        self._begin = custom_op("MsrBeginDeviceStep", ms.float32)
        self._count = custom_op("MsrCountTouched", ms.int64)
        self._touched = custom_op("MsrTouched", ms.int32)
        self._finish = custom_op("MsrFinishDeviceStep", ms.float32)
        self._gather = ops.Gather()
        self._write_w, self._write_s, self._write_g = (ops.ScatterUpdate() for _ in range(3))
        self._range = ops.Range(1 << 40)
        self._zero, self._one = Tensor(0, ms.int64), Tensor(1, ms.int64)

    def slots(self, token: Tensor) -> Tensor:
        """Return the slots, int32 `[n]` with `n >= 1`, of the rows with a gradient."""
        # Shape inference can learn a data-dependent length only from `ops.Range`, so the operator
        # that returns the slots reads a range with one element per slot.
        count = self._count(token, self._descriptor).reshape(())
        return self._touched(self._range(self._zero, count, self._one), self._descriptor)

    def squared_norm(self, token: Tensor) -> Tensor:
        """Return the sum of squares of the table's gradients, float32 `[1]`."""
        g = self._gather(self.sums, self.slots(token), 0)
        return (g * g).sum().reshape((1,))

    def construct(
        self, token: Tensor, lr: Tensor, decay: Tensor, scale: Tensor, step: Tensor
    ) -> Any:
        """Do the step; `lr`, `decay` and `scale` are float32 `[1]`, and `step` is int32 `[1]`."""
        begun = self._begin(token, self._descriptor, lr, decay, scale, step, self._binding)
        slots = ops.depend(self.slots(token), begun)
        g = self._gather(self.sums, slots, 0)
        w = self._gather(self.values, slots, 0)
        s = self._gather(self.states, slots, 0)
        numbers = (lr, decay, scale, begun[0:1], begun[1:2])
        new_w, new_s = self._rule(w, s, g, numbers)
        nothing = ops.depend(ops.zeros_like(g), (new_w, new_s))
        written = (
            self._write_w(self.values, slots, new_w),
            self._write_s(self.states, slots, new_s),
            self._write_g(self.sums, slots, nothing),
        )
        return self._finish(ops.depend(token, written), self._descriptor)
