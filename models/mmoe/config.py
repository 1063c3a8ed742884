# SPDX-License-Identifier: Apache-2.0
"""Configuration of MMoE; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mindspore_rec.models import MMoE
from models.common.data import CensusIncome
from models.common.embedding import EmbeddingConfig
from models.common.model import RunConfig, ZooModel

__all__ = ["MODEL", "Config", "ModelConfig"]


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the network: the arguments of `MMoE`.

    Args:
        numbers: use of the numeric columns, 'concat', 'embed', 'piecewise' or 'periodic'. Default:
            'concat'.
        experts: number of experts. Default: 8.
        expert_hidden: widths of an expert's layers. Default: 16.
        tower_hidden: widths of a tower's hidden layers. Default: 8.
        input_dropout: dropout rate of the inputs of experts and gates. Default: 0.0.
        expert_dropout: dropout rate of the experts' units. Default: 0.0.
    """

    numbers: str = "concat"
    experts: int = 8
    expert_hidden: tuple[int, ...] = (16,)
    tower_hidden: tuple[int, ...] = (8,)
    input_dropout: float = 0.0
    expert_dropout: float = 0.0


@dataclass(frozen=True)
class Config(RunConfig):
    """A run of MMoE.

    Args: as for `RunConfig`, and

        data: settings of Census-Income, the only data set of `models` with several labels.
        embedding: description of the embeddings. Default: rows of 8 floats, initial values with
            standard deviation 0.05.
        model: the network.
    """

    data: CensusIncome
    embedding: EmbeddingConfig = field(
        default_factory=lambda: EmbeddingConfig(embedding_dim=8, std=0.05)
    )
    model: ModelConfig = field(default_factory=ModelConfig)

    several_tasks: ClassVar[bool] = True


MODEL = ZooModel("mmoe", "MMoE", Config, MMoE)
