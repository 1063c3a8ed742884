# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the native operators over histories during an export.

A stand-in uses MindSpore's operators. If the ONNX nodes depend on the lengths of the lists, the
stand-in exports a mark, and `insert.py` replaces the mark by ONNX nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec.train.export.histories import lists
from mindspore_rec.train.export.histories.attention import AttentionForm, attention
from mindspore_rec.train.export.histories.marks import Mark, Marks
from mindspore_rec.train.export.histories.rows import DiceRows, NormalRows, PReluRows
from mindspore_rec.train.export.histories.target import TargetRows
from mindspore_rec.train.export.lookup_marks import exchange
from mindspore_rec.train.nn.dice import DiceOperator, PReLUOperator
from mindspore_rec.train.nn.history.append import AppendRows
from mindspore_rec.train.nn.history.operators import (
    AddPlaces,
    Attention,
    GatedAttention,
    NormRows,
)
from mindspore_rec.train.nn.padded import ToValues
from mindspore_rec.train.nn.target_attention import TargetAttention

__all__ = ["history_marks"]


class _Attention(nn.Cell):
    """Stand-in for `Attention`."""

    def __init__(self, cell: Attention, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        heads, scale = int(cell.form.asnumpy()[0]), float(cell.scales.asnumpy()[0])
        self.mark = marks.new(2, partial(attention, form=AttentionForm(heads, scale)))

    def construct(self, qkv: Tensor, offsets: Tensor) -> Tensor:
        """Return the mark."""
        return self.mark(qkv[:, : qkv.shape[1] // 3], qkv, offsets)


class _GatedAttention(nn.Cell):
    """Stand-in for `GatedAttention`."""

    def __init__(self, cell: GatedAttention, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        heads, _, distances, times = cell.form.asnumpy().tolist()
        score_scale, weight_scale, epsilon = cell.scales.asnumpy().tolist()
        form = AttentionForm(heads, score_scale, weight_scale, bool(distances), bool(times))
        self.by_time = form.times
        self.mark = marks.new(5 if self.by_time else 3, partial(attention, form=form))
        self.norm = NormalRows(epsilon)

    def construct(
        self,
        projected: Tensor,
        offsets: Tensor,
        times: Tensor,
        by_distance: Tensor,
        by_time: Tensor,
        scale: Tensor,
        shift: Tensor,
    ) -> tuple[Tensor]:
        """Return the gated attention."""
        width = projected.shape[1] // 4
        active = projected * ops.sigmoid(projected)
        qkv, gates = active[:, : 3 * width], active[:, 3 * width :]
        if self.by_time:
            attended = self.mark(gates, qkv, offsets, by_distance, times, by_time)
        else:
            attended = self.mark(gates, qkv, offsets, by_distance)
        return (self.norm(attended, scale, shift) * gates,)


class _AddPlaces(nn.Cell):
    """Stand-in for `AddPlaces`."""

    def __init__(self, cell: AddPlaces, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        self.by_time = bool(cell.form.asnumpy()[0])
        self.mark = marks.new(4 if self.by_time else 3, lists.add_places)

    def construct(self, values: Tensor, offsets: Tensor, times: Tensor, table: Tensor) -> Tensor:
        """Return the mark."""
        if self.by_time:
            return self.mark(values, values, offsets, table, times)
        return self.mark(values, values, offsets, table)


class _AppendRows(nn.Cell):
    """Stand-in for `AppendRows`.

    During the export, the output of the stand-in has the same shape as `values`.
    """

    def __init__(self, cell: AppendRows, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        self.values = marks.new(3, lists.append_rows)
        self.offsets = marks.new(1, lists.longer_offsets)

    def construct(self, rows: Tensor, values: Tensor, offsets: Tensor) -> Any:
        """Return the marks."""
        longer = self.offsets(offsets, offsets).astype(ms.int64)
        return self.values(values, rows, values, offsets), longer


class _ToValues(nn.Cell):
    """Stand-in for `ToValues`."""

    def __init__(self, cell: ToValues, marks: Marks) -> None:
        super().__init__(auto_prefix=False)
        build = partial(lists.values_of_block, keeps_last=cell.keeps_last)
        self.mark = marks.new(2, build)

    def construct(self, block: Tensor, offsets: Tensor, values: Tensor) -> Tensor:
        """Return the mark."""
        ones = ops.ones_like(values).astype(ms.float32).reshape((values.shape[0], -1))
        like = ones[:, 0].reshape((-1,) + (1,) * (block.ndim - 2)) * block[0, 0]
        return self.mark(like, block, offsets)


_STAND_INS: dict[type[nn.Cell], Callable[[Any, Marks], nn.Cell]] = {
    AddPlaces: _AddPlaces,
    AppendRows: _AppendRows,
    Attention: _Attention,
    GatedAttention: _GatedAttention,
    TargetAttention: TargetRows,
    ToValues: _ToValues,
    DiceOperator: lambda cell, marks: DiceRows(float(cell.numbers.asnumpy()[0])),
    NormRows: lambda cell, marks: NormalRows(float(cell.epsilon.asnumpy()[0])),
    PReLUOperator: lambda cell, marks: PReluRows(),
}


@contextmanager
def history_marks(network: nn.Cell) -> Iterator[list[Mark]]:
    """Context in which stand-ins replace history operators; yields a list of `Mark` objects."""
    replaced: list[tuple[nn.Cell, str, Any]] = []
    marks = Marks()
    try:
        for _, parent in list(network.cells_and_names()):
            for name, cell in list(parent._cells.items()):
                kind = next((each for each in _STAND_INS if isinstance(cell, each)), None)
                if kind is not None:
                    made = _STAND_INS[kind](cell, marks)
                    replaced.append((parent, name, exchange(parent, name, made)))
        yield marks.made
    finally:
        for parent, name, cell in replaced:
            exchange(parent, name, cell)
        network.compile_cache.clear()
