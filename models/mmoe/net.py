# SPDX-License-Identifier: Apache-2.0
"""The multi-gate mixture of experts over hash-embedded categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Tensor, nn, ops

from mindspore_rec import MLP, CacheConfig, MMoE
from models.mmoe.embedding import make_embedding

__all__ = ["MMoENet"]


class MMoENet(nn.Cell):
    r"""Several tasks on one mixture of experts: embeddings, experts and gates, a tower a task.

    .. math::
        x = [e_{i_1}, ..., e_{i_F}, v], \quad z_k = \text{tower}_k(\text{MMoE}(x)_k)

    with :math:`i_f` the id of field f and :math:`v` the numbers. One hash table holds the
    embeddings :math:`e` of all fields, whose ids must not collide: keys that are salted by the
    field's name, as `mindspore_rec.feature.hashing.category_keys` makes them.

    Source: Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate
    Mixture-of-Experts", KDD 2018.

    Args:
        fields: number of categorical fields F, at least 1.
        dense: number of numeric features, at least 0.
        tasks: number of tasks, at least 1.
        dim: floats of an embedding. Default: 8.
        experts: number of experts. Default: 8.
        expert_hidden: widths of an expert's layers. Default: (16,).
        tower_hidden: widths of a tower's hidden layers. Default: (8,).
        input_dropout: probability that an input of the experts and gates is dropped in training,
            in [0, 1). Default: 0.0.
        expert_dropout: the same of an expert's units. Default: 0.0.
        param_init: first values of the embeddings, as for `HashEmbeddingLookup`.
            Default: 'normal'.
        embedding: how the embeddings are held, as for `make_embedding`. Default: 'hash'.
        vocabulary: number of ids, where `embedding` has a fixed one. Default: None.
        multi_lookup: a lookup for each field of a hash table. Default: False.
        admission_threshold: occurrences after which an id gets a row, at least 1: the table's
            `permit_filter_value`. Default: 1, at once.
        max_idle_steps: steps without an occurrence after which a row is evicted, at least 1: the
            table's `evict_filter_value`. Default: None, never.
        cache: the tiers the rows live in; not where `embedding` is 'converted'. Default: None.
        name: what the table's name begins with. Default: 'mmoe'.
        seed: of the table's first values. Default: 0.

    Inputs:
        ids: int64 Tensor `[B, F]`.
        numbers: float32 Tensor `[B, dense]`; there is no such input where `dense` is 0.

    Outputs:
        float32 Tensor `[B, tasks]`, logits.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
    """

    def __init__(
        self,
        fields: int,
        dense: int,
        tasks: int,
        dim: int = 8,
        experts: int = 8,
        expert_hidden: Sequence[int] = (16,),
        tower_hidden: Sequence[int] = (8,),
        *,
        input_dropout: float = 0.0,
        expert_dropout: float = 0.0,
        param_init: Any = "normal",
        embedding: str = "hash",
        vocabulary: int | None = None,
        multi_lookup: bool = False,
        admission_threshold: int = 1,
        max_idle_steps: int | None = None,
        cache: CacheConfig | None = None,
        name: str = "mmoe",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if fields < 1 or dense < 0:
            raise ValueError(
                f"fields must be at least 1 and dense at least 0, got {fields}, {dense}"
            )
        self.embedding = make_embedding(
            embedding,
            fields,
            dim,
            param_init,
            vocabulary=vocabulary,
            multi_lookup=multi_lookup,
            admission_threshold=admission_threshold,
            max_idle_steps=max_idle_steps,
            cache=cache,
            name=f"{name}.embedding",
            seed=seed,
        )
        self.tasks = tasks
        self.width = fields * dim
        self.has_numbers = dense > 0
        self.mixture = MMoE(
            self.width + dense,
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
        """Logits."""
        x = self.embedding(ids).reshape((-1, self.width))
        if self.has_numbers:
            x = ops.concat((x, numbers), 1)
        logits: tuple[Tensor, ...] = ()
        mixtures = self.mixture(x)
        for k in range(self.tasks):
            logits += (self.towers[k](mixtures[k]),)
        return ops.concat(logits, 1)
