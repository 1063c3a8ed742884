# SPDX-License-Identifier: Apache-2.0
"""A click model whose rows live in tiers, by configuration alone, learns the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native, tables_of
from models.common.config import from_mapping
from models.common.data import Data
from models.common.model import ZooModel, figures, train
from models.deepfm.config import MODEL

ROWS, VALUES = 2000, 400


def columns(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, VALUES, (ROWS, 3)) + VALUES * np.arange(3)
    label = (ids[:, :1] % 2 == rng.integers(0, 4, (ROWS, 1)) % 3).astype(np.float32)
    return {"ids": ids, "label": label}


@pytest.fixture(scope="module")
def data() -> Data:
    rows = columns(0)

    def batches(batch_size, epochs):
        for _ in range(epochs):
            for at in range(0, ROWS, batch_size):
                yield {name: column[at : at + batch_size] for name, column in rows.items()}

    return Data("planted", 3, 0, batches, ROWS, [columns(1)])


def config_of(model: ZooModel, embedding: dict[str, Any]) -> Any:
    values = {
        "data": {"kind": "criteo"},  # not opened: what follows is given the data itself
        "embedding": {"embedding_dim": 4, **embedding},
        "model": {"hidden": [8]},
        "optimizer": {"learning_rate": 0.02},
        "train": {"batch_size": 50, "epochs": 2, "evaluations": 1},
    }
    return from_mapping(model.config, values)


@pytest.mark.skipif(not hasattr(_native.Table, "set_cache"), reason="native build without tiers")
@pytest.mark.parametrize("held", [{}, {"tables": "per_field"}, {"kind": "static", "buckets": 1200}])
def test_rows_on_ssd_learn_the_same_bits(graph_mode, data, unique, tmp_path, held):
    name, found = unique(), []
    cache = {"host_rows": 500, "ssd": {"path": str(tmp_path), "direct": False}}
    for tiers in ({}, {"cache": cache}):
        run = train(MODEL, config_of(MODEL, {**held, **tiers}), data, name, progress=False)
        if tiers:
            assert any(path.is_file() for path in tmp_path.rglob("*"))
        found.append((run.summary.metrics, run.summary.loss))
        for table in tables_of(run.model.train_network):
            table.close()
    assert found[0] == found[1]


def test_a_password_is_not_in_the_figures(graph_mode, data, unique):
    plain = config_of(MODEL, {})
    run = train(MODEL, plain, data, unique(), progress=False)
    url = "redis://user:secret@host:6379/0"
    tiers = {"cache": {"host_rows": 500, "remote": url}}
    said = figures(MODEL, config_of(MODEL, tiers), data, run)
    for table in tables_of(run.model.train_network):
        table.close()
    assert said["config"]["embedding"]["cache"]["remote"] == "redis://host:6379/0"
    assert "secret" not in str(said)


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ({"cache": {"host_rows": 5}}, "host_rows must be left out"),
        ({"cache": {"rows": 5}}, "'embedding.cache.rows' is not known"),
        ({"cache": {"host_rows": 5, "ssd": {"path": 3}}}, "'embedding.cache.ssd.path' must be of"),
        (
            {
                "kind": "static",
                "buckets": 5,
                "host_device_mix": False,
                "cache": {"host_rows": 5, "ssd": {"path": "x"}},
            },
            "host_device_mix",
        ),
    ],
)
def test_tiers_that_are_refused(embedding, message):
    with pytest.raises(ValueError, match=message):
        config_of(MODEL, embedding)
