# SPDX-License-Identifier: Apache-2.0
"""Configuration of DIN; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.models import DIN
from models.common.history_model import history_model

__all__ = ["MODEL", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: arguments of `DIN`.

    Args:
        attention_hidden: widths of the hidden layers of the attention. Default: 80, 40.
        attention_activation: 'dice' or 'prelu'. Default: 'dice'.
        softmax: whether the weights of a history sum to 1. Default: False.
        hidden: widths of the perceptron's layers. Default: 64, 32.
        dropout: dropout rate in the perceptron. Default: 0.0.
    """

    attention_hidden: tuple[int, ...] = (80, 40)
    attention_activation: str = "dice"
    softmax: bool = False
    hidden: tuple[int, ...] = (64, 32)
    dropout: float = 0.0


MODEL = history_model("DIN", DIN, ModelConfig)
