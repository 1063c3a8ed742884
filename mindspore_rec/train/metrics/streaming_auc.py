# SPDX-License-Identifier: Apache-2.0
"""AUC in bounded memory: over all rows, over the last rows, or weighted by age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.metrics.functional import auc_error_bound, auc_from_counts, sigmoid
from mindspore_rec.common.metrics.inputs import FloatArray
from mindspore_rec.train.metrics.base import BinaryMetric
from mindspore_rec.train.metrics.merged import check_integer

__all__ = ["StreamingAUC"]

_MAX_LOGIT = 16.0  # the outermost bins begin at probabilities of 1.1e-7 from 0 and 1


class StreamingAUC(BinaryMetric):
    """AUC computed from the counts of positives and negatives in fixed bins of the prediction.

    Between the logits -16 and 16, all bins have the same width in logits, ``32 / (num_bins - 2)``.
    The first bin counts logits below -16, and the last bin counts logits above 16. Click rates near
    0.001 are resolved as finely as click rates near 0.5. A pair of a positive and a negative row in
    the same bin counts one half, so the value is not exact. The value is at most
    :meth:`error_bound` away from the exact AUC of the same rows and weights. The error bound is
    computed from the counts of the bins, and is valid for any predictions. With the default bins
    and logits of standard deviation 1.5, the bound is about 0.0002. If all predictions are in one
    bin, the bound is 0.5, so the value says nothing.

    Predictions are not rounded before they are binned. The value is NaN while all counted rows have
    the same label. The metric takes 24 bytes per bin, and 4 bytes per row of the window.

    Args:
        num_bins: number of bins, at least 3. Default: 16384.
        window: count only the last ``window`` rows. Default: None, which means all rows.
        half_life: number of rows after which the weight of a row is halved. Default: None, which
            means that old rows do not lose weight. ``half_life`` and ``window`` must not be set
            together.
        from_logits: whether the predictions are logits. Default: False.
        task: index of the column to use if predictions or labels are ``[B, T]``. Default: 0.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is out of range, or both ``window`` and ``half_life`` are set.

    Examples:
        >>> metric = StreamingAUC(window=4)
        >>> metric.update(np.array([0.9, 0.1, 0.4]), np.array([0, 0, 0]))
        >>> metric.update(np.array([0.35, 0.8]), np.array([1, 1]))  # the first row leaves
        >>> metric.eval(), metric.error_bound()
        (0.75, 0.0)
    """

    def __init__(
        self,
        *,
        num_bins: int = 16384,
        window: int | None = None,
        half_life: float | None = None,
        from_logits: bool = False,
        task: int = 0,
    ) -> None:
        if window is not None and half_life is not None:
            raise ValueError("window and half_life exclude each other, got both")
        self.num_bins = check_integer(num_bins, "num_bins", minimum=3)
        self.window = window if window is None else check_integer(window, "window", minimum=1)
        self.half_life = half_life if half_life is None else _check_half_life(half_life)
        logits = np.linspace(-_MAX_LOGIT, _MAX_LOGIT, self.num_bins - 1)
        # The bin of a prediction is found by a search in the sorted edges, so a larger prediction
        # is never in a lower bin. The logits of two close predictions could be rounded to the wrong
        # order, which would break the error bound.
        self._edges = logits if from_logits else sigmoid(logits)
        super().__init__(from_logits=from_logits, task=task)

    def clear(self) -> None:
        """Forget all rows."""
        super().clear()
        self._counter = self._new_counter()

    def error_bound(self) -> float:
        """Return the largest possible distance of :meth:`eval` from the exact AUC.

        The bound is ``0.5 * sum_b(P_b * N_b) / (P * N)``, where bin b has P_b of all P positives
        and N_b of all N negatives. The bound is NaN if all counted rows have the same label.

        Raises:
            RuntimeError: no rows have been added.
        """
        self._check_seen()
        return auc_error_bound(self._counter.counts[1::2], self._counter.counts[0::2])

    @property
    def order_matters(self) -> bool:
        """True if a window or a half-life is set: new rows then count more than old rows."""
        return self.window is not None or self.half_life is not None

    def _new_counter(self) -> _Counter:
        codes = 2 * self.num_bins
        if self.window is not None:
            return _WindowCounter(codes, self.window)
        if self.half_life is not None:
            return _FadingCounter(codes, self.half_life)
        return _TotalCounter(codes)

    def _add(self, label: npt.NDArray[np.bool_], prediction: FloatArray, *others: Any) -> None:
        codes = np.searchsorted(self._edges, prediction).astype(np.uint32)
        codes *= 2
        codes += label
        self._counter.add(codes)

    def _settings(self) -> npt.NDArray[np.float64]:
        own = [self.num_bins, self.window or 0, self.half_life or 0]
        return np.concatenate([super()._settings(), np.array(own, np.float64)])

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return self._counter.state()

    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self._counter.take(state, rows)

    def _value(self) -> float:
        return auc_from_counts(self._counter.counts[1::2], self._counter.counts[0::2])


class _Counter(Protocol):
    """Counter of codes ``2 * bin + label``: the total weight of each code."""

    counts: npt.NDArray[Any]

    def add(self, codes: npt.NDArray[np.uint32]) -> None:
        """Count new rows; `codes` has one code per row, the oldest row first."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the counts as a state."""

    def take(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        """Add another counter's state, whose `rows` rows are newer than this counter's rows."""


class _TotalCounter:
    """Counts of all rows."""

    def __init__(self, num_codes: int) -> None:
        self.counts = np.zeros(num_codes, dtype=np.int64)

    def add(self, codes: npt.NDArray[np.uint32]) -> None:
        self.counts += np.bincount(codes, minlength=len(self.counts))

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"counts": self.counts.copy()}

    def take(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self.counts += state["counts"]


class _WindowCounter:
    """Counts of the last ``window`` rows; a ring buffer stores the codes of these rows."""

    def __init__(self, num_codes: int, window: int) -> None:
        self.counts = np.zeros(num_codes, dtype=np.int64)
        self._ring = np.empty(window, dtype=np.uint32)
        self._added = 0  # number of rows so far; the next row's place is this number % window

    def add(self, codes: npt.NDArray[np.uint32]) -> None:
        window = len(self._ring)
        codes = codes[-window:]
        places = (self._added + np.arange(len(codes))) % window
        filled = min(self._added, window)
        leaving = places[len(codes) - max(0, filled + len(codes) - window) :]
        self.counts -= np.bincount(self._ring[leaving], minlength=len(self.counts))
        self.counts += np.bincount(codes, minlength=len(self.counts))
        self._ring[places] = codes
        self._added += len(codes)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        filled = min(self._added, len(self._ring))
        return {"codes": self._ring[(self._added - filled + np.arange(filled)) % len(self._ring)]}

    def take(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self.add(np.array(state["codes"], np.uint32))


class _FadingCounter:
    """Counts of rows; a row has the weight ``0.5 ** (number of later rows / half_life)``."""

    def __init__(self, num_codes: int, half_life: float) -> None:
        self.counts = np.zeros(num_codes, dtype=np.float64)
        self._half_life = half_life

    def add(self, codes: npt.NDArray[np.uint32]) -> None:
        age = np.arange(len(codes) - 1, -1, -1)
        weights = np.exp2(-age / self._half_life)
        self.counts *= np.exp2(-len(codes) / self._half_life)
        self.counts += np.bincount(codes, weights=weights, minlength=len(self.counts))

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {"counts": self.counts.copy()}

    def take(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        self.counts *= np.exp2(-rows / self._half_life)
        self.counts += state["counts"]


def _check_half_life(half_life: float) -> float:
    if isinstance(half_life, bool) or not isinstance(half_life, int | float | np.number):
        raise TypeError(f"half_life must be a number, got {half_life!r}")
    if not 0 < half_life < np.inf:
        raise ValueError(f"half_life must be a finite number of rows above 0, got {half_life}")
    return float(half_life)
