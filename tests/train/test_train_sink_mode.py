# SPDX-License-Identifier: Apache-2.0
"""A sink mode that is asked for is said, once, to have no effect."""

from __future__ import annotations

import logging

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import AUC, HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.train.loop import hints

BATCHES = [(np.arange(12).reshape(4, 3), np.array([[0], [1], [0], [1]], np.float32))]


@pytest.fixture(autouse=True)
def _given_anew():
    hints.forget_hints()


@pytest.fixture
def model(graph_mode, unique):
    net = nn.SequentialCell(
        HashEmbeddingLookup(2, ms.int64, name=unique()), nn.Flatten(), nn.Dense(6, 1)
    )
    optimizer = LazyAdam(net.trainable_params(), 0.05)
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, {"auc": AUC(from_logits=True)})


CALLS = {
    "train": lambda model, **sink: model.train(1, BATCHES, progress=False, **sink),
    "online_train": lambda model, **sink: model.online_train(BATCHES, progress=False, **sink),
    "eval": lambda model, **sink: model.eval(BATCHES, progress=False, **sink),
}


def said(caplog):
    return [each for each in caplog.messages if "dataset_sink_mode" in each]


@pytest.mark.parametrize("call", CALLS)
def test_a_sink_mode_asked_for_is_said_once(model, caplog, call):
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        CALLS[call](model, dataset_sink_mode=True)
        for each in CALLS.values():
            each(model, dataset_sink_mode=True)
    assert said(caplog) == [
        "dataset_sink_mode=True has no effect: RecModel feeds batches to the network one by one; "
        "leave it out"
    ]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sink", [{}, {"dataset_sink_mode": False}])
def test_the_default_says_nothing(model, caplog, call, sink):
    with caplog.at_level(logging.WARNING, "mindspore_rec"):
        CALLS[call](model, **sink)
    assert said(caplog) == []
