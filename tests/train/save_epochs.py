# SPDX-License-Identifier: Apache-2.0
"""Callback for tests that saves a checkpoint of each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindspore.train import Callback

from mindspore_rec import RecModel, save_checkpoint

__all__ = ["SaveEpochs"]


class SaveEpochs(Callback):
    """Saves the model at the end of each epoch."""

    def __init__(self, model: RecModel, folder: Path) -> None:
        super().__init__()
        self._model, self._folder = model, folder

    def on_train_epoch_end(self, run_context: Any) -> None:
        number = run_context.original_args().cur_epoch_num
        save_checkpoint(self._model, self._folder / f"epoch_{number}")
