# SPDX-License-Identifier: Apache-2.0
"""A table that cannot be used any more can still be printed, with the network that has it."""

from __future__ import annotations

import mindspore as ms
import pytest
from mindspore import nn

from mindspore_rec import HashEmbeddingLookup


@pytest.mark.parametrize("end", ["closed", "replaced by a newer table"])
def test_a_table_that_is_gone_says_so(unique, end):
    name = unique()
    lookup = HashEmbeddingLookup(2, ms.int64, name=name)
    net = nn.SequentialCell(lookup, nn.Dense(2, 1))
    assert repr(lookup.embedding_table).endswith("rows=0)")
    newer = None
    if end == "closed":
        lookup.embedding_table.close()
    else:
        newer = HashEmbeddingLookup(2, ms.int64, name=name)
    expected = f"MapParameter(name='{name}', key_dtype=Int64, value_shape=(2,), {end})"
    assert repr(lookup.embedding_table) == expected
    assert "Dense" in repr(net)
    assert newer is None or repr(newer.embedding_table).endswith("rows=0)")
