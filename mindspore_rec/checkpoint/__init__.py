# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network with its tables."""

from mindspore_rec.checkpoint.directory import load_checkpoint, save_checkpoint
from mindspore_rec.checkpoint.errors import CheckpointError
from mindspore_rec.checkpoint.rec_checkpoint import RecCheckpoint

__all__ = ["CheckpointError", "RecCheckpoint", "load_checkpoint", "save_checkpoint"]
