# SPDX-License-Identifier: Apache-2.0
"""Messages of `convert(dense=True)` for a network in which it finds no stack of dense layers."""

from __future__ import annotations

import pytest
from mindspore import nn

import mindspore_rec
from mindspore_rec.nn import FusedSequential


class Net(nn.Cell):
    """A network with a stack in it."""

    def __init__(self, stack: nn.Cell) -> None:
        super().__init__()
        self.stack = stack


@pytest.mark.parametrize(
    "stack",
    [
        nn.Dense(4, 2),
        nn.SequentialCell(nn.Dense(4, 2), nn.Dropout(p=0.5)),
        nn.SequentialCell(),
    ],
)
def test_neither_embedding_nor_stack(stack):
    message = r"net must hold an embedding of .*, or an nn\.SequentialCell of .* holds neither"
    with pytest.raises(ValueError, match=message):
        mindspore_rec.convert(Net(stack), dense=True)
    with pytest.raises(ValueError, match="net must hold an embedding of .* holds none"):
        mindspore_rec.convert(Net(stack))


def test_the_network_itself_is_a_stack():
    stack = nn.SequentialCell(nn.Dense(4, 2), nn.ReLU())
    with pytest.raises(ValueError, match=r"use mindspore_rec\.nn\.FusedSequential\(net\)"):
        mindspore_rec.convert(stack, dense=True)
    assert FusedSequential(stack).is_fused
