# SPDX-License-Identifier: Apache-2.0
"""The first cells of a network: embedded ids, and numbers in one of two ways."""

from __future__ import annotations

from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

from mindspore_rec.checks import check_one_of
from models.common.checks import check_least
from models.common.embedding import EmbeddingConfig, FieldEmbedding, FieldSum

__all__ = ["NUMBERS", "FirstOrder", "InputLayer"]

NUMBERS = ("concat", "embed")


class InputLayer(nn.Cell):
    r"""Embed the fields of a row as vectors, and join the whole row to one vector.

    Numbers are appended to the embeddings ('concat', as in the papers on Wide & Deep and DCN), or
    each is a field with a vector of its own that the number scales, :math:`x_n v_n` ('embed', as in
    the paper on factorization machines, and in FuxiCTR and BARS for all models).

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numbers N, at least 0.
        embedding: description of the embeddings.
        numbers: 'concat' or 'embed'.
        name: name of the embeddings' table, or beginning of the tables' names.
        seed: seed of the embeddings' first values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; none where N is 0.

    Outputs:
        Tuple of float32 Tensors: the vectors, `[B, fields, dim]`, and the whole row, `[B, width]`.

    Attributes:
        fields: number of vectors of a row: F, or F + N with 'embed'.
        dim: floats of a vector.
        width: floats of the whole row.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> import numpy as np
        >>> layer = InputLayer(3, 2, EmbeddingConfig(dim=4), "embed", "doc.inputs")
        >>> ids = Tensor([[1, 2, 3]], ms.int64)
        >>> vectors, row = layer(ids, Tensor(np.ones((1, 2), np.float32)))
        >>> vectors.shape, row.shape
        ((1, 5, 4), (1, 20))
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
        self.width = self.fields * self.dim + (dense if self.concats else 0)
        if self.embeds:
            first = initializer(Normal(embedding.std), (dense, self.dim))
            self.vectors = Parameter(first, name="vectors")

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return vectors and row."""
        vectors = self.embedding(ids)
        if self.embeds:
            scaled = ops.expand_dims(numbers, 2) * self.vectors
            vectors = ops.concat((vectors, scaled), 1)
        row = vectors.reshape((-1, self.fields * self.dim))
        if self.concats:
            row = ops.concat((row, numbers), 1)
        return vectors, row


class FirstOrder(nn.Cell):
    r"""Compute the linear model over ids and numbers, :math:`b + \sum_f w_{i_f} + u^\top x`.

    All weights start at 0. Without numbers there is no b: the network beside it has a bias.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numbers N, at least 0.
        embedding: description of the weights' tables, apart from its `dim` and `std`.
        name: name of the weights' table, or beginning of the tables' names.
        seed: seed of the table. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; none where N is 0.

    Outputs:
        float32 Tensor `[B, 1]`.
    """

    def __init__(
        self, fields: int, dense: int, embedding: EmbeddingConfig, name: str, seed: int = 0
    ) -> None:
        super().__init__()
        self.ids = FieldSum(fields, embedding, name, seed)
        self.has_numbers = dense > 0
        if dense:
            self.numbers = nn.Dense(dense, 1, weight_init="zeros")

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the linear model's logit."""
        total = self.ids(ids)
        return total + self.numbers(numbers) if self.has_numbers else total
