# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a network with its tables.

`save_checkpoint` writes the present state of a network, and `load_checkpoint` restores a saved
state. `RecCheckpoint` is a callback that saves the whole state during training, as full checkpoints
and as deltas between full checkpoints; `RowChecks` and `Publication` are settings of the callback.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.run.errors import CheckpointError as CheckpointError
    from mindspore_rec.common.run.quantized_file import read_quantized as read_quantized
    from mindspore_rec.train.checkpoint.directory import (
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from mindspore_rec.train.checkpoint.publication import Publication as Publication
    from mindspore_rec.train.checkpoint.rec_checkpoint import RecCheckpoint as RecCheckpoint
    from mindspore_rec.train.checkpoint.row_checks import RowChecks as RowChecks
else:
    OLD_NAMES = {"read_quantised": "read_quantized"}
    __getattr__, __dir__, __all__ = lazily(__name__, renamed=OLD_NAMES)
