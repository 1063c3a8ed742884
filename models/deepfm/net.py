# SPDX-License-Identifier: Apache-2.0
"""The DeepFM network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn

from mindspore_rec.nn import MLP, FactorizationMachine, fuse
from models.common.embedding import EmbeddingConfig
from models.common.inputs import FirstOrder, InputLayer

__all__ = ["DeepFM"]


class DeepFM(nn.Cell):
    r"""DeepFM: the sum of a factorization machine and a perceptron over the same embeddings.

    .. math::
        z = b + \sum_f w_{i_f} + u^\top x + \sum_{j<k} \langle v_j, v_k \rangle + \text{MLP}(r)

    In the formulas, :math:`v` are the vectors, and r is the row that `InputLayer` makes from ids
    and numbers x.

    Source: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction",
    IJCAI 2017, https://doi.org/10.24963/ijcai.2017/239.

    Args:
        fields: number of categorical fields F, at least 1; fields and numbers together must give at
            least two vectors.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings. Default: 16 floats in a hash table.
        numbers: 'concat' or 'embed', as for `InputLayer`. Default: 'embed'.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        name: prefix of the tables' names. Default: 'deepfm'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, 1]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> net = DeepFM(3, 0, EmbeddingConfig(embedding_dim=4), hidden=(8,), name="doc.deepfm")
        >>> net(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig | None = None,
        numbers: str = "embed",
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        *,
        name: str = "deepfm",
        seed: int = 0,
    ) -> None:
        super().__init__()
        config = embedding or EmbeddingConfig()
        self.inputs = InputLayer(fields, dense, config, numbers, f"{name}.embedding", seed)
        self.first_order = FirstOrder(fields, dense, config, f"{name}.first_order", seed)
        self.embeds = self.inputs.fields > fields  # numbers are vectors, too
        parts = (fields, dense) if self.embeds else self.inputs.fields
        self.pairs = FactorizationMachine(parts, self.inputs.dim)
        self.deep = MLP(self.inputs.widths, hidden, "relu", dropout, batch_norm, out_features=1)
        fuse(self)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        linear = self.first_order(ids, numbers)
        row = self.inputs(ids, numbers)
        pairs = self.pairs(*row) if self.embeds else self.pairs(row[0])
        return linear + pairs + self.deep(*row)
