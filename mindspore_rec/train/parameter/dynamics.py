# SPDX-License-Identifier: Apache-2.0
"""DynamicTable: a table whose rows come and go: admission, eviction, explanation of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.policies import Admission, Eviction, check_eviction
from mindspore_rec.train.parameter.explanation import Explanation, explanation
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["DynamicTable", "EvictedKeys"]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class EvictedKeys:
    """Keys that were evicted, one entry a key in each array.

    Attributes:
        keys: int64 `[n]`.
        reasons: str `[n]`, 'idle_steps', 'idle_seconds', 'capacity' or 'norm'.
        steps: int64 `[n]`, the table's step at the eviction.
        times: uint32 `[n]`, the watermark then, in seconds since 1970; 0 without event times.
    """

    keys: np.ndarray
    reasons: np.ndarray
    steps: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


class DynamicTable(TableParameter):
    """A table whose rows come and go: base of `MapParameter`.

    Attributes:
        admission: the admission policy the table was made with; `set_threshold` leaves it.
        eviction: the `Eviction` in force, or None.
    """

    admission: Admission
    eviction: Eviction | None

    # ---- admission

    def set_threshold(self, threshold: int | None) -> None:
        """Set the threshold of admission by count, also while training.

        Args:
            threshold: as for `CountAdmission`: a lower one admits counted keys when they are next
                seen; 0 freezes the counts; None or -1 admits every key.

        Raises:
            ValueError: out of range, or the table admits by probability.

        Example:
            >>> from mindspore_rec import CountAdmission, MapParameter
            >>> table = MapParameter("doc.set_threshold", admission=CountAdmission(5))
            >>> table.set_threshold(2)
            >>> table.explain(7).threshold
            2
        """
        threshold = -1 if threshold is None else threshold
        where = f"table '{self.name}': admission threshold"
        threshold = check_int(where, threshold, INT64_MIN, INT64_MAX)
        self._synchronised().set_admission_threshold(threshold)

    # ---- eviction

    def set_eviction(self, eviction: Eviction | None) -> None:
        """Set the rules of eviction; rows that are due under the rules before are evicted first.

        Args:
            eviction: the rules, or None for none. The order cannot change to or from 'lfu_decay'
                and 'score', which need room in every row.

        Raises:
            ValueError: the order would change so.
        """
        eviction = check_eviction(eviction)
        self._synchronised().set_eviction(
            **({} if eviction is None else eviction.native_arguments())
        )
        self.eviction = eviction

    def evict(self, at_once: bool = False) -> None:
        """Apply all rules of eviction now; with `trigger='callback'` nothing else does.

        Args:
            at_once: True: all memory is freed when this returns. False: in slices over the
                following training steps; no lookup sees a row whose age is over either way.

        Raises:
            ValueError: the table has no rule of eviction, or evicts by seconds and has no event
                time.
        """
        if self.eviction is None:
            raise ValueError(f"table '{self.name}': has no eviction; give it an Eviction")
        self._synchronised().evict(bool(at_once))

    def evict_due(self) -> None:
        """Free the rows that are due already, which no lookup sees any more.

        Else they are freed in slices over the following training steps.
        """
        self._synchronised().evict_due()

    def set_scores(self, keys: Any, scores: Any) -> int:
        """Set the scores of rows, for eviction with `order='score'`; the lowest go first.

        Args:
            keys: int32 or int64 array or Tensor `[n]`; keys without a row are passed over.
            scores: float32 `[n]`, no NaN.

        Returns:
            Number of the keys that have a row.

        Raises:
            TypeError, ValueError: other types or shapes, a NaN, or a table that keeps no scores.
        """
        keys, scores = _array(keys), _array(scores)
        if scores.shape != keys.shape:
            raise ValueError(
                f"table '{self.name}': scores must have the shape of keys, {keys.shape}, "
                f"got {scores.shape}"
            )
        return int(
            self._synchronised().set_scores(keys, scores.astype(np.float32, copy=False)[..., None])
        )

    def collect_evicted(self, on: bool) -> None:
        """Start or end the collection of evicted keys for `take_evicted`; its end drops them."""
        self._synchronised().collect_evicted(bool(on))

    def take_evicted(self) -> EvictedKeys:
        """Return the keys evicted since the last call, while collection is on."""
        taken = self._synchronised().take_evicted()
        names = np.array(["", *_native.EVICTION_REASONS.values()])
        return EvictedKeys(taken["keys"], names[taken["reasons"]], taken["steps"], taken["times"])

    # ---- explanation

    def explain(self, key: int) -> Explanation:
        """Return what the table knows of a key, to be printed.

        Args:
            key: any int64.

        Returns:
            An `Explanation`: present or not, tier, count, threshold, last step and time seen, norm,
            and why there is no row: not admitted, or evicted (the last thousands are remembered).

        Example:
            >>> from mindspore_rec import CountAdmission, MapParameter
            >>> table = MapParameter("doc.explain", admission=CountAdmission(3))
            >>> print(table.explain(7))  # doctest: +ELLIPSIS
            table 'doc.explain', key 7: no row; never seen in training, erased, or evicted ...
        """
        key = check_int("key", key, INT64_MIN, INT64_MAX)
        return explanation(
            self.name,
            key,
            self._synchronised().explain(key),
            admission=self.admission.native_arguments()["admission_kind"],
            scored=self.eviction is not None and self.eviction.order in ("lfu_decay", "score"),
        )

    # ---- by handle

    def lookup_with_handles(
        self, ids: Any, padding_key: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the rows of a training lookup outside a graph, with handles to train them by.

        Keys are inserted and counted as in any training lookup. A handle is the place of a row, by
        which `optimizer.apply_by_handle(grads, handles)` finds it without its id. It is valid until
        a row leaves the table (evict, erase, clear) or an optimizer of another kind takes over;
        after that it is refused with `StaleHandleError`, as is what no lookup gave: handles carry a
        tag that cannot be made without the table.

        Args:
            ids: int32 or int64 array or Tensor of any shape.
            padding_key: an id that reads zeros and has no row. Default: none.

        Returns:
            rows, float32 Tensor `[*ids.shape, dim]`, and handles, int64 Tensor `[*ids.shape, 2]`.

        Raises:
            NoOptimizerError: no optimizer covers the table.
            RuntimeError: other weights were loaded without these rows; see `keep_rows`.

        After the lookup by address of Rec SDK's dynamic expansion.
        """
        rows, handles = self._synchronised().lookup_with_handles(_array(ids), padding_key)
        return Tensor.from_numpy(rows), Tensor.from_numpy(handles)


def _array(values: Any) -> np.ndarray:
    array = values.asnumpy() if isinstance(values, Tensor) else np.asarray(values)
    return np.ascontiguousarray(array)
