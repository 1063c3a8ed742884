# SPDX-License-Identifier: Apache-2.0
"""DeviceTier: the most used rows of a table in the device's memory.

The cache is a Parameter `[device_rows + 3, dim]` of values and a matrix of optimizer states beside
it; its last three rows are what an unknown key reads, what padding reads, and scratch. A training
lookup maps ids to slots of the cache on the host, exchanges the least used rows for missing ones,
all in one swap, and gathers rows by slot in the graph. The table on the host stays the owner
of counts, ages and admission. A row in the cache has its newest value there; whatever reads the
table otherwise (evaluation, export, checkpoint, a lower tier) has it written back first.

There are two forms of one tier, with the same results:

* *shared*: the device is the CPU, and native code swaps and updates rows in the Parameter's own
  memory, with the kernels that update rows on the host: the same bits. Nothing needs to be called.
* *graph*: any other device. Rows are swapped with Gather and ScatterUpdate by `prepare`, which is
  to be called for the ids of each lookup after the step before; gradients are summed with
  ScatterAdd, and rows updated by the optimizer's formula in elementwise operators. Rows then agree
  with the other form to rounding, not to the bit.

`MINDSPORE_REC_DEVICE_TIER=graph` chooses the second form on the CPU too, for tests.
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
        rows: slots, at least the distinct keys of one step's lookups.
        policy: whose slot is taken: 'lru', least recently, or 'lfu', least often used.
        descriptor: int64 Tensor, how operators name the table.
        unknown: float32 `[dim]`, what an unknown key reads in training.

    Attributes:
        shared: whether rows are in memory shared with the host, the first of the two forms.

    Raises:
        ValueError: rows out of range.
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
            # Nothing: the gradient flows past the slots. Constants are their own zero gradient.
            return zeros(ids), descriptor, zeros(anchor), values

        self._slots = custom_op(
            "MsrLookupSlots", (ms.int32, ms.int64), slots_bprop, multi_output=True
        )
        self._take = _TakeShared() if self.shared else _TakeInGraph()
        self._swap: Swap | None = None

    def _hide(self, name: str, value: Any) -> None:
        # Not by Cell's own way: then it would be among the network's parameters, and so in its
        # checkpoints and in the optimizer. The rows are the table's.
        self.__dict__[name] = value

    def _parameter(self, what: str, array: np.ndarray) -> Parameter:
        name = f"{self._native.name}.device_{what}"
        return Parameter(Tensor.from_numpy(array), name=name, requires_grad=False)

    def bind(self) -> None:
        """Make room for the optimizer's state; to be called when an optimizer was bound."""
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
        """Return the rows of a training lookup, `[*ids.shape, dim]`; called in a graph."""
        if self.shared:
            slots, ticket = self._slots(ids, descriptor, anchor, self.values)
            return self._take(slots, ticket, descriptor, anchor, self.values)
        slots, ticket = self._slots(ids, descriptor, anchor, self._no_cache)
        return self._take(slots, ticket, descriptor, anchor, self.values, self.sums)

    def prepare(self, ids: Any, padding_key: int | None = None, faae_coefficient: int = 1) -> None:
        """Do the host's part of a training lookup ahead of it: count, admit, promote rows.

        If the device is not the CPU, call it for each lookup of a step, between the step before and
        that step. On the CPU the call may be left out.

        Args:
            ids: int32 or int64 array or Tensor, as the lookup will get them.
            padding_key: the lookup's padding key.
            faae_coefficient: the lookup's coefficient.

        Raises:
            ValueError: the lookups of the step have more distinct keys than the tier has rows; the
                message names how many it would take. The table is as it was.
        """
        array = ids.asnumpy() if isinstance(ids, Tensor) else np.ascontiguousarray(ids)
        moves = self._native.prepare_device(array, padding_key, faae_coefficient)
        self._move(*moves)

    def sync(self) -> None:
        """Write rows that changed on the device back to the host.

        If the device is the CPU, this happens by itself. On other devices evaluation in a graph
        asks for it, and all that reads the table outside a graph calls it.
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
    """Gather rows by slot; the gradient goes to the native table, which adds it by key."""

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
    """Gather rows by slot; the gradient is added by slot on the device."""

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
