# SPDX-License-Identifier: Apache-2.0
"""What a configuration of Wide & Deep says; the files are in `configs`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from mindspore_rec.checks import check_number
from models.common.config import read_yaml
from models.common.data import CensusIncome, Criteo, Synthetic

__all__ = ["Config", "ModelConfig", "OptimizerConfig", "TrainConfig", "read_config"]


@dataclass(frozen=True)
class ModelConfig:
    """The network: arguments of `WideDeep`.

    Args:
        dim: floats of an embedding. Default: 16.
        hidden: widths of the perceptron's layers. Default: 256, 128.
        dropout: of the perceptron. Default: 0.0.
        batch_norm: of the perceptron. Default: False.
        embedding_std: standard deviation of the embeddings' first values. Default: 0.01.
        embedding: 'hash' or 'static'. Default: 'hash'.
        buckets: rows of a static table. Default: None.
        host_device_mix: tables on the host, the dense part on the device. Default: True.
    """

    dim: int = 16
    hidden: tuple[int, ...] = (256, 128)
    dropout: float = 0.0
    batch_norm: bool = False
    embedding_std: float = 0.01
    embedding: str = "hash"
    buckets: int | None = None
    host_device_mix: bool = True


@dataclass(frozen=True)
class OptimizerConfig:
    """FTRL and LazyAdam: arguments of `make_optimizer`.

    Args:
        wide_learning_rate: of FTRL. Default: 0.05.
        wide_l1: of FTRL. Default: 1e-6.
        wide_l2: of FTRL. Default: 1e-6.
        deep_learning_rate: of LazyAdam, at the start. Default: 1e-3.
        deep_learning_rate_end: of LazyAdam, at the end; it falls there along half a cosine.
            Default: None, constant.
        dense_weight_decay: L2 of the perceptron. Default: 0.0.
        embedding_weight_decay: L2 of the embeddings that a batch touches. Default: 0.0.
    """

    wide_learning_rate: float = 0.05
    wide_l1: float = 1e-6
    wide_l2: float = 1e-6
    deep_learning_rate: float = 1e-3
    deep_learning_rate_end: float | None = None
    dense_weight_decay: float = 0.0
    embedding_weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if value is not None and check_number(each.name, value) < 0:
                raise ValueError(f"{each.name} must be >= 0, got {value}")


@dataclass(frozen=True)
class TrainConfig:
    """The run.

    Args:
        batch_size: rows of a batch. Default: 4096.
        epochs: passes over the data. Default: 1.
        evaluations: evaluations on the way, evenly spread. Default: 10.
        seed: of first values and the order of rows. Default: 0.
    """

    batch_size: int = 4096
    epochs: int = 1
    evaluations: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("epochs", 1), ("evaluations", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(
                    f"'train.{name}' must be at least {least}, got {getattr(self, name)}"
                )


@dataclass(frozen=True)
class Config:
    """A run of Wide & Deep.

    Args:
        data: what to train on.
        model: the network.
        optimizer: how it learns.
        train: for how long.
    """

    data: Synthetic | Criteo | CensusIncome
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


def read_config(path: str | Path) -> Config:
    """A configuration file.

    Raises:
        ValueError: it is not there, has unknown or missing keys, or values of a wrong type.

    Example:
        >>> read_config(Path(__file__).parent / "configs" / "demo.yaml").data.kind
        'synthetic'
    """
    return read_yaml(Path(path), Config)
