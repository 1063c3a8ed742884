# SPDX-License-Identifier: Apache-2.0
"""DynamicTable: a table with admission, eviction and explanations of its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.rows.argument_errors import names_wrong_arguments
from mindspore_rec.common.rows.policies import Admission, Eviction, check_eviction
from mindspore_rec.train.graph.tensors import contiguous_array
from mindspore_rec.train.parameter.explanation import Explanation, explanation
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["DynamicTable", "EvictedKeys"]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class EvictedKeys:
    """Evicted keys; entries with the same index in all arrays belong to one key.

    Attributes:
        keys: int64 `[n]`.
        reasons: str `[n]`, 'idle_steps', 'idle_seconds', 'capacity' or 'norm'.
        steps: int64 `[n]`, the table's step at the eviction.
        times: uint32 `[n]`, the watermark of event times at the eviction, in seconds since 1970; 0
            without event times.
    """

    keys: np.ndarray
    reasons: np.ndarray
    steps: np.ndarray
    times: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


@names_wrong_arguments
class DynamicTable(TableParameter):
    """A table with admission and eviction of rows: base class of `MapParameter`.

    Attributes:
        admission: the admission policy of the new table; `set_threshold` does not change this
            attribute.
        eviction: the current `Eviction`, or None.
    """

    admission: Admission
    eviction: Eviction | None

    # ---- admission

    def set_threshold(self, threshold: int | None) -> None:
        """Set the threshold of admission by count; the call is legal during training.

        Args:
            threshold: threshold of admission by count, as for `CountAdmission`. After the threshold
                is lowered, keys whose counts reach the new threshold are admitted at their next
                occurrence. 0 freezes the counts; None or -1 admits every key.

        Raises:
            TypeError: `threshold` is neither an int nor None.
            ValueError: `threshold` is out of range, or the table admits by probability.

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
        """Evict the rows that are due under the old rules, and then set the new eviction rules.

        Args:
            eviction: the rules, or None for no eviction. The eviction order cannot change to or
                from 'lfu_decay' and 'score', because these orders store a number in every row.

        Raises:
            TypeError: `eviction` is neither an `Eviction` nor None.
            ValueError: the new eviction order differs from the old order, and one of the two orders
                is 'lfu_decay' or 'score'.
        """
        eviction = check_eviction(eviction, f"table '{self.name}': eviction")
        self._synchronised().set_eviction(
            **({} if eviction is None else eviction.native_arguments())
        )
        self.eviction = eviction

    def evict(self, at_once: bool = False) -> None:
        """Apply all eviction rules now; with `trigger='callback'`, only this method applies rules.

        Args:
            at_once: True to free all memory before the call returns, False to free memory in slices
                over the following training steps. For both values of `at_once`, lookups never
                return the value of an expired row. Default: False.

        Raises:
            ValueError: the table has no rule of eviction, or has a rule in seconds and no event
                time.
        """
        if self.eviction is None:
            raise ValueError(f"table '{self.name}': has no eviction; give it an Eviction")
        self._synchronised().evict(at_once)

    def evict_due(self) -> None:
        """Free all rows that are due for eviction; lookups already ignore such rows.

        If `evict_due` is not called, the next training steps free the due rows, some rows in each
        step.
        """
        self._synchronised().evict_due()

    def set_scores(self, keys: Any, scores: Any) -> int:
        """Set the scores of rows; the eviction order 'score' evicts the lowest scores first.

        Args:
            keys: int32 or int64 array or Tensor `[n]`; keys without a row are ignored.
            scores: float32 `[n]`, without NaN.

        Returns: Number of keys in `keys` that have a row.

        Raises:
            TypeError, ValueError: a type or shape is wrong, a score is NaN, or the table has no
                scores.
        """
        keys, scores = contiguous_array(keys), contiguous_array(scores)
        if scores.shape != keys.shape:
            raise ValueError(
                f"table '{self.name}': scores must have the shape of keys, {keys.shape}, "
                f"got {scores.shape}"
            )
        return int(
            self._synchronised().set_scores(keys, scores.astype(np.float32, copy=False)[..., None])
        )

    def collect_evicted(self, on: bool) -> None:
        """Start or stop collecting evicted keys for `take_evicted`; a stop drops collected keys."""
        self._synchronised().collect_evicted(on)

    def take_evicted(self) -> EvictedKeys:
        """Return the keys that were evicted and collected since the last call.

        Only `collect_evicted(True)` starts the collection of keys.
        """
        taken = self._synchronised().take_evicted()
        names = np.array(["", *_native.EVICTION_REASONS.values()])
        return EvictedKeys(taken["keys"], names[taken["reasons"]], taken["steps"], taken["times"])

    # ---- explanation

    def explain(self, key: int) -> Explanation:
        """Return the state of a key as an `Explanation`, which prints as a sentence.

        Args:
            key: any int64.

        Returns: An `Explanation` with presence, tier, count, threshold, the step and time of the
            last lookup, and norm. If a key has no row, the `Explanation` also says why: the key was
            not admitted, or the key's row was evicted. The table stores information about its last
            few thousand evictions.

        Raises:
            TypeError, ValueError: `key` is not an int64.

        Example:
            >>> from mindspore_rec import CountAdmission, MapParameter
            >>> table = MapParameter("doc.explain", admission=CountAdmission(3))
            >>> print(table.explain(7))  # doctest: +ELLIPSIS
            table 'doc.explain', key 7: no row; never seen in training, erased, or evicted ...
        """
        key = check_int(f"table '{self.name}': key", key, INT64_MIN, INT64_MAX)
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
        """Outside a graph, do a training lookup; return rows, and handles for training the rows.

        Keys are inserted and counted as in any training lookup. A handle is the location of a row:
        `optimizer.apply_by_handle(grads, handles)` finds the row without its id. All handles of the
        table become invalid if any row leaves the table (evict, erase, clear), or if the table is
        bound to an optimizer with another rule. An invalid handle raises `StaleHandleError`. A
        forged handle also raises `StaleHandleError`, because only the table can compute a handle's
        tag.

        Args:
            ids: int32 or int64 array or Tensor of any shape.
            padding_key: an id that gets no row in the table; its lookup returns zeros. Default:
                none.

        Returns:
            rows (float32 Tensor `[*ids.shape, dim]`) and handles (int64 Tensor `[*ids.shape, 2]`).

        Raises:
            NoOptimizerError: the table has no optimizer.
            RuntimeError: weights of the network were loaded without the rows of this table; see
                `keep_rows`.

        `lookup_with_handles` corresponds to the lookup by address in Rec SDK's dynamic expansion.
        """
        rows, handles = self._synchronised().lookup_with_handles(contiguous_array(ids), padding_key)
        return Tensor.from_numpy(rows), Tensor.from_numpy(handles)
