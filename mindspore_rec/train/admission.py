# SPDX-License-Identifier: Apache-2.0
"""Admission by count where data are read several times."""

from __future__ import annotations

import sys
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec.checks import check_int
from mindspore_rec.nn.embedding import tables_of
from mindspore_rec.parameter import CountAdmission, MapParameter, SketchAdmission

__all__ = ["CountFirstEpoch"]


class CountFirstEpoch(Callback):
    """Lets admission count in the first epoch of a training only.

    A `CountAdmission(2)` that counts in every epoch admits, in the second, each id that the data
    have once. With this callback the counts are those of the data: after the first epoch they are
    frozen, so that the ids that were admitted until then have rows and are trained, and no other id
    gets one. When training ends, the thresholds are what they were, and the counts go on.

    A training that goes on from a checkpoint begins a first epoch anew, unless this callback is
    among the checkpoint's `states`: `RecCheckpoint(..., states={"first_epoch": callback})`.

    Args:
        steps: steps of the first pass, at least 1, where one epoch of `train` passes over the data
            several times. Default: None, until the end of the first epoch.

    Raises:
        TypeError, ValueError: `steps` is of the wrong type or out of range.
        ValueError: when training begins, no table of the network admits by count.

    Example:
        >>> import mindspore as ms
        >>> import numpy as np
        >>> from mindspore import nn
        >>> from mindspore_rec import CountAdmission, HashEmbeddingLookup, LazyAdam, RecModel
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> rows = []
        >>> for callbacks in ([], [CountFirstEpoch()]):
        ...     admission = CountAdmission(2)
        ...     lookup = HashEmbeddingLookup(4, ms.int64, name="doc.first", admission=admission)
        ...     net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(4, 1))
        ...     model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))
        ...     batch = np.array([[1], [1], [2]]), np.ones((3, 1), np.float32)
        ...     _ = model.train(3, [batch], callbacks, progress=False)
        ...     rows.append(lookup.embedding_table.stats()["rows"])
        >>> rows
        [2, 1]
    """

    def __init__(self, steps: int | None = None) -> None:
        super().__init__()
        self._steps = None if steps is None else check_int("steps", steps, 1, (1 << 63) - 1)
        self._before: list[tuple[MapParameter, int]] = []
        self._frozen = False
        self._trained = self._trained_before = 0  # steps of the first pass
        self._over = self._restored = False

    def state_dict(self) -> dict[str, Any]:
        """How far the first pass is: its steps, and whether it is over."""
        over = self._over or (self._steps is not None and self._trained >= self._steps)
        return {"steps": self._trained, "over": over}

    def load_state_dict(self, state: Any) -> None:
        """The training that begins next goes on from there.

        Raises:
            TypeError, ValueError, KeyError: it is no such state.
        """
        trained = check_int("steps", state["steps"], 0, (1 << 63) - 1)
        if not isinstance(state["over"], bool):
            raise TypeError(f"over must be a bool, got {state['over']!r}")
        self._trained, self._over, self._restored = trained, state["over"], True

    def on_train_begin(self, run_context: RunContext) -> None:
        """Finds the tables."""
        if not self._restored:
            self._trained, self._over = 0, False
        self._trained_before, self._restored = self._trained, False
        counting = [
            (table, table.explain(0).threshold)
            for table in tables_of(run_context.original_args().train_network)
            if isinstance(table, MapParameter)
            and isinstance(table.admission, CountAdmission | SketchAdmission)
        ]
        self._before = [(table, threshold) for table, threshold in counting if threshold > 0]
        if not self._before:
            raise ValueError("CountFirstEpoch needs a table that admits by count")
        if self._over:
            self._freeze()

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Counts the step: a checkpoint at its end has it, whichever callback comes first."""
        self._trained = self._trained_before + run_context.original_args().cur_step_num

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Freezes the counts after so many steps."""
        if self._steps is not None and self._trained >= self._steps and not self._frozen:
            self._freeze()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Freezes the counts after the first epoch."""
        if self._steps is None and not self._frozen:
            run = run_context.original_args()
            whole = run.batch_num == sys.maxsize or run.cur_step_num >= run.batch_num
            if whole and not run.interrupted:
                self._freeze()

    def on_train_end(self, run_context: RunContext) -> None:
        """Puts the thresholds back."""
        self._release()

    def __exit__(self, *error: Any) -> None:
        """Puts the thresholds back where training ended in an error."""
        self._release()

    def _freeze(self) -> None:
        self._frozen = self._over = True
        for table, _ in self._before:
            table.set_threshold(0)

    def _release(self) -> None:
        if self._frozen:
            for table, threshold in self._before:
                table.set_threshold(threshold)
        self._frozen = False
