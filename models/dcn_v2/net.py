# SPDX-License-Identifier: Apache-2.0
"""The DCN-V2 network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn, ops
from mindspore.common.initializer import XavierUniform

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.nn import MLP, CrossNetMix, CrossNetV2, fuse
from models.common.embedding import EmbeddingConfig
from models.common.inputs import InputLayer

__all__ = ["CROSSES", "DCNV2", "STRUCTURES"]

CROSSES = ("matrix", "mixture")
STRUCTURES = ("parallel", "stacked")


class DCNV2(nn.Cell):
    r"""DCN-V2: a cross network (full matrices or low-rank experts) beside or below a perceptron.

    .. math::
        z = w^\top [\text{cross}(x), \text{MLP}(x)] + b \quad \text{(parallel)}, \qquad
        z = w^\top \text{MLP}(\text{cross}(x)) + b \quad \text{(stacked)}

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale
    Learning to Rank Systems", WWW 2021, https://doi.org/10.1145/3442381.3450078.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings. Default: 16 floats in a hash table.
        numbers: 'concat' or 'embed', as for `InputLayer`. Default: 'concat'.
        structure: 'parallel' or 'stacked'. Default: 'parallel'.
        cross: 'matrix' for `CrossNetV2`, 'mixture' for `CrossNetMix`. Default: 'matrix'.
        layers: number of cross layers. Default: 3.
        experts: number of experts in a layer; only for 'mixture'. Default: None, which means 4 for
            'mixture'.
        rank: width of an expert; only for 'mixture'. Default: None, which means 32 for 'mixture'.
        hidden: widths of the perceptron's layers. Default: (256, 128).
        dropout: dropout of the perceptron, in [0, 1). Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
        name: prefix of the tables' names. Default: 'dcn_v2'.
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
        >>> held = EmbeddingConfig(embedding_dim=4)
        >>> net = DCNV2(3, 0, held, cross="mixture", rank=2, hidden=(8,), name="doc.dcn_v2")
        >>> net(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 1)
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig | None = None,
        numbers: str = "concat",
        structure: str = "parallel",
        cross: str = "matrix",
        layers: int = 3,
        experts: int | None = None,
        rank: int | None = None,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
        batch_norm: bool = False,
        *,
        name: str = "dcn_v2",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_one_of("structure", structure, STRUCTURES)
        check_one_of("cross", cross, CROSSES)
        if cross == "matrix" and (experts is not None or rank is not None):
            raise ValueError(
                f"experts and rank must be None with cross='matrix', got {experts}, {rank}"
            )
        config = embedding or EmbeddingConfig()
        self.inputs = InputLayer(fields, dense, config, numbers, f"{name}.embedding", seed)
        widths = self.inputs.widths
        if cross == "matrix":
            self.cross: nn.Cell = CrossNetV2(widths, layers)
        else:
            self.cross = CrossNetMix(
                widths, layers, 4 if experts is None else experts, 32 if rank is None else rank
            )
        self.stacked = structure == "stacked"
        deep_input = self.cross.out_features if self.stacked else widths
        self.deep = MLP(deep_input, hidden, "relu", dropout, batch_norm)
        joined = self.deep.out_features + (0 if self.stacked else self.inputs.width)
        self.output = nn.Dense(joined, 1, weight_init=XavierUniform(), bias_init="zeros")
        fuse(self)

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits."""
        row = self.inputs(ids, numbers)
        crossed = self.cross(*row)
        if self.stacked:
            return self.output(self.deep(crossed))
        return self.output(ops.concat((crossed, self.deep(*row)), 1))
