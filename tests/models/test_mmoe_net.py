# SPDX-License-Identifier: Apache-2.0
"""The MMoE network is its formula; both tasks are learnt; configurations are strict."""

from __future__ import annotations

import dataclasses
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec import LazyAdam, RecModel, tables_of
from mindspore_rec.metrics import functional
from mindspore_rec.models import MMoE
from models.common.config import from_mapping
from models.common.data import Data
from models.common.embedding import EmbeddingConfig
from models.common.evaluation import evaluate
from models.common.features import PackedFeatures
from models.common.model import build, read_config, train
from models.common.task_lines import report
from models.mmoe.config import MODEL, Config
from tests.support.native_table import native_of

CENSUS = {"data": {"kind": "census_income", "tasks": ["income", "never_married"]}}


def make_batch(rows=12, fields=3, numbers=2, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(-(1 << 62), 1 << 62, (rows, fields))
    dense = rng.standard_normal((rows, numbers)).astype(np.float32)
    return ids, dense, (rng.random((rows, 2)) < 0.5).astype(np.float32)


def described(fields=3, numbers=2, **embedding: Any) -> PackedFeatures:
    config = EmbeddingConfig(**{"embedding_dim": 4, **embedding})
    return PackedFeatures(fields, numbers, config, ("one", "two"))


def expected_logits(net: MMoE, ids: np.ndarray, dense: np.ndarray | None) -> np.ndarray:
    """Embeddings, experts, gates and towers in NumPy, of a net with one expert layer."""
    table = native_of(net.inputs.embedding.table.embedding_table)
    x = table.lookup(ids.reshape(-1)).reshape(len(ids), -1)
    if dense is not None:
        x = np.concatenate([x, dense], 1)

    def linear(cell: nn.Dense, values: np.ndarray) -> np.ndarray:
        product = values @ cell.weight.asnumpy().T
        return product + cell.bias.asnumpy() if cell.has_bias else product

    mixture = net.mixture
    outputs = np.maximum(linear(mixture.first.layers[0], x), 0)
    outputs = outputs.reshape(len(ids), mixture.experts, mixture.width)
    scores = np.exp(linear(mixture.gates, x)).reshape(len(ids), mixture.tasks, mixture.experts)
    mixed = np.einsum("bte,beh->tbh", scores / scores.sum(2, keepdims=True), outputs)
    logits = []
    for k, tower in enumerate(net.towers):
        hidden, out = (cell for cell in tower.layers if isinstance(cell, nn.Dense))
        logits.append(linear(out, np.maximum(linear(hidden, mixed[k]), 0)))
    return np.concatenate(logits, 1)


@pytest.mark.parametrize("numbers", [0, 2])
def test_logits_are_the_formula_after_training(mode, unique, numbers):
    ids, dense, label = make_batch(numbers=numbers)
    columns = (ids, dense) if numbers else (ids,)
    towers: dict[str, Any] = {"tower_hidden": (5,), "name": unique()}
    net = MMoE(described(numbers=numbers), experts=3, expert_hidden=(6,), **towers)
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.05)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    before = model.train(1, [(*columns, label)], progress=False).loss
    assert model.train(60, [(*columns, label)], progress=False).loss < 0.5 * before
    got = model.predict(*columns).asnumpy()
    assert got.shape == (12, 2)
    expected = expected_logits(net, ids, dense if numbers else None)
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=5e-3)


def test_the_loss_is_the_mean_of_the_tasks_log_losses(graph_mode, unique):
    ids, dense, label = make_batch(64)
    net = MMoE(described(), name=unique())
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    model.train(1, [(ids, dense, label)], progress=False)
    logits = model.predict(ids, dense).asnumpy()
    losses = [functional.log_loss(label[:, k], logits[:, k], from_logits=True) for k in range(2)]
    found = model.train(1, [(ids, dense, label)], progress=False).loss
    assert found == pytest.approx(np.mean(losses), rel=1e-3)


def test_ids_are_admitted_at_the_threshold_and_evicted_after_idle_steps(graph_mode, unique):
    features = described(2, 0, admission_threshold=3, max_idle_steps=5)
    net = MMoE(features, name=unique())
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()))
    label = np.ones((2, 2), np.float32)
    rare, usual = np.array([[1, 2], [3, 4]]), np.array([[7, 7], [7, 8]])
    model.train(1, [(rare, label)] + [(usual, label)] * 3, progress=False)
    table = net.inputs.embedding.table.embedding_table
    assert set(table.get_keys().asnumpy().tolist()) == {7, 8}
    model.train(1, [(np.full((2, 2), 9), label)] * 20, progress=False)
    assert set(table.get_keys().asnumpy().tolist()) == {9}


def test_dropout_of_each_kind_acts_in_training_only(graph_mode, unique):
    ids, dense, _ = make_batch(64)
    for kind in ("input_dropout", "expert_dropout"):
        rates: dict[str, Any] = {kind: 0.5}
        net = MMoE(described(embedding_dim=8, std=0.5), name=unique(), **rates)
        LazyAdam(net.trainable_params())
        net.set_train(True)
        noisy = [net(Tensor(ids), Tensor(dense)).asnumpy() for _ in range(2)]
        assert np.abs(noisy[0] - noisy[1]).max() > 1e-3, kind
        net.set_train(False)
        quiet = [net(Tensor(ids), Tensor(dense)).asnumpy() for _ in range(2)]
        np.testing.assert_array_equal(*quiet)


def toy_data(rows: int = 1200) -> Data:
    """Two tasks that read different fields; one group of test rows."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 20, (rows, 3)) + np.array([0, 100, 200])
    dense = rng.standard_normal((rows, 1)).astype(np.float32)
    score = np.stack([ids[:, 0] % 7 - 3 + dense[:, 0], (ids[:, 1] - 110) / 4 + dense[:, 0]], 1)
    label = (rng.random((rows, 2)) < 1 / (1 + np.exp(-score))).astype(np.float32)
    batch = {"ids": ids, "dense": dense, "label": label}
    test = [{k: v[i : i + 150] for k, v in batch.items()} for i in (900, 1050)]

    def batches(size: int, epochs: int) -> list[dict[str, np.ndarray]]:
        parts = [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, 900, size)]
        return parts * epochs

    groups = {"low": dense[900:, 0] < 0}
    return Data("toy", 3, 1, batches, 900, test, tasks=("one", "two"), groups=groups)


def test_both_tasks_are_learnt_and_groups_are_evaluated_apart(graph_mode, unique):
    config = from_mapping(
        Config,
        {
            **CENSUS,
            "optimizer": {"learning_rate": 0.02, "learning_rate_end": 0.0},
            "train": {"batch_size": 100, "epochs": 20, "evaluations": 2},
        },
    )
    data = toy_data()
    before = evaluate(build(MODEL, config, data, unique()), data).metrics
    run = train(MODEL, config, data, unique(), progress=False)
    for task in data.tasks:
        assert before[f"auc.{task}"] < 0.65 < 0.75 < run.metrics[f"auc.{task}"]
    # by hand, from the predictions
    low = data.groups["low"]
    label = np.concatenate([batch["label"] for batch in data.test])[low]
    ids, dense = (np.concatenate([batch[c] for batch in data.test]) for c in ("ids", "dense"))
    logits = run.model.predict(ids, dense).asnumpy()[low]
    for k, task in enumerate(data.tasks):
        assert run.metrics[f"auc.{task}.low"] == pytest.approx(
            functional.auc(label[:, k], logits[:, k]), abs=1e-6
        )
        assert run.metrics[f"auc.{task}.low"] != run.metrics[f"auc.{task}"]
    step, metrics = run.summary.history[-1]
    assert step == run.summary.steps == 180
    assert metrics == pytest.approx({k: run.metrics[k] for k in metrics})
    assert len(tables_of(run.model.train_network)) == 1
    lines = report(data, "seed 0", run.metrics).splitlines()
    assert len(lines) == 2 + 4 and lines[-1].split()[:2] == ["low", "two"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": 0}, "fields"),
        ({"numbers": -1}, "numbers"),
        ({"tasks": ()}, "tasks"),
        ({"held": {"embedding_dim": 0}}, "embedding.embedding_dim"),
        ({"experts": 0}, "experts"),
        ({"expert_hidden": ()}, "hidden"),
        ({"input_dropout": 1.0}, "input_dropout"),
        ({"expert_dropout": -0.1}, "dropout"),
        ({"held": {"admission_threshold": 0}}, "embedding.admission_threshold"),
        ({"held": {"max_idle_steps": 0}}, "embedding.max_idle_steps"),
    ],
)
def test_bad_arguments(unique, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        config = EmbeddingConfig(**arguments.pop("held", {}))
        described: dict[str, Any] = {"fields": 2, "numbers": 1, "tasks": ("one", "two")}
        described = {key: arguments.pop(key, value) for key, value in described.items()}
        MMoE(PackedFeatures(config=config, **described), name=unique(), **arguments)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "'data' is missing"),
        ({"data": {"kind": "criteo"}}, "data.kind"),
        ({**CENSUS, "model": {"expert": 3}}, "'model.expert' is not known"),
        (
            {**CENSUS, "embedding": {"embedding_dim": 8.5}},
            "'embedding.embedding_dim' must be of type int",
        ),
        ({**CENSUS, "optimizer": {"learning_rate": -1}}, "learning_rate"),
        ({**CENSUS, "train": {"epochs": 0}}, "'train.epochs'"),
    ],
)
def test_configurations_are_strict(values, message):
    with pytest.raises(ValueError, match=message):
        from_mapping(Config, values)


@pytest.mark.parametrize("path", sorted(MODEL.configs.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_models_own_configurations_can_be_built(graph_mode, unique, path):
    config = read_config(MODEL, path)
    assert config.data.tasks == ("income", "never_married")
    assert config.data.validation == 0.0
    data = dataclasses.replace(toy_data(), fields=32, dense=7)
    net = build(MODEL, config, data, unique()).train_network
    [table] = tables_of(net)
    assert table.key_dtype == ms.int64 and table.dim == config.embedding.dim


def test_the_reference_is_the_papers_architecture():
    config = read_config(MODEL, "reference.yaml")
    model = config.model
    assert (model.experts, model.expert_hidden, model.tower_hidden) == (8, (16,), (8,))
    assert 4 <= config.embedding.dim <= 8
