# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps of tables, with one operator per table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.optim.device_step import DeviceStep

__all__ = ["TableSteps"]


class TableSteps(nn.Cell):
    """Cell that does the optimizer step of several tables, on the host or on a device.

    Args:
        owners: the tables.
        rule: name of the native rule.
        constants: constants of the rule.
        bindings: for each table, the number that `bind_table` returned. It identifies the
            optimizer.
    """

    def __init__(
        self,
        owners: Sequence[Any],
        rule: str,
        constants: Mapping[str, Any],
        bindings: Sequence[int],
    ) -> None:
        super().__init__(auto_prefix=False)
        self._count = len(owners)
        self._descriptors = tuple(owner.descriptor for owner in owners)
        self._bindings = tuple(Tensor(np.array([binding], np.int64)) for binding in bindings)
        # If a table's rows are in device memory that the host does not share, the table's step runs
        # on the device.
        on_device = [owner.device is not None and not owner.device.shared for owner in owners]
        self._device_place = tuple(
            sum(on_device[:j]) if on_device[j] else -1 for j in range(len(owners))
        )
        self._device_steps: Any = nn.CellList(
            [
                DeviceStep(owner, rule, constants, binding)
                for owner, binding, on in zip(owners, self._bindings, on_device, strict=True)
                if on
            ],
            auto_prefix=False,
        )
        self._step = custom_op("MsrStep", ms.float32)
        self._norm = custom_op("MsrGradNorm", ms.float32)

    def construct(self, tokens: Any, rates: Any, decays: Any, scale: Tensor, step: Tensor) -> Any:
        """Do the steps.

        Args:
            tokens: one token per table, from the backward pass of the table's lookups.
            rates: a learning rate, float32 `[1]`, for each table.
            decays: a weight decay, float32 `[1]`, for each table.
            scale: factor of the gradients, float32 `[1]`.
            step: the step number, int32 `[1]`, from 1.

        Returns:
            A tuple on which later operators can depend.
        """
        done: Any = ()
        for j in range(self._count):
            if self._device_place[j] >= 0:
                device_step = self._device_steps[self._device_place[j]]
                done += (device_step(tokens[j], rates[j], decays[j], scale, step),)
            else:
                done += (
                    self._step(
                        tokens[j],
                        self._descriptors[j],
                        rates[j],
                        decays[j],
                        scale,
                        step,
                        self._bindings[j],
                    ),
                )
        return done

    def squared_norms(self, tokens: Any) -> Any:
        """Return a tuple of float32 0-d Tensors: the sum of squares of each table's gradients."""
        norms: Any = ()
        for j in range(self._count):
            if self._device_place[j] >= 0:
                squares = self._device_steps[self._device_place[j]].squared_norm(tokens[j])
            else:
                squares = self._norm(tokens[j], self._descriptors[j])
            norms += (squares.reshape(()),)
        return norms
