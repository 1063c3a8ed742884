# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network with its tables.

`save_checkpoint` and `load_checkpoint` write and read one state. `RecCheckpoint` is a callback that
saves the whole state during training, as full checkpoints and deltas between them.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.run.errors import CheckpointError
    from mindspore_rec.train.checkpoint.directory import load_checkpoint, save_checkpoint
    from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.train.checkpoint.directory": ["load_checkpoint", "save_checkpoint"],
            "mindspore_rec.common.run.errors": ["CheckpointError"],
            "mindspore_rec.train.checkpoint.rec_checkpoint": ["RecCheckpoint"],
        },
    )

__all__ = ["CheckpointError", "RecCheckpoint", "load_checkpoint", "save_checkpoint"]
