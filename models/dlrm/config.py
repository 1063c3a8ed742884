# SPDX-License-Identifier: Apache-2.0
"""Configuration of DLRM; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass, field

from mindspore_rec.models import DLRM
from models.common.model import RunConfig, ZooModel

__all__ = ["MODEL", "Config", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: the arguments of `DLRM`.

    Args:
        bottom: widths of all layers of the bottom perceptron except the last layer. Default: 64,
            32.
        top: widths of the top perceptron's hidden layers. Default: 256, 128.
        dropout: dropout rate in both perceptrons. Default: 0.0.
        batch_norm: whether both perceptrons normalize batches. Default: False.
    """

    bottom: tuple[int, ...] = (64, 32)
    top: tuple[int, ...] = (256, 128)
    dropout: float = 0.0
    batch_norm: bool = False


@dataclass(frozen=True)
class Config(RunConfig):
    """A run of DLRM.

    Args: as for `RunConfig`, and

        model: the network.
    """

    model: ModelConfig = field(default_factory=ModelConfig)


MODEL = ZooModel("dlrm", "DLRM", Config, DLRM)
