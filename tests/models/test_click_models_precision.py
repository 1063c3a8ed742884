# SPDX-License-Identifier: Apache-2.0
"""Click models whose perceptrons compute in 16 bits."""

from __future__ import annotations

import importlib

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import tables_of
from mindspore_rec.nn import MLP
from models.common.config import from_mapping
from models.common.data import Data
from models.common.model import build, train

NAMES = ("wide_deep", "dcn", "dlrm")
ROWS = 3000


def planted(rows: int, seed: int) -> dict[str, np.ndarray]:
    """A label that two fields decide together."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 10, (rows, 3)) + 100 * np.arange(3)
    score = 2 * np.where((ids[:, :1] + ids[:, 1:2]) % 2, 1.0, -1.0)
    label = (rng.random((rows, 1)) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return {"ids": ids, "dense": rng.random((rows, 2), np.float32), "label": label}


@pytest.fixture(scope="module")
def data() -> Data:
    rows = planted(ROWS, 0)

    def batches(batch_size, epochs):
        for _ in range(epochs):
            for at in range(0, ROWS, batch_size):
                yield {name: column[at : at + batch_size] for name, column in rows.items()}

    return Data("planted", 3, 2, batches, ROWS, [planted(2000, 1)])


def config_of(name: str, compute_dtype: str, **network):
    model = importlib.import_module(f"models.{name}.config").MODEL
    shape = {"bottom": [8], "top": [16]} if name == "dlrm" else {"hidden": [16]}
    values = {
        "data": {"kind": "criteo"},  # not opened: what follows is given the data itself
        "embedding": {"embedding_dim": 4, "std": 0.1},
        "model": {**shape, **network},
        "optimizer": {"learning_rate": 0.02},
        "train": {"batch_size": 200, "epochs": 6, "evaluations": 1},
        "compute_dtype": compute_dtype,
    }
    return model, from_mapping(model.config, values)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_learns_as_single_does(graph_mode, data, unique, name, half):
    found = {}
    more = {"dropout": 0.1, "batch_norm": True} if name == "wide_deep" else {}
    table = unique()
    for kind in ("float32", half):
        model, config = config_of(name, kind, **more)
        run = train(model, config, data, table, progress=False)
        found[kind] = run.summary.metrics
        network = run.model._network
        for parameter in network.get_parameters():
            assert parameter.dtype not in (
                ms.float16,
                ms.bfloat16,
            )  # weights and rows stay as they are
        for each in tables_of(run.model.train_network):
            each.close()
    assert found["float32"]["auc"] > 0.8
    assert found[half] != found["float32"]  # it does compute otherwise
    assert abs(found[half]["auc"] - found["float32"]["auc"]) < 0.01
    assert abs(found[half]["log_loss"] - found["float32"]["log_loss"]) < 0.02


def test_logits_are_single_precision_and_layers_half(graph_mode, data, unique):
    model, config = config_of("dlrm", "float16")
    built = build(model, config, data, unique())
    batch = data.test[0]
    assert built.predict(batch["ids"], batch["dense"]).dtype == ms.float32
    perceptrons = [c for _, c in built._network.cells_and_names() if isinstance(c, MLP)]
    assert len(perceptrons) == 2
    for each in perceptrons:
        first = each.layers[0]
        assert isinstance(first, nn.Dense)
        assert first(ms.ops.ones((2, first.in_channels))).dtype == ms.float16
    for table in tables_of(built.train_network):
        table.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("int8", "'compute_dtype' must be one of"),
        ("float64", "'compute_dtype' must be one of"),
    ],
)
def test_types_that_are_not_there_are_refused(kind, words):
    with pytest.raises(ValueError, match=words):
        config_of("deepfm", kind)
