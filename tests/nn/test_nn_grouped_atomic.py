# SPDX-License-Identifier: Apache-2.0
"""A grouped lookup that is refused for one table leaves the others as they were."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import GroupedEmbedding, LazyAdam, MapParameter, StaticParameter

DIM = 4


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_bad_id_for_one_table_inserts_into_none(order):
    prefix = f"atomic{order[0]}"
    grows = MapParameter(f"{prefix}.grows", value_shape=DIM)
    bounded = StaticParameter(10, DIM, "normal", name=f"{prefix}.bounded")
    group = GroupedEmbedding([(grows, bounded)[i] for i in order])
    group.set_train()
    LazyAdam(group.trainable_params(), learning_rate=0.1)
    columns = np.array([[1, 3], [2, 99]])[:, order]
    with pytest.raises(RuntimeError, match="id 99 at position 1 is outside the vocabulary"):
        group(Tensor(columns, ms.int32)).asnumpy()
    assert grows.row_count == 0
