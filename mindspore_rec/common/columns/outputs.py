# SPDX-License-Identifier: Apache-2.0
"""Outputs of a FeaturePipeline: an output makes one array, or the arrays of one history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mindspore_rec.common.columns.arrow_columns import as_array, values_array
from mindspore_rec.common.columns.batch_rows import BatchRows, flat_values
from mindspore_rec.common.columns.columns import check_batch_size, key_column
from mindspore_rec.common.columns.feature_spec import FeatureSpec
from mindspore_rec.common.columns.histories import (
    History,
    HistoryValues,
    kept_values,
    offsets_name,
    values_name,
)
from mindspore_rec.common.columns.joint import JointFeature
from mindspore_rec.common.columns.kept_events import KeptEvents
from mindspore_rec.common.columns.transforms import Feature

__all__ = [
    "KeysOutput",
    "MadeOutput",
    "Output",
    "RaggedOutput",
    "StackedOutput",
    "column_of",
    "columns_of",
    "fit_values",
    "is_single",
    "make_output",
]

Member = FeatureSpec | Feature
Map = Callable[..., Iterable[Any]]


class Output(ABC):
    """Base class of outputs, each of which makes one or several arrays of a batch.

    Args:
        name: name of the array.
        members: the features whose values are in the array.
    """

    def __init__(self, name: str, members: Sequence[Member]) -> None:
        self.name = name
        self.members = list(members)

    @property
    def specs(self) -> list[FeatureSpec]:
        """The members that are FeatureSpec objects."""
        return [each for each in self.members if isinstance(each, FeatureSpec)]

    @property
    def transforms(self) -> list[Feature | None]:
        """The transform of each feature; None for a FeatureSpec without a transform."""
        return [each.transform if isinstance(each, FeatureSpec) else each for each in self.members]

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays."""
        return [self.name]

    def by_rows(self) -> Output:
        """Return an output whose arrays have one element per row."""
        return self

    def received(self) -> Output:
        """Return an output that reads the arrays which this output's `by_rows` has made."""
        return MadeOutput(self.name)

    def with_lists(self) -> Output:
        """Return an output that reads histories from lists in the rows, and not from collected
        events.
        """
        return self

    def make_all(
        self, rows: BatchRows, learn: bool, call: Map, training: bool = False
    ) -> dict[str, Any]:
        """Return the arrays by name; for arguments and errors, see `make`."""
        return {self.name: self.make(rows, learn, call, training)}

    @abstractmethod
    def make(self, rows: BatchRows, learn: bool, call: Map, training: bool = False) -> np.ndarray:
        """Return the array.

        Args:
            rows: the batch.
            learn: if True, the statistics learn from the batch before the batch is transformed.
            call: `map`, or a replacement for `map` that runs on several threads.
            training: True if a network trains on the rows. Default: False.

        Raises:
            TypeError, ValueError: a column is missing or cannot be read.
        """


class KeysOutput(Output):
    """Keys of one FeatureSpec in the shape of its column: int64, or int32 for an int32 column."""

    def make(self, rows: BatchRows, learn: bool, call: Map, training: bool = False) -> np.ndarray:
        """Return the keys."""
        (spec,) = self.members
        assert isinstance(spec, FeatureSpec)
        return _spec_keys(spec, rows, learn)


class StackedOutput(Output):
    """Several features in one array: keys, int64 ``[B, F]``, or numbers, float32 ``[B, N]``."""

    def __init__(self, name: str, members: Sequence[Member]) -> None:
        super().__init__(name, members)
        kinds = {np.int64 if isinstance(each, FeatureSpec) else each.dtype for each in members}
        if len(kinds) > 1:
            raise ValueError(f"output {name!r} must be of keys only or of numbers only")
        (self._dtype,) = kinds
        self._widths = [1 if isinstance(each, FeatureSpec) else each.width for each in members]

    def with_lists(self) -> Output:
        """Return an output that reads lists if this output makes events, else this output."""
        first = self.members[0]
        if isinstance(first, KeptEvents) and len(self.members) == 1:
            return RaggedOutput(offsets_name(first.name), first.history)
        return self

    def make(self, rows: BatchRows, learn: bool, call: Map, training: bool = False) -> np.ndarray:
        """Return the array, in row-major order."""
        count = _row_count(self.members[0], rows)
        # The array is column-major while columns are written. The return statement copies the array
        # to row-major order.
        made: np.ndarray = np.empty((sum(self._widths), count), self._dtype)
        places = np.cumsum([0, *self._widths[:-1]]).tolist()

        def work(place: int, member: Member) -> None:
            values = _values(self.name, member, rows, learn, training)
            width = values.shape[1] if values.ndim == 2 else 1
            made[place : place + width] = values.T

        list(call(work, places, self.members))
        return np.ascontiguousarray(made.T)


class MadeOutput(Output):
    """Array that an earlier pipeline has already made.

    Args:
        name: name of the array and of its column.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, [])

    def make(self, rows: BatchRows, learn: bool, call: Map, training: bool = False) -> np.ndarray:
        """Return the column unchanged."""
        if rows.name_of(self.name) is None:
            raise ValueError(f"rows must have a column {self.name!r}, they have {rows.names}")
        column = rows.raw(self.name)
        if isinstance(column, (pa.ChunkedArray, pa.Array)):
            column = _of_fixed_size(self.name, column)
        return as_array(self.name, column)


class RaggedOutput(Output):
    """Arrays of a history: the values of each column, and the offsets of the rows' lists.

    Args:
        name: name of the array of offsets.
        history: columns of the history, and the greatest number of events of a row.
        names: names of the arrays with values. Default: the names that `values_name` gives the
            columns.
        are_lists: True to make one column of lists for each column of the history, without offsets.
            Default: False.
    """

    def __init__(
        self,
        name: str,
        history: History,
        names: Sequence[str] | None = None,
        are_lists: bool = False,
    ) -> None:
        super().__init__(name, history.members)
        self.history = history
        self._names = names or [values_name(str(each.column)) for each in history.members]
        self._are_lists = are_lists

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays of values, then the name of the offsets."""
        return [*self._names] if self._are_lists else [*self._names, self.name]

    def by_rows(self) -> Output:
        """Return an output that makes columns of lists."""
        return RaggedOutput(self.name, self.history, self._names, are_lists=True)

    def received(self) -> Output:
        """Return an output that reads the lists of keys or numbers that `by_rows` has made."""
        kinds = [
            "float32" if each.values == "float32" else "int64" for each in self.history.members
        ]
        members = [HistoryValues(*each) for each in zip(self._names, kinds, strict=True)]
        return RaggedOutput(self.name, replace(self.history, members=members), self._names)

    def make(self, rows: BatchRows, learn: bool, call: Map, training: bool = False) -> np.ndarray:
        """Return the offsets."""
        made: np.ndarray = self._ragged(rows, call)[0]
        return made

    def make_all(
        self, rows: BatchRows, learn: bool, call: Map, training: bool = False
    ) -> dict[str, Any]:
        """Return the arrays by name."""
        offsets, columns = self._ragged(rows, call)
        if not self._are_lists:
            return dict(zip(self.arrays, [*columns, offsets], strict=True))
        starts = pa.array(offsets, pa.int32())
        lists = [pa.ListArray.from_arrays(starts, pa.array(values)) for values in columns]
        return dict(zip(self.arrays, lists, strict=True))

    def _ragged(self, rows: BatchRows, call: Map) -> tuple[np.ndarray, list[np.ndarray]]:
        members = self.history.members
        lists = [member.lists(self._column(member, rows)) for member in members]
        offsets = lists[0][0]
        for member, (others, _) in zip(members[1:], lists[1:], strict=True):
            _check_lengths(members[0].column, offsets, member.column, others)
        offsets, places = kept_values(offsets, self.history.length, self.history.keep)

        def work(member: HistoryValues, flat: pa.Array) -> np.ndarray:
            kept = flat if places is None else flat.take(pa.array(places))
            return np.ascontiguousarray(member.apply(kept, learn=False))

        return offsets, list(call(work, members, [flat for _, flat in lists]))

    def _column(self, member: HistoryValues, rows: BatchRows) -> pa.Array:
        return values_array(f"column {member.column!r} must", rows.arrow(column_of(member, rows)))


def _check_lengths(
    first: str | int, offsets: np.ndarray, column: str | int, others: np.ndarray
) -> None:
    """Raise ValueError if two columns have lists of different lengths in the same row."""
    if np.array_equal(offsets, others):
        return
    if len(offsets) != len(others):
        raise ValueError(
            f"columns {first!r} and {column!r} must have the same number of rows, got "
            f"{len(offsets) - 1} and {len(others) - 1}"
        )
    counts, own = np.diff(offsets), np.diff(others)
    row = int(np.flatnonzero(counts != own)[0])
    raise ValueError(
        f"column {column!r} must have as many values in each row as column {first!r}, row {row} "
        f"has {own[row]} and {counts[row]}"
    )


def _of_fixed_size(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return lists of equal length as fixed-size lists, and any other column unchanged.

    Raises:
        ValueError: lists are missing or differ in length.
    """
    column = values_array(f"column {name!r} must", column)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return column
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if None in lengths or len(lengths) > 1:
        raise ValueError(f"column {name!r} must have lists of one length, got {lengths[:5]}")
    return pa.FixedSizeListArray.from_arrays(column.flatten(), lengths[0] if lengths else 1)


def make_output(name: Any, made: Any) -> Output:
    """Return the output of one or more features.

    Raises:
        TypeError: `name` is not a text, or `made` is of an unsupported type.
        ValueError: some of the features are keys and others are numbers; `made` is one FeatureSpec
            whose name is not `name`; or `made` is a list that includes a timestamp.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"names of outputs must be texts, got {name!r}")
    if isinstance(made, History):
        return RaggedOutput(name, made)
    if isinstance(made, FeatureSpec):
        if made.name != name:
            raise ValueError(
                f"output {name!r} must have the name of its feature, '{made.name}', by which "
                "lookups find it; several features side by side are a list"
            )
        return KeysOutput(name, [made])
    members = [made] if isinstance(made, Feature) else made
    members = list(members) if isinstance(members, Iterable) else []
    if not members or not all(isinstance(each, (Feature, FeatureSpec)) for each in members):
        raise TypeError(f"output {name!r} must be of one or more features, got {made!r}")
    for each in members:
        if isinstance(each, FeatureSpec) and each.is_timestamp:
            raise ValueError(
                f"feature '{each.name}' is the timestamp: give it an output of its own"
            )
    return StackedOutput(name, members)


def is_single(column: Any) -> bool:
    """Return True if a column is a single value instead of one row per sample."""
    return not hasattr(column, "__len__") or getattr(column, "shape", None) == ()


def column_of(member: Member, rows: BatchRows) -> str:
    """Return the name of a feature's column in a batch.

    Raises:
        ValueError: the batch lacks the column; the feature refers to a column by place, and the
            batch has names; or the feature refers to a column by name, and the batch is a tuple.
    """
    if isinstance(member, FeatureSpec):
        name = rows.name_of(member.column)
        _check_column(member, rows)
        if name is None:
            raise ValueError(
                f"feature '{member.name}' is in column {member.column!r}, which a batch does not "
                f"have; its columns are {rows.names}"
            )
    return _name_of(member.column, rows)


def columns_of(member: Member, rows: BatchRows, training: bool = False) -> list[str]:
    """Return the names of the columns that a feature reads from a batch.

    Args:
        member: the feature.
        rows: the batch.
        training: True if a network trains on the rows. Default: False.

    Raises:
        ValueError: the batch lacks a column.
    """
    if isinstance(member, JointFeature):
        columns = member.training_columns if training else member.columns
        return [_name_of(each, rows) for each in columns]
    return [column_of(member, rows)]


def fit_values(member: Member, rows: BatchRows) -> pa.Array:
    """Return the values from which a feature's transform learns in `fit`."""
    if isinstance(member, JointFeature):
        return _joint(member.fit_columns, rows)
    return rows.arrow(column_of(member, rows))


def _name_of(column: str | int, rows: BatchRows) -> str:
    name = rows.name_of(column)
    if name is None or rows.by_place not in (None, isinstance(column, int)):
        raise ValueError(f"rows must have a column {column!r}, they have {rows.names}")
    return name


def _joint(columns: Sequence[str | int], rows: BatchRows) -> pa.StructArray:
    """Return columns with one value per row as a struct array."""
    arrays = [_single_values(each, rows.arrow(_name_of(each, rows))) for each in columns]
    return pa.StructArray.from_arrays(arrays, [str(each) for each in columns])


def _single_values(column: str | int, values: pa.Array) -> pa.Array:
    where = f"column {column!r} must"
    flat, shape = flat_values(where, values)
    if len(flat) != shape[0]:
        raise ValueError(f"{where} have one value a row, got shape {list(shape)}")
    return flat


def _check_column(spec: FeatureSpec, rows: BatchRows) -> None:
    if rows.by_place and isinstance(spec.column, str):
        raise ValueError(
            f"feature '{spec.name}': index_key must be a place where batches are tuples, "
            f"got {spec.column!r}"
        )
    if rows.by_place is False and isinstance(spec.column, int):
        raise ValueError(
            f"feature '{spec.name}': index_key must be a name where batches are dicts, "
            f"got {spec.column}"
        )


def _row_count(member: Member, rows: BatchRows) -> int:
    column = rows.given(column_of(member, rows))
    if is_single(column):
        raise ValueError(f"column {member.column!r} must have a row a sample, got a single value")
    return len(column)


def _values(
    output: str, member: Member, rows: BatchRows, learn: bool, training: bool
) -> np.ndarray:
    """Return values ``[B]`` or ``[B, width]`` of a feature whose column has one value per row."""
    if isinstance(member, FeatureSpec):
        keys = _spec_keys(member, rows, learn)
        if keys.size != len(keys):
            raise ValueError(
                f"feature '{member.name}': column {member.column!r} must have one value a row to "
                f"be side by side with others in output {output!r}, got shape {list(keys.shape)}"
            )
        return keys.reshape(-1)
    if isinstance(member, JointFeature):
        if training:
            return member.apply_training(_joint(member.training_columns, rows), learn, rows.keys)
        return rows.keys.of(member, _joint(member.columns, rows), learn)
    column = rows.arrow(column_of(member, rows))
    if member.reads_lists:
        return member.apply(values_array(f"column {member.column!r} must", column), learn)
    return rows.keys.of(member, _single_values(member.column, column), learn)


def _spec_keys(spec: FeatureSpec, rows: BatchRows, learn: bool) -> np.ndarray:
    name = column_of(spec, rows)
    if spec.transform is None:
        return key_column(spec, rows.raw(name))
    where = f"feature '{spec.name}': column {spec.column!r} must"
    values, shape = flat_values(where, rows.arrow(name))
    check_batch_size(spec, shape[0])
    return spec.transform.apply(values, learn).reshape(shape)
