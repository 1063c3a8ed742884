# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools
import threading

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn
from mindspore.amp import DynamicLossScaleManager, FixedLossScaleManager
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, RecModel, TrainStep
from mindspore_rec.metrics import AUC
from mindspore_rec.optim import LazyAdam
from tests.support.clicks import clicks, rows_by_key
from tests.support.networks import LogitBeside, SumOfRows
from tests.support.nightly import examples

FIELDS, NUMBERS = 3, 2


def net_of(name, permit=1):
    """Return a network of embeddings and numbers, with the same first weights each time."""
    lookup = HashEmbeddingLookup(4, ms.int64, "normal", name=name, permit_filter_value=permit)
    weight = np.random.default_rng(0).standard_normal((1, FIELDS * 4 + NUMBERS))
    dense = nn.Dense(FIELDS * 4 + NUMBERS, 1, Tensor(weight.astype(np.float32)), "zeros")
    return LogitBeside(lookup, FIELDS * 4, NUMBERS, dense)


def make_batch(rows, seed=0):
    return clicks(rows, seed, FIELDS, NUMBERS)


def make_model(name, **more):
    net = net_of(name)
    optimizer = LazyAdam(net.trainable_params(), 0.05, loss_scale=more.pop("loss_scale", 1.0))
    metrics = {"auc": AUC(from_logits=True)}
    return RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics, **more)


def table_of(model):
    return model._network.embedding.embedding_table


def same_rows(*models):
    """Gives all keys the same row in each: first values depend on the table's name."""
    values = np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32)
    for model in models:
        table_of(model).import_rows(np.arange(-20, 20), values)


def contents(model):
    return rows_by_key(table_of(model))


def dense_weight(model):
    return model._network.dense.weight.asnumpy().copy()


def as_dataset(batches):
    return ds.GeneratorDataset(batches, ["ids", "numbers", "label"], shuffle=False)


class Unsized:
    """Batches without a length, endless if asked."""

    def __init__(self, batches, endless=False):
        self.batches, self.endless = batches, endless

    def __iter__(self):
        return itertools.cycle(self.batches) if self.endless else iter(self.batches)


SOURCES = {
    "list": lambda batches: batches,
    "dicts": lambda batches: [
        dict(zip(("ids", "numbers", "label"), batch, strict=True)) for batch in batches
    ],
    "tensors": lambda batches: [tuple(Tensor(column) for column in batch) for batch in batches],
    "unsized": lambda batches: Unsized(batches),
    "dataset": lambda batches: as_dataset(batches),
    "unsized dataset": lambda batches: as_dataset(Unsized(batches)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_trains_the_same(mode, unique, kind):
    batches = [make_batch(8, seed) for seed in range(3)]
    expected, model = make_model(unique()), make_model(unique())
    net = expected._network
    same_rows(expected, model)
    step = TrainStep(_Loss(net), expected._optimizer).set_train()
    for batch in batches * 2:
        loss = step(*(Tensor(column) for column in batch))

    summary = model.train(2, SOURCES[kind](batches), progress=False)

    assert (summary.steps, summary.samples, summary.epochs) == (6, 48, 2)
    assert summary.loss == pytest.approx(float(loss), rel=1e-5)
    np.testing.assert_allclose(dense_weight(model), dense_weight(expected), rtol=1e-5, atol=1e-6)
    ours, theirs = contents(model), contents(expected)
    np.testing.assert_array_equal(ours["keys"], theirs["keys"])
    np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-5, atol=1e-6)


class _Loss(nn.Cell):
    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net, self.loss = net, nn.BCEWithLogitsLoss()

    def construct(self, ids, numbers, label):
        return self.loss(self.net(ids, numbers), label)


@pytest.mark.parametrize("wrap", [lambda b: b, as_dataset], ids=["iterable", "dataset"])
def test_online_train_on_an_endless_source_ends_at_max_steps(mode, unique, wrap):
    model = make_model(unique())
    source = wrap(Unsized([make_batch(8)], endless=True))
    summary = model.online_train(source, max_steps=7, progress=False)
    assert (summary.steps, summary.samples, table_of(model).step) == (7, 56, 7)


def test_a_key_is_counted_once_a_step(mode, unique):
    name = unique()
    net = net_of(name, permit=3)  # admitted in the third step, one occurrence a step
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    ids = np.array([[1, 2, 3]])
    batch = (ids, np.zeros((1, NUMBERS), np.float32), np.ones((1, 1), np.float32))
    model.train(1, [batch] * 2, progress=False)
    assert table_of(model).stats()["rows"] == 0
    model.train(1, [batch], progress=False)
    assert table_of(model).stats()["rows"] == 3


@examples(2, 5)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_batches_of_any_sizes_train_as_in_graphs_of_their_own(sizes):
    ms.set_context(mode=ms.GRAPH_MODE)
    number = next(_numbers)
    model = make_model(f"sizes.{number}.a")
    other = make_model(f"sizes.{number}.b")
    batches = [make_batch(size, i) for i, size in enumerate(sizes)]
    same_rows(model, other)
    other._caller(other._train_network)._adapts = False  # a graph a size
    summary = model.train(1, batches, progress=False)
    expected = other.train(1, batches, progress=False)
    assert summary.samples == sum(sizes)
    assert model._caller(model._train_network).compilations <= 3
    assert summary.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(dense_weight(model), dense_weight(other), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        contents(model)["values"], contents(other)["values"], rtol=1e-4, atol=1e-5
    )


_numbers = itertools.count()


def test_an_older_network_that_is_garbage_costs_no_compilation(graph_mode, unique, monkeypatch):
    monkeypatch.undo()  # tests/conftest.py sees to it for all other cells
    compiled = []
    gc.disable()  # so that MindSpore collects the older one
    try:
        for _ in range(3):
            model = make_model(unique())
            model.train(1, [make_batch(4)] * 3, progress=False)
            compiled.append(len(model._train_network.compile_cache))
    finally:
        gc.enable()
    assert compiled == [1, 1, 1]


def test_a_second_dimension_may_vary_too(unique):
    ms.set_context(mode=ms.GRAPH_MODE)

    model = RecModel(SumOfRows(HashEmbeddingLookup(2, ms.int64, "ones", name=unique())))
    for shape in [(2, 3), (1, 3), (4, 3), (5, 3), (4, 6), (1, 1), (7, 2)]:
        assert model.predict(np.ones(shape, np.int64)).shape == (shape[0], 2)
    assert model._caller(model._predict_network).compilations == 4


def test_evaluation_and_prediction_change_no_table(mode, unique):
    model = make_model(unique())
    model.train(1, [make_batch(16)] * 30, progress=False)
    before = contents(model)
    stats = table_of(model).stats()
    new_ids = make_batch(16)[0] + 1000
    assert model.eval([make_batch(16)], progress=False)["auc"] > 0.9
    model.eval([make_batch(16), make_batch(5)], progress=False)
    model.predict(new_ids, make_batch(16)[1])
    assert table_of(model).stats() == stats
    for name, array in contents(model).items():
        np.testing.assert_array_equal(array, before[name])
    # and training goes on after it
    model.train(1, [make_batch(16)], progress=False)
    assert table_of(model).step == 31


def test_evaluation_equals_the_metric_of_predictions(graph_mode, unique):
    model = make_model(unique())
    batches = [make_batch(n, n) for n in (7, 3, 9, 4)]
    model.train(1, batches, progress=False)
    auc = AUC(from_logits=True)
    for ids, numbers, label in batches:
        auc.update(model.predict(ids, numbers).asnumpy(), label)
    assert model.eval(batches, progress=False)["auc"] == auc.eval()
    assert model.eval(as_dataset(Unsized(batches)), progress=False)["auc"] == auc.eval()


def test_a_table_without_an_optimizer_is_refused_before_the_first_step(graph_mode, unique):
    name = unique()
    net = net_of(name)
    with pytest.raises(RuntimeError, match=name):
        RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.dense.trainable_params()))
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    later = LazyAdam(net.trainable_params())
    with pytest.raises(RuntimeError, match=name):
        model.train(1, [make_batch(4)], progress=False)
    assert later.table_bindings
    assert table_of(model).stats()["rows"] == 0


def test_a_prebuilt_train_step_is_checked_too(graph_mode, unique):
    name = unique()
    net = net_of(name)
    model = RecModel(TrainStep(_Loss(net), LazyAdam(net.trainable_params())))
    assert model.train(1, [make_batch(4)] * 3, progress=False).steps == 3
    assert net.embedding.embedding_table.step == 3
    with pytest.raises(RuntimeError, match="would not learn"):
        RecModel(_Loss(net_of(unique()))).train(1, [make_batch(4)], progress=False)


def test_a_fixed_loss_scale_changes_nothing(graph_mode, unique):
    batches = [make_batch(8, seed) for seed in range(4)]
    plain = make_model(unique())
    manager = FixedLossScaleManager(1024.0, drop_overflow_update=False)
    scaled = make_model(unique(), loss_scale=1024.0, loss_scale_manager=manager)
    same_rows(plain, scaled)
    losses = [m.train(2, batches, progress=False).loss for m in (plain, scaled)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    np.testing.assert_allclose(
        contents(plain)["values"], contents(scaled)["values"], rtol=1e-4, atol=1e-6
    )


def test_epochs_of_sink_size_steps(graph_mode, unique):
    class Epochs(Callback):
        def __init__(self):
            super().__init__()
            self.ends = []

        def on_train_epoch_end(self, run_context):
            self.ends.append(run_context.original_args().cur_step_num)

    batches = [make_batch(4)] * 5
    for run, ends, steps in [
        (lambda m, c: m.train(3, batches, c, sink_size=2, progress=False), [2, 4, 6], 6),
        (lambda m, c: m.train(3, batches, c, progress=False), [5, 10, 15], 15),
        (lambda m, c: m.train(3, batches, c, initial_epoch=1, progress=False), [5, 10], 10),
        (lambda m, c: m.train(9, batches, c, max_steps=7, progress=False), [5, 7], 7),
        (lambda m, c: m.online_train(batches, c, sink_size=2, progress=False), [2, 4, 5], 5),
    ]:
        epochs = Epochs()
        assert run(make_model(unique()), epochs).steps == steps
        assert epochs.ends == ends


@pytest.mark.parametrize("wrap", [iter, lambda b: Unsized([])], ids=["one-shot", "empty"])
def test_a_pass_without_batches_is_an_error(graph_mode, unique, wrap):
    with pytest.raises(ValueError, match="gave no batch"):
        make_model(unique()).train(2, wrap([make_batch(4)]), progress=False)


def test_an_error_of_the_source_arrives_and_the_table_is_whole(mode, unique):
    def broken():
        yield make_batch(8)
        raise OSError("the disk is gone")

    model = make_model(unique())
    with pytest.raises(OSError, match="the disk is gone"):
        model.online_train(broken(), progress=False)
    assert table_of(model).step == 1
    with pytest.raises(RuntimeError, match="the disk is gone"):
        model.online_train(as_dataset(broken), progress=False)
    # a pipeline that reads ahead may tell of the error before it gives the batch
    before = table_of(model).step
    assert before in (1, 2)
    assert model.online_train([make_batch(8)], progress=False).steps == 1
    assert table_of(model).step == before + 1


def test_predicting_from_another_thread_while_training(graph_mode, unique):
    model = make_model(unique())
    batch = make_batch(32)
    model.train(1, [batch], progress=False)
    done = threading.Event()
    outputs, errors = [], []

    def predict():
        try:
            while not done.is_set():
                outputs.append(model.predict(batch[0], batch[1]).asnumpy())
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    summary = model.train(1, [batch] * 300, progress=False)
    done.set()
    thread.join()
    assert not errors
    assert summary.steps == 300 and len(outputs) > 3
    assert all(np.isfinite(output).all() for output in outputs)
    assert table_of(model).step == 301


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"amp_level": "O2"}, "amp_level"),
        ({"boost_level": "O1"}, "boost_level"),
        ({"loss_scale_manager": DynamicLossScaleManager()}, "loss_scale_manager"),
        ({"loss_scale_manager": FixedLossScaleManager(2.0)}, "loss_scale_manager"),
    ],
)
def test_constructor_refuses(graph_mode, unique, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_model(unique(), **arguments)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, b: m.train(0, b), "epoch must be"),
        (lambda m, b: m.train(1, b, sink_size=0), "sink_size"),
        (lambda m, b: m.train(1, b, max_steps=0), "max_steps"),
        (lambda m, b: m.train(1, b, initial_epoch=1), "initial_epoch"),
        (lambda m, b: m.train(1, 3), "train_dataset must be"),
        (lambda m, b: m.train(1, {"ids": b}), "train_dataset must be"),
        (lambda m, b: m.train(1, b, callbacks=["x"]), "callbacks must be"),
        (lambda m, b: m.train(1, [([1, 2], b[0][1], b[0][2])]), "column 0"),
        (lambda m, b: m.online_train(b, sink_size=0), "sink_size"),
        (lambda m, b: m.eval([]), "valid_dataset gave no batch: its length is 0"),
        (lambda m, b: m.eval(5), "valid_dataset must be"),
        (lambda m, b: m.predict(), "at least one column"),
        (lambda m, b: m.predict(b[0][0], backend="lite"), "backend"),
    ],
)
def test_bad_arguments(graph_mode, unique, call, message):
    model = make_model(unique())
    with pytest.raises((TypeError, ValueError), match=message):
        call(model, [make_batch(4)])
    assert table_of(model).stats()["rows"] == 0
