# SPDX-License-Identifier: Apache-2.0
"""First cells of a network, which embed ids and numbers, and the linear model over both."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.nn import NumberEmbedding
from models.common.checks import check_least
from models.common.embedding import EmbeddingConfig, FieldEmbedding, FieldSum

__all__ = ["NUMBERS", "FirstOrder", "InputLayer"]

NUMBERS = ("concat", "embed")


class InputLayer(nn.Cell):
    r"""Embed the fields of a row as vectors, and return the parts of the row.

    With 'concat', numbers are appended to the embeddings, as in the papers on Wide & Deep and DCN.
    With 'embed', each number is a field with its own vector, which is scaled by the number,
    :math:`x_n v_n`. The paper on factorization machines uses 'embed'; FuxiCTR and BARS use 'embed'
    for all models.

    Pass the parts to a cell that takes several inputs, as in `MLP(layer.widths, ...)(*parts)`; such
    a cell reads the parts without a copy.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings.
        numbers: 'concat' or 'embed'.
        name: name of the embeddings' table, or prefix of the tables' names.
        seed: seed of the embeddings' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        Tuple of the parts of a row, float32 Tensors `[B, ...]`; `widths` has the number of floats
            of each part.

    Attributes:
        fields: number of vectors in a row: F, or F + N with 'embed'.
        dim: number of floats in a vector.
        widths: number of floats in each part of a row.
        width: number of floats in the whole row.
        vectors: the vectors of the numbers, a Parameter `[N, dim]`; only with 'embed'.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> import numpy as np
        >>> layer = InputLayer(3, 2, EmbeddingConfig(embedding_dim=4), "embed", "doc.inputs")
        >>> ids = Tensor([[1, 2, 3]], ms.int64)
        >>> parts = layer(ids, Tensor(np.ones((1, 2), np.float32)))
        >>> [part.shape for part in parts], layer.widths
        ([(1, 3, 4), (1, 2, 4)], (12, 8))
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig,
        numbers: str,
        name: str,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_least("fields", fields, 1, 1 << 16)
        check_least("dense", dense, 0, 1 << 16)
        check_one_of("numbers", numbers, NUMBERS)
        self.embedding = FieldEmbedding(fields, embedding, name, seed)
        self.dim = self.embedding.dim
        self.embeds = numbers == "embed" and dense > 0
        self.concats = numbers == "concat" and dense > 0
        self.fields = fields + (dense if self.embeds else 0)
        self.widths: tuple[int, ...] = (fields * self.dim,)
        if self.embeds:
            self.widths += (dense * self.dim,)
            self.scaled = NumberEmbedding(dense, self.dim, embedding.std)
            # Also make the parameter an attribute of this cell; the attribute sets the parameter's
            # name in checkpoints.
            self.vectors = self.scaled.vectors
            self.vectors.name = "vectors"
        elif self.concats:
            self.widths += (dense,)
        self.width = sum(self.widths)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Any:
        """Return the parts of a row."""
        vectors = self.embedding(ids)
        if self.embeds:
            return vectors, self.scaled(numbers)
        if self.concats:
            return vectors, numbers
        return (vectors,)


class FirstOrder(nn.Cell):
    r"""Compute the linear model over ids and numbers, :math:`b + \sum_f w_{i_f} + u^\top x`.

    All weights start at 0. Without numbers, the linear model has no bias b, since the rest of the
    network has a bias.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric fields N, at least 0.
        embedding: description of the weights' tables. `dim` and `std` of this description have no
            effect.
        name: name of the weights' table, or prefix of the tables' names.
        seed: seed of the table. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`.

    Attributes:
        out_features: width of the output, 1.
    """

    def __init__(
        self, fields: int, dense: int, embedding: EmbeddingConfig, name: str, seed: int = 0
    ) -> None:
        super().__init__()
        self.ids = FieldSum(fields, embedding, name, seed)
        self.out_features = 1
        self.has_numbers = dense > 0
        if dense:
            self.numbers = nn.Dense(dense, 1, weight_init="zeros")

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logit of the linear model."""
        weights = self.ids(ids)
        return weights + self.numbers(numbers) if self.has_numbers else weights
