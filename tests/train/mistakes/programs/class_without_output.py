# SPDX-License-Identifier: Apache-2.0
"""A class more than the network has outputs."""

import mindspore as ms
import numpy as np
from mindspore import nn
from shop import ids

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel

network = nn.SequentialCell(HashEmbeddingLookup(4, ms.int64), nn.Flatten(), nn.Dense(8, 3))
optimizer = LazyAdam(network.trainable_params(), 0.01)
classes = np.where(np.arange(len(ids)) == 5, 3, 1).astype(np.int32)
RecModel(network, nn.CrossEntropyLoss(), optimizer).train(1, [(ids, classes)])
