# SPDX-License-Identifier: Apache-2.0
"""Configurations say which key is wrong and what is legal there; `embedding` becomes a table's."""

from __future__ import annotations

import dataclasses
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore.common.initializer import Normal

from mindspore_rec import CacheConfig, CountAdmission, Eviction, SsdConfig, TableConfig, tables_of
from models.common.config import from_mapping, read_yaml, to_json
from models.common.data import Data
from models.common.embedding import EmbeddingConfig
from models.common.model import build, figures, train
from models.common.vocabulary import with_vocabulary
from models.deepfm.config import MODEL, Config

ROWS = 2000
CRITEO = {"data": {"kind": "criteo"}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"data": {"kind": "avazu"}},
            "'data.kind' must be one of 'synthetic', 'criteo', 'census_income', 'movielens', got "
            "'avazu'",
        ),
        ({"data": {"kind": ["criteo"]}}, "'data.kind' must be one of 'synthetic'"),
        ({"data": {"kind": "synthetic"}}, "'data.rows' is missing"),
        (
            {"data": {"kind": "synthetic", "rows": True}},
            "'data.rows' must be of type int, got True",
        ),
        ({"data": {"kind": "movielens", "tset": 0.1}}, "'data.tset' is not known; known are kind"),
        ({**CRITEO, "embedding": [1]}, r"'embedding' must be a mapping, got \[1\]"),
        ({**CRITEO, "embedding": None}, "'embedding' must be"),
        ({**CRITEO, "embedding": {"std": "0.1"}}, "'embedding.std' must be of type float"),
        ({**CRITEO, "embedding": {"buckets": 5.0}}, "'embedding.buckets' must be of type int"),
        (
            {**CRITEO, "embedding": {"cache": {"ssd": {"path": 3}}}},
            "'embedding.cache.ssd.path' must be of type str or path, got 3",
        ),
        ({**CRITEO, "embedding": {"cache": {"host_rows": 3}}}, "host_rows must be left out"),
        ({**CRITEO, "model": {"hidden": [True]}}, r"'model.hidden\[0\]' must be of type int"),
        ({**CRITEO, "model": {"batch_norm": 1}}, "'model.batch_norm' must be of type bool"),
        ({**CRITEO, "compute_dtype": "int8"}, "'compute_dtype' must be one of 'float32'"),
        (
            {**CRITEO, "embedding": {"kind": "converted", "buckets": 7}},
            "'embedding.buckets' must be left out where ids are numbered",
        ),
        ([1], "must be a mapping"),
    ],
)
def test_the_message_has_the_path_and_what_is_legal(values, message):
    with pytest.raises(ValueError, match=message):
        from_mapping(Config, values)


def test_a_file_is_named_in_its_errors(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data: {kind: criteo}\nmodel: {hiden: [3]}\n")
    with pytest.raises(ValueError, match=r"mine.yaml: 'model.hiden' is not known; known are numb"):
        read_yaml(path, Config)
    path.write_text("data: [")
    with pytest.raises(ValueError, match=r"mine.yaml: line 1, column 8: expected the node content"):
        read_yaml(path, Config)
    with pytest.raises(ValueError, match=r"none.yaml"):
        read_yaml(tmp_path / "none.yaml", Config)


def test_whole_numbers_are_floats_where_floats_are_asked_for():
    found = from_mapping(Config, {**CRITEO, "embedding": {"std": 1}}).embedding.std
    assert isinstance(found, float) and found == 1.0


def test_keys_of_earlier_versions_are_read_with_a_warning():
    tiers = {"host_rows": 9, "ssd_path": "rows", "ssd_bytes": 1 << 30, "ssd_direct": False}
    with pytest.warns(FutureWarning, match="the key '.*' is deprecated") as caught:
        held = from_mapping(Config, {**CRITEO, "embedding": {"dim": 3, "cache": tiers}}).embedding
    assert held.embedding_dim == 3
    assert sorted(str(each.message).split("'")[3] for each in caught) == [
        "embedding_dim",
        "ssd.direct",
        "ssd.max_bytes",
        "ssd.path",
    ]
    assert held.cache == CacheConfig(host_rows=9, ssd=SsdConfig("rows", 1 << 30, direct=False))


def test_every_field_of_the_section_reaches_the_table(tmp_path):
    tiers: dict[str, Any] = {"host_rows": 9, "ssd": {"path": str(tmp_path)}}
    cache = CacheConfig(host_rows=9, ssd=SsdConfig(tmp_path))
    section = {
        "embedding_dim": 3, "std": 0.5, "admission_threshold": 4, "max_idle_steps": 5,
        "max_rows": 6, "unknown_value": 0.25, "cache": tiers, "value_dtype": "float16",
        "state_dtype": "bfloat16", "rounding": "nearest",
    }  # fmt: skip
    held = from_mapping(Config, {**CRITEO, "embedding": section}).embedding
    assert held.table("mine", 8) == TableConfig(
        3,
        name="mine",
        key_dtype=ms.int64,
        initializer=Normal(0.5),
        seed=8,
        admission=CountAdmission(4),
        eviction=Eviction(max_idle_steps=5, max_rows=6),
        unknown_value=0.25,
        cache=cache,
        value_dtype=ms.float16,
        state_dtype=ms.bfloat16,
        rounding="nearest",
    )
    static = EmbeddingConfig(kind="static", buckets=70, cache=cache)
    assert static.table("mine", dim=1, initializer="zeros") == TableConfig(
        1, name="mine", initializer="zeros", seed=0, vocab_size=70, cache=cache
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"value_dtype": "int8"}, "'embedding.value_dtype' must be one of"),
        ({"state_dtype": "float16"}, "'embedding.state_dtype' must be one of"),
        ({"rounding": "up"}, "'embedding.rounding' must be one of"),
        (
            {"kind": "static", "buckets": 5, "host_device_mix": False, "value_dtype": "bfloat16"},
            "must be 'float32' unless tables are on the host",
        ),
    ],
)
def test_precisions_that_tables_do_not_have_are_refused(section, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingConfig(**section)


def test_a_configuration_comes_back_from_its_json():
    values = {**CRITEO, "embedding": {"kind": "static", "buckets": 5}, "model": {"hidden": [3, 4]}}
    config = from_mapping(Config, values)
    written = to_json(config)
    written["model"]["hidden"] = list(written["model"]["hidden"])  # as JSON has it
    assert from_mapping(Config, written) == config


def planted(seed: int) -> dict[str, np.ndarray]:
    """A label that the first id decides, with some noise."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 20, (ROWS, 3)) + 100 * np.arange(3)
    label = (ids[:, :1] % 2 == (rng.random((ROWS, 1)) < 0.9)).astype(np.float32)
    return {"ids": ids, "label": label}


@pytest.mark.parametrize("held", [{"kind": "static", "vocabulary": True}, {"kind": "converted"}])
def test_a_model_of_one_task_takes_numbered_ids(graph_mode, unique, held):
    rows, test = planted(0), planted(1)

    def batches(size, epochs):
        for _ in range(epochs):
            for at in range(0, ROWS, size):
                yield {name: column[at : at + size] for name, column in rows.items()}

    groups = {"low": test["ids"][:, 0] < 10}
    data = with_vocabulary(Data("planted", 3, 0, batches, ROWS, [test], groups=groups))
    values = {
        **CRITEO,
        "embedding": {"embedding_dim": 4, **held},
        "model": {"hidden": [8]},
        "optimizer": {"learning_rate": 0.02},
        "train": {"batch_size": 100, "epochs": 2, "evaluations": 1},
    }
    config = from_mapping(Config, values)
    run = train(MODEL, config, data, unique(), progress=False)
    found = figures(MODEL, config, data, run)
    assert {table["rows"] for table in found["tables"]} == {data.vocabulary}
    assert found["metrics"]["auc"] == found["evaluation"]["auc"] > 0.7
    assert found["evaluation"]["auc.low"] != found["evaluation"]["auc"]
    for table in tables_of(run.model.train_network):
        table.close()


def test_several_labels_are_refused_by_a_model_of_one_task(unique):
    config = from_mapping(Config, CRITEO)
    data = Data("two labels", 2, 0, lambda *_: [], 1, [], tasks=("a", "b"))
    with pytest.raises(ValueError, match=r"data.tasks must be one task: .*\('a', 'b'\)"):
        build(MODEL, config, data, unique())
    assert dataclasses.replace(data, tasks=("a",)).endings == ("",) != data.endings
