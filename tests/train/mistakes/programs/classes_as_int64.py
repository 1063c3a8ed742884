# SPDX-License-Identifier: Apache-2.0
"""Numbers of classes as int64, which is what NumPy has."""

import mindspore as ms
import numpy as np
from mindspore import nn
from shop import ids

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel

network = nn.SequentialCell(HashEmbeddingLookup(4, ms.int64), nn.Flatten(), nn.Dense(8, 3))
optimizer = LazyAdam(network.trainable_params(), 0.01)
classes = np.arange(len(ids)) % 3
RecModel(network, nn.CrossEntropyLoss(), optimizer).train(1, [(ids, classes)])
