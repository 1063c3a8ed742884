# SPDX-License-Identifier: Apache-2.0
"""The section `train` of a configuration, and the learning rate schedule of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from mindspore import nn

from mindspore_rec.common.checks import check_one_of
from models.common.checks import check_least
from models.common.data import Data

__all__ = ["TrainConfig", "learning_rate", "step_count", "with_changes"]

C = TypeVar("C", bound=Any)
ADMISSION_COUNTS = ("every_epoch", "first_epoch")


@dataclass(frozen=True)
class TrainConfig:
    """Length of a run, size of the batches, and seed.

    Args:
        batch_size: number of rows in a batch; with several workers, the rows of all workers
            together. Default: 4096.
        epochs: number of passes over the training data. Default: 1.
        evaluations: number of evaluations during training, evenly spread. Default: 10.
        seed: seed of the initial values and the row order. Default: 0.
        admission_counts: epochs in which a hash table counts ids for admission, 'every_epoch' or
            'first_epoch'. With 'every_epoch', an id that occurs once in the data reaches a
            threshold of 3 in the third epoch. With 'first_epoch', each occurrence in the data is
            counted only once. Default: 'every_epoch'.

    Raises:
        ValueError: a value is out of range.

    Example:
        >>> TrainConfig(epochs=0)
        Traceback (most recent call last):
        ...
        ValueError: 'train.epochs' must be at least 1, got 0
    """

    batch_size: int = 4096
    epochs: int = 1
    evaluations: int = 10
    seed: int = 0
    admission_counts: str = "every_epoch"

    def __post_init__(self) -> None:
        check_one_of("'train.admission_counts'", self.admission_counts, ADMISSION_COUNTS)
        for name, least in (("batch_size", 1), ("epochs", 1), ("evaluations", 1), ("seed", 0)):
            check_least(f"'train.{name}'", getattr(self, name), least)


def with_changes(config: C, **changes: int | None) -> C:
    """Return a copy of a configuration in which command options change the section `train`.

    Args:
        config: a frozen dataclass with a field `train`.
        **changes: new values of fields of `TrainConfig`; None leaves a field unchanged.

    Raises:
        ValueError: as `TrainConfig`.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config:
        ...     train: TrainConfig
        >>> with_changes(Config(TrainConfig(seed=1, epochs=5)), seed=3, epochs=None).train.epochs
        5
    """
    fields = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **fields))


def step_count(config: TrainConfig, data: Data) -> int:
    """Return the number of steps in the whole run; an epoch's last batch may be smaller."""
    return config.epochs * -(-data.train_rows // config.batch_size)


def learning_rate(start: float, end: float | None, steps: int) -> Any:
    """Return a constant learning rate, or a schedule that falls along half a cosine during the run.

    Args:
        start: rate of the first step.
        end: rate of the last step, at least 0 and below `start`; None for a constant rate.
        steps: number of steps of the run.

    Returns:
        A `learning_rate` for the optimizers of `mindspore_rec.optim`.

    Raises:
        ValueError: `end` is out of range.

    Example:
        >>> learning_rate(0.1, None, 100)
        0.1
        >>> learning_rate(0.1, 0.2, 100)
        Traceback (most recent call last):
        ...
        ValueError: learning_rate_end must be in [0, 0.1), got 0.2
    """
    if end is None:
        return start
    if not 0 <= end < start:
        raise ValueError(f"learning_rate_end must be in [0, {start}), got {end}")
    return nn.CosineDecayLR(float(end), float(start), steps)
