# SPDX-License-Identifier: Apache-2.0
"""Configuration of SASRec; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.models import SASRec
from models.common.history_model import history_model

__all__ = ["MODEL", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: arguments of `SASRec`.

    Args:
        blocks: number of transformer blocks. Default: 2.
        heads: number of heads of a block. Default: 1.
        positions: number of learned position vectors. Default: None, which means one vector per
            position.
        dropout: dropout rate in the blocks. Default: 0.0.
    """

    blocks: int = 2
    heads: int = 1
    positions: int | None = None
    dropout: float = 0.0


MODEL = history_model("SASRec", SASRec, ModelConfig)
