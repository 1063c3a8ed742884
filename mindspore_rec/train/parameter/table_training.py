# SPDX-License-Identifier: Apache-2.0
"""Functions of a table for optimizers and the training loop, outside a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from mindspore_rec.common.rows.native_access import NativeAccess

__all__ = ["TableTraining"]


class TableTraining(NativeAccess):
    """Gradients and steps of an optimizer, rows read ahead, times of operators."""

    # ---- optimizer

    def bind_optimizer(self, rule: str, **constants: Any) -> int:
        """Let an optimizer step the table; the optimizer before can no longer do so.

        Rows keep their optimizer state if the rule stays the same; else it starts fresh.

        Args:
            rule: name of the native rule, 'adam' for example.
            **constants: the rule's constants.

        Returns:
            The number that the optimizer's steps have to show.

        Raises:
            ValueError: an unknown rule, or a constant out of range.
        """
        return self._synchronised().bind_optimizer(rule, **constants)

    def accumulate_by_handle(self, handles: np.ndarray, gradients: np.ndarray) -> None:
        """Add gradients of rows to the gradients that the next step applies.

        Args:
            handles: int64 `[n, 2]`, from `lookup_with_handles`.
            gradients: float32 `[n, dim]`.

        Raises:
            StaleHandleError: a row has left the table since the handle was given.
        """
        self._synchronised().accumulate_by_handle(handles, gradients)

    def gradient_squared_norm(self) -> float:
        """Return the sum of squares of the gradients since the last step, summed by key."""
        return self._synchronised().gradient_squared_norm()

    def discard_gradients(self) -> None:
        """Drop the gradients since the last step.

        For a program that computes gradients and does not hand them to the optimizer, as when a
        loss is not finite: a table takes the gradients in the backward pass, and its next step
        would refuse.
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
        """Do one optimizer step with the gradients since the last one.

        Args:
            learning_rate: >= 0.
            weight_decay: >= 0. Default: 0.
            grad_scale: what gradients are multiplied by. Default: 1.
            step: number of the optimizer's step, from 1. Default: 1.
            binding: what `bind_optimizer` returned; 0 for whichever optimizer is bound.
        """
        self._synchronised().apply(learning_rate, weight_decay, grad_scale, step, binding)

    # ---- prefetch

    def prefetch(self, ids: np.ndarray) -> int:
        """Begin to promote the rows of a batch to host memory, in native threads.

        Args:
            ids: int32 or int64 array, what the batch will look up.

        Returns:
            The number of this prefetch, greater than all numbers before.
        """
        return self._synchronised().prefetch(ids)

    def wait_for_prefetch(self, number: int) -> float:
        """Wait until the rows of a prefetch are in host memory; return the seconds waited.

        Raises:
            OSError, RuntimeError: a tier cannot be read.
        """
        return self._synchronised().prefetch_wait(number)

    def end_prefetch(self, number: int) -> None:
        """Let the rows of a prefetch, and of the prefetches before it, be demoted again."""
        self._synchronised().prefetch_done(number)

    def recent_lookups(self) -> list[tuple[int, int]]:
        """Return hash and number of ids of each training lookup of the last step that had one."""
        return self._synchronised().recent_lookups()

    # ---- time

    def op_times(self) -> dict[str, tuple[int, int]]:
        """Return by operator ('lookup', 'accumulate', 'step') its calls and their nanoseconds."""
        return self._synchronised().op_times()
