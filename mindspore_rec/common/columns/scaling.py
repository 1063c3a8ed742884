# SPDX-License-Identifier: Apache-2.0
"""Transforms that scale numbers by statistics of all learned numbers.

The statistics first learn from a batch; then the batch is scaled. Because the statistics are part
of the pipeline's state, the same batches give the same numbers even after a restart.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mindspore_rec.common.checks import check_number
from mindspore_rec.common.columns.transforms import Number

__all__ = ["LogScale", "MinMaxScale", "StandardScale"]


class MinMaxScale(Number):
    """Scale to ``(x - low) / (high - low)``, clipped to [0, 1]; 0 if ``high <= low``.

    Before the first value, every number becomes 0 unless `low` and `high` are set.

    Args:
        column: numbers.
        low: number that is scaled to 0. Default: None, which means the least learned value.
        high: number that is scaled to 1. Default: None, which means the greatest learned value.
        missing: result for a missing value, NaN, or a number beyond the range of float32 (default
            0).

    Raises:
        TypeError: an argument is not a number.
        ValueError: `low` is not below `high`.

    Example:
        >>> import pyarrow as pa
        >>> scale = MinMaxScale("price")
        >>> scale.apply(pa.array([0.0, 10.0]), learn=True).tolist()
        [0.0, 1.0]
        >>> scale.apply(pa.array([5.0, 20.0]), learn=True).tolist(), scale.state_dict()
        ([0.25, 1.0], [0.0, 20.0])
    """

    def __init__(
        self,
        column: str | int,
        low: float | None = None,
        high: float | None = None,
        missing: float = 0.0,
    ) -> None:
        super().__init__(column, missing)
        self._low = None if low is None else check_number("low", low)
        self._high = None if high is None else check_number("high", high)
        if self._low is not None and self._high is not None and self._low >= self._high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self._seen = [math.inf, -math.inf]

    def _scaled(self, numbers: np.ndarray, there: np.ndarray, learn: bool) -> np.ndarray:
        values = self._raised(numbers)
        if learn and there.any():
            known = values[there]
            least, greatest = float(known.min()), float(known.max())
            self._seen = [min(self._seen[0], least), max(self._seen[1], greatest)]
        low = self._seen[0] if self._low is None else self._low
        high = self._seen[1] if self._high is None else self._high
        if not low < high:  # nothing seen yet, or one value only
            return np.zeros_like(values)
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    def _raised(self, numbers: np.ndarray) -> np.ndarray:
        return numbers

    def state_dict(self) -> list[float] | None:
        """Return the least and the greatest learned value; an empty list before the first value."""
        return list(self._seen) if self._seen[0] <= self._seen[1] else []

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            ValueError: `state` is the state of another class.
        """
        extremes = _numbers_of(self, state, (0, 2))
        if extremes and extremes[0] > extremes[1]:
            raise ValueError(
                f"state of column {self.column!r} must be the least and the greatest value, "
                f"got {state!r}"
            )
        self._seen = extremes or [math.inf, -math.inf]


class LogScale(MinMaxScale):
    """Take ``log(1 + max(x, 0))``, and optionally scale the logarithms to [0, 1] by their range.

    Args:
        column: numbers, for example counts.
        running: True to scale the logarithms to [0, 1]: the least learned logarithm becomes 0, and
            the greatest becomes 1 (default False).
        missing: see `MinMaxScale`.

    Raises:
        TypeError: an argument is of the wrong type.

    Example:
        >>> import pyarrow as pa
        >>> LogScale("clicks").apply(pa.array([0, 1, -2, None]), learn=True).round(4)
        array([0.    , 0.6931, 0.    , 0.    ], dtype=float32)
    """

    def __init__(self, column: str | int, running: bool = False, missing: float = 0.0) -> None:
        super().__init__(column, missing=missing)
        if not isinstance(running, bool):
            raise TypeError(f"running must be a bool, got {running!r}")
        self.running = running

    def _raised(self, numbers: np.ndarray) -> np.ndarray:
        return np.log1p(np.maximum(numbers, 0.0))

    def _scaled(self, numbers: np.ndarray, there: np.ndarray, learn: bool) -> np.ndarray:
        if not self.running:
            return self._raised(numbers)
        return super()._scaled(numbers, there, learn)

    def state_dict(self) -> list[float] | None:
        """Return the least and the greatest learned logarithm; None if `running` is False."""
        return super().state_dict() if self.running else None

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            ValueError: `state` is the state of another class, or of a `LogScale` whose `running`
                differs.
        """
        if self.running == (state is None):
            raise ValueError(f"state of column {self.column!r} must be of the same setting")
        if self.running:
            super().load_state_dict(state)


class StandardScale(Number):
    """Scale to ``(x - mean) / deviation`` with the mean and deviation of all learned values.

    If all learned values are equal, the result is 0. Mean and sum of squares are merged batch by
    batch (Chan, Golub, LeVeque 1979). The merge stays precise over a long stream.

    Args:
        column: numbers.
        missing: see `MinMaxScale`. Default: 0, to which the mean is scaled.

    Example:
        >>> import pyarrow as pa
        >>> StandardScale("age").apply(pa.array([20.0, 40.0]), learn=True).tolist()
        [-1.0, 1.0]
    """

    def __init__(self, column: str | int, missing: float = 0.0) -> None:
        super().__init__(column, missing)
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def _scaled(self, numbers: np.ndarray, there: np.ndarray, learn: bool) -> np.ndarray:
        if learn:
            self._learn(numbers[there])
        if self._squares <= 0.0:
            return np.zeros_like(numbers)
        return (numbers - self._mean) / math.sqrt(self._squares / self._count)

    def _learn(self, values: np.ndarray) -> None:
        if not len(values):
            return
        mean = float(values.mean())
        squares = float(np.square(values - mean).sum())
        count = self._count + len(values)
        apart = mean - self._mean
        self._mean += apart * len(values) / count
        self._squares += squares + apart * apart * self._count * len(values) / count
        self._count = count

    def state_dict(self) -> list[float] | None:
        """Return the number of values, their mean, and their sum of squared deviations."""
        return [self._count, self._mean, self._squares]

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            ValueError: `state` is the state of another class.
        """
        count, mean, squares = _numbers_of(self, state, (3,))
        if count < 0 or not count.is_integer() or squares < 0:
            raise ValueError(
                f"state of column {self.column!r} must be a number of values, their mean and a sum "
                f"of squares, got {state!r}"
            )
        self._count, self._mean, self._squares = int(count), mean, squares


def _numbers_of(transform: Number, state: Any, lengths: tuple[int, ...]) -> list[float]:
    """Return a state's numbers; raise an error if some are not finite or their count is illegal."""
    numbers = isinstance(state, (list, tuple)) and all(
        isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each)
        for each in state
    )
    if not numbers or len(state) not in lengths:
        raise ValueError(
            f"state of column {transform.column!r} must be {max(lengths)} finite numbers of a "
            f"{type(transform).__name__}, got {state!r:.80}"
        )
    return [float(each) for each in state]
