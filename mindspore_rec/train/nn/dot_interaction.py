# SPDX-License-Identifier: Apache-2.0
"""DotInteraction: pairwise dot products of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.old_arguments import Renamed, takes_old
from mindspore_rec.train.nn.fused.inputs import check_inputs, widened
from mindspore_rec.train.nn.fused.layer import FusedLayer
from mindspore_rec.train.nn.fused.program import Columns, Program

__all__ = ["DotInteraction"]


class DotInteraction(FusedLayer):
    r"""Dot products of all pairs of a row's vectors: the feature interaction of DLRM.

    .. math::
        y = [\langle v_i, v_j \rangle : 0 \le j < i < n] \quad
        \text{or, with a dense vector } v_0, \quad
        y = [v_0, \; \langle v_i, v_j \rangle : 0 \le j < i < n]

    The pairs (i, j) are in the order of the lower triangle's rows: (1, 0), (2, 0), (2, 1), (3, 0)
    and so on. With the diagonal, where :math:`j \le i`, the order is (0, 0), (1, 0), (1, 1) and so
    on. The cell has no parameters.

    Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019, https://arxiv.org/abs/1906.00091.

    Args:
        fields: number of embeddings F per row, 1 to 4096; at least 2 if `diagonal` and `dense` are
            both False.
        embedding_dim: width D of a vector, 1 to 8192.
        diagonal: whether to also return the product of each vector with itself. Default: False.
        dense: whether the cell has a second input, a dense vector, such as the bottom MLP's output
            in DLRM. The dense vector takes part in the products as vector 0, and the output begins
            with the dense vector. Default: False.

    Inputs:
        x: float32 Tensor `[B, fields, embedding_dim]`.
        dense: float32 Tensor `[B, embedding_dim]`, an input only if the cell's `dense` is True.

    Outputs:
        float32 Tensor `[B, n (n - 1) / 2]`, where n is `fields`, or `fields + 1` if `dense` is
        True. If `diagonal` is True, the number of products is n (n + 1) / 2. If `dense` is True,
        the output also contains the `embedding_dim` columns of the input `dense`.

    Attributes:
        out_features: width of the output.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or an input has the
            wrong shape.

    Example:
        >>> from mindspore_rec.nn import DotInteraction
        >>> x = Tensor(np.array([[[1, 2], [3, 4], [5, 6]]], np.float32))
        >>> DotInteraction(3, 2)(x).asnumpy().tolist()
        [[11.0, 17.0, 39.0]]
        >>> DotInteraction(3, 2, diagonal=True)(x).asnumpy().tolist()
        [[5.0, 11.0, 25.0, 17.0, 39.0, 61.0]]
        >>> bottom = Tensor(np.array([[1, 0]], np.float32))
        >>> DotInteraction(3, 2, dense=True)(x, bottom).asnumpy().tolist()
        [[1.0, 0.0, 1.0, 3.0, 11.0, 5.0, 17.0, 39.0]]
    """

    rounds_products = False

    @takes_old(Renamed("dim", "embedding_dim"))
    def __init__(
        self, fields: int, embedding_dim: int, diagonal: bool = False, dense: bool = False
    ) -> None:
        super().__init__("float32")
        for argument, value in (("diagonal", diagonal), ("dense", dense)):
            if not isinstance(value, bool):
                raise TypeError(f"{argument} must be a bool, got {value!r}")
        self.fields = check_int("fields", fields, 1 if diagonal or dense else 2, 4096)
        self.dim = check_int("embedding_dim", embedding_dim, 1, 8192)
        self.with_dense = dense
        self.in_features = (self.fields * self.dim, *((self.dim,) if dense else ()))
        self.diagonal = diagonal
        self.vectors = self.fields + int(dense)
        self.pairs = _PairDots(self.vectors, diagonal)
        products = self.vectors * (self.vectors + (1 if diagonal else -1)) // 2
        self.out_features = products + (self.dim if dense else 0)
        self._fuse()

    def construct(self, x: Tensor, dense: Tensor | None = None) -> Tensor:
        """Return the dense vector, if there is one, followed by the dot products."""
        check_inputs((x,), (self.fields * self.dim,))
        if x.shape[1:] != (self.fields, self.dim):
            raise ValueError(f"x must be [B, {self.fields}, {self.dim}], got {x.shape}")
        if self.with_dense:
            if dense is None:
                raise TypeError("dense must be a Tensor, got None")
            if dense.shape[1:] != (self.dim,):
                raise ValueError(f"dense must be [B, {self.dim}], got {dense.shape}")
            if self.is_fused:
                return self._fused((x, dense))
            dense = widened(dense)
            x = ops.cat((ops.expand_dims(dense, 1), widened(x)), 1)
            return ops.cat((dense, self.pairs(x)), 1)
        if dense is not None:
            raise TypeError("dense must be None where the cell is made with dense=False")
        return self._fused((x,)) if self.is_fused else self.pairs(widened(x))

    def _fused(self, inputs: Any) -> Any:
        return self._run_fused(self.joined(inputs))

    def joined(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the inputs in the fused operator's order: the dense vector is the first input."""
        return (inputs[1], inputs[0]) if self.with_dense else inputs

    def add_to(
        self, program: Program, x: Columns, training: bool, output: Columns | None = None
    ) -> Columns:
        """Add the dot products to a `Program`, and return the columns of the dot products."""
        return program.pairwise_dots(x, self.vectors, self.diagonal, self.with_dense, output)


class _PairDots(nn.Cell):
    """Selects the lower triangle of each row's matrix of dot products."""

    def __init__(self, vectors: int, diagonal: bool) -> None:
        super().__init__()
        i, j = np.tril_indices(vectors, 0 if diagonal else -1)
        self.vectors = vectors
        self.triangle = Tensor((i * vectors + j).astype(np.int32))
        # For entry (i, j) of the full matrix, `product` is the index of the dot product in the
        # output, and `times` is the factor of the dot product's gradient.
        product = np.zeros((vectors, vectors), np.int32)
        product[i, j] = product[j, i] = np.arange(len(i))
        times = np.ones((vectors, vectors), np.float32)
        np.fill_diagonal(times, 2 if diagonal else 0)
        self.product, self.times = Tensor(product.ravel()), Tensor(times.ravel())
        self.dots = ops.BatchMatMul(transpose_b=True)
        self.combine = ops.BatchMatMul()

    def construct(self, x: Tensor) -> Tensor:
        dots = self.dots(x, x).reshape((-1, self.vectors * self.vectors))
        return ops.gather(dots, self.triangle, 1)

    def bprop(self, x: Tensor, out: Tensor, grad: Tensor) -> tuple[Tensor]:
        # The default gradient takes twice as long as this method, because the default gradient
        # scatters `grad` and then computes two matrix products.
        matrix = ops.gather(grad, self.product, 1) * self.times
        return (self.combine(matrix.reshape((-1, self.vectors, self.vectors)), x),)
