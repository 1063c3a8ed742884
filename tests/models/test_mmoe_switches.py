# SPDX-License-Identifier: Apache-2.0
"""Every way to hold MMoE's embeddings trains; those that must not matter do not."""

from __future__ import annotations

import argparse
import dataclasses

import mindspore as ms
import numpy as np
import pytest
from models.mmoe.switches import add_switches, with_switches

from mindspore_rec import CacheConfig, load_checkpoint, save_checkpoint, tables_of
from models.common.data import CensusIncome, Data
from models.common.training import TrainConfig
from models.common.vocabulary import UNKNOWN, with_vocabulary
from models.mmoe.config import Config, ModelConfig, OptimizerConfig
from models.mmoe.run import build, evaluate, train

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


def config(**model) -> Config:
    return Config(
        data=CensusIncome(),  # not opened: what follows is given the data itself
        model=ModelConfig(dim=4, experts=2, expert_hidden=(8,), **model),
        optimizer=OptimizerConfig(learning_rate=0.02),
        train=TrainConfig(batch_size=500, epochs=4, evaluations=1),
    )


@pytest.fixture(autouse=True)
def graph():
    ms.set_context(mode=ms.GRAPH_MODE)


def close(model) -> None:
    for table in tables_of(model.train_network):
        table.close()


def metrics(data, **model) -> dict[str, float]:
    chosen = config(**model)
    vocabulary = None
    if chosen.model.embedding != "hash":
        data, vocabulary = with_vocabulary(data)
    run = train(chosen, data, "switches", progress=False, vocabulary=vocabulary)
    rows = [table.stats()["rows"] for table in tables_of(run.model.train_network)]
    close(run.model)
    return {**run.metrics, "rows": rows[0]}


def test_a_lookup_a_field_changes_no_bit(data):
    assert metrics(data, multi_lookup=True) == metrics(data)


@pytest.mark.parametrize("kind", ["hash", "static", "converted"])
def test_every_kind_learns(data, kind):
    found = metrics(data, embedding=kind)
    assert found["auc.a"] > 0.75 and found["auc.b"] > 0.7
    assert found["rows"] == 120 + (kind != "hash"), "one row an id, and one for unknown ids"


def test_admission_and_eviction_reach_the_table(data):
    everything = metrics(data)["rows"]
    assert metrics(data, admission_threshold=10**6)["rows"] == 0 < everything
    assert metrics(data, embedding="converted", max_idle_steps=10**6)["rows"] == everything + 1


def test_a_converted_model_is_saved_and_loaded(data, tmp_path):
    numbered, vocabulary = with_vocabulary(data)
    chosen = config(embedding="converted")
    run = train(chosen, numbered, "switches.saved", progress=False, vocabulary=vocabulary)
    save_checkpoint(run.model, tmp_path / "saved")
    close(run.model)
    again = build(chosen, numbered, "switches.saved", vocabulary=vocabulary)
    load_checkpoint(again, tmp_path / "saved")
    assert evaluate(again, numbered) == run.metrics
    close(again)


def test_numbers_of_keys(data):
    numbered, vocabulary = with_vocabulary(data)
    keys = np.concatenate([batch["ids"] for batch in data.train(700, 1)])
    ids = np.concatenate([batch["ids"] for batch in numbered.train(700, 1)])
    assert vocabulary == len(np.unique(keys)) + 1
    assert ids.min() == UNKNOWN + 1 and ids.max() == vocabulary - 1
    for key in np.unique(keys)[:20]:
        assert len(np.unique(ids[keys == key])) == 1
    strange = {**planted(2, 10), "ids": np.full((10, FIELDS), -7)}
    replaced, _ = with_vocabulary(Data("x", FIELDS, 1, data.train, ROWS, [strange]))
    assert (replaced.test[0]["ids"] == UNKNOWN).all()


def test_switches_change_what_they_name():
    parser = argparse.ArgumentParser()
    add_switches(parser)
    given = ["--embedding", "hash", "--multi-lookup", "--admission-threshold", "3"]
    changed = with_switches(config(), parser.parse_args(given)).model
    assert changed == ModelConfig(
        dim=4, experts=2, expert_hidden=(8,), multi_lookup=True, admission_threshold=3
    )
    assert with_switches(config(), parser.parse_args([])) == config()


def test_switches_of_tiers(tmp_path):
    parser = argparse.ArgumentParser()
    add_switches(parser)
    given = parser.parse_args(["--host-rows", "500", "--ssd-path", str(tmp_path)])
    tiers = CacheConfig(host_rows=500, ssd_path=tmp_path)
    assert with_switches(config(), given).model == config(cache=tiers).model
    more = parser.parse_args(["--device-rows", "100", "--host-rows", "300"])
    changed = with_switches(config(cache=tiers), more).model.cache
    assert changed == CacheConfig(device_rows=100, host_rows=300, ssd_path=tmp_path)
    with pytest.raises(ValueError, match="host_rows must be left out without"):
        with_switches(config(), parser.parse_args(["--host-rows", "500"]))


def test_half_precision_learns_as_single_does(data):
    found = []
    for dtype in ("float32", "float16"):
        chosen = dataclasses.replace(config(), compute_dtype=dtype)
        run = train(chosen, data, "switches.half", progress=False)  # the name decides first values
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
    ("model", "message"),
    [
        ({"embedding": "dict"}, "'model.embedding' must be one of"),
        ({"embedding": "static", "admission_threshold": 2}, "are for hash tables"),
        ({"embedding": "static", "max_idle_steps": 2}, "are for hash tables"),
        ({"embedding": "converted", "admission_threshold": 2}, "must be 1 with a converted"),
        ({"embedding": "static", "multi_lookup": True}, "is for 'model.embedding: hash'"),
    ],
)
def test_switches_that_do_not_go_together(model, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**model)


@pytest.mark.parametrize("held", [{}, {"multi_lookup": True}, {"embedding": "static"}])
def test_rows_on_ssd_learn_the_same_bits(data, unique, tmp_path, held):
    name, found = unique(), []
    cache = CacheConfig(host_rows=95, ssd_path=tmp_path, ssd_direct=False)
    of_table, vocabulary = (data, None)
    if held.get("embedding") == "static":
        of_table, vocabulary = with_vocabulary(data)
    for tiers in (None, cache):
        small = TrainConfig(batch_size=30, epochs=1, evaluations=1)
        made = dataclasses.replace(config(cache=tiers, **held), train=small)
        run = train(made, of_table, name, progress=False, vocabulary=vocabulary)
        found.append(run.metrics)
        close(run.model)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    assert found[0] == found[1]


def test_a_converted_embedding_has_no_tiers(tmp_path):
    with pytest.raises(ValueError, match=r"model\.cache"):
        config(embedding="converted", cache=CacheConfig(host_rows=9, ssd_path=tmp_path))
