# SPDX-License-Identifier: Apache-2.0
"""Configuration of BST; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.models import BST
from models.common.history_model import history_model

__all__ = ["MODEL", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: arguments of `BST`.

    Args:
        blocks: number of transformer blocks. Default: 1.
        heads: number of heads of a block. Default: 1.
        positions: number of trained position vectors. Default: None, which means one vector per
            position.
        hidden: widths of the perceptron's layers. Default: 64, 32.
        dropout: dropout rate in the blocks and the perceptron. Default: 0.0.
    """

    blocks: int = 1
    heads: int = 1
    positions: int | None = None
    hidden: tuple[int, ...] = (64, 32)
    dropout: float = 0.0


MODEL = history_model("BST", BST, ModelConfig)
