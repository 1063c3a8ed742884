# SPDX-License-Identifier: Apache-2.0
"""A RecModel of a schema: raw rows in, probabilities out; saved, loaded and served the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mindspore import Tensor, nn, train

from mindspore_rec import AUC, LazyAdam, RecModel, Schema, load, models, tables_of
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.command.evaluation import score, task_figures
from mindspore_rec.data import Sample, read
from mindspore_rec.feature import (
    CategoryColumn,
    Column,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TimeColumn,
    WeightColumn,
)
from mindspore_rec.metrics import functional
from mindspore_rec.nn import BCEWithLogitsLoss
from mindspore_rec.serving import Predictor
from mindspore_rec.train import ProgressiveValidation
from mindspore_rec.train.loop.hints import forget_hints
from mindspore_rec.train.loop.schema_loss import SchemaLoss

BASE: list[Column] = [
    CategoryColumn("user", group=True, eviction=86400),
    CategoryColumn("city"),
    NumberColumn("price"),
    ListColumn("tags", length=4),
    TimeColumn("ts", unit="ms", parts=("hour",)),
]
CLICK, BUY, STAY = LabelColumn("clicked"), LabelColumn("bought"), LabelColumn("stay", binary=False)
WEIGHT = WeightColumn("w")


def clicks(rows: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "user": rng.integers(0, 60, rows),
            "city": [["Rome", "Lyon", None][k] for k in rng.integers(0, 3, rows)],
            "price": rng.normal(0, 9, rows),
            "tags": [list("abcdef"[: int(k)]) for k in rng.integers(0, 6, rows)],
            "ts": 1_700_000_000_000 + np.arange(rows) * 1000,
            "w": rng.random(rows) + 0.5,
        }
    )
    score = frame.user % 7 + frame.price / 3 + frame.tags.map(len)
    frame["clicked"] = (score > 4).astype(int)
    frame["bought"] = score > 6
    frame["stay"] = score.astype(float)
    return frame


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> Any:
    before = ms.get_context("mode")
    ms.set_context(mode=request.param)
    yield request.param
    ms.set_context(mode=before)


def test_rows_in_probabilities_out_saved_loaded_and_served(mode: int, tmp_path: Path) -> None:
    rows, test = clicks(), clicks(500, seed=1)
    schema = Schema([*BASE, WEIGHT, CLICK], embedding_dim=8)
    network = models.DCNv2(schema, hidden=(16,), name=f"schema.{mode}")
    model = RecModel(network, metrics=["auc", "log_loss", "gauc"])
    summary = model.fit(4, rows, test, progress=False)
    assert ms.get_context("mode") == mode
    assert summary.history[-1][1]["auc"] > 0.93
    metrics = model.eval(test, progress=False)
    assert set(metrics) == {"auc", "log_loss", "gauc"}
    raw = test.drop(columns=["clicked", "w"])
    answers = model.predict(raw)
    assert answers.shape == (500,) and answers.dtype == np.float32
    weighted = functional.auc(test.clicked, answers, test.w)
    assert weighted == pytest.approx(metrics["auc"], abs=1e-6)
    # a dict of columns, and the arrays of the network
    np.testing.assert_array_equal(model.predict(raw.to_dict("list")), answers)
    assert model.schema is not None
    arrays = model.schema.arrays_of(raw, with_label=False)
    logits = model.predict(arrays["ids"], arrays["numbers"]).asnumpy()[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), answers, atol=1e-6)
    model.save(tmp_path / "clicks.model")
    with Predictor(tmp_path / "clicks.model") as predictor:
        served = np.asarray(predictor.predict(raw[:20])).reshape(-1)
        np.testing.assert_allclose(served, answers[:20], atol=1e-6)
    assert list(load(tmp_path / "clicks.model", metrics="auc").eval(test)) == ["auc"]
    loaded = load(tmp_path / "clicks.model")  # with the metrics of the saved model
    np.testing.assert_allclose(loaded.predict(raw), answers, atol=1e-6)
    assert loaded.eval(test, progress=False) == pytest.approx(metrics, abs=1e-6)
    loaded.train(1, rows, progress=False)  # it trains on


def auc_of(label: Any, answers: np.ndarray) -> float:
    metric = AUC()
    metric.update(answers, np.asarray(label))
    return float(metric.eval())


def test_several_tasks_of_both_kinds(tmp_path: Path) -> None:
    rows = clicks()
    schema = Schema([*BASE, CLICK, BUY, STAY], embedding_dim=8)
    model = RecModel(models.MMoE(schema, name="schema.tasks"))
    model.train(25, rows, progress=False)
    metrics = model.eval(rows, progress=False)
    assert set(metrics) == {
        "auc.clicked", "auc.bought", "log_loss.clicked", "log_loss.bought", "rmse.stay"
    }  # fmt: skip
    assert metrics["auc.clicked"] > 0.9 and metrics["rmse.stay"] < rows.stay.std()
    answers = model.predict(rows)
    assert answers.shape == (4000, 3)
    assert (answers[:, :2] >= 0).all() and (answers[:, :2] <= 1).all()
    error = np.sqrt(np.mean((answers[:, 2] - rows.stay) ** 2))
    assert error == pytest.approx(metrics["rmse.stay"], rel=1e-5)
    model.save(tmp_path / "saved")
    with Predictor(tmp_path / "saved") as predictor:
        np.testing.assert_allclose(predictor.predict(rows[:9]), answers[:9], atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labels", [(CLICK,), (CLICK, BUY), (STAY,), (CLICK, STAY, BUY)])
def test_loss_is_the_formula(labels: tuple[LabelColumn, ...], weighted: bool) -> None:
    rng = np.random.default_rng(len(labels))
    z = rng.normal(0, 3, (7, len(labels)))
    y = np.stack(
        [rng.integers(0, 2, 7) if each.binary else rng.normal(0, 3, 7) for each in labels], 1
    )
    w = rng.random((7, 1)) if weighted else np.ones((7, 1))
    logs = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    each = np.where([label.binary for label in labels], logs, (z - y) ** 2 / 2)
    expected = (each * w).mean()
    loss = SchemaLoss(Schema([CategoryColumn("user"), *labels]))
    tensors = [Tensor(a.astype(np.float32)) for a in ((z, y, w) if weighted else (z, y))]
    assert float(loss(*tensors).asnumpy()) == pytest.approx(expected, rel=1e-5)


def test_weights_count_rows() -> None:
    """Rows of weight 0 change nothing, and a label that only such rows have is not learned."""
    rows = clicks(2000)
    rows["w"] = (rows.city == "Rome").astype(float)
    rows.loc[rows.city != "Rome", "clicked"] = 1 - rows.clicked
    schema = Schema([*BASE, WEIGHT, CLICK], embedding_dim=8)
    model = RecModel(models.LogisticRegression(schema, name="schema.weights"))
    model.train(8, rows, progress=False)
    rome = rows[rows.city == "Rome"]
    assert auc_of(rome.clicked, model.predict(rome)) > 0.9


def test_thinned_negatives_leave_probabilities_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 20, 40_000)
    rows = pd.DataFrame({"user": user, "clicked": rng.random(40_000) < 0.02 + 0.004 * user})
    rows.to_parquet(tmp_path / "rows.parquet")
    for columns in ([], [WeightColumn("w")]):
        if columns:
            rows["w"] = 1.0
            rows.to_parquet(tmp_path / "rows.parquet")
        schema = Schema([CategoryColumn("user"), *columns, CLICK], embedding_dim=8)
        thin = read(tmp_path / "rows.parquet", schema, sample=Sample(negatives=0.1))
        assert len(thin) < 7000
        network = models.LogisticRegression(schema, name=f"schema.thin{len(columns)}")
        optimizer = LazyAdam(network.trainable_params(), learning_rate=0.02)
        model = RecModel(network, optimizer=optimizer)
        model.train(20, thin, progress=False)
        answers = model.predict(rows)
        assert answers.mean() == pytest.approx(rows.clicked.mean(), rel=0.1)
        names = ["auc", "log_loss", "normalized_entropy", "calibration"]
        measured = RecModel(network, metrics=names).eval(thin, progress=False)
        table = thin.to_table()
        weight = np.asarray(table["w" if columns else "weight"])
        assert set(weight.tolist()) == {1.0, 10.0}
        of = (np.asarray(table["clicked"]).astype(int), model.predict(table), weight)
        for name in names:
            assert measured[name] == pytest.approx(getattr(functional, name)(*of), rel=1e-5)
        assert measured["calibration"] == pytest.approx(1, abs=0.1)
        for metrics in ({"auc": AUC(from_logits=True)}, {"mae": train.MAE()}):
            with pytest.raises(ValueError, match="read without sample=: the metric '.*' counts"):
                RecModel(network, metrics=metrics).eval(thin, progress=False)


def test_metrics_weight_rows_as_the_command_does() -> None:
    rows = clicks(3000)
    rows["w"] = np.where(rows.price > 3, 5.0, 0.25)
    schema = Schema([*BASE, WEIGHT, CLICK, STAY], embedding_dim=8)
    names = ["auc", "log_loss", "normalized_entropy", "calibration", "gauc", "rmse", "mae"]
    names += ["mse", "accuracy"]
    model = RecModel(models.MMoE(schema, name="schema.weighted_metrics"), metrics=names)
    model.train(2, rows, progress=False)

    def predict(batch: Any) -> np.ndarray:
        """Return float64, since equal float32 of different logits would be ties."""
        assert model.schema is not None
        arrays = model.schema.arrays_of(batch, with_label=False)
        outputs = model.predict(arrays["ids"], arrays["numbers"])
        made = model.predict_network.label_scale(outputs).asnumpy().astype(np.float64)
        made[:, 0] = functional.sigmoid(made[:, 0])
        return made

    of_command = task_figures(schema, score(predict, schema, read(rows, schema)))
    measured = model.eval(rows, progress=False)
    for label, figures in of_command.items():
        for name in names:
            if name in figures:
                assert measured[f"{name}.{label}"] == pytest.approx(figures[name], rel=1e-5), name
    answers = model.predict(rows)
    right = (answers[:, 0] > 0.5) == rows.clicked
    assert measured["accuracy.clicked"] == pytest.approx(np.average(right, weights=rows.w))
    assert measured["mse.stay"] == pytest.approx(measured["rmse.stay"] ** 2)
    assert len(measured) == 9
    forget_hints()
    with pytest.warns(RuntimeWarning, match="all weights are 0 in the 3000 rows of valid_dataset"):
        model.eval(rows.assign(w=0.0), progress=False)
    # A metric of your own weights rows if it is asked to.
    own = {"rows": AUC(from_logits=True), "weights": AUC(from_logits=True, weighted=True)}
    later = RecModel(model.predict_network, metrics=own)
    by_hand = later.eval(rows, progress=False)
    assert by_hand["weights"] == measured["auc.clicked"]
    assert by_hand["rows"] == pytest.approx(functional.auc(rows.clicked, predict(rows)[:, 0]))
    assert abs(by_hand["rows"] - by_hand["weights"]) > 1e-3
    # So does a progressive validation, which a stream has.
    validation = ProgressiveValidation(later, window=3000)
    later.online_train(later.batches(rows), validation, progress=False)
    every = validation.state_dict()
    assert sorted(every["weight"]) == pytest.approx(sorted(rows.w))
    of = (every["label"], every["prediction"], every["weight"])
    figures = validation.figures()
    assert figures["log_loss"] == pytest.approx(functional.log_loss(*of, from_logits=True))
    assert figures["drift"] == pytest.approx(0, abs=1e-6)
    restored = ProgressiveValidation(model, window=3000)
    restored.load_state_dict(every)
    assert restored.figures() == figures


def test_event_time_evicts_rows() -> None:
    rows = clicks(1000)
    rows.loc[:499, "user"] += 1000  # users of the first half never come again
    rows["ts"] = 1_700_000_000_000 + np.arange(1000) * 86_400_000 // 100
    schema = Schema([*BASE, CLICK], embedding_dim=8)
    network = models.DCN(schema, hidden=(8,), name="schema.time")
    model = RecModel(network)
    for day in range(0, 1000, 100):
        model.train(1, rows[day : day + 100], progress=False)
    users = [table for table in tables_of(network) if table.config.eviction is not None]
    assert users and all(table.stats()["rows"] < 200 for table in users)


def test_training_goes_on_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    def trained(steps: list[int], path: Path) -> np.ndarray:
        for most in steps:
            ms.set_seed(3)
            schema = Schema([*BASE, WEIGHT, CLICK], embedding_dim=8)
            network = models.WideDeep(schema, hidden=(8,), name="schema.resume", seed=5)
            model = RecModel(network)
            batches = model.batches(clicks(), 256)
            saves = RecCheckpoint(path, every_steps=10_000, states=model.states)
            saves.restore(model, batches)
            model.train(2, batches, saves, max_steps=most, progress=False)
        return model.predict(clicks(100, seed=2))

    whole = trained([25], tmp_path / "whole")
    parts = trained([7, 18], tmp_path / "parts")
    np.testing.assert_array_equal(whole, parts)


def test_what_is_refused() -> None:
    schema = Schema([*BASE, WEIGHT, CLICK], embedding_dim=8)
    network = models.DCN(schema, hidden=(8,), name="schema.refused")
    for names, words in (
        (["acu"], "metric 'acu' is not known: 'auc' is similar"),
        (["rmse"], "labels that are numbers, and there are none"),
        (["auc", "mae"], "metric 'mae' is for labels that are numbers, and there are none"),
        (["acuracy"], "metric 'acuracy' is not known: 'accuracy' is similar"),
    ):
        with pytest.raises(ValueError, match=words):
            RecModel(network, metrics=names)
    with pytest.raises(ValueError, match="loss_fn must be left out"):
        RecModel(network, BCEWithLogitsLoss(), LazyAdam(network.trainable_params()))
    model = RecModel(network)
    with pytest.raises(ValueError, match="scales of the schema have learned nothing"):
        model.eval(clicks(), progress=False)
    with pytest.raises(ValueError, match="'price'.*'abc'"):
        model.train(1, clicks(100).assign(price="abc"), progress=False)
    with pytest.raises(ValueError, match="no column .city."):
        model.train(1, clicks(100).drop(columns="city"), progress=False)
    with pytest.raises(ValueError, match="'clicked'.*0 or 1"):
        model.train(1, clicks(100).assign(clicked=3), progress=False)
    for rows, words in (
        ("clicks.csv", r"got the path 'clicks.csv': mindspore_rec.data.read\(path\)"),
        (clicks(100).iloc[0], r"got a Series: frame.iloc\[\[0\]\]"),
    ):
        with pytest.raises(TypeError, match=words):
            model.predict(rows)
        with pytest.raises(TypeError, match=words):
            model.train(1, rows, progress=False)
    rows = read(clicks(100), schema)
    with pytest.raises(ValueError, match="batch_size must be None for ArrowBatches"):
        model.batches(rows.batches(10), 20)
    with pytest.raises(ValueError, match="batch_size must be in"):
        model.batches(rows, 0)
    plain = RecModel(models.DCN(Schema([*BASE, CLICK]), name="schema.plain"), metrics=None)
    with pytest.raises(ValueError, match="'gauc' needs a group"):
        columns = [CategoryColumn("city"), CLICK]
        RecModel(models.DCN(Schema(columns), name="schema.no_group"), metrics=["gauc"])
    assert plain.schema is not None
    other = nn.Dense(2, 1)
    with pytest.raises(ValueError, match="the network must be made from a schema to be described"):
        assert RecModel(other, nn.MSELoss(), LazyAdam(other.trainable_params())).publication


def test_rows_of_every_form_get_one_answer(tmp_path: Path) -> None:
    rows = clicks(300)
    schema = Schema([*BASE, CLICK], embedding_dim=8)
    model = RecModel(models.DCN(schema, hidden=(8,), name="schema.forms"))
    model.train(2, rows, progress=False)
    answers = model.predict(rows)
    names = [column.name for column in schema.features]
    rows[names].to_parquet(tmp_path / "new.parquet")  # without labels
    forms: dict[str, Any] = {
        "frame with a column that Arrow cannot convert": rows.assign(other=[object()] * 300),
        "rows of a file": read(tmp_path / "new.parquet", schema),
        "table": pa.Table.from_pandas(rows[names[::-1]]),
        "dicts": rows[names].to_dict("records"),
        "dict of columns": rows.to_dict("list"),
    }
    for form, each in forms.items():
        np.testing.assert_array_equal(model.predict(each), answers, err_msg=form)
    assert model.predict(rows[:0]).shape == (0,)
    row = {**rows.iloc[0].to_dict(), "tags": []}
    assert model.predict({name: [value] for name, value in row.items()}).shape == (1,)
    with pytest.raises(TypeError, match="got a Series"):
        model.predict(rows.iloc[0])
    with pytest.raises(ValueError, match="must have a column 'clicked'"):
        model.train(1, read(tmp_path / "new.parquet", schema), progress=False)


@pytest.mark.parametrize("batched", [False, True])
def test_texts_of_digits_in_csv_are_texts(tmp_path: Path, batched: bool) -> None:
    frame = pd.DataFrame({"zip": [f"{n % 20:05d}" for n in range(400)]})
    frame["clicked"] = np.arange(400) % 20 % 2
    frame.to_csv(tmp_path / "a.csv", index=False)
    schema = Schema([CategoryColumn("zip", values="text"), CLICK])
    model = RecModel(models.WideDeep(schema, name=f"digits.{batched}"))
    rows = read(tmp_path / "a.csv")  # without a schema, zip is int64
    model.fit(3, rows.batches(100) if batched else rows, progress=False)
    answers = model.predict(frame)
    assert auc_of(frame.clicked, answers) > 0.9
    np.testing.assert_array_equal(model.predict(rows), answers)
    assert model.eval(rows, progress=False)["auc"] > 0.9


def test_models_of_one_schema_have_scales_of_their_own() -> None:
    schema = Schema([NumberColumn("n"), LabelColumn("clicked")], embedding_dim=4)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"n": rng.random(2000), "clicked": rng.integers(0, 2, 2000)})
    first = RecModel(models.DCN(schema, hidden=(8,), name="schema.first"))
    first.train(1, rows, progress=False)
    before = first.predict(rows)
    second = RecModel(models.DCN(schema, hidden=(8,), name="schema.second"))
    second.train(1, rows.assign(n=rows.n * 1000 + 5), progress=False)
    schema.fit(rows.assign(n=-rows.n))
    np.testing.assert_array_equal(first.predict(rows), before)
    assert second.schema is not None and first.schema is not None
    assert second.schema.state_dict() != first.schema.state_dict()
