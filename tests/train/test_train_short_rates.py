# SPDX-License-Identifier: Apache-2.0
"""A list of learning rates that is too short is an error before it ends, which says its length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.optim import FTRL, SGD, CombinedOptimizer

BATCH = (np.arange(8).reshape(4, 2), np.array([[0], [1], [0], [1]], np.float32))


def model_of(name: str, make: Callable[[list[Any]], nn.Optimizer]) -> RecModel:
    table = HashEmbeddingLookup(4, ms.int64, name=name)
    network = nn.SequentialCell(table, nn.Flatten(), nn.Dense(8, 1))
    return RecModel(network, nn.BCEWithLogitsLoss(), make(list(network.trainable_params())))


MAKES: dict[str, Callable[[list[Any]], nn.Optimizer]] = {
    "list": lambda params: LazyAdam(params, [0.1, 0.05, 0.02]),
    "array": lambda params: LazyAdam(params, np.array([0.1, 0.05, 0.02])),
    "group": lambda params: SGD([{"params": params[:1], "lr": [0.1] * 3}, {"params": params[1:]}]),
    "combined": lambda params: CombinedOptimizer(
        [FTRL(params[1:], 0.1), LazyAdam(params[:1], [0.1] * 3)]
    ),
}


@pytest.mark.parametrize("kind", MAKES)
def test_no_step_is_made_if_it_is_known(
    graph_mode: None, unique: Callable[[], str], kind: str
) -> None:
    model = model_of(unique(), MAKES[kind])
    words = "^learning_rate must have a rate for each of 4 steps, got 3 rates: give as many"
    with pytest.raises(ValueError, match=words):
        model.train(1, [BATCH] * 4, progress=False)
    assert model.train(1, [BATCH] * 4, max_steps=3, progress=False).steps == 3


def test_data_without_a_length_end_at_the_last_rate(
    graph_mode: None, unique: Callable[[], str]
) -> None:
    model = model_of(unique(), MAKES["list"])
    with pytest.raises(ValueError, match="^learning_rate .* none after step 3 of this run: give"):
        model.train(1, (BATCH for _ in range(4)), progress=False)
    with pytest.raises(ValueError, match="^learning_rate .* none after step 0 of this run: give"):
        model.train(1, [BATCH], progress=False)


def test_a_schedule_and_a_number_last(graph_mode: None, unique: Callable[[], str]) -> None:
    decay = nn.ExponentialDecayLR(0.1, 0.9, 4)
    for rate in (0.1, decay):
        model = model_of(unique(), partial(LazyAdam, learning_rate=rate))
        assert model.train(1, [BATCH] * 4, progress=False).steps == 4
