# SPDX-License-Identifier: Apache-2.0
"""Where batches come from: MindSpore data sets and iterables of whole-batch arrays, as Tensors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.dataset import Dataset, GeneratorDataset
from mindspore.dataset.engine.datasets import RepeatDataset

__all__ = [
    "TellsAtStep",
    "as_tensors",
    "batch_count",
    "check_source",
    "iterate",
    "read_ahead",
    "row_count",
]


@runtime_checkable
class TellsAtStep(Protocol):
    """A source that has something to do when a batch's step begins, not when it is read."""

    def read_ahead(self) -> Iterator[tuple[Any, Callable[[], None]]]:
        """One pass: each batch, and what to call just before its step."""


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
    columns = _Columns()
    for batch in source:
        yield as_tensors(columns.of(batch))


def read_ahead(
    source: Any,
) -> Generator[tuple[tuple[Tensor, ...], Callable[[], None]], None, None]:
    """One pass over a source whose batches are kept while the next ones are read.

    Args:
        source: as for `iterate`.

    Yields:
        The batch's columns, copied, and what to call just before its step.

    Raises:
        TypeError, ValueError: as for `as_tensors`.

    Example:
        >>> array = np.array([1])
        >>> first, second = (columns for columns, _ in read_ahead([(array,), (array,)]))
        >>> array[0] = 2
        >>> int(first[0])
        1
    """
    if isinstance(source, Dataset):
        for element in source.create_tuple_iterator(num_epochs=1, do_copy=True):
            yield tuple(element), _nothing
        return
    columns = _Columns()
    if isinstance(source, TellsAtStep):
        for batch, tell in source.read_ahead():
            yield as_tensors(columns.of(batch), copy=True), tell
        return
    for batch in source:
        yield as_tensors(columns.of(batch), copy=True), _nothing


def _nothing() -> None:
    """What most sources have to do when a step begins."""


class _Columns:
    """Columns in one order, for batches that are dicts."""

    def __init__(self) -> None:
        self._names: list[str] | None = None

    def of(self, batch: Any) -> Any:
        if not isinstance(batch, Mapping):
            return batch
        self._names = list(batch) if self._names is None else self._names
        if set(self._names) != set(batch):
            raise ValueError(f"batches must have the same columns {self._names}, got {list(batch)}")
        return tuple(batch[name] for name in self._names)


def as_tensors(batch: Any, *, copy: bool = False) -> tuple[Tensor, ...]:
    """A batch's columns as Tensors.

    Args:
        batch: tuple or list of NumPy arrays and Tensors, or one of them alone.
        copy: whether the arrays may change while the Tensors are in use. Default: they do not.

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
    on_cpu = ms.get_context("device_target") == "CPU"
    share = on_cpu and ms.get_context("mode") == ms.GRAPH_MODE
    if copy:
        columns = tuple(_copy(column, on_cpu) for column in columns)
    return tuple(_as_tensor(column, i, share) for i, column in enumerate(columns))


def _copy(column: Any, on_cpu: bool) -> Any:
    # A Tensor on the CPU may share its memory with an array; one on a device does not.
    if isinstance(column, Tensor) and on_cpu:
        return Tensor.from_numpy(np.array(column.asnumpy()))
    return np.array(column, order="C") if isinstance(column, np.ndarray) else column


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
