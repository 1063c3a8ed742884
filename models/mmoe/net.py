# SPDX-License-Identifier: Apache-2.0
"""The MMoE network."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, nn, ops

from mindspore_rec.nn import MLP, MMoE
from models.common.embedding import EmbeddingConfig
from models.common.inputs import InputLayer

__all__ = ["MMoENet"]


class MMoENet(nn.Cell):
    r"""Several tasks on one mixture of experts, with one gate and one tower per task.

    .. math::
        z_k = \text{tower}_k(\text{MMoE}(x)_k)

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018, https://doi.org/10.1145/3219819.3220007.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric fields N, at least 0.
        embedding: description of the embeddings. Default: 16 floats in a hash table.
        numbers: 'concat' or 'embed', as for `InputLayer`. Default: 'concat'.
        experts: number of experts. Default: 8.
        expert_hidden: widths of an expert's layers. Default: (16,).
        tower_hidden: widths of a tower's hidden layers. Default: (8,).
        input_dropout: probability that an input of the experts and gates is dropped in training,
            in [0, 1). Default: 0.0.
        expert_dropout: probability that a unit of an expert is dropped in training. Default: 0.0.
        tasks: number of tasks T, at least 1. Default: 2.
        name: prefix of the tables' names. Default: 'mmoe'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, N]`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, T]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> embedding = EmbeddingConfig(embedding_dim=4)
        >>> net = MMoENet(3, 0, embedding, experts=2, tasks=3, name="doc.mmoe")
        >>> net(Tensor([[1, 2, 3]], ms.int64)).shape
        (1, 3)
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        embedding: EmbeddingConfig | None = None,
        numbers: str = "concat",
        experts: int = 8,
        expert_hidden: Sequence[int] = (16,),
        tower_hidden: Sequence[int] = (8,),
        input_dropout: float = 0.0,
        expert_dropout: float = 0.0,
        *,
        tasks: int = 2,
        name: str = "mmoe",
        seed: int = 0,
    ) -> None:
        super().__init__()
        config = embedding or EmbeddingConfig()
        self.inputs = InputLayer(fields, dense, config, numbers, f"{name}.embedding", seed)
        self.mixture = MMoE(
            self.inputs.widths,
            experts,
            expert_hidden,
            tasks,
            dropout=expert_dropout,
            input_dropout=input_dropout,
        )
        self.towers = nn.CellList(
            [MLP(self.mixture.out_features, tower_hidden, out_features=1) for _ in range(tasks)]
        )

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits of all tasks."""
        parts = self.inputs(ids, numbers)
        mixtures = self.mixture(*parts)
        logits: tuple[Tensor, ...] = ()
        for k in range(len(self.towers)):
            logits += (self.towers[k](mixtures[k]),)
        return ops.concat(logits, 1)
