# SPDX-License-Identifier: Apache-2.0
"""Networks start at the labels' means, and learn numbers in standard deviations of the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mindspore import nn, set_seed

from mindspore_rec import LazyAdam, RecModel, Schema, load, models, tables_of
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.data import Sample, read
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn, WeightColumn
from mindspore_rec.serving import Predictor

FEATURES = [CategoryColumn("shop"), NumberColumn("size")]


def sales(rows: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"shop": rng.integers(0, 30, rows), "size": rng.normal(size=rows)})
    frame["price"] = frame.shop % 5 + frame["size"] + rng.normal(0, 0.3, rows)
    frame["sold"] = (rng.random(rows) < 0.01 + 0.002 * (frame.shop % 5)).astype(int)
    return frame


def new_model(*labels: LabelColumn, model: str = "wide_deep", **settings: object) -> RecModel:
    set_seed(1)
    schema = Schema([*FEATURES, *labels], embedding_dim=4)
    recipe = {"model": model, "settings": settings}
    return RecModel(models.build(recipe, schema, name="label_scale", seed=1))


def close(model: RecModel) -> None:
    for table in tables_of(model.train_network):
        table.close()


@pytest.mark.parametrize(
    ("factor", "shift", "members"), [(1e4, 5e5, 1), (1e-6, 0.0, 2), (1e12, 0.0, 1)]
)
def test_the_unit_of_a_label_changes_only_the_unit_of_predictions(
    factor: float, shift: float, members: int
) -> None:
    rows = sales()
    predictions, figures = [], []
    for frame in (rows, rows.assign(price=rows.price * factor + shift)):
        model = new_model(LabelColumn("price", binary=False), hidden=(8,), members=members)
        model.train(4, frame, progress=False)
        predictions.append(model.predict(frame).astype(np.float64))
        figures.append(model.eval(frame, progress=False)["rmse"])
        close(model)
    expected = predictions[0] * factor + shift
    assert np.abs(predictions[1] - expected).max() < 0.01 * abs(factor)
    assert figures[1] == pytest.approx(figures[0] * abs(factor), rel=0.01)
    assert figures[0] < rows.price.std()


@pytest.mark.parametrize("model", ["logistic_regression", "wide_deep", "dcn", "dcn_v2", "deepfm"])
def test_a_network_starts_at_the_means(model: str) -> None:
    rows = sales()
    settings: dict[str, object] = {} if model == "logistic_regression" else {"hidden": (8,)}
    for name, binary in (("sold", True), ("price", False)):
        made = new_model(LabelColumn(name, binary=binary), model=model, **settings)
        network = made.predict_network
        assert not network.is_started
        batches = made.batches(rows)
        assert network.is_started
        level, answer = rows[name].mean(), made.predict(rows).mean()
        if binary:  # the first random weights add less than 1 to a logit
            assert abs(np.log(answer / level)) < 1
        else:
            assert abs(answer - level) < 0.5 * rows[name].std()
        before = [bias.asnumpy() for bias in network.last_biases]
        made.batches(rows.assign(**{name: 1 - rows[name]}))  # it starts once
        for bias, value in zip(network.last_biases, before, strict=True):
            assert np.array_equal(bias.asnumpy(), value)
        assert batches is not None
        close(made)


def test_several_labels_start_at_their_means() -> None:
    rows = sales()
    labels = [LabelColumn("sold"), LabelColumn("price", binary=False)]
    model = new_model(*labels, model="mmoe", members=2)
    model.batches(rows)
    answers = model.predict(rows).mean(0)
    assert abs(np.log(answers[0] / rows.sold.mean())) < 1
    assert abs(answers[1] - rows.price.mean()) < 0.5 * rows.price.std()
    close(model)


def test_weights_and_thinned_rows_count(tmp_path: Path) -> None:
    rows = sales(20_000)
    rows.to_parquet(tmp_path / "rows.parquet")
    model = new_model(LabelColumn("sold"), model="logistic_regression")
    schema = model.schema
    assert schema is not None
    model.batches(read(tmp_path / "rows.parquet", schema, sample=Sample(negatives=0.1)))
    assert abs(np.log(model.predict(rows).mean() / rows.sold.mean())) < 1
    close(model)
    weighted = Schema([*FEATURES, WeightColumn("w"), LabelColumn("price", binary=False)])
    model = RecModel(models.LogisticRegression(weighted, name="label_scale"))
    model.batches(rows.assign(w=(rows.shop == 4).astype(float)))
    chosen = rows[rows.shop == 4]
    scale = model.predict_network.label_scale
    assert scale.mean.asnumpy()[0, 0] == pytest.approx(chosen.price.mean(), rel=1e-4)
    assert scale.deviation.asnumpy()[0, 0] == pytest.approx(chosen.price.std(), rel=1e-2)
    close(model)


def test_the_scale_is_saved_served_and_kept(tmp_path: Path) -> None:
    rows = sales()
    rows["price"] = rows.price * 1000 + 50_000
    model = new_model(LabelColumn("price", binary=False), hidden=(8,))
    run = RecCheckpoint(
        tmp_path / "run", every_steps=2, states=model.states, publication=model.publication
    )
    model.train(2, rows, run, progress=False)
    expected = model.predict(rows)
    with Predictor(tmp_path / "run") as predictor:
        served = np.asarray(predictor.predict({name: rows[name] for name in ("shop", "size")}))
    np.testing.assert_allclose(served.reshape(-1), expected, rtol=1e-5)
    model.save(tmp_path / "model")
    close(model)
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.predict(rows), expected)
    other = rows.assign(price=rows.price + 9e9)  # a further training keeps the scale
    loaded.batches(other)
    assert np.array_equal(loaded.predict(rows), expected)
    close(loaded)


def test_a_loss_of_the_user_gets_the_label_itself() -> None:
    rows = sales(500)
    rows["price"] += 100
    schema = Schema([*FEATURES, LabelColumn("price", binary=False)], embedding_dim=4)
    network = models.LogisticRegression(schema, name="label_scale")
    model = RecModel(network, nn.MSELoss(), LazyAdam(network.trainable_params(), 0.01))
    model.train(1, rows, progress=False)
    assert not network.is_started
    outputs = model.predict(rows)
    assert np.abs(outputs).max() < 50  # Adam's first steps from 0, without a start at 100
    close(model)


def test_labels_beyond_float32_are_refused() -> None:
    rows = sales(500)
    rows.loc[3, "price"] = 1e300
    model = new_model(LabelColumn("price", binary=False), hidden=(8,))
    with pytest.raises(ValueError, match="column 'price' must be at most 3.4e38"):
        model.train(1, rows, progress=False)
    close(model)


def test_bad_levels_are_refused() -> None:
    model = new_model(LabelColumn("price", binary=False), hidden=(8,))
    network = model.predict_network
    for means, deviations, message in (
        ([1.0, 2.0], [1.0, 1.0], "means must be 1 finite numbers"),
        ([float("nan")], [1.0], "means must be 1 finite numbers"),
        ([1.0], [float("inf")], "deviations must be 1 finite numbers"),
        ([1.0], [-1.0], "deviations must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            network.start_at(means, deviations)
    assert not network.is_started
    network.start_at([5.0], [0.0])  # a constant label
    assert model.predict_network.label_scale.deviation.asnumpy().tolist() == [[1.0]]
    close(model)
