# SPDX-License-Identifier: Apache-2.0
"""Methods of a table that optimizers and the training loop call outside a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.rows.argument_errors import names_wrong_arguments
from mindspore_rec.common.rows.native_access import NativeAccess
from mindspore_rec.train.graph.tensors import contiguous_array

__all__ = ["TableTraining"]


@names_wrong_arguments
class TableTraining(NativeAccess):
    """Methods for an optimizer's gradients and steps, for prefetching, and for operator times."""

    # ---- optimizer

    def bind_optimizer(self, rule: str, **constants: Any) -> int:
        """Let an optimizer update the table; an earlier optimizer can no longer update the table.

        Rows keep their optimizer state if the rule stays the same; with another rule, the state is
        initialized again.

        Args:
            rule: name of the native rule, such as 'adam'.
            **constants: constants of the native rule, by name.

        Returns:
            The number that identifies the optimizer to the table in each step.

        Raises:
            ValueError: the rule is unknown, or a constant is out of range.
        """
        return self._synchronised().bind_optimizer(rule, **constants)

    def accumulate_by_handle(
        self, handles: Tensor | np.ndarray, gradients: Tensor | np.ndarray
    ) -> None:
        """Add gradients of the rows at `handles` to the gradients of the next step.

        Args:
            handles: int64 Tensor or array `[*ids.shape, 2]`, from `lookup_with_handles`.
            gradients: float32 Tensor or array `[*ids.shape, dim]`.

        Raises:
            StaleHandleError: a row has left the table since the lookup that returned the row's
                handle.
        """
        gradients = contiguous_array(gradients)
        native = self._synchronised()
        if gradients.dtype != np.float32:
            raise TypeError(
                f"table '{native.name}': gradients must be float32, got {gradients.dtype}; "
                "numpy.asarray(gradients, numpy.float32)"
            )
        native.accumulate_by_handle(contiguous_array(handles), gradients)

    def gradient_squared_norm(self) -> float:
        """Sum each key's gradients since the last step; return the squared norm of all sums."""
        return self._synchronised().gradient_squared_norm()

    def discard_gradients(self) -> None:
        """Drop the gradients that were computed since the last step.

        Call this method if a program computes gradients but does not pass them to the optimizer,
        for example if a loss is not finite. The backward pass stores the gradients in the table. If
        this method is not called, the next step raises an error.
        """
        self._synchronised().discard_gradients()

    def apply_gradients(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        grad_scale: float = 1.0,
        step: int = 1,
        binding: int = 0,
    ) -> None:
        """Do one optimizer step with all gradients that were computed since the last step.

        Args:
            learning_rate: >= 0.
            weight_decay: >= 0. Default: 0.
            grad_scale: factor of the gradients. Default: 1.
            step: the optimizer's step number, from 1. Default: 1.
            binding: the number that `bind_optimizer` returned for the optimizer; 0 to accept any
                bound optimizer. Default: 0.
        """
        self._synchronised().apply(learning_rate, weight_decay, grad_scale, step, binding)

    # ---- prefetch

    def prefetch(self, ids: np.ndarray) -> int:
        """Start to promote the rows of a batch to host memory, in native threads.

        Args:
            ids: ids that the batch will look up, an int32 or int64 array.

        Returns: The index of this prefetch, which is greater than the indexes of earlier
            prefetches.

        Raises:
            ValueError: too many prefetches were started without a call of `end_prefetch`.
        """
        return self._synchronised().prefetch(ids)

    def wait_for_prefetch(self, number: int) -> float:
        """Wait until the rows of a prefetch are in host memory; return the seconds waited.

        Raises:
            OSError, RuntimeError: a tier cannot be read.
            ValueError: no prefetch has this number.
        """
        return self._synchronised().prefetch_wait(number)

    def end_prefetch(self, number: int) -> None:
        """Allow the table to demote the rows of prefetch `number` and of all earlier prefetches."""
        self._synchronised().prefetch_done(number)

    def recent_lookups(self) -> list[tuple[int, int]]:
        """Return (hash, number of ids) for each training lookup of the last step.

        A step without a training lookup does not count as the last step.
        """
        return self._synchronised().recent_lookups()

    # ---- time

    def op_times(self) -> dict[str, tuple[int, int]]:
        """Return, per kind of operator, the number of calls and the calls' time in nanoseconds.

        The kinds are 'lookup', 'accumulate', 'step' and 'map'; 'map' covers the methods of
        `HashTable`.
        """
        return self._synchronised().op_times()
