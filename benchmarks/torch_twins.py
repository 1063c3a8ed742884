# SPDX-License-Identifier: Apache-2.0
"""Click models in PyTorch, initialized with the weights of the mindspore_rec network.

The models are written from the papers' formulas with PyTorch's own layers; `accuracy_twin.py`
trains the models.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["Twin", "make_optimizers"]


class Twin(nn.Module):
    """A click model over ids that are numbered from 1; 0 stands for ids without a row.

    Args:
        name: 'wide_deep', 'dcn', 'dcn_v2' (with full matrices), 'deepfm' or 'dlrm'.
        net: the mindspore_rec network, with one hash table for all fields.
        keys: int64 [V], the key of id k at index k - 1. The keys are inserted into the tables of
            `net`, and the initial values of the rows are copied to PyTorch.
    """

    def __init__(self, name: str, net: Any, keys: np.ndarray) -> None:
        super().__init__()
        self.name = name
        if name == "dlrm":
            self.vectors = _embedding(net.embedding.table, keys)
            self.bottom, self.top = _perceptron(net.bottom), _perceptron(net.top)
            return
        inputs = net.inputs
        self.vectors = _embedding(inputs.embedding.table, keys)
        self.concats, self.embeds = inputs.concats, inputs.embeds
        if self.embeds:
            self.of_numbers = _parameter(inputs.vectors)
        self.deep = _perceptron(net.deep)
        if name in ("wide_deep", "deepfm"):
            first = net.wide if name == "wide_deep" else net.first_order
            self.weights = _embedding(first.ids.table, keys)
            self.linear = _linear(first.numbers)
        elif name == "dcn":
            self.cross_weight = _parameter(net.cross.weight)
            self.cross_bias = _parameter(net.cross.bias)
            self.output = _linear(net.output)
        else:
            self.maps = nn.ModuleList([_linear(each) for each in net.cross.maps])
            self.output = _linear(net.output)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, 1] of `ids` [B, F], which start at 1, and `numbers` [B, N]."""
        vectors = self.vectors(ids)
        if self.name == "dlrm":
            first = self.bottom(numbers)
            vectors = torch.cat((first[:, None], vectors), 1)
            i, j = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
            products = torch.bmm(vectors, vectors.transpose(1, 2))[:, i, j]
            return self.top(torch.cat((first, products), 1))
        if self.embeds:
            vectors = torch.cat((vectors, numbers[:, :, None] * self.of_numbers), 1)
        row = vectors.flatten(1)
        if self.concats:
            row = torch.cat((row, numbers), 1)
        if self.name in ("wide_deep", "deepfm"):
            logit = self.weights(ids).sum(1) + self.linear(numbers) + self.deep(row)
            return logit + _pairs(vectors) if self.name == "deepfm" else logit
        crossed = row
        if self.name == "dcn":
            for w, b in zip(self.cross_weight, self.cross_bias, strict=True):
                crossed = row * (crossed @ w)[:, None] + b + crossed
        else:
            for linear in self.maps:
                crossed = row * linear(crossed) + crossed
        return self.output(torch.cat((crossed, self.deep(row)), 1))


def make_optimizers(twin: Twin, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Return two optimizers: Adam for the dense weights, and SparseAdam for the embeddings."""
    sparse = [m.weight for m in twin.modules() if isinstance(m, nn.Embedding)]
    taken = {id(p) for p in sparse}
    dense = [p for p in twin.parameters() if id(p) not in taken]
    return [
        torch.optim.SparseAdam(sparse, lr=learning_rate),
        torch.optim.Adam(dense, lr=learning_rate),
    ]


def _pairs(vectors: torch.Tensor) -> torch.Tensor:
    squares = vectors.sum(1).square() - vectors.square().sum(1)
    return 0.5 * squares.sum(1, keepdim=True)


def _embedding(lookup: Any, keys: np.ndarray) -> nn.Embedding:
    rows = lookup.embedding_table.insert_rows(keys)
    table = np.concatenate([np.zeros((1, rows.shape[1]), np.float32), rows])
    return nn.Embedding.from_pretrained(
        torch.from_numpy(table), freeze=False, padding_idx=0, sparse=True
    )


def _parameter(ours: Any) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(ours.asnumpy().copy()))


def _linear(dense: Any) -> nn.Linear:
    made = nn.Linear(dense.in_channels, dense.out_channels)
    made.weight, made.bias = _parameter(dense.weight), _parameter(dense.bias)
    return made


def _perceptron(mlp: Any) -> nn.Sequential:
    layers: list[nn.Module] = []
    for each in mlp.layers:
        kind = type(each).__name__
        if kind not in ("Dense", "ReLU"):
            raise ValueError(f"a twin has only linear layers and ReLU, got {kind}")
        layers.append(nn.ReLU() if kind == "ReLU" else _linear(each))
    return nn.Sequential(*layers)
