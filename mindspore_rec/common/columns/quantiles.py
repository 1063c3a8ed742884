# SPDX-License-Identifier: Apache-2.0
"""Transform numbers to scaled numbers or categories, by their quantile among learned numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import values_array
from mindspore_rec.common.columns.hashing import category_keys
from mindspore_rec.common.columns.transforms import Number

__all__ = ["MixedScale", "QuantileBucket", "QuantileScale"]


class QuantileScale(Number):
    """Replace each number by its quantile among the learned numbers, scaled to [-1, 1].

    The smallest learned value becomes about -1, the median 0, and the largest about 1. The scale is
    linear between quantiles. A number outside the learned range, even an infinity, is replaced by
    the nearer end of the range. A change of the unit, or a single outlier, hardly changes the
    result. `keys` returns, for each number, the key of the number's bucket between two quantiles.
    Each bucket has one row in a table. A value that is frequent enough to fill a bucket gets a
    separate bucket. With scaled numbers and buckets, a model can learn curves of any shape.

    `fit` learns from an array. If a pipeline reads a stream, the scale learns from the first
    `sample` numbers. The quantiles change until `sample` numbers have been learned, and are fixed
    afterwards. As long as no number has been learned, every number becomes 0, and all numbers are
    in one bucket.

    Args:
        column: numbers.
        buckets: number of intervals between quantiles, 2 to 65536. The quantiles of all numbers
            have `buckets` intervals, and the quantiles of the distinct numbers have `buckets`
            intervals too. Default: 256.
        sample: number of first values of a stream from which the scale learns, 1 to 2**20. Default:
            10,000.
        missing: result for a missing value or NaN (default 0). Missing values have a separate
            bucket.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or values are not
            numbers.

    Example:
        >>> price = QuantileScale("price", buckets=4).fit([1.0, 2.0, 5.0, 100.0])
        >>> price.scaled([1.0, 5.0, 1e30, -1.0, None]).tolist()
        [-0.75, 0.25, 0.75, -0.75, 0.0]
        >>> price.keys([1.0, 1.0, 100.0]).shape
        (3,)
        >>> other = QuantileScale("price", buckets=4)
        >>> other.load_state_dict(price.state_dict())
        >>> bool((other.keys([3.0, None]) == price.keys([3.0, None])).all())
        True
    """

    _mixes = False  # whether places are among rows only, or also among distinct values

    def __init__(
        self, column: str | int, buckets: int = 256, sample: int = 10_000, missing: float = 0.0
    ) -> None:
        super().__init__(column, missing)
        self.buckets = check_int("buckets", buckets, 2, 1 << 16)
        self.sample = check_int("sample", sample, 1, 1 << 20)
        self._seen = np.empty(0)  # until there are enough of them
        self._fixed = False
        self._decimal = True  # False for states of earlier versions
        self._said = False
        self._learn_from(self._seen)

    def fit(self, values: Any) -> QuantileScale:
        """Learn from all numbers in `values`, and forget the numbers learned before.

        Args:
            values: N numbers as a list, an array, a pandas Series or an Arrow array. Missing
                numbers, NaN and infinities are ignored.

        Returns:
            This object.
        """
        numbers = self._numbers(self._array(values))
        self._learn_from(numbers[np.isfinite(numbers)])
        self._seen, self._fixed = np.empty(0), True
        return self

    def scaled(self, values: Any) -> np.ndarray:
        """Return the quantiles, float32 `[N]`, from -1 to 1, and `missing` for missing numbers."""
        self._say_if_unfit()
        return self._places(self._numbers(self._array(values)))

    def keys(self, values: Any) -> np.ndarray:
        """Return keys of the numbers' buckets, int64 `[N]`. Keys of different columns differ."""
        self._say_if_unfit()
        return self._bucket_keys(self._numbers(self._array(values)))

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the quantiles, float32 ``[B]``, from -1 to 1."""
        return self._places(self._read(values, learn))

    def state_dict(self) -> Any:
        """Return the learned state as plain numbers and lists."""
        state = {
            "buckets": self.buckets,
            "points": self._points.tolist(),
            "ranks": self._ranks.tolist(),
            "edges": self._edges.tolist(),
            "seen": self._seen.tolist(),
            "fixed": self._fixed,
            "decimal": self._decimal,
        }
        return state | {"mixed": True} if self._mixes else state

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            ValueError: the state has another number of buckets than this scale; the state of a
                `MixedScale` is loaded into another class; or the state of another class is loaded
                into a `MixedScale`.
            TypeError, ValueError, KeyError: `state` is not the state of a QuantileScale. After an
                error, the object is unchanged.
        """
        if not isinstance(state, Mapping) or state.get("mixed", False) is not self._mixes:
            kind = "MixedScale" if self._mixes else "QuantileScale"
            raise ValueError(f"column {self.column!r}: the state is none of a {kind}")
        if state["buckets"] != self.buckets:
            raise ValueError(
                f"column {self.column!r}: buckets must be {state['buckets']}, as in the state, "
                f"got {self.buckets}"
            )
        points, ranks, edges, seen = (
            np.array(state[name], np.float64) for name in ("points", "ranks", "edges", "seen")
        )
        most = 4 * (self.buckets + 2)
        whole = (
            all(each.ndim == 1 and np.isfinite(each).all() for each in (points, ranks, edges, seen))
            and 1 <= len(points) == len(ranks) <= most
            and len(edges) <= most
            and bool((np.diff(points) > 0).all() and (np.diff(edges) > 0).all())
            and bool(0 <= ranks.min() and ranks.max() <= 1)
        )
        decimal = state.get("decimal", False)
        if not whole or not isinstance(state["fixed"], bool) or not isinstance(decimal, bool):
            raise ValueError(f"column {self.column!r}: the state is none of a QuantileScale")
        self._points, self._ranks, self._edges, self._seen = points, ranks, edges, seen
        self._fixed = state["fixed"]
        self._decimal = decimal

    def _numbers(self, values: pa.Array) -> np.ndarray:
        """Return a float64 copy. A float32 is read as the decimal number from which it was rounded,
        so that 0.1 has the same bucket in columns of float32 and of float64."""
        numbers = super()._numbers(values)
        return _decimals(numbers) if self._decimal and _is_short(values.type) else numbers

    def _array(self, values: Any) -> pa.Array:
        return values_array(f"column {self.column!r} must", values, "be numbers")

    def _say_if_unfit(self) -> None:
        if self._fixed or len(self._seen) or self._said:
            return
        self._said = True
        warnings.warn(
            f"column {self.column!r}: the scale has learned nothing, so all numbers are the same "
            "to it: call fit(), or load_checkpoint(..., states=) with what was saved",
            RuntimeWarning,
            stacklevel=3,
        )

    def _read(self, values: pa.Array, learn: bool) -> np.ndarray:
        numbers = self._numbers(values)
        if learn and not self._fixed:
            new = numbers[np.isfinite(numbers)][: self.sample - len(self._seen)]
            if len(new):
                self._seen = np.concatenate([self._seen, new])
                self._learn_from(self._seen)
            if len(self._seen) == self.sample:
                self._seen, self._fixed = np.empty(0), True
        return numbers

    def _learn_from(self, values: np.ndarray) -> None:
        if not len(values):
            self._points, self._ranks, self._edges = np.zeros(1), np.full(1, 0.5), np.empty(0)
            return
        ordered = np.sort(values)
        # If most values of a column are 0, most quantiles of the values are 0, so the points also
        # include the quantiles of the distinct values.
        distinct = np.unique(ordered)
        points = np.union1d(_spread(ordered, self.buckets), _spread(distinct, self.buckets))
        below = np.searchsorted(ordered, points, "left")
        up_to = np.searchsorted(ordered, points, "right")
        frequent = points[(up_to - below) * self.buckets >= len(ordered)]
        self._points = points
        self._ranks = (below + up_to) / (2 * len(ordered))
        if self._mixes:
            among_distinct = (np.searchsorted(distinct, points) + 0.5) / len(distinct)
            self._ranks = (self._ranks + among_distinct) / 2
        # Buckets begin at each quantile except the first and the last, at each frequent value, and
        # right after each frequent value.
        with np.errstate(over="ignore"):
            after = np.nextafter(frequent, np.inf)
        edges = np.union1d(points[1:-1], np.concatenate([frequent, after]))
        self._edges = edges[(edges > points[0]) & np.isfinite(edges)]

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        made = np.interp(numbers, self._points, self._ranks)
        # Rounding could move a result out of the number's interval, and then a greater number would
        # get a smaller result.
        nearest = np.searchsorted(self._points, numbers, "right").clip(1, len(self._points))
        highest = self._ranks[np.minimum(nearest, len(self._points) - 1)]
        made = 2 * made.clip(self._ranks[nearest - 1], highest) - 1
        made[np.isnan(numbers)] = self.missing
        return made.astype(np.float32)

    def _bucket_keys(self, numbers: np.ndarray) -> np.ndarray:
        buckets = np.searchsorted(self._edges, numbers, "right")
        return category_keys(f"{self.column}.bucket", pa.array(buckets, mask=np.isnan(numbers)))


class MixedScale(QuantileScale):
    """Replace a number by the mean of two quantiles: among all numbers and among distinct numbers.

    In a column that is mostly 0, a `QuantileScale` places all other numbers close together near the
    end of the range. The quantile among the distinct numbers counts 0 only once, so the mean of the
    two quantiles spreads the other numbers over the range. The results are from -1 to 1. Buckets
    and their keys are formed as in a `QuantileScale`.

    Args: see `QuantileScale`.

    Example:
        >>> gains = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 4.0]
        >>> QuantileScale("gain").fit(gains).scaled([0.0, 1.0, 4.0]).tolist()
        [-0.375, 0.375, 0.875]
        >>> MixedScale("gain").fit(gains).scaled([0.0, 1.0, 4.0]).tolist()
        [-0.5625, 0.0625, 0.8125]
    """

    _mixes = True


class QuantileBucket(QuantileScale):
    """Transform each number to the key of its bucket, an interval between two quantiles.

    Args: see `QuantileScale`.

    Example:
        >>> bucket = QuantileBucket("age", buckets=2)
        >>> keys = bucket.apply(pa.array([18, 20, 60, 70]), learn=True)
        >>> keys[0] == keys[1], keys[1] == keys[2], keys[2] == keys[3]
        (True, False, True)
    """

    dtype = np.int64

    def apply(self, values: pa.Array, learn: bool) -> np.ndarray:
        """Return the keys, int64 ``[B]``."""
        return self._bucket_keys(self._read(values, learn))


def _spread(ordered: np.ndarray, intervals: int) -> np.ndarray:
    at = np.linspace(0, len(ordered) - 1, intervals + 1).round().astype(np.int64)
    return ordered[at]


def _is_short(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_float32(kind))


def _decimals(numbers: np.ndarray) -> np.ndarray:
    """Return numbers rounded to 7 significant digits, as many as a float32 has.

    Example:
        >>> float(np.float32(0.1))
        0.10000000149011612
        >>> _decimals(np.array([0.10000000149011612, np.nan, np.inf])).tolist()
        [0.1, nan, inf]
    """
    made = numbers.copy()
    there = np.isfinite(numbers) & (np.abs(numbers) >= np.finfo(np.float32).tiny)
    known = numbers[there]
    digits = 6 - np.floor(np.log10(np.abs(known)))
    factor = 10.0 ** np.abs(digits)
    made[there] = np.where(
        digits >= 0, np.round(known * factor) / factor, np.round(known / factor) * factor
    )
    return made
