# SPDX-License-Identifier: Apache-2.0
"""The DLRM network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor, ops

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import NUMBERS, numbers_as_vectors
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn.dot_interaction import DotInteraction
from mindspore_rec.train.nn.fuse import fuse
from mindspore_rec.train.nn.members import MemberRows
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["DLRM"]


class DLRM(Network):
    r"""DLRM: dot products between all pairs of embeddings, including a vector of the numbers.

    .. math::
        v_0 = a(\text{MLP}_{bottom}(x)), \quad
        z = \text{MLP}_{top}([v_0, \langle v_j, v_k \rangle : j < k])

    In the formulas, :math:`v_1, ..., v_F` are the embeddings of the ids, x are the numbers, and a
    is the activation of the bottom perceptron's layers. The last layer of the bottom perceptron is
    as wide as an embedding. If the row has no numbers, :math:`v_0` is left out.

    Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019, https://arxiv.org/abs/1906.00091.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema. All fields
            must have vectors of the same width. If there are no numbers, at least two fields are
            required.
        numbers: input of the bottom perceptron. With 'concat', the input is the numbers; with
            'embed', 'piecewise' or 'periodic', the input is vectors of the numbers; see
            `InputLayer`. Default: 'concat'.
        bottom: widths of the bottom perceptron's layers. `bottom` does not include the width of the
            last layer, which equals the width of an embedding. If there are no numbers, there is no
            bottom perceptron. Default: (64, 32).
        top: widths of the top perceptron's hidden layers. Default: (256, 128).
        dropout: dropout probability of both perceptrons, in [0, 1). Default: 0.0.
        batch_norm: whether both perceptrons normalize batches. Default: False.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'dlrm'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, is out of range or contradicts
            another argument.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import DLRM
        >>> columns = [CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")]
        >>> schema = Schema(columns, embedding_dim=4)
        >>> net = DLRM(schema, top=(8,), name="doc.dlrm")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "concat",
        bottom: Sequence[int] = (64, 32),
        top: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        members: int = 1,
        name: str = "dlrm",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            bottom=bottom,
            top=top,
            dropout=dropout,
            batch_norm=batch_norm,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        dim = self.features.one_width("DLRM")
        count = self.features.numbers
        self.embedding = self.features.embedding(f"{name}.embedding", seed)
        self.joins = len(self.embedding.parts) > 1
        self.has_numbers = count > 0
        self.embeds = check_one_of("numbers", numbers, NUMBERS) != "concat" and self.has_numbers
        scaled: Any = (
            numbers_as_vectors(numbers, count, dim, self.features.std) if self.embeds else None
        )
        if members > 1:
            self.rows = MemberRows((len(self.features.widths), dim), members, (seed, 0))
        if members > 1 and self.has_numbers:
            row = (count, dim) if self.embeds else (count,)
            self.number_rows = MemberRows(row, members, (seed, 1), scaled)
        elif self.embeds:
            self.scaled = scaled
        if self.has_numbers:
            width = count * dim if self.embeds else count
            self.bottom = MLP(width, (*bottom, dim), "relu", dropout, batch_norm)
        self.pairs = DotInteraction(len(self.features.widths), dim, dense=self.has_numbers)
        self.top = MLP(
            self.pairs.out_features, top, "relu", dropout, batch_norm, out_features=members
        )
        fuse(self)

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layer."""
        return [self.top.last_bias]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        parts = self.embedding(ids)
        vectors = ops.concat(parts, 1) if self.joins else parts[0]
        if self.members > 1:
            vectors = self.rows(vectors)
        if not self.has_numbers:
            return self._answer(self.top(self.pairs(vectors)))
        if self.members > 1:
            numbers = self.number_rows(numbers)
        elif self.embeds:
            numbers = self.scaled(numbers)
        return self._answer(self.top(self.pairs(vectors, self.bottom(numbers))))
