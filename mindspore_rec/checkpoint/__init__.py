# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network with its tables."""

from mindspore_rec.checkpoint.directory import load_checkpoint, save_checkpoint

__all__ = ["load_checkpoint", "save_checkpoint"]
