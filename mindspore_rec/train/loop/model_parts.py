# SPDX-License-Identifier: Apache-2.0
"""ModelParts: common parts of a RecModel's training, evaluation and prediction."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mindspore import nn
from mindspore.train import Model
from mindspore.train.callback import _InternalCallbackParam

from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.train.data.batch_sources import batch_source
from mindspore_rec.train.data.given_data import check_batches_given
from mindspore_rec.train.graph.batch_columns import BatchColumns
from mindspore_rec.train.graph.cell_caller import CellCaller
from mindspore_rec.train.graph.graph_mode import graph_mode
from mindspore_rec.train.loop.cells import EvalCell, LossCell
from mindspore_rec.train.loop.hints import hint_untrained
from mindspore_rec.train.loop.schema_training import SchemaTraining
from mindspore_rec.train.loop.step import TrainStep
from mindspore_rec.train.nn.tables import tables_of

__all__ = ["ModelParts", "is_labelled"]


class ModelParts(Model):
    """Common parts of a `RecModel`: cell callers, callback parameters, mode and sources."""

    _rows: SchemaTraining | None  # None if the network was not made from a schema
    _callers: dict[int, CellCaller]
    _caller_tables: dict[int, list[Any]]
    _has_rows: bool  # also True after the warning was shown
    _metric_fns: Any

    def _hint_untrained(self) -> None:
        if not self._has_rows:
            self._has_rows = hint_untrained(self._network)

    def _callback_params(self, mode: str) -> Any:
        run = _InternalCallbackParam()
        run.mode = mode
        run.network = self._network
        run.optimizer = self._optimizer
        run.loss_fn = self._loss_fn
        run.parallel_mode = self._parallel_mode
        run.device_number = self._device_number
        run.loss_scale_mananger = self._loss_scale_manager  # the spelling that Model reads
        run.dataset_sink_mode = False
        run.cur_step_num = 0
        return run

    def _caller(self, cell: nn.Cell) -> CellCaller:
        if id(cell) not in self._callers:
            self._callers[id(cell)] = CellCaller(cell, self._network, is_labelled(cell))
            self._caller_tables[id(cell)] = tables_of(cell)
        for table in self._caller_tables[id(cell)]:
            table.check_not_replaced()  # an operator's error would break the graph
        return self._callers[id(cell)]

    def _source(self, argument: str, data: Any, cell: nn.Cell) -> BatchSource:
        check_batches_given(argument, data, BatchColumns(self._network, is_labelled(cell)))
        return batch_source(data, argument)

    def _mode(self) -> AbstractContextManager[None]:
        """Return a context in which a network that was made from a schema runs in graph mode.

        MindSpore's default, PyNative mode, is several times slower. Networks that were not made
        from a schema may need PyNative mode, so their mode is not changed.
        """
        return nullcontext() if self._rows is None else graph_mode()

    def _sums_loss(self) -> bool:
        """Return True if a batch's loss is the sum over its rows, False if the loss is the mean."""
        loss = self._loss_fn
        reduction = getattr(loss, "reduction", None)
        if isinstance(reduction, str):
            return reduction == "sum"
        # Some losses of MindSpore store the reduction only as attributes of LossBase.
        return bool(getattr(loss, "reduce", False)) and not getattr(loss, "average", True)


def is_labelled(cell: nn.Cell) -> bool:
    """Return whether the last column of the cell's batches is a label, not a network input."""
    inside = cell.network if isinstance(cell, TrainStep) else cell
    return isinstance(inside, (LossCell, EvalCell))
