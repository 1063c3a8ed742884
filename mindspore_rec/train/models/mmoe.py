# SPDX-License-Identifier: Apache-2.0
"""The MMoE network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mindspore import Parameter, Tensor, nn, ops

from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.train.models.features import Features
from mindspore_rec.train.models.inputs import InputLayer
from mindspore_rec.train.models.network import Network
from mindspore_rec.train.nn import mmoe
from mindspore_rec.train.nn.mlp import MLP

__all__ = ["MMoE"]


class MMoE(Network):
    r"""Several tasks on one mixture of experts, with one gate and one tower per task.

    .. math::
        z_k = \text{tower}_k(\text{MMoE}(x)_k)

    In the formulas, x is the row that `InputLayer` makes from ids and numbers.

    Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018, https://doi.org/10.1145/3219819.3220007.

    Args:
        schema: the `Schema` of the data, or a `Features` for arrays that have no schema.
        numbers: 'concat', 'embed', 'piecewise' or 'periodic'; see `InputLayer`. Default:
            'concat'.
        experts: number of experts. Default: 8.
        expert_hidden: widths of an expert's layers. Default: (16,).
        tower_hidden: widths of a tower's hidden layers. Default: (8,).
        input_dropout: probability that an input of the experts and gates is dropped in training,
            in [0, 1). Default: 0.0.
        expert_dropout: probability that a unit of an expert is dropped in training. Default: 0.0.
        members: number of ensemble members, which share layers and tables, 1 to 256; see `Network`.
            Default: 1.
        name: prefix of the tables' names. Default: 'mmoe'.
        seed: seed of the tables' initial values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, W]`, the schema's array `ids`.
        numbers: float32 Tensor `[B, N]`, the schema's array `numbers`; left out if N is 0.

    Outputs:
        float32 Tensor `[B, T]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import Schema
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> from mindspore_rec.models import MMoE
        >>> columns = [CategoryColumn("user"), CategoryColumn("item")]
        >>> labels = [LabelColumn("clicked"), LabelColumn("bought")]
        >>> net = MMoE(Schema([*columns, *labels], embedding_dim=4), experts=2, name="doc.mmoe")
        >>> net(Tensor([[1, 2]], ms.int64)).shape
        (1, 2)
    """

    several_tasks: ClassVar[bool] = True

    def __init__(
        self,
        schema: Schema | Features,
        *,
        numbers: str = "concat",
        experts: int = 8,
        expert_hidden: Sequence[int] = (16,),
        tower_hidden: Sequence[int] = (8,),
        input_dropout: float = 0.0,
        expert_dropout: float = 0.0,
        members: int = 1,
        name: str = "mmoe",
        seed: int = 0,
    ) -> None:
        super().__init__(
            schema,
            numbers=numbers,
            experts=experts,
            expert_hidden=expert_hidden,
            tower_hidden=tower_hidden,
            input_dropout=input_dropout,
            expert_dropout=expert_dropout,
            members=members,
            name=name,
            seed=seed,
        )
        self._set_members(members)
        tasks = len(self.features.tasks)
        self.inputs = InputLayer(self.features, numbers, f"{name}.embedding", seed, members)
        self.mixture = mmoe.MMoE(
            self.inputs.widths,
            experts,
            expert_hidden,
            tasks,
            dropout=expert_dropout,
            input_dropout=input_dropout,
        )
        self.towers = nn.CellList(
            [
                MLP(self.mixture.out_features, tower_hidden, out_features=members)
                for _ in range(tasks)
            ]
        )

    @property
    def last_biases(self) -> list[Parameter]:
        """Biases of the last layers."""
        return [tower.last_bias for tower in self.towers]

    def construct(self, ids: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Return the logits of all tasks."""
        parts = self.inputs(ids, numbers)
        mixtures = self.mixture(*parts)
        logits: tuple[Tensor, ...] = ()
        for k in range(len(self.towers)):
            logits += (self.towers[k](mixtures[k]),)
        return self._answer(ops.concat(logits, 1))
