# SPDX-License-Identifier: Apache-2.0
"""DeviceTier: a cache of a table's most used rows in device memory.

The cache is a Parameter `[device_rows + 3, dim]` of values, and a matrix of optimizer states. The
last three rows of the cache are the row for unknown keys, the row for padding, and a scratch row.
On the host, a training lookup maps ids to slots of the cache. One swap replaces the least used rows
in the cache by the rows that the lookup misses, and the graph gathers rows by slot. The table on
the host still stores counts and ages, and decides about admission. The newest value of a cached row
is in the cache. A cached row is written back to the host before it is read by evaluation, an
export, a checkpoint or a lower tier.

There are two forms of one tier, whose results are equal up to rounding:

* *shared*: the form for the CPU. Native code swaps and updates rows in the memory of the
  Parameter. The kernels are the same as on the host, so the results are bit-identical to the host's
  results. Calls of `prepare` and `sync` are not necessary in the *shared* form.
* *graph*: the form for devices other than the CPU. The method `prepare` swaps rows with the
  operators Gather and ScatterUpdate. The program must call `prepare` for the ids of each lookup,
  after the previous step. ScatterAdd sums the gradients, and elementwise operators apply the
  optimizer's formula. Rows of the *graph* form equal rows of the *shared* form up to rounding, but
  not bit for bit.

For tests, `MINDSPORE_REC_DEVICE_TIER=graph` selects the *graph* form on the CPU too.
"""

from __future__ import annotations

import os
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.parameter.device_swap import Swap

__all__ = ["DeviceTier"]

MAX_ROWS = 1 << 30
EXTRA_ROWS = 3  # unknown, padding, scratch


def _shares_memory() -> bool:
    form = os.environ.get("MINDSPORE_REC_DEVICE_TIER", "auto")
    check_one_of("MINDSPORE_REC_DEVICE_TIER", form, ("auto", "graph"))
    return form == "auto" and ms.get_context("device_target") == "CPU"


class DeviceTier(nn.Cell):
    """The device tier of one table.

    Args:
        native: the table.
        rows: number of slots; at least the number of distinct keys in the lookups of one step.
        policy: rows to swap out, 'lru' (the least recently used) or 'lfu' (the least often used).
        descriptor: int64 Tensor by which operators identify the table.
        unknown: float32 `[dim]`, the value of an unknown key in training.

    Attributes:
        shared: True for the *shared* form, in which the host can read and write the tier's memory.

    Raises:
        ValueError: `rows` is out of range.
    """

    values: Parameter
    states: Any
    sums: Any

    def __init__(
        self, native: Any, rows: int, policy: str, descriptor: Tensor, unknown: np.ndarray
    ) -> None:
        super().__init__(auto_prefix=False)
        if not 1 <= rows <= MAX_ROWS:
            raise ValueError(
                f"table '{native.name}': device_rows must be in [1, 2**30], got {rows}"
            )
        self.rows = rows
        self.shared = _shares_memory()
        self._native = native
        self._descriptor = descriptor
        values = np.zeros((rows + EXTRA_ROWS, native.dim), np.float32)
        values[rows] = unknown
        self._hide("values", self._parameter("values", values))
        self._hide("sums", None)
        self._hide("states", None)
        memory = self.values.asnumpy() if self.shared else None
        native.attach_device(rows=rows, policy=policy, values=memory)
        self._no_cache = Tensor(np.zeros(1, np.float32))
        zeros = ops.zeros_like

        def slots_bprop(ids, descriptor, anchor, values, out, dout):  # type: ignore[no-untyped-def]
            # Slots have no gradient. For each constant input, return the input itself, because
            # nothing reads the gradient of a constant.
            return zeros(ids), descriptor, zeros(anchor), values

        self._slots = custom_op(
            "MsrLookupSlots",
            (ms.int32, ms.int64),
            slots_bprop,
            table=native.name,
            multi_output=True,
        )
        self._take = _TakeShared() if self.shared else _TakeInGraph()
        self._swap: Swap | None = None

    def _hide(self, name: str, value: Any) -> None:
        # Cell.__setattr__ would add the value to the network's parameters, checkpoints and
        # optimizer. The rows belong to the table, not to the network.
        self.__dict__[name] = value

    def _parameter(self, what: str, array: np.ndarray) -> Parameter:
        name = f"{self._native.name}.device_{what}"
        return Parameter(Tensor.from_numpy(array), name=name, requires_grad=False)

    def bind(self) -> None:
        """Allocate the optimizer's state; call this method after an optimizer has been bound."""
        width = self._native.device_state_width
        rows = self.rows + EXTRA_ROWS
        if self.shared:
            if self.states is None or self.states.shape[1] != width:
                self._hide("states", np.zeros((rows, width), np.float32))
            self._native.set_device_states(self.rows, self.states)
            return
        if self.sums is None:
            self._hide("sums", self._parameter("sums", np.zeros(self.values.shape, np.float32)))
        if self.states is None or self.states.shape[1] != max(width, 1):
            states = np.zeros((rows, max(width, 1)), np.float32)
            self._hide("states", self._parameter("states", states))
        self._swap = Swap(self.values, self.states, width, self.rows + 2)

    def lookup(self, ids: Tensor, descriptor: Tensor, anchor: Parameter) -> Tensor:
        """In a graph, do a training lookup; return the rows, `[*ids.shape, dim]`."""
        if self.shared:
            slots, ticket = self._slots(ids, descriptor, anchor, self.values)
            return self._take(slots, ticket, descriptor, anchor, self.values)
        slots, ticket = self._slots(ids, descriptor, anchor, self._no_cache)
        return self._take(slots, ticket, descriptor, anchor, self.values, self.sums)

    def prepare(self, ids: Any, padding_key: int | None = None, faae_coefficient: int = 1) -> None:
        """Do the host's part of a training lookup in advance: count and admit keys, promote rows.

        If the device is not the CPU, call `prepare` for each lookup of a step. Call `prepare` after
        the previous step has ended and before the lookup's step begins. On the CPU, calling
        `prepare` is optional.

        Args:
            ids: ids of the lookup, an int32 or int64 array or Tensor.
            padding_key: the lookup's padding key. Default: none.
            faae_coefficient: the lookup's coefficient. Default: 1.

        Raises:
            ValueError: the lookups of the step have more distinct keys than the tier has rows; the
                message contains the required number of rows. After a ValueError, the table is
                unchanged.
        """
        array = ids.asnumpy() if isinstance(ids, Tensor) else np.ascontiguousarray(ids)
        moves = self._native.prepare_device(array, padding_key, faae_coefficient)
        self._move(*moves)

    def sync(self) -> None:
        """Write rows that changed on the device back to the host.

        On the CPU, calling `sync` is not necessary. On devices other than the CPU, evaluation in a
        graph raises an error if `sync` was not called. Methods that read the table outside a graph
        call `sync` themselves.
        """
        self._move(*self._native.fetch_dirty())

    def _move(
        self, out_slots: np.ndarray, in_slots: np.ndarray, values: np.ndarray, states: np.ndarray
    ) -> None:
        if self.shared or len(out_slots) + len(in_slots) == 0:
            return
        assert self._swap is not None
        old = self._swap.run(out_slots, in_slots, values, states)
        if len(out_slots):
            self._native.finish_move(*old)


class _TakeShared(nn.Cell):
    """Gathers rows by slot; in the backward pass, the native table sums the gradients by key."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self._gather = ops.Gather()
        self._zeros = ops.ZerosLike()
        self._accumulate = custom_op("MsrAccumulate", ms.float32)

    def construct(
        self, slots: Tensor, ticket: Tensor, descriptor: Tensor, anchor: Tensor, values: Tensor
    ) -> Tensor:
        return self._gather(values, slots, 0)

    def bprop(  # type: ignore[no-untyped-def]
        self, slots, ticket, descriptor, anchor, values, out, dout
    ):
        token = self._accumulate(dout, ticket, descriptor)
        return self._zeros(slots), self._zeros(ticket), descriptor, token, values


class _TakeInGraph(nn.Cell):
    """Gathers rows by slot; in the backward pass, the device sums the gradients by slot."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self._gather = ops.Gather()
        self._zeros = ops.ZerosLike()
        self._add = ops.ScatterAdd()
        self._report = custom_op("MsrReportGradient", ms.float32)

    def construct(
        self,
        slots: Tensor,
        ticket: Tensor,
        descriptor: Tensor,
        anchor: Tensor,
        values: Tensor,
        sums: Tensor,
    ) -> Tensor:
        return self._gather(values, slots, 0)

    def bprop(  # type: ignore[no-untyped-def]
        self, slots, ticket, descriptor, anchor, values, sums, out, dout
    ):
        token = ops.depend(self._report(ticket, descriptor), self._add(sums, slots, dout))
        return self._zeros(slots), self._zeros(ticket), descriptor, token, values, sums
