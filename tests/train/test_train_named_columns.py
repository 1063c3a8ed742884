# SPDX-License-Identifier: Apache-2.0
"""Errors of batches call columns by their names, and leave the model able to train."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pandas as pd
import pytest
from mindspore import nn

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
from tests.support.networks import LogitBeside

ROWS = 8
IDS = np.arange(2 * ROWS).reshape(ROWS, 2)
NUMBERS = np.linspace(0, 1, ROWS, dtype=np.float32)[:, None]
LABEL = (np.arange(ROWS) % 2).astype(np.float32)[:, None]


class Net(LogitBeside):
    def __init__(self, name: str) -> None:
        super().__init__(HashEmbeddingLookup(4, ms.int64, name=name), 8, 1)


class Flat(Net):
    def construct(self, ids: ms.Tensor, numbers: ms.Tensor) -> ms.Tensor:
        return super().construct(ids, numbers).reshape((-1,))


def make(network: nn.Cell, loss: nn.Cell | None = None) -> RecModel:
    loss = loss or nn.BCEWithLogitsLoss()
    optimizer = LazyAdam(network.trainable_params(), 0.01)
    return RecModel(network, loss, optimizer, {"loss": nn.Loss()})


def batch(rows: int = ROWS, **changed: np.ndarray) -> dict[str, np.ndarray]:
    columns = {"item": IDS[:rows], "price": NUMBERS[:rows], "bought": LABEL[:rows]}
    return columns | changed


def as_dataset(columns: dict[str, np.ndarray]) -> ds.Dataset:
    return ds.GeneratorDataset([tuple(columns.values())], list(columns), shuffle=False)


MISTAKES: list[tuple[dict[str, np.ndarray], str]] = [
    (batch(item=IDS.astype(np.float32)), r"column 'item' is float32, and table .* as ids"),
    (batch(price=NUMBERS.astype(np.float64)), "column 'price' is float64: "),
    (batch(price=NUMBERS[:3]), "column 'price' has 3 rows, the others 8: "),
    (batch(price=NUMBERS * np.nan), "column 'price' of batch 0 of .*_dataset must have finite"),
    (batch(bought=LABEL == 1), "the label, column 'bought', is bool: "),
    (batch(bought=LABEL[:, 0]), r"the label, column 'bought', has shape \[8\]: "),
    (batch(bought=LABEL + 1), r"the label, column 'bought', of batch 0 of .*_dataset .* \[0, 1\]"),
    (batch(item=np.array([["a", "b"]] * ROWS)), "column 'item' of a batch .* text such as 'a'"),
    (batch(item=np.array([[[1], None]] * ROWS, object)), "column 'item' of a batch .* has lists"),
    (batch(bought=np.array(["no", "yes"] * 4)), "the label, column 'bought', of a batch .*'no'"),
]


# A Dataset has no objects.
PLAIN = [each for each in MISTAKES if all(c.dtype.kind != "O" for c in each[0].values())]


@pytest.mark.parametrize(
    ("form", "columns", "sentence"),
    [(lambda columns: [columns], *each) for each in MISTAKES]
    + [(as_dataset, *each) for each in PLAIN],
)
def test_columns_have_their_names(
    graph_mode: None,
    unique: Callable[[], str],
    form: Callable[[Any], Any],
    columns: dict[str, np.ndarray],
    sentence: str,
) -> None:
    model = make(Net(unique()))
    for call in (lambda data: model.train(1, data, progress=False), model.eval):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=sentence) as found:
            call(form(columns))
        assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (batch(item=IDS.astype(np.float32)), r"'item' is float32, .* \.astype\(np\.int64\)"),
        (batch(price=NUMBERS[:3]), "column 'price' has 3 rows, the others 8: "),
        (batch(bought=LABEL == 1), r"'bought', is bool, .* \.astype\(np\.float32\)"),
        (batch(bought=LABEL[:, 0]), r"the label, column 'bought', has shape \[8\]: "),
        ({"item": IDS, "bought": LABEL}, r"takes 2 columns \('ids', 'numbers'\), .*, not 1"),
    ],
)
def test_so_do_later_batches_of_any_size(
    graph_mode: None,
    unique: Callable[[], str],
    columns: dict[str, np.ndarray],
    sentence: str,
) -> None:
    model = make(Net(unique()))
    right = [batch(rows) for rows in (3, 4, 5, 6)]
    model.train(1, right, progress=False)
    with pytest.raises((TypeError, ValueError), match=sentence):
        model.train(1, [columns], progress=False)
    assert model.train(1, right, progress=False).steps == 4  # MindSpore refused the graph for ever


def test_a_wrong_batch_does_not_count_among_the_sizes(
    graph_mode: None, unique: Callable[[], str]
) -> None:
    model = make(Net(unique()))
    with pytest.raises(ValueError, match="the label has shape"):
        model.train(1, [tuple(batch(bought=LABEL[:, 0]).values())], progress=False)
    right = [tuple(batch(rows).values()) for rows in (2, 3, 4, 5, 6, 7, 8)]
    caller = model._caller(model._train_network)
    before = caller.compilations
    model.train(1, right, progress=False)
    assert caller.compilations - before == 3


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.BCEWithLogitsLoss()])
def test_a_loss_is_not_of_all_pairs_of_rows(
    mode: None, unique: Callable[[], str], loss: nn.Cell
) -> None:
    for kind, label, remedy in [
        (Net, LABEL[:, 0], r"has shape \[8\]: .*label\[:, None\]"),
        (Flat, LABEL, r"has shape \[8, 1\]: .*label\[:, 0\]"),
    ]:
        model = make(kind(unique()), loss)
        for call in (lambda data, m=model: m.train(1, data, progress=False), model.eval):
            with pytest.raises(ValueError, match=remedy):
                call([(IDS, NUMBERS, label)])


def test_labels_are_of_any_range_for_other_losses(
    graph_mode: None, unique: Callable[[], str]
) -> None:
    make(Net(unique()), nn.MSELoss()).train(1, [batch(bought=LABEL * 9)], progress=False)
    make(Net(unique())).train(1, [batch(bought=LABEL * 0.9)], progress=False)


@pytest.mark.parametrize(
    ("column", "remedy"),
    [
        (np.array(["2026-01-01"] * ROWS), "pandas.to_datetime(column) reads dates"),
        (
            np.array(["2.5"] * ROWS),
            "ids are mindspore_rec.category_keys(name, column), numbers .astype(np.float32)",
        ),
        (pd.Series([1.0] * ROWS), "column.to_numpy() makes an array"),
        ([1.0] * ROWS, "numpy.asarray(column) makes an array"),
        (np.array([1.0] * ROWS, object), ".astype(np.float32) for numbers"),
    ],
)
def test_what_is_no_array_of_numbers_has_a_remedy(
    graph_mode: None, unique: Callable[[], str], column: Any, remedy: str
) -> None:
    model = make(Net(unique()))
    sentence = re.escape("column 1 ('numbers') of a batch must be ") + ".*: " + re.escape(remedy)
    with pytest.raises(TypeError, match=sentence):
        model.train(1, [(IDS, column, LABEL)], progress=False)
    with pytest.raises(TypeError, match=sentence):
        model.predict(IDS, column)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([IDS, NUMBERS, LABEL], r"\[\(ids, numbers, label\)\], got a list of 3 arrays"),
        (IDS, r"\[\(ids, numbers, label\)\], got an array"),
        (ms.Tensor(IDS), r"\[\(ids, numbers, label\)\], got an array"),
        (batch(), r"got a dict of columns, which is one: \[{}\]"),
    ],
)
def test_data_that_are_one_batch_are_said_so(
    graph_mode: None, unique: Callable[[], str], data: Any, sentence: str
) -> None:
    model = make(Net(unique()))
    calls: dict[str, Callable[[Any], Any]] = {
        "train_dataset": lambda data: model.train(1, data, progress=False),
        "valid_dataset": model.eval,
    }
    for argument, call in calls.items():
        words = f"^{argument} must be a list of batches, " + sentence.format(argument)
        with pytest.raises(TypeError, match=words):
            call(data)


def test_a_generator_may_be_read_in_one_pass(graph_mode: None, unique: Callable[[], str]) -> None:
    def read() -> Any:
        for _ in range(4):
            yield batch()

    model = make(Net(unique()))
    with pytest.raises(ValueError, match="train_dataset must be read once in each of 2 epochs"):
        model.train(2, read(), progress=False)
    assert model.train(1, read(), progress=False).steps == 4
    assert model.train(9, read(), max_steps=3, progress=False).steps == 3
    assert model.train(2, read(), sink_size=2, progress=False).steps == 4
    used = read()
    model.train(1, used, progress=False)
    with pytest.raises(ValueError, match="gave no batch: .*iterator that was read before: give a"):
        model.train(1, used, progress=False)


def test_the_data_are_let_go(graph_mode: None, unique: Callable[[], str]) -> None:
    class Data(list):
        column_names = ("item", "price", "bought")

    model = make(Net(unique()))
    data = Data([tuple(batch().values())])
    model.train(1, data, progress=False)
    model.eval(data)
    known = weakref.ref(data)
    del data
    gc.collect()
    assert known() is None


def test_parameters_can_be_indexed_after_an_error(
    pynative: None, unique: Callable[[], str]
) -> None:
    model = make(Flat(unique()), nn.MSELoss())
    with pytest.raises(ValueError, match="has shape"):
        model.train(1, [(IDS, NUMBERS, LABEL)], progress=False)
    matrix = ms.Parameter(ms.Tensor(np.ones((2, 3), np.float32)), name="matrix")
    grad = ms.grad(lambda x: (x * matrix[1]).sum())(ms.Tensor(np.ones(3, np.float32)))
    assert grad.asnumpy().tolist() == [1, 1, 1]
