# SPDX-License-Identifier: Apache-2.0
"""First cells of a network, which embed ids and numbers, and the linear model over both."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.nn.number_embedding import NumberEmbedding

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
        features: description of the arrays, such as the attribute `features` of a `Network`.
        numbers: 'concat' or 'embed'.
        name: name of the embeddings' table, or prefix of the tables' names.
        seed: seed of the embeddings' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor, as for the cell that `Features.embedding` returns.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        Tuple of the parts of a row, float32 Tensors `[B, ...]`: first the vectors of the fields,
            then the numbers or their vectors. `widths` has the number of floats of each part.

    Attributes:
        vectors_of_parts: number of vectors in each part that has vectors; these parts come first.
        fields: number of vectors in a row: F, or F + N with 'embed'.
        dim: number of floats in the vector of a number.
        widths: number of floats in each part of a row.
        width: number of floats in the whole row.
        vectors: the vectors of the numbers, a Parameter `[N, dim]`; only with 'embed'.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """

    def __init__(self, features: Features, numbers: str, name: str, seed: int = 0) -> None:
        super().__init__()
        check_one_of("numbers", numbers, NUMBERS)
        count = features.numbers
        self.embedding = features.embedding(name, seed)
        parts: tuple[tuple[int, int], ...] = tuple(self.embedding.parts)
        self.dim = features.usual_width
        self.embeds = numbers == "embed" and count > 0
        self.concats = numbers == "concat" and count > 0
        if self.embeds:
            parts += ((count, self.dim),)
            self.scaled = NumberEmbedding(count, self.dim, features.std)
            # Also make the parameter an attribute of this cell; the attribute sets the parameter's
            # name in checkpoints.
            self.vectors = self.scaled.vectors
            self.vectors.name = "vectors"
        self.vectors_of_parts = tuple(vectors for vectors, _ in parts)
        self.fields = sum(self.vectors_of_parts)
        self.widths: tuple[int, ...] = tuple(vectors * dim for vectors, dim in parts)
        if self.concats:
            self.widths += (count,)
        self.width = sum(self.widths)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Any:
        """Return the parts of a row."""
        vectors = self.embedding(ids)
        if self.embeds:
            return (*vectors, self.scaled(numbers))
        if self.concats:
            return (*vectors, numbers)
        return vectors


class FirstOrder(nn.Cell):
    r"""Compute the linear model over ids and numbers, :math:`b + \sum_f w_{i_f} + u^\top x`.

    The weights of ids start at 0. For a list of ids, :math:`w_{i_f}` is the mean of the weights.
    Without numbers, the linear model has no bias b, since the rest of the network has a bias.

    Args:
        features: description of the arrays, such as the attribute `features` of a `Network`.
        name: name of the weights' table, or prefix of the tables' names.
        seed: seed of the table. Default: 0.

    Inputs:
        ids: int64 Tensor, as for the cell that `Features.sums` returns.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`.

    Attributes:
        out_features: width of the output, 1.
    """

    def __init__(self, features: Features, name: str, seed: int = 0) -> None:
        super().__init__()
        self.ids = features.sums(name, seed)
        self.out_features = 1
        self.has_numbers = features.numbers > 0
        if self.has_numbers:
            self.numbers = nn.Dense(features.numbers, 1, weight_init="zeros")

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logit of the linear model."""
        weights = self.ids(ids)
        return weights + self.numbers(numbers) if self.has_numbers else weights
