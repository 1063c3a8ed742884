# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network with its tables.

`save_checkpoint` and `load_checkpoint` write and read one state. `RecCheckpoint` is a callback that
saves the whole state during training, as full checkpoints and deltas between them.
"""

from typing import TYPE_CHECKING

from mindspore_rec.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.checkpoint.directory import load_checkpoint, save_checkpoint
    from mindspore_rec.checkpoint.errors import CheckpointError
    from mindspore_rec.checkpoint.rec_checkpoint import RecCheckpoint
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "mindspore_rec.checkpoint.directory": ["load_checkpoint", "save_checkpoint"],
            "mindspore_rec.checkpoint.errors": ["CheckpointError"],
            "mindspore_rec.checkpoint.rec_checkpoint": ["RecCheckpoint"],
        },
    )

__all__ = ["CheckpointError", "RecCheckpoint", "load_checkpoint", "save_checkpoint"]
