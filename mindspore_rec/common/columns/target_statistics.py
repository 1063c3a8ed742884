# SPDX-License-Identifier: Apache-2.0
"""TargetStatistics: mean label and frequency per value. Training excludes a row's own label."""

from __future__ import annotations

import base64
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.columns.hashing import mix64
from mindspore_rec.common.columns.joint import JointFeature, field_of
from mindspore_rec.common.columns.labels import Label, Times
from mindspore_rec.common.columns.shared_keys import SharedKeys
from mindspore_rec.common.columns.transforms import Feature
from mindspore_rec.common.columns.value_sums import ValueSums

__all__ = ["STATISTICS", "TargetStatistics"]

STATISTICS = ("folds", "past")

_FOLDS, _CHUNKS = 5, 20
_FEW_ROWS = 10  # that may be in one fold by chance
_PRIOR = 10.0  # rows of the average label that are added to each value's rows
_MOST_VALUES = 1 << 20
_ALL = np.zeros(1, np.int64)  # the one key under which the sums over all rows are


class TargetStatistics(JointFeature):
    """Describe each value of a column by numbers: the value's mean label and number of rows.

    For each part and label, there is one number: the difference between the mean label of the rows
    with the value and the mean label of all rows. The mean label of the value is smoothed, so the
    difference is near 0 for a value with few rows, and 0 for an unknown value. The number is
    ``tanh(d / 2)``. For a label with two values, ``d`` is the difference of the log odds. For a
    label that is a number, ``d`` is the difference in standard deviations. The last number of a
    part is the scaled logarithm of the number of rows with the value. All results are between -1
    and 1.

    The statistics of a row on which a network trains (`apply_training`) never include the row's own
    label. With 'folds', the values of a row's columns decide which of 5 folds contains the row, and
    the row's numbers are computed from the rows in the other folds. With 'past', the times of the
    fitted rows are divided into at most 20 intervals of about equal numbers of rows. The numbers of
    a row are computed from the rows in earlier intervals. The numbers for predictions (`apply`) are
    computed from all rows. `apply` and `apply_training` never learn, so the results depend only on
    the learned state and on the row's content.

    Args:
        parts: transforms to one key per row, such as `Category` and `Cross`.
        labels: transforms of the labels. If a label has two values, use `Label`. If a label is a
            number, use a transform that returns numbers, such as `Number`.
        others: with 'folds', transforms whose values decide the fold of a row. For each part,
            `others` must read a column that the part does not read. With 'past', `others` is a
            single `Times` transform of the rows' times.
        by: 'folds' or 'past'.
        weight: transform that returns the weight of each row. Default: None, which means that each
            row counts once.
        most_values: greatest number of values with statistics, for each part, 1 to 2**30. If a part
            has more values, only the most frequent values have statistics. Default: 2**20.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range; or `by` is 'folds'
            and a part reads all the columns that `others` read.

    Example:
        >>> from mindspore_rec.feature import Category, FeaturePipeline, Label
        >>> parts = [Category("user"), Category("item")]
        >>> means = TargetStatistics(parts, [Label("clicked")], parts, by="folds")
        >>> pipeline = FeaturePipeline({"numbers": [means]})
        >>> rows = {"user": [7, 7, 8, 8] * 50, "item": list(range(200))}
        >>> pipeline = pipeline.fit(rows | {"clicked": [1, 1, 0, 1] * 50})
        >>> numbers = pipeline.apply({"user": [7, 8, 9], "item": [1, 300, 300]})["numbers"]
        >>> [[f"{each:.2f}" for each in row] for row in numbers.tolist()]
        [['0.87', '1.00', '0.06', '1.00'],
         ['-0.46', '1.00', '0.00', '-1.00'],
         ['0.00', '-1.00', '0.00', '-1.00']]
    """

    dtype = np.float32

    def __init__(
        self,
        parts: Sequence[Feature],
        labels: Sequence[Feature],
        others: Sequence[Feature],
        by: str,
        weight: Feature | None = None,
        most_values: int = _MOST_VALUES,
    ) -> None:
        self.parts, self.labels, self.others = tuple(parts), tuple(labels), tuple(others)
        self.by = check_one_of("by", by, STATISTICS)
        self.weight = weight
        self.most_values = check_int("most_values", most_values, 1, 1 << 30)
        self._check_features()
        super().__init__(column for part in self.parts for column in part.columns)
        self.width = len(self.parts) * (len(self.labels) + 1)
        self._count = _FOLDS if by == "folds" else _CHUNKS
        self._is_binary = np.array([isinstance(label, Label) for label in self.labels])
        self._edges = np.empty(0, np.int64)  # between intervals of time
        self._rows: ValueSums
        self._waiting: tuple[tuple[ValueSums, ...], ...] = ()
        self.forget()

    def _check_features(self) -> None:
        for each in (*self.parts, *self.labels, *self.others):
            if not isinstance(each, Feature) or each.width != 1 or each.reads_lists:
                raise TypeError(
                    f"parts, labels and others must give one value per row, got {each!r}"
                )
        if not self.parts or not self.labels or not self.others:
            raise ValueError("parts, labels and others must have at least one transform each")
        if any(part.dtype is not np.int64 for part in self.parts):
            raise ValueError("parts must be transforms to keys, such as Category")
        if self.by == "past":
            if len(self.others) != 1 or not isinstance(self.others[0], Times):
                raise ValueError("others must be the one transform Times with by='past'")
            return
        read = {column for each in self.others for column in each.columns}
        for part in self.parts:
            if not read - set(part.columns):
                names = ", ".join(repr(each) for each in part.columns)
                raise ValueError(
                    f"statistics by folds of {names} need a further column that the network reads, "
                    "so that rows of a value are in different folds"
                )

    @property
    def training_columns(self) -> tuple[str | int, ...]:
        """All columns that `apply_training` reads: the columns of `parts` and `others`."""
        return _columns_of((*self.parts, *self.others))

    @property
    def fit_columns(self) -> tuple[str | int, ...]:
        """All columns that `fit` reads."""
        weights = () if self.weight is None else (self.weight,)
        return _columns_of((*self.parts, *self.others, *self.labels, *weights))

    # ---- learning

    def fit(self, values: pa.StructArray) -> TargetStatistics:
        """Learn from all rows in one call, and forget everything learned before.

        Args:
            values: struct array ``[N]`` of the columns `fit_columns`.

        Returns:
            This object.
        """
        self._edges = np.empty(0, np.int64)
        if self.by == "past":
            times = _applied(self.others[0], values, SharedKeys())
            shares = np.arange(1, _CHUNKS) / _CHUNKS
            edges = np.quantile(times, shares, method="inverted_cdf") if len(times) else []
            self._edges = np.unique(np.asarray(edges, np.int64))
        self.forget()
        self.add(values)
        self.settle()
        if self.by == "folds":
            self._warn_of_folds()
        return self

    def _warn_of_folds(self) -> None:
        """Warn about a column if most rows have a value that occurs in one fold only."""
        for part, known in zip(self.parts, self._values, strict=True):
            if known.alone_share(_FEW_ROWS) > 0.5:
                names = ", ".join(repr(each) for each in part.columns)
                warnings.warn(
                    f"most values of {names} determine all other columns, so that the rows of a "
                    "value are in one fold, and statistics by folds tell a training nothing: use "
                    "'past' or none",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def add(self, values: pa.StructArray, weights: np.ndarray | None = None) -> None:
        """Learn from further rows. The statistics include the rows only after a call of `settle`.

        The intervals of time do not change.

        Args:
            values: struct array ``[N]`` of the columns `fit_columns`.
            weights: second weight of each row, ``[N]``, by which the row's weight is multiplied.
                Default: None.
        """
        shared = SharedKeys()
        counted = np.ones(len(values)) if weights is None else weights.astype(np.float64)
        if self.weight is not None:
            counted = counted * _applied(self.weight, values, shared)
        labels = [_applied(label, values, shared).astype(np.float64) for label in self.labels]
        squares = [label**2 for label in labels]
        places = self._places(values, shared)
        sums = np.stack([counted, *(counted * label for label in labels)], axis=1)
        of_all = np.concatenate([sums, np.stack([counted * s for s in squares], axis=1)], axis=1)
        new = ValueSums.of(np.zeros(len(values), np.int64), places, of_all, self._count)
        self._rows = self._rows.merged(new)
        keys = [_applied(part, values, shared) for part in self.parts]
        made = tuple(ValueSums.of(each, places, sums, self._count) for each in keys)
        self._waiting = (*self._waiting, made)
        # New sums are merged only when there are more new sums than merged sums, because the time
        # of a merge grows with the size of the result.
        if sum(map(_pairs, self._waiting)) > _pairs(self._values):
            self.settle()

    def settle(self) -> None:
        """Add up all rows that `add` has read."""
        if self._waiting:
            parts = zip(self._values, *self._waiting, strict=True)
            self._set([one.merged(*others).kept(self.most_values) for one, *others in parts])

    def merge(self, other: TargetStatistics) -> None:
        """Add the statistics that another transform has learned from other rows.

        Args:
            other: a transform with the same arguments and the same intervals of time.

        Raises:
            ValueError: `other` has different intervals of time.
        """
        if not np.array_equal(self._edges, other._edges):
            raise ValueError("statistics must have the same intervals of time to be merged")
        self.settle()
        other.settle()
        self._rows = self._rows.merged(other._rows)
        pairs = zip(self._values, other._values, strict=True)
        self._set([one.merged(two).kept(self.most_values) for one, two in pairs])

    def forget(self) -> None:
        """Forget all rows, but not the intervals of time."""
        tasks = len(self.labels)
        none = np.empty(0, np.int64)
        self._rows = ValueSums(none, none, np.empty((0, 1 + 2 * tasks)), self._count)
        nothing = ValueSums(none, none, np.empty((0, 1 + tasks)), self._count)
        self._set([nothing] * len(self.parts))

    def _set(self, values: Sequence[ValueSums]) -> None:
        self._values = tuple(values)
        self._waiting = ()
        self._most = [
            float(each.total(each.values)[:, 0].max()) if len(each.values) else 1.0
            for each in values
        ]
        self._encoded: Any = None

    # ---- numbers

    def apply(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the statistics of rows to predict, float32 ``[B, width]``."""
        shared = SharedKeys() if keys is None else keys
        rows = self._rows.total(_ALL)
        made = [
            self._numbers(place, known.total(_applied(part, values, shared)), rows, 1.0)
            for place, (known, part) in enumerate(zip(self._values, self.parts, strict=True))
        ]
        return np.concatenate(made, axis=1, dtype=np.float32)

    def apply_training(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the statistics of rows on which a network trains, float32 ``[B, width]``."""
        shared = SharedKeys() if keys is None else keys
        places = self._places(values, shared)
        of_part = np.arange(self._count)
        everywhere = np.zeros(self._count, np.int64)
        seen = ValueSums.without if self.by == "folds" else ValueSums.before
        rows = seen(self._rows, everywhere, of_part)[places]
        more = _FOLDS / (_FOLDS - 1) if self.by == "folds" else 1.0
        made = [
            self._numbers(place, seen(known, _applied(part, values, shared), places), rows, more)
            for place, (known, part) in enumerate(zip(self._values, self.parts, strict=True))
        ]
        return np.concatenate(made, axis=1, dtype=np.float32)

    def _numbers(self, part: int, sums: np.ndarray, rows: np.ndarray, more: float) -> np.ndarray:
        """Return the statistics of one part, float64 ``[B, labels + 1]``.

        Args:
            part: index of the part in `parts`.
            sums: for each row, the sums over all rows with the same value, ``[B, 1 + labels]``.
            rows: the sums over the rows of all values together, ``[B or 1, 1 + 2 * labels]``.
            more: number of all rows, divided by the number of rows that the sums include.
        """
        tasks = len(self.labels)
        count, total = sums[:, :1], rows[:, :1]
        labels, squares = rows[:, 1 : 1 + tasks], rows[:, 1 + tasks :]
        plain = labels / np.maximum(total, 1e-30)
        with np.errstate(invalid="ignore", divide="ignore"):
            usual = np.where(self._is_binary, (labels + 1) / (total + 2), plain)
            mean = (sums[:, 1:] + _PRIOR * usual) / (count + _PRIOR)
            odds = np.log(mean * (1 - usual) / ((1 - mean) * usual))
            spread = np.sqrt(np.maximum(squares / np.maximum(total, 1e-30) - plain**2, 0))
            steps = np.where(spread > 0, (mean - usual) / spread, 0.0)
        differences = np.where(self._is_binary, odds, steps)
        most = np.log1p(self._most[part])
        frequency = np.minimum(2 * np.log1p(count * more) / most - 1, 1)
        return np.concatenate([np.tanh(differences / 2), frequency], axis=1)

    def _places(self, values: pa.StructArray, keys: SharedKeys) -> np.ndarray:
        """Return the fold, or the interval of time, of each row, int64 ``[B]``."""
        if self.by == "past":
            return np.searchsorted(self._edges, _applied(self.others[0], values, keys), "left")
        words = np.zeros(len(values), np.uint64)
        for each in self.others:
            column = _applied(each, values, keys)
            if column.dtype != np.int64:
                column = column.astype(np.float32) + np.float32(0)  # -0.0 becomes 0.0
                column = column.view(np.int32).astype(np.int64)
            words = mix64(words ^ column.view(np.uint64))
        return ((words >> np.uint64(32)) % np.uint64(_FOLDS)).astype(np.int64)

    # ---- state

    def state_dict(self) -> Any:
        """Return the learned state as JSON values."""
        if self._encoded is None:
            self._encoded = {
                "by": self.by,
                "edges": self._edges.tolist(),
                "rows": _encoded(self._rows),
                "values": [_encoded(each) for each in self._values],
            }
        return self._encoded

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            TypeError, ValueError, KeyError: `state` is the state of a different transform. After an
                error, the object is unchanged.
        """
        if not isinstance(state, Mapping) or state["by"] != self.by:
            raise ValueError(f"state must be of TargetStatistics by {self.by}, got {state!r:.80}")
        tasks = len(self.labels)
        if len(state["values"]) != len(self.parts):
            raise ValueError(f"state must be of {len(self.parts)} columns with statistics")
        edges = np.array(state["edges"], np.int64)
        if edges.ndim != 1 or len(edges) >= self._count or (np.diff(edges) <= 0).any():
            raise ValueError("state must have ascending intervals of time")
        rows = _decoded(state["rows"], 1 + 2 * tasks, self._count)
        if (rows.values != 0).any():
            raise ValueError("state must have one sum over all rows")
        values = [_decoded(each, 1 + tasks, self._count) for each in state["values"]]
        self._edges, self._rows = edges, rows
        self._set(values)


def _pairs(sums: Sequence[ValueSums]) -> int:
    return sum(len(each.keys) for each in sums)


def _columns_of(features: Sequence[Feature]) -> tuple[str | int, ...]:
    return tuple(dict.fromkeys(column for each in features for column in each.columns))


def _applied(feature: Feature, values: pa.StructArray, keys: SharedKeys) -> np.ndarray:
    """Apply a `JointFeature` to `values`, and any other transform to the field that it reads."""
    is_joint = isinstance(feature, JointFeature)
    column = values if is_joint else field_of(values, feature.column)
    return keys.of(feature, column, learn=False)


def _encoded(sums: ValueSums) -> dict[str, Any]:
    parts = sums.parts.astype(np.uint8)
    arrays = {"keys": sums.values, "parts": parts, "sums": sums.sums.T}
    arrays["lengths"] = sums.lengths.astype(np.uint8)
    return {
        "values": len(sums.values),
        "pairs": len(sums.keys),
        **{
            name: base64.b64encode(zlib.compress(np.ascontiguousarray(each).tobytes())).decode()
            for name, each in arrays.items()
        },
    }


def _decoded(state: Any, width: int, count: int) -> ValueSums:
    """Return the sums that a saved state describes.

    Raises:
        TypeError, ValueError, KeyError: the state does not describe sums.
    """
    values, pairs = (check_int(name, state[name], 0, 1 << 34) for name in ("values", "pairs"))
    keys = _array(state["keys"], np.int64, values)
    lengths = _array(state["lengths"], np.uint8, values)
    parts = _array(state["parts"], np.uint8, pairs).astype(np.int64)
    sums = _array(state["sums"], np.float64, width * pairs).reshape(width, pairs).T.copy()
    if lengths.sum(dtype=np.int64) != pairs or not np.isfinite(sums).all():
        raise ValueError("the state is none of TargetStatistics")
    repeated = np.repeat(keys, lengths)
    ascending = (np.diff(parts) > 0) | (np.diff(repeated) > 0)
    if not ascending.all() or not (keys[1:] > keys[:-1]).all() or (lengths == 0).any():
        raise ValueError("the state is none of TargetStatistics")
    if (parts >= count).any() or (sums[:, 0] < 0).any():
        raise ValueError("the state is none of TargetStatistics")
    return ValueSums(repeated, parts, sums, count)


def _array(text: Any, dtype: type, length: int) -> np.ndarray:
    """Return an array from compressed text.

    Text that expands to more bytes than the array needs is refused.
    """
    wanted = length * np.dtype(dtype).itemsize
    try:
        raw = base64.b64decode(text, validate=True)
        unpacked = zlib.decompressobj().decompress(raw, wanted + 1)
    except (zlib.error, ValueError, TypeError) as error:
        raise ValueError(f"the state is none of TargetStatistics: {error}") from error
    if len(unpacked) != wanted:
        raise ValueError("the state is none of TargetStatistics: an array has another length")
    return np.frombuffer(unpacked, dtype).copy()
