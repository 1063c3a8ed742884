# SPDX-License-Identifier: Apache-2.0
"""What goes wrong without an error is said once; a loss that is NaN is an error."""

from __future__ import annotations

import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.train import Callback

import mindspore_rec
from mindspore_rec import (
    AUC,
    SGD,
    EmbeddingLookup,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecModel,
)
from mindspore_rec.train import StopOnNaN
from mindspore_rec.train.loop import hints
from tests.support.networks import LogitOf

IDS = np.arange(12).reshape(4, 3)
LABEL = np.array([[0], [1], [0], [1]], np.float32)


@pytest.fixture(autouse=True)
def _given_anew():
    hints.forget_hints()


def make(embedding, dim=4):
    net = nn.SequentialCell(embedding, nn.Flatten(), nn.Dense(3 * dim, 1))
    optimizer = LazyAdam(net.trainable_params(), 0.05)
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, {"auc": AUC(from_logits=True)})


def hashed(unique):
    return make(HashEmbeddingLookup(4, ms.int64, name=unique()))


def said(work):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [str(each.message) for each in found if each.category is RuntimeWarning]


# ---- a prediction before training


@pytest.mark.parametrize("first", ["predict", "eval"])
def test_a_prediction_before_training_is_said_once(graph_mode, unique, first):
    model = hashed(unique)

    def work():
        for _ in range(2):
            model.predict(IDS) if first == "predict" else model.eval([(IDS, LABEL)], progress=False)

    (text,) = said(work)
    assert text.startswith("a prediction before any training: table 'test.")


def test_a_prediction_after_training_or_loading_is_not(graph_mode, unique, tmp_path):
    model = hashed(unique)
    validation = ProgressiveValidation(model, window=4)
    assert not said(lambda: model.online_train([(IDS, LABEL)], validation, progress=False))
    assert not said(lambda: model.predict(IDS))
    mindspore_rec.save_checkpoint(model, tmp_path / "saved")
    name = model._network[0].embedding_table.name
    model._network[0].embedding_table.close()
    again = make(HashEmbeddingLookup(4, ms.int64, name=name))
    mindspore_rec.load_checkpoint(again, tmp_path / "saved")
    assert not said(lambda: again.predict(IDS))
    plain = RecModel(nn.Dense(2, 1))
    assert not said(lambda: plain.predict(np.ones((1, 2), np.float32)))  # it has no table


# ---- PyNative


def test_training_in_pynative_mode_is_said_once(mode, unique):
    model = hashed(unique)

    def work():
        for _ in range(2):
            model.train(1, [(IDS, LABEL)], progress=False)

    texts = said(work)
    if mode == "graph":
        assert not texts
    else:
        (text,) = texts
        assert "set_context(mode=mindspore.GRAPH_MODE)" in text


# ---- hashed ids for a vocabulary


EMBEDDINGS = {
    "nn.EmbeddingLookup": lambda name: nn.EmbeddingLookup(100, 4, target="CPU"),
    "nn.Embedding": lambda name: nn.Embedding(100, 4),
    "device": lambda name: EmbeddingLookup(100, 4, target="DEVICE", sparse=False),
    "zeros": lambda name: EmbeddingLookup(100, 4, out_of_range="zeros", name=name),
}


@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize("far", [True, False])
def test_hashed_ids_for_a_vocabulary_are_said(graph_mode, unique, kind, far):
    net = LogitOf(EMBEDDINGS[kind](unique()), 3 * 4)
    of_mindspore = kind == "nn.EmbeddingLookup"
    optimizer = (nn.Adam if of_mindspore else LazyAdam)(net.trainable_params(), 0.01)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    ids = (IDS * 7919 + 1000).astype(np.int32) if far else IDS.astype(np.int32)

    def work():
        for _ in range(2):
            try:
                model.train(1, [(ids, LABEL)], progress=False)
            except RuntimeError as error:
                assert far and "[0, 100)" in str(error)  # of MindSpore's operator
                break

    texts = said(work)
    if far:
        (text,) = texts
        assert "1000 in column 0" in text and "vocabulary of 100" in text
        assert "HashEmbeddingLookup" in text and "'network.network.embedding'" in text
    else:
        assert not texts


def test_an_embedding_of_mint_is_known_too(graph_mode):
    net = nn.SequentialCell(ms.mint.nn.Embedding(100, 4))
    (text,) = said(lambda: hints.hint_vocabulary(net, (ms.Tensor(IDS + 1000),)))
    assert "vocabulary of 100 of the embedding '0'" in text


def test_numbers_beside_a_hash_table_are_not_taken_for_ids(graph_mode, unique):
    class Both(nn.Cell):
        def __init__(self):
            super().__init__()
            self.hash = HashEmbeddingLookup(4, ms.int64, name=unique())
            self.small = nn.Embedding(10, 4)

        def construct(self, ids, kind):
            return (self.hash(ids).sum((1, 2)) + self.small(kind).sum((1, 2))).reshape((-1, 1))

    net = Both()
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    batch = (IDS + (1 << 40), (IDS % 10).astype(np.int32), LABEL)
    assert not said(lambda: model.train(1, [batch], progress=False))


# ---- NaN


class Seen(Callback):
    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_step_end(self, run_context):
        self.steps.append(run_context.original_args().cur_step_num)


class Numbers(nn.Cell):
    def __init__(self, name):
        super().__init__()
        self.embedding = HashEmbeddingLookup(2, ms.int64, name=name)

    def construct(self, ids, numbers):
        return self.embedding(ids).sum((1, 2)).reshape((-1, 1)) * ops.log(numbers)


NAN, INFINITE = -1.0, 0.0  # whose logarithms these are


def poisoned(unique, value):
    net = Numbers(unique())
    model = RecModel(net, nn.MSELoss(), SGD(net.trainable_params(), 0.1))
    numbers = np.full((4, 1), 2, np.float32)
    bad = np.full((4, 1), value, np.float32)
    batches = [(IDS, numbers, LABEL)] * 2 + [(IDS, bad, LABEL)] + [(IDS, numbers, LABEL)] * 2
    return model, batches


@pytest.mark.parametrize("value", [NAN, INFINITE])
@pytest.mark.parametrize("call", ["train", "online_train"])
def test_a_loss_that_is_no_number_is_an_error_that_names_the_step(mode, unique, value, call):
    model, batches = poisoned(unique, value)
    seen = Seen()
    arguments = (1, batches) if call == "train" else (batches,)
    with pytest.raises(FloatingPointError, match=r"^the loss is (nan|inf) at step 3, .*checkpoint"):
        getattr(model, call)(*arguments, seen, progress=False)
    assert seen.steps == [1, 2]  # no callback saw the step
    summary = model.train(1, batches[:0] + batches[2:3], progress=False, stop_on_nan=False)
    assert summary.steps == 1


def test_it_can_be_switched_off_and_a_callback_decides(graph_mode, unique):
    model, batches = poisoned(unique, NAN)
    assert model.train(1, batches, progress=False, stop_on_nan=False).steps == 5
    model, batches = poisoned(unique, NAN)
    summary = model.train(1, batches, StopOnNaN(), progress=False)
    assert summary.steps == 3 and "nan at step 3" in summary.stop_reason


def test_a_step_that_gives_no_loss_is_left_alone(graph_mode, unique):
    class Step(nn.Cell):
        def construct(self, ids):
            return ids.sum()

    assert RecModel(Step()).train(1, [(IDS,)] * 2, progress=False).steps == 2
