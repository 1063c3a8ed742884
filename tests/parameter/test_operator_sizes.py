# SPDX-License-Identifier: Apache-2.0
"""Operators whose outputs were inferred with another size than they write."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import MapParameter
from mindspore_rec.train.graph.operators import LIBRARY

DIM = 4


class Wrong(nn.Cell):
    """A lookup whose rows are inferred with a shape of the test's."""

    def __init__(self, table: MapParameter, shape: tuple[int, ...], dtype: ms.Type) -> None:
        super().__init__()
        self.descriptor, self.like, self.anchor = table.descriptor, table.like, table.anchor
        # Without reg_op_name, by which MindSpore would find the operator's own inference.
        self.lookup = ops.Custom(
            f"{LIBRARY}:MsrLookupEval", lambda *_: shape, lambda *_: dtype, "aot"
        )

    def construct(self, ids: Tensor) -> Tensor:
        return self.lookup(ids, self.descriptor, self.like, self.anchor)


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((1, DIM), ms.float32, "[1, 4] of float32"),
        ((3, DIM - 1), ms.float32, "[3, 3] of float32"),
        ((9, DIM), ms.float32, "[9, 4] of float32"),
        ((3, DIM), ms.float16, "[3, 4] of float16"),
    ],
)
def test_a_wrong_inference_is_refused_before_anything_is_written(
    unique: Callable[[], str],
    shape: tuple[int, ...],
    dtype: ms.Type,
    said: str,
) -> None:
    table = MapParameter(unique(), value_shape=DIM, key_dtype=ms.int64)
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)  # PyNative keeps the first inference for all
    try:
        with pytest.raises(RuntimeError) as raised:
            Wrong(table, shape, dtype)(Tensor(np.array([1, 2, 3]))).asnumpy()
    finally:
        ms.set_context(mode=before)
    words = f"MsrLookupEval: the output of rows must have 12 elements of float32, got {said}"
    assert words in str(raised.value)
