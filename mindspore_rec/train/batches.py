# SPDX-License-Identifier: Apache-2.0
"""Where batches come from: MindSpore data sets and iterables of whole-batch arrays, as Tensors."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.dataset import Dataset, GeneratorDataset
from mindspore.dataset.engine.datasets import RepeatDataset

__all__ = ["as_tensors", "batch_count", "check_source", "iterate", "row_count"]


def check_source(source: Any, argument: str) -> None:
    """Refuse what batches cannot come from.

    Args:
        source: a `mindspore.dataset.Dataset`, or an iterable of batches.
        argument: the name to put in the message.

    Raises:
        TypeError: it is neither.

    Example:
        >>> check_source([(np.zeros((2, 1), np.float32),)], "train_dataset")
    """
    if isinstance(source, (Dataset, Iterable)) and not isinstance(source, (str, bytes, Mapping)):
        return
    raise TypeError(
        f"{argument} must be a mindspore.dataset.Dataset or an iterable of batches (tuples, dicts "
        f"of arrays), got {type(source).__name__}"
    )


def batch_count(source: Any) -> int | None:
    """Batches in one pass over a source, where it can tell at no cost.

    `Dataset.get_dataset_size()` runs through a generator that has no length, so an unbounded one
    would never return: such data sets are not asked.

    Args:
        source: as for `check_source`.

    Returns:
        The number, or None where it is unknown or there is no end.

    Example:
        >>> batch_count([1, 2, 3]), batch_count(iter([1, 2, 3]))
        (3, None)
    """
    if isinstance(source, Dataset):
        if not _has_length(source):
            return None
        size = source.get_dataset_size()
        return size if size is not None and size > 0 else None
    try:
        return len(source)
    except TypeError:
        return None


def _has_length(dataset: Dataset) -> bool:
    if isinstance(dataset, GeneratorDataset):
        try:
            len(dataset.source)
        except TypeError:
            return False
    if isinstance(dataset, RepeatDataset) and dataset.count < 1:  # for ever
        return False
    return all(_has_length(child) for child in dataset.children)


def iterate(source: Any) -> Generator[tuple[Tensor, ...], None, None]:
    """One pass over a source.

    Args:
        source: a Dataset, or an iterable of tuples, lists or dicts of arrays. A dict's columns go
            in the order of the first batch's keys.

    Yields:
        The batch's columns. On the CPU in GRAPH_MODE they share memory with the arrays, which must
        not change before the next batch is asked for.

    Raises:
        TypeError, ValueError: as for `as_tensors`.

    Example:
        >>> batches = [{"ids": np.array([[1, 2]]), "label": np.ones((1, 1), np.float32)}]
        >>> [[column.shape for column in batch] for batch in iterate(batches)]
        [[(1, 2), (1, 1)]]
    """
    if isinstance(source, Dataset):
        # Not in a thread of its own, which could be left at Ctrl-C: an error inside the pipeline
        # crashes MindSpore 2.10 there.
        for element in source.create_tuple_iterator(num_epochs=1, do_copy=False):
            yield tuple(element)
        return
    names: list[str] | None = None
    for batch in source:
        if isinstance(batch, Mapping):
            names = list(batch) if names is None else names
            if set(names) != set(batch):
                raise ValueError(f"batches must have the same columns {names}, got {list(batch)}")
            batch = tuple(batch[name] for name in names)
        yield as_tensors(batch)


def as_tensors(batch: Any) -> tuple[Tensor, ...]:
    """A batch's columns as Tensors.

    Args:
        batch: tuple or list of NumPy arrays and Tensors, or one of them alone.

    Returns:
        Tensors; without a copy where the step that reads them is over when its call returns.

    Raises:
        TypeError: a column is neither array nor Tensor.
        ValueError: there is no column.

    Example:
        >>> as_tensors(np.zeros((2, 3), np.float32))[0].shape
        (2, 3)
    """
    columns = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if not columns:
        raise ValueError("a batch must have at least one column, got none")
    share = ms.get_context("mode") == ms.GRAPH_MODE and ms.get_context("device_target") == "CPU"
    return tuple(_as_tensor(column, i, share) for i, column in enumerate(columns))


def _as_tensor(column: Any, place: int, share: bool) -> Tensor:
    if isinstance(column, Tensor):
        return column
    if not isinstance(column, np.ndarray):
        raise TypeError(
            f"column {place} of a batch must be a NumPy array or a Tensor, "
            f"got {type(column).__name__}"
        )
    if share and column.flags.c_contiguous:
        return Tensor.from_numpy(column)
    return Tensor(np.ascontiguousarray(column))


def row_count(batch: tuple[Tensor, ...]) -> int:
    """Rows of a batch: the length of its last column, the label (the first may be ragged).

    Example:
        >>> row_count((Tensor(np.zeros(7)), Tensor(np.zeros((3, 1)))))
        3
    """
    shape = batch[-1].shape
    return int(shape[0]) if shape else 1
