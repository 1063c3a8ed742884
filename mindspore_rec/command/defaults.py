# SPDX-License-Identifier: Apache-2.0
"""Choose the default settings of a network and its training by the number of rows."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.data.batch_size import default_batch_size

__all__ = ["default_embedding_dim", "default_training"]

_FEW = 100_000  # rows, of which batches of 1024 would be too few steps
_MANY = 1_000_000  # rows, of which an epoch is long enough for an evaluation inside
_MOST_EPOCHS = 20


def default_embedding_dim(rows: int) -> int:
    """Return the length of an embedding vector. With few rows, short vectors overfit less."""
    return 8 if rows <= _MANY else 16


def default_training(rows: int) -> dict[str, Any]:
    """Return default values for the section `train` of the YAML file.

    The number of epochs is an upper bound: the training ends when the metric of the validation rows
    no longer improves. If there are few rows, a second model is then trained on training and
    validation rows.

    Example:
        >>> default_training(20_000)["batch_size"], default_training(10**8)["evaluations"]
        (256, 20)
    """
    made = {
        "epochs": _MOST_EPOCHS,
        "batch_size": max(default_batch_size(rows), 0 if rows < _FEW else 1024),
        "learning_rate": 0.002,
        "schedule": "plateau",
    }
    if rows <= _MANY:
        return made | {"refit": True}
    return made | {"evaluations": min(20, rows // _MANY)}
