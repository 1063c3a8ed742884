# SPDX-License-Identifier: Apache-2.0
"""Columns of a batch as Tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

__all__ = ["as_tensors", "row_count"]


def as_tensors(
    batch: Any, *, copy: bool = False, title: Callable[[int], str] | None = None
) -> tuple[Tensor, ...]:
    """Return a batch's columns as Tensors.

    Args:
        batch: tuple or list of NumPy arrays and Tensors, or a single one of them.
        copy: whether to copy arrays, which is needed if they may change while the Tensors are in
            use. Default: False.
        title: function that returns what messages call a column, by its place. Default: "column"
            and its place.

    Returns:
        Tensors. On the CPU in GRAPH_MODE, where a step is over when its call returns, they share
        memory with the arrays unless `copy` is True.

    Raises:
        TypeError: a column is neither array nor Tensor, or not of numbers.
        ValueError: the batch has no column.

    Example:
        >>> as_tensors(np.zeros((2, 3), np.float32))[0].shape
        (2, 3)
    """
    columns = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if not columns:
        raise ValueError("a batch must have at least one column, got none")
    on_cpu = ms.get_context("device_target") == "CPU"
    share = on_cpu and ms.get_context("mode") == ms.GRAPH_MODE
    if copy:
        columns = tuple(_copy(column, on_cpu) for column in columns)
    title = title or "column {}".format
    return tuple(_as_tensor(column, i, share, title) for i, column in enumerate(columns))


def _copy(column: Any, on_cpu: bool) -> Any:
    # A Tensor on the CPU may share its memory with an array; one on a device does not.
    if isinstance(column, Tensor) and on_cpu:
        return Tensor.from_numpy(np.array(column.asnumpy()))
    return np.array(column, order="C") if isinstance(column, np.ndarray) else column


def _as_tensor(column: Any, place: int, share: bool, title: Callable[[int], str]) -> Tensor:
    if isinstance(column, Tensor):
        return column
    if not isinstance(column, np.ndarray):
        raise TypeError(
            f"{title(place)} of a batch must be a NumPy array or a Tensor, "
            f"got {type(column).__name__}: {_array_remedy(column)}"
        )
    if column.dtype.kind not in "biufcV":  # V: types of MindSpore, such as bfloat16
        raise TypeError(f"{title(place)} of a batch must be numbers, {_number_remedy(column)}")
    if share and column.flags.c_contiguous:
        return Tensor.from_numpy(column)
    return Tensor(np.ascontiguousarray(column))


def _array_remedy(column: Any) -> str:
    if type(column).__module__.startswith("pyarrow"):
        return "FeatureBatches(data, features) reads such rows"
    return "numpy.asarray(column) makes an array"


def _number_remedy(column: np.ndarray) -> str:
    first = next((each for each in column.reshape(-1).tolist() if each is not None), None)
    if isinstance(first, (str, bytes)):
        return (
            f"it is text such as {first!r:.40}: ids are mindspore_rec.category_keys(name, column), "
            f"labels (column == {first!r:.40}).astype(np.float32)"
        )
    if isinstance(first, (list, tuple, np.ndarray)):
        return "it has lists: pad them to one length, an array [rows, length]"
    if column.dtype.kind in "mM":
        return f"it is {column.dtype}: .astype('datetime64[s]').astype(np.int64) is seconds"
    return (
        f"it is of objects such as {first!r:.40}: .astype(np.int64) for ids, .astype(np.float32) "
        "for numbers"
    )


def row_count(batch: tuple[Tensor, ...]) -> int:
    """Return the number of rows of a batch: the length of its last column, the label.

    (The first may be ragged.)

    Example:
        >>> row_count((Tensor(np.zeros(7)), Tensor(np.zeros((3, 1)))))
        3
    """
    shape = batch[-1].shape
    return int(shape[0]) if shape else 1
