# SPDX-License-Identifier: Apache-2.0
"""Configuration of HSTU; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.models import HSTU
from models.common.history_model import history_model

__all__ = ["MODEL", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: arguments of `HSTU`.

    Args:
        blocks: number of blocks. Default: 2.
        heads: number of heads of a block. Default: 1.
        time_buckets: number of learned biases of time differences in each block. Default: 32.
        dropout: dropout rate in the blocks. Default: 0.0.
    """

    blocks: int = 2
    heads: int = 1
    time_buckets: int = 32
    dropout: float = 0.0


MODEL = history_model("HSTU", HSTU, ModelConfig, times=True)
