# SPDX-License-Identifier: Apache-2.0
"""Checks of training or evaluation data before any batch is read."""

from __future__ import annotations

from collections.abc import Mapping
from types import GeneratorType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from mindspore import Tensor

from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.train.graph.batch_columns import BatchColumns, input_names

__all__ = ["check_batches_given", "check_read_again", "no_batch"]

_ARRAYS = (np.ndarray, Tensor)
_READ_ONCE = (GeneratorType, map, filter, zip)


def check_batches_given(argument: str, data: Any, columns: BatchColumns) -> None:
    """Check that `data` is a collection of batches, and not a single batch or its columns.

    Args:
        argument: name of the argument in the error message.
        data: the data.
        columns: names of a batch's columns in error messages.

    Raises:
        TypeError: `data` is a table, a dict of columns, or the columns of one batch with a label.

    Example:
        >>> from mindspore import nn
        >>> columns = BatchColumns(nn.Dense(2, 1), labelled=True)
        >>> check_batches_given("data", [(np.zeros((4, 2)), np.zeros((4, 1)))], columns)
        >>> check_batches_given("data", (np.zeros((4, 2)), np.zeros((4, 1))), columns)
        Traceback (most recent call last):
        ...
        TypeError: data must be a list of batches, [(x, label)], got a tuple of 2 arrays
    """
    if isinstance(data, (pd.DataFrame, pa.RecordBatch, pa.Table)):
        raise TypeError(
            f"{argument} must be a list of batches, {_example(columns)}, got a "
            f"{type(data).__name__}: FeatureBatches([{argument}], features) makes arrays of its "
            "columns"
        )
    if isinstance(data, Mapping):
        raise TypeError(
            f"{argument} must be a list of batches, got a {type(data).__name__} of columns, which "
            f"is one: [{argument}]"
        )
    if not columns.labelled:
        return  # a batch of one column may be its array
    if isinstance(data, _ARRAYS):
        kind = "an array"
    elif isinstance(data, (list, tuple)) and data and isinstance(data[0], _ARRAYS):
        kind = f"a {type(data).__name__} of {len(data)} array{'s' * (len(data) > 1)}"
    else:
        return
    raise TypeError(f"{argument} must be a list of batches, {_example(columns)}, got {kind}")


def _example(columns: BatchColumns) -> str:
    names = input_names(columns.network) + ["label"] * columns.labelled
    return f"[({', '.join(names)}{',' * (len(names) == 1)})]"


def check_read_again(argument: str, data: Any, times: int, what: str = "epochs") -> None:
    """Check that data can be read again for each epoch or evaluation.

    Args:
        argument: name of the argument in the error message.
        data: the data.
        times: number of epochs or evaluations.
        what: name of the passes in the error message, such as "epochs" or "evaluations". Default:
            'epochs'.

    Raises:
        ValueError: `times` is more than 1, but the data can be read only once, because they are a
            generator or a result of `map`, `filter` or `zip`.

    Example:
        >>> check_read_again("data", (n for n in range(3)), 1)
        >>> check_read_again("data", (n for n in range(3)), 2)
        Traceback (most recent call last):
        ...
        ValueError: data must be read once in each of 2 epochs, and a generator can be read once \
only: list(data), or an object whose __iter__ makes it anew
    """
    if times > 1 and isinstance(data, _READ_ONCE):
        raise ValueError(
            f"{argument} must be read once in each of {times} {what}, and a {type(data).__name__} "
            f"can be read once only: list({argument}), or an object whose __iter__ makes it anew"
        )


def no_batch(argument: str, source: BatchSource, worker: str = "") -> ValueError:
    """Return the error for data that yielded no batch in a pass.

    Args:
        argument: name of the argument that contains the data, for the error message.
        source: the data.
        worker: name of the worker whose share has no batch. Default: "", for a training with one
            worker.

    Example:
        >>> from mindspore_rec.stream import batch_source
        >>> no_batch("train_dataset", batch_source([]))
        ValueError('train_dataset gave no batch: its length is 0; if it has fewer rows than a \
batch, take smaller batches')
    """
    what = f"{argument} gave {worker}{' ' * bool(worker)}no batch: "
    if source.length == 0:
        return ValueError(
            f"{what}its length is 0; if it has fewer rows than a batch, take smaller batches"
        )
    return ValueError(
        f"{what}it is empty, or an iterator that was read before: give a list, or make it anew"
    )
