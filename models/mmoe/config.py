# SPDX-License-Identifier: Apache-2.0
"""What a configuration of MMoE says; the files are in `configs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mindspore_rec import CacheConfig
from mindspore_rec.checks import check_one_of
from models.common.config import read_yaml
from models.common.data import CensusIncome
from models.common.optimizer import OptimizerConfig
from models.common.precision import check_compute_dtype
from models.common.training import TrainConfig
from models.mmoe.embedding import EMBEDDINGS

__all__ = ["Config", "ModelConfig", "OptimizerConfig", "read_config"]


@dataclass(frozen=True)
class ModelConfig:
    """The network: arguments of `MMoENet`.

    Args:
        dim: floats of an embedding. Default: 8.
        embedding_std: standard deviation of the embeddings' first values. Default: 0.05.
        embedding: 'hash', 'static' (a fixed vocabulary: the ids of the training rows) or
            'converted' (an `nn.Embedding` over that vocabulary, converted to a hash table).
            Default: 'hash'.
        multi_lookup: with 'hash': a lookup for each field instead of one. Default: False.
        admission_threshold: occurrences in training after which an id gets a row, those of all
            epochs unless `train.admission_counts` says otherwise. Default: 1.
        max_idle_steps: steps without an occurrence after which a row goes. Default: None, never.
        cache: the tiers the rows live in, as for `mindspore_rec.CacheConfig`; not of a converted
            embedding. Default: None, all rows in host memory.
        experts: number of experts. Default: 8.
        expert_hidden: widths of an expert's layers. Default: 16.
        tower_hidden: widths of a tower's hidden layers. Default: 8.
        input_dropout: of what experts and gates read. Default: 0.0.
        expert_dropout: of the experts' units. Default: 0.0.
    """

    dim: int = 8
    embedding_std: float = 0.05
    embedding: str = "hash"
    multi_lookup: bool = False
    admission_threshold: int = 1
    max_idle_steps: int | None = None
    cache: CacheConfig | None = None
    experts: int = 8
    expert_hidden: tuple[int, ...] = (16,)
    tower_hidden: tuple[int, ...] = (8,)
    input_dropout: float = 0.0
    expert_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_one_of("'model.embedding'", self.embedding, EMBEDDINGS)
        policies = self.admission_threshold != 1 or self.max_idle_steps is not None
        if self.embedding == "static" and policies:
            raise ValueError(
                "'model.admission_threshold' and 'model.max_idle_steps' are for hash tables: a "
                "static one has all its rows"
            )
        if self.embedding == "converted" and self.admission_threshold != 1:
            raise ValueError(
                "'model.admission_threshold' must be 1 with a converted embedding: all its ids "
                "have rows from the start"
            )
        if self.embedding == "converted" and self.cache is not None:
            raise ValueError(
                "'model.cache' must be None with a converted embedding, whose rows are in host "
                "memory"
            )
        if self.embedding != "hash" and self.multi_lookup:
            raise ValueError("'model.multi_lookup' is for 'model.embedding: hash'")


@dataclass(frozen=True)
class Config:
    """A run of MMoE.

    Args:
        data: what to train on.
        model: the network.
        optimizer: how it learns.
        train: for how long.
        compute_dtype: what the linear layers of experts and towers compute in, as for
            `ClickConfig`. Default: 'float32'.
    """

    data: CensusIncome
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    compute_dtype: str = "float32"

    def __post_init__(self) -> None:
        check_compute_dtype(self.compute_dtype)
        check_one_of("'data.kind'", self.data.kind, (CensusIncome.kind,))


def read_config(path: str | Path) -> Config:
    """A configuration file.

    Raises:
        ValueError: it is not there, has unknown or missing keys, or values of a wrong type.

    Example:
        >>> read_config(Path(__file__).parent / "configs" / "reference.yaml").model.experts
        8
    """
    return read_yaml(Path(path), Config)
