# SPDX-License-Identifier: Apache-2.0
"""Members: an ensemble of networks that share their tables and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec import LazyAdam, RecModel, Schema, models, tables_of
from mindspore_rec.common.metrics.functional import sigmoid
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn, WeightColumn
from mindspore_rec.nn import FusedLayer
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.loop.cells import LossCell
from mindspore_rec.train.loop.schema_loss import SchemaLossCell, loss_of
from mindspore_rec.train.nn.members import MemberLogits, MemberRows
from tests.support.nightly import examples

NAMES = ("dcn", "dcn_v2", "deepfm", "dlrm", "mmoe", "wide_deep")
SMALL: dict[str, Any] = {"dlrm": {"bottom": (8,), "top": (8,)}, "mmoe": {"experts": 2}}
ROWS, KEYS = 9, 12


def schema_of(labels: list[LabelColumn], weight: bool = False) -> Schema:
    columns = [CategoryColumn("user"), CategoryColumn("item", table="items"), NumberColumn("price")]
    return Schema([*columns, *labels, *[WeightColumn("w")] * weight], embedding_dim=4)


LABELS = [LabelColumn("clicked"), LabelColumn("bought")]
ONE, TWO = schema_of(LABELS[:1]), schema_of(LABELS)


@pytest.fixture
def make(unique: Any) -> Iterator[Any]:
    """Make networks with equal rows in their tables, which are closed at the end."""
    nets: list[nn.Cell] = []
    optimizers: list[nn.Cell] = []  # a table without one is not looked up in training

    def made(name: str, schema: Schema | None = None, **settings: Any) -> models.Network:
        schema = schema or (TWO if name == "mmoe" else ONE)
        settings = SMALL.get(name, {"hidden": (8,)}) | settings
        net = models.get(name)(schema, name=unique(), **settings)
        nets.append(net)
        optimizers.append(LazyAdam(net.trainable_params(), 0.02))
        keys = np.arange(KEYS)
        for k, table in enumerate(tables_of(net)):
            rows = np.random.default_rng(k).normal(0, 0.5, (KEYS, table.dim))
            table.write_rows(keys, rows.astype(np.float32))
        return net

    yield made
    for net in nets:
        for table in tables_of(net):
            table.close()


def batch() -> list[Tensor]:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, KEYS, (ROWS, 3))
    return [Tensor(ids), Tensor(rng.uniform(-1, 1, (ROWS, 1)).astype(np.float32))]


def changed(net: nn.Cell) -> None:
    """Set weights that are not zeros, ones or of one sign."""
    rng = np.random.default_rng(4)
    for each in dense_parameters(net):
        each.set_data(Tensor(rng.normal(0, 0.5, each.shape).astype(np.float32)))


def mean_of(logits: np.ndarray) -> np.ndarray:
    """Logits of the mean probability of members `[K, B, T]`, in float64."""
    chance = sigmoid(logits.astype(np.float64)).mean(0)
    return np.log(chance) - np.log1p(-chance)


NETWORKS = [
    *((name, "concat") for name in NAMES),
    ("dcn_v2", "embed"),
    ("dlrm", "piecewise"),
    ("deepfm", "periodic"),
]


@pytest.mark.parametrize(("name", "numbers"), NETWORKS)
def test_an_answer_is_the_mean_of_the_members_probabilities(graph_mode, make, name, numbers):
    net = make(name, numbers=numbers, members=3)
    changed(net)
    logits = net.set_train()(*batch()).asnumpy().reshape(3, ROWS, -1)
    assert np.ptp(logits, axis=0).min() > 0  # each member has its own answer
    answer = net.set_train(False)(*batch()).asnumpy()
    assert answer.shape == (ROWS, len(net.features.tasks))
    np.testing.assert_allclose(answer, mean_of(logits), atol=2e-5)


RENAMED = dict.fromkeys(("concat", "piecewise", "periodic"), ("number_rows.first", "scaled"))
RENAMED["embed"] = ("number_rows.first.vectors", "vectors")


def without_operators(net: Any) -> None:
    """Let MindSpore's own layers compute a network."""
    for each in [net.fused_graph, *(cell for _, cell in net.cells_and_names())]:
        if isinstance(each, FusedLayer):
            each.fused_training = each.fused_evaluation = None
    assert not net.fused_graph.is_fused


@pytest.mark.parametrize(("name", "numbers"), NETWORKS)
def test_members_with_equal_weights_are_the_network_of_one_member(graph_mode, make, name, numbers):
    """Also with the operator of all layers, which the network of one member does not use here."""
    net, one = make(name, numbers=numbers, members=3), make(name, numbers=numbers)
    changed(net)
    of_one = {each.name: each for each in dense_parameters(one)}
    for each in dense_parameters(net):
        if each.name.endswith("factors"):
            each.set_data(Tensor(np.ones(each.shape, np.float32)))
            continue
        twin = of_one[each.name.replace(*RENAMED[numbers])]
        value = each.asnumpy()
        if twin.shape != each.shape:  # an output for each member
            value = np.broadcast_to(value[:1], value.shape)
            each.set_data(Tensor(np.ascontiguousarray(value)))
            value = value[:1]
        twin.set_data(Tensor(np.ascontiguousarray(value)))
    if name != "mmoe":
        assert net.fused_graph.is_fused
        without_operators(one)
    expected = one.set_train(False)(*batch()).asnumpy()
    logits = net.set_train()(*batch()).asnumpy().reshape(3, ROWS, -1)
    for each in (*logits, net.set_train(False)(*batch()).asnumpy()):
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=2e-5)


@examples(5, 40)
@given(
    members=st.integers(1, 5),
    rows=st.integers(1, 7),
    binary=st.lists(st.booleans(), min_size=1, max_size=3),
    spread=st.sampled_from([1.0, 30.0, 400.0]),
)
def test_own_logits_and_their_mean_are_the_formula(members, rows, binary, spread):
    tasks = len(binary)
    rng = np.random.default_rng(rows)
    outputs = (spread * rng.standard_normal((members * rows, tasks * members))).astype(np.float32)
    cell = MemberLogits(members, binary)
    split = outputs.reshape(members, rows, tasks, members)
    own = np.stack([split[k, :, :, k] for k in range(members)])
    logits = cell.set_train()(Tensor(outputs)).asnumpy()
    np.testing.assert_array_equal(logits, own.reshape(-1, tasks))
    answer = cell.set_train(False)(Tensor(outputs)).asnumpy()
    log_sigmoid = [-np.logaddexp(0, -sign * own.astype(np.float64)) for sign in (1, -1)]
    chance = np.logaddexp.reduce(log_sigmoid[0], 0) - np.logaddexp.reduce(log_sigmoid[1], 0)
    expected = np.where(binary, chance, own.mean(0))
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-4)


def test_rows_are_repeated_times_signs_of_members_and_vectors():
    x = np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32)
    rows = MemberRows((3, 2), 64, (7, 0))
    found = rows(Tensor(x)).asnumpy().reshape(64, 5, 3, 2)
    factors = rows.factors.asnumpy().reshape(64, 3, 2)
    np.testing.assert_array_equal(found, x * factors[:, None])
    assert set(factors.ravel().tolist()) == {1.0, -1.0} and abs(factors.mean()) < 0.3
    assert (factors[..., 0] == factors[..., 1]).all()
    again, other = (MemberRows((3, 2), 64, seed).factors.asnumpy() for seed in ((7, 0), (8, 0)))
    assert (again == rows.factors.asnumpy()).all() and (other != again).any()


def log_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return np.logaddexp(0, logits) - logits * labels


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_mean_of_the_members_losses(mode, make, weighted):
    labels = [LABELS[0], LabelColumn("stay", binary=False)]
    schema = schema_of(labels, weighted)
    net = make("mmoe", schema, members=3)
    changed(net)
    rng = np.random.default_rng(5)
    label = np.stack([rng.integers(0, 2, ROWS), rng.normal(size=ROWS)], 1).astype(np.float32)
    weight = rng.uniform(0.5, 2, (ROWS, 1)).astype(np.float32) if weighted else np.ones((ROWS, 1))
    logits = net.set_train()(*batch()).asnumpy().reshape(3, ROWS, 2)
    net.label_scale.set([0.5, 2.0], [0.5, 3.0])
    each = [log_losses(logits[..., 0], label[:, 0])]
    each += [0.5 * (logits[..., 1] - (label[:, 1] - 2) / 3) ** 2]
    expected = np.mean([loss * weight.ravel() for loss in each])
    cell = SchemaLossCell(net, loss_of(schema), schema).set_train()
    given_ = [Tensor(weight)] * weighted + [Tensor(label)]
    np.testing.assert_allclose(cell(*batch(), *given_).asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_of_the_user_is_the_mean_over_members(mode, make, reduction):
    net = make("dcn_v2", members=4)
    changed(net)
    label = np.random.default_rng(5).integers(0, 2, (ROWS, 1)).astype(np.float32)
    logits = net.set_train()(*batch()).asnumpy().reshape(4, ROWS, 1)
    losses = log_losses(logits, label)
    expected = losses.mean() if reduction == "mean" else losses.mean(0).sum()
    cell = LossCell(net, nn.BCEWithLogitsLoss(reduction=reduction)).set_train()
    np.testing.assert_allclose(cell(*batch(), Tensor(label)).asnumpy(), expected, rtol=1e-5)


def test_members_learn_and_are_made_again(mode, make):
    ms.set_seed(1)
    net = make("deepfm", members=4)
    rng = np.random.default_rng(0)
    user, price = rng.integers(0, 20, 500), rng.exponential(10, 500)
    clicked = (user % 2 == 0) ^ (price > 7)
    rows = {"user": user, "item": rng.integers(0, 9, 500), "price": price}
    rows |= {"clicked": clicked.astype(int), "bought": (user % 3 == 0).astype(int)}
    model = RecModel(net)
    batches = model.batches(pa.table(rows), 250)
    before = model.train(1, batches, progress=False).loss
    assert model.train(120, batches, progress=False).loss < 0.5 * before
    assert model.eval(pa.table(rows), progress=False)["auc"] > 0.95
    assert net.recipe()["settings"]["members"] == 4


@pytest.mark.parametrize("members", [0, 257, 2.0])
def test_other_numbers_of_members_are_refused(make, members):
    with pytest.raises((TypeError, ValueError), match="members"):
        make("dcn", members=members)
