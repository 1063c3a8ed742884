# SPDX-License-Identifier: Apache-2.0
"""A label of shape [n] in batches of 80 columns."""

import numpy as np
from mindspore import nn, ops
from shop import label

from mindspore_rec import LazyAdam, RecModel


class Wide(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(80, 1)

    def construct(self, *columns):
        return self.dense(ops.concat(columns, 1))


network = Wide()
optimizer = LazyAdam(network.trainable_params(), 0.01)
columns = {f"number_{i}": np.ones((len(label), 1), np.float32) for i in range(80)}
columns["clicked"] = label[:, 0]
RecModel(network, nn.BCEWithLogitsLoss(), optimizer).train(1, [columns])
