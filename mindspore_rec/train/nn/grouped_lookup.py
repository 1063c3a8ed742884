# SPDX-License-Identifier: Apache-2.0
"""GroupedLookup: the operator that looks up several tables with rows of one size."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.train.graph.operators import custom_op
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["GroupedLookup"]


class GroupedLookup(nn.Cell):
    """Look up column t of the ids in table t, with one operator.

    Args:
        tables: the table of each column, all with rows of the same size.
        padding_key: id whose lookup returns zeros and trains no row, or None.
        coefficients: one number per column; each occurrence of an id in a column adds the column's
            number to the id's count.

    Inputs:
        ids: int32 or int64 Tensor `[..., tables]`.

    Outputs:
        float32 Tensor `[..., tables, dim]`.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import MapParameter
        >>> tables = [MapParameter(f"doc.grouped_lookup.{t}", value_shape=4) for t in range(2)]
        >>> GroupedLookup(tables, None, [1, 1])(ms.Tensor([[1, 2]], ms.int32)).shape
        (1, 2, 4)
    """

    def __init__(
        self,
        tables: Sequence[TableParameter],
        padding_key: int | None,
        coefficients: Sequence[int],
    ) -> None:
        super().__init__()
        self.padding_key = padding_key
        self.tables = tuple(tables)
        self.embedding_size = tables[0].dim
        descriptors = [
            table.make_descriptor(padding_key, faae_coefficient=each).asnumpy()
            for table, each in zip(tables, coefficients, strict=True)
        ]
        self.descriptors = Tensor(np.stack(descriptors))
        self.like = tables[0].like
        distinct = list({id(table): table for table in tables}.values())
        self.anchors = ms.ParameterTuple([table.anchor for table in distinct])
        self._sum = ops.AddN()
        self._make_operators()

    def _make_operators(self) -> None:
        accumulate = custom_op("MsrGroupAccumulate", ms.float32)
        refuse = custom_op("MsrRefuseGradient", ms.float32)
        zeros = ops.zeros_like

        def train_bprop(ids, descriptors, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptors, like, accumulate(dout[0], out[1], descriptors)

        def eval_bprop(ids, descriptors, like, anchor, out, dout):  # type: ignore[no-untyped-def]
            return zeros(ids), descriptors, like, refuse(dout, descriptors)

        first = self.tables[0].name
        self._train = custom_op(
            "MsrGroupLookupTrain",
            (ms.float32, ms.int64),
            train_bprop,
            table=first,
            multi_output=True,
        )
        self._eval = custom_op("MsrGroupLookupEval", ms.float32, eval_bprop, table=first)

    def construct(self, ids: Tensor) -> Tensor:
        """Look up ids; return the rows, float32 `[..., tables, dim]`."""
        # The operator has the sum of all anchors as an input. In the backward pass, the operator
        # returns a token as the gradient of the anchors' sum, and the sum passes the token on to
        # each anchor.
        anchor = self._sum(self.anchors)
        if self.training:
            return self._train(ids, self.descriptors, self.like, anchor)[0]
        return self._eval(ids, self.descriptors, self.like, anchor)
