# SPDX-License-Identifier: Apache-2.0
"""Several optimizers in one: each part as by itself, one step count, one clip, one checkpoint."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import optim
from mindspore_rec.nn import HashEmbeddingLookup


def wide_and_deep(net, clip=None, scale=1.0, deep_clip=None):
    """FTRL on table and gamma, LazyAdam with a list of rates on w: not the network's order."""
    return optim.CombinedOptimizer(
        [
            optim.FTRL(
                [net.table.anchor, net.gamma], learning_rate=0.2, l1=0.01, loss_scale=scale
            ),
            optim.LazyAdam(
                [net.w], [0.1, 0.2, 0.3, 0.4], weight_decay=0.1, loss_scale=scale,
                clip_global_norm=deep_clip,
            ),
        ],
        clip_global_norm=clip,
    )  # fmt: skip


class TwoRules:
    """The model of `wide_and_deep`: FTRL for all but 'w'."""

    def __init__(self, np_side, clip=None):
        ftrl, adam = np_side.ftrl(l1=0.01), np_side.adam()
        rates = [0.1, 0.2, 0.3, 0.4]

        def rule(w, g, s, lr, t):
            return adam(w, g, s, lr, t) if w.ndim == 2 else ftrl(w, g, s, lr, t)

        self.model = np_side.LinearModel(
            rule,
            rates=lambda name, t: rates[t] if name == "w" else 0.2,
            weight_decay=lambda name, t: 0.1 if name == "w" else 0.0,
            clip=clip,
        )


@pytest.mark.parametrize("clip", [None, 0.7])
def test_each_part_follows_its_rule_and_the_clip_is_common(numpy_optim, mode, clip):
    net = numpy_optim.LinearNet()
    optimizer = wide_and_deep(net, clip, scale=128.0)
    optim.check_covered(net, optimizer)
    train = numpy_optim.train_cell(net, optimizer, 128.0)
    model, rng = TwoRules(numpy_optim, clip).model, np.random.default_rng(7)
    for _ in range(4):
        batch = numpy_optim.random_batch(rng)
        train(*batch)
        model.step(batch)
    model.check(net)
    assert optimizer.global_step.asnumpy().tolist() == [4]
    assert net.table.step == 4


def test_a_part_may_clip_by_its_own_norm(numpy_optim, mode):
    net = numpy_optim.LinearNet()
    parts = [
        optim.SGD([net.table.anchor, net.gamma], 1.0),
        optim.SGD([net.w], 1.0, clip_global_norm=0.25),
    ]
    train = numpy_optim.train_cell(net, optim.CombinedOptimizer(parts))
    batch, before = numpy_optim.random_batch(np.random.default_rng(8)), net.w.asnumpy().copy()
    train(*batch)
    assert np.linalg.norm(before - net.w.asnumpy()) == pytest.approx(0.25, rel=1e-5)
    np.testing.assert_allclose(net.gamma.asnumpy(), [0.3, -0.2] - batch[5], rtol=1e-5)


def test_parameters_rates_and_decays_are_those_of_the_parts(numpy_optim):
    net = numpy_optim.LinearNet()
    optimizer = wide_and_deep(net)
    assert optimizer.parameters == (net.table.anchor, net.gamma, net.w)
    rates = [float(r.asnumpy()) for r in optimizer.get_lr()]
    assert rates == pytest.approx([0.2, 0.2, 0.1])
    optimizer.global_step.set_data(Tensor([2], ms.int32))
    assert float(optimizer.get_lr()[2].asnumpy()) == pytest.approx(0.3)
    decays = [float(d.asnumpy()) for d in optimizer.get_weight_decay()]
    assert decays == pytest.approx([0.0, 0.0, 0.1])
    assert float(optimizer.get_lr_parameter(net.gamma).asnumpy()) == pytest.approx(0.2)


def test_constant_rates_can_be_set(numpy_optim, mode):
    net = numpy_optim.LinearNet()
    optimizer = optim.CombinedOptimizer(
        [optim.SGD([net.table.anchor, net.gamma], 0.5), optim.SGD([net.w], 0.5)]
    )
    optimizer.learning_rate[2].set_data(Tensor(0.0, ms.float32))
    before = net.w.asnumpy().copy()
    batch = numpy_optim.random_batch(np.random.default_rng(9))
    numpy_optim.train_cell(net, optimizer)(*batch)
    assert (net.w.asnumpy() == before).all()
    np.testing.assert_allclose(net.gamma.asnumpy(), [0.3, -0.2] - 0.5 * batch[5], rtol=1e-5)


def snapshot(cell):
    return {p.name: p.asnumpy().copy() for p in cell.get_parameters()}


@pytest.mark.parametrize("combined", [True, False])
def test_checkpoint_round_trip_continues_the_same_way(numpy_optim, mode, tmp_path, combined):
    """Moments, step and rates of a train cell come back; the table's rows are put beside it."""

    def fresh():
        net = numpy_optim.LinearNet()
        rates = [0.1, 0.2, 0.3, 0.4]
        optimizer = (
            wide_and_deep(net)
            if combined
            else optim.RMSProp(net.trainable_params(), rates, momentum=0.5, centered=True)
        )
        cell = nn.TrainOneStepCell(net, optimizer)
        return net, optimizer, cell

    rng = np.random.default_rng(10)
    batches = [[Tensor(a) for a in numpy_optim.random_batch(rng)] for _ in range(4)]
    net, optimizer, cell = fresh()
    for batch in batches[:2]:
        cell(*batch)
    middle = snapshot(cell)
    path = str(tmp_path / "train.ckpt")
    ms.save_checkpoint(cell, path)
    rows = net.table.export_rows(True)
    for batch in batches[2:]:
        cell(*batch)
    end = snapshot(cell)

    other, other_optimizer, other_cell = fresh()
    other_cell(*batches[3])  # compiled and stepped before it is loaded
    loaded = ms.load_checkpoint(path)
    # The anchor has the table's name, which two open tables cannot share.
    loaded[other.table.name] = loaded.pop(net.table.name)
    missing, unused = ms.load_param_into_net(other_cell, loaded)
    assert missing == [] and unused == []
    other.table.clear_rows()
    other.table.import_rows(rows["keys"], rows["values"], rows["states"])
    for name, value in snapshot(other_cell).items():
        np.testing.assert_array_equal(value, middle.get(name, value), err_msg=name)
    assert other_optimizer.global_step.asnumpy().tolist() == [2]
    for batch in batches[2:]:
        other_cell(*batch)
    for name, value in snapshot(other_cell).items():
        np.testing.assert_array_equal(value, end.get(name, value), err_msg=name)
    keys = np.sort(net.table.row_keys())
    np.testing.assert_array_equal(net.table.read_rows(keys), other.table.read_rows(keys))


def test_names_in_a_checkpoint_are_distinct(numpy_optim):
    net = numpy_optim.LinearNet()
    groups = [{"params": [net.w], "lr": 0.1}, {"params": [net.gamma], "lr": 0.2}]
    optimizer = optim.CombinedOptimizer([optim.SGD([net.table.anchor]), optim.Adagrad(groups)])
    names = [p.name for p in optimizer.get_parameters()]
    assert len(names) == len(set(names))
    rates = {"learning_rate_0", "learning_rate_group_0_1", "learning_rate_group_1_1"}
    assert rates | {"global_step", "accum.w", "accum.gamma"} <= set(names)


class Towers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wide = HashEmbeddingLookup(1, param_init="zeros")
        self.deep = HashEmbeddingLookup(4)
        self.fc = nn.Dense(4, 1)

    def construct(self, ids):
        return self.wide(ids).sum(1) + self.fc(self.deep(ids).sum(1))


@pytest.mark.usefixtures("graph_mode")
def test_wide_and_deep_learns():
    net = Towers()
    net.set_train()
    wide = [p for p in net.trainable_params() if p is net.wide.embedding_table.anchor]
    deep = [p for p in net.trainable_params() if p is not net.wide.embedding_table.anchor]
    optimizer = optim.CombinedOptimizer(
        [optim.FTRL(wide, learning_rate=0.1), optim.LazyAdam(deep, 0.01)], clip_global_norm=10.0
    )
    loss = nn.BCEWithLogitsLoss(reduction="mean")
    train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
    train.set_train()
    rng = np.random.default_rng(0)
    ids = Tensor(rng.integers(0, 40, (64, 3)).astype(np.int32))
    label = Tensor((ids.asnumpy().min(1, keepdims=True) < 8).astype(np.float32))
    losses = [float(train(ids, label).asnumpy()) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def sgd_of(*parameters, **arguments):
    return optim.SGD(list(parameters), 0.1, **arguments)


def test_bad_arguments(numpy_optim):
    net = numpy_optim.LinearNet()
    combine = optim.CombinedOptimizer
    with pytest.raises(TypeError, match="optimizers must be an iterable .* got SGD"):
        combine(sgd_of(net.w))
    with pytest.raises(ValueError, match="at least one optimizer"):
        combine([])
    with pytest.raises(TypeError, match=r"optimizers\[1\] must be .* got Momentum"):
        combine([sgd_of(net.w), nn.Momentum([net.gamma], 0.1, 0.9)])
    with pytest.raises(ValueError, match=r"'w' in optimizers\[0\] and optimizers\[1\]"):
        combine([sgd_of(net.w), sgd_of(net.gamma, net.w)])
    with pytest.raises(ValueError, match=r"one loss_scale, got \[1.0, 2.0\]"):
        combine([sgd_of(net.w), sgd_of(net.gamma, loss_scale=2.0)])
    with pytest.raises(ValueError, match="clip_global_norm must be None here or in all"):
        combine([sgd_of(net.w, clip_global_norm=1.0)], clip_global_norm=1.0)
    with pytest.raises(ValueError, match="clip_global_norm must be a finite number > 0, got 0"):
        combine([sgd_of(net.w)], clip_global_norm=0)


@pytest.mark.filterwarnings("ignore:table .* is taken over")
def test_a_table_in_two_parts_is_refused(numpy_optim):
    net = numpy_optim.LinearNet()
    parts = [sgd_of(net.table.anchor, net.w), optim.FTRL([net.table.anchor])]
    with pytest.raises(ValueError, match=r"no parameter in common.*\[0\] and optimizers\[1\]"):
        optim.CombinedOptimizer(parts)
