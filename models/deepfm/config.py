# SPDX-License-Identifier: Apache-2.0
"""Configuration of DeepFM; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass, field

from mindspore_rec.models import DeepFM
from models.common.model import RunConfig, ZooModel

__all__ = ["MODEL", "Config", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: the arguments of `DeepFM`.

    Args:
        numbers: use of the numeric columns, 'concat', 'embed', 'piecewise' or 'periodic'. Default:
            'embed', as in the paper.
        hidden: widths of the perceptron's layers. Default: 256, 128.
        dropout: dropout rate in the perceptron. Default: 0.0.
        batch_norm: whether the perceptron normalizes batches. Default: False.
    """

    numbers: str = "embed"
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.0
    batch_norm: bool = False


@dataclass(frozen=True)
class Config(RunConfig):
    """A run of DeepFM.

    Args: as for `RunConfig`, and

        model: the network.
    """

    model: ModelConfig = field(default_factory=ModelConfig)


MODEL = ZooModel("deepfm", "DeepFM", Config, DeepFM)
