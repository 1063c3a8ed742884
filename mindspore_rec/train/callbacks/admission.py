# SPDX-License-Identifier: Apache-2.0
"""CountFirstEpoch: callback for admission by count if the data are read several times."""

from __future__ import annotations

import sys
from typing import Any

from mindspore.train import Callback, RunContext

from mindspore_rec.common.checks import check_int
from mindspore_rec.train.nn.tables import tables_of
from mindspore_rec.train.parameter.hash_table import HashTable

__all__ = ["CountFirstEpoch"]


class CountFirstEpoch(Callback):
    """Callback that counts keys for admission only in the first epoch of a training.

    With `CountAdmission(2)` but without this callback, an id that occurs once in the data is
    counted in every epoch, and is therefore admitted in the second epoch. With this callback, each
    id is counted only in the first epoch. After the first epoch, the counts are frozen. Admitted
    ids keep their rows, and training updates these rows; other ids get no rows. When training ends,
    the admission thresholds are restored and counting continues.

    If a training is resumed from a checkpoint, a new first epoch begins, in which keys are counted.
    To continue the interrupted first epoch instead, save the callback's state with
    `RecCheckpoint(..., states={"first_epoch": callback})`.

    Args:
        steps: number of steps of the first pass over the data, at least 1. Set `steps` if one epoch
            of `train` passes over the data several times. Default: None, which freezes the counts
            at the end of the first epoch.

    Raises:
        TypeError, ValueError: `steps` is of the wrong type or out of range.
        ValueError: no table of the network has an admission by count (raised when training begins).

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
        self._before: list[tuple[HashTable, int]] = []
        self._frozen = False
        self._trained = self._trained_before = 0  # steps, also after the first pass
        self._over = self._restored = False

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps so far, and whether the first pass has ended."""
        over = self._over or (self._steps is not None and self._trained >= self._steps)
        return {"steps": self._trained, "over": over}

    def load_state_dict(self, state: Any) -> None:
        """Restore the number of steps, and whether the first pass has ended, for the next training.

        Raises:
            TypeError, ValueError, KeyError: `state` was not returned by `state_dict`.
        """
        trained = check_int("steps", state["steps"], 0, (1 << 63) - 1)
        if not isinstance(state["over"], bool):
            raise TypeError(f"over must be a bool, got {state['over']!r}")
        self._trained, self._over, self._restored = trained, state["over"], True

    def on_train_begin(self, run_context: RunContext) -> None:
        """Find the tables that admit a key only after a number of lookups."""
        if not self._restored:
            self._trained, self._over = 0, False
        self._trained_before, self._restored = self._trained, False
        counting = [
            (table, table.explain(0).threshold)
            for table in tables_of(run_context.original_args().train_network)
            if isinstance(table, HashTable) and table.admission.counts is not None
        ]
        self._before = [(table, threshold) for table, threshold in counting if threshold > 0]
        if not self._before:
            raise ValueError("CountFirstEpoch needs a table that admits by count")
        if self._over:
            self._freeze()

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Count the step, so that a checkpoint that is saved after the step includes the step."""
        self._trained = self._trained_before + run_context.original_args().cur_step_num

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Freeze the counts after `steps` training steps."""
        if self._steps is not None and self._trained >= self._steps and not self._frozen:
            self._freeze()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """When the first epoch ends, freeze the counts."""
        if self._steps is None and not self._frozen:
            run = run_context.original_args()
            # After a restart within an epoch, `cur_step_num` counts only the steps since the
            # restart.
            complete = run.get("epoch_complete", run.cur_step_num >= run.batch_num)
            whole = run.batch_num == sys.maxsize or complete
            if whole and not run.interrupted:
                self._freeze()

    def on_train_end(self, run_context: RunContext) -> None:
        """Restore the thresholds."""
        self._release()

    def __exit__(self, *error: Any) -> None:
        """If the training has failed, restore the admission thresholds."""
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
