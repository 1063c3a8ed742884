# SPDX-License-Identifier: Apache-2.0
"""A training without an optimizer."""

from mindspore import nn
from shop import ClickModel, ids, label, numbers

from mindspore_rec import RecModel

RecModel(ClickModel(), nn.BCEWithLogitsLoss()).train(1, [(ids, numbers, label)])
