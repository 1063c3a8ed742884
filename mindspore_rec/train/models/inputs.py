# SPDX-License-Identifier: Apache-2.0
"""Cells that embed a network's ids and numbers, and the linear model of ids and numbers."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor, nn, ops

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.nn.members import MemberRows, check_members
from mindspore_rec.train.nn.number_embedding import NumberEmbedding
from mindspore_rec.train.nn.periodic_embedding import PeriodicEmbedding
from mindspore_rec.train.nn.piecewise_linear import PiecewiseLinear

__all__ = ["NUMBERS", "FirstOrder", "InputLayer", "numbers_as_vectors"]

NUMBERS = ("concat", "embed", "piecewise", "periodic")


class InputLayer(nn.Cell):
    r"""Return the parts of a row: the vectors of fields, and the numbers or vectors of numbers.

    With 'concat', numbers are appended to the embeddings, as in the papers on Wide & Deep and DCN.
    With 'embed', each number is a field with its own vector, which is scaled by the number,
    :math:`x_n v_n`. The paper on factorization machines uses 'embed'; FuxiCTR and BARS use 'embed'
    for all models. With 'piecewise' or 'periodic', the vector of a number is a learned curve of the
    number, as in `PiecewiseLinear` and `PeriodicEmbedding`.

    Pass the parts to a cell that takes several inputs, as in `MLP(layer.widths, ...)(*parts)`; such
    a cell reads the parts without a copy.

    Args:
        features: a `Features` that describes the arrays, such as the `features` of a `Network`.
        numbers: use of the numeric columns, 'concat', 'embed', 'piecewise' or 'periodic'.
        name: name of the embeddings' table, or prefix of the tables' names.
        seed: seed of the embeddings' initial values. Default: 0.
        members: number of members. With more than 1 member, the cell returns the rows of all
            members, one member after the other, and each member multiplies its rows by learned
            factors. The initial factors are random signs, 1 or -1: one sign for each vector and one
            for each number. Default: 1.

    Inputs:
        ids: int64 Tensor, the input of the cell that `Features.embedding` returns.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        Tuple of the parts of a row, float32 Tensors `[B, ...]`: first the vectors of the fields,
        then the numbers themselves or vectors of the numbers. `widths` contains the number of
        floats of each part. With several members, each part has `members` times B rows.

    Attributes:
        vectors_of_parts: for each part that consists of vectors, the number of vectors. Parts that
            consist of vectors come first.
        fields: number of vectors in a row. For F fields and N numbers, there are F vectors with
            'concat' and F + N vectors otherwise.
        dim: number of floats in the vector of a number.
        widths: number of floats in each part of a row.
        width: number of floats in the whole row.
        vectors: the vectors of the numbers, a Parameter `[N, dim]`; only with 'embed' and one
            member.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """

    def __init__(
        self, features: Features, numbers: str, name: str, seed: int = 0, members: int = 1
    ) -> None:
        super().__init__()
        check_one_of("numbers", numbers, NUMBERS)
        self.members = check_members(members)
        count = features.numbers
        self.embedding = features.embedding(name, seed)
        parts: tuple[tuple[int, int], ...] = tuple(self.embedding.parts)
        self.dim = features.usual_width
        self.embeds = numbers != "concat" and count > 0
        self.concats = numbers == "concat" and count > 0
        if self.embeds:
            parts += ((count, self.dim),)
            scaled = numbers_as_vectors(numbers, count, self.dim, features.std)
            if members == 1:
                self.scaled = scaled
                if numbers == "embed":
                    # Also make the parameter an attribute of this cell, because the attribute's
                    # name is the parameter's name in checkpoints.
                    self.vectors = self.scaled.vectors
                    self.vectors.name = "vectors"
        if members > 1:
            shapes = self.embedding.parts
            rows = [MemberRows(each, members, (seed, k)) for k, each in enumerate(shapes)]
            self.rows = nn.CellList(rows)
            if self.embeds:
                self.number_rows = MemberRows((count, self.dim), members, (seed, len(rows)), scaled)
            if self.concats:
                self.number_rows = MemberRows((count,), members, (seed, len(rows)))
        self.vectors_of_parts = tuple(vectors for vectors, _ in parts)
        self.fields = sum(self.vectors_of_parts)
        self.widths: tuple[int, ...] = tuple(vectors * dim for vectors, dim in parts)
        if self.concats:
            self.widths += (count,)
        self.width = sum(self.widths)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Any:
        """Return the parts of a row."""
        vectors = self.embedding(ids)
        if self.members > 1:
            parts: Any = ()
            for k in range(len(vectors)):
                parts = (*parts, self.rows[k](vectors[k]))
            return (*parts, self.number_rows(numbers)) if self.embeds or self.concats else parts
        if self.embeds:
            return (*vectors, self.scaled(numbers))
        if self.concats:
            return (*vectors, numbers)
        return vectors


def numbers_as_vectors(kind: str, numbers: int, dim: int, std: float) -> Any:
    """Return the cell that computes a vector for each number.

    Args:
        kind: way to compute the vectors, 'embed', 'piecewise' or 'periodic'; see `InputLayer`.
        numbers: number of numeric features in a row.
        dim: width of a vector.
        std: standard deviation of the initial vectors of 'embed' and 'piecewise'.
    """
    if kind == "periodic":
        return PeriodicEmbedding(numbers, dim)
    cell = NumberEmbedding if kind == "embed" else PiecewiseLinear
    return cell(numbers, dim, std=std)


class FirstOrder(nn.Cell):
    r"""Compute the linear model over ids and numbers, :math:`b + \sum_f w_{i_f} + u^\top x`.

    The weights of ids start at 0. For a list of ids, :math:`w_{i_f}` is the mean of the weights.
    Without numbers, the linear model has no bias b, because the rest of the network has a bias.

    Args:
        features: a `Features` that describes the arrays, such as the `features` of a `Network`.
        name: name of the weights' table, or prefix of the tables' names.
        seed: seed of the table, as in `TableConfig`. Default: 0.
        members: number of members; the cell repeats its output for each member. Default: 1.

    Inputs:
        ids: int64 Tensor, the input of the cell that `Features.sums` returns.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, or `[members * B, 1]` with several members.

    Attributes:
        out_features: width of the output, 1.
    """

    def __init__(self, features: Features, name: str, seed: int = 0, members: int = 1) -> None:
        super().__init__()
        self.members = check_members(members)
        self.ids = features.sums(name, seed)
        self.out_features = 1
        self.has_numbers = features.numbers > 0
        if self.has_numbers:
            self.numbers = nn.Dense(features.numbers, 1, weight_init="zeros")

    def start_at_zero(self) -> None:
        """Set the bias to 0, so that an untrained cell returns 0."""
        if self.has_numbers:
            self.numbers.bias.set_data(ops.zeros((1,)))

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logit of the linear model."""
        weights = self.ids(ids)
        if self.members > 1:
            weights = ops.tile(weights, (self.members, 1))
            if self.has_numbers:
                numbers = ops.tile(numbers, (self.members, 1))
        return weights + self.numbers(numbers) if self.has_numbers else weights
