# SPDX-License-Identifier: Apache-2.0
"""AppendRows: makes each list one value longer."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

__all__ = ["AppendRows"]


class AppendRows(nn.Cell):
    """Append one row of the matrix `rows` to each list.

    Inputs:
        - **rows** (Tensor): float32 `[B, dim]`.
        - **values** (Tensor): float32 `[N, dim]`.
        - **offsets** (Tensor): int64 `[B + 1]`.

    Outputs:
        Tuple of the extended lists' values (float32 `[N + B, dim]`) and offsets (int64 `[B + 1]`).
    """

    def construct(self, rows: Tensor, values: Tensor, offsets: Tensor) -> Any:
        """Return values and offsets."""
        events, lists = values.shape[0], rows.shape[0]
        longer = offsets + ops.arange(0, lists + 1, 1, dtype=ms.int64)
        numbers = ops.arange(0, events + lists, 1, dtype=ms.int64)
        row = ops.searchsorted(longer[1:], numbers, right=True)
        is_last = numbers == ops.gather(longer, row + 1, 0) - 1
        place = ops.select(is_last, row + events, numbers - row)
        return ops.gather(ops.concat((values, rows), 0), place, 0), longer
