# SPDX-License-Identifier: Apache-2.0
"""The metrics inside mindspore.Model.eval, on a real small network."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from mindspore_rec.metrics import (
    AUC,
    GAUC,
    Calibration,
    LogLoss,
    NormalizedEntropy,
    StreamingAUC,
    functional,
)

ROWS, BATCH, TASKS = 700, 128, 2  # the last batch is smaller


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(ROWS, 4)).astype(np.float32)
    rate = 1 / (1 + np.exp(-dense[:, :TASKS]))
    label = (rng.random((ROWS, TASKS)) < rate).astype(np.float32)
    return {"dense": dense, "label": label, "user": rng.integers(-20, 20, (ROWS, 1))}


@pytest.fixture(scope="module")
def net() -> nn.Cell:
    weight = np.random.default_rng(4).normal(size=(TASKS, 4)).astype(np.float32)
    return nn.Dense(4, TASKS, weight_init=ms.Tensor(weight))


@pytest.fixture(scope="module")
def logits(data: dict[str, np.ndarray], net: nn.Cell) -> np.ndarray:
    return net(ms.Tensor(data["dense"])).asnumpy()


def batches(data: dict[str, np.ndarray], *names: str) -> ms.dataset.GeneratorDataset:
    parts = [
        tuple(data[name][start : start + BATCH] for name in names)
        for start in range(0, ROWS, BATCH)
    ]
    return ms.dataset.GeneratorDataset(parts, list(names), shuffle=False)


class EvalNet(nn.Cell):
    """An evaluation network that returns more than Model's own does."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, dense, label, user):
        logit = self.net(dense)
        return user, label, ops.sigmoid(logit), logit


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_model_eval_with_its_own_indexes(mode: int, data, net, logits) -> None:
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    try:
        metrics = {
            "auc": AUC(from_logits=True),
            "auc1": AUC(from_logits=True, task=1),
            "stream": StreamingAUC(from_logits=True),
            "log_loss": LogLoss(from_logits=True),
            "ne": NormalizedEntropy(from_logits=True),
            "calibration": Calibration(from_logits=True),
            "loss": ms.train.Loss(),
        }
        model = ms.Model(net, loss_fn=nn.BCEWithLogitsLoss(), metrics=metrics)
        for _ in range(2):  # the second run begins from nothing
            values = model.eval(batches(data, "dense", "label"), dataset_sink_mode=False)
    finally:
        ms.set_context(mode=before)
    label, z = data["label"][:, 0], logits[:, 0]
    assert values["auc"] == pytest.approx(functional.auc(label, z), abs=1e-6)
    expected = functional.auc(data["label"][:, 1], logits[:, 1])
    assert values["auc1"] == pytest.approx(expected, abs=1e-6)
    assert values["auc1"] != values["auc"]
    bound = metrics["stream"].error_bound()
    assert 0 < bound < 1e-3 and abs(values["stream"] - values["auc"]) <= bound
    for name, function in (
        ("log_loss", functional.log_loss),
        ("ne", functional.normalized_entropy),
        ("calibration", functional.calibration),
    ):
        assert values[name] == pytest.approx(function(label, z, from_logits=True), rel=1e-5)
    assert metrics["calibration"].reliability_curve().rows.sum() == ROWS


def test_model_eval_with_set_indexes(data, net, logits) -> None:
    metrics = {
        "auc": AUC().set_indexes([2, 1]),
        "auc_of_logits": AUC(from_logits=True).set_indexes([3, 1]),
        "gauc": GAUC().set_indexes([2, 1, 0]),
        "log_loss": LogLoss(task=1).set_indexes([2, 1]),
    }
    model = ms.Model(net, eval_network=EvalNet(net), metrics=metrics)
    values = model.eval(batches(data, "dense", "label", "user"), dataset_sink_mode=False)
    label = data["label"]
    exact = functional.auc(label[:, 0], logits[:, 0])
    assert values["auc"] == pytest.approx(exact, abs=1e-5)
    assert values["auc_of_logits"] == pytest.approx(exact, abs=1e-6)
    gauc = functional.gauc(label[:, 0], logits[:, 0], data["user"])
    assert values["gauc"] == pytest.approx(gauc, abs=1e-5)
    expected = functional.log_loss(label[:, 1], logits[:, 1], from_logits=True)
    assert values["log_loss"] == pytest.approx(expected, rel=1e-5)


def test_model_eval_says_when_logits_come_as_probabilities(data, net) -> None:
    model = ms.Model(net, loss_fn=nn.BCEWithLogitsLoss(), metrics={"auc": AUC()})
    with pytest.raises(ValueError, match="for logits pass from_logits=True"):
        model.eval(batches(data, "dense", "label"), dataset_sink_mode=False)
