# SPDX-License-Identifier: Apache-2.0
"""Ids and keys that are Python numbers or lists are refused, before anything is written."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import EmbeddingLookup, HashEmbeddingLookup, TableConfig
from mindspore_rec.nn import EmbeddingBag
from mindspore_rec.parameter import MapParameter

LONG = list(range(50))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("train", [True, False])
def test_lookups(mode: int, train: bool, unique: Any) -> None:
    ms.set_context(mode=mode)
    lookups: list[Any] = [
        HashEmbeddingLookup(4, ms.int64, name=unique()),
        EmbeddingLookup(100, 4, name=unique()),
    ]
    for lookup in lookups:
        for net in (lookup, nn.SequentialCell(lookup)):
            net.set_train(train)
            for ids in (5, LONG, tuple(LONG)):
                with pytest.raises(TypeError, match="must be a Tensor"):
                    net(ids)
        assert lookup.embedding_table.stats()["rows"] in (0, 100)
        lookup.set_train(False)
        assert lookup(Tensor([1, 2])).shape == (2, 4)
        lookup.embedding_table.close()


class Reads(nn.Cell):
    """A network that reads a table itself."""

    def __init__(self, table: MapParameter) -> None:
        super().__init__()
        self.table = table

    def construct(self, keys: Any) -> Any:
        return self.table.get(keys, False)


def test_keys_of_tables(unique: Any) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    table = MapParameter(key_dtype=ms.int64, value_shape=(4,), name=unique())
    value = Tensor(np.zeros((50, 4), np.float32))
    for call in (
        lambda: table.get(LONG),
        lambda: table.get(5, False),
        lambda: table.put(LONG, value),
        lambda: table.put(LONG, 1.0),
        lambda: table.put(Tensor(LONG), [0.0] * 200),
        lambda: table.erase(LONG),
        lambda: table.contains(LONG),
    ):
        with pytest.raises(TypeError, match="must be a? ?Tensor"):
            call()
    assert table.stats()["rows"] == 0
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(TypeError, match="key_tensor must be a Tensor"):
        Reads(table)(LONG)
    table.put(Tensor([5]), 1.0)
    assert 5 in table and table.get(np.int64(5)).shape == (1, 4)
    table.close()


def test_offsets_of_bags(unique: Any) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    bag = EmbeddingBag(TableConfig(4, name=unique()))
    with pytest.raises(TypeError, match="must be Tensors, got list"):
        bag(Tensor(LONG), LONG)
    bag.embedding_table.close()
