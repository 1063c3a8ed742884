# SPDX-License-Identifier: Apache-2.0
"""The DLRM network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn

from mindspore_rec.nn import MLP, DotInteraction, fuse
from models.common.checks import check_least
from models.common.embedding import EmbeddingConfig, FieldEmbedding

__all__ = ["DLRM"]


class DLRM(nn.Cell):
    r"""DLRM: dot products of all pairs of embeddings; the numbers together become one embedding.

    .. math::
        v_0 = a(\text{MLP}_{bottom}(x)), \quad
        z = \text{MLP}_{top}([v_0, \langle v_j, v_k \rangle : j < k])

    In the formulas, :math:`v_1, ..., v_F` are the embeddings of the ids, x are the numbers, and a
    is the activation of the bottom perceptron's layers. The last layer of the bottom perceptron is
    as wide as an embedding. Without numbers, there is no :math:`v_0`.

    Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019, https://arxiv.org/abs/1906.00091.

    Args:
        fields: number of categorical fields F, at least 1; at least 2 without numbers.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings. Default: 16 floats in a hash table.
        bottom: widths of the bottom perceptron's layers. The last layer is left out, because it is
            as wide as an embedding. () if there are no numbers. Default: (64, 32).
        top: widths of the top perceptron's hidden layers. Default: (256, 128).
        dropout: dropout of both perceptrons, in [0, 1). Default: 0.0.
        batch_norm: whether both perceptrons normalize batches. Default: False.
        name: prefix of the tables' names. Default: 'dlrm'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, is out of range or contradicts
            another argument.

    Example:
        >>> import mindspore as ms
        >>> net = DLRM(3, 0, EmbeddingConfig(embedding_dim=4), bottom=(), top=(8,), name="doc.dlrm")
        >>> net(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig | None = None,
        bottom: Sequence[int] = (64, 32),
        top: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        *,
        name: str = "dlrm",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_least("dense", dense, 0, 1 << 16)
        if not dense and len(bottom):
            raise ValueError(f"bottom must be () without numbers, got {tuple(bottom)}")
        config = embedding or EmbeddingConfig()
        self.embedding = FieldEmbedding(fields, config, f"{name}.embedding", seed)
        self.has_numbers = dense > 0
        dim = self.embedding.dim
        if dense:
            self.bottom = MLP(dense, (*bottom, dim), "relu", dropout, batch_norm)
        self.pairs = DotInteraction(fields, dim, dense=self.has_numbers)
        self.top = MLP(self.pairs.out_features, top, "relu", dropout, batch_norm, out_features=1)
        fuse(self)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        vectors = self.embedding(ids)
        if self.has_numbers:
            return self.top(self.pairs(vectors, self.bottom(numbers)))
        return self.top(self.pairs(vectors))
