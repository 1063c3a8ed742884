# SPDX-License-Identifier: Apache-2.0
"""Optimizers for dense parameters and tables together.

Each is a `mindspore.nn.Optimizer` over `net.trainable_params()`, tables included, with one update
of each row of a batch. `CombinedOptimizer` gives parts of a network to several of them;
`check_covered` raises where a table would not be trained.
"""

from mindspore_rec.train.optim.adagrad import Adagrad, RowWiseAdagrad
from mindspore_rec.train.optim.adam import Adam, LazyAdam
from mindspore_rec.train.optim.adamw import AdamW
from mindspore_rec.train.optim.combined import CombinedOptimizer
from mindspore_rec.train.optim.ftrl import FTRL
from mindspore_rec.train.optim.momentum import Momentum
from mindspore_rec.train.optim.rmsprop import RMSProp
from mindspore_rec.train.optim.sgd import SGD
from mindspore_rec.train.optim.tables import check_covered

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
