# SPDX-License-Identifier: Apache-2.0
"""The key work of a batch, ahead of the step: columns of a source to columns of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.dataset import Dataset

from mindspore_rec.feature.columns import event_time, key_column
from mindspore_rec.feature.feature_spec import FeatureSpec, check_specs

__all__ = ["InsertFunc", "get_insert_func"]


class InsertFunc:
    """What `get_insert_func` returns: call it with a Dataset, a dict or a tuple of columns.

    Args:
        specs: features of a batch.
        with_time: whether the batch's event time comes out, where a feature is the timestamp.
            False leaves its column out, and does not look for it. Default: True.

    Attributes:
        specs: the features.
        features: those that are looked up.
        timestamp: the one that is the time, or None.
    """

    def __init__(self, specs: Any, *, with_time: bool = True) -> None:
        self.specs = check_specs(specs)
        self.features = tuple(spec for spec in self.specs if not spec.is_timestamp)
        self.timestamp = next((spec for spec in self.specs if spec.is_timestamp), None)
        self._time = self.timestamp if with_time else None
        self._read = self.features if self._time is None else (*self.features, self._time)

    def __call__(self, batch: Any) -> Any:
        """The same kind of object, with features as keys; see `get_insert_func`."""
        if isinstance(batch, Dataset):
            return self._dataset(batch)
        if isinstance(batch, Mapping):
            return self._mapping(batch)
        if isinstance(batch, (tuple, list)):
            return self._sequence(batch)
        raise TypeError(
            "a batch must be a dict or a tuple of columns, or a mindspore.dataset.Dataset, got "
            f"{type(batch).__name__}"
        )

    def insert(self, *columns: Any) -> tuple[np.ndarray, ...]:
        """Keys of the features' columns, then the event time, int64 `[1]`.

        Args:
            *columns: arrays or Tensors, one a feature in their order, then the timestamps.

        Raises:
            TypeError, ValueError: as for `get_insert_func`.
        """
        arrays = [c.asnumpy() if isinstance(c, Tensor) else c for c in columns]
        keys = [key_column(s, c) for s, c in zip(self.features, arrays, strict=False)]
        for spec, column in zip(self.features, keys, strict=True):
            if len(column) != len(keys[0]):
                raise ValueError(
                    f"features must have the same number of rows, got {len(keys[0])} of "
                    f"'{self.features[0].name}' and {len(column)} of '{spec.name}'"
                )
        if self._time is not None:
            keys.append(np.array([event_time(self._time, arrays[-1])], np.int64))
        return tuple(keys)

    def _mapping(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        names = list(batch)
        for spec in self.specs:
            if isinstance(spec.column, int):
                raise ValueError(
                    f"feature '{spec.name}': index_key must be a name where batches are dicts, "
                    f"got {spec.column}"
                )
        read, rest = self._split(names)
        found = self.insert(*(batch[name] for name in read))
        return dict(zip(self._output(rest), (*found, *(batch[n] for n in rest)), strict=True))

    def _sequence(self, batch: Sequence[Any]) -> tuple[Any, ...]:
        for spec in self.specs:
            if isinstance(spec.column, str):
                raise ValueError(
                    f"feature '{spec.name}': index_key must be a place where batches are tuples, "
                    f"got {spec.column!r}"
                )
        read, rest = self._split([str(i) for i in range(len(batch))])
        found = self.insert(*(batch[int(i)] for i in read))
        return (*found, *(batch[int(i)] for i in rest))

    def _dataset(self, dataset: Dataset) -> Dataset:
        read, rest = self._split(dataset.get_col_names())
        output = self._output(rest)
        unique = list(dict.fromkeys(read))
        places = [unique.index(name) for name in read]

        def insert(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
            return self.insert(*(columns[i] for i in places))

        mapped = dataset.map(insert, input_columns=unique, output_columns=output[: len(self._read)])
        return mapped.project(output)

    def _split(self, names: list[str]) -> tuple[list[str], list[str]]:
        """The column of each feature, and the columns that no feature reads."""
        read = [_find(spec, names) for spec in self._read]
        taken = set(read)
        if self.timestamp is not None:
            taken.update(name for name in names if name == _name(self.timestamp, names))
        return read, [name for name in names if name not in taken]

    def _output(self, rest: list[str]) -> list[str]:
        names = [spec.name for spec in self._read]
        for name in names:
            if name in rest:
                raise ValueError(
                    f"feature '{name}' has the name of another column of the batch: give it "
                    "another name"
                )
        return names + rest


def get_insert_func(specs: Any) -> InsertFunc:
    """A function that turns features into keys ahead of the step, whole batches at a time.

    Give it to a Dataset's `apply`, where it runs in the pipeline's threads while the network
    trains, or call it with batches: dicts or tuples of arrays. Out come, in this order, the keys of
    each feature (under its name, in the order of the specs), the batch's event time, int64 `[1]`
    (where a feature is the timestamp, under its name), and the columns that no feature reads. So
    the label stays last. `FeatureBatches` does this and sets the tables' event time too.

    Args:
        specs: features of a batch, FeatureSpec objects.

    Returns:
        The function. Where a batch does not fit, it raises ValueError or TypeError, which name the
        feature: a column that is not there; values neither integers nor strings; features of
        different lengths; times that are no seconds since 1970. A Dataset then raises RuntimeError
        with that message.

    Raises:
        TypeError, ValueError: as `check_specs`.

    After `mx_rec.core.asc.helper.get_asc_insert_func` of Rec SDK.

    Example:
        >>> from mindspore_rec import FeatureSpec
        >>> time = FeatureSpec("time", index_key=0, is_timestamp=True)
        >>> insert = get_insert_func([FeatureSpec("user", index_key=1), time])
        >>> label = np.zeros((2, 1), np.float32)
        >>> insert((np.array([60, 61]), np.array([[7], [9]]), label))[:2]
        (array([[7],
               [9]]), array([61]))
    """
    return InsertFunc(specs)


def _name(spec: FeatureSpec, names: list[str]) -> str | None:
    if isinstance(spec.column, str):
        return spec.column
    return names[spec.column] if spec.column < len(names) else None


def _find(spec: FeatureSpec, names: list[str]) -> str:
    name = _name(spec, names)
    if name not in names:
        raise ValueError(
            f"feature '{spec.name}' is in column {spec.column!r}, which a batch does not have; its "
            f"columns are {names}"
        )
    return str(name)
