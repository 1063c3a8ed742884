# SPDX-License-Identifier: Apache-2.0
"""Bags of three ids with two weights."""

import numpy as np
from mindspore import Tensor, nn

from mindspore_rec import SGD, EmbeddingBag, RecModel, TableConfig


class Bags(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.bag = EmbeddingBag(TableConfig(1, name="bags"))

    def construct(self, ids: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        return self.bag(ids, offsets, weights)


net = Bags()
model = RecModel(net, nn.MSELoss(), SGD(net.trainable_params()))
label = np.ones((2, 1), np.float32)
model.online_train([(np.array([1, 2, 3]), np.array([0, 1]), np.ones(2, np.float32), label)])
