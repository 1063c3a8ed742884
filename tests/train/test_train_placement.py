# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import EmbeddingLookup, HashEmbeddingLookup, RecModel
from mindspore_rec.optim import FTRL, CombinedOptimizer, LazyAdam
from mindspore_rec.train import PlacementMonitor, placement_report

pytestmark = pytest.mark.usefixtures("graph_mode")


class Net(nn.Cell):
    def __init__(self, name):
        super().__init__()
        self.hashed = HashEmbeddingLookup(1, ms.int64, name=f"{name}.hash")
        self.static = EmbeddingLookup(10, 2, name=f"{name}.static")
        self.device = EmbeddingLookup(10, 2, target="DEVICE", sparse=False)
        self.dense = nn.Dense(2, 1)

    def construct(self, ids):
        deep = self.static(ids).sum(1) + self.device(ids).sum(1)
        # the same table twice: one step all the same
        return self.hashed(ids).sum(1) + self.hashed(ids + 1).sum(1) + self.dense(deep)


def test_each_operator_is_named_placed_and_counted(unique):
    name = unique()
    net = Net(name)
    wide = net.hashed.trainable_params()
    deep = [p for p in net.trainable_params() if p is not wide[0]]
    optimizer = CombinedOptimizer([FTRL(wide, learning_rate=0.1), LazyAdam(deep)])
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    monitor = PlacementMonitor(every_steps=2)
    batch = (np.array([[1, 2], [3, 4]]), np.ones((2, 1), np.float32))
    model.train(1, [batch] * 5, monitor, progress=False)

    report = placement_report(model)
    found = {(row.operator, row.of): (row.place, row.calls) for row in report.rows}
    assert found == {
        ("EmbeddingLookup", f"{name}.hash"): ("host", 10),
        ("SparseGradient", f"{name}.hash"): ("host", 10),
        ("FusedSparseFtrl", f"{name}.hash"): ("host", 5),
        ("EmbeddingLookup", f"{name}.static"): ("host", 5),
        ("SparseGradient", f"{name}.static"): ("host", 5),
        ("FusedSparseLazyAdam", f"{name}.static"): ("host", 5),
        ("EmbeddingLookup", "device"): ("device (CPU)", None),
        ("dense network", "23 parameters"): ("device (CPU)", None),
        ("dense update", "CombinedOptimizer"): ("device (CPU)", None),
    }
    assert [step for step, _ in monitor.reports] == [2, 4]
    for _, each in monitor.reports:
        calls = {(row.operator, row.of): row.calls for row in each.rows}
        assert calls["FusedSparseFtrl", f"{name}.hash"] == 2
        assert calls["EmbeddingLookup", f"{name}.hash"] == 4
    for row in report.rows:
        assert row.calls is None or (row.milliseconds or 0) > 0
    assert "FusedSparseLazyAdam" in str(report)
    assert placement_report(net, optimizer).rows == report.rows


def test_without_an_optimizer_there_are_no_steps(unique):
    rows = placement_report(Net(unique())).rows
    assert not [row for row in rows if "Fused" in row.operator or row.operator == "dense update"]
    with pytest.raises(TypeError, match="net_or_model"):
        placement_report("net")
