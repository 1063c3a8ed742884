# SPDX-License-Identifier: Apache-2.0
"""Optimizers for dense parameters and tables together."""

from mindspore_rec.optim.adagrad import Adagrad, RowWiseAdagrad
from mindspore_rec.optim.adam import Adam, LazyAdam
from mindspore_rec.optim.adamw import AdamW
from mindspore_rec.optim.combined import CombinedOptimizer
from mindspore_rec.optim.ftrl import FTRL
from mindspore_rec.optim.momentum import Momentum
from mindspore_rec.optim.rmsprop import RMSProp
from mindspore_rec.optim.sgd import SGD
from mindspore_rec.optim.tables import check_covered

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CombinedOptimizer",
    "LazyAdam",
    "Momentum",
    "RMSProp",
    "RowWiseAdagrad",
    "check_covered",
]
