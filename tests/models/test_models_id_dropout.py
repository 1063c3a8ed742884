# SPDX-License-Identifier: Apache-2.0
"""Dropout of ids: a dropped id is an id without a row, in training only, the same in each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Tensor

from mindspore_rec import RecCheckpoint, RecModel, Schema, load, models, tables_of
from mindspore_rec.feature import CategoryColumn, IntegerColumn, LabelColumn, ListColumn
from mindspore_rec.serving import Predictor
from mindspore_rec.train.nn.id_dropout import IdDropout

SCHEMA = Schema(
    [
        CategoryColumn("user", dropout=0.5),
        CategoryColumn("city"),
        IntegerColumn("year", dropout=0.25),
        ListColumn("tags", length=2),
        LabelColumn("clicked"),
    ],
    embedding_dim=4,
)


def table(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    user = rng.integers(0, 40, rows)
    return pd.DataFrame(
        {
            "user": [f"u{k}" for k in user],
            "city": rng.choice(["Lyon", "Paris"], rows),
            "year": rng.integers(1990, 2020, rows),
            "tags": [["new", "sale"][: k % 3] for k in range(rows)],
            "clicked": (rng.random(rows) < np.where(user % 2, 0.8, 0.2)).astype(int),
        }
    )


def close(net: Any) -> None:
    for each in tables_of(net):
        each.close()


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(1, 9000),
)
def test_shares_are_dropped_and_nothing_else_changes(
    rates: list[float], seed: int, rows: int
) -> None:
    ids = np.arange(rows * len(rates), dtype=np.int64).reshape(rows, -1)
    cell = IdDropout(rates, -7, seed)
    assert (cell(Tensor(ids)).asnumpy() == ids).all()  # evaluation
    cell.set_train()
    first, second = (cell(Tensor(ids)).asnumpy() for _ in range(2))
    for made in (first, second):
        assert ((made == ids) | (made == -7)).all()
        shares = (made == -7).mean(0)
        bound = 5 * np.sqrt(0.25 / min(rows, 4093)) + 0.001
        assert np.abs(shares - rates).max() < bound
        assert not (made == -7)[:, np.array(rates) == 0].any()
    if 0.5 in rates and rows > 100:
        assert (first != second).any()
    again = IdDropout(rates, -7, seed).set_train()
    assert (again(Tensor(ids)).asnumpy() == first).all()


@pytest.mark.parametrize("rates", [[1.0], [-0.1], ["a"]])
def test_rates_are_probabilities(rates: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="rates must"):
        IdDropout(rates, -1)


@pytest.mark.parametrize("dropout", [0, 1, 1.5, -0.1, "a"])
def test_the_option_is_a_probability(dropout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="column 'a': dropout must"):
        CategoryColumn("a", dropout=dropout)


def test_a_schema_has_the_option_as_plain_values() -> None:
    again = Schema.from_description(SCHEMA.describe())
    assert [each.dropout for each in again.fields] == [each.dropout for each in SCHEMA.fields]
    assert {each.name: each.dropout for each in SCHEMA.fields if each.dropout} == {
        "user": 0.5,
        "year": 0.25,
    }


@pytest.mark.parametrize("name", ["dcn_v2", "deepfm", "wide_deep", "logistic_regression"])
def test_a_dropped_id_is_an_id_without_a_row(mode: Any, unique: Any, name: str) -> None:
    """In training, a row has the logit of a row in which unknown values replace some values."""
    net = models.get(name)(SCHEMA, name=unique())
    frame = table(60)
    schema = net.schema
    schema.fit(frame)
    model = RecModel(net)
    model.train(3, frame, progress=False)
    arrays = schema.arrays_of(frame, with_label=False)
    inputs = [Tensor(arrays[each]) for each in schema.inputs]
    net.set_train()
    trained = net(*inputs).asnumpy()
    net.set_train(False)
    possible = []
    for user, year in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        ids = arrays["ids"].copy()
        unknown = {"user": user, "year": year}
        for field in schema.fields:
            if unknown.get(field.name):
                ids[:, field.start] = 12345
        rest = inputs[1:]
        possible.append(net(Tensor(ids), *rest).asnumpy())
    near = np.abs(np.array(possible) - trained) < 1e-5
    assert near.any(0).all()
    assert not near[0].all() and (np.ptp(possible, axis=0) > 1e-4).any()
    close(net)


def test_without_the_option_nothing_changes(unique: Any) -> None:
    plain = Schema([CategoryColumn("user"), LabelColumn("clicked")], 4)
    net = models.DCNv2(plain, name=unique())
    assert not [each for _, each in net.cells_and_names() if isinstance(each, IdDropout)]
    assert not [each.name for each in net.get_parameters() if "used" in each.name]


def test_a_training_repeats_and_continues_bit_for_bit(unique: Any, tmp_path: Path) -> None:
    name, frame = unique(), table()

    def run(folder: Path, *most: int) -> np.ndarray:
        for steps in most:
            ms.set_seed(1)
            model = RecModel(models.DCNv2(SCHEMA, name=name, seed=5))
            batches = model.batches(frame, 50)
            checkpoint = RecCheckpoint(folder, every_steps=100, states=model.states)
            done = checkpoint.restore(model, batches) or 0
            left = steps - done
            model.train(2, batches, checkpoint, max_steps=left, progress=False)
        answers = model.predict(frame)
        close(model.train_network)
        return answers

    whole = run(tmp_path / "whole", 16)
    assert (run(tmp_path / "again", 16) == whole).all()
    assert (run(tmp_path / "parts", 5, 11, 16) == whole).all()


def test_evaluation_saved_model_and_predictor_drop_nothing(unique: Any, tmp_path: Path) -> None:
    frame = table()
    model = RecModel(models.DeepFM(SCHEMA, name=unique()))
    model.fit(2, frame, frame, progress=False)
    answers = model.predict(frame)
    assert (model.predict(frame) == answers).all()
    model.save(tmp_path / "model")
    close(model.train_network)
    loaded = load(tmp_path / "model")
    assert (loaded.predict(frame) == answers).all()
    with Predictor(tmp_path / "model") as predictor:
        served = predictor.predict(frame.drop(columns="clicked"))
    np.testing.assert_allclose(np.ravel(served), answers, atol=1e-6)
    close(loaded.train_network)
