# SPDX-License-Identifier: Apache-2.0
"""The Deep & Cross network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import XavierUniform

from mindspore_rec.nn import MLP, CrossNet, fuse
from models.common.embedding import EmbeddingConfig
from models.common.inputs import InputLayer

__all__ = ["DCN"]


class DCN(nn.Cell):
    r"""Deep & Cross: a cross network and a perceptron over one row, then a linear layer over both.

    .. math::
        z = w^\top [\text{cross}(x), \text{MLP}(x)] + b

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Wang et al., "Deep & Cross Network for Ad Click Predictions", ADKDD 2017,
    https://doi.org/10.1145/3124749.3124754.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings. Default: 16 floats in a hash table.
        numbers: 'concat' or 'embed', as for `InputLayer`. Default: 'concat'.
        layers: number of cross layers. Default: 3.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        name: prefix of the tables' names. Default: 'dcn'.
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
        >>> net = DCN(3, 0, EmbeddingConfig(embedding_dim=4), hidden=(8,), name="doc.dcn")
        >>> net(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig | None = None,
        numbers: str = "concat",
        layers: int = 3,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        *,
        name: str = "dcn",
        seed: int = 0,
    ) -> None:
        super().__init__()
        config = embedding or EmbeddingConfig()
        self.inputs = InputLayer(fields, dense, config, numbers, f"{name}.embedding", seed)
        self.cross = CrossNet(self.inputs.widths, layers)
        self.deep = MLP(self.inputs.widths, hidden, "relu", dropout, batch_norm)
        width = self.cross.out_features + self.deep.out_features
        self.output = nn.Dense(width, 1, weight_init=XavierUniform(), bias_init="zeros")
        fuse(self)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        row = self.inputs(ids, numbers)
        return self.output(ops.concat((self.cross(*row), self.deep(*row)), 1))
