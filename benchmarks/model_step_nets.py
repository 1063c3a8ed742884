# SPDX-License-Identifier: Apache-2.0
"""The zoo's models for `model_step.py`, each in three versions.

The first version is the unchanged model. The second version uses MindSpore's own lookups and layers
instead of tables and fused operators. The third version has constant rows instead of tables.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from step_parts import GivenRows

from mindspore_rec import tables_of
from mindspore_rec.nn import BCEWithLogitsLoss
from models.common.embedding import FieldEmbedding, FieldSum, embedding_parameters
from models.common.model import read_config
from models.common.precision import lower_precision

# name -> configuration
MODELS = {
    "wide_deep": "criteo_x1.yaml",
    "dcn": "criteo_x1.yaml",
    "dcn_v2": "criteo_x1.yaml",
    "deepfm": "criteo_x1.yaml",
    "dlrm": "criteo_x1.yaml",
    "mmoe": "best.yaml",
}
FIELDS, NUMBERS = 26, 13
_TASKS = ("first", "second")  # of MMoE


class Loss(nn.Cell):
    """A network with its loss."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.loss = BCEWithLogitsLoss()

    def construct(self, ids: Tensor, numbers: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], numbers [B, N], label [B, T] -> loss."""
        return self.loss(self.net(ids, numbers), label)


def tasks_of(name: str) -> int:
    """Return the number of outputs of a model."""
    return len(_TASKS) if name == "mmoe" else 1


def network(name: str, title: str, precision: str) -> Any:
    """Return a model's network.

    Args:
        name: a name in `MODELS`.
        title: name of the run, which is a part of the tables' names.
        precision: type of the perceptrons' products.
    """
    model = importlib.import_module(f"models.{name}.config").MODEL
    config, tasks = read_config(model, MODELS[name]), _TASKS[: tasks_of(name)]
    net = model.net(config, FIELDS, NUMBERS, f"bench.{name}.{title}", 0, tasks=tasks)
    lower_precision(net, precision)
    return net


def lookups_of(net: nn.Cell) -> list[tuple[str, Any]]:
    """Return names and cells of a network's lookups."""
    cells = net.cells_and_names()
    return [(name, c) for name, c in cells if isinstance(c, FieldEmbedding | FieldSum)]


def dense_parameters(net: nn.Cell) -> list[Parameter]:
    """Return the parameters that are not in tables."""
    taken = {id(p) for p in embedding_parameters(net)}
    return [p for p in net.trainable_params() if id(p) not in taken]


def to_vanilla(net: nn.Cell, rows: int) -> None:
    """Replace tables by vanilla lookups of a fixed vocabulary, and operators by layers.

    The fused operators of perceptrons and other blocks are replaced by the blocks' MindSpore
    layers.
    """
    for table in tables_of(net):
        table.close()
    for name, cell in lookups_of(net):
        sums = isinstance(cell, FieldSum)
        dim = 1 if sums else cell.dim
        lookup = nn.EmbeddingLookup(rows, dim, "normal", target="CPU", sparse=True)
        cell.table = lookup
        lookup.embedding_table.name = f"{name}.embedding_table"
        if sums:
            cell.sums = False
    for _, cell in net.cells_and_names():
        if getattr(cell, "is_fused", False):
            cell.fused_training = cell.fused_evaluation = None


def to_given(net: nn.Cell, batch: int) -> None:
    """Replace a network's tables by constant rows, which are the same for every batch."""
    for table in tables_of(net):
        table.close()
    rng = np.random.default_rng(1)
    for name, cell in lookups_of(net):
        sums = isinstance(cell, FieldSum)
        shape = (batch, 1) if sums else (batch, FIELDS, cell.dim)
        cell.table = GivenRows(name, rng.random(shape) * 0.02 - 0.01)


def layers_of_model(name: str, net: Any) -> tuple[list[tuple[int, int]], list[int]]:
    """Return each layer's (inputs, outputs), and the indices of the layers that read only numbers.

    The count includes products of perceptrons, of DCN-V2's matrices, and of MMoE's experts, gates
    and towers. The first layers of all experts count as one layer, and the gates together count as
    one layer. The count leaves out products of single vectors (DCN, first-order terms) and of pairs
    of embeddings (DLRM): these products mostly wait for memory.

    Args:
        name: a name in `MODELS`.
        net: its network.
    """
    model = importlib.import_module(f"models.{name}.config").MODEL
    shape = read_config(model, MODELS[name]).model
    if name == "dlrm":
        bottom = _chain(NUMBERS, shape.bottom, net.embedding.dim)
        return [*bottom, *_chain(net.pairs.out_features, shape.top, 1)], [0]
    width = net.inputs.width
    if name == "mmoe":
        return _mixture(width, shape, net.mixture.out_features), []
    matrices = [(width, width)] * shape.layers if name == "dcn_v2" else []
    return [*matrices, *_chain(width, shape.hidden)], []


def _chain(width: int, hidden: Sequence[int], *last: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise([width, *hidden, *last]))


def _mixture(width: int, shape: Any, mixed: int) -> list[tuple[int, int]]:
    first, *deeper = shape.expert_hidden
    of_each = _chain(first, deeper) * shape.experts
    towers = _chain(mixed, shape.tower_hidden, 1) * len(_TASKS)
    return [(width, shape.experts * first), *of_each, (width, len(_TASKS) * shape.experts), *towers]
