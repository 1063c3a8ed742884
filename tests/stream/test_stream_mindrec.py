# SPDX-License-Identifier: Apache-2.0
"""MindRec's example of online learning: its structure, with other imports and addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore.dataset as ds
import numpy as np
import pandas as pd
import pytest
from mindspore import nn, ops
from mindspore.train import TimeMonitor

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel as Model
from mindspore_rec.stream import DataReceiver, DataSender, MemoryTopic

pytestmark = pytest.mark.usefixtures("graph_mode")

FIELDS = 4


class StreamingDataset:
    """The example's own: one row at a time."""

    def __init__(self, receiver):
        self.data_ = []
        self.receiver_ = receiver

    def __getitem__(self, item):
        while not self.data_:
            data = self.receiver_.recv()
            if data is not None:
                self.data_ = data.tolist()

        last_row = self.data_.pop()
        return (
            np.array(last_row[0], dtype=np.int32),
            np.array(last_row[1], dtype=np.float32),
            np.array(last_row[2], dtype=np.float32),
        )

    def __len__(self):
        return 2**20 - 1


class WideDeep(nn.Cell):
    """Ids, their weights and the label to the loss."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.deep = HashEmbeddingLookup(4, name=f"{name}.deep")
        self.wide = HashEmbeddingLookup(1, name=f"{name}.wide")
        self.out = nn.Dense(4 * FIELDS, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids, weight, label):
        deep = (self.deep(ids) * weight.expand_dims(-1)).reshape((-1, 4 * FIELDS))
        wide = (self.wide(ids) * weight.expand_dims(-1)).reshape((-1, FIELDS)).sum(1, True)
        return self.loss(self.out(deep) + wide, label)


class TrainStepWrap(nn.Cell):
    """A training cell of the user's, as the example has one."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__()
        self.network = network
        self.optimizer = LazyAdam(network.trainable_params(), learning_rate=0.05)
        self.grad = ops.value_and_grad(network, None, self.optimizer.parameters)

    def construct(self, ids, weight, label):
        loss, grads = self.grad(ids, weight, label)
        return ops.depend(loss, self.optimizer(grads))


def rows(count: int, seed: int) -> pd.DataFrame:
    """What the example's consumer sends: objects of arrays."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 40, (count, FIELDS))
    return pd.DataFrame(
        {
            "id": list(ids),
            "weight": list(np.ones((count, FIELDS))),
            "label": [np.array([int(each % 2)]) for each in ids[:, 0]],
        }
    )


def send(address: Any) -> None:
    sender = DataSender(
        address=address, dataset_name="criteo", namespace="demo", num_shards=1, full_batch=False
    )
    for window in range(10):  # more than is trained: MindSpore's pipeline never waits at its end
        sender.send(rows(5000, window))
    sender.flush()


def train(address: Any, name: str, steps: int, *more: Any) -> tuple[WideDeep, Any]:
    receiver = DataReceiver(address=address, namespace="demo", dataset_name="criteo", shard_id=0)
    stream_dataset = StreamingDataset(receiver)

    dataset = ds.GeneratorDataset(stream_dataset, column_names=["id", "weight", "label"])
    dataset = dataset.batch(50)

    net = WideDeep(name)
    train_net = TrainStepWrap(net)
    train_net.set_train()

    model = Model(train_net)
    summary = model.online_train(
        dataset, callbacks=[TimeMonitor(1), *more], dataset_sink_mode=True, max_steps=steps
    )
    return net, summary


def test_the_example_trains(unique: Callable[[], str]) -> None:
    topic = MemoryTopic()
    send(topic)
    net, summary = train(topic, unique(), 11)
    assert (summary.steps, summary.samples) == (11, 550)
    assert summary.loss < 0.69
    table = net.deep.embedding_table
    assert set(table.export_rows()["keys"]) == set(range(40))


def test_the_example_under_a_checkpoint_says_what_to_do(
    unique: Callable[[], str], tmp_path: Path
) -> None:
    topic = MemoryTopic()
    send(topic)
    with pytest.raises(RuntimeError, match="reads a stream which RecCheckpoint does not know"):
        train(topic, unique(), 5, RecCheckpoint(tmp_path / "run", every_steps=2))


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "", "broker:", "b:0", ["b:1", "c"]])
@pytest.mark.parametrize("kind", [DataReceiver, DataSender])
def test_the_address_of_a_node_is_not_that_of_a_broker(kind: Any, address: Any) -> None:
    with pytest.raises(ValueError, match="'host:port' of a Kafka broker.*mindpandas.channel took"):
        kind(address=address, namespace="demo", dataset_name="criteo")


def test_an_address_of_another_type() -> None:
    addresses: list[Any] = [None, 9092, [], [9092]]
    for address in addresses:
        with pytest.raises(TypeError, match="address must be 'host:port' of a Kafka broker"):
            DataReceiver(address)
