# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first program are one clear sentence, and warnings point at it."""

from __future__ import annotations

import re
import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import EmbeddingLookup, HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.train.loop import hints

IDS = np.arange(12).reshape(4, 3)
LABEL = np.array([[0], [1], [0], [1]], np.float32)


def make(embedding):
    net = nn.SequentialCell(embedding, nn.Flatten(), nn.Dense(12, 1))
    return RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))


@pytest.fixture
def model(graph_mode, unique):
    return make(HashEmbeddingLookup(4, ms.int64, name=unique()))


@pytest.mark.parametrize("way", ["train", "online_train", "predict"])
def test_hints_point_at_the_program(graph_mode, unique, way):
    hints.forget_hints()
    model = make(EmbeddingLookup(10, 4, out_of_range="zeros"))
    if way == "predict":
        model = make(HashEmbeddingLookup(4, ms.int64, name=unique()))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if way == "train":
            model.train(1, [(IDS + 1000, LABEL)], progress=False)
        elif way == "online_train":
            model.online_train([(IDS + 1000, LABEL)], progress=False)
        else:
            model.predict(IDS)
    (hint,) = [each for each in found if each.category is RuntimeWarning]
    assert hint.filename == __file__


def test_arguments_in_the_wrong_order_do_not_print_the_data(model):
    many = [(IDS, LABEL)] * 1000
    with pytest.raises(TypeError, match="^epoch must be an int, got ") as found:
        model.train(many, 3)
    assert len(str(found.value)) < 200


def test_a_batch_without_rows_is_named(model):
    before = model.train(1, [(IDS, LABEL)], progress=False)
    assert before.steps == 1
    with pytest.raises(ValueError, match="train_dataset for step 2 has no rows.*leave it out"):
        model.train(1, [(IDS, LABEL), (IDS[:0], LABEL[:0])], progress=False)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((IDS, LABEL.astype(np.float64)), r"the label is float64: .*\.astype\(np\.float32\)"),
        ((IDS, LABEL.astype(np.int64)), r"the label is int64: .*\.astype\(np\.float32\)"),
        ((IDS, LABEL[:, 0]), r"the label has shape \[4\]: .*label\[:, None\]"),
        ((IDS, LABEL[:2]), r"the label has 2 rows, column 0 \('input_data'\) 4: give"),
        ((IDS, IDS, LABEL), r"the network takes 1 column .*, and the label, not 2"),
    ],
)
def test_a_batch_that_does_not_fit_is_described_first(model, batch, words):
    columns = r"int64 \[4, 3\].*"
    with pytest.raises((TypeError, ValueError), match=f"^the batch {columns}{words}") as found:
        model.train(1, [batch], progress=False)
    assert "\n" not in str(found.value)  # the sentence is the last line that is printed
    assert found.value.__suppress_context__
    # A label of another shape is seen by our own cell.
    assert re.search("Traceback|fewer axes", found.value.__dict__["mindspore_text"])
    assert model.train(1, [(IDS, LABEL)], progress=False).steps == 1
