# SPDX-License-Identifier: Apache-2.0
"""Serving: a network that follows the checkpoints of a training, in a program or over HTTP."""

from mindspore_rec.serving.catalog import ChainError
from mindspore_rec.serving.predictor import Predictor
from mindspore_rec.serving.status import Status
from mindspore_rec.serving.tensors import TensorSpec
from mindspore_rec.stream.announcements import AnnouncementReader, Announcer

__all__ = ["AnnouncementReader", "Announcer", "ChainError", "Predictor", "Status", "TensorSpec"]
