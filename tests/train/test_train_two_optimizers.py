# SPDX-License-Identifier: Apache-2.0
"""Training cells with several optimizers, such as MindRec's for Wide & Deep."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, nn, ops
from mindspore.ops import composite

from mindspore_rec import FTRL, HashEmbeddingLookup, LazyAdam, RecModel, TrainStep
from mindspore_rec.optim import CombinedOptimizer
from mindspore_rec.train.nn.tables import tables_of
from tests.support.clicks import clicks

FIELDS, DIM, SENS = 3, 4, 1024.0


class WideDeep(nn.Cell):
    """The wide part is a table of one float a row, the deep part a table and two layers."""

    def __init__(self, name):
        super().__init__()
        self.wide = HashEmbeddingLookup(1, ms.int64, "zeros", name=f"{name}.wide")
        self.deep = HashEmbeddingLookup(DIM, ms.int64, 0.1, name=f"{name}.deep")
        self.wide_b = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="wide_b")
        rng = np.random.default_rng(0)
        hidden, out = (
            ms.Tensor(rng.standard_normal(shape).astype(np.float32) / 3)
            for shape in ((8, FIELDS * DIM), (1, 8))
        )
        self.hidden = nn.Dense(FIELDS * DIM, 8, hidden, "zeros", activation="relu")
        self.out = nn.Dense(8, 1, out, "zeros")

    def construct(self, ids, weights):
        mask = weights.reshape((-1, FIELDS, 1))
        wide = (self.wide(ids) * mask).sum(1) + self.wide_b
        deep = self.out(self.hidden((self.deep(ids) * mask).reshape((-1, FIELDS * DIM))))
        return wide + deep


class TwoLosses(nn.Cell):
    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = ops.SigmoidCrossEntropyWithLogits()

    def construct(self, ids, weights, label):
        loss = self.loss(self.network(ids, weights), label).mean()
        return loss, loss


class OneLoss(nn.Cell):
    def __init__(self, network, place):
        super().__init__(auto_prefix=False)
        self.network, self.place = network, place

    def construct(self, ids, weights, label):
        return self.network(ids, weights, label)[self.place]


class TrainStepWrap(nn.Cell):
    """MindRec's structure: each part's loss is differentiated for its optimizer's parameters."""

    def __init__(self, network, hold=None):
        super().__init__()
        self.network = network
        self.network.set_train()
        self.weights_w, self.weights_d = map(ParameterTuple, parts_of(network))
        wide, deep = optimizers_of(self.weights_w, self.weights_d)
        if hold is None:
            self.optimizer_d, self.optimizer_w = deep, wide
        else:
            hold(self, deep, wide)
        self.grad_w = composite.GradOperation(get_by_list=True, sens_param=True)
        self.grad_d = composite.GradOperation(get_by_list=True, sens_param=True)
        self.loss_net_w, self.loss_net_d = OneLoss(network, 0), OneLoss(network, 1)

    def construct(self, ids, weights, label):
        loss_w, loss_d = self.network(ids, weights, label)
        sens_w = ops.fill(loss_w.dtype, loss_w.shape, SENS)
        sens_d = ops.fill(loss_d.dtype, loss_d.shape, SENS)
        grads_w = self.grad_w(self.loss_net_w, self.weights_w)(ids, weights, label, sens_w)
        grads_d = self.grad_d(self.loss_net_d, self.weights_d)(ids, weights, label, sens_d)
        return (
            ops.depend(loss_w, self.optimizer_w(grads_w)),
            ops.depend(loss_d, self.optimizer_d(grads_d)),
        )


def make_batch(rows, seed=0):
    ids, _, label = clicks(rows, seed, FIELDS)
    return ids, np.ones((rows, FIELDS), np.float32), label


def parts_of(net):
    params = net.trainable_params()
    names = {p.name: getattr(p, "mindspore_rec_table", p).name for p in params}
    wide = [p for p in params if "wide" in names[p.name]]
    return wide, [p for p in params if "wide" not in names[p.name]]


def optimizers_of(wide, deep):
    return (
        FTRL(learning_rate=5e-2, params=wide, l1=1e-8, l2=1e-8, initial_accum=1.0, loss_scale=SENS),
        LazyAdam(deep, learning_rate=0.02, eps=1e-8, loss_scale=SENS),
    )


def state_of(net):
    layers = {"hidden": net.hidden.weight, "out": net.out.weight, "bias": net.wide_b}
    state = {name: p.asnumpy() for name, p in layers.items()}
    for what, table in zip(("wide", "deep"), tables_of(net), strict=True):
        keys, values, _ = table.export_data()
        state[what] = values[np.argsort(keys)]
    return state


@pytest.mark.parametrize("call", ["train", "online_train"])
def test_mindrecs_wide_and_deep_cell_trains(mode, unique, call):
    """It learns what one optimizer made of the two learns."""
    net, same = WideDeep(unique()), WideDeep(unique())
    model = RecModel(TrainStepWrap(TwoLosses(net)).set_train())
    together = CombinedOptimizer(optimizers_of(*parts_of(same)))
    expected = RecModel(TrainStep(OneLoss(TwoLosses(same), 0), together, SENS))
    batches = [make_batch(64, seed) for seed in range(20)]
    for each in (model, expected):
        arguments = (1, batches) if call == "train" else (batches,)
        assert getattr(each, call)(*arguments, progress=False).steps == 20
    assert [table.step for table in tables_of(net)] == [20, 20]
    got, wanted = state_of(net), state_of(same)
    assert got.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
    assert np.abs(got["wide"]).min() > 0 and np.abs(got["deep"] - 0.1).max() > 0.1


class HoldsDeeper(nn.Cell):
    def __init__(self, optimizer):
        super().__init__()
        self.inner = optimizer


@pytest.mark.parametrize(
    "hold",
    [
        lambda cell, deep, wide: setattr(cell, "optimizers", [deep, wide]),
        lambda cell, deep, wide: setattr(cell, "optimizers", nn.CellList([wide, deep])),
        lambda cell, deep, wide: setattr(cell, "by_part", {"wide": wide, "deep": deep}),
        lambda cell, deep, wide: setattr(
            cell, "nested", nn.CellList([HoldsDeeper(deep), HoldsDeeper(wide)])
        ),
    ],
    ids=["list", "cell list", "dict", "nested"],
)
def test_optimizers_are_found_wherever_the_cell_holds_them(graph_mode, unique, hold):
    model = RecModel(TrainStepWrap(TwoLosses(WideDeep(unique())), hold))
    model._check_trainable()


def test_a_table_of_neither_optimizer_is_named(graph_mode, unique):
    name = unique()
    net = WideDeep(name)

    def only_wide(cell, deep, wide):
        cell.optimizer_w, cell.optimizer_d = wide, nn.Adam(cell.weights_d)

    model = RecModel(TrainStepWrap(TwoLosses(net), only_wide))
    message = f"^table '{name}.deep' would not learn: (FTRL and Adam|Adam and FTRL) do not cover it"
    with pytest.raises(RuntimeError, match=message):
        model.train(1, [make_batch(4)], progress=False)


def test_a_later_optimizer_outside_the_cell_is_noticed(graph_mode, unique):
    name = unique()
    net = WideDeep(name)
    model = RecModel(TrainStepWrap(TwoLosses(net)))
    later = LazyAdam(net.deep.trainable_params())
    with pytest.raises(RuntimeError, match=f"^table '{name}.deep' would not learn: an optimizer"):
        model.train(1, [make_batch(4)], progress=False)
    assert later.table_bindings
