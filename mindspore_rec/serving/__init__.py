# SPDX-License-Identifier: Apache-2.0
"""Serving: predictions with a network that follows the checkpoints of a training.

`Predictor` predicts in a program, `python -m mindspore_rec.serving` over HTTP.
"""

from mindspore_rec.serving.catalog import ChainError
from mindspore_rec.serving.predictor import Predictor
from mindspore_rec.serving.status import Status
from mindspore_rec.serving.tensors import TensorSpec

__all__ = ["ChainError", "Predictor", "Status", "TensorSpec"]
