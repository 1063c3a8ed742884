# SPDX-License-Identifier: Apache-2.0
"""Base class of all metrics; it counts rows, and merges metrics over different rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from mindspore.train import Metric

__all__ = ["MergedMetric", "check_integer"]


class MergedMetric(Metric):
    """Base class of metrics that can be merged; a ``mindspore.train.Metric``.

    :meth:`merge` combines metrics of different rows, for example the metrics of all workers.
    `RecModel.eval` merges the workers' metrics automatically.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    """Names of the arguments of ``update``, in order."""

    undefined_if: ClassVar[str] = "there are no rows"
    """Description of the rows for which :meth:`eval` returns NaN."""

    def clear(self) -> None:
        """Forget all rows."""
        self._rows = 0

    @property
    def rows(self) -> int:
        """Number of rows added since the last :meth:`clear`."""
        return self._rows

    def eval(self) -> float:
        """Return the metric of the rows that were added since the last :meth:`clear`.

        Raises:
            RuntimeError: no rows have been added; MindSpore's own metrics raise the same error.
        """
        self._check_seen()
        return self._value()

    @property
    def order_matters(self) -> bool:
        """True if the value depends on the order in which rows were added."""
        return False

    def merge(self, others: Iterable[MergedMetric]) -> None:
        """Add all rows of other metrics to this metric, in the order of `others`.

        After the merge, the value equals the value of a single metric over all rows. For metrics of
        counts or ranks, the merged value is exact; for other metrics, the merged value differs by
        the rounding of float64 sums. The metrics in `others` do not change.

        Args:
            others: metrics of the same class with the same settings.

        Raises:
            TypeError: the class of a metric differs from this metric's class.
            ValueError: the settings of a metric differ from this metric's settings.

        Examples:
            >>> from mindspore_rec.metrics import AUC
            >>> one, other = AUC(), AUC()
            >>> one.update(np.array([0.1, 0.4]), np.array([0, 0]))
            >>> other.update(np.array([0.35, 0.8]), np.array([1, 1]))
            >>> one.merge([other])
            >>> one.rows, one.eval()
            (4, 0.75)
        """
        self.merge_states([_state_of(each, self) for each in others])

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the metric's state as arrays by name, for `merge_states` of another process."""
        return {"settings": self._settings(), "rows": np.array(self._rows), **self._state()}

    def merge_states(self, states: Iterable[Mapping[str, npt.NDArray[Any]]]) -> None:
        """Add the rows of other metrics; `states` contains the results of `state_dict`.

        Raises:
            ValueError: a state is from a metric of another class or with other settings. A
                ValueError is raised before any rows are added.
        """
        all_states = list(states)
        mine = self.state_dict()
        for state in all_states:
            if set(state) != set(mine) or not np.array_equal(state["settings"], mine["settings"]):
                raise ValueError(
                    f"states must be of a {type(self).__name__} with the same settings: one has "
                    f"{sorted(state)} with the settings {state.get('settings')}, this has "
                    f"{sorted(mine)} with {mine['settings']}"
                )
        for state in all_states:
            self._take(state)

    def _take(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add one checked state."""
        rows = int(state["rows"])
        self._take_state(state, rows)
        self._rows += rows

    @abstractmethod
    def _settings(self) -> npt.NDArray[np.float64]:
        """Return the settings that must be equal in two metrics before they can be merged."""

    @abstractmethod
    def _state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state, but leave out the number of rows."""

    @abstractmethod
    def _take_state(self, state: Mapping[str, npt.NDArray[Any]], rows: int) -> None:
        """Add another metric's state, which contains `rows` rows; the caller counts these rows."""

    @abstractmethod
    def _value(self) -> float:
        """Return the value of the metric; at least one row has been added."""

    def _check_seen(self) -> None:
        if not self._rows:
            raise RuntimeError(f"{type(self).__name__} has seen no rows: call update first")


def _state_of(other: Any, metric: MergedMetric) -> dict[str, npt.NDArray[Any]]:
    if type(other) is not type(metric):
        raise TypeError(
            f"others must be {type(metric).__name__} metrics, got a {type(other).__name__}"
        )
    state: dict[str, npt.NDArray[Any]] = other.state_dict()
    return state


def check_integer(value: int, name: str, *, minimum: int) -> int:
    """Return ``value`` as an int, or raise an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)
