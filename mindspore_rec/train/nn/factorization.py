# SPDX-License-Identifier: Apache-2.0
"""FactorizationMachine: the second-order term of a factorization machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mindspore import Tensor, ops

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.train.nn.fused.inputs import check_inputs, check_widths, join
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["FactorizationMachine"]

_REDUCTIONS = ("sum", "none")


class FactorizationMachine(FusedLayer):
    r"""Second-order term of a factorization machine: the sum over the products of all pairs of
    fields.

    .. math::
        y = \sum_{i=1}^{F} \sum_{j=i+1}^{F} \langle v_i, v_j \rangle
          = \frac{1}{2} \sum_{d=1}^{D} \Big[ \Big( \sum_{i=1}^{F} v_{i,d} \Big)^2
            - \sum_{i=1}^{F} v_{i,d}^2 \Big]

    The vector :math:`v_i` is the embedding of field i, multiplied by the feature's value. The cell
    computes :math:`y` by the last expression of the formula. The cell has no parameters: the
    vectors are parameters of the embedding. For the first-order term of a factorization machine,
    sum embeddings of width 1 over the fields.

    Source: Rendle, "Factorization Machines", ICDM 2010, https://doi.org/10.1109/ICDM.2010.127.
    Networks with this term are in Guo et al., "DeepFM: A Factorization-Machine based Neural Network
    for CTR Prediction", IJCAI 2017, https://doi.org/10.24963/ijcai.2017/239. Without the sum over
    d, the term is the bi-interaction of He & Chua, "Neural Factorization Machines for Sparse
    Predictive Analytics", SIGIR 2017, https://doi.org/10.1145/3077136.3080777.

    Args:
        fields: number of vectors F per row, 2 to 4096. If there are several inputs, `fields` is a
            list with each input's number of vectors; F is the sum of the list. The inputs are
            joined without an extra copy.
        embedding_dim: width D of a vector, 1 to 8192.
        reduction: 'sum' returns one number per row; 'none' returns the vector of the D terms,
            without the sum over d. Default: 'sum'.

    Inputs:
        x: float32 Tensor `[B, fields, embedding_dim]`. If `fields` is a list, the layer takes
            several inputs: one float32 Tensor `[B, n, embedding_dim]` for each entry n of the list.

    Outputs:
        float32 Tensor `[B, 1]`, or `[B, embedding_dim]` if `reduction` is 'none'.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or an input has the
            wrong shape.

    Example:
        >>> from mindspore_rec.nn import FactorizationMachine
        >>> x = Tensor(np.array([[[1, 2], [3, 4], [5, 6]]], np.float32))
        >>> FactorizationMachine(3, 2)(x).asnumpy().tolist()  # 1*3 + 2*4 + 1*5 + 2*6 + 3*5 + 4*6
        [[67.0]]
        >>> FactorizationMachine(3, 2, reduction="none")(x).asnumpy().tolist()
        [[23.0, 44.0]]
    """

    rounds_products = False

    @takes_old(Renamed("dim", "embedding_dim"))
    def __init__(
        self, fields: int | Sequence[int], embedding_dim: int, reduction: str = "sum"
    ) -> None:
        super().__init__("float32")
        self.parts = check_widths("fields", fields, 4096)
        self.fields = check_int("fields", sum(self.parts), 2, 4096)
        self.dim = check_int("embedding_dim", embedding_dim, 1, 8192)
        self.sums = check_one_of("reduction", reduction, _REDUCTIONS) == "sum"
        self.in_features = tuple(part * self.dim for part in self.parts)
        self.out_features = 1 if self.sums else self.dim
        # The sum over fields is computed as a product with stacked identity matrices. On the CPU, a
        # reduction of [B, F, D] over the middle axis would take several times as long.
        self.stacked = Tensor(np.tile(np.eye(self.dim, dtype=np.float32), (self.fields, 1)))
        self._fuse()

    def construct(self, *inputs: Tensor) -> Tensor:
        """Return the sum over all pairs of fields."""
        check_inputs(inputs, self.in_features)
        for i in range(len(self.parts)):
            if inputs[i].shape[1:] != (self.parts[i], self.dim):
                name = "x" if len(self.parts) == 1 else f"input {i}"
                raise ValueError(
                    f"{name} must be [B, {self.parts[i]}, {self.dim}], got {inputs[i].shape}"
                )
        if self.is_fused:
            return self._run_fused(inputs)
        x = join(inputs, self.in_features).reshape((-1, self.fields * self.dim))
        total = ops.matmul(x, self.stacked)
        if self.sums:
            return 0.5 * ((total * total).sum(1, keepdims=True) - (x * x).sum(1, keepdims=True))
        return 0.5 * (total * total - ops.matmul(x * x, self.stacked))

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add this layer to a program, and return the columns of the sum over pairs."""
        return program.factorized_pairs(x, self.fields, self.sums, output)
