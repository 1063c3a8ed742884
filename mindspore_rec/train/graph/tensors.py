# SPDX-License-Identifier: Apache-2.0
"""Convert the columns of a batch to Tensors."""

from __future__ import annotations

import re
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec.train.graph.batch_columns import BatchColumns

__all__ = ["as_tensors", "contiguous_array", "row_count"]

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def as_tensors(
    batch: Any, *, copy: bool = False, columns: BatchColumns | None = None
) -> tuple[Tensor, ...]:
    """Return a batch's columns as Tensors.

    Args:
        batch: tuple or list of NumPy arrays and Tensors, or a single array or Tensor.
        copy: whether to copy arrays. Copies are needed if the arrays may change while the Tensors
            are in use. Default: False.
        columns: names of the columns in error messages. Default: None, which means that messages
            say "column" and the column's index.

    Returns:
        Tensors. On the CPU in GRAPH_MODE, the Tensors share memory with C-contiguous arrays unless
        `copy` is True. Sharing memory is safe on the CPU in GRAPH_MODE, because a call returns only
        after the step has finished.

    Raises:
        TypeError: a column is neither an array nor a Tensor, or does not contain numbers.
        ValueError: the batch has no column.

    Example:
        >>> as_tensors(np.zeros((2, 3), np.float32))[0].shape
        (2, 3)
    """
    values = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if not values:
        raise ValueError("a batch must have at least one column, got none")
    if not all(map(_has_numbers, values)):
        raise TypeError(_type_fault(values, columns))
    on_cpu = ms.get_context("device_target") == "CPU"
    share = on_cpu and ms.get_context("mode") == ms.GRAPH_MODE
    if copy:
        values = tuple(_copy(column, on_cpu) for column in values)
    return tuple(_as_tensor(column, share) for column in values)


def _copy(column: Any, on_cpu: bool) -> Any:
    # Only a Tensor on the CPU can share memory with a NumPy array.
    if isinstance(column, Tensor) and on_cpu:
        return Tensor.from_numpy(np.array(column.asnumpy()))
    return np.array(column, order="C") if isinstance(column, np.ndarray) else column


def _has_numbers(column: Any) -> bool:
    if isinstance(column, np.ndarray):
        return column.dtype.kind in "biufcV"  # V: types of MindSpore, such as bfloat16
    return isinstance(column, Tensor)


def _as_tensor(column: Any, share: bool) -> Tensor:
    if isinstance(column, Tensor):
        return column
    if share and column.flags.c_contiguous:
        return Tensor.from_numpy(column)
    return Tensor(np.ascontiguousarray(column))


def _type_fault(values: tuple[Any, ...], columns: BatchColumns | None) -> str:
    """Return the error message for the first column that is not an array of numbers."""
    place = next(i for i, column in enumerate(values) if not _has_numbers(column))
    column, count = values[place], len(values)
    title = f"column {place}" if columns is None else columns.title(place, count)
    if not isinstance(column, np.ndarray):
        return (
            f"{title} of a batch must be a NumPy array or a Tensor, got {type(column).__name__}: "
            f"{_array_remedy(column)}"
        )
    is_label = columns is not None and columns.is_label(place, count)
    return f"{title} of a batch must be numbers, {_number_remedy(column, is_label)}"


def _array_remedy(column: Any) -> str:
    if type(column).__module__.startswith("pyarrow"):
        return "FeatureBatches(data, features) reads such rows"
    if type(column).__module__.startswith("pandas"):
        return "column.to_numpy() makes an array"
    return "numpy.asarray(column) makes an array"


def _number_remedy(column: np.ndarray, is_label: bool) -> str:
    first = next((each for each in column.reshape(-1).tolist() if each is not None), None)
    if isinstance(first, (str, bytes)):
        return f"it is text such as {first!r:.40}: {_text_remedy(column, first, is_label)}"
    if isinstance(first, (list, tuple, np.ndarray)):
        return "it has lists: pad them to one length, an array [rows, length]"
    if column.dtype.kind in "mM":
        return f"it is {column.dtype}: .astype('datetime64[s]').astype(np.int64) is seconds"
    kinds = "" if is_label else " for numbers, .astype(np.int64) for ids"
    return f"it is of objects such as {first!r:.40}: .astype(np.float32){kinds}"


def _text_remedy(column: np.ndarray, first: str | bytes, is_label: bool) -> str:
    text = first.decode(errors="replace") if isinstance(first, bytes) else first
    is_number = _NUMBER.fullmatch(text.strip())
    if is_label:
        if is_number:
            return ".astype(np.float32)"
        return f"(label == {first!r:.40}).astype(np.float32) is 1 where it is {first!r:.40}"
    if _DATE.match(text):
        return "pandas.to_datetime(column) reads dates, and a TimePart or TimeCycle makes features"
    ids = "ids are mindspore_rec.category_keys(name, column)"
    if column.ndim > 1 and column.shape[1] > 1:
        ids += " of each field, side by side by numpy.stack(keys, 1)"
    return f"{ids}, numbers .astype(np.float32)" if is_number else ids


def contiguous_array(values: Any) -> np.ndarray:
    """Return a Tensor, an array or a list as a contiguous array.

    Example:
        >>> contiguous_array(Tensor([1, 2])).tolist()
        [1, 2]
    """
    array = values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
    return np.ascontiguousarray(array)


def row_count(batch: tuple[Tensor, ...]) -> int:
    """Return the number of rows of a batch: the length of the last column, which is the label.

    The length of the first column may differ from the number of rows: if rows have histories, the
    first column may contain all values of the histories.

    Example:
        >>> row_count((Tensor(np.zeros(7)), Tensor(np.zeros((3, 1)))))
        3
    """
    shape = batch[-1].shape
    return int(shape[0]) if shape else 1
