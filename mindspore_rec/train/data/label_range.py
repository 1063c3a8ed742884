# SPDX-License-Identifier: Apache-2.0
"""Check that labels of a binary cross-entropy are in [0, 1], so that the loss has a minimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import nn

from mindspore_rec.common.metrics.inputs import label_remedy
from mindspore_rec.train.graph.batch_columns import BatchColumns, input_names
from mindspore_rec.train.nn.loss import BCEWithLogitsLoss

__all__ = ["check_label_range"]

_MOST_GRADE = 10  # larger whole numbers are not grades such as stars of a review
_BINARY = (nn.BCELoss, nn.BCEWithLogitsLoss, BCEWithLogitsLoss)


def check_label_range(batch: tuple[Any, ...], columns: BatchColumns, loss: Any, where: str) -> None:
    """If the loss is a binary cross-entropy, check that the labels of a batch are in [0, 1].

    Labels outside [0, 1] would raise no error, but the network would learn to make ever greater
    predictions. This check accepts labels that are not NumPy arrays or Tensors of numbers, because
    other checks reject such labels.

    Args:
        batch: columns of the batch; the label is the last column.
        columns: names of the columns in error messages.
        loss: the loss cell; None if the network computes the loss.
        where: name of the batch in the error message.

    Raises:
        ValueError: a label is less than 0 or greater than 1.

    Example:
        >>> columns = BatchColumns(nn.Dense(1, 1), labelled=True)
        >>> batch = np.ones((2, 1), np.float32), np.array([[1], [2]], np.float32)
        >>> check_label_range(batch, columns, nn.MSELoss(), "batch 0")
        >>> check_label_range(batch, columns, nn.BCELoss(), "batch 0")
        Traceback (most recent call last):
        ...
        ValueError: the label of batch 0 must be in [0, 1] for BCELoss, got 2.0 in row 1: \
(label == 2).astype(np.float32) is 1 where it is 2
    """
    if not isinstance(loss, _BINARY) or not columns.labelled or not batch:
        return
    label = batch[-1].asnumpy() if hasattr(batch[-1], "asnumpy") else batch[-1]
    if not isinstance(label, np.ndarray) or label.dtype.kind not in "iuf" or not label.size:
        return
    wrong = np.atleast_1d((label < 0) | (label > 1))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise ValueError(
            f"{columns.title(len(batch) - 1, len(batch))} of {where} must be in [0, 1] for "
            f"{type(loss).__name__}, got {np.atleast_1d(label)[place]} in row {place[0]}: "
            f"{_remedy(label, columns)}"
        )


def _remedy(label: np.ndarray, columns: BatchColumns) -> str:
    """Return advice for the error; large whole numbers in the label column are probably ids.

    If the label column contains ids, the real label column is missing or is not the last column.
    Without the check, training with ids in the label column would raise no error.
    """
    if label.dtype.kind == "f" or np.abs(label).max() <= _MOST_GRADE:
        return label_remedy(label)
    batch = ", ".join([*input_names(columns.network), "label"])
    return f"the last column of a batch is the label, and this one looks like ids: ({batch})"
