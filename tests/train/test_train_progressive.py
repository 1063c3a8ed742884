# SPDX-License-Identifier: Apache-2.0
"""ProgressiveValidation: each batch is scored before it is learned, the figures are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import HashEmbeddingLookup, LazyAdam, ProgressiveValidation, RecModel
from mindspore_rec.metrics import functional

pytestmark = pytest.mark.usefixtures("graph_mode")

Batch = tuple[np.ndarray, np.ndarray]


def batches(count: int, seed: int = 0) -> list[Batch]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 40, (count, 16, 2))
    label = (rng.random((count, 16, 1)) < (ids.sum(axis=2, keepdims=True) % 7) / 7).astype(
        np.float32
    )
    return [(ids[i], label[i]) for i in range(count)]


def make(name: str) -> tuple[nn.Cell, RecModel]:
    ms.set_seed(1)
    net = nn.SequentialCell(
        HashEmbeddingLookup(4, ms.int64, name=name), nn.Flatten(), nn.Dense(8, 1)
    )
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
    return net, RecModel(net, nn.BCEWithLogitsLoss(), optimizer)


def test_each_batch_is_scored_before_it_is_trained(unique: Callable[[], str]) -> None:
    data, name = batches(20), unique()
    net, model = make(name)
    scores = []
    for batch in data:
        scores.append(model.predict(batch[0]).asnumpy()[:, 0])
        model.train(1, [batch], progress=False)
    rows = net[0].embedding_table.stats()["rows"]
    net[0].embedding_table.close()
    net, model = make(name)
    validation = ProgressiveValidation(model, window=1000, every_rows=64)
    summary = model.online_train(data, validation, progress=False)
    np.testing.assert_array_equal(validation.state_dict()["prediction"], np.concatenate(scores))
    assert net[0].embedding_table.stats()["rows"] == rows
    assert [(step, rows) for step, rows, _ in validation.history] == [
        (step, 16 * step) for step in range(4, 21, 4)
    ]
    assert summary.metrics == validation.history[-1][2]


def test_figures_are_those_of_the_windows_rows() -> None:
    rng = np.random.default_rng(1)
    logit = rng.normal(size=300).astype(np.float32)
    label = (rng.random(300) < 0.4).astype(np.float32)
    sizes = np.cumsum([0, 1, 40, 7, 100, 2, 150])
    validation = ProgressiveValidation(lambda x, y: x, window=60, every_rows=1)
    again = ProgressiveValidation(lambda x, y: x, window=60, every_rows=1)
    for i, (begin, end) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        context = step(i, (logit[begin:end, None], label[begin:end, None]))
        validation.on_train_step_begin(context)
        state = again.state_dict()
        again = ProgressiveValidation(lambda x, y: x, window=60, every_rows=1)
        again.load_state_dict(state)
        again.on_train_step_begin(context)
        seen = slice(max(0, end - 60), end)
        y, x = label[seen], logit[seen]
        loss = functional.log_loss(y, x, from_logits=True)
        expected = {
            "auc": functional.auc(y, x),
            "log_loss": loss,
            "calibration": functional.sigmoid(x).sum() / y.sum() if y.any() else np.nan,
            "drift": loss - functional.log_loss(label[:end], logit[:end], from_logits=True),
        }
        assert validation.figures() == pytest.approx(expected, nan_ok=True, abs=1e-9)
        assert str(again.figures()) == str(validation.figures())
    assert validation.rows == 300


class Run(dict):
    """What callbacks see of a run."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Context:
    """As `mindspore.train.RunContext`."""

    def __init__(self, run: Run) -> None:
        self.original_args = lambda: run


def step(number: int, batch: Batch) -> Any:
    return Context(Run(train_dataset_element=batch, cur_step_num=number))


def test_refusals(unique: Callable[[], str]) -> None:
    with pytest.raises(ValueError, match="window must be in"):
        ProgressiveValidation(abs, window=0)
    with pytest.raises(ValueError, match="every_rows must be in"):
        ProgressiveValidation(abs, every_rows=0)
    with pytest.raises(TypeError, match="from_logits must be a bool"):
        ProgressiveValidation(abs, from_logits=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model must be"):
        ProgressiveValidation(3)
    net, _ = make(unique())
    with pytest.raises(ValueError, match="must have a loss_fn"):
        ProgressiveValidation(RecModel(net))
    with pytest.raises(ValueError, match="no row was scored"):
        ProgressiveValidation(abs).figures()
    with pytest.raises(ValueError, match="label must be 0 or 1"):
        column = np.full((2, 1), 0.5, np.float32)
        ProgressiveValidation(lambda x, y: x).on_train_step_begin(step(1, (column, column)))
