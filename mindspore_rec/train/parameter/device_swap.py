# SPDX-License-Identifier: Apache-2.0
"""Move rows into and out of a device cache, with operators that every device supports."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.train.graph.lock import graph_lock

__all__ = ["Swap"]


class _Exchange(nn.Cell):
    """Gather rows at some slots, then write new rows at given slots, for any number of rows."""

    def __init__(self, values: Parameter, states: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.__dict__["values"] = values  # not parameters of any network
        self.__dict__["states"] = states
        self._gather = ops.Gather()
        self._write_values = ops.ScatterUpdate()
        self._write_states = ops.ScatterUpdate()
        rows = {"shape": [None], "dtype": ms.int32}
        self.set_inputs(
            Tensor(**rows),
            Tensor(**rows),
            Tensor(shape=[None, values.shape[1]], dtype=ms.float32),
            Tensor(shape=[None, states.shape[1]], dtype=ms.float32),
        )

    def construct(
        self, out_slots: Tensor, in_slots: Tensor, new_values: Tensor, new_states: Tensor
    ) -> tuple[Tensor, Tensor]:
        old = (
            self._gather(self.values, out_slots, 0),
            self._gather(self.states, out_slots, 0),
        )
        new_values = ops.depend(new_values, old)
        new_states = ops.depend(new_states, old)
        written = (
            self._write_values(self.values, in_slots, new_values),
            self._write_states(self.states, in_slots, new_states),
        )
        return ops.depend(old, written)


class Swap:
    """Copies rows out of a device cache, and writes other rows into the cache.

    Args:
        values: Parameter `[slots, dim]`.
        states: Parameter `[slots, max(width, 1)]`.
        width: number of floats of optimizer state in a row.
        scratch: index of an unused slot. `scratch` pads `out_slots` and `in_slots`.

    Example:
        >>> values = Parameter(Tensor(np.zeros((3, 2), np.float32)), name="v")
        >>> states = Parameter(Tensor(np.zeros((3, 1), np.float32)), name="s")
        >>> swap = Swap(values, states, 1, scratch=2)
        >>> one = np.ones((1, 2), np.float32)
        >>> old = swap.run(np.array([0], np.int32), np.array([0], np.int32), one, one[:, :1])
        >>> old[0].tolist(), values.asnumpy()[0].tolist()
        ([[0.0, 0.0]], [1.0, 1.0])
    """

    def __init__(self, values: Parameter, states: Parameter, width: int, scratch: int) -> None:
        self.cell = _Exchange(values, states)
        self._dim = values.shape[1]
        self._width = width
        self._room = states.shape[1]
        self._scratch = scratch

    def run(
        self, out_slots: np.ndarray, in_slots: np.ndarray, values: np.ndarray, states: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the rows at `out_slots`, then write new rows to `in_slots`.

        Args:
            out_slots: int32 `[n]`.
            in_slots: int32 `[m]`.
            values: float32 `[m, dim]`.
            states: float32 `[m, width]`.

        Returns:
            The old values `[n, dim]` and states `[n, width]`.
        """
        out_size, in_size = _padded(len(out_slots)), _padded(len(in_slots))
        out_all = np.full(out_size, self._scratch, np.int32)
        out_all[: len(out_slots)] = out_slots
        in_all = np.full(in_size, self._scratch, np.int32)
        in_all[: len(in_slots)] = in_slots
        new_values = np.zeros((in_size, self._dim), np.float32)
        new_values[: len(in_slots)] = values
        new_states = np.zeros((in_size, self._room), np.float32)
        if len(in_slots):
            new_states[: len(in_slots), : self._width] = states
        with graph_lock:
            old = self.cell(
                Tensor.from_numpy(out_all),
                Tensor.from_numpy(in_all),
                Tensor.from_numpy(new_values),
                Tensor.from_numpy(new_states),
            )
            old_values, old_states = (each.asnumpy()[: len(out_slots)] for each in old)
        return np.ascontiguousarray(old_values), np.ascontiguousarray(old_states[:, : self._width])


def _padded(rows: int) -> int:
    # Round up to a power of two, because the device's memory pool reuses blocks only if there are
    # few different sizes.
    return max(1024, 1 << (rows - 1).bit_length()) if rows else 1
