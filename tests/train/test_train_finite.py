# SPDX-License-Identifier: Apache-2.0
"""A number that is not finite is an error that names column and row, wherever it is."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import nn, ops

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.common.columns.finite import check_finite
from mindspore_rec.metrics import LogLoss
from mindspore_rec.nn import MLP
from mindspore_rec.train import StopOnNaN

ROWS, FIELDS, NUMBERS = 6, 2, 3


class Net(nn.Cell):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(2, ms.int64, name=name)
        self.plain = nn.SequentialCell(nn.Dense(NUMBERS, 4), nn.ReLU())
        self.deep = MLP((FIELDS * 2, 4), (8,), out_features=1)

    def construct(self, ids: ms.Tensor, numbers: ms.Tensor) -> ms.Tensor:
        # Where MindSpore's ReLU makes 0 of NaN.
        return self.deep(self.embedding(ids), ops.relu(self.plain(numbers)))


def model_of(name: str) -> RecModel:
    net = Net(name)
    metrics = {"loss": LogLoss(from_logits=True)}
    return RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.1), metrics)


def batches(bad: tuple[int, int, Any] | None, count: int = 4) -> list[dict[str, np.ndarray]]:
    """Return batches, of which the third has a bad number at that row and place."""
    random = np.random.default_rng(3)
    made: list[dict[str, np.ndarray]] = [
        {
            "ids": random.integers(0, 9, (ROWS, FIELDS)),
            "numbers": random.normal(size=(ROWS, NUMBERS)).astype(np.float32),
            "clicked": random.integers(0, 2, (ROWS, 1)).astype(np.float32),
        }
        for _ in range(count)
    ]
    if bad is not None:
        row, place, value = bad
        made[2]["numbers"][row, place] = value
    return made


def forms(data: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Return data in the forms that a training takes, and the name of their second column."""

    def each() -> Any:
        for batch in data:
            yield tuple(batch.values())

    return {
        "dicts": (data, "column 'numbers'"),
        "tuples": ([tuple(batch.values()) for batch in data], r"column 1 \('numbers'\)"),
        "tensors": ([tuple(map(ms.Tensor, b.values())) for b in data], r"column 1 \('numbers'\)"),
        "dataset": (ds.GeneratorDataset(each, list(data[0]), shuffle=False), "column 'numbers'"),
    }


@pytest.mark.parametrize("form", ["dicts", "tuples", "tensors", "dataset"])
def test_every_way_into_a_network_refuses_it(graph_mode, unique, form):
    model = model_of(unique())
    bad, name = forms(batches((4, 1, np.nan)))[form]
    where = rf"^{name} of batch 2 of {{}}_dataset must .*, got nan in row 4, number 1: fill it"
    with pytest.raises(ValueError, match=where.format("train")):
        model.train(1, bad, progress=False)
    with pytest.raises(ValueError, match=where.format("train")):
        model.online_train(forms(batches((4, 1, np.nan)))[form][0], progress=False)
    with pytest.raises(ValueError, match=where.format("valid")):
        model.eval(forms(batches((4, 1, np.nan)))[form][0], progress=False)
    assert model.train(1, forms(batches(None))[form][0], progress=False).steps == 4


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_prediction_refuses_it(graph_mode, unique, value):
    model = model_of(unique())
    ids, numbers, _ = batches((4, 1, value))[2].values()
    with pytest.raises(ValueError, match=rf"^input 1 \('numbers'\) .* {value} in row 4, number 1"):
        model.predict(ids, numbers)


def test_a_label_is_called_so(graph_mode, unique):
    data = batches(None)
    data[0]["clicked"][3] = np.nan
    with pytest.raises(ValueError, match="^the label, column 'clicked', of batch 0 .* in row 3: "):
        model_of(unique()).train(1, data, progress=False)


def test_who_wants_it_trains_it(graph_mode, unique):
    model = model_of(unique())
    data = batches((4, 1, np.nan))
    assert model.train(1, data, progress=False, stop_on_nan=False).steps == 4
    assert model.train(1, data, StopOnNaN(), progress=False).steps == 4, "its loss is finite"


@given(
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from([np.nan, np.inf, -np.inf, None]),
    st.booleans(),
    st.data(),
)
def test_any_column_is_looked_through(dtype, shape, value, is_large, data):
    column = np.full(shape, np.finfo(dtype).max if is_large else 1, dtype)  # whose sum is infinite
    if value is None:
        check_finite("x", column)
        check_finite("x", ms.Tensor(column))
        return
    place = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    column[place] = value
    for each in (column, np.asfortranarray(column), ms.Tensor(column)):
        with pytest.raises(ValueError, match=rf"^x .*, got {value} in row {place[0]}\b"):
            check_finite("x", each)


def test_other_columns_pass():
    for column in (np.arange(3), np.array(["a"]), [1.0], np.zeros((0, 3), np.float32), None):
        check_finite("x", column)
    check_finite("x", ops.ones((2, 2), ms.bfloat16))
