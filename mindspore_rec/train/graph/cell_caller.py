# SPDX-License-Identifier: Apache-2.0
"""Call a cell with batches of varying sizes without a compilation for each size."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.graph.api import _pynative_executor

from mindspore_rec.train.graph.batch_columns import BatchColumns
from mindspore_rec.train.graph.batch_errors import explained_by_batch
from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.graph.operator_errors import operator_errors

__all__ = ["CellCaller"]

_STATIC_SHAPES = 2

_Signature = tuple[tuple[tuple[int, ...], Any], ...]


class CellCaller:
    """Calls a cell under the graph lock with batches of any size, in GRAPH_MODE or PyNative mode.

    In GRAPH_MODE, MindSpore compiles a separate graph for each shape. Static graphs are the fastest
    kind of graph, so this class compiles a static graph for each of the first two shapes. The first
    two shapes are often the shapes of a full batch and of the shorter last batch of an epoch. For
    the third shape, a third graph is compiled, which serves all sizes. In the third graph, all
    dimensions whose sizes have varied are dynamic. The dynamic graph is about 10 to 30 % slower per
    step than the first two graphs but needs no further compilation. If the backbone's attribute
    `varying_inputs` is True, all first dimensions are already dynamic in the first graph. If
    `set_inputs` of the cell was called before, the class does not change the cell's inputs.

    After `set_train()` of the network, `cell.set_train(False)` may set inner cells to evaluation
    mode. An inner cell in evaluation mode stays in this mode while the network trains.

    Args:
        cell: the cell to call.
        backbone: the network inside the cell. The caller sets the mode of `backbone` too, because
            another cell with the same network may have changed the mode. Default: None, which means
            that `cell` is the backbone.
        labelled: whether the last column of a batch is a label and therefore not an input of the
            backbone. `labelled` is used for error messages. Default: False.

    Attributes:
        compilations: number of graphs compiled so far through this object.
        columns: the batches' columns, for error messages.

    Example:
        >>> import numpy as np
        >>> caller = CellCaller(nn.Dense(3, 1))
        >>> for rows in (4, 2, 3, 5, 6):
        ...     shape = caller(False, Tensor(np.ones((rows, 3), np.float32))).shape
        >>> shape
        (6, 1)
    """

    def __init__(
        self, cell: nn.Cell, backbone: nn.Cell | None = None, labelled: bool = False
    ) -> None:
        self.cell = cell
        self._backbone = cell if backbone is None else backbone
        self.columns = BatchColumns(self._backbone, labelled)
        self.compilations = 0
        self._seen: dict[bool, list[_Signature]] = {False: [], True: []}
        self._dynamic: list[list[int | None]] | None = None
        self._frozen: list[nn.Cell] = []  # cells in evaluation mode inside a training network
        self._adapts = cell.get_inputs() is None

    def __call__(self, train: bool, *batch: Tensor) -> Any:
        """Return the cell's output.

        Args:
            train: True for training mode, in which tables insert and learn, and dropout is active.
            *batch: the cell's inputs.
        """
        with graph_lock:
            if self.cell.training != train or self._backbone.training != train:
                self._set_mode(train)
            seen = self._seen[train]
            before = len(seen), self._dynamic
            if self._adapts and ms.get_context("mode") == ms.GRAPH_MODE:
                self._prepare(seen, batch)
            try:
                with operator_errors():
                    output = self.cell(*batch)
                    _finish()
                return output
            except (TypeError, ValueError, RuntimeError) as error:
                with suppress(TypeError, ValueError, RuntimeError):
                    _finish()  # prevents the next call from raising further errors of this call
                _forget_gradient()
                del seen[before[0] :]  # valid batches must not be adapted to an invalid batch
                self._dynamic = before[1]
                explained = explained_by_batch(error, self.columns, batch)
                if explained is None:
                    raise
                raise explained from None

    def _set_mode(self, train: bool) -> None:
        if train and self._backbone.training:  # the user has set the modes of the cells
            self._frozen = [c for _, c in self._backbone.cells_and_names() if not c.training]
        self.cell.set_train(train)
        for cell in self._frozen if train else ():
            cell.set_train(False)

    def _prepare(self, seen: list[_Signature], batch: tuple[Tensor, ...]) -> None:
        signature = tuple((column.shape, column.dtype) for column in batch)
        if self._dynamic is None and getattr(self._backbone, "varying_inputs", False):
            self._dynamic = [[None, *shape[1:]] if shape else [] for shape, _ in signature]
            self._cell_inputs(batch)
            seen.append(signature)
            self.compilations += 1
            gc.collect()
            return
        if signature in seen or (self._dynamic and _fits(signature, self._dynamic)):
            return
        many = self._dynamic is not None or len(seen) >= _STATIC_SHAPES
        if many and seen and _same_kind(signature, seen[0]):
            self._make_dynamic([*seen, signature])
            self._cell_inputs(batch)
        else:
            seen.append(signature)
        self.compilations += 1
        # Collect garbage now, because garbage collection during a compilation might free a network.
        # If an older network were freed during a compilation, MindSpore would forget the new
        # graph's arguments, and would compile the new graph a second time at the next call of the
        # cell.
        gc.collect()

    def _make_dynamic(self, signatures: list[_Signature]) -> None:
        shapes: Sequence[Sequence[int | None]] = [shape for shape, _ in signatures[0]]
        known = [list(dims) for dims in self._dynamic or shapes]
        for signature in signatures:
            for dims, (shape, _) in zip(known, signature, strict=True):
                for i, size in enumerate(shape):
                    if dims[i] != size:
                        dims[i] = None
        self._dynamic = known

    def _cell_inputs(self, batch: tuple[Tensor, ...]) -> None:
        assert self._dynamic is not None
        self.cell.set_inputs(
            *(
                Tensor(shape=dims, dtype=column.dtype) if None in dims else column
                for dims, column in zip(self._dynamic, batch, strict=True)
            )
        )


def _finish() -> None:
    """Wait for operators that PyNative mode runs in its own threads, and raise their errors."""
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        _pynative_executor.sync()


def _forget_gradient() -> None:
    """Clear the state that remains in MindSpore after a gradient has failed in PyNative mode.

    Without this call, MindSpore 2.10 rejects `tensor[0]` until the process ends.
    """
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        _pynative_executor.clear_res()


def _same_kind(one: _Signature, other: _Signature) -> bool:
    """True if two batches differ only in sizes."""
    return [(len(shape), dtype) for shape, dtype in one] == [
        (len(shape), dtype) for shape, dtype in other
    ]


def _fits(signature: _Signature, dynamic: list[list[int | None]]) -> bool:
    if len(signature) != len(dynamic):
        return False
    return all(
        len(shape) == len(dims) and all(d in (None, n) for d, n in zip(dims, shape, strict=True))
        for (shape, _), dims in zip(signature, dynamic, strict=True)
    )
