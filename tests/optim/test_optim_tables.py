# SPDX-License-Identifier: Apache-2.0
"""Which optimizer trains which table: coverage, take-over, frozen tables, bad arguments."""

from __future__ import annotations

import gc
import itertools
import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from mindspore_rec import optim
from mindspore_rec.nn import HashEmbeddingLookup
from mindspore_rec.parameter import MapParameter
from tests.support.native_table import native_of

_names = itertools.count()


class TwoTables(nn.Cell):
    def __init__(self):
        super().__init__()
        self.user = HashEmbeddingLookup(2, name=f"user{next(_names)}")
        self.item = HashEmbeddingLookup(2, name=f"item{next(_names)}")
        self.fc = nn.Dense(2, 1)

    def construct(self, ids):
        return self.fc(self.user(ids) + self.item(ids)).sum()

    @property
    def names(self):
        return self.user.embedding_table.name, self.item.embedding_table.name

    @property
    def natives(self):
        return native_of(self.user.embedding_table), native_of(self.item.embedding_table)


def train_cell(net, optimizer):
    cell = nn.TrainOneStepCell(net, optimizer)
    cell.set_train()
    return cell


IDS = Tensor([1, 2, 1], ms.int32)


def test_covered():
    net = TwoTables()
    optim.check_covered(net, optim.LazyAdam(net.trainable_params()))
    optim.check_covered(nn.Dense(2, 1), nn.SGD(nn.Dense(2, 1).trainable_params()))


@pytest.mark.parametrize("kind", ["none", "vanilla", "other"])
def test_not_covered_names_every_table(kind):
    net = TwoTables()
    user, item = net.names
    optimizer = {
        "none": lambda: None,
        "vanilla": lambda: nn.SGD(net.trainable_params(), 0.1),
        "other": lambda: optim.LazyAdam(TwoTables().trainable_params()),
    }[kind]()
    with pytest.raises(RuntimeError, match=rf"tables '{item}', '{user}' would not learn: \w+"):
        optim.check_covered(net, optimizer)


def test_partly_covered_names_the_rest():
    net = TwoTables()
    rest = [p for p in net.trainable_params() if p is not net.item.embedding_table.anchor]
    with pytest.raises(RuntimeError, match=f"table '{net.names[1]}' would not learn: LazyAdam"):
        optim.check_covered(net, optim.LazyAdam(rest))


def test_frozen_table_needs_no_optimizer(mode):
    net = TwoTables()
    net.item.embedding_table.requires_grad = False
    optimizer = optim.LazyAdam(net.trainable_params(), 0.1)
    optim.check_covered(net, optimizer)
    assert not net.natives[1].has_optimizer
    keys = np.array([1, 2])
    net.natives[1].lookup(keys, insert=True)
    frozen = net.natives[1].lookup(keys)
    cell = train_cell(net, optimizer)
    cell(IDS)
    cell(IDS)
    assert optimizer.global_step.asnumpy() == [2]
    assert (net.natives[1].lookup(keys) == frozen).all()
    assert net.natives[0].step == 2


def test_created_anew_with_the_same_rule_takes_over(mode):
    net = TwoTables()
    first = optim.SGD(net.trainable_params(), 0.1)
    first_cell = train_cell(net, first)
    first_cell(IDS)
    assert first.global_step.asnumpy() == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = optim.SGD(net.trainable_params(), 0.1)
    optim.check_covered(net, second)
    with pytest.raises(RuntimeError, match="an optimizer created after this SGD has taken over"):
        optim.check_covered(net, first)
    before = net.natives[0].export_rows()["values"]
    with pytest.raises(RuntimeError, match="another optimizer was created for this table later"):
        first_cell(IDS)
        first.global_step.asnumpy()
    assert (net.natives[0].export_rows()["values"] == before).all()
    for native in net.natives:
        native.discard_gradients()
    train_cell(net, second)(IDS)
    assert second.global_step.asnumpy() == [1]
    assert net.natives[0].step == 2


def test_another_rule_warns_while_the_first_optimizer_is_alive():
    net = TwoTables()
    first = optim.SGD(net.trainable_params(), 0.1)
    with pytest.warns(RuntimeWarning, match=r"taken over by FTRL \('ftrl'\) from .* SGD \('sgd'\)"):
        optim.FTRL(net.trainable_params())
    del first
    gc.collect()


def test_another_rule_is_silent_once_the_first_optimizer_is_gone():
    net = TwoTables()
    optim.SGD(net.trainable_params(), 0.1)
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optim.FTRL(net.trainable_params())


def test_two_lookups_of_one_table_are_one_step(mode):
    table = MapParameter(name=f"shared{next(_names)}", value_shape=2, default_value=0.0)

    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.left = HashEmbeddingLookup(2, table=table)
            self.right = HashEmbeddingLookup(2, table=table)

        def construct(self, ids):
            return self.left(ids).sum() + 3 * self.right(ids + 1).sum()

    net = Twice()
    optimizer = optim.LazyAdam(net.trainable_params(), 0.1)
    assert optimizer.parameters == (table.anchor,)
    train_cell(net, optimizer)(Tensor([1, 2], ms.int32))
    assert optimizer.global_step.asnumpy() == [1]
    assert table.step == 1
    # Adam's first step is the rate, whatever the gradient: twice it would be two steps.
    rows = table.read_rows(np.array([1, 2, 3]))
    np.testing.assert_allclose(rows, np.full((3, 2), -0.1), rtol=1e-5)


@pytest.mark.parametrize("name", ["linear", "moments", "learning_rate_group_0", "accum"])
def test_a_parameter_may_be_called_like_an_optimizers_state(name):
    w = Parameter(Tensor([1.0, 2.0], ms.float32), name=name)
    for cls in (optim.FTRL, optim.Adagrad):
        cls([w], learning_rate=0.1)((Tensor([0.0, 0.0], ms.float32),))


BAD = [
    (optim.LazyAdam, {"learning_rate": -0.1}, ValueError, "learning_rate must be a finite .* >= 0"),
    (optim.LazyAdam, {"learning_rate": float("nan")}, ValueError, "learning_rate .* got nan"),
    (optim.LazyAdam, {"learning_rate": float("inf")}, ValueError, "learning_rate .* got inf"),
    (optim.LazyAdam, {"learning_rate": [0.1, -1]}, ValueError, r"learning_rate\[1\] must be"),
    (optim.LazyAdam, {"learning_rate": [0.1, "x"]}, TypeError, r"learning_rate\[1\] must be"),
    (optim.LazyAdam, {"learning_rate": []}, ValueError, "learning_rate must have"),
    (optim.LazyAdam, {"learning_rate": Tensor([[0.1]])}, ValueError, r"got shape \(1, 1\)"),
    (optim.LazyAdam, {"learning_rate": Tensor([0.1, -2.0])}, ValueError, "learning_rate .* -2"),
    (optim.LazyAdam, {"learning_rate": np.array([np.nan])}, ValueError, "learning_rate .* nan"),
    (optim.LazyAdam, {"learning_rate": "0.1"}, TypeError, "learning_rate must be a number, a Te"),
    (optim.LazyAdam, {"learning_rate": True}, TypeError, "learning_rate must be a number, got bo"),
    (optim.LazyAdam, {"learning_rate": None}, TypeError, "learning_rate must be a number, a Te"),
    (optim.LazyAdam, {"beta1": 1.0}, ValueError, r"beta1 must be in \[0, 1\), got 1"),
    (optim.LazyAdam, {"beta1": -0.1}, ValueError, r"beta1 must be in \[0, 1\), got -0.1"),
    (optim.LazyAdam, {"beta2": float("nan")}, ValueError, r"beta2 must be in \[0, 1\), got nan"),
    (optim.LazyAdam, {"beta2": "0.9"}, TypeError, "beta2 must be a number, got str"),
    (optim.LazyAdam, {"eps": 0.0}, ValueError, "eps must be a finite number > 0, got 0"),
    (optim.LazyAdam, {"use_nesterov": 1}, TypeError, "use_nesterov must be a bool, got int"),
    (optim.LazyAdam, {"weight_decay": -1}, ValueError, "weight_decay must be a finite number >= 0"),
    (optim.LazyAdam, {"weight_decay": "1"}, TypeError, "weight_decay must be a number or a Cell"),
    (optim.LazyAdam, {"loss_scale": 0}, ValueError, "loss_scale must be a finite number > 0"),
    (optim.LazyAdam, {"clip_global_norm": 0.0}, ValueError, "clip_global_norm must be a finite"),
    (optim.LazyAdam, {"clip_global_norm": "1"}, TypeError, "clip_global_norm must be a number"),
    (optim.AdamW, {"eps": -1.0}, ValueError, "eps must be"),
    (optim.FTRL, {"initial_accum": -0.1}, ValueError, "initial_accum must be"),
    (optim.FTRL, {"lr_power": 0.1}, ValueError, "lr_power must be a finite number <= 0, got 0.1"),
    (optim.FTRL, {"l1": -1.0}, ValueError, "l1 must be a finite number >= 0"),
    (optim.FTRL, {"l2": float("inf")}, ValueError, "l2 must be a finite number >= 0"),
    (optim.FTRL, {"learning_rate": 0.0}, ValueError, "learning_rate must be > 0 for FTRL"),
    (optim.FTRL, {"learning_rate": [0.1, 0.2]}, ValueError, "learning_rate must be constant"),
    (optim.Adagrad, {"accum": 0.0}, ValueError, "accum must be a finite number > 0"),
    (optim.RowWiseAdagrad, {"accum": -1.0}, ValueError, "accum must be a finite number >= 0"),
    (optim.RowWiseAdagrad, {"epsilon": 0.0}, ValueError, "epsilon must be a finite number > 0"),
    (optim.Momentum, {"learning_rate": 0.1, "momentum": 1.0}, ValueError, "momentum must be in"),
    (optim.Momentum, {"learning_rate": 0.1, "momentum": -0.1}, ValueError, "momentum must be in"),
    (optim.RMSProp, {"decay": 1.0}, ValueError, r"decay must be in \[0, 1\)"),
    (optim.RMSProp, {"momentum": 1.5}, ValueError, r"momentum must be in \[0, 1\)"),
    (optim.RMSProp, {"epsilon": 0.0}, ValueError, "epsilon must be a finite number > 0"),
    (optim.RMSProp, {"centered": 1}, TypeError, "centered must be a bool, got int"),
]


@pytest.mark.parametrize(("cls", "arguments", "error", "message"), BAD)
def test_bad_argument_is_named_and_no_table_is_bound(cls, arguments, error, message):
    net = TwoTables()
    with pytest.raises(error, match=message):
        cls(net.trainable_params(), **arguments)
    assert not any(native.has_optimizer for native in net.natives)


def test_bad_groups_are_named_and_no_table_is_bound():
    net = TwoTables()
    every = net.trainable_params()
    for params, error, message in [
        ([], ValueError, "params must hold at least one"),
        (None, TypeError, "params must be an iterable .* got NoneType"),
        (every[0], TypeError, "params must be an iterable"),
        ([every[0], {"params": every[1:]}], TypeError, "Parameters only or groups only"),
        ([1, 2], TypeError, "Parameters only or groups only, got int"),
        (
            [every[0], net.user.embedding_table],
            TypeError,
            "only, got .*: the Parameter of a table is table.anchor",
        ),
        (
            [{"params": [net.user.embedding_table]}],
            TypeError,
            r"params\[0\]\['params'\] must .* table.anchor",
        ),
        ([{"lr": 0.1}], ValueError, r"params\[0\] must have the key 'params', got \['lr'\]"),
        ([{"params": every, "lr": -1.0}], ValueError, r"params\[0\]\['lr'\] must be"),
        ([{"params": every, "weight_decay": -1}], ValueError, r"params\[0\]\['weight_decay'\]"),
        ([{"params": every}, {"params": every}], RuntimeError, "already exists"),
        ([{"params": every, "lr": 0.0}], ValueError, "learning_rate must be > 0 for FTRL"),
    ]:
        with pytest.raises(error, match=message):
            optim.FTRL(params)
    assert not any(native.has_optimizer for native in net.natives)


def test_target():
    net = TwoTables()
    for cls in (optim.LazyAdam, optim.FTRL):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            optimizer = cls(net.trainable_params(), learning_rate=0.1)
        assert optimizer.target == "CPU"
        optimizer.target = "CPU"
        placed = [op for op in optimizer.dense_ops() if op.attrs.get("primitive_target") == "CPU"]
        assert placed and len(placed) == len(optimizer.dense_ops())
        with pytest.raises(ValueError, match="must be one of"):
            optimizer.target = "TPU"
        with pytest.raises(TypeError, match="must be string"):
            setattr(optimizer, "target", 1)  # noqa: B010
        with pytest.raises(ValueError, match="cannot be set to 'GPU' or 'Ascend'"):
            optimizer.target = "GPU"
    cell = train_cell(net, optimizer)
    cell(IDS)
    assert optimizer.global_step.asnumpy() == [1]
