# SPDX-License-Identifier: Apache-2.0
"""Optimizers for dense parameters and tables together.

Each optimizer is a `mindspore.nn.Optimizer` for `net.trainable_params()`, which includes tables. In
each step, an optimizer updates every row of the batch once. `CombinedOptimizer` assigns parts of a
network to several optimizers; `check_covered` raises an error if a table has no optimizer.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.optim.adagrad import (
        Adagrad as Adagrad,
        RowWiseAdagrad as RowWiseAdagrad,
    )
    from mindspore_rec.train.optim.adam import Adam as Adam, LazyAdam as LazyAdam
    from mindspore_rec.train.optim.adamw import AdamW as AdamW
    from mindspore_rec.train.optim.combined import CombinedOptimizer as CombinedOptimizer
    from mindspore_rec.train.optim.ftrl import FTRL as FTRL
    from mindspore_rec.train.optim.momentum import Momentum as Momentum
    from mindspore_rec.train.optim.rmsprop import RMSProp as RMSProp
    from mindspore_rec.train.optim.sgd import SGD as SGD
    from mindspore_rec.train.optim.tables import check_covered as check_covered
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
