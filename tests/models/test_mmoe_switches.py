# SPDX-License-Identifier: Apache-2.0
"""Every way to hold MMoE's embeddings trains; those that must not matter do not."""

from __future__ import annotations

import argparse
import dataclasses

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import CacheConfig, SsdConfig, load_checkpoint, save_checkpoint, tables_of
from models.common.data import CensusIncome, Data
from models.common.embedding import EmbeddingConfig
from models.common.evaluation import evaluate
from models.common.model import build, train
from models.common.optimizer import OptimizerConfig
from models.common.switches import add_switches, with_switches
from models.common.training import TrainConfig
from models.common.vocabulary import UNKNOWN, with_vocabulary
from models.mmoe.config import MODEL, Config, ModelConfig

ROWS, FIELDS = 3000, 3


def planted(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Two labels that the first and the second id decide, with some noise; keys are spread."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 40, (rows, FIELDS)) + 100 * np.arange(FIELDS)
    score = np.stack([values[:, 0] % 5 - 2.0, values[:, 1] % 3 - 1.0], 1)
    label = (rng.random((rows, 2)) < 1 / (1 + np.exp(-1.5 * score))).astype(np.float32)
    keys = (values * 0x9E3779B97F4A7C1) % (1 << 62)
    return {"ids": keys, "dense": rng.random((rows, 1)).astype(np.float32), "label": label}


@pytest.fixture(scope="module")
def data() -> Data:
    rows, test = planted(0), planted(1, 2000)

    def batches(batch_size, epochs):
        for _ in range(epochs):
            for at in range(0, ROWS, batch_size):
                yield {name: column[at : at + batch_size] for name, column in rows.items()}

    return Data("planted", FIELDS, 1, batches, ROWS, [test], tasks=("a", "b"))


def config(**embedding) -> Config:
    return Config(
        data=CensusIncome(),  # not opened: what follows is given the data itself
        embedding=held(**embedding),
        model=ModelConfig(experts=2, expert_hidden=(8,)),
        optimizer=OptimizerConfig(learning_rate=0.02),
        train=TrainConfig(batch_size=500, epochs=4, evaluations=1),
    )


def held(**embedding) -> EmbeddingConfig:
    return EmbeddingConfig(**{"embedding_dim": 4, "std": 0.05, **embedding})


STATIC = {"kind": "static", "vocabulary": True}
CONVERTED = {"kind": "converted"}


@pytest.fixture(autouse=True)
def graph():
    ms.set_context(mode=ms.GRAPH_MODE)


def close(model) -> None:
    for table in tables_of(model.train_network):
        table.close()


def metrics(data, **embedding) -> dict[str, float]:
    chosen = config(**embedding)
    if chosen.embedding.kind != "hash":
        data = with_vocabulary(data)
    run = train(MODEL, chosen, data, "switches", progress=False)
    rows = [table.stats()["rows"] for table in tables_of(run.model.train_network)]
    close(run.model)
    return {**run.metrics, "rows": rows[0]}


def test_a_lookup_a_field_changes_no_bit(data):
    assert metrics(data, multi_lookup=True) == metrics(data)


@pytest.mark.parametrize("embedding", [{"kind": "hash"}, STATIC, CONVERTED])
def test_every_kind_learns(data, embedding):
    found = metrics(data, **embedding)
    assert found["auc.a"] > 0.75 and found["auc.b"] > 0.7
    assert found["rows"] == 120 + (embedding["kind"] != "hash"), (
        "one row an id, and one for unknown ids"
    )


def test_admission_and_eviction_reach_the_table(data):
    everything = metrics(data)["rows"]
    assert metrics(data, admission_threshold=10**6)["rows"] == 0 < everything
    assert metrics(data, **CONVERTED, max_idle_steps=10**6)["rows"] == everything + 1


def test_a_converted_model_is_saved_and_loaded(data, tmp_path):
    numbered = with_vocabulary(data)
    chosen = config(**CONVERTED)
    run = train(MODEL, chosen, numbered, "switches.saved", progress=False)
    save_checkpoint(run.model, tmp_path / "saved")
    close(run.model)
    again = build(MODEL, chosen, numbered, "switches.saved")
    load_checkpoint(again, tmp_path / "saved")
    assert evaluate(again, numbered).metrics == run.metrics
    close(again)


def test_numbers_of_keys(data):
    numbered = with_vocabulary(data)
    vocabulary = numbered.vocabulary
    keys = np.concatenate([batch["ids"] for batch in data.train(700, 1)])
    ids = np.concatenate([batch["ids"] for batch in numbered.train(700, 1)])
    assert vocabulary == len(np.unique(keys)) + 1
    assert ids.min() == UNKNOWN + 1 and ids.max() == vocabulary - 1
    for key in np.unique(keys)[:20]:
        assert len(np.unique(ids[keys == key])) == 1
    strange = {**planted(2, 10), "ids": np.full((10, FIELDS), -7)}
    replaced = with_vocabulary(Data("x", FIELDS, 1, data.train, ROWS, [strange]))
    assert (replaced.test[0]["ids"] == UNKNOWN).all()


def test_switches_change_what_they_name():
    parser = argparse.ArgumentParser()
    add_switches(parser)
    given = ["--embedding", "hash", "--multi-lookup", "--admission-threshold", "3"]
    changed = with_switches(config(), parser.parse_args(given)).embedding
    assert changed == held(multi_lookup=True, admission_threshold=3)
    assert with_switches(config(), parser.parse_args([])) == config()


def test_switches_of_tiers(tmp_path):
    parser = argparse.ArgumentParser()
    add_switches(parser)
    given = parser.parse_args(["--host-rows", "500", "--ssd-path", str(tmp_path)])
    tiers = CacheConfig(host_rows=500, ssd=SsdConfig(tmp_path))
    assert with_switches(config(), given).embedding == config(cache=tiers).embedding
    more = parser.parse_args(["--device-rows", "100", "--host-rows", "300"])
    changed = with_switches(config(cache=tiers), more).embedding.cache
    assert changed == CacheConfig(device_rows=100, host_rows=300, ssd=SsdConfig(tmp_path))
    with pytest.raises(ValueError, match="host_rows must be left out without"):
        with_switches(config(), parser.parse_args(["--host-rows", "500"]))


def test_half_precision_learns_as_single_does(data):
    found = []
    for dtype in ("float32", "float16"):
        chosen = dataclasses.replace(config(), compute_dtype=dtype)
        run = train(
            MODEL, chosen, data, "switches.half", progress=False
        )  # the name decides first values
        close(run.model)
        found.append(run.metrics)
    single, half = found
    assert single != half  # it does compute in another type
    for name, value in single.items():
        assert half[name] == pytest.approx(value, abs=0.01), name


def test_a_compute_type_that_is_not_there():
    with pytest.raises(ValueError, match="compute_dtype"):
        dataclasses.replace(config(), compute_dtype="float8")


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        ({"kind": "dict"}, "'embedding.kind' must be one of"),
        ({**STATIC, "admission_threshold": 2}, "are for hash tables"),
        ({**STATIC, "max_idle_steps": 2}, "are for hash tables"),
        ({**CONVERTED, "admission_threshold": 2}, "must be 1 with a converted"),
        ({**STATIC, "multi_lookup": True}, "is for 'embedding.kind: hash'"),
    ],
)
def test_switches_that_do_not_go_together(embedding, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingConfig(**embedding)


@pytest.mark.parametrize("embedding", [{}, {"multi_lookup": True}, STATIC])
def test_rows_on_ssd_learn_the_same_bits(data, unique, tmp_path, embedding):
    name, found = unique(), []
    cache = CacheConfig(host_rows=95, ssd=SsdConfig(tmp_path, direct=False))
    of_table = with_vocabulary(data) if embedding is STATIC else data
    for tiers in (None, cache):
        small = TrainConfig(batch_size=30, epochs=1, evaluations=1)
        made = dataclasses.replace(config(cache=tiers, **embedding), train=small)
        run = train(MODEL, made, of_table, name, progress=False)
        found.append(run.metrics)
        close(run.model)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    assert found[0] == found[1]


def test_a_converted_embedding_has_no_tiers(tmp_path):
    with pytest.raises(ValueError, match=r"embedding\.cache"):
        config(**CONVERTED, cache=CacheConfig(host_rows=9, ssd=SsdConfig(tmp_path)))
